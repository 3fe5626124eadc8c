# SPDX-License-Identifier: MIT
"""The configurations that are as good as the best as far as runs can tell, and what they have in
common: on which knobs they agree, and which are free.

They are trials of one seed, so two of them differ by chance as two runs of one configuration on
different seeds do. A search looks most where it has found most; that near-best configurations agree
on a knob is what it saw, and no proof that other values would not do. That they differ is one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tuner.declarations import KnobDecl, KnobValue
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.study.contender import Kind, half_width
from tuner.study.log import StudyData, TrialRecord
from tuner.study.verdict import Verdict
from tuner.text import percent, short, with_unit

FEW = 5
"""With fewer configurations nothing is said of knobs."""
NARROW, WIDE = 0.2, 0.5
"""Of a knob's range: what near-best configurations that agree have of it at most, and what they
have at least where the knob is free."""
GAP = 0.25
"""Of the range: in a free knob's part of it, no larger one is without such a configuration."""
MOST = 0.1
"""Two runs that differ by more than this by chance cannot tell which trials are as good."""
LEAST = 1e-4
"""A difference of less is told as this."""


class Freedom(StrEnum):
    agree = "agree"
    free = "free"
    neither = "neither"


class NearKnob(Model):
    """The values that the near-best configurations have of a knob: from `low` to `high`, or those
    of `values` where they are a choice. `part` is theirs of all that the search could take, on the
    knob's scale. Configurations in which it has no effect do not count; `count` do."""

    name: str
    freedom: Annotated[Freedom, Field(strict=False)]
    count: int
    part: float
    low: float | None = None
    high: float | None = None
    values: list[KnobValue] = Field(default_factory=list)


class NearBest(Model):
    """`trials` are the near-best ones in order, within `within` of the best one's cost, relatively:
    half the interval of a difference between two runs. `knobs` are the tuned ones; empty with fewer
    than `FEW` trials, and where `within` is more than `MOST`."""

    within: float
    trials: list[int]
    knobs: list[NearKnob] = Field(default_factory=list)

    def of(self, freedom: Freedom) -> list[NearKnob]:
        return [knob for knob in self.knobs if knob.freedom is freedom]


def near_best(study: StudyData, verdict: Verdict) -> NearBest | None:
    """None if no gain was found, or the runs do not tell how much chance does."""
    best, tuned = study.best, verdict.contender(Kind.tuned)
    if best is None or best.number == 0 or best.objective is None or tuned is None:
        return None
    logs = [math.log(value) for value in tuned.values if value is not None]
    if len(logs) < 2:
        return None
    mean, free = sum(logs) / len(logs), len(logs) - 1
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / free)
    within = math.expm1(half_width(math.sqrt(2) * deviation, free))
    objective = OBJECTIVES[study.header.request.scenario.objective]
    most = objective.cost(best.objective) * (1 + within)
    near = [
        trial
        for trial in study.good
        if trial.objective is not None and objective.cost(trial.objective) <= most
    ]
    numbers = sorted({trial.number for trial in near} | {best.number})
    if len(near) < FEW or within > MOST:
        return NearBest(within=within, trials=numbers)
    if study.lean is not None:
        near.append(best)
    found = (_knob(study, knob, near) for knob in study.header.request.tuned)
    return NearBest(within=within, trials=numbers, knobs=[knob for knob in found if knob])


def _knob(study: StudyData, knob: KnobDecl, near: Sequence[TrialRecord]) -> NearKnob | None:
    """None if it has an effect in too few of them."""
    policy = study.header.request.policy
    defaults = {each.name: each.default for each in policy.knobs}
    acts = [t for t in near if policy.unmet(knob.condition, defaults | t.knobs) is None]
    if len(acts) < FEW:
        return None
    values = [trial.knobs[knob.name] for trial in acts]
    if knob.min is None or knob.max is None or knob.min == knob.max:
        return _choice(knob, values)
    places = sorted(_place(knob, float(value)) for value in values)
    part = places[-1] - places[0]
    gap = max(after - before for before, after in itertools.pairwise(places))
    freedom = Freedom.agree if part <= NARROW else Freedom.neither
    if part >= WIDE and gap <= GAP:
        freedom = Freedom.free
    numbers = [float(value) for value in values]
    return NearKnob(
        name=knob.name,
        freedom=freedom,
        count=len(acts),
        part=part,
        low=min(numbers),
        high=max(numbers),
    )


def _choice(knob: KnobDecl, values: Sequence[KnobValue]) -> NearKnob | None:
    possible = knob.values
    if len(possible) < 2:
        return None
    had = [value for value in possible if value in values]
    freedom = Freedom.agree if len(had) == 1 else Freedom.neither
    if len(had) == len(possible):
        freedom = Freedom.free
    part = len(had) / len(possible)
    return NearKnob(name=knob.name, freedom=freedom, count=len(values), part=part, values=had)


def _place(knob: KnobDecl, value: float) -> float:
    """Where in its range it is, from 0 to 1, on the knob's scale."""
    assert knob.min is not None and knob.max is not None
    low, high = knob.min, knob.max
    if knob.log and low > 0:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)


def sentences(study: StudyData, near: NearBest) -> list[str]:
    """What agrees and what is free, in words."""
    count = len(near.trials)
    chance = percent(max(near.within, LEAST), 2)
    if near.within > MOST:
        return [f"two runs of the best differ by {chance} by chance: no telling what is as good"]
    within = f"{chance} of the best, which is chance between two runs"
    if count == 1:
        return [f"no other trial is within {within}"]
    if not near.knobs:
        return [f"{count} trials are within {within}: too few to say which knobs are free"]
    units = {knob.name: knob.unit for knob in study.header.request.policy.knobs}
    agree, free = (
        ", ".join(f"{knob.name} ({_range(knob, units[knob.name])})" for knob in near.of(freedom))
        for freedom in (Freedom.agree, Freedom.free)
    )
    return [
        f"{count} trials are within {within}",
        f"they agree on {agree or 'no knob'}",
        f"free: {free}" if free else "no knob is free",
    ]


def _range(knob: NearKnob, unit: str) -> str:
    if knob.values:
        shown = [short(value) for value in knob.values]
        return shown[0] if len(shown) == 1 else f"any of {', '.join(shown)}"
    assert knob.low is not None and knob.high is not None
    if knob.low == knob.high:
        return with_unit(knob.low, unit)
    any_ = "any from " if knob.freedom is Freedom.free else ""
    return f"{any_}{short(knob.low)} to {with_unit(knob.high, unit)}"
