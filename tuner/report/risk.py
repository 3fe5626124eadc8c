# SPDX-License-Identifier: MIT
"""What going by the simulator has cost where results are published."""

from __future__ import annotations

from tuner.documents.reading import read_json
from tuner.files import shipped


def risk() -> str:
    """The regret of results/claims.json as a sentence; empty where no table was judged."""
    found = read_json(shipped("results/claims.json", "claims.json"))
    mean, worst = found.get("regret"), found.get("worst_regret")
    if mean is None or worst is None:
        return ""
    return (
        "simulated: the simulator's best system is "
        f"{100 * mean:.1f} % behind the best published one on average, {100 * worst:.0f} % at worst"
    )
