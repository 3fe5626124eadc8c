# SPDX-License-Identifier: MIT
"""tune export --format: what Optuna and SMAC3 read is what the log has."""

from __future__ import annotations

import importlib
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from synthetic import KNOBS, answer, request, seconds_of

from tuner.declarations import KnobValue
from tuner.limits import OPTUNA, SMAC3
from tuner.optimize import viewers
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import constraint, log
from tuner.study.log import StudyData, StudyHeader, StudyLog

DEFAULT: dict[str, KnobValue] = {knob.name: knob.default for knob in KNOBS}
TRIED: list[dict[str, KnobValue]] = [
    DEFAULT,
    DEFAULT | {"period": 2000, "aol": True, "aol.low": 60.0},
    DEFAULT | {"period": 7, "threshold": 0.75, "mode": "lazy"},
    DEFAULT | {"share": 0.25},
]
"""The third one fails."""


def ran(trial: Trial) -> TrialResult:
    if trial.number != 2:
        seconds = seconds_of(trial.knobs)
        metrics = {"operations": 1e6, "seconds": seconds, "migrated_bytes": 2e9}
        latency = {"get": {"p99": 4000.0, "operations": 9.0}}
        return answer(trial, seconds).model_copy(update={"metrics": metrics, "latency": latency})
    return TrialResult(
        study=trial.study, number=2, status=Status.timeout, error="its deadline passed", seconds=5.0
    )


@pytest.fixture
def study(tmp_path: Path) -> StudyData:
    return made(tmp_path)


def made(out: Path, **changes: Any) -> StudyData:
    """With four trials that have ended."""
    wanted = request(out, study="s", alternatives=[], explain=False, **changes)
    header = StudyHeader(
        format=log.FORMAT,
        created=log.now(),
        request=wanted,
        fingerprints=wanted.fingerprints,
        stream=wanted.stream().key,
        lag=1,
        initial=2,
    )
    with StudyLog(out / "s", header) as study:
        for number, knobs in enumerate(TRIED):
            study.asked(number, "initial", knobs)
            study.finished(ran(wanted.trial(number, knobs)))
    return log.load(out / "s")


# --- Optuna ---------------------------------------------------------------------------------------


def optuna_of(data: StudyData, place: Path) -> Any:
    optuna = pytest.importorskip("optuna")
    assert viewers.write(data, place, OPTUNA) == len(data.done)
    return optuna.load_study(study_name=data.header.request.study, storage=f"sqlite:///{place}")


def test_optuna_reads_every_trial(study: StudyData, tmp_path: Path) -> None:
    found = optuna_of(study, tmp_path / "s.db")
    assert [d.name for d in found.directions] == ["MAXIMIZE"]
    assert found.metric_names == ["throughput (ops/s)"]
    assert [t.state.name for t in found.trials] == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"]
    for ours, theirs in zip(study.done, found.trials, strict=True):
        active = {k: v for k, v in ours.knobs.items() if k != "aol.low" or ours.knobs["aol"]}
        assert theirs.params == active
        assert theirs.user_attrs["trial"] == ours.number
        assert (theirs.values or [None])[0] == ours.objective
        assert ours.finished is not None
        assert theirs.datetime_complete.timestamp() == pytest.approx(
            datetime.fromisoformat(ours.finished).timestamp(), abs=1e-3
        )
    assert found.best_trial.number == study.best.number  # type: ignore[union-attr]
    failed = found.trials[2]
    assert failed.user_attrs["error"] == "its deadline passed"
    assert failed.duration.total_seconds() == pytest.approx(5.0)
    assert found.user_attrs["workload"] == "synthetic (small)"
    assert found.user_attrs["trial in best.yaml"] == 1


def test_optuna_has_the_ranges_that_were_searched(study: StudyData, tmp_path: Path) -> None:
    ranges = optuna_of(study, tmp_path / "s.db").trials[1].distributions
    assert (ranges["period"].low, ranges["period"].high, ranges["period"].log) == (1, 10_000, True)
    assert (ranges["share"].low, ranges["share"].high, ranges["share"].log) == (0.0, 1.0, False)
    assert ranges["mode"].choices == ("plain", "eager", "lazy")
    assert ranges["aol"].choices == (False, True)


def test_a_default_outside_of_the_space_keeps_its_value(tmp_path: Path) -> None:
    narrow = [k.model_copy(update={"min": 500}) if k.name == "period" else k for k in KNOBS]
    data = made(tmp_path, tuned=narrow)
    first, second, *_ = optuna_of(data, tmp_path / "s.db").trials
    assert first.params["period"] == 100
    assert (first.distributions["period"].low, second.distributions["period"].low) == (100, 500)
    assert viewers.write(data, tmp_path / "s", SMAC3) == 1  # SMAC knows no such configuration


def test_optuna_knows_what_breaks_a_constraint(tmp_path: Path) -> None:
    known = constraint.figures_of(request(tmp_path), None)
    limits = constraint.parsed(["p99<=5us", "migrated_bytes<=1B"], known)
    found = optuna_of(made(tmp_path / "bound", constraints=limits), tmp_path / "s.db")
    assert [t.state.name for t in found.trials].count("COMPLETE") == 3
    for trial in found.trials[:2]:
        met, missed = trial.system_attrs["constraints"]
        assert met == 0.0
        assert missed > 0
    assert found.trials[2].system_attrs == {}


def test_several_objectives_are_several_directions(tmp_path: Path) -> None:
    data = made(tmp_path, objectives=["throughput", "p99"])
    found = optuna_of(data, tmp_path / "s.db")
    assert [d.name for d in found.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert found.metric_names == ["throughput (ops/s)", "p99 (ns)"]
    assert found.trials[0].values == [data.done[0].objective, 4000.0]


def test_without_optuna_one_command_is_named(
    study: StudyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    load = importlib.import_module

    def lacking(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ModuleNotFoundError(name=name)
        return load(name, *rest)

    monkeypatch.setattr(importlib, "import_module", lacking)
    place = tmp_path / "s.db"
    done = run("export", str(study.directory), "--format", OPTUNA, "-o", str(place))
    assert done.code == 2
    assert f"`python -m pip install '{viewers.RANGE}'` installs it" in done.err
    assert not place.exists()
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'optuna = ["{viewers.RANGE}"]' in project


# --- SMAC3 ----------------------------------------------------------------------------------------


def test_smac_reads_its_own_run(study: StudyData, tmp_path: Path) -> None:
    from smac import Scenario
    from smac.runhistory import RunHistory, StatusType

    place = tmp_path / "s.smac3"
    assert viewers.write(study, place, SMAC3) == 4
    assert sorted(p.name for p in place.iterdir()) == sorted(viewers.SMAC_FILES)
    scenario = Scenario.load(place)
    assert (scenario.name, scenario.objectives) == ("s", "1/throughput")
    assert scenario.meta["tiertune"]["policy"] == "paper"
    assert json.loads((place / "scenario.json").read_text())["output_directory"] == str(place)
    assert set(scenario.configspace) == set(DEFAULT)
    runs = RunHistory()
    runs.load(place / "runhistory.json", scenario.configspace)
    assert len(runs) == 4
    for trial, (key, value) in zip(study.done, runs.items(), strict=True):
        assert trial.result is not None
        config = dict(runs.get_config(key.config_id))
        assert config == {n: v for n, v in trial.knobs.items() if n in config}
        assert ("aol.low" in config) == trial.knobs["aol"]
        assert value.additional_info["trial"] == trial.number
        assert value.cost == (math.inf if trial.result.cost is None else trial.result.cost)
        assert value.status is (StatusType.TIMEOUT if trial.number == 2 else StatusType.SUCCESS)


def test_smac_has_a_cost_for_each_objective(tmp_path: Path) -> None:
    data = made(tmp_path, objectives=["throughput", "p99"])
    viewers.write(data, tmp_path / "s", SMAC3)
    scenario = json.loads((tmp_path / "s" / "scenario.json").read_text())
    assert scenario["objectives"] == ["1/throughput", "p99"]
    runs = json.loads((tmp_path / "s" / "runhistory.json").read_text())["data"]
    first = data.done[0].objective
    assert first is not None
    assert runs[0]["cost"] == [pytest.approx(1 / first), 4000.0]
    assert runs[2]["cost"] == [math.inf, math.inf]


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [OPTUNA, SMAC3])
def test_what_is_there_is_replaced_only_by_force(
    study: StudyData, tmp_path: Path, run: Any, form: str
) -> None:
    if form == OPTUNA:
        pytest.importorskip("optuna")
    place = tmp_path / "there"
    words = ("export", str(study.directory), "--format", form, "-o", str(place))
    found = run(*words, "--json").json
    assert found == {
        "study": "s", "format": form, "trials": 4, "path": str(place.absolute())
    }  # fmt: skip
    refused = run(*words)
    assert (refused.code, "exists; replace it with --force" in refused.err) == (2, True)
    assert run(*words, "--force").code == 0
    assert [p for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_a_running_study_is_exported_as_far_as_it_is(
    study: StudyData, tmp_path: Path, run: Any
) -> None:
    with StudyLog(study.directory) as running:
        running.asked(4, "model", DEFAULT | {"period": 9})
        place = tmp_path / "s.smac3"
        done = run("export", str(study.directory), "--format", SMAC3, "-o", str(place))
    assert done.code == 0
    assert "left out: 1 trial that has not ended" in done.err


def test_nothing_to_export_is_an_error(tmp_path: Path, run: Any) -> None:
    assert "no study at" in run("export", "none", "--format", SMAC3, "--out", str(tmp_path)).err
