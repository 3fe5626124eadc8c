# SPDX-License-Identifier: MIT
"""Bounds, choices and ratios of what a user gives, wherever it is given."""

from __future__ import annotations

import re

PROCESS, CONTAINER = "process", "container"
CONTAINER_GIB, CONTAINER_CPUS = 4.0, 1.0
OPTUNA, SMAC3 = "optuna", "smac3"
RIVALS = NONE, FEW, ALL = "none", "few", "all"
NEIGHBOURS = "neighbours"
TOGETHER = WORST, GEOMEAN = "worst", "geomean"
"""How one cost is made of those of several workloads."""
ROBUST = (NEIGHBOURS, NONE, *TOGETHER)
DEADLINE_SECONDS, EMULATED_DEADLINE_SECONDS = 600.0, 3600.0
"""Of a trial, unless it is given."""
MOST_SECONDS = 1e9
MOST_WORKERS = 1024
LEAST_GIB = 0.01
MOST_NODES = 1024
MOST_THREADS = 1 << 16
MOST_GIB = 1 << 20
MOST_SCALE = 1 << 20
MOST_SEEDS = 1000
MOST_BUDGET = 100_000
AUTO = "auto"
AUTO_SECONDS, MOST_AUTO = 60.0, 1000
"""Of a search with such a budget: wall seconds, unless they are given, and trials."""
AUTO_TRIALS, AUTO_GAIN = 40, 0.005
"""It ends when so many trials in a row, once the model has taken over, bring less than this part of
the best together: about what two runs differ by chance."""
_MOST_RATIO = 1000
_LONGEST_RATIO = 20


def fast_share(ratio: str) -> float:
    """Fast-tier capacity as a share of the footprint: 1:8 is 1/9. ValueError for a bad ratio."""
    number = r"([0-9]+(?:\.[0-9]+)?)"
    match = re.fullmatch(f"{number}:{number}", ratio) if len(ratio) <= _LONGEST_RATIO else None
    fast, slow = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if fast <= 0 or slow <= 0:
        raise ValueError(
            "must be FAST:SLOW with two positive numbers, such as 1:8, and at most "
            f"{_LONGEST_RATIO} characters"
        )
    if not 1 / _MOST_RATIO <= fast / slow <= _MOST_RATIO:
        raise ValueError(f"must be between 1:{_MOST_RATIO} and {_MOST_RATIO}:1")
    return fast / (fast + slow)
