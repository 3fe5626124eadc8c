# SPDX-License-Identifier: MIT
"""A study as one file: the same bytes for the same study, and only a whole study comes out."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative, python_path
from synthetic import answer, request, smooth

from tuner.errors import UserError
from tuner.experiment.loop import run_study
from tuner.report import archive
from tuner.study import best, lock, log, verified
from tuner.study.best import BestConfiguration
from tuner.study.contender import Kind
from tuner.study.log import StudyHeader, StudyLog
from tuner.study.verdict import decide
from tuner.study.verified import Candidate, Verified

HERE = Path(__file__).parent
NAME = "synthetic-study"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """With two finished trials and one that was asked for, and files of other writers."""
    wanted = request(tmp_path / "out")
    header = StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream=wanted.stream().key, lag=1, initial=2,
    )  # fmt: skip
    directory = tmp_path / "out" / NAME
    with StudyLog(directory, header) as study:
        for number in range(2):
            study.asked(number, "initial", {"period": number + 1})
            study.finished(answer(wanted.trial(number, {"period": number + 1})))
        study.asked(2, "model", {"period": 77})
    (directory / best.FILE).write_text("# not looked at\n")
    (directory / "mine.txt").write_text("a note")
    return directory


@pytest.fixture
def packed(study: Path, tmp_path: Path) -> Path:
    archive.pack(study, tmp_path / "s.tar.gz")
    return tmp_path / "s.tar.gz"


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_what_comes_out_is_what_went_in(study: Path, packed: Path, tmp_path: Path) -> None:
    new = tmp_path / "deep" / "new"
    place, manifest = archive.unpack(packed, new)
    assert place == new / NAME
    before, after = everything(study), everything(place)
    # What is made from the log is not taken.
    assert {name for name in before if name not in after} == {"mine.txt", "lock", "best.yaml"}
    assert after == {name: before[name] for name in after}
    assert [path.name for path in new.iterdir()] == [NAME]
    assert (manifest.study, manifest.trials, manifest.engine_build) == (NAME, 2, "build-a")
    with StudyLog(place) as moved:
        assert len(moved.data.done) == 2
        moved.finished(answer(moved.data.header.request.trial(2, {"period": 77})))
    assert len(log.load(study).done) == 2


def test_the_same_study_gives_the_same_bytes(study: Path, packed: Path, tmp_path: Path) -> None:
    place, _ = archive.unpack(packed, tmp_path / "new")
    for path in place.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    shutil.copy(study / best.FILE, place)
    archive.pack(place, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_any_tar_reads_it(packed: Path) -> None:
    manifest, *files = members(packed)
    assert manifest == "manifest.json"
    assert files == [
        f"study/{name}"
        for name in (
            "study.json", "trials.jsonl", "best.yaml", "series/0000.json", "series/0001.json"
        )
    ]  # fmt: skip


def test_the_front_is_in_it(study: Path, tmp_path: Path) -> None:
    """It is made again from the log where it is unpacked, as best.yaml is."""
    (study / best.FRONT).mkdir()
    for name in ("trial-0001.yaml", "trial-12345.yaml", "notes.yaml"):
        (study / best.FRONT / name).write_text("# not looked at\n")
    archive.pack(study, tmp_path / "s.tar.gz")
    names = [f"study/{best.front_file(number)}" for number in (1, 12345)]
    assert [name for name in members(tmp_path / "s.tar.gz") if best.FRONT in name] == names
    place, manifest = archive.unpack(tmp_path / "s.tar.gz", tmp_path / "new")
    assert set(manifest.files) >= {best.front_file(1), best.front_file(12345)}
    assert not (place / best.FRONT).exists()


def with_verification(folder: Path) -> Verified:
    """Gives the study a verification of which trial 1 is the winner."""
    wanted = log.load(folder).header.request
    trial = wanted.trial(1, {"period": 2})
    one: dict[str, Any] = {"policy": trial.scenario.policy, "simulated": 2.0}
    candidates = [
        Candidate(name="off", kind=Kind.off, trial=None, knobs={}, values=[3.0], **one),
        Candidate(name="own", kind=Kind.untuned, trial=0, knobs={}, values=[2.0], **one),
        Candidate(name="best", kind=Kind.tuned, trial=1, knobs=trial.knobs, values=[1.0], **one),
    ]
    verdict = decide(
        [each.contender for each in candidates],
        objective="runtime", trials=2, policy=trial.scenario.policy, seeds=[0],
    )  # fmt: skip
    found = Verified(
        study=NAME, emulated="a machine", objective="runtime", candidates=candidates, unset={},
        verdict=verdict, simulated=None, winner=1, tau=None, pairs=0,
    )  # fmt: skip
    (folder / verified.FILE).write_text(found.model_dump_json())
    kept = BestConfiguration.of(
        wanted, trial, answer(trial), default_value=2.0, date=datetime.now(UTC), git_commit=None
    )
    best.write(kept, folder / verified.BEST)
    (folder / verified.PICTURE).write_bytes(b"not looked at")
    return found


def test_a_verification_comes_along(study: Path, tmp_path: Path) -> None:
    found = with_verification(study)
    archive.pack(study, tmp_path / "s.tar.gz")
    assert f"study/{verified.PICTURE}" in members(tmp_path / "s.tar.gz")
    place, _ = archive.unpack(tmp_path / "s.tar.gz", tmp_path / "new")
    assert verified.read(place) == found
    assert best.read(place / verified.BEST).knobs == found.candidates[2].knobs
    assert not (place / verified.PICTURE).exists()  # it is drawn again


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        (verified.FILE, f'"study":"{NAME}"', '"study":"another"', "must be synthetic-study"),
        (verified.FILE, '"pairs":0', '"pairs":"x"', "pairs"),
        (verified.FILE, '"winner":1', '"winner":null', "other knobs than the winner"),
        (verified.BEST, "period: 2", "period: 3", "other knobs than the winner"),
        (verified.BEST, "trial: 1", "trial: 0", "other knobs than the winner"),
    ],
)
def test_a_verification_that_contradicts_itself_is_refused(
    study: Path, tmp_path: Path, file: str, before: str, after: str, message: str
) -> None:
    with_verification(study)
    text = (study / file).read_text()
    assert before in text
    (study / file).write_text(text.replace(before, after))
    archive.pack(study, tmp_path / "s.tar.gz")
    with pytest.raises(UserError, match=message) as told:
        archive.unpack(tmp_path / "s.tar.gz", tmp_path / "new")
    assert str(tmp_path / "new") not in str(told.value)
    assert not (tmp_path / "new").exists()


def test_an_unfinished_line_is_left_out(study: Path, packed: Path, tmp_path: Path) -> None:
    with (study / log.EVENTS).open("ab") as file:
        file.write(b'{"event":"ask')
    archive.pack(study, tmp_path / "torn.tar.gz")
    assert (tmp_path / "torn.tar.gz").read_bytes() == packed.read_bytes()


def test_documents_of_ones_own_are_named(study: Path, packed: Path) -> None:
    manifest = json.loads(members(packed)["manifest.json"])
    assert manifest["not_included"] == [
        "workload synthetic",
        "machine paper-machine",
        "space paper",
    ]


def test_a_study_that_is_written_is_refused(study: Path, tmp_path: Path, run: Any) -> None:
    with StudyLog(study):
        outcome = run("export", str(study), "-o", str(tmp_path / "x.tar.gz"))
    assert outcome.code == 2
    assert f"a process is working on the study in {study}" in outcome.err
    assert not (tmp_path / "x.tar.gz").exists()


def test_nobody_writes_a_study_while_it_is_exported(study: Path) -> None:
    with lock.undisturbed(study), pytest.raises(UserError, match="is working on the study"):
        StudyLog(study)


def test_the_command_says_what_it_wrote(
    study: Path, packed: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("export", NAME, "--out", "out", "--json")
    assert outcome.code == 0
    file = tmp_path / f"{NAME}.tar.gz"
    assert file.read_bytes() == packed.read_bytes()
    assert outcome.json["file"] == str(file)
    assert outcome.json["bytes"] == file.stat().st_size
    assert outcome.json["files"][:2] == ["study.json", "trials.jsonl"]
    assert "not included, and needed to resume the study: machine paper-machine" in outcome.err
    again = run("export", NAME, "--out", "out")
    assert (again.code, "replace it with --force" in again.err) == (2, True)
    assert run("export", NAME, "--out", "out", "--force").out.startswith(f"{NAME}.tar.gz: ")


@pytest.mark.parametrize("name", ["none", "a b", "there/none"])
def test_a_study_that_is_not_there_is_refused(tmp_path: Path, run: Any, name: str) -> None:
    outcome = run("export", name, "--out", str(tmp_path))
    assert (outcome.code, outcome.out) == (2, "")
    assert list(tmp_path.iterdir()) == []


# --- What is refused ------------------------------------------------------------------------------


def refused(file: Path, out: Path) -> str:
    """Why; nothing may be left behind."""
    before = everything(out.parent)
    with pytest.raises(UserError) as error:
        archive.unpack(file, out)
    assert everything(out.parent) == before
    assert error.value.code == 2
    said = str(error.value)
    assert str(file) in said
    assert "\n" not in said
    return said


def test_a_study_that_exists_is_not_replaced(study: Path, packed: Path) -> None:
    said = refused(packed, study.parent)
    assert f"{study} exists, and {packed} has a study of that name" in said


def test_every_truncation_is_refused(packed: Path, tmp_path: Path) -> None:
    content = packed.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for length in {*range(0, len(content), 97), len(content) - 1, len(content) - 9}:
        cut.write_bytes(content[:length])
        refused(cut, tmp_path / "new")


def test_every_flipped_byte_is_refused_or_harmless(packed: Path, tmp_path: Path) -> None:
    """Harmless are those of gzip's head: time, flags of the compressor, system. And, now and then,
    one that copies the same bytes from another place."""
    archive.unpack(packed, tmp_path / "whole")
    whole = everything(tmp_path / "whole")
    content = bytearray(packed.read_bytes())
    bad, new = tmp_path / "bad.tar.gz", tmp_path / "new"
    harmless = 0
    for position in (
        *range(4),
        *range(10, len(content), 61),
        *range(len(content) - 8, len(content)),
    ):
        flipped = content.copy()
        flipped[position] ^= 0x10
        bad.write_bytes(flipped)
        if gzipped(flipped) == gzipped(content):
            harmless += 1
            archive.unpack(bad, new)
            assert everything(new) == whole
            shutil.rmtree(new)
        else:
            refused(bad, new)
    assert harmless < 5


def gzipped(content: bytes | bytearray) -> bytes | None:
    """What the compressed bytes are of, if they are whole."""
    try:
        return gzip.decompress(bytes(content))
    except (OSError, EOFError, zlib.error):
        return None


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"text\n" * 400, gzip.compress(b"text\n" * 400), gzip.compress(b"")):
        (tmp_path / "file").write_bytes(content)
        refused(tmp_path / "file", tmp_path / "new")
    assert "no such file" in refused(tmp_path / "none", tmp_path / "new")
    assert "not a file" in refused(tmp_path, tmp_path / "new")


def rebuilt(packed: Path, change: Callable[[dict[str, Any], list[tarfile.TarInfo]], None]) -> Path:
    """The archive with another manifest, or other heads of its files."""
    contents = members(packed)
    manifest = json.loads(contents["manifest.json"])
    with tarfile.open(packed) as tar:
        heads = tar.getmembers()
    held = {id(head): contents[head.name] for head in heads}
    change(manifest, heads)
    made = packed.with_name("made.tar.gz")
    with gzip.open(made, "wb") as tar:
        for head in heads:
            content = held.get(id(head), b"")
            if head.name == "manifest.json":
                content = json.dumps(manifest).encode()
                head.size = len(content)
            tar.write(head.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
        tar.write(bytes(1024))
    return made


def renamed(name: str) -> Callable[[dict[str, Any], list[tarfile.TarInfo]], None]:
    def change(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
        files = manifest["files"]
        manifest["files"] = {name if n == "best.yaml" else n: e for n, e in files.items()}
        heads[3].name = f"study/{name}"

    return change


def typed(kind: bytes) -> Callable[[dict[str, Any], list[tarfile.TarInfo]], None]:
    def change(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
        heads[3].type, heads[3].linkname = kind, "/etc/passwd"

    return change


def twice(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    heads.insert(3, heads[2])


def one_more(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    heads.append(tarfile.TarInfo("study/more"))


def one_less(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    heads.pop()


def other_order(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    heads[2], heads[3] = heads[3], heads[2]


def of(**fields: Any) -> Callable[[dict[str, Any], list[tarfile.TarInfo]], None]:
    def change(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
        manifest |= fields

    return change


def huge(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    manifest["files"]["best.yaml"]["bytes"] = archive.LARGEST + 1


def huge_together(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    entry = {"bytes": log.LARGEST_SERIES, "sha256": "0" * 64}
    manifest["files"] |= {f"series/{number:04d}.json": entry for number in range(129)}


def huge_header(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    manifest["files"]["study.json"]["bytes"] = 198_000_000


def nested(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    manifest["not_included"] = deep


def many_values(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    manifest["not_included"] = [""] * archive.MOST_VALUES


def no_header(manifest: dict[str, Any], heads: list[tarfile.TarInfo]) -> None:
    del manifest["files"]["study.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed("../../evil"), "which is no file of a study"),
        (renamed("/etc/evil"), "which is no file of a study"),
        (renamed("series/../../evil"), "which is no file of a study"),
        (renamed("lock"), "which is no file of a study"),
        (typed(tarfile.SYMTYPE), "is not a plain file"),
        (typed(tarfile.LNKTYPE), "is not a plain file"),
        (typed(tarfile.DIRTYPE), "is not a plain file"),
        (typed(tarfile.FIFOTYPE), "is not a plain file"),
        (typed(tarfile.CHRTYPE), "is not a plain file"),
        (twice, "must come next"),
        (one_more, "there is more in it than manifest.json says"),
        (one_less, "damaged, or no archive of `tune export`"),
        (other_order, "must come next"),
        (huge, "files.best.yaml.bytes: Input should be less than or equal to"),
        (huge_together, "may hold at most 4.0 GiB"),
        (huge_header, "study.json has 188.8 MiB; may have at most 7.6 MiB"),
        (nested, "manifest.json: Invalid JSON: recursion limit exceeded"),
        (many_values, "manifest.json: found up to 1,000,0"),
        (renamed("STUDY.JSON"), "which is no file of a study"),
        (renamed("series/0000\0.json"), "which is no file of a study"),
        (renamed("\x1b]0;title\x07"), r"found '\x1b]0;title\x07', which is no file of a study"),
        (typed(tarfile.GNUTYPE_SPARSE), "is not a plain file"),
        (typed(tarfile.XHDTYPE), "is not a plain file"),
        (no_header, "has no study.json"),
        (of(study="../evil"), "manifest.json: study: "),
        (of(study="other"), "are of another study than manifest.json"),
        (of(engine_build="other"), "are of another study than manifest.json"),
        (of(format=2), "format 2; this version reads 1"),
        (of(surprise=1), "manifest.json: surprise: "),
    ],
)
def test_what_no_export_makes_is_refused(
    packed: Path, tmp_path: Path, change: Any, said: str
) -> None:
    assert said in refused(rebuilt(packed, change), tmp_path / "new")


def test_a_bomb_is_refused_unread(packed: Path, tmp_path: Path) -> None:
    head = tarfile.TarInfo("manifest.json")
    head.size = 1 << 40
    bomb = tmp_path / "bomb.tar.gz"
    bomb.write_bytes(gzip.compress(head.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    assert "must begin with manifest.json of at most 32.0 MiB" in refused(bomb, tmp_path / "new")


def test_a_log_of_another_header_is_refused(study: Path, tmp_path: Path) -> None:
    (study / log.HEADER).write_text((study / log.HEADER).read_text() + "\n")
    with pytest.raises(UserError, match=r"written under another study\.json"):
        archive.pack(study, tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from tuner.report import archive

left, fsync = int(sys.argv[3]), os.fsync

def mortal(descriptor):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)

os.fsync = mortal
archive.unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_kill_at_any_write_leaves_no_half_study(packed: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    environment = os.environ | {"PYTHONPATH": python_path(*sys.path)}
    for write in range(1, 8):
        words = [sys.executable, "-c", KILLED, str(packed), str(out), str(write)]
        died = subprocess.run(words, env=environment, check=False)
        studies = list(out.glob("*/study.json"))
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL
        if write < 7:
            assert studies == []
    archive_place = out / NAME
    if not archive_place.exists():
        archive.unpack(packed, out)
    assert len(log.load(archive_place).done) == 2


def test_what_killed_ones_left_goes(packed: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / "new" / f".{NAME}.{ended.pid}.partial" / "study"
    left.mkdir(parents=True)
    (left / "study.json").touch()
    archive.unpack(packed, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [NAME]


# --- With MLflow ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unpacked_study_is_tracked_and_goes_on(tmp_path: Path, run: Any) -> None:
    run_study(request(tmp_path / "old", budget=2, explain=False), runner=smooth)
    file = tmp_path / "s.tar.gz"
    assert run("export", NAME, "--out", str(tmp_path / "old"), "-o", str(file)).code == 0
    new = tmp_path / "new"
    outcome = run("unpack", str(file), "--out", str(new), "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["path"] == str(new / NAME)
    assert outcome.json["trials"] == 2
    assert "2 of them added; complete" in outcome.err
    assert "its trials are of engine build build-a" in outcome.err
    for words in (["check", str(new / NAME)], ["check", str(new)]):
        assert run(*words).code == 0
    wanted = request(new, budget=3, explain=False, resume=True)
    assert run_study(wanted, runner=smooth).trials == 3
    again = run("unpack", str(file), "--out", str(new), "--json")
    assert again.code == 2
    assert "exists" in again.json["error"]["message"]


@pytest.mark.slow
def test_a_store_that_does_not_take_it_is_an_error_of_its_own(
    study: Path, packed: Path, tmp_path: Path, run: Any
) -> None:
    (tmp_path / "taken").write_text("no folder")
    uri = f"sqlite:///{tmp_path}/taken/mlflow.db"
    outcome = run("unpack", str(packed), "--out", str(tmp_path / "new"), "--mlflow-uri", uri)
    assert outcome.code == 1
    assert "`tune repair --out" in outcome.err
    assert len(log.load(tmp_path / "new" / NAME).done) == 2


def test_help_names_both(run: Any, fake: FakeNative) -> None:
    listing = run().out
    assert "export" in listing and "unpack" in listing
