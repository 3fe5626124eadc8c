# SPDX-License-Identifier: MIT
"""Runs a study: trials, the checks beside them, the verdict, and what explains it."""
