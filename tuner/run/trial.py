# SPDX-License-Identifier: MIT
"""A trial and its result: all that a worker needs to know, and all that it says."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from tuner.declarations import KnobValue, ParameterValue
from tuner.documents.machine import MachineSpec
from tuner.documents.placement import PlacementSpec
from tuner.model import Model, NonNegative, Positive, Scale, content_hash
from tuner.scenario import Scenario


class StreamRequest(Model):
    """Everything that makes an access stream; equal requests give equal bytes.

    `page_bytes` is that of the stream: the page size that the policy manages. `maker` is the
    kernel's `tuner._engine.stream_id()`: another recorder or kernel may make another stream, so it
    is part of the key.
    """

    workload: str
    input: str
    kernel: str
    parameters: dict[str, ParameterValue]
    scale: Scale
    page_bytes: int = 4096
    threads: Positive
    llc_bytes: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)] = 0
    maker: str

    @property
    def key(self) -> str:
        """Content hash. The names are labels: equal contents share one stream."""
        return content_hash(self.model_dump(exclude={"workload", "input"}))


class RecordedStream(Model):
    """A stream that was recorded or imported, and cannot be made again: there is only the file.

    `content` is its identity (`tuner._engine.stream_info()["identity"]`), so a file that was
    replaced is noticed.
    """

    workload: str
    input: str
    trace: str  # absolute
    content: str

    @property
    def key(self) -> str:
        return self.content


Stream = StreamRequest | RecordedStream


class Trial(Model):
    """One run of one configuration. Any worker on any host can run it from this alone.

    `placement` is what the scenario's file says. `coarse`: its fast tier may hold fewer simulated
    pages than the engine demands.
    """

    study: str
    number: Annotated[int, Field(ge=0)]
    scenario: Scenario
    knobs: dict[str, KnobValue]
    stream: Stream
    machine: MachineSpec
    placement: PlacementSpec | None = None
    operation: str | None = None
    coarse: bool = False
    deadline_seconds: Positive | None = None
    engine_build: str  # a worker with another engine refuses the trial
    emulated: str | None = None  # as does one with another emulated machine

    @property
    def workload(self) -> str:
        return self.stream.workload


class Status(StrEnum):
    success = "success"
    failed = "failed"  # the trial itself raised: a bad knob, no such operation, a bad stream
    timeout = "timeout"  # its deadline passed
    crashed = "crashed"  # its process or its host died


class TrialResult(Model):
    """The outcome of a trial. `objective` and `cost` are None unless the status is success.

    `cost` is positive and lower is better (`Objective.cost`). `latency` is in ns per kind of
    operation, `breakdown` in seconds of the timed part, `series` one value per virtual second;
    with repeats they are those of the median run, and `metrics` has the spread as `repeat.*`.
    `rows` are the policy's own tables, {"table": name, "cells": {column: value}} each.
    `log` is the end of what a trial that failed wrote on its standard error, in a container.
    `seconds` is wall time. `host_failed`: its host could not even begin it, another one might.
    """

    study: str
    number: Annotated[int, Field(ge=0)]
    status: Status
    objective: Positive | None = None
    cost: Positive | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    latency: dict[str, dict[str, float]] = Field(default_factory=dict)
    breakdown: dict[str, float] = Field(default_factory=dict)
    series: dict[str, list[float]] = Field(default_factory=dict)
    rows: list[dict[str, Any]] = Field(default_factory=list)
    error: str = ""
    log: str = ""
    seconds: NonNegative = 0
    engine_version: str = ""
    engine_build: str = ""
    host: str = ""
    host_failed: bool = False
