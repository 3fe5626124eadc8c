# SPDX-License-Identifier: MIT
"""What is shown of studies and of workloads."""
