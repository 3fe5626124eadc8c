# SPDX-License-Identifier: MIT
"""A comparison in MLflow: a parent run, and a child run for each cell. A copy of what compare.json
says; a cell that is there already is not stored twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.compare.figures import Figures, Measured
from tuner.compare.page import notes
from tuner.model import content_hash
from tuner.report.store import (
    EXPERIMENT,
    PARENT_TAG,
    children_of,
    client_of,
    experiment_of,
    parent_run,
)
from tuner.report.tracking import name_for
from tuner.run.trial import Status
from tuner.scenario import label
from tuner.terminal import say

COMPARISON_TAG = "tiertune.comparison"
CELL_TAG = "tiertune.cell"


def track(
    figures: Figures,
    files: Sequence[Path],
    *,
    uri: str,
    out: Path,
    progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Whatever the store raises, an exception of any kind, is the caller's to report."""
    store = _Store(figures, uri, out)
    for number, found in enumerate(figures.measured, 1):
        store.add(found)
        progress(number / len(figures.measured))
    store.conclude(files)


class _Store:
    def __init__(self, figures: Figures, uri: str, out: Path) -> None:
        self._client = client_of(uri, out, say)
        from mlflow.entities import Metric, Param

        self._metric, self._param = Metric, Param
        self._figures = figures
        self._experiment = experiment_of(self._client, f"{EXPERIMENT}compare", uri, out, say)
        self._parent = self._find_parent()
        self._tracked = self._find_children()

    def _find_parent(self) -> str:
        comparison = self._figures.comparison
        identity = f"{comparison.name}-{comparison.identity}"
        found = parent_run(self._client, self._experiment, COMPARISON_TAG, identity, say)
        if found is not None:
            return found
        tags = {COMPARISON_TAG: identity, "engine.build": self._build}
        run = self._client.create_run(self._experiment, run_name=comparison.name, tags=tags)
        settings = {
            "workloads": ", ".join(comparison.workloads),
            "policies": ", ".join(row.name for row in comparison.rows if not row.reference),
            "ratios": ", ".join(comparison.ratios),
            "seeds": comparison.seeds,
            "tuned": comparison.budget,
            "tune_ratio": comparison.tune_ratio,
        }
        params = [self._param(name, str(value)[:6000]) for name, value in settings.items()]
        self._client.log_batch(run.info.run_id, params=params)
        return str(run.info.run_id)

    @property
    def _build(self) -> str:
        return self._figures.comparison.cells[0].setting.engine_build

    def _find_children(self) -> set[str]:
        """Cells that are completely stored. Others, and those that had failed, are removed."""
        tracked: set[str] = set()
        for run in children_of(self._client, self._experiment, self._parent):
            if run.info.status == "FINISHED":
                tracked.add(run.data.tags[CELL_TAG])
            else:
                self._client.delete_run(run.info.run_id)
        return tracked

    def add(self, found: Measured) -> None:
        """One child run, unless the cell has one. Objectives have their seed as the step."""
        cell = content_hash([found.workload, found.ratio, found.row.model_dump()])
        if cell in self._tracked:
            return
        scenario = found.scenario
        tags = {
            PARENT_TAG: self._parent,
            CELL_TAG: cell,
            "workload": found.workload,
            "policy": found.row.policy,
            "tuned": str(found.row.tuned).lower(),
            "engine.build": found.build,
            "status": found.outcome,
        }
        if found.reason:
            tags["error"] = found.reason[:4000]
        run = self._client.create_run(self._experiment, run_name=found.name, tags=tags)
        identity, now = run.info.run_id, run.info.start_time
        params = {name: label(str(value)) for name, value in scenario.plain().items()}
        del params["seed"]
        params |= {f"knob.{name}": str(value) for name, value in (found.knobs or {}).items()}
        stored = [self._param(name_for(name), value) for name, value in params.items()]
        line = next(x for x in self._figures.table(found.ratio) if x.row == found.row)
        values = {name: found.mean(name) for name in found.metrics[0]} if found.metrics else {}
        if figure := line.figures[found.workload]:
            values |= {"performance": figure.value, "performance_half_width": figure.half_width}
        metrics = [
            self._metric(name_for(name), value, now, 0)
            for name, value in values.items()
            if value is not None
        ]
        for seed, objective in zip(found.seeds, found.objectives, strict=True):
            metrics.append(self._metric("objective", objective, now, seed))
        self._client.log_batch(identity, params=stored, metrics=metrics)
        ok = found.status is Status.success
        self._client.set_terminated(identity, "FINISHED" if ok else "FAILED")

    def conclude(self, files: Sequence[Path]) -> None:
        """Means over workloads, notes and files."""
        figures = self._figures
        for ratio in figures.comparison.ratios:
            for line in figures.table(ratio):
                if line.mean is not None:
                    name = name_for(f"performance/{ratio}/{line.row.name}".replace(",", ""))
                    self._client.log_metric(self._parent, name, line.mean.value)
        text = "\n".join(f"- {note}" for note in notes(figures))
        self._client.set_tag(self._parent, "mlflow.note.content", text[:8000])
        for file in files:
            self._client.log_artifact(self._parent, str(file))
        self._client.set_terminated(self._parent, "FINISHED")
