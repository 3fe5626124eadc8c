# SPDX-License-Identifier: MIT
"""results/transfer.json: what published configurations gain where they were not searched."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache

from tuner.documents.reading import read_json
from tuner.files import shipped
from tuner.model import Model
from tuner.text import percent

FILE = "transfer.json"


class Differs(StrEnum):
    """From the conditions that a configuration was searched under."""

    ratio = "ratio"
    machine = "machine"
    workload = "workload"
    kernel = "kernel"
    build = "build"


WHERE = {
    Differs.ratio: "at another ratio",
    Differs.machine: "on another machine",
    Differs.workload: "on another workload",
    Differs.kernel: "on a real kernel in place of the simulator",
    Differs.build: "with another build of policies and simulator",
}


class Cost(Model):
    """Gains over the policy's defaults, as geometric means of so many cases: where the
    configuration was searched, and elsewhere. `worst` is the least of the latter, and in `harmed`
    cases it is below -1 %."""

    cases: int
    home: float
    there: float
    worst: float
    harmed: int


class Transfer(Model):
    """results/transfer.json."""

    source: str
    engine_build: str
    workloads: list[str]
    policies: list[str]
    differences: dict[str, Cost]


@cache
def published() -> Transfer:
    return Transfer.model_validate(read_json(shipped(f"results/{FILE}", FILE)))


def costs(found: Iterable[Differs]) -> str:
    """One part for each difference; nothing if nothing is published of any of them."""
    parts = []
    for kind in found:
        if (cost := published().differences.get(kind)) is not None:
            parts.append(
                f"{_shown(cost.there)} {WHERE[kind]} ({_shown(cost.home)} at home; {cost.harmed} "
                f"of {cost.cases} cases slower than the defaults, at worst by {_loss(cost.worst)})"
            )
    if not parts:
        return ""
    return (
        "Published configurations gained over the defaults of their policies "
        f"{', '.join(parts)} (results/{FILE})"
    )


def _shown(gain: float) -> str:
    return f"{100 * gain:.1f} %"


def _loss(worst: float) -> str:
    return percent(max(0.0, -worst))
