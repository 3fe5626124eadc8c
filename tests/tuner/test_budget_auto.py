# SPDX-License-Identifier: MIT
"""Searches that end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import request, smooth
from test_constraints import data_of, run
from test_explain import DEFAULT

from tuner import cli
from tuner.commands.run import study_request
from tuner.errors import UserError
from tuner.experiment import loop
from tuner.limits import AUTO_SECONDS, AUTO_TRIALS, MOST_AUTO
from tuner.optimize.enough import enough
from tuner.optimize.optimizer import AUTO_INITIAL
from tuner.report import live
from tuner.run.trial import Trial, TrialResult
from tuner.study import log
from tuner.study.log import StudyData, StudyHeader, TrialRecord
from tuner.study.request import StudySummary

__all__ = ["run"]  # a fixture

AUTO = {"budget": MOST_AUTO, "auto_seconds": 1e6, "constraints": []}


def flat(trial: Trial) -> TrialResult:
    """No configuration is better than another."""
    result = smooth(trial)
    return result.model_copy(update={"objective": 1e4, "cost": 1e-4})


def steep(trial: Trial) -> TrialResult:
    """As `smooth`, with larger differences."""
    cost = (smooth(trial).cost or 1.0) ** 3
    return smooth(trial).model_copy(update={"objective": 1 / cost, "cost": cost})


def data(tmp_path: Path, costs: list[float | None], initial: int = 3) -> StudyData:
    """A study whose trials had these costs, after so many of them by the model."""
    asked = request(tmp_path)
    header = StudyHeader(
        format=log.FORMAT, created=log.now(), request=asked, fingerprints=asked.fingerprints,
        stream="x", lag=1, initial=initial,
    )  # fmt: skip
    found = StudyData(tmp_path, header)
    for number, cost in enumerate(costs):
        origin = "initial" if number < initial else "random" if number % 5 == 0 else "model"
        record = TrialRecord(number, origin, dict(DEFAULT), log.now())
        record.result = smooth(asked.trial(number, DEFAULT)).model_copy(update={"cost": cost})
        found.trials.append(record)
    return found


def test_trials_in_a_row_that_bring_nothing_are_enough(tmp_path: Path) -> None:
    start: list[float | None] = [10.0, 9.0, 8.0]
    worse: list[float | None] = [9.0, None] * (AUTO_TRIALS // 2)
    study = data(tmp_path, [*start, *worse])
    assert enough(study, len(study.trials)) == "its last 40 trials brought nothing"
    # One fewer is not, nor are those that come before the model.
    assert enough(study, len(study.trials) - 1) is None
    assert enough(data(tmp_path, [*start, *worse], initial=4), len(study.trials)) is None
    assert enough(data(tmp_path, [*start, *worse[:-1], 7.9]), len(study.trials)) is None
    little = data(tmp_path, [*start, *worse[:-2], 7.99, 7.98])
    said = enough(little, len(study.trials))
    assert said == "its last 40 trials brought 0.25 % together, less than 0.5 %"


def test_what_has_finished_beyond_has_no_say(tmp_path: Path) -> None:
    """With several workers some trials have ended that the next proposal does not go by."""
    ended: list[float | None] = [10.0, 9.0, 8.0, *([9.0] * AUTO_TRIALS), 5.0]
    study = data(tmp_path, ended)
    assert enough(study, len(ended) - 1) is not None
    assert enough(study, len(ended)) is None


def test_a_search_ends_when_it_is_decided_and_stays_so(
    tmp_path: Path, run: Callable[..., StudySummary], capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(tmp_path, flat, **AUTO)
    study = data_of(tmp_path)
    assert summary.trials == AUTO_INITIAL + AUTO_TRIALS == len(study.trials)
    assert summary.ended == study.ended == "its last 40 trials brought nothing"
    assert study.header.initial == AUTO_INITIAL and study.complete and live.ended(study)
    said = capsys.readouterr()
    assert "the search ends after 50 trials: its last 40 trials brought nothing" in said.err
    assert "until 40 trials in a row bring less than 0.5 % together" in said.err
    assert "50 trials; the search ended: its last 40 trials brought nothing" in said.out
    assert run(tmp_path, flat, **AUTO, resume=True).trials == 50
    # A number of trials goes on, and is then what it had.
    assert run(tmp_path, flat, budget=52, constraints=[], resume=True).trials == 52
    more = data_of(tmp_path)
    assert more.ended == "its budget of 52 trials" and more.complete


def test_an_interrupted_search_ends_where_it_would_have(
    tmp_path: Path, run: Callable[..., StudySummary]
) -> None:
    def interrupted(trial: Trial) -> TrialResult:
        if trial.number == 33:
            raise KeyboardInterrupt
        return steep(trial)

    run(tmp_path / "whole", steep, **AUTO)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", interrupted, **AUTO)
    run(tmp_path / "parts", steep, **AUTO, resume=True)
    whole, parts = (data_of(tmp_path / name) for name in ("whole", "parts"))
    assert [trial.knobs for trial in whole.trials] == [trial.knobs for trial in parts.trials]
    assert whole.ended == parts.ended is not None
    assert len(whole.trials) > AUTO_INITIAL + AUTO_TRIALS  # it found something on the way


def test_a_cap_that_ends_a_search_is_said_and_can_be_raised(
    tmp_path: Path, run: Callable[..., StudySummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("tuner.experiment.studies.time.monotonic", lambda: now[0])

    def slow(trial: Trial) -> TrialResult:
        now[0] += 10.0
        return smooth(trial)

    first = run(tmp_path, slow, **AUTO | {"auto_seconds": 60.0, "references": [], "rivals": None})
    assert first.ended is not None and first.ended.startswith("its 1:00 are over, and more may be")
    assert first.trials == 6
    same = {"auto_seconds": 60.0, "references": [], "resume": True}
    assert run(tmp_path, slow, **AUTO | same).trials == 6
    assert run(tmp_path, slow, **AUTO | same | {"auto_seconds": 100.0}).trials == 16


def test_the_options_that_ask_for_it_and_what_it_is_not_for(tmp_path: Path) -> None:
    words = ["run", "-w", "silo", "-i", "smoke", "--rivals", "none"]
    asked = study_request(cli.arguments_of([*words, "--budget", "auto"]))
    assert (asked.budget, asked.auto_seconds) == (MOST_AUTO, AUTO_SECONDS)
    longer = study_request(cli.arguments_of([*words, "--budget", "auto:300"]))
    assert longer.auto_seconds == 300
    assert "--budget auto:300 " in loop.resume_command(longer)
    assert asked.study == study_request(cli.arguments_of(words)).study
    with pytest.raises(UserError, match="no single gain; give a number"):
        study_request(
            cli.arguments_of([*words, "--budget", "auto", "--objectives", "throughput,p99"])
        )
    for wrong in ("auto:", "auto:0", "auto:x", "automatic"):
        with pytest.raises(cli._Usage, match="argument --budget"):
            cli.parser_for(words).parse_args([*words, "--budget", wrong])
