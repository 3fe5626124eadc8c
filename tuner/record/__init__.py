# SPDX-License-Identifier: MIT
"""Workloads of programs that exist: recorded under a sampler, or imported."""
