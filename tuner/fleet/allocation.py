# SPDX-License-Identifier: MIT
"""Which study gets how many trials: a pure function of what the studies' trials have come to.

Trials are given in rounds, and a round is decided when all trials of the one before have ended. So
the decisions follow from the studies' logs alone: a fleet that was killed takes them again, and
they do not depend on which trial was faster. First every study gets one trial, its default; those
that run get the least of the plan; then each round gives a batch to the better half of the studies
that still gain. One that has stopped gaining gets nothing until all others have as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

STALL = 2
"""Batches without a gain after which a study has stalled."""

LEAST_GAIN = 0.001
"""Relative; what is less is none."""


@dataclass(frozen=True)
class Rule:
    """`budget` trials for all; each study gets `least` first, then batches up to `most`."""

    budget: int
    least: int
    most: int | None = None
    batch: int = 5


@dataclass(frozen=True)
class Curve:
    """Costs of a study's trials by number, None where one failed. `ended`: it cannot have more."""

    costs: Sequence[float | None]
    ended: bool = False


@dataclass(frozen=True)
class Grant:
    """`expected` is the relative gain that the trials promise; None if that is not why."""

    study: int
    trials: int
    expected: float | None = None


@dataclass
class Allocation:
    """`granted` are trials by study. `settled`: nothing is left to be run or decided."""

    granted: list[int]
    rounds: list[list[Grant]] = field(default_factory=list)
    settled: bool = False


def allocate(curves: Sequence[Curve], rule: Rule) -> Allocation:
    """All decisions that can be taken by now."""
    found = Allocation([0] * len(curves))
    while grants := _round(curves, found.granted, rule, len(found.rounds)):
        found.rounds.append(grants)
        for grant in grants:
            found.granted[grant.study] += grant.trials
        if any(
            len(curve.costs) < granted and not curve.ended
            for curve, granted in zip(curves, found.granted, strict=True)
        ):
            return found
    found.settled = True
    return found


def _round(curves: Sequence[Curve], granted: Sequence[int], rule: Rule, number: int) -> list[Grant]:
    used = [list(curve.costs[:count]) for curve, count in zip(curves, granted, strict=True)]
    # An end shows when more is granted than there is. What was not used goes to others.
    over = [c.ended and count > len(c.costs) for c, count in zip(curves, granted, strict=True)]
    left = rule.budget - sum(
        len(costs) if end else count for end, costs, count in zip(over, used, granted, strict=True)
    )
    if number == 0:
        return _given([Grant(study, 1) for study in range(len(curves))], left)
    able = [
        study
        for study, costs in enumerate(used)
        if costs and costs[0] is not None and not over[study]
    ]
    if number == 1 and able:
        return _given([Grant(study, rule.least - granted[study]) for study in able], left)
    most = rule.budget if rule.most is None else rule.most
    able = [study for study in able if granted[study] < most]
    promise = {study: expected(used[study], rule.batch) for study in able}
    chosen = [study for study in able if promise[study] > 0] or able
    chosen.sort(key=lambda study: (-promise[study], granted[study], study))
    half = chosen[: math.ceil(len(chosen) / 2)]
    return _given(
        [Grant(s, min(rule.batch, most - granted[s]), math.expm1(promise[s])) for s in half], left
    )


def _given(grants: Sequence[Grant], left: int) -> list[Grant]:
    """As far as there are trials left."""
    found = []
    for grant in grants:
        trials = min(grant.trials, left)
        if trials > 0:
            found.append(Grant(grant.study, trials, grant.expected))
            left -= trials
    return found


def best_so_far(costs: Sequence[float | None]) -> list[float]:
    """Logarithms, so that differences are relative; infinite until a trial has succeeded."""
    found, best = [], math.inf
    for cost in costs:
        best = best if cost is None else min(best, math.log(cost))
        found.append(best)
    return found


def expected(costs: Sequence[float | None], batch: int) -> float:
    """What the next batch promises: the best so far falls with the logarithm of the number of
    trials, as fast as over the last half of them, or the last `STALL` batches if those are more. 0
    if these batches gained nothing. The first trial, the default, must have succeeded."""
    best, count = best_so_far(costs), len(costs)
    recent = max(1, count - STALL * batch)
    if best[recent - 1] - best[-1] < LEAST_GAIN:
        return 0.0
    start = max(1, min(count // 2, recent))
    fall = (best[start - 1] - best[-1]) / math.log(count / start)
    return fall * math.log1p(batch / count)
