# SPDX-License-Identifier: MIT
"""How much fast memory a workload needs: the search, its runs, and what is written of them."""
