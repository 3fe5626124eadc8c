# SPDX-License-Identifier: MIT
"""What a user may have too little of: a home and a name, what the shell's limits allow, room on the
disk."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import python_path
from synthetic import request, smooth
from test_pool import run_all

from tuner import cli
from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.experiment.loop import run_study
from tuner.report.store import reason
from tuner.run.pools import open_pool
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import log

ROOT = Path(__file__).resolve().parents[2]
RUN = ("run", "--workload", "gups", "--input", "smoke", "--budget", "2", "--no-explain")
OUT = ("--out", "results")
NOBODY = 54321
"""A user without an entry in the password file."""
READS = "-all,+dac_read_search"
"""What is left of the superuser's rights: the Python and its packages may be below /root."""


def tune(
    *words: str, cwd: Path, limits: Sequence[str] = (), user: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs `tune` under limits, options of prlimit's; as NOBODY if `user`, without HOME then."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": python_path(ROOT)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment |= {"TMPDIR": str(cwd)} if user else {"HOME": os.environ["HOME"]}
    under = ["prlimit", *limits] if limits else []
    return subprocess.run(
        [*(as_nobody() if user else []), *under, sys.executable, "-m", "tuner", *words],
        cwd=cwd,
        env=environment | more,
        capture_output=True,
        text=True,
        check=False,
    )


def as_nobody() -> list[str]:
    """Words before a command that run it as NOBODY; skips the test where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only the superuser runs programs as another user")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    words += [f"--inh-caps={READS}", f"--ambient-caps={READS}", f"--bounding-set={READS}"]
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv, of util-linux")
    if (tried := subprocess.run([*words, "true"], capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"cannot run a program as another user: {tried.stderr.strip()}")
    return words


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of NOBODY's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY) if os.geteuid() == 0 else None
    return folder


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def tracked(out: Path) -> int:
    """Trials in the folder's MLflow store."""
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        found = store.execute("SELECT count(*) FROM tags WHERE key = 'tiertune.trial'").fetchone()
    return int(found[0])


# --- A home and a name ----------------------------------------------------------------------------


SMALLEST = {
    "1": ["--fsize=4194304", "--as=1073741824", "--nproc=12"],
    "2": ["--fsize=209715200", "--as=4294967296", "--nproc=272"],
}
"""Of the shell's limits, by workers. Of an earlier test a process or two may still be ending."""


@pytest.mark.slow
@pytest.mark.parametrize("workers", SMALLEST)
def test_a_user_without_home_and_name_has_a_study_with_all_that_belongs_to_it(
    theirs: Path, workers: str
) -> None:
    """Under the smallest limits that are not refused, all at once."""
    words, limits = (*RUN, *OUT, "--workers", workers), SMALLEST[workers]
    cache = str(theirs / "cache")
    done = tune(*words, cwd=theirs, limits=limits, user=True, TIERTUNE_CACHE=cache)
    assert done.returncode == 0, done.stderr
    assert not re.search("warning|Matplotlib|Traceback", done.stderr), done.stderr
    assert tracked(theirs / "results") == 2
    (study,) = (theirs / "results").glob("gups-*")
    assert (study / "importance.png").exists() and (study / "report.html").exists()
    assert {path.stat().st_uid for path in theirs.rglob("*")} == {NOBODY}


@pytest.mark.slow
def test_a_user_without_a_place_for_streams_is_told_before_there_is_a_study(theirs: Path) -> None:
    done = tune(*RUN, *OUT, "--workers", "1", cwd=theirs, user=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"tune: error: no folder for the stream cache: HOME is not set, and the user {NOBODY} has "
        "no home folder; set TIERTUNE_CACHE to a folder that can be written\n"
    )
    assert not any(theirs.rglob("*"))


# --- The shell's limits ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "limit", "workers", "said"),
    [
        ("-f", "--fsize=1048576", 1, "files of 1.0 MiB; 1 worker must have 4.0 MiB at least"),
        ("-f", "--fsize=67108864", 2, "files of 64.0 MiB; 2 workers must have 200.0 MiB at least"),
        (
            "-v",
            "--as=819200000",
            1,
            "781.2 MiB of address space; 1 worker must have 1.0 GiB at least",
        ),
        (
            "-v",
            "--as=2147483648",
            2,
            "2.0 GiB of address space; 2 workers must have 4.0 GiB at least",
        ),
        (
            "-u",
            "--nproc=6",
            1,
            "6 processes and threads, N of which run already; 1 worker must have 8 more at least",
        ),
        (
            "-u",
            "--nproc=160",
            2,
            "160 processes and threads, N of which run already; 2 workers must have 256 more at "
            "least",
        ),
    ],
)
def test_too_small_a_limit_is_told_at_the_start(
    theirs: Path, option: str, limit: str, workers: int, said: str
) -> None:
    words = (*RUN, *OUT, "--workers", str(workers))
    done = tune(*words, cwd=theirs, limits=[limit], user=option == "-u", TIERTUNE_CACHE="cache")
    assert (done.returncode, done.stdout) == (2, "")
    told = re.sub(r"\d+ of which run", "N of which run", done.stderr)  # of an earlier test, too
    assert told == f"tune: error: `ulimit {option}` of this shell allows {said}\n"
    assert not any(theirs.iterdir())


def hungry(trial: Trial) -> TrialResult:
    """Takes more memory than its process may have."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))
    raise AssertionError(len(bytes(3 << 30)))


def test_a_trial_that_meets_a_limit_names_it(tmp_path: Path) -> None:
    pool = open_pool(hungry, workers=1)
    try:
        (result,) = run_all(pool, request(tmp_path), [0])
    finally:
        pool.close()
    assert result.status is Status.failed
    assert result.error == "out of memory: `ulimit -v` of this shell allows 2.0 GiB"


# --- A full disk ----------------------------------------------------------------------------------


@contextmanager
def small_disk(place: Path, kib: int) -> Iterator[None]:
    """Mounts a disk of that size; skips the test where that cannot be."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk")
    try:
        yield
    finally:
        # Lazily: MLflow keeps its databases open for as long as the process runs.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def more_room(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kib", "file"), [(4, "study.json"), (60, "trials.jsonl"), (180, "report.html")]
)
def test_a_full_disk_stops_a_study_that_its_own_words_complete(
    tmp_path: Path, store: str, kib: int, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sizes are such that this file finds no room; the store is on another disk."""
    place = tmp_path / "disk"
    study = place / "synthetic-study"
    with small_disk(place, kib):
        with pytest.raises(UserError, match=r"disk is full|No space left on device") as full:
            run_study(request(place, budget=3, mlflow_uri=store), runner=smooth)
        told, message = capsys.readouterr().err, str(full.value)
        if file == "report.html":
            assert message == f"cannot write {study / file}: No space left on device"
        else:
            assert message == (
                f"the disk is full: cannot write to {study}; finished trials are safe, free some "
                "space and continue with --resume"
            )
        started = (study / "study.json").exists()
        assert started == (file != "study.json")
        done = len(log.load(study).done) if started else 0
        assert done == {"study.json": 0, "trials.jsonl": done % 3, "report.html": 3}[file]
        *_, stopped, go_on = ["", "", *told.splitlines()]
        if started:
            assert stopped == f"stopped: {done} of 3 trials are done and stored in {study}"
            assert go_on.startswith("continue with: tune run ") and go_on.endswith(" --resume")
        more_room(place)
        run_study(request(place, budget=3, mlflow_uri=store, resume=True), runner=smooth)
        assert (study / "report.html").exists() and (study / "importance.png").exists()
        found = results(study)
    undisturbed = request(tmp_path / "undisturbed", budget=3, mlflow_uri=store)
    run_study(undisturbed, runner=smooth)
    assert found == results(tmp_path / "undisturbed" / "synthetic-study")


def results(study: Path) -> list[tuple[dict[str, KnobValue], float | None]]:
    """Of its trials, in their order."""
    return [(trial.knobs, trial.objective) for trial in log.load(study).done]


@pytest.mark.slow
def test_a_full_disk_of_the_store_costs_the_study_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = tmp_path / "disk", tmp_path / "out"
    store = f"sqlite:///{place / 'mlflow.db'}"
    with small_disk(place, 600):
        run_study(request(out, budget=3, mlflow_uri=store), runner=smooth)
        told = capsys.readouterr().err
        assert told.count("warning: ") == 1
        repair = f"tune repair --out {out} --mlflow-uri {store}"
        assert (
            f"warning: MLflow at {store} does not take this study (OperationalError: database or "
            f"disk is full); the study continues without it, and afterwards `{repair}` adds what "
            "is missing\n" in told
        )
        more_room(place)
        assert cli.main(shlex.split(repair)[1:]) == 0
        assert tracked(place) == 3


@pytest.mark.slow
def test_a_full_disk_takes_no_picture_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    series = tmp_path / "series.csv"
    series.write_text("second,hits\n" + "".join(f"{n},{n % 7}\n" for n in range(50)))
    picture = place / "picture.png"
    words = ("report", str(series), "--output", str(picture))
    with small_disk(place, 4):
        done = tune(*words, cwd=tmp_path)
        said = f"tune: error: cannot write {picture}: No space left on device\n"
        assert (done.returncode, done.stderr) == (2, said)
        assert not any(place.iterdir())
        more_room(place)
        assert tune(*words, cwd=tmp_path).returncode == 0
        assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_store_says_what_its_database_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what is wrapped around it, which may be about anything."""
    full, larger = (
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"),
    )
    full.sqlite_errorcode, larger.sqlite_errorcode = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE
    for cause, said in (
        (full, "OperationalError: database or disk is full"),
        (
            larger,
            "OperationalError: disk I/O error; `ulimit -f` of this shell allows files of 4.0 MiB",
        ),
    ):
        wrapped = RuntimeError("(raised as a result of Query-invoked autoflush)\nmore")
        wrapped.__cause__ = cause
        with monkeypatch.context() as patch:
            patch.setattr(resource, "getrlimit", lambda which: (4 << 20, 4 << 20))
            assert reason(wrapped) == said
    assert reason(larger) == "OperationalError: disk I/O error"
    assert reason(ValueError()) == "ValueError: no message"
