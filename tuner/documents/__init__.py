# SPDX-License-Identifier: MIT
"""What people write, in YAML: workloads, machines and spaces."""
