# SPDX-License-Identifier: MIT
"""The study's log: durable, readable after a kill at any byte, one writer, honest about trouble."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from conftest import python_path, started
from synthetic import answer, request

from tuner.errors import UserError
from tuner.run.trial import Status
from tuner.study import lock, log
from tuner.study.log import StudyData, StudyHeader, StudyLog


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


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    path = directory / log.EVENTS
    content = path.read_bytes()
    whole, known = log.load(directory), log.read_header(directory)
    *_, second, last = content.splitlines(keepends=True)
    for byte in range(len(content) - len(second) - len(last), len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[byte] ^= 1 << bit
            data = StudyData(directory, whole.header)
            log._parse(io.BytesIO(flipped), data, known[1])
            length = data.length
            for trial in data.trials:
                before = whole.trial(trial.number)
                assert before is not None
                assert (trial.knobs, trial.origin) == (before.knobs, before.origin)
                assert trial.result in (None, before.result)
            if byte < len(content) - 1:
                assert data.damage
                assert all(str(path) in line for line in data.damage)
                assert length == len(content)
            else:  # its newline: the same as a torn last line
                assert len(data.trials) == 2
                assert length == len(content) - len(last)


def lines_of(directory: Path) -> list[bytes]:
    return (directory / log.EVENTS).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "line", [b"{}", b"garbage", b'{"event":"asked"}', b'{"event":"other","number":0}', b"[1]", b""]
)
def test_a_damaged_record_is_named_and_left_out(tmp_path: Path, line: bytes) -> None:
    directory = filled(tmp_path / "s")
    lines, before = lines_of(directory), log.load(directory)
    lines[3] = line + b"\n"  # the end of trial 1
    (directory / log.EVENTS).write_bytes(b"".join(lines))
    data = log.load(directory)
    (note,) = data.damage
    assert note.startswith(f"{directory / log.EVENTS}, line 4: its checksum does not fit")
    assert [t.number for t in data.done] == [0]
    assert [t.knobs for t in data.trials] == [t.knobs for t in before.trials]
    with StudyLog(directory) as study:
        study.finished(answer(study.data.header.request.trial(1, {"period": 2})))
    assert log.load(directory).trials[1].result == before.trials[1].result
    assert lines_of(directory)[:5] == lines, "what was damaged stays for whoever wants to look"


def test_a_lost_question_leaves_a_gap(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    lines = lines_of(directory)
    (directory / log.EVENTS).write_bytes(b"".join([*lines[:2], *lines[3:]]))
    data = log.load(directory)
    assert [t.number for t in data.trials] == [0, 2]
    assert (data.asked, data.trial(1), data.best) == (3, None, data.trials[0])
    finished, gap = data.damage
    assert "line 3: trial 1 finished, but no record before asks for it" in finished
    assert "no record asks for trial 1" in gap
    with StudyLog(directory) as study:
        study.asked(1, "initial", {"period": 2})
        study.finished(answer(study.data.header.request.trial(1, {"period": 2})))
    data = log.load(directory)
    assert [t.number for t in data.done] == [0, 1]
    assert data.damage == [finished]


@pytest.mark.parametrize(
    ("line", "said"),
    [(0, "trial 0 was asked for before"), (1, "trial 0 finished before")],
)
def test_a_record_counts_once(tmp_path: Path, line: int, said: str) -> None:
    directory = filled(tmp_path / "s")
    before, lines = log.load(directory), lines_of(directory)
    (directory / log.EVENTS).write_bytes(b"".join([*lines, lines[line]]))
    data = log.load(directory)
    assert data.trials == before.trials
    (note,) = data.damage
    assert f"line 6: {said}" in note


@pytest.mark.parametrize(
    ("line", "old", "new", "named"),
    [
        (3, rb'"cost":[^,]+', b'"cost":NaN', "result.cost"),
        (3, rb'"cost":[^,]+', b'"cost":Infinity', "result.cost"),
        (3, rb'"cost":[^,]+', b'"cost":-0.5', "result.cost"),
        (3, rb'"cost":[^,]+', b'"cost":0.0', "result.cost"),
        (3, rb'"cost":[^,]+', b'"cost":null', "objective and cost"),
        (3, rb'"objective":[^,]+', b'"objective":-1.0', "result.objective"),
        (3, rb'"status":"success"', b'"status":"crashed"', "objective and cost"),
        (3, rb'"seconds":[^,]+', b'"seconds":-1.0', "result.seconds"),
        (3, rb'"seconds":[^,]+', b'"seconds":NaN', "result.seconds"),
        (3, rb'"number":1', b'"number":-1', "result.number"),
        (3, rb'"number":1', b'"number":7', "trial 7 finished, but no record"),
        (3, rb'"time":"[^"]+', b'"time":"yesterday', "time"),
        (3, rb'"time":"[^"]+', b'"time":"2026-01-02T03:04:05', "must have a time zone"),
        (4, rb'"number":2', b'"number":-1', "number"),
        (4, rb'"number":2', b'"number":2.5', "number"),
    ],
)
def test_a_value_that_cannot_be_is_left_out(
    tmp_path: Path, line: int, old: bytes, new: bytes, named: str
) -> None:
    """Also if the checksum fits: then it was written so."""
    directory = filled(tmp_path / "s")
    lines = lines_of(directory)
    body, crc = lines[line].split(b',"crc":')
    body, changes = re.subn(old, new, body)
    assert (changes, len(crc)) == (1, 12)
    lines[line] = body + b',"crc":"%08x"}\n' % zlib.crc32(body)
    (directory / log.EVENTS).write_bytes(b"".join(lines))
    data = log.load(directory)
    (note,) = data.damage
    assert f"line {line + 1}: " in note
    assert named in note
    assert "\n" not in note
    assert len(data.done) == (1 if line == 3 else 2)


def test_a_log_of_another_study_is_refused(tmp_path: Path) -> None:
    mine, other = filled(tmp_path / "s"), filled(tmp_path / "other" / "s")
    (mine / log.HEADER).write_bytes((other / log.HEADER).read_bytes())
    before = (mine / log.EVENTS).read_bytes()
    for use in (log.load, StudyLog):
        with pytest.raises(UserError, match=r"line 1: written under another study\.json .* --name"):
            use(mine)
    assert (mine / log.EVENTS).read_bytes() == before


def test_a_changed_header_is_refused(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    path = directory / log.HEADER
    text = path.read_text()
    assert text.count('"latency_ns": 250.0') == 1
    path.write_text(text.replace('"latency_ns": 250.0', '"latency_ns": 251.0'))
    with pytest.raises(UserError, match="replaced or changed"):
        StudyLog(directory)


def test_a_log_without_a_header_is_not_adopted(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    before = (directory / log.EVENTS).read_bytes()
    (directory / log.HEADER).unlink()
    for header_or_none in (header(tmp_path), None):
        with pytest.raises(UserError, match=r"log of 5 records .* no study\.json, .* --name"):
            StudyLog(directory, header_or_none)
    with pytest.raises(UserError, match=r"no study\.json"):
        log.load(directory)
    assert not log.exists(directory)
    assert (directory / log.EVENTS).read_bytes() == before


def test_a_lost_log_is_not_begun_again(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    (directory / log.EVENTS).unlink()
    for use in (log.load, StudyLog):
        with pytest.raises(UserError, match=r"finished trials but no trials\.jsonl"):
            use(directory)


def test_a_log_without_one_readable_line_is_refused(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    path = directory / log.EVENTS
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(UserError, match="none of its 5 lines can be read"):
        StudyLog(directory)


def test_damaged_series_are_none(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    path = directory / log.SERIES / "0001.json"
    content = path.read_bytes()
    assert log.load(directory).series(1)
    for changed in (content.replace(b"0.5", b"0.6"), content[:-1], b"", content + b" "):
        path.write_bytes(changed)
        assert log.load(directory).series(1) == {}
    path.unlink()
    assert log.load(directory).series(1) == {}


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


def test_missing_and_unreadable_studies_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study in"):
        log.load(tmp_path)
    directory = filled(tmp_path / "s")
    path = directory / log.HEADER
    for format in (1, 3, 99):
        path.write_text(f'{{"format": {format}}}')
        said = f"format {format}, this version reads 4; .* --name"
        for use in (log.load, StudyLog):
            with pytest.raises(UserError, match=said):
                use(directory)
    for text, said in (
        (b"[]", "an object"),
        (b'{"format": 4}', "created"),
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
    ):
        path.write_bytes(text)
        with pytest.raises(UserError, match=f"damaged; put it back .* --name .*{said}") as raised:
            log.load(directory)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [log.HEADER, log.EVENTS, lock.LOCK])
def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    directory = filled(tmp_path / "s")
    (directory / name).unlink()
    (directory / name).mkdir()
    said = "Is a directory" if name == lock.LOCK else "found a folder; must be a regular file"
    with pytest.raises(UserError, match=rf"{name}: {said}"):
        StudyLog(directory)


@pytest.mark.parametrize("name", ["n" * 300, "loop", "file"])
def test_a_place_where_no_study_can_be_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"cannot use .*{name}"):
        StudyLog(tmp_path / name / "s", header(tmp_path))


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = [
        directory / f"{log.HEADER}.{gone.pid}.partial",
        directory / log.SERIES / f"0002.json.{gone.pid}.partial",
    ]
    for path in left:
        path.touch()
    log.load(directory)
    assert all(path.exists() for path in left)
    StudyLog(directory).close()
    assert not any(path.exists() for path in left)


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
        with pytest.raises(UserError, match=r"disk is full.*--resume"):
            study.asked(3, "model", {"period": 1})
        assert len(study.data.trials) == 3


LIMITED = """
import resource, sys
from pathlib import Path
from synthetic import answer
from tuner.errors import UserError
from tuner.study.log import StudyLog
with StudyLog(Path(sys.argv[1])) as study:
    size = (Path(sys.argv[1]) / "trials.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
    result = answer(study.data.header.request.trial(2, {"period": 77}))
    try:
        study.finished(result.model_copy(update={"series": {}}))
    except UserError as error:
        print(error)
"""


def test_a_file_that_may_grow_no_more_is_a_clear_error(tmp_path: Path) -> None:
    directory = filled(tmp_path / "s")
    before = (directory / log.EVENTS).read_bytes()
    paths = {"PYTHONPATH": python_path(Path(__file__).parent, *sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(directory)],
        env=os.environ | paths, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "(`ulimit -f`); finished trials are safe" in done.stdout, done.stderr
    assert (directory / log.EVENTS).read_bytes() == before


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
