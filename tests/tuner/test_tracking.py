# SPDX-License-Identifier: MIT
"""What MLflow holds after a study, queried back: nothing missing, nothing twice."""

from __future__ import annotations

import csv
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import KNOBS, accident, answer, logs, request, smooth

from tuner.experiment.loop import run_study
from tuner.report import tracking
from tuner.report.table import COMPARED, compared, csv_text
from tuner.report.tracked import page, study_id
from tuner.report.tracking import (
    LAST_SECONDS,
    MOST_METRICS,
    PATIENT_SECONDS,
    TRIALS,
    name_for,
)
from tuner.run.isolation import Isolation
from tuner.run.trial import Trial
from tuner.scenario import EMULATED
from tuner.study import log

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def client_of(store: str) -> Any:
    from mlflow import MlflowClient  # not above: the quick half does without

    return MlflowClient(tracking_uri=store)


def runs_of(store: str, out: Path) -> tuple[Any, list[Any]]:
    """The parent run of the study and its children in the order of trials."""
    client = client_of(store)
    experiment = client.get_experiment_by_name("tiertune-synthetic")
    assert experiment is not None
    identity = study_id(log.load(out / "synthetic-study"))
    ids = [experiment.experiment_id]
    parents = client.search_runs(ids, f"tags.`tiertune.study` = '{identity}'")
    assert len(parents) == 1
    parent = parents[0]
    children = client.search_runs(ids, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    return parent, sorted(children, key=lambda run: int(run.data.tags["tiertune.trial"]))


@slow
def test_a_study_is_in_mlflow_completely(tmp_path: Path, store: str) -> None:
    summary = run_study(request(tmp_path, budget=14, mlflow_uri=store), runner=smooth)
    data = log.load(tmp_path / "synthetic-study")
    parent, children = runs_of(store, tmp_path)
    assert [int(run.data.tags["tiertune.trial"]) for run in children] == list(range(14))
    client = client_of(store)
    for run, trial in zip(children, data.trials, strict=True):
        assert trial.result is not None
        assert run.info.status == "FINISHED"
        assert run.data.params == {k: str(v) for k, v in trial.knobs.items()}
        assert run.data.metrics["objective"] == trial.result.objective
        assert run.data.metrics["fast_hit_ratio"] == 0.9
        assert run.data.metrics["latency/get/p99"] == 4000.0
        assert run.data.tags["origin"] == trial.origin
        assert run.data.tags["seed"] == "1"
        assert run.data.tags["engine.build"] == "build-a"
        history = client.get_metric_history(run.info.run_id, "objective")
        assert [point.value for point in history] == [trial.result.objective]
        assert not set(run.data.metrics) - {*COMPARED, "latency/get/p99"}
    assert parent.info.status == "FINISHED"
    assert parent.data.params["budget"] == "14"
    scenario = data.header.request.scenario.plain()
    assert {name: parent.data.params[name] for name in scenario} == {
        name: str(value) for name, value in scenario.items()
    }
    assert parent.data.metrics["best"] == summary.best_objective
    verdict, metrics = summary.verdict, parent.data.metrics
    assert metrics["gain"] == summary.gain
    assert verdict.gain is not None and verdict.over_first_touch is not None
    assert metrics["gain_half_width"] == verdict.gain.half_width
    assert metrics["over_first_touch"] == verdict.over_first_touch.gain
    assert metrics["way_to_static_hot"] == verdict.way
    for name, value in verdict.references.items():
        assert metrics[f"reference/{name}"] == value
    assert metrics["untuned/other"] == verdict.untuned["other"]
    assert parent.data.tags["verdict"] == verdict.headline
    assert parent.data.tags["mlflow.note.content"] == verdict.headline
    assert parent.data.tags["advice"] == "use-best"
    assert summary.explanation is not None
    assert metrics["minimal_kept"] == summary.explanation.kept
    charts = {name: value for name, value in metrics.items() if name.startswith("importance")}
    r2 = charts.pop("importance_forest_r2")
    assert charts == {f"importance/{name_for(k)}": v for k, v in summary.importance.items() if v}
    assert 0 < len(charts) < len(KNOBS) and r2 <= 1
    artifacts = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert artifacts == {
        "best.yaml", "best-minimal.yaml", "study.json", "report.html", "importance.png",
        "importance.json", "trials.csv", "series",
    }  # fmt: skip
    assert data.best is not None and data.best.number != 0
    assert data.lean is not None  # best.yaml lacks what adds nothing in that trial
    ends = [f"series/{number:04d}.json" for number in (0, data.lean)]
    stored = client.list_artifacts(parent.info.run_id, "series")
    assert sorted(item.path for item in stored) == ends
    for end in ends:
        copy = Path(client.download_artifacts(parent.info.run_id, end))
        assert copy.read_bytes() == (data.directory / end).read_bytes()
    copy = Path(client.download_artifacts(parent.info.run_id, TRIALS))
    assert copy.read_text() == csv_text(data)
    import mlflow

    mlflow.set_tracking_uri(store)
    table = client.load_table(
        parent.info.experiment_id, "importance.json", run_ids=[parent.info.run_id]
    )
    scores = dict(zip(table["knob"], table["importance"], strict=True))
    assert scores == pytest.approx(summary.importance, abs=1e-9)
    scores = dict(zip(table["knob"], table["importance_forest"], strict=True))
    assert scores == pytest.approx(summary.importance_forest, abs=1e-9)


def test_the_address_of_a_servers_studies() -> None:
    address = "https://there:5000/#/experiments/7/runs?workflowType=machine_learning"
    assert page("https://there:5000/", "7", studies=False) == address
    assert page("https://there:5000", "7") == f"{address}&viewStateShareKey=studies"


@slow
def test_the_view_that_links_name_lists_studies_with_their_results(
    tmp_path: Path, store: str
) -> None:
    run_study(request(tmp_path, budget=3, mlflow_uri=store), runner=smooth)
    parent, _ = runs_of(store, tmp_path)
    client = client_of(store)
    experiment = client.get_experiment(parent.info.experiment_id)
    view = json.loads(experiment.tags["mlflow.sharedViewState.studies"])
    found = client.search_runs([experiment.experiment_id], view["searchFilter"])
    assert parent.info.run_id in {run.info.run_id for run in found}
    assert not [run for run in found if "mlflow.parentRunId" in run.data.tags]
    for column in view["selectedColumns"]:
        kind, name = column.split(".", 1)
        assert name.strip("`") in getattr(parent.data, kind), column


@slow
def test_a_later_conclusion_replaces_an_earlier_one(tmp_path: Path, store: str) -> None:
    """MLflow shows the latest value of a metric, and of values of the same time the largest."""
    wanted = request(tmp_path, budget=12, mlflow_uri=store, explain=False)
    run_study(wanted, runner=smooth)
    path = tmp_path / "synthetic-study"
    with log.StudyLog(path) as study:
        kept = [check for check in study.data.checks if check.purpose != "reference static-hot"]
    lines = (path / log.EVENTS).read_bytes().splitlines(keepends=True)
    lines = [line for line in lines if b"reference static-hot" not in line]
    (path / log.EVENTS).write_bytes(b"".join(lines))
    assert len(log.load(path).checks) == len(kept)
    summary = run_study(wanted.model_copy(update={"resume": True}), runner=slower_bound)
    parent, _ = runs_of(store, tmp_path)
    assert parent.data.metrics["way_to_static_hot"] == summary.verdict.way
    assert parent.data.metrics["reference/static-hot"] == summary.verdict.references["static-hot"]


def slower_bound(trial: Trial) -> Any:
    return answer(trial, 97.0) if trial.scenario.policy == "static-hot" else answer(trial)


@slow
def test_without_an_explanation_there_is_no_importance(tmp_path: Path, store: str) -> None:
    wanted = request(tmp_path, budget=3, mlflow_uri=store, explain=False)
    summary = run_study(wanted, runner=smooth)
    assert summary.explanation is None
    parent, _ = runs_of(store, tmp_path)
    assert not [name for name in parent.data.metrics if name.startswith("importance/")]
    assert "importance_forest_r2" in parent.data.metrics


@slow
def test_failed_trials_are_marked_with_their_error(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path, budget=3, mlflow_uri=store), runner=accident)
    _, children = runs_of(store, tmp_path)
    assert [run.info.status for run in children] == ["FINISHED", "FAILED", "FAILED"]
    assert children[1].data.tags["error"] == "ValueError: no such operation"
    assert children[2].data.tags["status"] == "crashed"
    assert "objective" not in children[1].data.metrics


@slow
def test_the_log_of_a_failed_trial_is_kept(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path, budget=3, mlflow_uri=store), runner=logs)
    _, children = runs_of(store, tmp_path)
    assert children[1].data.tags["log"] == "<first>\n\x1b[1mlast\n"
    assert "log" not in children[0].data.tags
    page = (tmp_path / "synthetic-study" / "report.html").read_text()
    assert "it exited with 3<details>" in page
    assert "<pre>&lt;first&gt;\n\\u001b[1mlast\n</pre>" in page


@slow
def test_resume_adds_what_is_missing_and_nothing_twice(tmp_path: Path, store: str) -> None:
    lost = f"sqlite:///{tmp_path / 'no' / 'mlflow.db'}"
    (tmp_path / "no").write_text("in the way of the database")
    run_study(request(tmp_path, budget=3, mlflow_uri=lost), runner=smooth)
    wanted = request(tmp_path, budget=5, mlflow_uri=store, resume=True)
    run_study(wanted, runner=smooth)
    first, children = runs_of(store, tmp_path)
    assert len(children) == 5
    client = client_of(store)
    # Torn by a kill: one trial half stored, one not at all, the study not concluded.
    client.update_run(children[1].info.run_id, status="RUNNING")
    client.delete_run(children[4].info.run_id)
    run_study(wanted, runner=smooth)
    again, children_again = runs_of(store, tmp_path)
    assert again.info.run_id == first.info.run_id
    assert again.info.status == "FINISHED"
    assert [int(run.data.tags["tiertune.trial"]) for run in children_again] == list(range(5))
    assert {run.info.status for run in children_again} == {"FINISHED"}
    untouched = [0, 2, 3]
    for number in untouched:
        assert children_again[number].info.run_id == children[number].info.run_id


@slow
def test_a_store_that_fails_for_a_while_has_everything_in_the_end(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    real, failures = MlflowClient.log_batch, 0

    def fails(self: Any, run_id: str, **values: Any) -> None:
        nonlocal failures
        if failures < 2 and self.get_run(run_id).info.run_name == "trial 1":  # it is half stored
            failures += 1
            raise OSError("the database is away")
        real(self, run_id, **values)

    monkeypatch.setattr(MlflowClient, "log_batch", fails)
    monkeypatch.setattr(tracking, "RETRY_SECONDS", 0.0)
    run_study(request(tmp_path, budget=5, mlflow_uri=store), runner=smooth)
    _, children = runs_of(store, tmp_path)
    assert failures == 2
    assert [int(run.data.tags["tiertune.trial"]) for run in children] == list(range(5))
    assert {run.info.status for run in children} == {"FINISHED"}
    told = capsys.readouterr().err
    assert told.count("does not take this study (OSError: the database is away)") == 1
    assert told.count("takes this study again") == 1


def strange(trial: Trial) -> Any:
    """Names and values that MLflow does not take as they are, and more of them."""
    return answer(trial).model_copy(
        update={
            "metrics": {"a:b*c": 1.0, "infinite": float("inf"), "nan": float("nan")}
            | {f"m{number}": 1.0 for number in range(MOST_METRICS)}
        }
    )


@slow
def test_values_that_mlflow_does_not_take_are_left_out(tmp_path: Path, store: str) -> None:
    measured = Isolation(image="mine", command=("mine",), metric="(.*)")
    run_study(request(tmp_path, budget=1, mlflow_uri=store, isolation=measured), runner=strange)
    _, children = runs_of(store, tmp_path)
    metrics = children[0].data.metrics
    assert metrics["a_b_c"] == 1.0
    assert "infinite" not in metrics
    assert "nan" not in metrics
    assert len(metrics) == MOST_METRICS


def measured(tmp_path: Path, **changes: Any) -> tuple[Any, log.TrialRecord]:
    wanted = request(tmp_path, **changes)
    result = answer(wanted.trial(0, {"period": 100})).model_copy(
        update={"metrics": {"fast_hit_ratio": 0.9, "samples": 3.0}, "breakdown": {"compute": 1.5}}
    )
    return wanted, log.TrialRecord(0, "default", {"period": 100}, log.now(), log.now(), result)


def test_a_simulated_trial_has_in_mlflow_what_trials_are_compared_by(tmp_path: Path) -> None:
    """Each value takes half a kilobyte there; a trial of an engine measures sixty."""
    names = {"objective", "wall_seconds", "fast_hit_ratio", "latency/get/p99"}
    assert set(compared(*measured(tmp_path))) == names


@pytest.mark.parametrize(
    "changes",
    [
        {"substrate": EMULATED},
        {"isolation": Isolation(image="mine", command=("mine",), metric="(.*)")},
    ],
)
def test_any_other_trial_has_all_that_it_measured(tmp_path: Path, changes: Any) -> None:
    found = compared(*measured(tmp_path, **changes))
    assert {"samples", "breakdown/compute", "latency/get/p50", "cost", "objective"} <= set(found)


def test_trials_as_a_table(tmp_path: Path) -> None:
    """A row for each that has ended, with columns for what any of them has."""
    _, first = measured(tmp_path)
    assert first.result is not None
    failed = first.result.model_copy(update={"objective": None, "cost": None, "latency": {}})
    study: Any = SimpleNamespace(
        trials=[
            first,
            log.TrialRecord(1, "model", {"period": 7}, log.now(), log.now(), failed),
            log.TrialRecord(2, "model", {"period": 9}, log.now()),
        ]
    )
    rows = list(csv.DictReader(csv_text(study).splitlines()))
    assert [row["trial"] for row in rows] == ["0", "1"]
    assert [row["knob.period"] for row in rows] == ["100", "7"]
    assert [row["samples"] for row in rows] == ["3.0", "3.0"]
    assert [row["breakdown/compute"] for row in rows] == ["1.5", "1.5"]
    assert [row["latency/get/p50"] for row in rows] == ["900.0", ""]
    assert [row["objective"] for row in rows] == [str(first.result.objective), ""]


class Idle:
    """A line whose tasks are never done: a store that does not answer."""

    alive = True

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def put(self, task: Any) -> None:
        self.tasks.append(task)


def test_who_presses_ctrl_c_waits_for_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the store does, and also while a complete study waits for it."""
    waits: list[float] = []

    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            if len(waits) == 2:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(tracking, "threading", SimpleNamespace(Event=Impatient))
    study: Any = SimpleNamespace(done=[], directory=tmp_path)
    line: Any = Idle()
    tracker = tracking.Tracker(study, "sqlite:///away.db", lambda _: None, line)
    with pytest.raises(KeyboardInterrupt):
        tracker.close()
    tracker.close(interrupted=True)
    assert waits == [PATIENT_SECONDS, PATIENT_SECONDS, LAST_SECONDS]
    assert LAST_SECONDS <= 1
    assert len(line.tasks) == 2  # what the store lacked at first, and one end


@slow
def test_parent_has_the_curve_of_the_best(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path, budget=6, mlflow_uri=store), runner=smooth)
    parent, _ = runs_of(store, tmp_path)
    client = client_of(store)
    history = client.get_metric_history(parent.info.run_id, "best_objective")
    values = [point.value for point in sorted(history, key=lambda point: point.step)]
    objectives = [
        t.result.objective for t in log.load(tmp_path / "synthetic-study").trials if t.result
    ]
    expected = [max(o for o in objectives[: n + 1] if o is not None) for n in range(6)]
    assert values == expected


@slow
def test_interrupted_study_is_marked(tmp_path: Path, store: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_study(request(tmp_path, budget=3, mlflow_uri=store), runner=_unpicklable_interrupt())
    parent, _ = runs_of(store, tmp_path)
    assert parent.info.status == "KILLED"


def _unpicklable_interrupt() -> Any:
    class Interrupt:
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

        def __call__(self, trial: Trial) -> Any:
            raise AssertionError

    return Interrupt()


@slow
def test_a_store_that_fails_is_told_of_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_study(request(tmp_path, budget=1), runner=smooth)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("CREATE TRIGGER t BEFORE INSERT ON runs BEGIN SELECT absent(); END")
    capfd.readouterr()
    run_study(request(tmp_path, study="second", budget=1), runner=smooth)
    shown = capfd.readouterr().err.splitlines()
    assert sum(line.startswith("warning: MLflow") for line in shown) == 1
    assert not any("Traceback" in line or "ERROR" in line for line in shown)


@slow
def test_resume_completes_a_study_whose_settings_were_not_stored(
    tmp_path: Path, store: str
) -> None:
    changes: dict[str, Any] = {"mlflow_uri": store, "budget": 1}
    run_study(request(tmp_path, **changes), runner=smooth)
    before, _ = runs_of(store, tmp_path)
    assert before.data.params["policy"] == "paper"
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as database:
        database.execute("DELETE FROM params WHERE run_uuid = ?", (before.info.run_id,))
        database.commit()
    run_study(request(tmp_path, resume=True, **changes), runner=smooth)
    after, _ = runs_of(store, tmp_path)
    assert after.data.params == before.data.params
