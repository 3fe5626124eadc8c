# SPDX-License-Identifier: MIT
"""When to turn promotion off: thresholds on what an operator can see, found on some cases and
judged on others.

Nobody who runs a policy knows how first-touch would have fared. So a rule sees only what counters
of the run itself tell (`FEATURES`), and what first-touch came to decides whether it was right.
Those of `INFORMED` also need to know one thing, the share of hits without any promotion, which
can be measured before it is turned on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.text import short

HARM = 0.01
"""A policy that makes a run slower than first-touch by more than this is harmful."""

AVOID, LOSE = 0.95, 0.02
"""What is asked of a rule: the least share of harmful cases that it turns off, and the most of the
gain of all others that it may give up with them."""

MOST_THRESHOLDS = 48
"""That are tried for each feature; with more values than that, quantiles."""


# --- What can be seen -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What is known of one run: the engine's metrics and its breakdown of run time, and the share
    of hits without promotion."""

    metrics: Mapping[str, float]
    breakdown: Mapping[str, float]
    page_bytes: int
    unpromoted_hit_ratio: float

    def __getitem__(self, metric: str) -> float:
        return self.metrics[metric]

    @property
    def seconds(self) -> float:
        return sum(self.breakdown.values())

    @property
    def accesses(self) -> float:
        kinds = ("loads_fast", "loads_slow", "stores_fast", "stores_slow")
        return sum(self[kind] for kind in kinds)

    @property
    def fast_share(self) -> float:
        """Of the memory in use. Without any tiering, it is also the expected share of hits."""
        return self["fast_capacity_bytes"] / self["footprint_bytes"]

    @property
    def gained_hits(self) -> float:
        """Accesses to the fast tier beyond the share that its size explains."""
        return (self["fast_hit_ratio"] - self.fast_share) * self.accesses

    @property
    def raised_hits(self) -> float:
        """Accesses to the fast tier beyond those without promotion."""
        return (self["fast_hit_ratio"] - self.unpromoted_hit_ratio) * self.accesses

    @property
    def tiering_seconds(self) -> float:
        """Of the run time, what tiering took."""
        stalls = ("compute", "fast_stall", "slow_stall", "bandwidth")
        return sum(value for part, value in self.breakdown.items() if part not in stalls)

    @property
    def stall_difference(self) -> float:
        """Run time that an access in the fast tier saves, by the stalls in both."""
        fast = self["loads_fast"] + self["stores_fast"]
        slow = self["loads_slow"] + self["stores_slow"]
        each = (self.breakdown["slow_stall"], slow), (self.breakdown["fast_stall"], fast)
        of_slow, of_fast = (stall / count if count else 0.0 for stall, count in each)
        return of_slow - of_fast


@dataclass(frozen=True)
class Feature:
    """A figure of a run that has promoted."""

    meaning: str
    of: Callable[[Run], float]


FEATURES: dict[str, Feature] = {
    "demotions_per_promotion": Feature(
        "demotions for each promotion", lambda run: run["demotions"] / run["promotions"]
    ),
    "ping_pong_share": Feature(
        "moves that undo one of the last 10 s, for each promotion",
        lambda run: run["ping_pongs"] / run["promotions"],
    ),
    "fast_hit_ratio": Feature(
        "share of accesses that the fast tier serves", lambda run: run["fast_hit_ratio"]
    ),
    "hit_excess": Feature(
        "that share, less the fast tier's share of the memory in use",
        lambda run: run["fast_hit_ratio"] - run.fast_share,
    ),
    "slow_stall_share": Feature(
        "share of the run time that waits for the slow tier",
        lambda run: run.breakdown["slow_stall"] / run.seconds,
    ),
    "tiering_share": Feature(
        "share of the run time that tiering takes", lambda run: run.tiering_seconds / run.seconds
    ),
    "replacements_per_minute": Feature(
        "how often a minute promotions replace the whole fast tier",
        lambda run: (
            60 * run["promotions"] * run.page_bytes / run["fast_capacity_bytes"] / run.seconds
        ),
    ),
    "moved_per_accessed": Feature(
        "bytes moved for each byte accessed",
        lambda run: run["migrated_bytes"] / (64 * run.accesses),
    ),
    "fast_hits_per_promotion": Feature(
        "accesses to the fast tier for each promoted page",
        lambda run: (run["loads_fast"] + run["stores_fast"]) / run["promotions"],
    ),
    "gained_hits_per_promotion": Feature(
        "the same, less those that the fast tier's share of the memory explains",
        lambda run: run.gained_hits / run["promotions"],
    ),
    "gain_over_cost": Feature(
        "stall time that accesses to the fast tier beyond its share of the memory save, over the "
        "run time that tiering takes",
        lambda run: run.gained_hits * run.stall_difference / max(run.tiering_seconds, 1e-9),
    ),
}
"""The simplest first: of rules that do equally well the first is taken."""

INFORMED: dict[str, Feature] = {
    "hits_raised": Feature(
        "share of accesses that the fast tier serves, less that without promotion",
        lambda run: run["fast_hit_ratio"] - run.unpromoted_hit_ratio,
    ),
    "raised_hits_per_promotion": Feature(
        "accesses to the fast tier beyond those without promotion, for each promoted page",
        lambda run: run.raised_hits / run["promotions"],
    ),
    "raise_over_cost": Feature(
        "stall time that accesses to the fast tier beyond those without promotion save, over the "
        "run time that tiering takes",
        lambda run: run.raised_hits * run.stall_difference / max(run.tiering_seconds, 1e-9),
    ),
}

ALL = FEATURES | INFORMED


def features(run: Run) -> dict[str, float]:
    """By name. None of a run that promoted nothing: there is nothing to turn off."""
    if not run["promotions"]:
        return {}
    return {name: feature.of(run) for name, feature in ALL.items()}


# --- Rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A run of a policy: what can be seen, and its performance over first-touch. Without features
    it has promoted nothing."""

    features: Mapping[str, float]
    performance: float

    @property
    def promotes(self) -> bool:
        return bool(self.features)

    @property
    def harmful(self) -> bool:
        return self.performance < 1 - HARM


@dataclass(frozen=True)
class Condition:
    feature: str
    above: bool
    threshold: float

    def holds(self, case: Case) -> bool:
        value = case.features[self.feature]
        return value > self.threshold if self.above else value < self.threshold

    def __str__(self) -> str:
        return f"{self.feature} {'>' if self.above else '<'} {short(self.threshold)}"


@dataclass(frozen=True)
class Rule:
    """Turns promotion off where all of its conditions hold; or any of them does, if `either`."""

    conditions: tuple[Condition, ...]
    either: bool = False

    def off(self, case: Case) -> bool:
        if not case.promotes:
            return False
        held = [condition.holds(case) for condition in self.conditions]
        return any(held) if self.either else all(held)

    def __str__(self) -> str:
        return (" or " if self.either else " and ").join(map(str, self.conditions))

    def plain(self) -> dict[str, Any]:
        return {
            "text": str(self),
            "either": self.either,
            "conditions": [vars(condition) for condition in self.conditions],
        }


EQUAL_RATES = Rule((Condition("demotions_per_promotion", True, 0.95),))
"""What was proposed to the kernel's developers: to stop promoting once demotion keeps up with it.
Rates that differ by a twentieth count as equal."""


@dataclass(frozen=True)
class Confusion:
    """What a rule does to cases that promote. Turned off, a case performs as first-touch does."""

    harmful_off: int
    harmful_on: int
    good_off: int
    good_on: int
    gain: float
    """Of all cases that are not harmful, in units of first-touch's performance."""
    lost: float
    """Of it, what the rule gives up."""

    @property
    def avoided(self) -> float:
        """Share of harmful cases; 1 if there are none."""
        harmful = self.harmful_off + self.harmful_on
        return self.harmful_off / harmful if harmful else 1.0

    @property
    def lost_share(self) -> float:
        return self.lost / self.gain if self.gain > 0 else 0.0

    @property
    def cases(self) -> int:
        return self.harmful_off + self.harmful_on + self.good_off + self.good_on

    @property
    def met(self) -> bool:
        return self.avoided >= AVOID and self.lost_share <= LOSE

    def plain(self) -> dict[str, Any]:
        shares = {"avoided": self.avoided, "lost_share": self.lost_share, "met": self.met}
        return vars(self) | shares


def judge(rule: Rule, cases: Iterable[Case]) -> Confusion:
    counts = dict.fromkeys(itertools.product((True, False), repeat=2), 0)
    gain = lost = 0.0
    for case in cases:
        if not case.promotes:
            continue
        off = rule.off(case)
        counts[case.harmful, off] += 1
        if not case.harmful:
            gain += case.performance - 1
            lost += off * (case.performance - 1)
    return Confusion(
        harmful_off=counts[True, True],
        harmful_on=counts[True, False],
        good_off=counts[False, True],
        good_on=counts[False, False],
        gain=gain,
        lost=lost,
    )


# --- Finding one ----------------------------------------------------------------------------------


def derive(cases: Sequence[Case], among: Sequence[str] = tuple(FEATURES)) -> Rule | None:
    """The simplest rule that does what is asked of it on these cases: one condition if one
    suffices, else two. Where none does, the one that comes closest. None if no case is harmful, or
    nothing tells them apart.

    Of several, that one is taken which exceeds what is asked by most: it has the most room for
    cases that are a little different.
    """
    promoting = [case for case in cases if case.promotes]
    conditions = [found for name in among for found in _conditions(name, promoting)]
    if not conditions or not any(case.harmful for case in promoting):
        return None
    holds = np.array([[c.holds(case) for case in promoting] for c in conditions])
    harmful = np.array([float(case.harmful) for case in promoting])
    gain = np.array([0.0 if case.harmful else case.performance - 1 for case in promoting])
    single = _room(holds @ harmful, holds @ gain, harmful, gain)
    best = int(np.argmax(single))
    if single[best] >= 0:
        return Rule((conditions[best],))
    found: list[tuple[float, Rule]] = [(float(single[best]), Rule((conditions[best],)))]
    for either in (False, True):
        one = ~holds if either else holds  # not (a or b) is (not a) and (not b)
        both_harmful = (one * harmful) @ one.T
        both_gain = (one * gain) @ one.T
        if either:
            both_harmful = harmful.sum() - both_harmful
            both_gain = gain.sum() - both_gain
        room = _room(both_harmful, both_gain, harmful, gain)
        first, second = np.unravel_index(int(np.argmax(room)), room.shape)
        pair = Rule((conditions[first], conditions[second]), either)
        found.append((float(room[first, second]), pair))
    return max(found, key=lambda each: each[0])[1]


def _room(
    harmful_off: NDArray[Any], lost: NDArray[Any], harmful: NDArray[Any], gain: NDArray[Any]
) -> NDArray[Any]:
    """By how much rules exceed what is asked; negative: by how much they miss it. Each of the two
    demands is measured by what it leaves free: 5 % of the harm, 2 % of the gain."""
    avoided = harmful_off / harmful.sum()
    share = lost / gain.sum() if gain.sum() > 0 else np.zeros_like(lost)
    room: NDArray[Any] = np.minimum((avoided - AVOID) / (1 - AVOID), (LOSE - share) / LOSE)
    return room


def _conditions(feature: str, cases: Sequence[Case]) -> list[Condition]:
    """Thresholds half-way between neighbouring values."""
    values = np.unique([case.features[feature] for case in cases])
    middles = (values[1:] + values[:-1]) / 2
    if len(middles) > MOST_THRESHOLDS:
        middles = np.quantile(middles, np.linspace(0, 1, MOST_THRESHOLDS), method="nearest")
    return [
        Condition(feature, above, float(middle))
        for above in (True, False)
        for middle in np.unique(middles)
    ]
