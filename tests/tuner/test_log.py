"""The study's log: durable, readable after a kill at any byte, one writer, honest about trouble."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import python_path, started
from synthetic import answer, request

from tuner.errors import UserError
from tuner.run.trial import Status
from tuner.study import log
from tuner.study.log import StudyHeader, StudyLog


def header(out: Path) -> StudyHeader:
    wanted = request(out)
    return StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream=wanted.stream().key, lag=1, initial=2,
    )  # fmt: skip


def filled(directory: Path) -> Path:
    """A study with two finished trials and one that was asked for."""
    with StudyLog(directory, header(directory.parent)) as study:
        for number in range(2):
            study.asked(number, "initial", {"period": number + 1})
            study.finished(answer(study.data.header.request.trial(number, {"period": number + 1})))
        study.asked(2, "model", {"period": 77})
    return directory


def test_everything_comes_back(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    data = log.load(directory)
    assert data.header == header(tmp_path).model_copy(update={"created": data.header.created})
    assert [t.number for t in data.trials] == [0, 1, 2]
    assert [t.knobs["period"] for t in data.trials] == [1, 2, 77]
    assert [t.origin for t in data.trials] == ["initial", "initial", "model"]
    assert len(data.done) == 2
    expected = answer(data.header.request.trial(1, {"period": 2}))
    assert data.trials[1].result == expected.model_copy(update={"series": {}})
    assert data.series(1) == expected.series
    assert data.series(2) == {}
    assert data.trials[2].result is None


def test_torn_last_line_at_any_byte_loses_only_that_event(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    content = (directory / log.EVENTS).read_bytes()
    whole = content.splitlines(keepends=True)
    for cut in range(len(content) + 1):
        kept = content[:cut]
        (directory / log.EVENTS).write_bytes(kept)
        complete = kept.count(b"\n")
        asked = sum(b'"event":"asked"' in line for line in whole[:complete])
        data = log.load(directory)
        assert len(data.trials) == asked
        assert len(data.done) == complete - asked
    (directory / log.EVENTS).write_bytes(content[:-10])
    with StudyLog(directory) as study:
        assert len(study.data.trials) == 2
        study.asked(2, "model", {"period": 78})
    assert (directory / log.EVENTS).read_bytes().count(b"\n") == 5
    assert log.load(directory).trials[2].knobs == {"period": 78}


@pytest.mark.parametrize(
    "line", [b"{}", b"garbage", b'{"event":"asked"}', b'{"event":"other","number":0}', b"[1]"]
)
def test_damage_in_the_middle_is_named_not_skipped(tmp_path: Path, line: bytes) -> None:
    directory = filled(tmp_path / "s")
    lines = (directory / log.EVENTS).read_bytes().splitlines()
    lines[2] = line
    (directory / log.EVENTS).write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"trials\.jsonl, line 3"):
        log.load(directory)


def test_a_trial_cannot_finish_twice(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    lines = (directory / log.EVENTS).read_bytes().splitlines()
    (directory / log.EVENTS).write_bytes(b"\n".join([*lines, lines[1]]) + b"\n")
    with pytest.raises(UserError, match="trial 0 finished twice"):
        log.load(directory)


def test_only_one_writer(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    with StudyLog(directory), pytest.raises(UserError, match=f"pid {os.getpid()}"):
        StudyLog(directory)
    with StudyLog(directory):  # and again once it is closed
        pass


def test_lock_of_a_killed_writer_is_free(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    code = (
        "import signal, sys; from pathlib import Path; from tuner.study.log import StudyLog\n"
        "study = StudyLog(Path(sys.argv[1])); print('locked', flush=True); signal.pause()"
    )
    environment = os.environ | {"PYTHONPATH": python_path(*sys.path)}
    with started(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match=f"pid {owner.pid}"):
            StudyLog(directory)
        owner.kill()
        owner.wait()
        with StudyLog(directory):
            pass


def test_creating_over_a_study_is_refused(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    with pytest.raises(UserError, match="already exists"):
        StudyLog(directory, header(tmp_path))


def test_missing_and_foreign_studies_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study in"):
        log.load(tmp_path)
    directory = filled(tmp_path / "s")
    path = directory / log.HEADER
    path.write_text(path.read_text().replace('"format": 3', '"format": 99'))
    with pytest.raises(UserError, match="format 99, this version reads 2 and 3"):
        log.load(directory)
    path.write_text('{"format": 1}')
    with pytest.raises(UserError, match=r"format 1 \(of tiertune 0\.1\.0\), .* --name"):
        StudyLog(directory)
    path.write_text("[]")
    with pytest.raises(UserError, match="format None"):
        log.load(directory)
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        log.load(directory)


def test_full_disk_is_a_clear_error_and_leaves_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = filled(tmp_path / "s")
    with StudyLog(directory) as study:
        before = (directory / log.EVENTS).read_bytes()
        trial = study.data.header.request.trial(2, {"period": 77})
        with monkeypatch.context() as patch:

            def full(descriptor: int) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patch.setattr(os, "fsync", full)
            with pytest.raises(UserError, match=r"disk is full.*--resume"):
                study.finished(answer(trial).model_copy(update={"series": {}}))
        assert (directory / log.EVENTS).read_bytes() == before
        study.finished(answer(trial))  # room again: the same writer goes on
    assert len(log.load(directory).done) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_device_is_reported_like_a_full_disk(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    with StudyLog(directory) as study:
        study._file.close()
        study._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, PTH123
        with pytest.raises((UserError, OSError)):
            study.asked(3, "model", {"period": 1})
        assert len(study.data.trials) == 3


def test_checks_are_kept_without_their_series(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    before = (directory / log.EVENTS).read_bytes()
    with StudyLog(directory) as study:
        trial = study.data.header.request.trial(1_000_000, {"period": 3})
        study.checked("held-out default", trial.scenario, trial.knobs, answer(trial))
    (check,) = log.load(directory).checks
    assert check.purpose == "held-out default"
    assert (check.scenario, check.knobs) == (trial.scenario, trial.knobs)
    assert check.result == answer(trial).model_copy(update={"series": {}})
    content = (directory / log.EVENTS).read_bytes()
    (directory / log.EVENTS).write_bytes(content[:-5])
    with StudyLog(directory) as study:  # torn: as if it had not run
        assert study.data.checks == []
    assert (directory / log.EVENTS).read_bytes() == before


def test_a_study_of_the_format_before_is_read(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    path = directory / log.HEADER
    content = json.loads(path.read_text()) | {"format": 2}
    for name in ("references", "alternatives", "explain", "held_out_streams"):
        del content["request"][name]
    path.write_text(json.dumps(content))
    with StudyLog(directory) as study:
        assert len(study.data.done) == 2
        assert study.data.header.request.references == []


def test_failed_result_keeps_its_error(tmp_path: Path) -> None:
    with StudyLog(tmp_path / "s", header(tmp_path)) as study:
        study.asked(0, "default", {"period": 1})
        result = answer(study.data.header.request.trial(0, {})).model_copy(
            update={"status": Status.crashed, "objective": None, "cost": None, "error": "SIGSEGV"}
        )
        study.finished(result)
    trial = log.load(tmp_path / "s").trials[0]
    assert trial.result is not None
    assert (trial.result.status, trial.result.error) == (Status.crashed, "SIGSEGV")
    assert not trial.succeeded
