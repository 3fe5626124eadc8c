# SPDX-License-Identifier: MIT
"""What the runs of a comparison come to: performance over a reference, means over workloads, and
how far chance in sampling reaches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from tuner import ranking
from tuner.compare.cells import Cell, Comparison, Place, Row, Runs
from tuner.declarations import KnobValue
from tuner.experiment.jobs import objective_of
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status
from tuner.scenario import Scenario
from tuner.study.contender import interval

METRICS = (
    *("fast_hit_ratio", "demand_hit_ratio", "promotions", "demotions", "migrated_bytes"),
    *("peak_metadata_bytes", "tiering_cpu_seconds", "mover_cpu_seconds", "policy_cpu_share"),
)
"""Of the engine's metrics, those that a comparison shows."""


@dataclass(frozen=True)
class Measured:
    """The runs of a cell. `objectives` and `metrics` have a value for each of the seeds, or are
    empty unless the status is success. `knobs` are those that a search has changed. `run_seconds`
    is the wall time of its runs, and of the search's trials at the first ratio."""

    workload: str
    row: Row
    scenario: Scenario
    status: Status
    reason: str = ""
    seeds: Sequence[int] = ()
    objectives: Sequence[float] = ()
    metrics: Sequence[Mapping[str, float]] = ()
    knobs: Mapping[str, KnobValue] | None = None
    build: str = ""  # of the engine
    run_seconds: float = 0

    @property
    def ratio(self) -> str:
        return self.scenario.ratio

    @property
    def name(self) -> str:
        return f"{self.row.name} on {self.workload} at {self.ratio}"

    @property
    def outcome(self) -> str:
        """The status in a table: a run that fails by itself was refused."""
        return "refused" if self.status is Status.failed else str(self.status)

    @property
    def performance(self) -> list[float]:
        """One over the cost, for each seed."""
        objective = OBJECTIVES[self.scenario.objective]
        return [1 / objective.cost(value) for value in self.objectives]

    def mean(self, metric: str) -> float | None:
        values = [found[metric] for found in self.metrics if metric in found]
        return sum(values) / len(values) if values else None


def measure(runs: Runs, kept: Mapping[Place, Measured] | None = None) -> list[Measured]:
    """Of all cells, in order; of some from before."""
    before = kept or {}
    return [before.get(cell.place) or _measured(runs, cell) for cell in runs.comparison.cells]


def _measured(runs: Runs, cell: Cell) -> Measured:
    status, reason = runs.outcome(cell)
    found = Measured(
        cell.workload, cell.row, cell.setting.scenario, status, reason,
        build=cell.setting.engine_build, run_seconds=runs.seconds(cell),
    )  # fmt: skip
    if status is not Status.success:
        return found
    pairs = runs.of(cell)
    try:
        objectives = [objective_of(cell.setting, result) for _, result in pairs]
    except ValueError as error:  # the trials have their workload's objective, and succeeded by it
        return replace(found, status=Status.failed, reason=str(error))
    return replace(
        found,
        seeds=[trial.scenario.seed for trial, _ in pairs],
        objectives=objectives,
        metrics=[
            {name: result.metrics[name] for name in METRICS if name in result.metrics}
            for _, result in pairs
        ],
        knobs=runs.knobs(cell),
    )


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, and half of its 95 % interval; None if there is only one run, because
    nothing is sampled. A mean over workloads is over `workloads` of them."""

    value: float
    half_width: float | None
    workloads: int = 1


Values = Sequence[float]


def over(values: Values, base: Values) -> list[float]:
    """Seed by seed. One value alone holds for every seed."""
    return [one / other for one, other in _paired([values, base])]


def _paired(rows: Sequence[Values]) -> list[tuple[float, ...]]:
    count = max(map(len, rows))
    return list(zip(*(row if len(row) > 1 else list(row) * count for row in rows), strict=True))


def figure(rows: Sequence[Values]) -> Figure | None:
    """Of ratios by workload and seed: the geometric mean over workloads for each seed, then mean
    and interval over the seeds. None without workloads."""
    if not rows:
        return None
    by_seed = [geometric_mean(row) if len(row) > 1 else row[0] for row in _paired(rows)]
    mean, half_width = interval(by_seed)
    return Figure(mean, half_width, len(rows))


@dataclass(frozen=True)
class Line:
    """A row's figures, by workload; None where there is none. `mean` is over the others."""

    row: Row
    figures: Mapping[str, Figure | None]
    mean: Figure | None

    @property
    def full_mean(self) -> Figure | None:
        """The mean if it is of all workloads. Only such means are to be compared."""
        whole = self.mean is not None and self.mean.workloads == len(self.figures)
        return self.mean if whole else None


class Figures:
    """All figures of a comparison."""

    def __init__(self, comparison: Comparison, measured: Sequence[Measured]) -> None:
        self.comparison = comparison
        self.measured = list(measured)
        self._by_place = {(m.ratio, m.workload, m.row): m for m in measured}
        self._tables: dict[str, list[Line]] = {}

    def at(self, ratio: str, workload: str, row: Row) -> Measured:
        return self._by_place[ratio, workload, row]

    def relative(self, found: Measured) -> list[float]:
        """A cell's performance over the base, for each of its seeds; empty without either."""
        base = self.at(found.ratio, found.workload, self.comparison.base).performance
        return over(found.performance, base)[: len(found.seeds)] if base and found.seeds else []

    def table(self, ratio: str) -> list[Line]:
        """Performance over the base. Nearly everything else is made from it."""
        if ratio not in self._tables:
            base, rows = self.comparison.base, self.comparison.rows
            self._tables[ratio] = [self._line(ratio, row, base) for row in rows]
        return self._tables[ratio]

    def gains(self, ratio: str) -> list[Line]:
        """Performance of tuned configurations over their policy's defaults."""
        tuned = [row for row in self.comparison.rows if row.tuned]
        return [self._line(ratio, row, row.untuned) for row in tuned]

    def _line(self, ratio: str, row: Row, base: Row) -> Line:
        values: dict[str, Values] = {}
        for workload in self.comparison.workloads:
            one, other = (self.at(ratio, workload, of).performance for of in (row, base))
            values[workload] = over(one, other) if one and other else []
        figures = {name: figure([given]) if given else None for name, given in values.items()}
        return Line(row, figures, figure([given for given in values.values() if given]))

    def best(self, ratio: str, *, tuned: bool | None = None) -> dict[str, Line]:
        """The fastest policy on each workload: at its defaults, tuned, or either."""
        lines = [
            line
            for line in self.table(ratio)
            if not line.row.reference and tuned in (None, line.row.tuned)
        ]
        found = {}
        for workload in self.comparison.workloads:
            if ran := [line for line in lines if line.figures[workload]]:
                found[workload] = max(ran, key=lambda line: _value(line.figures[workload]))
        return found

    def shares(self, ratio: str) -> dict[Row, dict[str, float]]:
        """Each row's performance over that of the best policy of the workload, default or tuned."""
        best = self.best(ratio)
        return {
            line.row: {
                name: _value(found) / _value(best[name].figures[name])
                for name, found in line.figures.items()
                if found and name in best
            }
            for line in self.table(ratio)
        }

    def ranked(self, ratio: str, *, tuned: bool) -> list[Row]:
        """The policies, best first by their mean, at their defaults or tuned. Those that did not
        run on every workload have no place."""
        return [line.row for line in self._ranked(ratio, tuned)]

    def _ranked(self, ratio: str, tuned: bool) -> list[Line]:
        lines = [
            line
            for line in self.table(ratio)
            if not line.row.reference and line.row.tuned == tuned and line.full_mean
        ]
        return sorted(lines, key=lambda line: -_mean(line))

    def order(self, ratio: str, *, tuned: bool = False) -> str:
        """The policies in words: a > b = c, where b and c differ by no more than noise."""
        lines = self._ranked(ratio, tuned)
        parts = [line.row.untuned.name for line in lines[:1]]
        for better, worse in itertools.pairwise(lines):
            apart = ranking.order(_mean(better), _mean(worse), ranking.NOISE)
            parts += [">" if apart else "=", worse.row.untuned.name]
        return " ".join(parts)

    def tau(self, ratio: str) -> float | None:
        """Kendall's tau between the orders of defaults and of tuned configurations."""
        means = [
            {line.row.untuned: _mean(line) for line in self._ranked(ratio, tuned)}
            for tuned in (False, True)
        ]
        common = [row for row in means[0] if row in means[1]]

        def order(mean: Mapping[Row, float], a: Row, b: Row) -> int:
            return ranking.order(mean[a], mean[b], ranking.NOISE)

        return ranking.tau(
            (order(means[0], a, b), order(means[1], a, b))
            for a, b in itertools.combinations(common, 2)
        )


def _mean(line: Line) -> float:
    return _value(line.mean)


def _value(figure: Figure | None) -> float:
    assert figure is not None
    return figure.value
