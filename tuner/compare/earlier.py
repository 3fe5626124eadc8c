"""Figures of an earlier compare.json, for a comparison that is added to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.compare.cells import Cell, Comparison, Place, Row
from tuner.compare.figures import Measured
from tuner.documents.reading import read_json
from tuner.errors import UserError
from tuner.run.trial import Status
from tuner.scenario import Scenario

KEPT = {"success": Status.success, "refused": Status.failed}
"""Outcomes that another run would not change."""

NEEDED = (
    *("workload", "ratio", "status", "reason", "seeds", "knobs"),
    *("run_seconds", "engine_build"),
)
"""What a cell has besides its row and its values."""


def read(path: Path) -> dict[str, Any]:
    """A compare.json. UserError if it is none."""
    found: dict[str, Any] = read_json(path)
    try:
        for cell in found["cells"]:
            _ = Row.model_validate(_row(cell)), [cell[name] for name in NEEDED]
            for name, values in {"objectives": cell["objectives"], **cell["metrics"]}.items():
                if not isinstance(values, list) or len(values) != len(cell["seeds"]):
                    raise ValueError(f"{name} of a cell: found {values}; one value for each seed")
        _ = found["workloads"], found["seeds"], found["tuned"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a compare.json: {error}") from error
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
