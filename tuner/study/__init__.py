# SPDX-License-Identifier: MIT
"""A study at rest: what was asked for, everything that happened, and the best configuration."""
