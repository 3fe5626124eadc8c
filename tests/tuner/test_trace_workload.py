# SPDX-License-Identifier: MIT
"""Recorded streams are workloads like any other, and one that is not what it was is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import python_path

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.experiment import loop as study
from tuner.run import runner, streams
from tuner.run.trial import RecordedStream, Status
from tuner.study import best as best_file
from tuner.study.request import StudyRequest

ROOT = Path(__file__).resolve().parents[2]

DOCUMENT = """\
name: trace
summary: a recording
operation: update
objective: runtime
objectives: [runtime, throughput]
footprint_gib: 0.03
scale: 2048
threads: 4
machine: skx
default_input: default
smoke_input: default
inputs:
  default:
    summary: what was recorded
    trace: stream.tts
    sampling: {sampler: pebs, probability: 0.001, samples: 52000, error_share: 0.125}
"""

SHARE = "uncertain by 0.12 of itself"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream as a recorder leaves one."""
    path = tmp_path_factory.mktemp("recorded") / "stream.tts"
    record(path, seed=0)
    return path


def record(path: Path, seed: int) -> None:
    engine.native().record(
        "gups",
        workload="gups",
        input="smoke",
        parameters={"updates_g": 1.0, "regions": 1, "block_ms": 50.0},
        scale=2048.0,
        threads=4.0,
        llc_bytes=24 << 20,
        seed=seed,
        path=str(path),
    )


@pytest.fixture
def folder(stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user, with a recording in a folder below it."""
    below = tmp_path / "of mine"
    below.mkdir()
    shutil.copy(stream, below / "stream.tts")
    (below / "trace.yaml").write_text(DOCUMENT)
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    monkeypatch.chdir(tmp_path)
    return below


def request(*more: str) -> StudyRequest:
    words = ["run", "--workload", "of mine/trace.yaml", "--out", "results", *more]
    return study_request(cli.parser_for(words).parse_args(words))


def recorded(*more: str) -> RecordedStream:
    stream = request(*more).stream()
    assert isinstance(stream, RecordedStream)
    return stream


def tune(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("trace: stream.tts", "parameters: {}", ":1: kernel: missing; a workload has a kernel, or"),
        ("trace: stream.tts", "trace: 5", ":15: inputs.default.trace: found 5; must be a text"),
        ("trace: stream.tts", "trace: none.tts", ":15: inputs.default.trace: {folder}/none.tts: "),
        (
            "trace: stream.tts",
            "trace: trace.yaml",
            ":15: inputs.default.trace: {folder}/trace.yaml: not an access stream",
        ),
        (
            "trace: stream.tts",
            "trace: stream.tts\n    parameters: {keys: 5}",
            ":16: inputs.default.parameters: belongs to a kernel, but this workload has none",
        ),
        (
            "operation: update",
            "operation: update\nkernel: gups",
            ":16: inputs.default.trace: belongs to a recording, but kernel gups makes this",
        ),
        ("scale: 2048", "scale: 1", ":7: scale: found 1; the stream's is 2048"),
        ("update\n", "get\n", ":15: inputs.default.trace: the stream has no operation 'get' (it"),
        (
            "trace: stream.tts",
            "trace: stream.tts\n    content: 00ff",
            ":16: inputs.default.content: found 00ff; the file is another: ",
        ),
        ("0.001", "1.5", ":16: inputs.default.sampling.probability: found 1.5; must be less than"),
        ("samples: 52000", "sample: 1", ":16: inputs.default.sampling.sample: unknown key; did"),
    ],
)
def test_a_wrong_document_is_told_with_its_place(
    folder: Path, old: str, new: str, expected: str
) -> None:
    assert DOCUMENT.count(old) == 1
    (folder / "trace.yaml").write_text(DOCUMENT.replace(old, new))
    with pytest.raises(UserError) as caught:
        catalog.workload(str(folder / "trace.yaml"))
    place = str(folder / "trace.yaml")
    assert place + expected.format(folder=folder) in str(caught.value)


def test_some_inputs_recorded_and_some_not_is_an_error(folder: Path) -> None:
    (folder / "trace.yaml").write_text(DOCUMENT + "  other: {summary: another}\n")
    with pytest.raises(UserError, match=r"trace.yaml:17: inputs.other.trace: missing; without a"):
        catalog.workload(str(folder / "trace.yaml"))


def test_a_recording_is_known_by_its_content(folder: Path) -> None:
    before, fingerprint = recorded(), request().fingerprints.workload
    assert before.trace == str(folder / "stream.tts")
    assert before.key == engine.stream_info(folder / "stream.tts")["identity"]
    (folder / "stream.tts").rename(folder / "moved.tts")
    (folder / "trace.yaml").write_text(DOCUMENT.replace("stream.tts", "moved.tts"))
    assert recorded().key == before.key
    assert request().fingerprints.workload == fingerprint
    record(folder / "moved.tts", seed=1)
    assert recorded().key != before.key
    assert request().fingerprints.workload != fingerprint


def test_a_recording_has_one_scale_and_no_seed(folder: Path) -> None:
    assert request("--scale", "2048").scenario.scale == 2048
    with pytest.raises(UserError, match=r"--scale: found 4; trace \(default\) is a recording of"):
        request("--scale", "4")
    with pytest.raises(UserError, match=r"--stream-seed: found 4; trace \(default\) is a"):
        request("--stream-seed", "4")


def test_a_recording_is_verified_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[Path] = []
    verify = streams.verify

    def noted(path: Path) -> None:
        verified.append(path)
        verify(path)

    monkeypatch.setattr(streams, "verify", noted)
    path = streams.ensure(recorded())
    assert path == folder / "stream.tts"
    assert streams.ensure(recorded()) == path
    assert verified == [path]
    os.utime(path, (1, 1))
    assert streams.ensure(recorded()) == path
    assert verified == [path, path]
    assert streams.entries() == []  # nothing of it is in the cache but the note
    size = streams.size()
    assert streams.clear() == (0, size)
    assert path.exists()


def damage(path: Path) -> None:
    """One bit in the middle of the blocks: the header is as it was."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def test_a_damaged_recording_fails_and_stays(folder: Path) -> None:
    stream, path = recorded(), folder / "stream.tts"
    damage(path)
    said = rf"{path}: corrupt stream: block \d+: checksum; it is a recording, and cannot be made"
    with pytest.raises(UserError, match=said):
        streams.ensure(stream)
    failed = tune("sim", "--workload", "of mine/trace.yaml", code=2)
    assert f"tune: error: {path}: corrupt stream" in failed.stderr
    assert path.exists()


def test_a_recording_that_changes_under_a_study_fails(folder: Path) -> None:
    trial = request().trial(0, {})
    assert runner.run(trial).status is Status.success
    own_note = folder / "stream.json"  # must never be taken for the cache's
    own_note.write_text("mine")
    record(folder / "stream.tts", seed=1)
    failed = runner.run(trial)
    assert failed.status is Status.failed
    assert f"{folder / 'stream.tts'}: not the recording that was asked for" in failed.error
    (folder / "stream.tts").unlink()
    failed = runner.run(trial)
    assert failed.error == (
        f"{folder / 'stream.tts'}: No such file or directory; it is a recording, and cannot be "
        "made again"
    )
    assert own_note.read_text() == "mine"


@pytest.mark.parametrize(
    ("part", "what"),
    [(0.0, "not an access stream"), (0.4, r"corrupt stream: block \d+: checksum")],
)
def test_a_recording_that_rots_under_its_note_is_told(folder: Path, part: float, what: str) -> None:
    trial, path = request().trial(0, {}), folder / "stream.tts"
    assert runner.run(trial).status is Status.success
    found = path.stat()
    content = bytearray(path.read_bytes())
    content[int(part * len(content))] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    failed = runner.run(trial)
    assert failed.status is Status.failed
    assert re.fullmatch(
        rf"{path}: {what}; it is a recording, and cannot be made again", failed.error
    )
    assert path.exists()


def test_the_resume_command_names_files(folder: Path) -> None:
    command = study.resume_command(request())
    assert f"--workload '{folder}/trace.yaml'" in command
    assert "--space" not in command
    packaged = catalog.find(catalog.Kind.space, "hybridtier").read_text()
    (folder / "few.yaml").write_text(packaged)
    command = study.resume_command(request("--space", "of mine/few.yaml"))
    assert f"--space '{folder}/few.yaml'" in command
    shutil.copy(catalog.find(catalog.Kind.machine, "skx"), folder / "skx.yaml")
    command = study.resume_command(request("--machine", "of mine/skx.yaml"))
    assert f"--machine '{folder}/skx.yaml'" in command


@pytest.mark.slow
def test_a_study_of_a_recording(folder: Path, tmp_path: Path) -> None:
    """From the first command to the replay, from wherever it is called."""
    budget = ("--budget", "2", "--workers", "1", "--out", "results")
    done = tune("run", "--workload", "of mine/trace.yaml", *budget, "--json")
    assert "trace (default) was sampled by pebs: 52,000 samples, one access in" in done.stderr
    assert SHARE in done.stderr
    summary = json.loads(done.stdout)
    assert summary["sampling"] == {
        "sampler": "pebs",
        "probability": 0.001,
        "samples": 52000,
        "error_share": 0.125,
    }
    config = summary["best_config"]
    assert SHARE in (Path(config).parent / "report.html").read_text()
    assert parameters(tmp_path)["sampling.error_share"] == "0.125"

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    replay = json.loads(tune("sim", "--config", config, "--json").stdout)
    assert replay["reproduced"] is True
    assert replay["objective"] == summary["best_objective"]
    found = tune("best", "--workload", str(folder / "trace.yaml"), "--out", "../results")
    assert "note" not in found.stderr
    assert best_file.read(Path(config)).scenario.workload == str(folder / "trace.yaml")

    other = elsewhere / "trace.yaml"  # the same name, another recording
    record(elsewhere / "stream.tts", seed=1)
    other.write_text(DOCUMENT)
    missing = tune("best", "--workload", str(other), "--out", "../results", code=2)
    assert "no configuration is known for trace" in missing.stderr

    os.chdir(tmp_path)
    record(folder / "stream.tts", seed=1)
    refused = tune("run", "--workload", "of mine/trace.yaml", *budget, "--resume", code=2)
    assert "cannot be resumed" in refused.stderr
    assert "workload.inputs.default.content: was " in refused.stderr


def parameters(folder: Path) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/results/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'tiertune-trace'")
    (parent,) = client.search_runs(
        [experiment.experiment_id], filter_string="params.workload = 'trace'"
    )
    return dict(parent.data.params)
