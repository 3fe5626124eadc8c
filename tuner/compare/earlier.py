# SPDX-License-Identifier: MIT
"""Figures of an earlier compare.json, for a comparison that is added to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, model_validator

from tuner.compare.cells import Cell, Comparison, Place, Row
from tuner.compare.figures import Measured
from tuner.declarations import KnobValue
from tuner.documents.document import first_of
from tuner.documents.reading import read_json
from tuner.errors import UserError, brief
from tuner.model import Model, Positive
from tuner.run.trial import Status
from tuner.scenario import Scenario

KEPT = {"success": Status.success, "refused": Status.failed}
"""Outcomes that another run would not change."""


class _Cell(Model):
    """What is used of a cell, besides the conditions of its runs."""

    model_config = ConfigDict(extra="ignore")

    workload: str
    policy: str
    page_bytes: int
    tuned: bool
    ratio: str
    status: str
    reason: str
    seeds: list[int]
    objectives: list[Positive]
    metrics: dict[str, list[float]]
    knobs: dict[str, KnobValue]
    run_seconds: float
    engine_build: str

    @model_validator(mode="after")
    def _one_for_each_seed(self) -> _Cell:
        for name, values in {"objectives": self.objectives, **self.metrics}.items():
            if len(values) != len(self.seeds):
                raise ValueError(f"{brief(name)} must have one value for each seed")
        return self


class _File(Model):
    """What is used of a comparison."""

    model_config = ConfigDict(extra="ignore")

    cells: list[_Cell]
    workloads: list[str]
    seeds: int
    tuned: dict[str, Any] | None


def read(path: Path) -> dict[str, Any]:
    """A compare.json. UserError if it is none."""
    found: dict[str, Any] = read_json(path)
    try:
        _File.model_validate(found)
    except ValidationError as error:
        raise UserError(f"{path}: not a compare.json: {first_of(error)}") from error
    return found


def conditions(scenario: Scenario) -> dict[str, Any]:
    """What a cell of the file says of its runs. Its workload has a name of its own."""
    found = scenario.plain()
    for name in ("workload", "seed", "repeats"):
        del found[name]
    return found


def recall(comparison: Comparison, content: Mapping[str, Any]) -> dict[Place, Measured]:
    """Cells that the file has under the same conditions, unless they crashed or took too long; of
    tuned ones those of searches as long as this comparison's."""
    searched = content["tuned"] == comparison.searches
    by_place = {
        (c["workload"], Row.model_validate(_row(c)), c["ratio"]): c for c in content["cells"]
    }
    found = {}
    for cell in comparison.cells:
        row = by_place.get(cell.place)
        if row is None or row["status"] not in KEPT or (cell.row.tuned and not searched):
            continue
        if content["seeds"] == comparison.seeds and _same(cell, row):
            found[cell.place] = _measured(cell, row)
    return found


def _row(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cell[name] for name in ("policy", "page_bytes", "tuned")}


def _same(cell: Cell, row: Mapping[str, Any]) -> bool:
    wanted = json.loads(json.dumps(conditions(cell.setting.scenario)))
    return all(name in row and row[name] == value for name, value in wanted.items())


def _measured(cell: Cell, row: Mapping[str, Any]) -> Measured:
    seeds, metrics = row["seeds"], row["metrics"]
    return Measured(
        workload=cell.workload,
        row=cell.row,
        scenario=cell.setting.scenario,
        status=KEPT[row["status"]],
        reason=row["reason"],
        seeds=seeds,
        objectives=row["objectives"],
        metrics=[{name: values[k] for name, values in metrics.items()} for k in range(len(seeds))],
        knobs=row["knobs"],
        build=row["engine_build"],
        run_seconds=row["run_seconds"],
    )
