"""The lines of trials.jsonl: each an event as JSON, sealed.

A line ends with `"header"`, the hash of the study.json that it was written under, and `"crc"`, the
CRC-32 of all bytes before it. The checksum protects against flipped bits, lost or foreign blocks
and slips of an editor, not against somebody who wants to deceive. The hash keeps a log from being
read under the settings of another study, whose measurements are not comparable.
"""

from __future__ import annotations

import hashlib
import zlib
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from tuner.declarations import KnobValue
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


class Asked(Model):
    """A configuration was chosen for a trial. `knobs` are the tuned ones."""

    event: Literal["asked"] = "asked"
    time: Moment
    number: Annotated[int, Field(ge=0)]
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

    Nothing is written when one starts: which checks are to be run follows from the log.
    """

    event: Literal["checked"] = "checked"
    time: Moment
    purpose: str
    scenario: Scenario
    knobs: dict[str, KnobValue]
    result: Outcome


Event = Asked | Finished | Checked
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])

_HEADER = b',"header":"%b"}'
_CRC = b',"crc":"%08x"}'
_HEADER_BYTES, _CRC_BYTES = len(_HEADER % bytes(16)), len(_CRC % 0)


class ForeignEvent(Exception):
    """A line is whole, but was written under another study.json."""


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


def first_problem(error: ValidationError) -> str:
    """In one line, with its place."""
    first = error.errors(include_url=False)[0]
    return ": ".join([*filter(None, [".".join(map(str, first["loc"]))]), first["msg"]])
