# SPDX-License-Identifier: MIT
"""Many studies as one plan: its document, who gets the trials, the run, and what comes out."""
