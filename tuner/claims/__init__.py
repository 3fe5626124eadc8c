# SPDX-License-Identifier: MIT
"""Published results, and whether the simulator comes to the same (docs/claims.md)."""
