# SPDX-License-Identifier: MIT
"""DAMON: the kernel's monitor of data accesses, on processes that run already.

damon.md beside this file describes its fidelity and cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.errors import UserError
from tuner.record import damon
from tuner.record.samplers import RANDOM, Launch, Option, Sampler


class Damon(Sampler):
    name = "damon"
    summary = "regions of the kernel's DAMON, of processes that run (--pid, --cgroup); root"
    options = (
        Option("sample_ms", 5, 1, 1000, "ms", "between two checks of a region"),
        Option("aggregate_ms", 100, 10, 10_000, "ms", "over which checks are counted"),
        Option("min_regions", 10, 3, 10_000, "", "regions of all processes, at least"),
        Option("max_regions", 1000, 10, 10_000, "", "regions of all processes, at most"),
    )
    classes = (RANDOM,)
    wall_time = True
    attaches = True

    @classmethod
    def unavailable(cls) -> str | None:
        return damon.lacking(damon.Damon.root)

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        raise UserError(
            "sampler damon: watches processes that run already: --pid P or --cgroup C; "
            "--sampler emulation records a program that it starts"
        )

    @property
    def monitoring(self) -> damon.Monitoring:
        values = self.values
        if values["aggregate_ms"] < 2 * values["sample_ms"]:
            raise UserError(
                f"sampler damon: option aggregate_ms: found {values['aggregate_ms']:g}, must be at "
                f"least twice sample_ms ({values['sample_ms']:g})"
            )
        if values["min_regions"] > values["max_regions"]:
            raise UserError(
                f"sampler damon: option min_regions: found {values['min_regions']:g}, must be at "
                f"most max_regions ({values['max_regions']:g})"
            )
        return damon.Monitoring(
            sample_us=round(1000 * values["sample_ms"]),
            aggregate_us=round(1000 * values["aggregate_ms"]),
            min_regions=round(values["min_regions"]),
            max_regions=round(values["max_regions"]),
        )
