# SPDX-License-Identifier: MIT
"""Plain data survives JSON unchanged, and objectives mean what they say."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tuner import engine
from tuner.documents import catalog
from tuner.limits import fast_share
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status, StreamRequest, Trial, TrialResult
from tuner.scenario import Scenario
from tuner.study.best import BestConfiguration
from tuner.study.request import StudyRequest


def scenario(scale: float = 64.0) -> Scenario:
    return Scenario(
        workload="walker",
        input="big",
        policy="toy",
        machine="testbed",
        objective="throughput",
        threads=16.0,
        scale=scale,
        page_bytes=4096,
    )


def request() -> StudyRequest:
    workload, space = catalog.workload("walker").spec, catalog.space("toy").spec
    policy = engine.policies()["toy"]
    return StudyRequest(
        study="walker-toy",
        scenario=scenario(workload.scale_of("big")),
        out="/results",
        workload=workload,
        policy=policy,
        space=space,
        tuned=catalog.tuned_knobs(space, policy),
        machine=catalog.machine("testbed").spec,
        budget=10,
        workers=2,
        engine_version="1",
        engine_build="b1",
        stream_maker="m1",
    )


def result(trial: Trial, objective: float) -> TrialResult:
    return TrialResult(
        study=trial.study, number=trial.number, status=Status.success, objective=objective
    )


@pytest.mark.usefixtures("user_folder")
def test_a_trial_is_equal_after_json() -> None:
    trial = request().trial(3, {"threshold": 7, "period": 1.0, "aol.enabled": True})
    again = Trial.model_validate_json(trial.model_dump_json())
    assert again == trial
    assert again.knobs == {
        "threshold": 7,
        "period": 1.0,
        "mode": "paper",
        "aol.enabled": True,
        "aol.low": 40.0,
    }
    assert {name: type(value) for name, value in again.knobs.items()} == {
        "threshold": int,
        "period": float,
        "mode": str,
        "aol.enabled": bool,
        "aol.low": float,
    }
    assert isinstance(again.stream, StreamRequest)
    assert again.stream.parameters["skew"] == 1
    assert again.stream.key == trial.stream.key


@pytest.mark.usefixtures("user_folder")
def test_a_request_is_equal_after_json() -> None:
    assert StudyRequest.model_validate_json(request().model_dump_json()) == request()


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 12345678.9, math.inf, -math.inf]
)
def test_floats_are_bit_exact_after_json(value: float) -> None:
    before = TrialResult(
        study="s",
        number=0,
        status=Status.success,
        objective=value if 0 < value < math.inf else None,
        metrics={"x": value},
        series={"second": [0.0, value]},
    )
    after = TrialResult.model_validate_json(before.model_dump_json())
    assert after == before
    assert math.copysign(1, after.metrics["x"]) == math.copysign(1, value)


def test_nan_survives_json() -> None:
    text = TrialResult(
        study="s", number=0, status=Status.failed, metrics={"x": math.nan}
    ).model_dump_json()
    assert math.isnan(TrialResult.model_validate_json(text).metrics["x"])


@pytest.mark.usefixtures("user_folder")
def test_data_is_refused_when_it_is_not_what_it_should_be() -> None:
    good = request().trial(0, {}).model_dump()
    assert Trial.model_validate(good) == request().trial(0, {})
    for name, value in (("extra", 1), ("number", -1), ("deadline_seconds", "1")):
        with pytest.raises(ValidationError):
            Trial.model_validate(good | {name: value})
    changes: tuple[dict[str, Any], ...] = (
        *({"ratio": "1/8"}, {"ratio": "0:8"}, {"seed": "1"}, {"seed": -1}, {"extra": 1}),
        *({"threads": 0.5}, {"threads": math.inf}, {"page_bytes": 0}, {"objective": "speed"}),
        *({"repeats": True}, {"machine": None}),
    )
    for change in changes:
        with pytest.raises(ValidationError):
            Trial.model_validate(good | {"scenario": good["scenario"] | change})


@pytest.mark.usefixtures("user_folder")
def test_a_stream_key_depends_on_what_is_recorded() -> None:
    stream = request().stream()
    same = stream.model_copy(update={"workload": "another name", "input": "another"})
    assert same.key == stream.key
    changes: list[dict[str, Any]] = [
        {"kernel": "run"},
        {"parameters": {"keys": 5001}},
        {"scale": 65.0},
        {"threads": 8.0},
        {"llc_bytes": 1 << 20},
        {"seed": 1},
        {"maker": "m2"},
    ]
    keys = {stream.model_copy(update=change).key for change in changes}
    assert len(keys) == len(changes)
    assert stream.key not in keys


def test_fast_share() -> None:
    assert fast_share("1:8") == 1 / 9
    assert fast_share("2:1") == 2 / 3
    for bad in ("8", "1:0", "-1:8", "1:8:9", "a:b", ""):
        with pytest.raises(ValueError, match="FAST:SLOW"):
            fast_share(bad)


RESULT = {
    "seconds": 4.0,
    "operations": 1000.0,
    "latency": {"get": {"operations": 10, "p50": 700.0, "p90": 800.0, "p99": 900.0, "p999": 950.0}},
}


def test_objectives() -> None:
    values = {name: o.value(RESULT, "get") for name, o in OBJECTIVES.items()}
    assert values == {
        "throughput": 250.0,
        "runtime": 4.0,
        "p50": 700.0,
        "p90": 800.0,
        "p99": 900.0,
        "p999": 950.0,
    }


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_gain_is_the_ratio_of_costs(name: str) -> None:
    objective = OBJECTIVES[name]
    worse, better = (100.0, 125.0) if objective.higher_is_better else (125.0, 100.0)
    assert objective.gain(better, worse) == pytest.approx(0.25)
    assert objective.cost(worse) / objective.cost(better) - 1 == pytest.approx(0.25)
    assert objective.better(better, worse)
    assert not objective.better(worse, better)


def test_an_objective_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no latency of operation 'set' \(measured: get\)"):
        OBJECTIVES["p50"].value(RESULT, "set")
    with pytest.raises(ValueError, match="no operations"):
        OBJECTIVES["throughput"].value(RESULT | {"operations": 0.0}, None)
    with pytest.raises(ValueError, match="not a positive number"):
        OBJECTIVES["runtime"].value(RESULT | {"seconds": math.nan}, None)


@pytest.mark.usefixtures("user_folder")
def test_a_best_configuration_holds_all_knobs() -> None:
    trial = request().trial(3, {"threshold": 7})
    best = BestConfiguration.of(
        request(),
        trial,
        result(trial, 125.0),
        default_value=100.0,
        date=datetime(2026, 1, 2, tzinfo=UTC),
        git_commit=None,
    )
    assert best.knobs["threshold"] == 7
    assert best.knobs["mode"] == "paper"
    assert (best.objective.value, best.objective.default_value) == (125.0, 100.0)
    assert best.verdict is None
    assert best.provenance.date == "2026-01-02T00:00:00+00:00"
    assert best.provenance.fingerprints == request().fingerprints
