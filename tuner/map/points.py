# SPDX-License-Identifier: MIT
"""What the runs of a map come to: performance over first-touch and what could be seen, place by
place, and what rules make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from tuner.compare.cells import Cell, Row, Runs
from tuner.compare.figures import over
from tuner.experiment.jobs import objective_of
from tuner.map.cells import Place, Plan
from tuner.map.rule import (
    EQUAL_RATES,
    INFORMED,
    Case,
    Confusion,
    Rule,
    Run,
    derive,
    features,
    judge,
)
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status, TrialResult


@dataclass(frozen=True)
class Point:
    """A policy at a place and a ratio, or on another workload (`place` is None). Without runs
    unless the status is success. `performance` has a value for each sampling seed, and so has
    `seen`, what an operator could see. `moving` and `watching` are shares of the run time: of
    migrations, and of samples, faults and the policy's own work, which cost as much where nothing
    is promoted."""

    workload: str
    row: Row
    ratio: str
    machine: str
    place: Place | None
    status: Status
    reason: str = ""
    performance: Sequence[float] = ()
    seen: Sequence[Mapping[str, float]] = ()
    hit_ratio: float | None = None
    moving: float = 0.0
    watching: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.row.name} on {self.workload} at {self.ratio}"

    @property
    def mean(self) -> float | None:
        return fmean(self.performance) if self.performance else None

    @property
    def case(self) -> Case | None:
        """The mean of the seeds. Without features if one of them promoted nothing."""
        if self.mean is None:
            return None
        names = self.seen[0] if all(self.seen) else {}
        return Case({name: fmean(seen[name] for seen in self.seen) for name in names}, self.mean)


def measure(plan: Plan, runs: Runs) -> list[Point]:
    base = plan.comparison.base
    of = {(c.workload, c.ratio): c for c in plan.comparison.cells if c.row == base}
    return [
        _point(plan, runs, cell, of[cell.workload, cell.ratio])
        for cell in plan.comparison.cells
        if cell.row != base
    ]


def _point(plan: Plan, runs: Runs, cell: Cell, base: Cell) -> Point:
    def point(status: Status, reason: str = "") -> Point:
        place, machine = plan.places.get(cell.workload), cell.setting.machine.name
        return Point(cell.workload, cell.row, cell.ratio, machine, place, status, reason)

    for each in (cell, base):
        status, reason = runs.outcome(each)
        if status is not Status.success:
            return point(status, reason if each is cell else f"{each.name}: {reason}")
    objective = OBJECTIVES[cell.setting.scenario.objective]
    values = []
    try:
        for each in (cell, base):
            found = [objective_of(each.setting, result) for _, result in runs.of(each)]
            values.append([1 / objective.cost(value) for value in found])
    except ValueError as error:
        return point(Status.failed, str(error))
    results = [result for _, result in runs.of(cell)]
    before = fmean(result.metrics["fast_hit_ratio"] for _, result in runs.of(base))
    seen = [features(Run(r.metrics, r.breakdown, cell.row.page_bytes, before)) for r in results]
    return Point(
        **vars(point(Status.success))
        | {
            "performance": over(*values)[: len(results)],
            "seen": seen,
            "hit_ratio": fmean(r.metrics["fast_hit_ratio"] for r in results),
            "moving": fmean(_share(r, "migration") for r in results),
            "watching": fmean(_share(r, "sampling", "policy", "faults") for r in results),
        }
    )


def _share(result: TrialResult, *parts: str) -> float:
    return sum(result.breakdown.get(part, 0.0) for part in parts) / sum(result.breakdown.values())


# --- Rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A map with its rules. `unseen` has for each policy the rule that the others' cases give."""

    plan: Plan
    points: Sequence[Point]
    engine_version: str = ""
    engine_build: str = ""
    _by_place: dict[tuple[Row, str, str, float, float], Point] = field(default_factory=dict)

    def at(self, row: Row, machine: str, ratio: str, skew: float, drift: float) -> Point:
        if not self._by_place:
            self._by_place.update(
                {
                    (p.row, p.place.machine, p.ratio, p.place.skew, p.place.drift): p
                    for p in self.points
                    if p.place
                }
            )
        return self._by_place[row, machine, ratio, skew, drift]

    def of(self, row: Row) -> list[Point]:
        """On the grid."""
        return [point for point in self.points if point.row == row and point.place]

    def cases(self, part: str, row: Row | None = None) -> list[Case]:
        return [case for _, case in self.pairs(part) if row is None or _.row == row]

    def pairs(self, part: str) -> Iterator[tuple[Point, Case]]:
        """Of a part: derived, held out or other."""
        for point in self.points:
            if part_of(point) == part and (case := point.case):
                yield point, case

    @cached_property
    def rule(self) -> Rule | None:
        return derive(self.cases(DERIVED))

    @cached_property
    def informed(self) -> Rule | None:
        """The best that knows the share of hits without promotion."""
        return derive(self.cases(DERIVED), tuple(INFORMED))

    @cached_property
    def one_threshold(self) -> Rule | None:
        """The proposal with the best threshold that it can have."""
        return derive(self.cases(DERIVED), [EQUAL_RATES.conditions[0].feature])

    def rules(self) -> dict[str, Rule]:
        """By what they are."""
        found = {"found here": self.rule, "informed": self.informed}
        found |= {"rates are equal": EQUAL_RATES, "rates, best thresholds": self.one_threshold}
        return {name: rule for name, rule in found.items() if rule}

    def unseen(self, row: Row) -> tuple[Rule | None, Confusion | None]:
        """The rule that the other policies' cases give, and how it does on this policy's held-out
        cases."""
        others = [case for point, case in self.pairs(DERIVED) if point.row != row]
        rule = derive(others) if others else None
        return rule, judge(rule, self.cases(HELD_OUT, row)) if rule else None


DERIVED, HELD_OUT, OTHER = "derived", "held out", "other workloads"
PARTS = (DERIVED, HELD_OUT, OTHER)


def part_of(point: Point) -> str:
    if point.place is None:
        return OTHER
    return HELD_OUT if point.place.held_out else DERIVED
