# SPDX-License-Identifier: MIT
"""Somebody else's folder is the current one: nothing in it runs, is waited for, or leads writing
elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import synthetic
from conftest import FakeNative, python_path, started
from synthetic import request
from test_log import filled
from test_pool import run_all
from test_streams import request_of

from tuner import foreign
from tuner.errors import UserError
from tuner.files import write_file
from tuner.report import store
from tuner.run import streams
from tuner.run.pools import open_pool
from tuner.run.trial import TrialResult
from tuner.study import lock, log
from tuner.study.commit import commit_of
from tuner.study.log import StudyLog

MODULES = (
    *("types", "socket", "signal", "random", "struct", "secrets", "selectors", "tokenize"),
    *("sitecustomize", "usercustomize", "numpy", "yaml", "pydantic", "docker", "matplotlib"),
    *("mlflow", "ray", "smac", "sklearn", "uvicorn", "gunicorn.conf", "sqlalchemy", "tuner"),
)
TUNE = """\
import sys
from tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
"""
TRAP = """\
import os
with open({ran!r}, "a") as file:
    file.write(f"{{__name__}} in {{open('/proc/self/cmdline').read()!r}}\\n")
os._exit(66)
"""


class Theirs:
    """A folder with a trap under every name that may be taken for a module, with settings that are
    pipes without end, and as a repository whose configuration names a program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "theirs"
        self._ran = folder / "ran"
        self.folder.mkdir()
        for name in MODULES:
            (self.folder / f"{name}.py").write_text(TRAP.format(ran=str(self._ran)))
        for name in ("matplotlibrc", ".env", ".flaskenv", "alembic.ini", "MLproject", "setup.cfg"):
            os.mkfifo(self.folder / name)
        repository = self.folder / ".git"
        (repository / "objects").mkdir(parents=True)
        (repository / "refs/heads").mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "refs/heads/main").write_text("1" * 40 + "\n")
        program = folder / "monitor"
        program.write_text(f"#!/bin/sh\necho fsmonitor >>{self._ran}\n")
        program.chmod(0o755)
        (repository / "config").write_text(f"[core]\n\tfsmonitor = {program}\n")
        (folder / "bin").mkdir()
        self._tune = folder / "bin" / "tune"  # as pip writes it
        self._tune.write_text(TUNE)

    @property
    def ran(self) -> str:
        """What of the folder has run."""
        return self._ran.read_text() if self._ran.exists() else ""

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self._tune), *arguments]

    def environment(self, path: str) -> dict[str, str]:
        dropped = {foreign.SAFE, foreign.PATH}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | ({foreign.PATH: path} if path else {})

    def run(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment(path),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def theirs(tmp_path: Path) -> Theirs:
    return Theirs(tmp_path)


def test_the_traps_work(theirs: Theirs) -> None:
    theirs.run(sys.executable, "-c", "import socket")
    assert "socket in" in theirs.ran


# --- Modules --------------------------------------------------------------------------------------


POOL = """
import sys
from pathlib import Path
from synthetic import request
from test_foreign import looks_here
from test_pool import run_all
from tuner import foreign
from tuner.run.pools import open_pool

if __name__ == "__main__":
    with foreign.kept_out():
        pool = open_pool(looks_here, workers=int(sys.argv[1]))
        (result,) = run_all(pool, request(Path(sys.argv[2])), [0])
        pool.close()
    print(result.status.value, result.error, result.metrics)
"""


def looks_here(trial: Any) -> TrialResult:
    """Whether a worker looks for modules in its current folder."""
    here = {"", ".", str(Path.cwd())} & set(sys.path)
    return synthetic.answer(trial).model_copy(update={"metrics": {"here": float(bool(here))}})


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_workers_take_no_module_of_the_current_folder(
    theirs: Theirs, tmp_path: Path, workers: str
) -> None:
    program = tmp_path / "bin" / "pool.py"
    program.write_text(POOL)
    path = python_path(Path(__file__).parent)
    done = theirs.run(sys.executable, str(program), workers, str(tmp_path), path=path)
    assert theirs.ran == ""
    assert done.stdout == "success  {'here': 0.0}\n", done.stderr


@pytest.mark.parametrize("path", ["{}:", ":{}", "{}:.", "lib:{}", "{0}::{0}"])
def test_relative_entries_of_the_path_are_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.chdir(tmp_path)
    given = path.format("/absolute")
    before = [str(tmp_path), "/absolute", str(tmp_path / "lib"), *sys.path]
    monkeypatch.setattr(sys, "path", before.copy())
    monkeypatch.setenv("PYTHONPATH", given)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with foreign.kept_out():
        assert set(os.environ["PYTHONPATH"].split(":")) == {"/absolute"}
        assert os.environ["PYTHONSAFEPATH"] == "1"
        gone = {str(tmp_path / each) for each in given.split(":") if not each.startswith("/")}
        assert sys.path == [each for each in before if each not in gone]
        users = foreign.users_environment()
        assert users["PYTHONPATH"] == given
        assert "PYTHONSAFEPATH" not in users
    assert sys.path == before
    assert os.environ["PYTHONPATH"] == given
    assert "PYTHONSAFEPATH" not in os.environ


def test_the_module_takes_none_but_those_that_start_it(theirs: Theirs) -> None:
    for name in ("tuner", "types"):  # `-m` itself imports them
        (theirs.folder / f"{name}.py").unlink()
    done = theirs.run(sys.executable, "-m", "tuner", "doctor", path=python_path())
    assert theirs.ran == ""
    assert "simulator" in done.stdout, done.stderr


RUN = ("run", "--workload", "gups", "--input", "smoke", "--budget", "2", "--out", "results")
COMMANDS: list[tuple[str, ...]] = [
    (*RUN, "--workers", "1"),
    (*RUN, "--workers", "2", "--name", "two"),
    ("compare", "--workloads", "gups:smoke", "--policies", "tpp", "--out", "results"),
    ("smoke", "--workload", "gups", "--policy", "tpp"),
    ("workload", "show", "gups", "-i", "smoke", "--out", "shown"),
    ("doctor",),
    ("repair", "--out", "results"),
    ("claims", "--quick", "no-such-claim"),
]


@pytest.mark.slow
def test_no_command_runs_what_is_in_the_current_folder(
    theirs: Theirs, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
    for command in COMMANDS:
        done = theirs.run(*theirs.words(*command))
        assert theirs.ran == "", command
        assert done.returncode == (2 if command[0] == "claims" else 0), (command, done.stderr)
    logged = Path(theirs.folder, "results/two/study.json").read_text()
    assert f'"git_commit": "{"1" * 40}"' in logged


def healthy(address: str) -> bool:
    """Whether a server that begins to listen now is well."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with (
            contextlib.suppress(urllib.error.URLError),  # refused: not yet
            urllib.request.urlopen(address, timeout=60) as answer,
        ):
            return bool(answer.status == 200)
    return False


@pytest.mark.slow
def test_the_server_takes_no_module_of_the_current_folder(theirs: Theirs) -> None:
    done = theirs.run(*theirs.words(*RUN, "--workers", "1"))
    assert done.returncode == 0, done.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with started(
        theirs.words("ui", "--port", port, "--out", "results"),
        cwd=theirs.folder,
        env=theirs.environment(""),
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stderr is not None
        try:
            # Uvicorn says so a moment before it listens.
            assert any(b"Application startup complete" in line for line in server.stderr)
            assert healthy(f"http://127.0.0.1:{port}/health")
        finally:
            os.killpg(server.pid, 9)  # its workers, too
    assert theirs.ran == ""


def test_a_recorded_program_has_the_users_own_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "of the user")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = dict(os.environ)
    with foreign.kept_out():
        assert foreign.users_environment() == before
    assert os.environ == before


# --- A repository ---------------------------------------------------------------------------------


def repository(folder: Path, head: str) -> Path:
    place = folder / ".git"
    (place / "refs/heads").mkdir(parents=True)
    (place / "HEAD").write_text(f"{head}\n")
    return place


ONE, OTHER = "1" * 40, "a" * 64


@pytest.mark.parametrize("commit", [ONE, OTHER])
@pytest.mark.parametrize("kept", ["detached", "loose", "packed", "both"])
def test_the_commit_of_a_repository(tmp_path: Path, commit: str, kept: str) -> None:
    place = repository(tmp_path, commit if kept == "detached" else "ref: refs/heads/a/b")
    if kept in ("loose", "both"):
        (place / "refs/heads/a").mkdir()
        (place / "refs/heads/a/b").write_text(f"{commit}\n")
    if kept in ("packed", "both"):
        old = ONE[::-1] if kept == "packed" else "0" * 40
        (place / "packed-refs").write_text(
            f"# pack-refs with: peeled fully-peeled sorted\n{old} refs/heads/a\n"
            f"{commit if kept == 'packed' else old} refs/heads/a/b\n^{old}\n"
        )
    below = tmp_path / "below" / "further"
    below.mkdir(parents=True)
    assert commit_of(tmp_path) == commit_of(below) == commit


def test_the_commit_of_a_worktree(tmp_path: Path) -> None:
    place = repository(tmp_path / "main", "ref: refs/heads/main")
    (place / "refs/heads/other").write_text(ONE)
    own = place / "worktrees" / "tree"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/other\n")
    (own / "commondir").write_text("../..\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(tmp_path / "tree") == ONE


def test_a_commit_that_is_not_known(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    place = repository(tmp_path, "ref: refs/heads/main")
    assert commit_of(tmp_path) is None, "no commit yet"
    (place / "refs/heads/main").symlink_to("/dev/zero")
    assert commit_of(tmp_path) is None
    for head in ("ref: refs/../../../etc/passwd", "no commit", "", "1" * 39, "0" * 2_000_000):
        (place / "HEAD").write_text(head)
        assert commit_of(tmp_path) is None
    (place / "HEAD").write_bytes(b"\xff" * 40)
    assert commit_of(tmp_path) is None
    (place / "HEAD").unlink()
    os.mkfifo(place / "HEAD")
    assert commit_of(tmp_path) is None


def test_no_study_runs_git(
    tmp_path: Path, fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.experiment import studies

    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    repository(fake.calls.parent, ONE)
    with studies._open(tmp_path / "study", request(tmp_path)) as study:
        assert study.data.header.git_commit == ONE
    assert not (tmp_path / "ran").exists()


# --- Ray's folder ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_nobody_else_can_enter_the_folder_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Path(os.environ["TMPDIR"]) / "shared"  # with a short name, which sockets need
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", None)
    others = [shared / "ray" / "session_2026", shared / "tune-12345678.ray"]
    for folder in others:
        folder.mkdir(parents=True)
        os.mkfifo(folder / "tiertune.lock")
    os.mkfifo(shared / "tune-pipe.ray")
    (shared / "tune-link.ray").symlink_to(others[0])
    pool = open_pool(synthetic.smooth, workers=2)
    try:
        run_all(pool, request(tmp_path), [0])
        (own,) = {each for each in shared.glob("tune-*.ray") if (each / "r").is_dir()}
        assert own.stat().st_mode & 0o777 == 0o700
        assert own.stat().st_uid == os.geteuid()
        assert list(own.glob("r/session_*/sockets/plasma_store"))
        assert [path.name for path in (shared / "ray").iterdir()] == ["session_2026"]
    finally:
        pool.close()
    assert not own.exists()
    assert (others[0] / "tiertune.lock").exists(), "through a link"
    assert not others[1].exists(), "as one of a process that was killed"


# --- Links and pipes ------------------------------------------------------------------------------


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "victim").write_text("precious\n")
    return tmp_path / "home" / "victim"


def lead(path: Path, to: str, victim: Path) -> None:
    """Puts what an attacker would put there."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if to == "pipe":
        os.mkfifo(path)
    elif to == "nothing":
        path.symlink_to(victim.with_name("new"))
    else:
        path.symlink_to(victim)


def untouched(victim: Path) -> bool:
    return victim.read_text() == "precious\n" and list(victim.parent.iterdir()) == [victim]


TO = pytest.mark.parametrize("to", ["file", "nothing", "pipe"])


@pytest.mark.parametrize(
    ("name", "to"),
    [(lock.LOCK, "file"), (lock.LOCK, "nothing"), (lock.LOCK, "pipe"), (log.EVENTS, "file")],
)
def test_a_study_is_not_written_through_a_link(
    tmp_path: Path, victim: Path, name: str, to: str
) -> None:
    directory = filled(tmp_path / "study")
    whole = (directory / log.EVENTS).read_bytes()
    if name == log.EVENTS:
        victim.write_bytes(whole + b"torn")
    lead(directory / name, to, victim)
    with pytest.raises(UserError, match=f"{name}: found a (link|pipe); must be a regular"):
        StudyLog(directory)
    if name == lock.LOCK:
        assert not lock.in_use(directory)
        with pytest.raises(UserError, match="must be a regular file"), lock.undisturbed(directory):
            pass
    else:
        assert victim.read_bytes() == whole + b"torn"
        victim.write_text("precious\n")
    assert untouched(victim)


@pytest.mark.parametrize("name", [f"best.yaml.{os.getpid()}.partial", "best.yaml"])
@TO
def test_what_is_replaced_is_the_link(tmp_path: Path, victim: Path, name: str, to: str) -> None:
    folder = tmp_path / "study"
    lead(folder / name, to, victim)
    write_file(folder / "best.yaml", "ours")
    assert (folder / "best.yaml").read_text() == "ours"
    assert [path.name for path in folder.iterdir()] == ["best.yaml"]
    assert untouched(victim)


def test_time_series_are_not_written_elsewhere(tmp_path: Path, victim: Path) -> None:
    directory = filled(tmp_path / "study")
    shutil.rmtree(directory / log.SERIES)
    (directory / log.SERIES).symlink_to(victim.parent)
    with pytest.raises(UserError, match="series: found a link; must be a folder"):
        StudyLog(directory)
    assert untouched(victim)


@TO
def test_a_stream_is_not_locked_through_a_link(fake: FakeNative, victim: Path, to: str) -> None:
    stream = request_of()
    lead(streams.folder() / f"{stream.key}.lock", to, victim)
    with pytest.raises(UserError, match="must be a regular file"):
        streams.ensure(stream)
    assert untouched(victim)


@TO
def test_a_store_is_not_locked_through_a_link(tmp_path: Path, victim: Path, to: str) -> None:
    lead(tmp_path / "out" / "mlflow.db.lock", to, victim)
    with (
        pytest.raises(OSError, match="must be a regular file"),
        store._lock(tmp_path / "out" / "mlflow.db"),
    ):
        pass
    assert untouched(victim)


@pytest.mark.parametrize(
    "name", ["mlflow.db", "mlflow.db-journal", "mlflow.db-wal", "mlflow.db-shm", "mlartifacts"]
)
def test_a_store_is_not_written_through_a_link(tmp_path: Path, victim: Path, name: str) -> None:
    lead(tmp_path / "out" / name, "file", victim)
    with (
        pytest.raises(UserError, match=f"{name}: found a link; must not be one"),
        store._lock(tmp_path / "out" / "mlflow.db"),
    ):
        pass
    assert untouched(victim)


@TO
def test_series_of_a_simulation_are_not_written_through_a_link(
    run: Any, fake: FakeNative, victim: Path, to: str
) -> None:
    lead(Path("series.csv"), to, victim)
    outcome = run("sim", "-w", "walker", "--policy", "toy", "--series", "series.csv")
    assert outcome.code == 0
    assert Path("series.csv").read_text().startswith("second,")
    assert not Path("series.csv").is_symlink()
    assert untouched(victim)


def test_devices_stay_what_they_are(run: Any, fake: FakeNative) -> None:
    before = Path("/dev/stdout").lstat()
    outcome = run("sim", "-w", "walker", "--policy", "toy", "--series", "/dev/stdout")
    assert outcome.code == 2
    assert "cannot write /dev/stdout: found a device; must be a regular file" in outcome.err
    assert Path("/dev/stdout").lstat() == before
