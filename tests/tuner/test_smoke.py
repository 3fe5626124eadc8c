# SPDX-License-Identifier: MIT
"""tune smoke: what it runs, and that any error fails it."""

from __future__ import annotations

import json
import math
import random
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative

from tuner import cli, engine
from tuner.commands import smoke
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.run import runner, streams
from tuner.run.trial import Trial, TrialResult


def drawn(count: int) -> list[dict[str, Any]]:
    policy = engine.policies()["toy"]
    knobs = catalog.tuned_knobs(catalog.space("toy").spec, policy)
    rng = random.Random(1)
    return [smoke.random_configuration(knobs, policy, rng) for _ in range(count)]


@pytest.mark.usefixtures("user_folder")
def test_random_configurations_stay_in_the_space() -> None:
    for knobs in drawn(300):
        assert isinstance(knobs["threshold"], int)
        assert 1 <= knobs["threshold"] <= 50
        assert 0.5 <= knobs["period"] <= 10
        assert knobs["mode"] in ("paper", "both")
        assert ("aol.low" in knobs) == knobs["aol.enabled"]


@pytest.mark.usefixtures("user_folder")
def test_a_log_knob_is_uniform_on_its_scale() -> None:
    below = sum(knobs["threshold"] < math.sqrt(50) for knobs in drawn(400))
    assert 150 < below < 250
    assert {knobs["aol.enabled"] for knobs in drawn(50)} == {True, False}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """The pool's work done here, where the fake engine is."""
    ran: list[Trial] = []

    def run(
        trials: list[Trial], workers: int, errors: list[str]
    ) -> list[tuple[Trial, TrialResult]]:
        ran.extend(trials)
        return [(trial, runner.run(trial)) for trial in trials]

    monkeypatch.setattr(smoke, "_run", run)
    return ran


ONLY = ("--policy", "toy", "--workload", "walker")


def test_default_and_random_trials_on_the_smoke_input(
    fake: FakeNative, in_process: list[Trial], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["smoke", *ONLY]) == 0
    assert [trial.number for trial in in_process] == [0, 1, 2]
    assert {trial.scenario.input for trial in in_process} == {"small"}
    defaults = {knob.name: knob.default for knob in engine.policies()["toy"].knobs}
    assert in_process[0].knobs == defaults
    assert in_process[1].knobs != in_process[2].knobs
    assert "3 trials in" in capsys.readouterr().out
    assert len(streams.entries()) == 1


def test_a_failed_trial_fails_it(
    fake: FakeNative, in_process: list[Trial], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: dict[str, Any]) -> None:
        if arguments["knobs"]["threshold"] != 5:
            raise RuntimeError("assertion failed")

    fake.on_simulate = fail
    assert cli.main(["smoke", *ONLY]) == 1
    errors = capsys.readouterr().err
    assert errors.count("toy on walker: failed: assertion failed\n") == 2
    again = [line for line in errors.splitlines() if line.startswith("  again: tune ")]
    assert len(again) == 2
    fake.on_simulate = lambda arguments: None
    assert cli.main([*again[0].removeprefix("  again: tune ").split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knobs"] == in_process[1].knobs


def test_a_broken_document_fails_it(
    fake: FakeNative, in_process: list[Trial], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("spaces/toy.yaml").write_text("policy: toy\n")
    assert cli.main(["smoke", *ONLY]) == 1
    assert "spaces/toy.yaml:1: summary: missing" in capsys.readouterr().err
    assert in_process == []


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real scheduling, with threads where the fake engine is."""
    monkeypatch.setattr(smoke, "ProcessPoolExecutor", lambda n, _: ThreadPoolExecutor(n))


def test_a_stream_that_cannot_be_made_is_told_once(
    fake: FakeNative, in_threads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("workloads/walker.yaml").read_text()
    Path("workloads/other.yaml").write_text(
        text.replace("name: walker", "name: other").replace("keys: 10\n", "keys: 11\n")
    )

    def fail(partial: Path) -> None:
        if len(calls := fake.calls.read_text().splitlines()) == 1:
            raise RuntimeError(f"out of {len(calls)} keys")

    fake.on_record = fail
    both = ("--policy", "toy", "--workload", "walker", "--workload", "other", "--workers", "1")
    assert cli.main(["smoke", *both, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == ["workload walker, input small: RuntimeError: out of 1 keys"]
    assert (found["trials"], found["failed"]) == (3, 0)


def test_a_worker_that_dies_fails_what_it_had(
    fake: FakeNative, in_threads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(trial: Trial) -> TrialResult:
        raise BrokenProcessPool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", broken)
        assert cli.main(["smoke", *ONLY]) == 1
    shown = capsys.readouterr()
    assert shown.err.count("toy on walker: crashed: a worker process died") == 3
    assert shown.out.splitlines()[1].split()[:4] == ["walker", "0", "of", "3"]


def test_a_matrix_of_workloads_and_policies(
    fake: FakeNative, in_threads: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["smoke", *ONLY]) == 0
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert header.split() == ["trials", "that", "ran", "toy", "seconds"]
    assert row.split()[:2] == ["walker", "3"]


def test_an_unknown_workload_is_named(fake: FakeNative) -> None:
    errors: list[str] = []
    with pytest.raises(UserError, match="no workload 'walkr'; did you mean 'walker'"):
        smoke._trials(Namespace(policy=["toy"], workload=["walkr"], seed=0), errors)
