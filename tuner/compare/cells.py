# SPDX-License-Identifier: MIT
"""What a comparison runs: a cell for each workload, ratio and row, where a row is a policy with
pages of one size, at its defaults or tuned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tuner import text
from tuner.declarations import KnobValue, PolicyDecl
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.errors import UserError, brief
from tuner.experiment.checks import BOUND, OFF
from tuner.experiment.jobs import Job, Result, Study, StudyResult, key_of, study, trials
from tuner.model import Model, content_hash
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import options

FASTEST = "all-fast"
BOUNDS = (FASTEST, "offline-optimal", BOUND)
"""Shown beside the policies: all memory fast; the best schedule and the best placement, known in
advance."""

REFERENCES = (OFF, *BOUNDS)


class Row(Model):
    """A line of every table."""

    policy: str
    page_bytes: int
    tuned: bool = False

    @property
    def name(self) -> str:
        """hybridtier; hemem, 2 MiB; hemem, 2 MiB, tuned"""
        huge = f", {text.page_size(self.page_bytes)}" if self.page_bytes != BASE_PAGE_BYTES else ""
        return self.policy + huge + (", tuned" if self.tuned else "")

    @property
    def reference(self) -> bool:
        return self.policy in REFERENCES

    @property
    def untuned(self) -> Row:
        return self.model_copy(update={"tuned": False})


Place: TypeAlias = tuple[str, Row, str]
"""Workload, row and ratio of a cell."""


@dataclass(frozen=True)
class Cell:
    """One configuration on one workload at one ratio. Its runs differ in their sampling seeds."""

    workload: str
    row: Row
    setting: Setting

    @property
    def ratio(self) -> str:
        return self.setting.scenario.ratio

    @property
    def place(self) -> Place:
        return self.workload, self.row, self.ratio

    @property
    def name(self) -> str:
        return f"{self.row.name} on {self.workload} at {self.ratio}"


@dataclass(frozen=True)
class Comparison:
    """What is compared. Workloads are W or W:INPUT; everything is relative to `base`.

    `budget` is of a search for each tunable policy on each workload, at `tune_ratio`; 0: none.
    """

    name: str
    workloads: list[str]
    ratios: list[str]
    rows: list[Row]
    base: Row
    seeds: int
    budget: int
    tune_ratio: str
    cells: list[Cell]

    @property
    def bounds(self) -> list[Row]:
        """Those that are there, with the pages of the base."""
        own = (Row(policy=name, page_bytes=self.base.page_bytes) for name in BOUNDS)
        return [row for row in own if row in self.rows]

    @property
    def searches(self) -> dict[str, Any] | None:
        """What tuned rows are of; None if there are none."""
        return {"trials": self.budget, "ratio": self.tune_ratio} if self.budget else None

    @property
    def identity(self) -> str:
        """Equal comparisons with equal engines and kernels have equal ones."""
        cells = [
            [
                *(c.row.model_dump(), c.setting.scenario.plain()),
                *(c.setting.engine_build, c.setting.stream_maker),
            ]
            for c in self.cells
        ]
        return content_hash([cells, self.seeds, self.budget, self.tune_ratio])


def plan(
    workloads: Sequence[tuple[str, str | None]],
    policies: Sequence[tuple[PolicyDecl, int]],
    ratios: Sequence[str],
    *,
    references: Mapping[str, PolicyDecl],
    seeds: int,
    budget: int,
    tune_ratio: str,
    deadline: float,
    name: str | None,
    given: Mapping[str, Any],
    fitted: Callable[[Setting], Setting] = lambda setting: setting,
) -> Comparison:
    """UserError for what does not exist or does not fit.

    Policies come with the size of their pages in bytes; `given` may set one for all. References
    stand beside them with pages of each size, and start in the fast tier as those of a study do.
    `fitted` makes a cell's setting one that its substrate can run.
    """
    if budget and not any(policy.knobs for policy, _ in policies):
        raise UserError("--tuned: none of the policies has knobs; leave it out")
    ratios = [_ratio("--ratios", ratio) for ratio in dict.fromkeys(ratios)]
    _ratio("--tune-ratio", tune_ratio)
    base_bytes = given.get("page_bytes") or BASE_PAGE_BYTES
    names = [
        policy.name if size == policy.page_bytes else f"{policy.name}@{size}"
        for policy, size in policies
    ]
    if asked := given.get("page_bytes"):
        policies = [(policy, asked) for policy, _ in policies]
    bounds = [name for name in BOUNDS if name in references]
    rows = _rows(policies, base_bytes, bounds, tuned=bool(budget))
    declared = {policy.name: policy for policy, _ in policies} | dict(references)
    cells: dict[str, list[Cell]] = {}
    shared: dict[str, Any] = {"study": "compare", "deadline_seconds": deadline}
    for workload, input in workloads:
        found: list[Cell] = []
        for row in rows:
            own = dict(given) | {"page_bytes": row.page_bytes, "input": input, "ratio": ratios[0]}
            if row.reference:
                own["start"] = "fast"
            setting = settings.resolve(workload, policy=declared[row.policy], **shared, **own)
            found += (Cell(_label(setting), row, fitted(_at(setting, ratio))) for ratio in ratios)
        label = found[0].workload
        if label in cells:
            raise UserError(f"--workloads: '{label}' is given twice")
        cells[label] = found
    every = [cell for found in cells.values() for cell in found]
    comparison = Comparison(
        name="x",
        workloads=list(cells),
        ratios=list(ratios),
        rows=rows,
        base=Row(policy=OFF, page_bytes=base_bytes),
        seeds=seeds,
        budget=budget,
        tune_ratio=tune_ratio,
        cells=every,
    )
    made = _name(comparison, names, given)
    return replace(comparison, name=settings.checked_name(name or made))


def _ratio(option: str, ratio: str) -> str:
    try:
        return str(options()["ratio"].check(ratio))
    except ValueError as error:
        raise UserError(f"{option}: found '{brief(ratio)}'; {error}") from error


def _rows(
    policies: Sequence[tuple[PolicyDecl, int]],
    base_bytes: int,
    bounds: Sequence[str],
    *,
    tuned: bool,
) -> list[Row]:
    """The bounds, the policies, and first-touch; then the references with pages of other sizes."""

    def references(size: int) -> list[Row]:
        return [Row(policy=name, page_bytes=size) for name in (*bounds, OFF)]

    rows = []
    for policy, size in policies:
        rows.append(Row(policy=policy.name, page_bytes=size))
        if tuned and policy.knobs:
            rows.append(Row(policy=policy.name, page_bytes=size, tuned=True))
    sizes = sorted({row.page_bytes for row in rows} - {base_bytes})
    others = [row for size in sizes for row in references(size)]
    *above, off = references(base_bytes)
    return list(dict.fromkeys([*above, *rows, off, *others]))


def _label(setting: Setting) -> str:
    name, input = setting.workload.name, setting.scenario.input
    return name if input == setting.workload.default_input else f"{name}:{input}"


def _at(setting: Setting, ratio: str) -> Setting:
    return setting.model_copy(update={"scenario": replace(setting.scenario, ratio=ratio)})


def _name(comparison: Comparison, policies: Sequence[str], given: Mapping[str, Any]) -> str:
    """Made from what is compared; what has no place in it counts by its hash."""
    few = len(comparison.workloads) <= 4
    parts = [
        *([w.replace(":", ".") for w in comparison.workloads] if few else []),
        *policies,
        *(_word(ratio) for ratio in comparison.ratios),
        text.plural(comparison.seeds, "seed").replace(" ", ""),
    ]
    if comparison.budget:
        parts.append(f"tuned{comparison.budget}at{_word(comparison.tune_ratio)}")
    if not few:
        parts.insert(0, f"{len(comparison.workloads)}workloads")
    if given or not few:
        parts.append(content_hash([comparison.workloads, dict(given)])[:6])
    return "-".join(parts)


def _word(ratio: str) -> str:
    return ratio.replace(":", "to")


# --- Runs -----------------------------------------------------------------------------------------


class Runs:
    """What a comparison needs to run, and what has come of it so far. Cells that are `kept` from
    before need nothing."""

    def __init__(self, comparison: Comparison, kept: Collection[Place] = ()) -> None:
        self.comparison = comparison
        self._kept = kept
        self._results: dict[str, Result] = {}
        self._studies: dict[tuple[str, Row], Study] = {}
        self._trials: dict[Place, dict[str, Trial]] = {}

    def jobs(self) -> list[Job]:
        """What can be done now and has not been, each once. Studies come first, since runs of their
        best configurations follow them."""
        found: dict[str, Job] = {}
        for cell in self.comparison.cells:
            if cell.place not in self._kept:
                found |= self._needed(cell)
        left = [job for key, job in found.items() if key not in self._results]
        return sorted(left, key=lambda job: isinstance(job, Trial))

    def take(self, job: Job, result: Result) -> None:
        self._results[key_of(job)] = result

    def search(self, cell: Cell) -> Study:
        """The study whose best configuration a tuned cell runs."""
        place = (cell.workload, cell.row)
        if place not in self._studies:
            setting = _at(cell.setting, self.comparison.tune_ratio)
            self._studies[place] = study(setting, {}, self.comparison.budget)
        return self._studies[place]

    def _needed(self, cell: Cell) -> Mapping[str, Job]:
        """By key."""
        place = cell.place
        if place in self._trials:
            return self._trials[place]
        knobs: Mapping[str, KnobValue] = {}
        if cell.row.tuned:
            search = self.search(cell)
            result = self._results.get(search.key)
            if result is None:
                return {search.key: search}
            assert isinstance(result, StudyResult)
            if result.status is not Status.success:
                return {}
            knobs = result.knobs
        wanted = trials(cell.setting, knobs, self.comparison.seeds)
        self._trials[place] = {key_of(trial): trial for trial in wanted}
        return self._trials[place]

    def of(self, cell: Cell) -> list[tuple[Trial, TrialResult]]:
        """The cell's runs; none if the search failed whose best configuration they would be."""
        found = []
        for key, trial in self._needed(cell).items():
            result = self._results[key]
            assert isinstance(trial, Trial) and isinstance(result, TrialResult)
            found.append((trial, result))
        return found

    def seconds(self, cell: Cell) -> float:
        """Wall time of the cell's runs. That of a search counts at the first ratio."""
        spent = sum(result.seconds for _, result in self.of(cell))
        if cell.row.tuned and cell.ratio == self.comparison.ratios[0]:
            spent += self._results[self.search(cell).key].seconds
        return spent

    def outcome(self, cell: Cell) -> tuple[Status, str]:
        """Success if every run was one; else what became of the first that was not, and why."""
        results: list[Result] = [result for _, result in self.of(cell)]
        if not results:
            results = [self._results[self.search(cell).key]]
        for result in results:
            if result.status is not Status.success:
                return result.status, result.error
        return Status.success, ""

    def knobs(self, cell: Cell) -> dict[str, KnobValue]:
        """Those that a search has changed; none of an untuned cell."""
        default = {knob.name: knob.default for knob in cell.setting.policy.knobs}
        runs = self.of(cell) if cell.row.tuned else []
        found = runs[0][0].knobs if runs else {}
        return {name: value for name, value in found.items() if value != default[name]}
