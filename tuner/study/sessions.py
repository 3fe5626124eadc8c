# SPDX-License-Identifier: MIT
"""verification.jsonl: the runs of a live verification that has not ended, in a study's folder.

They are measurements, which nothing can make again: each is on the disk before the next one begins.
The first line has the conditions under which they are made. Every other line is a run that
succeeded, sealed as those of the study's log are, whose purpose is the moment at which its session
began. The file goes once verified.json is written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tuner.declarations import KnobValue
from tuner.documents.reading import parse_model
from tuner.errors import UserError, one_line
from tuner.files import plain, sync_directory
from tuner.model import Model, content_hash
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study.events import Checked, ForeignEvent, header_hash, lines_of, seal, unseal
from tuner.study.log import now
from tuner.study.verified import Session
from tuner.terminal import say
from tuner.text import plural

FILE = "verification.jsonl"
ANEW = "--anew"
BEGIN = f"{ANEW} drops the runs and measures all again"


class Conditions(Model):
    """The first line: what has to be the same for all runs, by what people call it."""

    format: Literal[1] = 1
    conditions: dict[str, str]


def sessions_of(runs: Iterable[Checked]) -> list[Session]:
    """In the order of their time."""
    by: dict[str, list[str]] = {}
    for run in runs:
        by.setdefault(run.purpose, []).append(run.time)
    return [Session(began=began, ended=max(by[began]), runs=len(by[began])) for began in sorted(by)]


def key(policy: str, knobs: Mapping[str, KnobValue], layout: int) -> str:
    """Equal keys: runs of one configuration in one round."""
    return content_hash({"policy": policy, "knobs": dict(knobs), "layout": layout})


class Runs:
    """The file, for the one process that adds to it. `kept` are the runs of earlier sessions."""

    def __init__(self, folder: Path, conditions: Mapping[str, str], *, anew: bool) -> None:
        """UserError if the runs that are there were made under other conditions, or cannot be read,
        unless they are to go; and if another process adds to them, or the disk does not let it."""
        self._path, self._began = folder / FILE, now()
        self.kept: dict[str, Checked] = {}
        with self._usable():
            self._file = plain(self._path, "a+b", buffering=0)
        try:
            with self._usable():
                self._open(Conditions(conditions=dict(conditions)), anew)
        except BaseException:
            self._file.close()
            raise

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{one_line(self._path)}: {error.strerror}") from error

    def _open(self, wanted: Conditions, anew: bool) -> None:
        if not self._lock():
            raise UserError(f"{self._path}: another `tune verify` writes to it")
        # One that was killed tears its last line.
        whole = [] if anew else [each for each in lines_of(self._path) if each.endswith(b"\n")]
        if whole:
            self._file.truncate(sum(map(len, whole)))
            self._key = header_hash(whole[0])
            then = self._conditions(whole[0])
            self._read(whole[1:])
            self._compare(then, wanted)
            return
        self._file.truncate(0)
        first = wanted.model_dump_json().encode() + b"\n"
        self._write(first)
        sync_directory(self._path.parent)
        self._key = header_hash(first)

    def _lock(self) -> bool:
        """Whether this process has the file alone, and the file is still there: another one removes
        it at its end."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self._path))
        except (BlockingIOError, FileNotFoundError):
            return False

    def _read(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                event = unseal(line.removesuffix(b"\n"), self._key)
                if not isinstance(event, Checked):
                    raise ValueError(f"found an event '{event.event}'")
            except ForeignEvent:
                raise UserError(
                    f"{self._path}, line {number}: was written under another first line; {BEGIN}"
                ) from None
            except ValueError as error:
                say(f"tune: warning: {self._path}, line {number}: {error}; that run is made again")
                continue
            scenario = event.scenario
            self.kept[key(scenario.policy, event.knobs, scenario.seed)] = event

    def _conditions(self, first: bytes) -> Conditions:
        try:
            return parse_model(first, Conditions)
        except ValueError:
            raise UserError(f"{self._path}, line 1: is damaged; {BEGIN}") from None

    def _compare(self, earlier: Conditions, wanted: Conditions) -> None:
        then, today = earlier.conditions, wanted.conditions
        differ = [
            f"{name}: was {one_line(then.get(name, 'nothing'))}; "
            f"is {one_line(today.get(name, 'nothing'))}"
            for name in {**then, **today}
            if then.get(name) != today.get(name)
        ]
        if not differ:
            return
        if not self.kept:
            self._open(wanted, anew=True)
            return
        what = f"{self._path} has {plural(len(self.kept), 'run')} under other conditions"
        after = f"Under the conditions of then the command goes on with them; {BEGIN}"
        raise UserError("\n  ".join([f"{what}:", *differ, after]))

    def _write(self, line: bytes) -> None:
        while line:  # a nearly full disk takes part of it, and says why next time
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def find(self, trial: Trial) -> Checked | None:
        """The run of an earlier session, if there is one."""
        scenario = trial.scenario
        return self.kept.get(key(scenario.policy, trial.knobs, scenario.seed))

    def add(self, trial: Trial, result: TrialResult) -> Checked:
        """Keeps a run of this session, if it has succeeded: one that failed is tried again."""
        event = Checked(
            time=now(),
            purpose=self._began,
            scenario=trial.scenario,
            knobs=trial.knobs,
            result=result.model_copy(update={"series": {}}),
        )
        if result.status is Status.success:
            with self._usable():
                self._write(seal(event, self._key))
        return event

    def close(self) -> None:
        self._file.close()

    def done(self) -> None:
        """Once what they say is written elsewhere."""
        with self._usable():
            self._path.unlink(missing_ok=True)
        self.close()
