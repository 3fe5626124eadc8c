# SPDX-License-Identifier: MIT
"""The lines of trials.jsonl: each an event as JSON, sealed.

A line ends with `"header"`, the hash of the study.json that it was written under, and `"crc"`, the
CRC-32 of all bytes before it. The checksum protects against flipped bits, lost or foreign blocks
and slips of an editor, not against somebody who wants to deceive. The hash keeps a log from being
read under the settings of another study, whose measurements are not comparable.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from tuner.declarations import KnobValue
from tuner.documents.reading import opened, values_of
from tuner.errors import UserError
from tuner.limits import MOST_BUDGET
from tuner.model import Model
from tuner.run.trial import Status, TrialResult
from tuner.scenario import Scenario


def _moment(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("must have a time zone")
    return value


def _complete(result: TrialResult) -> TrialResult:
    success = result.status is Status.success
    if any((value is not None) != success for value in (result.objective, result.cost)):
        raise ValueError("objective and cost belong to a success, and to nothing else")
    return result


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, with a time zone
Outcome = Annotated[TrialResult, AfterValidator(_complete)]


@dataclass
class TrialRecord:
    """One trial as the log has it; `result` is None while it runs, and has no series: the file that
    has them has the CRC-32 `series`."""

    number: int
    origin: str
    knobs: dict[str, KnobValue]
    asked: str
    finished: str | None = None
    result: TrialResult | None = None
    series: int | None = None

    @property
    def objective(self) -> float | None:
        return None if self.result is None else self.result.objective

    @property
    def succeeded(self) -> bool:
        return self.result is not None and self.result.status is Status.success


class Asked(Model):
    """A configuration was chosen for a trial. `knobs` are the tuned ones."""

    event: Literal["asked"] = "asked"
    time: Moment
    number: Annotated[int, Field(ge=0, lt=MOST_BUDGET)]
    origin: str
    knobs: dict[str, KnobValue]


class Finished(Model):
    """A trial ended, well or badly. The result's series are kept beside the log, in a file with the
    CRC-32 `series`."""

    event: Literal["finished"] = "finished"
    time: Moment
    result: Outcome
    series: int | None = None


class Checked(Model):
    """A run beside the search ended: of a reference, of another policy, on a held-out seed, or to
    explain the best configuration. `knobs` are all of its policy's.

    Nothing is written when one starts: which checks are to be run follows from the log. Few have
    `series`, as a trial's.
    """

    event: Literal["checked"] = "checked"
    time: Moment
    purpose: str
    scenario: Scenario
    knobs: dict[str, KnobValue]
    result: Outcome
    series: int | None = None


class Chosen(Model):
    """Of the best few trials, the one to recommend: it gains most where conditions differ a little.
    `lean` is the number of a check or trial of the study's own scenario that has its configuration
    without changes that add nothing: that is recommended then. It holds until another trial
    ends."""

    event: Literal["chosen"] = "chosen"
    time: Moment
    number: Annotated[int, Field(ge=0, lt=MOST_BUDGET)]
    lean: int | None = None


class Ended(Model):
    """The search has ended before its budget, and why. It holds until another trial is asked
    for."""

    event: Literal["ended"] = "ended"
    time: Moment
    reason: str


Event = Asked | Finished | Checked | Chosen | Ended
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])

_HEADER = b',"header":"%b"}'
_CRC = b',"crc":"%08x"}'
_HEADER_BYTES, _CRC_BYTES = len(_HEADER % bytes(16)), len(_CRC % 0)


class ForeignEvent(Exception):
    """A line is whole, but was written under another study.json."""


LARGEST_LOG = 512 << 20
"""Bytes; a trial takes some 3 kB."""
LONGEST_LINE = 4 << 20
MOST_LINES = 4 * MOST_BUDGET
"""Two for each trial, and the checks."""
MOST_VALUES = 100 * MOST_BUDGET
"""Of all lines; each takes some 100 bytes of memory."""


def lines_of(path: Path) -> Iterator[bytes]:
    """Lines of a log; all but a torn last one end with a newline. UserError if the file is larger
    than any study's; OSError."""
    size = values = 0
    with opened(path, follow=False) as file:
        for number in itertools.count(1):
            if not (line := file.readline(LONGEST_LINE + 1)):
                return
            size += len(line)
            values += values_of(line)
            for found, most, unit in (
                (len(line), LONGEST_LINE, "bytes in a line"),
                (number, MOST_LINES, "lines"),
                (size, LARGEST_LOG, "bytes"),
                (values, MOST_VALUES, "values"),
            ):
                if found > most:
                    raise UserError(f"{path}, line {number}: found more than {most:,} {unit}")
            yield line


def header_hash(content: bytes) -> str:
    """Of the bytes of a study.json: 16 hex digits."""
    return hashlib.sha256(content).hexdigest()[:16]


def seal(event: Event, header: str) -> bytes:
    """The line of an event, with its newline."""
    body = event.model_dump_json().encode().removesuffix(b"}") + _HEADER % header.encode()
    body = body.removesuffix(b"}")
    return body + _CRC % zlib.crc32(body) + b"\n"


def unseal(line: bytes, header: str) -> Event:
    """The event of a line without its newline. ValueError saying in one line what is wrong with a
    damaged one; ForeignEvent."""
    body, crc = line[:-_CRC_BYTES], line[-_CRC_BYTES:]
    if crc != _CRC % zlib.crc32(body):
        raise ValueError("its checksum does not fit")
    body += b"}"
    text, found = body[:-_HEADER_BYTES], body[-_HEADER_BYTES:]
    if found != _HEADER % header.encode():
        raise ForeignEvent
    try:
        return _EVENT.validate_json(text + b"}")
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error


def resealed(line: bytes, old: str, new: str) -> bytes:
    """A line, with its newline, that was written under the hash `old`, under the hash `new`. A
    damaged one stays as it is."""
    seal = _HEADER % old.encode()
    body, crc = line[: -_CRC_BYTES - 1], line[-_CRC_BYTES - 1 : -1]
    if crc != _CRC % zlib.crc32(body) or not (body + b"}").endswith(seal):
        return line
    body = (body + b"}").removesuffix(seal) + (_HEADER % new.encode()).removesuffix(b"}")
    return body + _CRC % zlib.crc32(body) + b"\n"


def first_problem(error: ValidationError) -> str:
    """In one line, with its place."""
    first = error.errors(include_url=False)[0]
    return ": ".join([*filter(None, [".".join(map(str, first["loc"]))]), first["msg"]])
