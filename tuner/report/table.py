# SPDX-License-Identifier: MIT
"""A study's trials as a table: a row each, with its knobs and every scalar that it measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from tuner.run.isolation import simulates
from tuner.scenario import EMULATED
from tuner.study.constraint import value_of
from tuner.study.log import StudyData, TrialRecord
from tuner.study.request import StudyRequest

COMPARED = ("objective", "wall_seconds", "fast_hit_ratio", "migrated_bytes", "tiering_cpu_seconds")
"""What simulated trials are compared by, beside the 99th percentiles of latency. They measure some
sixty scalars."""


def scalars(trial: TrialRecord) -> dict[str, float]:
    """All that a finished trial measured, but for its series."""
    result = trial.result
    assert result is not None
    groups: dict[str, Mapping[str, float]] = {"": result.metrics, "breakdown/": result.breakdown}
    groups |= {f"latency/{kind}/": values for kind, values in result.latency.items()}
    found = {
        prefix + name: value for prefix, values in groups.items() for name, value in values.items()
    }
    found["wall_seconds"] = result.seconds
    if result.objective is not None and result.cost is not None:
        found |= {"objective": result.objective, "cost": result.cost}
    return found


def compared(request: StudyRequest, trial: TrialRecord) -> dict[str, float]:
    """Of a simulated trial some of its scalars, and those that its study bounds or improves; of
    another one all: who measured few wants them."""
    found = scalars(trial)
    if request.scenario.substrate == EMULATED or not simulates(request.isolation):
        return found
    bounded = [*request.objectives, *(each.figure for each in request.constraints)]
    figures = {name: value_of(request, name, trial.result) for name in bounded}
    return {
        name: value
        for name, value in found.items()
        if name in COMPARED or (name.startswith("latency/") and name.endswith("/p99"))
    } | {name: value for name, value in figures.items() if value is not None}


def csv_text(study: StudyData) -> str:
    """A row for each finished trial; knobs are `knob.NAME`, and what a trial has not is empty."""
    rows = [
        {
            "trial": trial.number,
            "status": trial.result.status.value,
            "origin": trial.origin,
            "finished": trial.finished,
            **{f"knob.{name}": value for name, value in trial.knobs.items()},
            **scalars(trial),
        }
        for trial in study.trials
        if trial.result is not None
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
