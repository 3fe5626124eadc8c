# SPDX-License-Identifier: MIT
"""Trials that an image's engine runs: the same results as without, and no harm when one dies."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.run import contained, container, runner, settings, streams
from tuner.run.contained import EngineRunner
from tuner.run.isolation import Isolation, default_image
from tuner.run.trial import RecordedStream, Status, Trial, TrialResult

OWN = {"host", "seconds"}
"""What two runs of a trial need not have in common."""


def trial_of(workload: str = "cachelib", policy: str = "hybridtier", **given: Any) -> Trial:
    deadline = given.pop("deadline", 300.0)
    setting = settings.resolve(
        workload, policy=engine.policy(policy), deadline_seconds=deadline, study="s",
        **({"input": "smoke"} | given),
    )  # fmt: skip
    return setting.trial(7, {})


@pytest.fixture
def run(isolation: Isolation) -> Iterator[Callable[[Trial], TrialResult]]:
    yield EngineRunner(isolation)
    contained._discard_all()


def same(one: TrialResult, other: TrialResult) -> bool:
    return one.model_dump_json(exclude=OWN) == other.model_dump_json(exclude=OWN)


@pytest.mark.parametrize("policy", ["hybridtier", "tpp", "unified", "offline-optimal"])
def test_a_result_is_byte_for_byte_that_of_the_local_runner(
    run: Callable[[Trial], TrialResult], policy: str
) -> None:
    for workload in ("cachelib", "gups"):
        trial = trial_of(workload, policy)
        result = run(trial)
        assert result.status is Status.success, result.error
        assert same(result, runner.run(trial))


def test_a_recording_is_replayed_as_well(
    run: Callable[[Trial], TrialResult], cache: Path, tmp_path: Path
) -> None:
    trial = trial_of()
    made = streams.ensure(trial.stream)
    path = cache / "recorded.tts"
    shutil.copyfile(made, path)
    stream = RecordedStream(
        workload="w", input="i", trace=str(path), content=engine.stream_info(path)["identity"]
    )
    recorded = trial.model_copy(update={"stream": stream})
    assert same(run(recorded), runner.run(recorded))
    assert same(run(trial), runner.run(trial))  # the next one has the cache again
    path.unlink()


def test_a_container_is_used_again(
    run: Callable[[Trial], TrialResult], ours: Callable[[], set[str]]
) -> None:
    before = ours()
    run(trial_of())
    (mine,) = ours() - before
    run(trial_of("gups"))
    assert ours() - before == {mine}


def test_a_trial_s_own_failure_is_told_as_by_the_local_runner(
    run: Callable[[Trial], TrialResult], ours: Callable[[], set[str]]
) -> None:
    before = ours()
    trial = trial_of().model_copy(update={"knobs": {"no_such_knob": 1}})
    result = run(trial)
    assert same(result, runner.run(trial))
    assert result.status is Status.failed and "no_such_knob" in result.error
    assert len(ours() - before) == 1  # the container is as good as before


def test_the_engine_of_the_image_must_be_the_trial_s(run: Callable[[Trial], TrialResult]) -> None:
    result = run(trial_of().model_copy(update={"engine_build": "0123456789abcdef"}))
    assert result.status is Status.failed
    assert "engine build 0123456789abcdef" in result.error and "make image" in result.error


def test_a_container_that_is_killed_costs_no_trial(
    run: Callable[[Trial], TrialResult], ours: Callable[[], set[str]], engine_client: Any
) -> None:
    before = ours()
    trial = trial_of()
    first = run(trial)
    (mine,) = ours() - before
    engine_client.api.kill(mine)
    assert same(run(trial), first)
    assert mine not in ours()


def test_one_that_dies_in_every_container_is_a_crash(
    run: Callable[[Trial], TrialResult], ours: Callable[[], set[str]], engine_client: Any
) -> None:
    before = ours()
    trial = trial_of()
    run(trial)
    send = container.Container.send

    def and_die(self: container.Container, line: bytes, until: float | None) -> None:
        engine_client.api.kill(self.id)
        send(self, line, until)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container.Container, "send", and_die)
        result = run(trial)
    assert result.status is Status.crashed
    assert "137" in result.error and result.error.endswith(", twice")
    assert ours() == before
    assert run(trial).status is Status.success


def test_what_takes_too_much_memory_is_told_the_limit(
    ours: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ours()
    hog = "kept = []\nwhile True:\n    kept.append(b'x' * (1 << 24))"
    monkeypatch.setattr(contained, "SERVE", ("python", "-c", hog))
    small = EngineRunner(Isolation(image=default_image(), memory_gib=0.25))
    result = small(trial_of())
    assert result.status is Status.crashed
    assert result.error == "its container ran out of memory: --memory allows 0.25 GiB"  # not twice
    assert ours() == before


def test_past_its_deadline_it_is_killed(
    run: Callable[[Trial], TrialResult], ours: Callable[[], set[str]], engine_client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before = ours()
    trial = trial_of(deadline=0.5)
    run(trial)
    (mine,) = ours() - before
    monkeypatch.setattr(contained, "GRACE_SECONDS", 0.4)
    engine_client.api.pause(mine)
    result = run(trial)
    assert result.status is Status.timeout and "killed" in result.error
    assert ours() == before


def test_a_damaged_stream_is_made_again(run: Callable[[Trial], TrialResult]) -> None:
    trial = trial_of("gups")
    first = run(trial)
    path = streams.path_of(trial.stream)
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(found.st_size // 2)
        byte = file.read(1)
        file.seek(found.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    contained._discard_all()  # a new one reads it
    assert same(run(trial), first)
    streams.verify(path)


WORKER = """
import sys
from tuner.run.contained import EngineRunner
from tuner.run.isolation import Isolation
from tuner.run.trial import Trial
run = EngineRunner(Isolation(image=sys.argv[1]))
print(run(Trial.model_validate_json(sys.stdin.readline())).status, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def worker(isolation: Isolation) -> Iterator[subprocess.Popen[str]]:
    """A process with a warm container."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, isolation.image],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(trial_of().model_dump_json() + "\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "success"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_killed_worker_leaves_no_container(
    worker: subprocess.Popen[str],
    ours: Callable[[], set[str]],
    all_gone: Callable[[set[str]], bool],
) -> None:
    left = ours()
    assert len(left) == 1
    os.killpg(worker.pid, signal.SIGKILL)
    assert all_gone(left)


def test_a_killed_driver_leaves_no_container(
    tmp_path: Path, ours: Callable[[], set[str]], all_gone: Callable[[set[str]], bool]
) -> None:
    """Its workers are ended by the guard of their Ray instance, and are then gone from the guards
    of their containers as well."""
    before = ours()
    words = ["run", "--workload", "gups", "--input", "smoke", "--budget", "500", "--no-explain"]
    words += ["--runner", "container", "--workers", "2", "--out", str(tmp_path)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert driver.stderr is not None
    try:
        # Two have run on each of two workers, or nearly so.
        assert any(line.split()[:2] == ["trial", "3"] for line in driver.stderr)
        left = ours() - before
        assert len(left) == 2
    finally:
        driver.kill()
        driver.wait()
        driver.stderr.close()
    assert all_gone(left)


def guard_of(worker: int) -> int:
    """The guard is no child of its worker, but reads from its pipe."""
    pipes = {str(end.readlink()) for end in Path(f"/proc/{worker}/fd").iterdir()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (worker, os.getpid()):
            with contextlib.suppress(OSError):
                reads = str((entry / "fd/0").readlink())
                if reads.startswith("pipe:") and reads in pipes:
                    return int(entry.name)
    raise AssertionError("no guard")


def test_what_worker_and_guard_have_left_goes_with_the_next_worker(
    worker: subprocess.Popen[str],
    run: Callable[[Trial], TrialResult],
    ours: Callable[[], set[str]],
    engine_client: Any,
) -> None:
    left = ours()
    host = container.owner().split()[0]
    foreign = engine_client.containers.create(
        default_image(), labels={container.LABEL: f"not-{host} x 1 1"}
    )
    living = engine_client.containers.create(
        default_image(), labels={container.LABEL: container.owner()}
    )
    try:
        os.kill(guard_of(worker.pid), signal.SIGKILL)
        worker.kill()
        worker.wait()
        # With its standard input at an end, the server in it ends; what is left is its remains.
        assert left <= ours()
        run(trial_of())
        assert not left & ours()
        assert {foreign.id, living.id} <= ours()
    finally:
        foreign.remove()
        living.remove()


def test_a_simulation_is_the_same_in_a_container(ours: Callable[[], set[str]]) -> None:
    before = ours()
    found = []
    for words in ((), ("--runner", "container")):
        command = [sys.executable, "-m", "tuner", "sim", "--workload", "gups", "--input", "smoke"]
        done = subprocess.run(
            [*command, "--json", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout) | {"seconds": 0})
    assert found[0] == found[1]
    assert ours() == before


def test_a_study_is_the_same_in_containers(
    tmp_path: Path, ours: Callable[[], set[str]], all_gone: Callable[[set[str]], bool]
) -> None:
    before = ours()
    logs = []
    for name, words in (("plain", ()), ("contained", ("--runner", "container"))):
        command = [
            *(sys.executable, "-m", "tuner", "run", "--workload", "cachelib", "--input", "smoke"),
            *(
                "--budget",
                "4",
                "--no-explain",
                "--workers",
                "2",
                "--out",
                str(tmp_path),
                "--name",
                name,
                "--json",
            ),
            *words,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["trials"], summary["failed"]) == (4, 0)
        results = {}
        for line in (tmp_path / name / "trials.jsonl").read_text().splitlines():
            result = json.loads(line).get("result")
            if result is not None:
                results[result["number"]] = (result["objective"], result["metrics"])
        logs.append(results)
    assert logs[0] == logs[1]
    left = ours() - before  # a worker that was killed at the end has a guard
    assert not left or all_gone(left)


def test_an_image_is_asked_for_its_engine(
    isolation: Isolation, ours: Callable[[], set[str]]
) -> None:
    before = ours()
    assert contained.build_of(isolation) == engine.results_id()
    assert ours() <= before
