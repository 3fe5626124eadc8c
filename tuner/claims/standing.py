# SPDX-License-Identifier: MIT
"""How the policies stand: the published verdicts of the claims that run each of them."""

from __future__ import annotations

from collections import Counter, defaultdict

from tuner.claims import document, page
from tuner.files import shipped


def standing() -> dict[str, Counter[str]]:
    """For each policy the number of claims by verdict ("pass", "fail", "not evaluable"). A claim
    counts for every policy that its runs have; references, which others are compared with, are
    among them."""
    rows = page.read(shipped("results/claims.json", "claims.json"))["claims"]
    verdicts: dict[str, list[str]] = defaultdict(list)
    for row in rows:  # a table's order is a verdict of its own
        verdicts[row["id"].removesuffix("-order")].append(row["verdict"])
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in document.load(document.default_folder()):
        points = (point for family in claim.families.values() for point in family)
        for policy in {str(point.scenario["policy"]) for point in points}:
            found[policy].update(verdicts[claim.id])
    return found
