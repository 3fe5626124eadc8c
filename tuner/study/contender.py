# SPDX-License-Identifier: MIT
"""What a verdict compares: contenders on held-out seeds, and how far one is ahead of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.study.constraint import Judged

CONFIDENCE = 0.95

MATERIAL = 0.02
"""A gain that is worth more runs to tell whether it is one, and worth a choice that is no more
complicated."""


class Kind(StrEnum):
    off = "off"
    untuned = "untuned"
    tuned = "tuned"


class Difference(Model):
    """A relative gain over paired runs: its mean, and half the width of its t interval, which is
    None if there are fewer than two pairs. 0.12 is 12 % better."""

    gain: float
    half_width: float | None = None
    pairs: int

    @property
    def certain(self) -> bool:
        """Whether it is better by more than chance explains."""
        return self.half_width is not None and self.gain - self.half_width > 0

    @property
    def left_to_chance(self) -> bool:
        """Whether it would matter, and chance could explain it."""
        return self.gain > MATERIAL and not self.certain


class Contender(Model):
    """`values` are objectives on the held-out seeds, in order; None where a run failed. `study` is
    that of a tuned one. `moved` are pages, the mean of the runs; None if that is not known.
    `judged` is what the study's constraints say of its runs."""

    kind: Annotated[Kind, Field(strict=False)]
    policy: str
    page_bytes: int
    values: list[float | None]
    study: str | None = None
    moved: float | None = None
    judged: list[Judged] | None = None

    @property
    def broken(self) -> list[Judged]:
        """The constraints that it breaks on the mean of the seeds."""
        return [each for each in self.judged or () if each.missed > 1]

    @property
    def usable(self) -> bool:
        """Whether it may be advised: it has run, and breaks no constraint."""
        return self.mean is not None and not self.broken

    @property
    def mean(self) -> float | None:
        good = [value for value in self.values if value is not None]
        return sum(good) / len(good) if good else None

    @property
    def name(self) -> str:
        """In prose: first-touch, untuned hemem."""
        return self.policy if self.kind is Kind.off else f"{self.kind} {self.policy}"


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean of the values and half the width of its t interval."""
    mean, free = sum(values) / len(values), len(values) - 1
    if not free:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / free)
    return mean, half_width(deviation / math.sqrt(len(values)), free)


def half_width(error: float, free: int) -> float:
    """Half a t interval of a figure with this standard error, of so many degrees of freedom."""
    from scipy.special import stdtrit

    return error * float(stdtrit(free, (1 + CONFIDENCE) / 2))


def pairs(one: Contender, other: Contender) -> list[tuple[float, float]]:
    """Their objectives on the seeds on which both succeeded. Those of one study may go on where
    those of another end."""
    return [
        (a, b)
        for a, b in zip(one.values, other.values, strict=False)
        if a is not None and b is not None
    ]


def difference(better: Contender, worse: Contender, objective: str) -> Difference | None:
    """How much better the one is than the other, over the seeds on which both succeeded."""
    gains = [OBJECTIVES[objective].gain(one, other) for one, other in pairs(better, worse)]
    if not gains:
        return None
    mean, half_width = interval(gains)
    return Difference(gain=mean, half_width=half_width, pairs=len(gains))
