# SPDX-License-Identifier: MIT
"""The Pareto front of a study with several objectives: trials that no other one beats in one
objective without losing in another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from tuner.figure import FIGURES
from tuner.model import Model
from tuner.study.constraint import value_of

if TYPE_CHECKING:
    from tuner.run.settings import Setting
    from tuner.run.trial import TrialResult
    from tuner.study.log import StudyData, TrialRecord

MOST_POINTS = 8
"""Of the front, as many are measured on held-out seeds, written and shown."""


class Point(Model):
    """A trial of the front. `values` are its figures on the study's seed, by objective, and
    `held_out` their means on the held-out seeds, empty if a run there failed. `beaten`: there
    another one shown is as good in every objective and better in one."""

    trial: int
    values: dict[str, float]
    held_out: dict[str, float] = Field(default_factory=dict)
    beaten: bool = False


class Front(Model):
    """`points` in the order of the first objective, the best first, of which `left_out` others are
    not shown; `best` is the trial in best.yaml. `default` is the policy's default."""

    objectives: list[str]
    seeds: list[int]
    points: list[Point]
    left_out: int = 0
    best: int
    default: Point | None = None


def values(
    setting: Setting, objectives: Sequence[str], result: TrialResult | None
) -> dict[str, float] | None:
    """The figures of a trial that has them all; None for another one."""
    found = {name: value_of(setting, name, result) for name in objectives}
    known = {name: value for name, value in found.items() if value is not None}
    return known if len(known) == len(objectives) else None


def costs(figures: Mapping[str, float]) -> list[float]:
    """Lower is better, in the order of the objectives."""
    return [FIGURES[name].cost(value) for name, value in figures.items()]


def candidates(study: StudyData) -> list[TrialRecord]:
    """What may be called best: the trials that succeeded and meet the constraints; of a study with
    several objectives the front of these, in the order of the first objective."""
    request = study.header.request
    if not request.objectives:
        return study.good
    known = [
        (costs(figures), trial.number, trial)
        for trial in study.good
        if (figures := values(request, request.objectives, trial.result)) is not None
    ]
    known.sort(key=lambda each: each[:2])
    found: list[tuple[list[float], int, TrialRecord]] = []
    for each in known:  # whatever beats it comes before it
        if not any(beats(other[0], each[0]) or other[0] == each[0] for other in found):
            found.append(each)
    return [trial for *_, trial in found]


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether costs are as good everywhere, and better somewhere."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def spread(front: Sequence[TrialRecord], best: int) -> list[TrialRecord]:
    """At most `MOST_POINTS` of them: both ends, the one in best.yaml, and others at even steps."""
    if len(front) <= MOST_POINTS:
        return list(front)
    last = len(front) - 1
    places = {math.floor(k * last / (MOST_POINTS - 1) + 0.5) for k in range(MOST_POINTS)}
    own = next((k for k, trial in enumerate(front) if trial.number == best), 0)
    if own not in places:  # in place of its neighbour, but of no end
        places.remove(min(places - {0, last}, key=lambda k: abs(k - own)))
        places.add(own)
    return [front[k] for k in sorted(places)]
