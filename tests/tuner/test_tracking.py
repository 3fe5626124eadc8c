# SPDX-License-Identifier: MIT
"""What MLflow holds after a study, queried back: nothing missing, nothing twice."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from synthetic import KNOBS, accident, answer, logs, request, smooth

from tuner.optimize.loop import run_study
from tuner.report import tracking
from tuner.report.tracked import study_id
from tuner.report.tracking import POINTS, ROWS, name_for, thin
from tuner.run.trial import Trial
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
    summary = run_study(request(tmp_path, budget=12, mlflow_uri=store), runner=smooth)
    data = log.load(tmp_path / "synthetic-study")
    parent, children = runs_of(store, tmp_path)
    assert [int(run.data.tags["tiertune.trial"]) for run in children] == list(range(12))
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
    history = client.get_metric_history(children[3].info.run_id, "series/fast_hit_ratio")
    assert len(history) == POINTS
    assert [history[0].step, history[-1].step] == [0, 599]
    assert history[-1].value == data.series(3)["fast_hit_ratio"][599]
    assert parent.info.status == "FINISHED"
    assert parent.data.params["budget"] == "12"
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
    scores = {k.name: metrics[f"importance/{name_for(k.name)}"] for k in KNOBS}
    assert scores == summary.importance
    forest = {k.name: metrics[f"importance_forest/{name_for(k.name)}"] for k in KNOBS}
    assert forest == summary.importance_forest
    artifacts = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert artifacts == {
        "best.yaml", "best-minimal.yaml", "study.json", "report.html", "importance.png",
        "importance.json",
    }  # fmt: skip
    import mlflow

    mlflow.set_tracking_uri(store)
    table = client.load_table(
        parent.info.experiment_id, "importance.json", run_ids=[parent.info.run_id]
    )
    scores = dict(zip(table["knob"], table["importance"], strict=True))
    assert scores == pytest.approx(summary.importance, abs=1e-9)
    scores = dict(zip(table["knob"], table["importance_forest"], strict=True))
    assert scores == pytest.approx(summary.importance_forest, abs=1e-9)


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
    assert "importance_forest/period" in parent.data.metrics


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
    assert children[1].data.tags["log"] == "<first>\nlast\n"
    assert "log" not in children[0].data.tags
    page = (tmp_path / "synthetic-study" / "report.html").read_text()
    assert "it exited with 3<details>" in page and "<pre>&lt;first&gt;\nlast\n</pre>" in page


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
    """Names and values that MLflow does not take as they are."""
    return answer(trial).model_copy(
        update={
            "metrics": {"a:b*c": 1.0, "infinite": float("inf"), "nan": float("nan")},
            "series": {f"s{i}": [1.0, float("inf"), 2.0] * 300 for i in range(12)},
        }
    )


@slow
def test_values_that_mlflow_does_not_take_are_left_out(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path, budget=1, mlflow_uri=store), runner=strange)
    _, children = runs_of(store, tmp_path)
    metrics = children[0].data.metrics
    assert metrics["a_b_c"] == 1.0
    assert "infinite" not in metrics
    assert "nan" not in metrics
    client = client_of(store)
    histories = [
        client.get_metric_history(children[0].info.run_id, f"series/s{i}") for i in range(12)
    ]
    assert all(histories)
    assert sum(map(len, histories)) <= ROWS
    assert {point.value for history in histories for point in history} <= {1.0, 2.0}


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


@pytest.mark.parametrize("count", [0, 1, 2, 7, 199, 200, 201, 5000])
def test_thinning_keeps_the_ends_and_the_limit(count: int) -> None:
    values = [float(i) for i in range(count)]
    kept = list(thin(values, 200))
    assert len(kept) == min(count, 200)
    assert all(index == value for index, value in kept)
    if count:
        assert kept[0][0] == 0
        assert kept[-1][0] == (count - 1 if count > 1 else 0)
    assert json.dumps(kept) == json.dumps(sorted(kept))


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
