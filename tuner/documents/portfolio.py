# SPDX-License-Identifier: MIT
"""The portfolio of `tune recommend`: published tuned configurations of which the best few are near
the best that is known for each published workload, and what that is worth on workloads that had no
part in the choice.

results/portfolio.json is made by tests/bench/recommend.py, which says how. Its configurations were
found by an older engine. They are legal today, and what they are worth is measured again wherever
they are used.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import Field

from tuner.declarations import KnobValue
from tuner.documents.reading import read_json
from tuner.files import shipped
from tuner.limits import fast_share
from tuner.model import Model

FAR = 0.10
"""A workload whose known best is further ahead of the portfolio's than this is told of."""


class Configuration(Model):
    """What differs from the policy's defaults; nothing of a default, which has no `workload`."""

    policy: str
    workload: str | None = None
    knobs: dict[str, KnobValue] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """freqtier at its defaults; freqtier tuned for gups."""
        tuned = f"tuned for {self.workload}" if self.workload else "at its defaults"
        return f"{self.policy} {tuned}"


class Row(Model):
    """Of one workload at one ratio: performance over first-touch, on a seed that chose nothing.

    `known` is the best of all that ran there, configurations tuned for this workload included, and
    `search` what a search of the policy found that the portfolio would have advised. `workload` and
    `family` are the best of the portfolio's first 1, 3, ... configurations, chosen without this
    workload, or without its relatives; `nearest` of configurations of the workloads most alike, the
    first of which (`0`) is taken without a run.
    """

    known: float
    known_is: str
    default: float
    search: float
    search_is: str
    workload: dict[str, float]
    workload_is: str
    family: dict[str, float]
    family_is: str
    nearest: dict[str, float]


class Portfolio(Model):
    """results/portfolio.json. `evidence` by ratio and workload; `tuned` are all published
    configurations of a policy."""

    source: str
    engine_build: str
    searches: dict[str, Any]
    candidates: int
    portfolio: list[Configuration]
    evidence: dict[str, dict[str, Row]]
    tuned: dict[str, list[Configuration]]


class Left(Model):
    """How far the best that is known was ahead of the best of the portfolio, on workloads that had
    no part in choosing it: relative differences of performance. `search` is the same of a search of
    the policy that the portfolio advised: its median, and what one in ten workloads exceeds."""

    ratio: str
    workloads: int
    mean: float
    worst: float
    worst_is: str
    far: list[str]
    search_median: float
    search_tenth: float


@cache
def published() -> Portfolio:
    return Portfolio.model_validate(read_json(shipped("results/portfolio.json", "portfolio.json")))


def left(share: float, without: str | None = None) -> Left:
    """Of the measured ratio that comes nearest to this share of fast memory. `without`: a published
    workload, which is not evidence for itself."""
    found = published().evidence
    near = min(found, key=lambda each: abs(math.log(fast_share(each) / share)))
    rows = {name: row for name, row in found[near].items() if name != without}
    behind = {name: row.known / best_of(row.family) - 1 for name, row in rows.items()}
    more = [max(0.0, row.search / best_of(row.family) - 1) for row in rows.values()]
    worst = max(behind, key=lambda name: behind[name])
    return Left(
        ratio=near,
        workloads=len(rows),
        mean=geometric([1 + each for each in behind.values()]) - 1,
        worst=behind[worst],
        worst_is=worst,
        far=sorted(name for name, each in behind.items() if each > FAR),
        search_median=statistics.median(more),
        search_tenth=statistics.quantiles(more, n=10)[-1],
    )


def best_of(sizes: dict[str, float]) -> float:
    """With the whole portfolio."""
    return sizes[max(sizes, key=int)]


def geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))
