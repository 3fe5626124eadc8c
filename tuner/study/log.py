# SPDX-License-Identifier: MIT
"""A study on disk: what was asked for, and everything that happened, in the order it happened.

    study.json        the complete request, what its results depend on, and the format's version
    trials.jsonl      one line per event, append-only: a trial asked for, a trial finished, a check;
                      each with a checksum and the hash of study.json (`tuner.study.events`)
    series/NNNN.json  time series of one trial
    lock              held by the one process that writes
    trials.jsonl.damaged  lines that `tune check --repair` has moved out of the log

The log is the only truth about a study. Everything else (MLflow, best.yaml, the report, SMAC's
model) is made from it and can be made again. A line is written and synced before anything acts on
it, so killing the process at any moment loses at most trials that had not finished; those are run
again under the same number with the same configuration. So is what a damaged line recorded.
"""

from __future__ import annotations

import json
import os
import zlib
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field, TypeAdapter, ValidationError

from tuner.declarations import KnobValue
from tuner.documents.reading import parse_json, parse_model, read_bytes, values_of
from tuner.errors import UserError, brief, one_line
from tuner.files import make_folder, plain, remove_leftovers, sync_directory, write_atomically
from tuner.limits import MOST_BUDGET, MOST_WORKERS
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.run.settings import checked_name
from tuner.run.trial import Status, TrialResult
from tuner.scenario import Scenario
from tuner.study import moved
from tuner.study.constraint import Bounds
from tuner.study.events import (
    Asked,
    Checked,
    Chosen,
    Ended,
    Event,
    Finished,
    ForeignEvent,
    first_problem,
    header_hash,
    lines_of,
    seal,
    unseal,
)
from tuner.study.events import TrialRecord as TrialRecord
from tuner.study.front import candidates
from tuner.study.lock import acquire, disk
from tuner.study.request import Fingerprints, StudyRequest

FORMAT = 4
"""Of study.json and the log. Earlier ones are refused: their lines have no checksum, and no engine
of now could go on with them. (0.1.0 wrote 1, 0.2.0 wrote 2.)"""

HEADER = moved.HEADER
EVENTS = "trials.jsonl"
SERIES = "series"

ELSEWHERE = "start another study with --name"

LARGEST_SERIES = 32 << 20
MOST_POINTS = 1_000_000
"""Of a trial's series."""
MOST_DAMAGE = 1000
"""Of what is damaged, so many are named."""

Series = dict[str, list[float]]
_SERIES = TypeAdapter(Series)


class StudyHeader(Model):
    """study.json. `lag` and `initial` are those of `Optimizer`: they stay when workers change."""

    format: int
    created: str  # ISO 8601, UTC
    request: StudyRequest
    fingerprints: Fingerprints
    stream: str  # key of the access stream
    lag: Annotated[int, Field(ge=1, le=MOST_WORKERS)]
    initial: Annotated[int, Field(ge=0, le=MOST_BUDGET)]
    git_commit: str | None = None


@dataclass
class StudyData:
    """A study as read from its directory. Trials are in the order of their numbers, checks in that
    in which they ended. `damage` has a line for each record that is left out, and why; the number
    of a trial may be missing then. `left_out` has the places of these records in the log, and
    `length` is that of its whole lines."""

    directory: Path
    header: StudyHeader
    trials: list[TrialRecord] = field(default_factory=list)
    checks: list[Checked] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    length: int = 0
    chosen: int | None = None  # the number of the trial that is recommended in place of the best
    lean: int | None = None  # that of the check or trial that lacks what adds nothing in it
    ended: str | None = None  # why there are no more trials, if the budget is not why

    @property
    def asked(self) -> int:
        """The number of the next trial."""
        return self.trials[-1].number + 1 if self.trials else 0

    @property
    def complete(self) -> bool:
        """Whether it has all the trials that it was to have when it began, or ended before."""
        due = len(self.trials) if self.ended else self.header.request.budget
        return len(self.done) >= due

    def trial(self, number: int) -> TrialRecord | None:
        index = bisect_left(self.trials, number, key=_number)
        found = self.trials[index : index + 1]
        return found[0] if found and found[0].number == number else None

    @property
    def done(self) -> list[TrialRecord]:
        return [trial for trial in self.trials if trial.result is not None]

    @property
    def best(self) -> TrialRecord | None:
        """The recommended trial, once it has been chosen among the best few; before that the best
        one. It has its own number also without changes that add nothing, but what it measured is
        that of the check without them."""
        chosen = None if self.chosen is None else self.trial(self.chosen)
        if chosen is None or not chosen.succeeded:
            return self.top
        return self._leaner(chosen) or chosen

    def _leaner(self, trial: TrialRecord) -> TrialRecord | None:
        if self.lean is None:
            return None
        if (other := self.trial(self.lean)) is not None:
            return replace(other, number=trial.number) if other.succeeded else None
        for check in self.checks:
            if check.result.number == self.lean and check.result.status is Status.success:
                return TrialRecord(
                    number=trial.number,
                    origin=trial.origin,
                    knobs={name: check.knobs[name] for name in trial.knobs},
                    asked=trial.asked,
                    finished=check.time,
                    result=check.result,
                    series=check.series,
                )
        return None

    @property
    def top(self) -> TrialRecord | None:
        """The best trial that succeeded and meets the constraints, the earliest of equals."""
        objective = OBJECTIVES[self.header.request.scenario.objective]
        good = [(objective.cost(t.objective), t.number, t) for t in candidates(self) if t.objective]
        return min(good)[2] if good else None

    @property
    def good(self) -> list[TrialRecord]:
        """The trials that succeeded and meet the constraints."""
        return self.bounds.kept(self.trials)

    @property
    def bounds(self) -> Bounds:
        """The constraints, with what the defaults have measured so far."""
        request, default = self.header.request, self.default
        return Bounds(request.constraints, request, default.result if default else None)

    @property
    def default(self) -> TrialRecord | None:
        """Trial 0, if it succeeded."""
        first = self.trial(0)
        return first if first is not None and first.succeeded else None

    def series(self, number: int) -> Series:
        """Time series of a finished trial; empty if it has none, or they are damaged."""
        trial = self.trial(number)
        return {} if trial is None else self.series_of(trial)

    def series_of(self, trial: TrialRecord) -> Series:
        """Likewise of a record, such as the best one, which may be that of a check."""
        if trial.series is None:
            return {}
        try:
            path = series_file(self.directory, trial)
            content = read_bytes(path, LARGEST_SERIES, follow=False)
            if zlib.crc32(content) != trial.series or values_of(content) > MOST_POINTS:
                return {}
            return _SERIES.validate_json(content)
        except (OSError, UserError, ValueError):
            return {}

    @property
    def with_series(self) -> list[TrialRecord]:
        """What the log knows of time series."""
        known = [*self.done, *filter(None, [self.best])]
        found = {series_file(self.directory, trial): trial for trial in known}
        return [trial for trial in found.values() if trial.series is not None]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def folder_of(study: str, out: Path) -> Path:
    """Of a study: the path of its folder, or its name in `out`. UserError for what is neither."""
    given = Path(study)
    return given if len(given.parts) > 1 else out / checked_name(study)


def missing(folder: Path) -> str:
    return (
        f"no study at {brief(str(folder.absolute()), 300)}; `tune run` makes one, --out names "
        "another folder of studies"
    )


def exists(directory: Path) -> bool:
    with disk(directory):
        return (directory / HEADER).exists()


def load(directory: Path) -> StudyData:
    """Reads a study, even while another process writes it. UserError if it is not readable, or its
    log is not of its study.json; single damaged lines are left out (`StudyData.damage`)."""
    header, key = read_header(directory)
    data = StudyData(directory, header)
    _parse(_lines(directory), data, key)
    return data


class StudyLog:
    """The one writer of a study's directory. Use as a context manager; holds the lock."""

    def __init__(self, directory: Path, header: StudyHeader | None = None) -> None:
        """Creates the study if `header` is given, else opens it.

        UserError if it exists already, is missing, is being written by another process, or cannot
        be read as `load` does. A torn last line (the process was killed in mid-write) is cut off.
        """
        self.directory = directory
        with disk(directory):
            make_folder(directory / SERIES)
        self._lock = acquire(directory)
        try:
            if header is not None:
                if exists(directory):
                    raise UserError(
                        f"study '{header.request.study}' already exists in {one_line(directory)}"
                    )
                _refuse_orphans(directory)
                with disk(directory):
                    write_atomically(directory / HEADER, header.model_dump_json(indent=1) + "\n")
            self._file, self.data, self._key = self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> tuple[BinaryIO, StudyData, str]:
        header, key = read_header(self.directory)
        data = StudyData(self.directory, header)
        with disk(self.directory):
            for folder in (self.directory, self.directory / SERIES):
                remove_leftovers(folder)
            _parse(_lines(self.directory), data, key)
            file = plain(self.directory / EVENTS, "ab", buffering=0)
            try:
                file.truncate(data.length)
                sync_directory(self.directory)
            except BaseException:
                file.close()
                raise
        return file, data, key

    def __enter__(self) -> StudyLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """What a disk says at last changes nothing: each line was synced when it was written."""
        for file in (self._file, self._lock):
            with suppress(OSError):
                file.close()

    def asked(self, number: int, origin: str, knobs: Mapping[str, KnobValue]) -> TrialRecord:
        """Records that a trial is about to run."""
        event = Asked(time=now(), number=number, origin=origin, knobs=dict(knobs))
        self._append(event)
        return _apply_asked(event, self.data)

    def finished(self, result: TrialResult) -> TrialRecord:
        """Records the end of a trial, its series first: a line never refers to a missing file."""
        crc = self._write_series(result)
        kept = result.model_copy(update={"series": {}})
        event = Finished(time=now(), result=kept, series=crc)
        self._append(event)
        return _apply_finished(event, self.data)

    def _write_series(self, result: TrialResult) -> int | None:
        if not result.series:
            return None
        content = json.dumps(result.series).encode()
        with disk(self.directory):
            write_atomically(series_path(self.directory, result.number), content)
        return zlib.crc32(content)

    def checked(
        self,
        purpose: str,
        scenario: Scenario,
        knobs: Mapping[str, KnobValue],
        result: TrialResult,
        *,
        series: bool = False,
    ) -> None:
        """Records the end of a check; its series only if they are asked for."""
        crc = self._write_series(result) if series else None
        event = Checked(
            time=now(),
            purpose=purpose,
            scenario=scenario,
            knobs=dict(knobs),
            result=result.model_copy(update={"series": {}}),
            series=crc,
        )
        self._append(event)
        self.data.checks.append(event)

    def chose(self, number: int, lean: int | None = None) -> None:
        """Records which trial is recommended; `lean`: the number of the check or trial that is it
        without changes that add nothing."""
        event = Chosen(time=now(), number=number, lean=lean)
        self._append(event)
        self.data.chosen, self.data.lean = number, lean

    def ended(self, reason: str) -> None:
        """Records why there are no more trials."""
        self._append(Ended(time=now(), reason=reason))
        self.data.ended = reason

    def _append(self, event: Event) -> None:
        line = seal(event, self._key)
        with disk(self.directory):
            before = os.fstat(self._file.fileno()).st_size
            try:
                while line:  # a nearly full disk takes part of a line, and says why next time
                    line = line[self._file.write(line) :]
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):  # else it is cut off when the study is opened again
                    self._file.truncate(before)
                raise


def series_path(directory: Path, number: int) -> Path:
    return directory / SERIES / f"{number:04d}.json"


def series_file(directory: Path, trial: TrialRecord) -> Path:
    """By what was measured, which may be a check."""
    return series_path(directory, trial.number if trial.result is None else trial.result.number)


def _number(trial: TrialRecord) -> int:
    return trial.number


def _refuse_orphans(directory: Path) -> None:
    """UserError for a log without a header: what its trials measured is not known."""
    if records := sum(1 for _ in _lines(directory)):
        raise UserError(
            f"{directory} has a log of {records} records ({EVENTS}) but no "
            f"{HEADER}, so what they measured is not known; put {HEADER} back, or {ELSEWHERE}"
        )


def read_header(directory: Path) -> tuple[StudyHeader, str]:
    """study.json, and the hash that the log's lines have of it."""
    path = directory / HEADER
    with disk(directory):
        try:
            text = read_bytes(path, moved.LARGEST, follow=False)
        except FileNotFoundError:
            _refuse_orphans(directory)
            raise UserError(f"no study in {one_line(directory)}") from None
    damaged = f"{path} is damaged; put it back from a copy, or {ELSEWHERE}"
    try:
        content = parse_json(text)
    except ValueError as error:
        raise UserError(f"{damaged} (not JSON: {error})") from error
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, int) and found != FORMAT:
        raise UserError(
            f"{path}: format {found}, this version reads {FORMAT}; {ELSEWHERE} (`tune best` and "
            "`tune sim --config` read its best.yaml all the same)"
        )
    try:
        header = parse_model(text, StudyHeader)
        request = moved.request_in(directory, header.request)
        return header.model_copy(update={"request": request}), header_hash(text)
    except ValidationError as error:
        raise UserError(f"{damaged} ({first_problem(error)})") from error


def _lines(directory: Path) -> Iterator[bytes]:
    """Those of the log, as `lines_of`; none if there is no log yet. UserError if it was lost."""
    with disk(directory):
        try:
            yield from lines_of(directory / EVENTS)
        except FileNotFoundError:
            if any((directory / SERIES).glob("*.json")):
                raise UserError(
                    f"{directory} has time series of finished trials but no {EVENTS}; put it "
                    f"back, or {ELSEWHERE}"
                ) from None


def _parse(lines: Iterable[bytes], data: StudyData, key: str) -> None:
    """Adds all events to the data.

    UserError if the log is of another header, or no line of several can be read.
    """
    path = data.directory / EVENTS
    count = damaged = 0

    def tell(what: str) -> None:
        nonlocal damaged
        damaged += 1
        if damaged <= MOST_DAMAGE:
            data.damage.append(what)

    for index, line in enumerate(lines):
        if not line.endswith(b"\n"):  # torn
            break
        count += 1
        data.length += len(line)
        try:
            event = unseal(line.removesuffix(b"\n"), key)
            if isinstance(event, Asked):
                _apply_asked(event, data)
            elif isinstance(event, Finished):
                _apply_finished(event, data)
            elif isinstance(event, Chosen):
                data.chosen, data.lean = event.number, event.lean
            elif isinstance(event, Ended):
                data.ended = event.reason
            else:
                data.checks.append(event)
        except ForeignEvent:
            raise UserError(
                f"{path}, line {count}: written under another {HEADER} than the one beside it, "
                f"which was replaced or changed; put the right one back, or {ELSEWHERE}"
            ) from None
        except ValueError as error:
            tell(f"{path}, line {count}: {error}; the record is left out")
            data.left_out.append(index)
    if count == len(data.left_out) > 1:
        raise UserError(f"{path}: none of its {count:,} lines can be read; {ELSEWHERE}")
    for number in range(data.asked):
        if data.trial(number) is None:
            tell(f"{path}: no record asks for trial {number}; it is asked for again")
    if damaged > MOST_DAMAGE:
        data.damage.append(f"{path}: and {damaged - MOST_DAMAGE:,} more like these")


def _apply_asked(event: Asked, data: StudyData) -> TrialRecord:
    if data.trial(event.number) is not None:
        raise ValueError(f"trial {event.number} was asked for before")
    trial = TrialRecord(event.number, event.origin, event.knobs, event.time)
    data.ended = None
    insort(data.trials, trial, key=_number)
    return trial


def _apply_finished(event: Finished, data: StudyData) -> TrialRecord:
    trial = data.trial(event.result.number)
    if trial is None:
        raise ValueError(f"trial {event.result.number} finished, but no record before asks for it")
    if trial.result is not None:
        raise ValueError(f"trial {trial.number} finished before")
    trial.result, trial.series, trial.finished = event.result, event.series, event.time
    data.chosen = data.lean = None
    return trial
