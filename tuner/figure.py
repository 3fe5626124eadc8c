# SPDX-License-Identifier: MIT
"""Figures: what a trial measures that a study can bound, or improve beside its objective.

The objectives are figures, and so are some of the scalars that the simulator and the emulated
machine count, by the names that they have in trials.csv. Each is declared once, with its unit and
which way is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.objective import OBJECTIVES

UNITS: dict[str, dict[str, float]] = {
    "ns": {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    "s": {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "ops/s": {"ops/s": 1.0, "kops/s": 1e3, "Mops/s": 1e6, "Gops/s": 1e9},
    "bytes": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "GiB/h": {"GiB/h": 1.0, "GiB/s": 3600.0, "MiB/s": 3600.0 / 1024},
    "pages": {"pages": 1.0},
    "share": {"%": 0.01},
    "processors": {"processors": 1.0},
    "": {},
}
"""By the unit of a figure, those in which a bound may be written, and what one of them is."""


@dataclass(frozen=True)
class Figure:
    """A scalar of a finished trial.

    Attributes:
        unit: a key of `UNITS`; empty where a command of the user's measures it.
        higher_is_better: None where nobody knows.
        of: its value, from the trial's metrics with its latencies as `latency`, and from the kind
            of operation that counts. KeyError, ValueError or ZeroDivisionError if it has none.
        most: the largest value that it can have.
        emulated: whether the emulated machine tells it, too.
    """

    name: str
    unit: str
    higher_is_better: bool | None
    meaning: str
    of: Callable[[Mapping[str, Any], str | None], float]
    most: float = math.inf
    emulated: bool = False

    def value(self, measured: Mapping[str, Any], operation: str | None) -> float | None:
        """None if it was not measured."""
        try:
            value = self.of(measured, operation)
        except (KeyError, ValueError, ZeroDivisionError):
            return None
        return value if math.isfinite(value) else None

    def cost(self, value: float) -> float:
        """Not negative, and lower is better."""
        if self.higher_is_better:
            return 1.0 / value if value > 0 else math.inf
        return value


def counted(name: str) -> Callable[[Mapping[str, Any], str | None], float]:
    """The scalar of that name."""
    return lambda measured, _: float(measured[name])


def _migrated(measured: Mapping[str, Any], _: str | None) -> float:
    return float(measured["migrated_bytes"]) / 2**30 / (float(measured["seconds"]) / 3600)


def _figures() -> Iterator[Figure]:
    for each in OBJECTIVES.values():
        emulated = each.name in ("throughput", "runtime")
        better = each.higher_is_better
        yield Figure(each.name, each.unit, better, each.meaning, each.of, emulated=emulated)
    yield Figure("migrated_gib_per_h", "GiB/h", False, "copied between the tiers", _migrated)
    for name, unit, meaning in (
        ("migrated_bytes", "bytes", "copied between the tiers, in all"),
        ("promotions", "pages", "pages moved to fast memory"),
        ("demotions", "pages", "pages moved to slow memory"),
        ("ping_pongs", "pages", "pages moved back soon"),
        ("tiering_cpu_seconds", "s", "processor time of the policy"),
        ("policy_cpu_share", "processors", "processor time of the policy, over the run time"),
        ("mover_cpu_seconds", "s", "processor time of moving pages"),
        ("peak_metadata_bytes", "bytes", "memory of the policy"),
    ):
        yield Figure(name, unit, False, meaning, counted(name), emulated=name in EMULATED)
    hits = "accesses that fast memory serves"
    name = "fast_hit_ratio"
    yield Figure(name, "share", True, hits, counted(name), most=1.0, emulated=True)


EMULATED = ("promotions", "demotions")
"""Counts that the kernel of the emulated machine has, too."""

FIGURES: dict[str, Figure] = {figure.name: figure for figure in _figures()}
