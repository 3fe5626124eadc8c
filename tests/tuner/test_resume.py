# SPDX-License-Identifier: MIT
"""Killing a study at any moment and going on loses nothing and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from conftest import comm, descendants, python_path, started
from synthetic import request, smooth

from tuner.experiment.loop import run_study
from tuner.study import best, log

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


def start(
    out: Path, store: str, *changes: str, **environment: str
) -> AbstractContextManager[subprocess.Popen[Any]]:
    """A study as a process of its own. It tells of its trials on standard error."""
    paths = {"PYTHONPATH": python_path(HERE, *sys.path), "SYNTHETIC_RUNS": str(out)}
    fields = [f'mlflow_uri="{store}"', *changes]
    return started(
        [sys.executable, str(HERE / "synthetic.py"), "counted", str(out), *fields],
        env=os.environ | paths | environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(directory: Path) -> set[int]:
    return {t.number for t in log.load(directory).done} if log.exists(directory) else set()


def checks(data: log.StudyData) -> list[tuple[str, str, str]]:
    return [(c.purpose, str(c.scenario), json.dumps(c.knobs)) for c in data.checks]


def rest(process: subprocess.Popen[str]) -> str:
    """What it still tells. Its worker, which has the same standard error, has ended as well."""
    assert process.stderr is not None
    text = process.stderr.read()
    process.wait()
    return text


def until(process: subprocess.Popen[str], trials: int) -> None:
    """Waits until the study has told of so many trials that finished."""
    assert process.stderr is not None
    for line in process.stderr:
        trials -= line.startswith("trial ")
        if not trials:
            return
    raise AssertionError("the study ended before")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_kill_at_random_moments_then_resume(tmp_path: Path, store: str, seed: int) -> None:
    rng = random.Random(seed)
    directory, runs = tmp_path / "synthetic-study", tmp_path / "runs"
    budget = 24
    history: list[int] = []

    # Soon after the start, and after some trials: at any step of writing to the disk, right after a
    # trial, and while one runs.
    for kind, count in (
        ("write", rng.randint(1, 6)),
        ("after", rng.randint(2, 6)),
        ("within", rng.randint(2, 5)),
        ("write", rng.randint(8, 20)),
    ):
        before = finished(directory)
        running, go_on = (
            tmp_path / f"{name}-{len(before) + count}" for name in ("running", "go-on")
        )
        dies = {"SYNTHETIC_DIES": str(count)} if kind == "write" else {}
        if kind == "within":
            os.mkfifo(running)
            os.mkfifo(go_on)
        with start(tmp_path, store, f"budget={budget}", "resume=true", **dies) as process:
            if kind == "after":
                until(process, count)
            elif kind == "within":
                running.read_bytes()
            if kind != "write":
                process.kill()
                process.wait()
            if kind == "within":
                running.unlink()
            rest(process)  # returns: its worker has ended in the middle of the trial
            assert process.returncode == -signal.SIGKILL
        ran = [int(line) for line in runs.read_text().split()] if runs.exists() else []
        assert not set(ran[len(history) :]) & before, "a finished trial was run again"
        history = ran
    kept = {t.number: t for t in log.load(directory).done}
    with start(tmp_path, store, f"budget={budget}", "resume=true") as process:
        errors = rest(process)
        assert process.returncode == 0, errors
    data = log.load(directory)
    assert [t.number for t in data.trials] == list(range(budget))
    assert len(data.done) == budget
    assert len({json.dumps(t.knobs, sort_keys=True) for t in data.trials}) == budget
    for number, trial in kept.items():
        assert data.trials[number] == trial
        assert data.series(number) == smooth(data.header.request.trial(number, {})).series
    # And the sequence is the one of a study that nobody killed, with the same checks, each once.
    run_study(request(tmp_path / "whole", budget=budget, mlflow_uri=store), runner=smooth)
    whole = log.load(tmp_path / "whole" / "synthetic-study")
    assert [t.knobs for t in data.trials] == [t.knobs for t in whole.trials]
    assert sorted(checks(data)) == sorted(checks(whole))
    assert len(set(checks(data))) == len(data.checks) > 30


def test_log_cut_at_any_event_resumes_to_the_same_study(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path / "whole", budget=8, mlflow_uri=store), runner=smooth)
    whole = tmp_path / "whole" / "synthetic-study"
    events = (whole / log.EVENTS).read_bytes().splitlines(keepends=True)
    purposes = [json.loads(line).get("purpose") for line in events]
    assert purposes[:4].count(None) == 0  # references, and the other policy
    assert purposes[4:20] == [None] * 16
    held_out, explanation = purposes.index("held-out best"), purposes.index("explanation")
    for cut in (0, 2, 4, 11, held_out, explanation + 3, len(events) - 1):
        out = tmp_path / f"cut-{cut}"
        shutil.copytree(whole, out / "synthetic-study")
        torn = b"".join(events[:cut]) + events[cut][: len(events[cut]) // 2]
        (out / "synthetic-study" / log.EVENTS).write_bytes(torn)
        summary = run_study(request(out, budget=8, mlflow_uri=store, resume=True), runner=smooth)
        assert summary.trials == 8
        again, before = log.load(out / "synthetic-study"), log.load(whole)
        assert [t.knobs for t in again.trials] == [t.knobs for t in before.trials]
        assert [t.origin for t in again.trials] == [t.origin for t in before.trials]
        assert checks(again) == checks(before)
        for name in (best.FILE, best.MINIMAL):
            kept = [best.read(folder / name) for folder in (whole, out / "synthetic-study")]
            assert kept[0].verdict == kept[1].verdict
            assert (kept[0].knobs, kept[0].minimal) == (kept[1].knobs, kept[1].minimal)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", 143)])
def test_signal_stops_cleanly_and_tells_how_to_go_on(
    tmp_path: Path, store: str, name: str, code: int, workers: int
) -> None:
    directory = tmp_path / "synthetic-study"
    with start(tmp_path, store, "budget=500", f"workers={workers}") as process:
        until(process, 3)
        process.send_signal(signal.Signals[name])
        errors = rest(process)
        assert process.returncode == code, errors
    done = len(finished(directory))
    assert f"stopped: {done} of 500 trials" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert name not in errors  # Ray's own account of it
    with log.StudyLog(directory) as study:  # the lock is free
        assert len(study.data.done) == done >= 3


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_ray_that_is_killed_costs_one_line(tmp_path: Path, store: str, victim: str) -> None:
    running, go_on = tmp_path / "running-3", tmp_path / "go-on-3"
    os.mkfifo(running)
    os.mkfifo(go_on)
    with start(tmp_path, store, "budget=500", "workers=2") as process:
        running.read_bytes()
        (pid,) = (pid for pid in descendants(process.pid) if comm(pid) == victim)
        os.kill(pid, signal.SIGKILL)
        errors = rest(process)
        assert process.returncode == 1, errors
    done = len(finished(tmp_path / "synthetic-study"))
    *_, stopped, resume, error = errors.splitlines()
    assert stopped.startswith(f"stopped: {done} of 500 trials")
    assert resume.startswith("continue with: tune run ")
    assert error.startswith("error: the local Ray instance has died")
    first, *others = [line for line in errors.splitlines()[:-3] if not line.startswith("trial ")]
    assert first.startswith("before the search: ")
    assert all(line.startswith(("reference ", "untuned ")) for line in others), others


def test_resume_of_a_study_that_never_began_starts_it(tmp_path: Path, store: str) -> None:
    wanted = request(tmp_path, budget=2, mlflow_uri=store, resume=True)
    assert run_study(wanted, runner=smooth).trials == 2


def test_larger_budget_goes_on(tmp_path: Path, store: str) -> None:
    run_study(request(tmp_path, budget=4, mlflow_uri=store), runner=smooth)
    before = log.load(tmp_path / "synthetic-study").trials
    wanted = request(tmp_path, budget=7, mlflow_uri=store, resume=True)
    assert run_study(wanted, runner=smooth).trials == 7
    assert log.load(tmp_path / "synthetic-study").trials[:4] == before
