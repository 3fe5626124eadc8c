# SPDX-License-Identifier: MIT
"""What an MLflow store has of a study, and where and how its pages show it. Nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tuner.model import content_hash
from tuner.report.store import EXPERIMENT, children_of, run_with
from tuner.study.front import Front
from tuner.study.log import StudyData
from tuner.text import plural

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STUDY_TAG = "tiertune.study"
TRIAL_TAG = "tiertune.trial"

VIEW = "studies"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
"""Of an experiment: a view of its runs as MLflow's "Share" keeps it, which a link names."""
COLUMNS = (
    *("tags.`verdict`", "metrics.`gain`", "metrics.`over_first_touch`", "metrics.`best`"),
    *("metrics.`default`", "params.`objective`", "params.`policy`", "params.`machine`"),
    *("params.`ratio`", "metrics.`trials`"),
)
VERDICT_WIDTH = 420  # pixels


def lacking(study: StudyData, client: MlflowClient) -> str | None:
    """What the store lacks of a study that no process is working on; None if it has everything."""
    experiment = client.get_experiment_by_name(experiment_name(study))
    parent = experiment and run_with(client, experiment.experiment_id, STUDY_TAG, study_id(study))
    if experiment is None or parent is None:
        return "all of it"
    tracked, _ = sorted_out(client, experiment.experiment_id, parent.info.run_id)
    if missing := sum(trial.number not in tracked for trial in study.done):
        return f"{missing} of {plural(len(study.done), 'trial')}"
    return "its end" if parent.info.status == "RUNNING" else None


def experiment_name(study: StudyData) -> str:
    """One experiment per workload: its studies are what people compare."""
    return f"{EXPERIMENT}{study.header.request.workload.name}"


def sorted_out(client: MlflowClient, experiment: str, parent: str) -> tuple[set[int], list[Run]]:
    """Numbers of the trials that are completely tracked, and half-tracked or doubled runs."""
    tracked: set[int] = set()
    superfluous = []
    for run in children_of(client, experiment, parent):
        number = int(run.data.tags.get(TRIAL_TAG, -1))
        if run.info.status == "RUNNING" or number in tracked:
            superfluous.append(run)
        else:
            tracked.add(number)
    return tracked, superfluous


def study_id(study: StudyData) -> str:
    """Distinguishes studies of the same name: one may have been deleted and started again."""
    header = study.header
    return f"{header.request.study}-{content_hash([header.request.study, header.created])[:8]}"


def view() -> str:
    """The studies of an experiment without their trials, with what they came to as columns."""
    shown = {
        "searchFilter": f"tags.`{STUDY_TAG}` != ''",
        "selectedColumns": COLUMNS,
        "columnOrder": COLUMNS,
        "columnWidths": {COLUMNS[0]: VERDICT_WIDTH},
    }
    return json.dumps(shown)


def page(server: str, experiment: str, *, studies: bool = True) -> str:
    """The address of an experiment's runs, and not of its traces, of which there are none; with the
    view of its studies if it has that."""
    shown = f"&viewStateShareKey={VIEW}" if studies else ""
    kind = "workflowType=machine_learning"
    return f"{server.rstrip('/')}/#/experiments/{experiment}/runs?{kind}{shown}"


def front_table(front: Front) -> dict[str, list[object]]:
    """A row for each trial of the front: figures on the study's seed, and held-out means."""
    names = front.objectives
    columns = ["trial", *names, *(f"{name}, held out" for name in names), "in best.yaml"]
    rows: list[object] = [
        [
            point.trial,
            *(point.values.get(name) for name in names),
            *(point.held_out.get(name) for name in names),
            point.trial == front.best,
        ]
        for point in front.points
    ]
    return {"columns": list(columns), "data": rows}
