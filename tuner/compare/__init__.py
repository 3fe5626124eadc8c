"""Policies side by side on several workloads: cells, figures, pages, pictures and tracking."""
