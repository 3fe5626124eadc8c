# SPDX-License-Identifier: MIT
"""What the configurations have in common that are as good as the best one."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from synthetic import KNOBS, answer
from test_explain import DEFAULT, Study, explained

from tuner.model import content_hash
from tuner.report import conclusion
from tuner.report.conclusion import Conclusion
from tuner.report.importance import Importance
from tuner.run.trial import Trial, TrialResult
from tuner.study.contender import Kind
from tuner.study.near import FEW, MOST, Freedom, NearBest, near_best, sentences
from tuner.text import short

NOISE = 0.003
COUNT = 40


def by_period(trial: Trial) -> TrialResult:
    """Only `period` matters, and whether `aol` is on; runs differ by chance."""
    if trial.scenario.policy != "paper":
        return answer(trial)
    knobs: dict[str, Any] = trial.knobs
    seconds = 100.0 + 12 * math.log10(knobs["period"] / 2000) ** 2 + 5.0 * knobs["aol"]
    seed = content_hash([knobs, trial.scenario.seed])
    return answer(trial, seconds * (1 + NOISE * random.Random(seed).gauss(0, 1)))


def study_of(out: Path, runner: Any = by_period, count: int = COUNT) -> Study:
    """Trials of which every second one has about the best period and any value of the others."""
    rng = random.Random(7)
    study = Study(out, runner, best={**DEFAULT, "period": 2000}, study="s")
    for number in range(2, count):
        period = rng.randint(1900, 2100) if number % 2 else rng.choice([20, 50, 9000])
        knobs: dict[str, Any] = {
            "period": period,
            "threshold": 0.5 * 128 ** rng.random(),
            "share": rng.random(),
            "mode": rng.choice(["plain", "eager", "lazy"]),
            "aol": number % 4 == 2,
            "aol.low": 40.0,
        }
        study.log.asked(number, "model", knobs)
        study.log.finished(runner(study.request.trial(number, knobs)))
    study.open(runner)
    return study


def near_of(study: Study) -> NearBest:
    found = near_best(study.log.data, study.judge())
    assert found is not None
    return found


def test_near_best_trials_agree_on_what_matters_and_are_free_elsewhere(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    near = near_of(study)
    expected = {
        n for n in range(1, COUNT) if study.log.data.trials[n].knobs["period"] in range(1900, 2101)
    }
    assert set(near.trials) <= expected and len(near.trials) >= len(expected) / 2
    knobs = {knob.name: knob for knob in near.knobs}
    agree = {name for name, knob in knobs.items() if knob.freedom is Freedom.agree}
    assert agree == {"period", "aol"}
    assert {k.name for k in near.of(Freedom.free)} == {"threshold", "share", "mode"}
    period, mode = knobs["period"], knobs["mode"]
    assert period.low is not None and period.high is not None
    assert 1900 <= period.low <= period.high <= 2100 and period.part < 0.02  # of four decades
    assert mode.values == ["plain", "eager", "lazy"] and mode.part == 1.0
    assert knobs["aol"].values == [False]
    assert "aol.low" not in knobs  # it has no effect in any of them
    _, first, second = sentences(study.log.data, near)
    assert first.startswith(f"they agree on period ({short(period.low)} to ")
    assert "aol (false)" in first
    assert "mode (any of plain, eager, lazy)" in second and "share (any from 0." in second


def test_the_bound_is_what_two_runs_differ_by(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    verdict = study.judge()
    near = near_best(study.log.data, verdict)
    tuned = verdict.contender(Kind.tuned)
    assert near is not None and tuned is not None
    logs = [math.log(value or 0) for value in tuned.values]
    mean = sum(logs) / 6
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / 5)
    assert math.log1p(near.within) == pytest.approx(2.5706 * math.sqrt(2) * deviation, rel=1e-4)
    best = study.log.data.best
    assert best is not None and best.objective is not None
    for trial in study.log.data.done:
        assert trial.objective is not None
        assert (trial.number in near.trials) == (
            best.objective / trial.objective <= 1 + near.within
        )


def test_what_chance_decides_says_nothing_of_knobs(tmp_path: Path) -> None:
    def rough(trial: Trial) -> TrialResult:
        result = by_period(trial)
        if trial.scenario.policy != "paper" or trial.scenario.seed % 2 or result.objective is None:
            return result
        return answer(trial, 100.0 if trial.knobs == DEFAULT else 60.0)

    study = study_of(tmp_path, rough)
    near = near_best(study.log.data, study.judge())
    assert near is not None and near.within > MOST and near.knobs == []
    (line,) = sentences(study.log.data, near)
    assert line.startswith("two runs of the best differ by ")


def test_where_nothing_agrees_that_is_said(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    near = near_of(study)
    knobs = [knob.model_copy(update={"freedom": Freedom.neither}) for knob in near.knobs]
    none = near.model_copy(update={"knobs": knobs})
    assert sentences(study.log.data, none)[1:] == ["they agree on no knob", "no knob is free"]


def test_a_gap_in_a_range_is_not_free(tmp_path: Path) -> None:
    def only_ends(trial: Trial) -> TrialResult:
        knobs: dict[str, Any] = trial.knobs
        if trial.scenario.policy == "paper" and 0.15 < knobs["share"] < 0.9:
            return answer(trial, 130.0 if trial.knobs != DEFAULT else None)
        return by_period(trial)

    found = {knob.name: knob for knob in near_of(study_of(tmp_path, only_ends, 120)).knobs}
    assert found["share"].part > 0.5 and found["share"].freedom is Freedom.neither
    assert found["threshold"].freedom is Freedom.free


def test_of_few_nothing_is_said(tmp_path: Path) -> None:
    study = study_of(tmp_path, count=6)
    near = near_of(study)
    assert 1 <= len(near.trials) < FEW and near.knobs == []
    assert "too few to say which knobs are free" in sentences(study.log.data, near)[0]
    alone = Study(tmp_path / "alone")  # without noise
    assert sentences(alone.log.data, near_of(alone)) == [
        "no other trial is within 0.01 % of the best, which is chance between two runs"
    ]


def test_without_a_gain_there_is_nothing_near(tmp_path: Path) -> None:
    study = Study(tmp_path, lambda trial: answer(trial, 100.0))
    assert near_best(study.log.data, study.judge()) is None


def test_explain_and_the_summary_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(tmp_path)
    explanation = study.explain()
    verdict = study.judge()
    near = near_of(study)
    lines = sentences(study.log.data, near)
    ended = Conclusion(verdict, explanation, Importance({k.name: 0.0 for k in KNOBS}, 0, 0, "x"))
    text = conclusion.text(study.log.data, ended)
    assert f"near     {lines[0]}\n         {lines[1]}\n" in text
    study.log.close()
    out = explained(tmp_path, capsys)
    assert all(f"  {line}\n" in out for line in lines)
    plain = json.loads(explained(tmp_path, capsys, "--json"))
    assert plain["near_best"] == near.model_dump(mode="json")
