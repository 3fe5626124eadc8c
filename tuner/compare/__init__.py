# SPDX-License-Identifier: MIT
"""Policies side by side on several workloads: cells, figures, pages, pictures and tracking."""
