# SPDX-License-Identifier: MIT
"""Commands that the loops disturb, each with what must come out of it in the end.

They are the tuner's own commands on real files. Only the simulations of a study and its pictures
are made up, the clock stands still, and its one worker is this process, so that what comes out is
the same to the byte every time.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spools
import synthetic

from tuner import cli
from tuner.commands import run, ui
from tuner.experiment import checks
from tuner.experiment.loop import run_study
from tuner.record import samplers
from tuner.record.samplers import Launch, Sampler, StreamClass
from tuner.report import page, store
from tuner.run import streams
from tuner.run.pool import Runner, execute
from tuner.run.trial import Trial, TrialResult
from tuner.study import lock, log
from tuner.study.request import StudyRequest

DATA = Path(synthetic.__file__).parent / "data"
NOON = "2026-01-02T12:00:00.000+00:00"
BUDGET = 3


@dataclass
class Scenario:
    """One command. `words` are its arguments, and `again` those with which it is repeated after a
    fault. `before` fills the folder; `result` is what must be in it in the end, whatever happened,
    and `told` what a folder as it is has acknowledged. When `done` is printed, all is there."""

    name: str
    words: Sequence[str]
    result: Callable[[Path], Any]
    before: Callable[[Path], None] = lambda folder: None
    told: Callable[[Path], list[str]] = lambda folder: []
    done: str = ""
    again: Sequence[str] = field(default=())

    def enter(self, folder: Path) -> None:
        """Makes the folder, as it is before the command, and its environment."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.before(folder)

    def run(self, folder: Path, *, again: bool = False) -> int:
        """The command in this process."""
        settle(folder)
        return cli.main([*(self.again if again and self.again else self.words)])


def settle(folder: Path) -> None:
    """Everything that the tuner writes goes below the folder."""
    os.chdir(folder)
    os.environ |= {"TIERTUNE_CACHE": str(folder / "cache"), "HOME": str(folder)}


# --- What stands in -------------------------------------------------------------------------------


class Inline:
    """A pool whose one worker is the study's own process."""

    workers = 1

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._results: list[TrialResult] = []

    def submit(self, trial: Trial) -> None:
        found = execute(self._runner, trial.model_dump_json(), repeated=False)
        self._results.append(TrialResult.model_validate_json(found))

    def wait(self, timeout: float) -> list[TrialResult]:
        found, self._results = self._results, []
        return found

    def close(self) -> None:
        self._results.clear()


class Scripted(Sampler):
    """Leaves a spool that is always the same."""

    name = "scripted"
    summary = "of the torture"
    classes = (StreamClass("random", mlp=4), StreamClass("sequential", mlp=8))
    wall_time = False

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        self.folder = folder
        return Launch(command, {})

    def attach(self, pid: int) -> None:
        with suppress(OSError):  # it is the program that writes here, and says nothing of a disk
            spools.spool(self.folder / "77.spool", *spools.two_arrays())


def stand_in() -> None:
    """Puts all of these in their places, for the rest of this process."""
    places: list[tuple[Any, str, Any]] = [
        (log, "now", lambda: NOON),
        (checks, "open_pool", lambda runner, **_: Inline(runner)),
        (run, "study_request", request),
        (run, "run_study", lambda request: run_study(request, runner=synthetic.noisy)),
        (samplers, "names", lambda: ["scripted"]),
        (samplers, "find", lambda name: Scripted),
        (page, "_png", lambda figure: b"a picture"),
        (ui, "os", Namespace(path=os.path, chdir=os.chdir, execv=lambda *_: sys.exit(0))),
    ]
    for module, name, value in places:
        setattr(module, name, value)


def request(args: Namespace) -> StudyRequest:
    """Of the made-up study, whatever the arguments name."""
    return synthetic.request(Path("studies").absolute(), budget=BUDGET, resume=args.resume)


# --- Results --------------------------------------------------------------------------------------

STUDY = Path("studies/synthetic-study")
EVENTS = log.EVENTS
DATABASE = Path("studies/mlflow.db")


def logged(folder: Path) -> list[str]:
    """The whole lines of the log: each was synced before anything acted on it."""
    file = folder / STUDY / log.EVENTS
    return file.read_text(errors="replace").split("\n")[:-1] if file.exists() else []


def study(folder: Path) -> dict[str, Any]:
    """All files of the study but its lock, and what MLflow has of it."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / STUDY).rglob("*"))
        if path.is_file() and path.name != lock.LOCK
    }
    return found | {"MLflow": tracked(folder / DATABASE)}


def tracked(database: Path) -> list[str]:
    """Runs with their values, without what MLflow draws by lot."""
    with closing(sqlite3.connect(database)) as open_:
        assert open_.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        runs = dict(open_.execute("SELECT run_uuid, name FROM runs WHERE lifecycle_stage='active'"))
        found = []
        for identity, name in runs.items():
            values = {
                table: sorted(
                    open_.execute(f"SELECT key, value FROM {table} WHERE run_uuid=?", (identity,))
                )
                for table in ("params", "latest_metrics")
            }
            tags = dict(open_.execute("SELECT key, value FROM tags WHERE run_uuid=?", (identity,)))
            tags.pop(store.PARENT_TAG, None)
            (status,) = open_.execute(
                "SELECT status FROM runs WHERE run_uuid=?", (identity,)
            ).fetchone()
            found.append(json.dumps([name, status, values, sorted(tags.items())]))
    return sorted(found)


def files(*names: str) -> Callable[[Path], dict[str, bytes]]:
    """The content of some files."""
    return lambda folder: {name: (folder / name).read_bytes() for name in names}


def stream(folder: Path) -> dict[str, bytes]:
    """The one stream of the cache; its note says what it was made from."""
    found = {}
    for path in (folder / "cache").glob("*"):
        if path.suffix == ".tts":
            streams.verify(path)
            found[path.name] = path.read_bytes()
        elif path.suffix == ".json":
            note = json.loads(path.read_text())
            assert note["file"]["bytes"] == path.with_suffix(".tts").stat().st_size
            found[path.name] = json.dumps(note["request"]).encode()
    return found


def nothing(folder: Path) -> None:
    return None


# --- The commands ---------------------------------------------------------------------------------


def scenarios(templates: Path) -> list[Scenario]:
    """All of them. `templates` is a folder with a finished study (`finished`) and an empty database
    (`empty`), see `make_templates`."""

    def copied(name: str) -> Callable[[Path], None]:
        def copy(folder: Path) -> None:
            shutil.copytree(templates / name, folder, dirs_exist_ok=True)

        return copy

    def without_database(folder: Path) -> None:
        copied("finished")(folder)
        shutil.rmtree(folder / "studies/mlartifacts")
        (folder / DATABASE).unlink()

    def text(folder: Path) -> None:
        shutil.copy(DATA / "accesses.csv", folder / "in.csv")

    resume = ["run", "--workload", "gups", "--resume"]
    imported = ["import", "in.csv", "--format", "csv", "-o", "made.tts"]
    recorded = ["record", "-o", "made.tts", "--sampler", "scripted", "--", "/bin/true"]
    simulated = ["sim", "--workload", "gups", "--input", "smoke", "--policy", "first-touch"]
    made = files("made.tts", "made.yaml")
    next_step = "next: tune run"
    return [
        Scenario("study", resume, study, copied("empty"), logged, done="reuse  "),
        Scenario("report", resume, study, copied("finished"), logged),
        Scenario("stream", simulated, stream),
        Scenario("import", imported, made, text, done=next_step, again=[*imported, "--force"]),
        Scenario(
            "record", recorded, made, done=next_step, again=["record", "--force", *recorded[1:]]
        ),
        Scenario(
            "ui", ["ui", "--out", "studies", "--port", "58731"], study, copied("finished"), logged
        ),
        Scenario("repair", ["repair", "--out", "studies"], study, without_database, logged),
        Scenario("first study", resume, study, nothing, logged),
    ]


def make_templates(folder: Path, work: Path) -> int:
    """Runs a study where the cases will run, and keeps a copy of its folder, and of the database as
    it was before."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    settle(work)
    (work / "studies").mkdir()
    store.client_of(store.default_store(work / "studies"), work / "studies", print)
    shutil.copytree(work, folder / "empty")
    code = cli.main(["run", "--workload", "gups", "--resume"])
    shutil.copytree(work, folder / "finished")
    return code
