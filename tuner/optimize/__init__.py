# SPDX-License-Identifier: MIT
"""The search: which configuration to try next."""
