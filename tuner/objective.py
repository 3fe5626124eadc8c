# SPDX-License-Identifier: MIT
"""Objectives: what a study improves, and what better means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Objective:
    """What a study improves, computed from the dictionary that `tuner._engine.simulate` returns."""

    name: str
    unit: str
    higher_is_better: bool
    meaning: str
    of: Callable[[Mapping[str, Any], str | None], float]

    def value(self, result: Mapping[str, Any], operation: str | None) -> float:
        """The objective in its own unit. ValueError if the result does not have it."""
        value = self.of(result, operation)
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"objective {self.name} is {value}, not a positive number")
        return value

    def cost(self, value: float) -> float:
        """Positive and lower is better, so that a ratio of costs is the relative improvement."""
        return 1.0 / value if self.higher_is_better else value

    def gain(self, best: float, default: float) -> float:
        """Relative improvement: 0.12 is 12 % better than the default."""
        return best / default - 1 if self.higher_is_better else default / best - 1

    def better(self, a: float, b: float) -> bool:
        return a > b if self.higher_is_better else a < b


def _throughput(result: Mapping[str, Any], operation: str | None) -> float:
    if not result["operations"]:
        raise ValueError("the workload reports no operations, so it has no throughput")
    return float(result["operations"]) / float(result["seconds"])


def _latency(percentile: str) -> Callable[[Mapping[str, Any], str | None], float]:
    def of(result: Mapping[str, Any], operation: str | None) -> float:
        latency = result["latency"]
        if operation is None or operation not in latency:
            known = ", ".join(sorted(latency)) or "none"
            raise ValueError(f"no latency of operation '{operation}' (measured: {known})")
        if not latency[operation]["operations"]:
            raise ValueError(f"no '{operation}' operation was sampled, so it has no latency")
        return float(latency[operation][percentile])

    return of


OBJECTIVES: dict[str, Objective] = {
    o.name: o
    for o in (
        Objective("throughput", "ops/s", True, "operations per second", _throughput),
        Objective("runtime", "s", False, "run time", lambda r, _: float(r["seconds"])),
        Objective("p50", "ns", False, "median operation latency", _latency("p50")),
        Objective("p90", "ns", False, "90th percentile of latency", _latency("p90")),
        Objective("p99", "ns", False, "99th percentile of latency", _latency("p99")),
        Objective("p999", "ns", False, "99.9th percentile of latency", _latency("p999")),
    )
}
