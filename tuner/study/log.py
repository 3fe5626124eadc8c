"""A study on disk: what was asked for, and everything that happened, in the order it happened.

    study.json        the complete request, what its results depend on, and the format's version
    trials.jsonl      one line per event, append-only: a trial asked for, a trial finished, a check
    series/NNNN.json  time series of one trial
    lock              held by the one process that writes

The log is the only truth about a study. Everything else (MLflow, best.yaml, the report, SMAC's
model) is made from it and can be made again. A line is written and synced before anything acts on
it, so killing the process at any moment loses at most trials that had not finished; those are run
again under the same number with the same configuration.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.files import sync_directory, write_atomically
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status, TrialResult
from tuner.scenario import Scenario
from tuner.study.request import Fingerprints, StudyRequest

FORMAT = 3
"""Of study.json. Version 0.1.0 wrote 1, with the scenario's fields among the request's own; 0.2.0
wrote 2, which had no checks and is read like 3."""

READABLE = (2, FORMAT)

HEADER = "study.json"
EVENTS = "trials.jsonl"
SERIES = "series"
LOCK = "lock"

Series = dict[str, list[float]]


class StudyHeader(Model):
    """study.json. `lag` and `initial` are those of `Optimizer`: they stay when workers change."""

    format: int
    created: str  # ISO 8601, UTC
    request: StudyRequest
    fingerprints: Fingerprints
    stream: str  # key of the access stream
    lag: int
    initial: int
    git_commit: str | None = None


class Asked(Model):
    """A configuration was chosen for a trial. `knobs` are the tuned ones."""

    event: Literal["asked"] = "asked"
    time: str
    number: int
    origin: str
    knobs: dict[str, KnobValue]


class Finished(Model):
    """A trial ended, well or badly. The result's series are kept beside the log."""

    event: Literal["finished"] = "finished"
    time: str
    result: TrialResult


class Checked(Model):
    """A run beside the search ended: of a reference, of another policy, on a held-out seed, or to
    explain the best configuration. `knobs` are all of its policy's.

    Nothing is written when one starts: which checks are to be run follows from the log.
    """

    event: Literal["checked"] = "checked"
    time: str
    purpose: str
    scenario: Scenario
    knobs: dict[str, KnobValue]
    result: TrialResult


Event = Annotated[Asked | Finished | Checked, Field(discriminator="event")]
_EVENT: TypeAdapter[Asked | Finished | Checked] = TypeAdapter(Event)


@dataclass
class TrialRecord:
    """One trial as the log has it; `result` is None while it runs, and has no series."""

    number: int
    origin: str
    knobs: dict[str, KnobValue]
    asked: str
    finished: str | None = None
    result: TrialResult | None = None

    @property
    def objective(self) -> float | None:
        return None if self.result is None else self.result.objective

    @property
    def succeeded(self) -> bool:
        return self.result is not None and self.result.status is Status.success


@dataclass
class StudyData:
    """A study as read from its directory. Trials are in the order in which they were asked for,
    checks in that in which they ended."""

    directory: Path
    header: StudyHeader
    trials: list[TrialRecord]
    checks: list[Checked] = field(default_factory=list)

    @property
    def done(self) -> list[TrialRecord]:
        return [trial for trial in self.trials if trial.result is not None]

    @property
    def best(self) -> TrialRecord | None:
        """The best trial that succeeded, the earliest of equals."""
        objective = OBJECTIVES[self.header.request.scenario.objective]
        good = [
            (objective.cost(trial.result.objective), trial.number)
            for trial in self.trials
            if trial.result is not None and trial.result.objective is not None
        ]
        return self.trials[min(good)[1]] if good else None

    @property
    def default(self) -> TrialRecord | None:
        """Trial 0, if it succeeded."""
        return next((trial for trial in self.trials[:1] if trial.succeeded), None)

    def series(self, number: int) -> Series:
        """Time series of a finished trial; empty if it has none."""
        try:
            return read_series(self.directory, number)
        except FileNotFoundError:
            return {}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def exists(directory: Path) -> bool:
    return (directory / HEADER).exists()


def load(directory: Path) -> StudyData:
    """Reads a study, even while another process writes it. UserError if it is not readable."""
    header = _read_header(directory)
    try:
        content = (directory / EVENTS).read_bytes()
    except FileNotFoundError:
        content = b""
    data = StudyData(directory, header, [])
    _parse(content, data)
    return data


class StudyLog:
    """The one writer of a study's directory. Use as a context manager; holds the lock."""

    def __init__(self, directory: Path, header: StudyHeader | None = None) -> None:
        """Creates the study if `header` is given, else opens it.

        UserError if it exists already, is missing, is being written by another process, or does
        not parse. A torn last line (the process was killed in mid-write) is cut off.
        """
        self.directory = directory
        with _disk(directory):
            (directory / SERIES).mkdir(parents=True, exist_ok=True)
        self._lock = _acquire(directory)
        try:
            if header is not None:
                if exists(directory):
                    raise UserError(f"study '{header.request.study}' already exists in {directory}")
                with _disk(directory):
                    write_atomically(directory / HEADER, header.model_dump_json(indent=1) + "\n")
            self._file, self.data = self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> tuple[BinaryIO, StudyData]:
        header = _read_header(self.directory)
        path = self.directory / EVENTS
        with _disk(self.directory):
            file = path.open("a+b", buffering=0)
            try:
                file.seek(0)
                data = StudyData(self.directory, header, [])
                file.truncate(_parse(file.read(), data))
                sync_directory(self.directory)
            except BaseException:
                file.close()
                raise
        return file, data

    def __enter__(self) -> StudyLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def asked(self, number: int, origin: str, knobs: Mapping[str, KnobValue]) -> TrialRecord:
        """Records that a trial is about to run."""
        event = Asked(time=now(), number=number, origin=origin, knobs=dict(knobs))
        self._append(event)
        _apply(event, self.data)
        return self.data.trials[number]

    def finished(self, result: TrialResult) -> TrialRecord:
        """Records the end of a trial, its series first: a line never refers to a missing file."""
        if result.series:
            with _disk(self.directory):
                path = _series_path(self.directory, result.number)
                write_atomically(path, json.dumps(result.series))
        event = Finished(time=now(), result=result.model_copy(update={"series": {}}))
        self._append(event)
        _apply(event, self.data)
        return self.data.trials[result.number]

    def checked(
        self,
        purpose: str,
        scenario: Scenario,
        knobs: Mapping[str, KnobValue],
        result: TrialResult,
    ) -> None:
        """Records the end of a check, without its series."""
        event = Checked(
            time=now(),
            purpose=purpose,
            scenario=scenario,
            knobs=dict(knobs),
            result=result.model_copy(update={"series": {}}),
        )
        self._append(event)
        _apply(event, self.data)

    def _append(self, event: Asked | Finished | Checked) -> None:
        line = event.model_dump_json().encode() + b"\n"
        with _disk(self.directory):
            before = os.fstat(self._file.fileno()).st_size
            try:
                written = self._file.write(line)
                if written != len(line):  # a nearly full disk takes part of a line
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(before)
                raise


def read_series(directory: Path, number: int) -> Series:
    """Time series of a trial. FileNotFoundError if it has none."""
    content: Series = json.loads(_series_path(directory, number).read_text())
    return content


def _series_path(directory: Path, number: int) -> Path:
    return directory / SERIES / f"{number:04d}.json"


@contextmanager
def _disk(directory: Path) -> Iterator[None]:
    """Turns a full disk, or one that cannot be written, into one clear message."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk is full: cannot write to {directory}; finished trials are safe, "
                "free some space and continue with --resume"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise UserError(f"cannot write to {directory}: {error.strerror}") from error
        raise


def _acquire(directory: Path) -> BinaryIO:
    """The lock file, held until closed. The kernel releases it when the process dies."""
    with _disk(directory):
        file = (directory / LOCK).open("a+b", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().decode(errors="replace").strip() or "unknown"
        file.close()
        raise UserError(
            f"another process (pid {owner}) is working on the study in {directory}"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())
    return file


def _read_header(directory: Path) -> StudyHeader:
    path = directory / HEADER
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"no study in {directory}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found not in READABLE:
        raise UserError(
            f"{path}: format {found}{' (of tiertune 0.1.0)' if found == 1 else ''}, this version "
            f"reads {' and '.join(map(str, READABLE))}; start another study with --name"
        )
    try:
        return StudyHeader.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: {error}") from error


def _parse(content: bytes, data: StudyData) -> int:
    """Adds all events to the data; returns the length of the content without a torn last line."""
    whole = content.rfind(b"\n") + 1
    for index, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            _apply(_EVENT.validate_json(line), data)
        except (ValueError, IndexError) as error:
            path = data.directory / EVENTS
            raise UserError(f"{path}, line {index}: not an event of a study: {error}") from error
    return whole


def _apply(event: Asked | Finished | Checked, data: StudyData) -> None:
    trials = data.trials
    if isinstance(event, Checked):
        data.checks.append(event)
        return
    if isinstance(event, Asked):
        if event.number != len(trials):
            raise ValueError(f"trial {event.number} asked where {len(trials)} is next")
        trials.append(TrialRecord(event.number, event.origin, event.knobs, event.time))
        return
    trial = trials[event.result.number]
    if trial.result is not None:
        raise ValueError(f"trial {trial.number} finished twice")
    trial.result = event.result
    trial.finished = event.time
