# SPDX-License-Identifier: MIT
"""Folders, archives and caches that somebody else has made: reading them ends, in bounded memory,
with one message that names the file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative, python_path
from synthetic import answer, request
from test_archive import everything, members
from test_streams import request_of

from tuner import engine
from tuner.addresses import redacted, stored
from tuner.errors import UserError
from tuner.model import Model
from tuner.report import archive
from tuner.run import cache, streams
from tuner.run.trial import TrialResult
from tuner.study import best, check, events, lock, log, moved, public
from tuner.study.log import StudyHeader, StudyLog

NAME = "synthetic-study"


def study_in(out: Path, trials: int = 2) -> Path:
    wanted = request(out, budget=trials)
    header = StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream=wanted.stream().key, lag=1, initial=2,
    )  # fmt: skip
    with StudyLog(out / NAME, header) as study:
        for number in range(trials):
            study.asked(number, "initial", {"period": number + 1})
            study.finished(answer(wanted.trial(number, {"period": number + 1})))
    return out / NAME


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return study_in(tmp_path / "out")


# --- What no study has in the place of a file -----------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def secret(path: Path) -> None:
    """A link to a file of whoever reads the folder."""
    (path.parent.parent.parent / "secret").write_text("a private key")
    path.symlink_to("../../secret")


def listening(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have no more than 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("put", [pipe, endless, secret, listening])
@pytest.mark.parametrize("name", [log.HEADER, log.EVENTS, best.FILE, lock.LOCK, check.ASIDE])
def test_only_plain_files_of_a_folder_are_read(
    study: Path, name: str, put: Callable[[Path], None], run: Any, tmp_path: Path
) -> None:
    (study / name).unlink(missing_ok=True)
    put(study / name)
    outcome = run("export", str(study), "-o", str(tmp_path / "x.tar.gz"))
    assert outcome.code == 2
    assert str(study / name) in outcome.err
    assert "must be a regular file" in outcome.err
    assert not (tmp_path / "x.tar.gz").exists()
    if name in (log.HEADER, log.EVENTS):
        checked = run("check", str(study))
        assert checked.code == 1
        assert f"{study / name}: found a" in checked.out
        with pytest.raises(UserError, match="must be a regular file"):
            StudyLog(study)
    assert lock.in_use(study) is False


@pytest.mark.parametrize("put", [pipe, endless, listening, Path.mkdir])
def test_series_that_are_no_files_are_damaged_ones(
    study: Path, put: Callable[[Path], None]
) -> None:
    path = log.series_path(study, 1)
    path.unlink(missing_ok=True)
    put(path)
    data = log.load(study)
    assert data.series(1) == {}


def test_series_of_another_shape_are_damaged_ones(study: Path) -> None:
    import zlib

    content = b'["no series"]'
    log.series_path(study, 1).write_bytes(content)
    data = log.load(study)
    data.trials[1].series = zlib.crc32(content)
    assert data.series(1) == {}


def test_a_folder_that_was_moved_is_not_hung_by_its_header(study: Path) -> None:
    """best.yaml is read beside a study.json that may be anything."""
    trial = request(study.parent).trial(0, {"period": 1.0})
    (study / log.HEADER).unlink()
    os.mkfifo(study / log.HEADER)
    found = moved.scenario_in(study, trial.scenario)
    assert found == trial.scenario


# --- What would take too much ---------------------------------------------------------------------

MEASURED = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from tuner.errors import UserError
from tuner.report import archive
from tuner.study import log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = Path(sys.argv[1])
try:
    if path.is_dir():
        log.load(path)
    else:
        archive.unpack(path, Path(sys.argv[2]))
except UserError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def refusal(path: Path, out: Path) -> tuple[str, int]:
    """Why a study or an archive is refused by a process that has 2 GiB, and how many MiB it has
    taken for that."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(out)],
        env=os.environ | {"PYTHONPATH": python_path(*sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, peak = done.stdout.splitlines()
    return "\n".join(said), int(peak)


def packed(study: Path, file: Path, **contents: bytes) -> Path:
    """An archive of the study with other contents, whose sizes and checksums are right."""
    archive.pack(study, file)
    files = {name.removeprefix("study/"): content for name, content in members(file).items()}
    manifest = json.loads(files.pop("manifest.json"))
    files |= {name.replace("_", "."): content for name, content in contents.items()}
    manifest["files"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
    named = {"manifest.json": json.dumps(manifest).encode()}
    named |= {f"study/{name}": content for name, content in files.items()}
    with gzip.open(file, "wb", compresslevel=1) as tar:
        for name, content in named.items():
            head = tarfile.TarInfo(name)
            head.size = len(content)
            tar.write(head.tobuf(tarfile.USTAR_FORMAT))
            tar.write(content)
            tar.write(bytes(-len(content) % 512))
        tar.write(bytes(1024))
    return file


BOMBS = {
    "objects": (log.HEADER, b"[" + b"{}," * 2_500_000 + b"{}]", "found more than 2,000,000 values"),
    "large": (log.HEADER, b" " * (moved.LARGEST + 1), "study.json"),
    "nested": (log.HEADER, b"[" * 200_000, "found more than 64 levels inside each other"),
    "digits": (log.HEADER, b'{"format":' + b"9" * 1_000_000 + b"}", "must be an integer below"),
    "infinite": (log.HEADER, b'{"format": 1e999}', "must be a number that is not too large"),
    "twice": (log.HEADER, b'{"format": 4, "format": 4}', "the key 'format' is written twice"),
    "surrogate": (log.HEADER, rb'{"format": "\ud800"}', "found the character"),
    "no text": (log.HEADER, b'{"format": "\xff"}', "study.json"),
    "lines": (log.EVENTS, b"a\n" * 2_000_000, f"found more than {events.MOST_LINES:,} lines"),
    "a line": (log.EVENTS, b"a" * (events.LONGEST_LINE + 1), "bytes in a line"),
    "values": (
        log.EVENTS,
        b"\n" + (b"{}," * 1_000_000 + b"\n") * 11,
        f"found more than {events.MOST_VALUES:,} values",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_in_little_memory(study: Path, tmp_path: Path, kind: str) -> None:
    name, content, said = BOMBS[kind]
    file = packed(study, tmp_path / "s.tar.gz", **{name.replace(".", "_"): content})
    why, peak = refusal(file, tmp_path / "new")
    assert said in why
    assert str(file) in why
    assert not (tmp_path / "new").exists()
    assert peak < 250, peak
    (study / name).write_bytes(content)
    why, peak = refusal(study, tmp_path)
    assert said in why
    assert peak < 250, peak


def test_damaged_lines_are_counted_and_not_all_told(study: Path) -> None:
    with (study / log.EVENTS).open("ab") as file:
        file.write(b"a\n" * (log.MOST_DAMAGE + 5))
    data = log.load(study)
    assert len(data.done) == 2
    assert len(data.left_out) == log.MOST_DAMAGE + 5
    assert len(data.damage) == log.MOST_DAMAGE + 1
    assert data.damage[-1].endswith("and 5 more like these")


def test_a_trial_far_beyond_any_budget_is_left_out(study: Path) -> None:
    _, key = log.read_header(study)
    event = events.Asked.model_construct(
        event="asked", time=log.now(), number=10**12, origin="x", knobs={}
    )
    with (study / log.EVENTS).open("ab") as file:
        file.write(events.seal(event, key))
    data = log.load(study)
    assert data.asked == 2
    assert len(data.left_out) == 1


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("scenario", "input"), "other", "the workload has no input 'other'"),
        (("workload", "kernel"), None, "neither a kernel nor a recording"),
        (("policy", "traits"), {}, "policy paper: page_bytes must be an integer"),
        (("references", 0, "traits", "page_bytes"), "4096", "page_bytes must be an integer"),
        (("budget",), 10**9, "Input should be less than or equal to 100000"),
    ],
)
def test_a_header_that_contradicts_itself_is_damaged(
    study: Path, place: tuple[str | int, ...], value: Any, said: str, run: Any, tmp_path: Path
) -> None:
    content = json.loads((study / log.HEADER).read_text())
    inner = content["request"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (study / log.HEADER).write_text(json.dumps(content))
    outcome = run("export", str(study), "-o", str(tmp_path / "x.tar.gz"))
    assert outcome.code == 2
    assert "study.json is damaged" in outcome.err
    assert said in outcome.err


# --- What is made from the log --------------------------------------------------------------------


@pytest.mark.slow
def test_report_and_best_of_an_archive_are_made_again(
    study: Path, tmp_path: Path, run: Any
) -> None:
    file = packed(
        study,
        tmp_path / "s.tar.gz",
        report_html=b"<script>alert(1)</script>",
        best_yaml=b"knobs: {period: 666}\n",
    )
    outcome = run("unpack", str(file), "--out", str(tmp_path / "new"))
    place = tmp_path / "new" / NAME
    assert outcome.code == 0, outcome.err
    assert "not in its log, and left out: report.html" in outcome.err
    assert b"alert" not in b"".join(c or b"" for c in everything(tmp_path / "new").values())
    best_trial = log.load(place).best
    assert best_trial is not None
    assert best.read(place / best.FILE).provenance.trial == best_trial.number
    assert run("check", str(place)).code == 0


# --- Passwords ------------------------------------------------------------------------------------

WITH_PASSWORD = [
    "http://me:hunter2@host:5000",
    "https://hunter2@host",
    "postgresql://me:hunter2@host/db",
    "postgresql://me:hun/ter2@host/db",
    "postgresql://host/db?user=me&password=hunter2",
    "mssql+pyodbc://?odbc_connect=DRIVER%3DX%3BPWD%3Dhunter2",
]


@pytest.mark.parametrize("uri", WITH_PASSWORD)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "--workload", "cachelib"],
        ["compare", "--workloads", "cachelib"],
        ["unpack", "file"],
        *(["repair"], ["ui"], ["doctor"]),
    ],
    ids=lambda words: words[0],
)
def test_a_password_is_refused_and_not_shown(
    uri: str, words: list[str], fake: FakeNative, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words, "--mlflow-uri", uri)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert "argument --mlflow-uri: holds a login or password" in said.err
    for way in ("MLFLOW_TRACKING_PASSWORD", ".mlflow/credentials", "PGPASSWORD"):
        assert way in said.err
    assert "ter2" not in said.err + said.out


def test_a_cluster_has_no_password_either(fake: FakeNative, capsys: Any, run: Any) -> None:
    with pytest.raises(SystemExit):
        run("run", "--workload", "cachelib", "--ray-address", "ray://me:hunter2@head:10001")
    assert "--ray-address: holds a login or password" in capsys.readouterr().err


@pytest.mark.parametrize(
    "uri",
    [
        "http://host:5000",
        "http://host:5000/a@b",
        "http://host/a:b@c",
        "postgresql+psycopg2://mlflow@database/postgres",
        "sqlite:////tmp/a:b@c/mlflow.db",
        "databricks://profile",
        "head:6379",
    ],
)
def test_other_addresses_stay_as_they_are(uri: str) -> None:
    assert redacted(uri) == stored(uri) == uri


@pytest.mark.parametrize("uri", WITH_PASSWORD)
def test_an_earlier_study_shows_no_password(
    study: Path, tmp_path: Path, run: Any, uri: str
) -> None:
    header, old = (study / log.HEADER), events.header_hash((study / log.HEADER).read_bytes())
    content = json.loads(header.read_text())
    content["request"]["mlflow_uri"] = uri
    header.write_text(json.dumps(content))
    new = events.header_hash(header.read_bytes())
    lines = (study / log.EVENTS).read_bytes().splitlines(keepends=True)
    lines = [events.resealed(line, old, new) for line in lines]
    (study / log.EVENTS).write_bytes(b"".join(lines) + b"damaged\n")
    assert public.held(study) == ["mlflow_uri"]
    data = log.load(study)
    assert len(data.done) == 2
    assert "ter2" not in (data.header.request.mlflow_uri or "")
    file = tmp_path / "s.tar.gz"
    outcome = run("export", str(study), "-o", str(file))
    assert outcome.code == 0
    assert "holds a password in mlflow_uri; it is left out of the file" in outcome.err
    assert all(b"ter2" not in content for content in members(file).values())
    assert "mlflow_uri holds a password" in run("check", str(study)).out
    place, _ = archive.unpack(file, tmp_path / "new")
    assert public.held(place) == []
    assert [t.knobs for t in log.load(place).done] == [t.knobs for t in data.done]


# --- Caches ---------------------------------------------------------------------------------------


def content(made: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(made)

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def instead(put: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        put(path)

    return damage


def full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


DAMAGED: dict[str, Callable[[Path], None]] = {
    "no object": content(b"[1, 2]"),
    "a number": content(b"7"),
    "null": content(b"null"),
    "no text": content(b'{"a": "\xff\xfe"}'),
    "cut": cut,
    "empty": content(b""),
    "nested": content(b"[" * 200_000),
    "huge": content(b" " * (cache.LARGEST + 1)),
    "a pipe": instead(pipe),
    "endless": instead(endless),
    "a folder": instead(full_folder),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_result_counts_as_missing_and_is_replaced(
    fake: FakeNative, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result: Model = answer(request(Path("out")).trial(0, {}))
    cache.put("build", "name", result)
    path = cache.folder("build") / "name.json"
    DAMAGED[kind](path)
    for _ in range(2):
        assert cache.get("build", "name", TrialResult) is None
    said = capsys.readouterr().err
    assert said.count(f"{path} is damaged and counts as missing") == 1
    cache.prune("build")
    cache.put("build", "name", result)
    assert cache.get("build", "name", TrialResult) == result


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_note_is_written_again(fake: FakeNative, kind: str) -> None:
    wanted = request_of()
    streams.ensure(wanted)
    note = streams.folder() / f"{wanted.key}.json"
    DAMAGED[kind](note)
    assert streams.entries() == []
    assert streams.making_seconds(wanted) is None
    assert not streams.is_ready(wanted)
    streams.ensure(wanted)
    assert streams.is_ready(wanted)
    assert [entry.key for entry in streams.entries()] == [wanted.key]
    assert fake.recorded() == 1  # the stream itself was whole


def test_a_note_of_other_types_is_written_again(fake: FakeNative) -> None:
    wanted = request_of()
    streams.ensure(wanted)
    note = streams.folder() / f"{wanted.key}.json"
    note.write_text(json.dumps({"request": 3, "file": [], "making_seconds": "long"}))
    assert streams.making_seconds(wanted) is None
    assert streams.entries() == []
    streams.ensure(wanted)
    assert engine.stream_id(wanted.kernel) == streams.entries()[0].request.maker
