# SPDX-License-Identifier: MIT
"""run(trial): a trial's own failure is a result with a status, never an exception."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative

from tuner import engine
from tuner.run import cache, runner, settings, streams
from tuner.run.trial import RecordedStream, Status, Trial


def trial_of(**options: Any) -> Trial:
    policy = engine.policies()["toy"]
    knobs = options.pop("knobs", {})
    return settings.resolve("walker", policy=policy, study="s", **options).trial(7, knobs)


def test_a_trial_succeeds(fake: FakeNative) -> None:
    result = runner.run(trial_of(knobs={"threshold": 10}))
    assert (result.study, result.number, result.status) == ("s", 7, Status.success)
    assert result.objective == 1000.0
    assert result.cost == 1 / 1000.0
    assert result.metrics == {
        "promotions": 3.0,
        "seconds": 1.0,
        "total_seconds": 2.0,
        "operations": 1000.0,
    }
    assert result.latency["step"]["p99"] == 900.0
    assert result.series["hit_ratio"] == [0.5, 0.75]
    assert (result.engine_version, result.engine_build) == ("1.2.3", "build-1")
    assert result.error == ""


def test_the_engine_gets_what_the_trial_says(fake: FakeNative) -> None:
    seen: list[dict[str, Any]] = []
    fake.on_simulate = seen.append
    trial = trial_of(
        ratio="1:3",
        threads=4,
        page_bytes=4096,
        start="slow",
        window="last-quarter",
        seed=9,
        deadline_seconds=50,
    )
    runner.run(trial)
    (arguments,) = seen
    assert arguments["policy"] == "toy"
    assert arguments["knobs"] == trial.knobs
    assert arguments["fast_share"] == 0.25
    assert (arguments["threads"], arguments["page_bytes"], arguments["seed"]) == (4.0, 4096, 9)
    assert (arguments["start_slow"], arguments["score_after"]) == (True, 0.75)
    assert 49 < arguments["deadline_seconds"] <= 50
    assert arguments["machine"]["tiering"]["work_ns"]["scan_step"] == 30


def test_a_fixed_slow_tier_fixes_the_fast_one(fake: FakeNative) -> None:
    seen: list[dict[str, Any]] = []
    fake.on_simulate = seen.append
    runner.run(trial_of(ratio="1:8"))
    path = Path("machines/testbed.yaml")
    path.write_text(path.read_text() + "slow_gib: 512\n")
    runner.run(trial_of(ratio="1:8"))
    assert [arguments["fast_bytes"] for arguments in seen] == [0, 64 << 30]


def test_a_fast_capacity_overrides_the_ratio(fake: FakeNative) -> None:
    seen: list[dict[str, Any]] = []
    fake.on_simulate = seen.append
    path = Path("machines/testbed.yaml")
    path.write_text(path.read_text() + "slow_gib: 512\n")
    runner.run(trial_of(ratio="1:8", fast_gib=1.5))
    assert [arguments["fast_bytes"] for arguments in seen] == [3 << 29]


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (ValueError("knob x is bad"), Status.failed, "knob x is bad"),
        (RuntimeError("policy broke"), Status.failed, "policy broke"),
        (TypeError("no such thing"), Status.failed, "TypeError: no such thing"),
        (MemoryError(), Status.failed, "MemoryError: "),
        (TimeoutError(), Status.timeout, "its deadline of 5 s passed"),
    ],
)
def test_failures_are_results(
    fake: FakeNative, raised: Exception, status: Status, error: str
) -> None:
    def fail(arguments: dict[str, Any]) -> None:
        raise raised

    fake.on_simulate = fail
    result = runner.run(trial_of(deadline_seconds=5))
    assert (result.status, result.error) == (status, error)
    assert result.objective is None
    assert result.cost is None
    assert fake.recorded() == 1  # a good stream is not made again


def test_an_interrupt_gets_out(fake: FakeNative) -> None:
    def interrupt(arguments: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    fake.on_simulate = interrupt
    with pytest.raises(KeyboardInterrupt):
        runner.run(trial_of())


def test_an_objective_that_is_not_there_is_a_failure(fake: FakeNative) -> None:
    trial = trial_of(objective="p50").model_copy(update={"operation": "jump"})
    result = runner.run(trial)
    assert result.status is Status.failed
    assert result.error == "no latency of operation 'jump' (measured: step)"


def test_another_engine_refuses_the_trial(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of()
    monkeypatch.setattr(fake, "ids", lambda: {"policies": "build", "simulator": "2"})
    result = runner.run(trial)
    assert result.status is Status.failed
    assert "made for engine build build-1, but this worker has build-2" in result.error


def test_a_host_whose_kernels_make_another_stream_refuses_to_make_it(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of()
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-2")
    result = runner.run(trial)
    assert (result.status, result.host_failed) == (Status.failed, True)
    assert "kernel walk with the id maker-1, but this engine's has maker-2" in result.error
    assert fake.recorded() == 0
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-1")
    streams.ensure(trial.stream)
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-2")
    assert runner.run(trial).status is Status.success  # it is there, whoever made it


def test_what_no_trial_depends_on_changes_nothing_that_is_kept(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = engine.policies()["toy"]

    def found() -> tuple[Any, ...]:
        setting = settings.resolve("walker", policy=policy, study="s")
        trial = setting.trial(0, {})
        return setting, cache.folder(trial.engine_build), cache.key(trial), trial.stream.key

    before = found()
    own = fake.ids()
    monkeypatch.setattr(fake, "ids", lambda: own | {"whole": "with another sampler"})
    assert found() == before
    for name in ("policies", "simulator"):
        changed = own | {name: "another"}
        monkeypatch.setattr(fake, "ids", lambda changed=changed: changed)
        setting, folder, key, stream = found()
        assert setting != before[0]
        assert folder != before[1]
        assert key != before[2]
        assert stream == before[3]


def rot(path: Path) -> None:
    """Damages a stream so that its size and times stay."""
    found = path.stat()
    path.write_text("rotten" + " " * (found.st_size - 6))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("raised", [RuntimeError("checksum"), ValueError("too coarse")])
def test_a_stream_that_rots_under_its_note_is_made_again(
    fake: FakeNative, capsys: pytest.CaptureFixture[str], raised: Exception
) -> None:
    trial = trial_of()
    path = streams.ensure(trial.stream)
    rot(path)
    assert streams.ensure(trial.stream) == path
    assert fake.recorded() == 1  # the note still fits

    def fail(arguments: dict[str, Any]) -> None:
        if fake.recorded() == 1:
            raise raised

    fake.on_simulate = fail
    assert runner.run(trial).status is Status.success
    assert fake.recorded() == 2
    assert capsys.readouterr().err == f"{path}: checksum of block 0 is wrong; making it again\n"


def test_a_recording_that_rots_is_an_error_that_names_it(fake: FakeNative, tmp_path: Path) -> None:
    path = tmp_path / "mine.tts"
    path.write_text("stream of mine")
    stream = RecordedStream(workload="walker", input="big", trace=str(path), content="c0ffee")
    trial = trial_of().model_copy(update={"stream": stream})
    assert runner.run(trial).status is Status.success
    rot(path)
    result = runner.run(trial)
    assert result.status is Status.failed
    assert result.error == (
        f"{path}: checksum of block 0 is wrong; it is a recording, and cannot be made again"
    )


def test_repeats_report_the_median_run_and_the_spread(fake: FakeNative) -> None:
    seeds: list[int] = []
    fake.on_simulate = lambda arguments: seeds.append(arguments["seed"])
    told: list[float] = []
    trial = trial_of(repeats=3, seed=3, objective="runtime", knobs={"threshold": 10})
    result = runner.run(trial, progress=told.append)
    assert seeds == [3, 4, 5]
    assert told == [1 / 3, 2 / 3, 1.0]
    assert result.objective == result.metrics["seconds"] == 2.0  # of 1, 2 and 3
    assert result.metrics["repeat.count"] == 3
    assert (result.metrics["repeat.min"], result.metrics["repeat.max"]) == (1.0, 3.0)
    assert result.metrics["repeat.stdev"] == statistics.stdev([1.0, 2.0, 3.0])


def test_repeats_share_one_deadline(fake: FakeNative) -> None:
    left: list[float] = []
    fake.on_simulate = lambda arguments: left.append(arguments["deadline_seconds"])
    runner.run(trial_of(repeats=3, deadline_seconds=50))
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == 3
