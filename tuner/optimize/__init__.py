# SPDX-License-Identifier: MIT
"""A study in progress: which configuration to try next, and the loop that tries it."""
