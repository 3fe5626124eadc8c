# SPDX-License-Identifier: MIT
"""workloads/NAME.yaml: what runs, what is measured, and on which inputs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tuner.declarations import ParameterValue
from tuner.documents.document import Spec
from tuner.limits import MOST_THREADS
from tuner.model import Gib, Model, NonNegative, Scale, content_hash
from tuner.objective import OBJECTIVES
from tuner.scenario import SIZES, WINDOWS
from tuner.text import plural


def _objective_name(value: str) -> str:
    if value not in OBJECTIVES:
        raise ValueError(f"must be one of {', '.join(OBJECTIVES)}")
    return value


def _window_name(value: str) -> str:
    if value not in WINDOWS:
        raise ValueError(f"must be one of {', '.join(WINDOWS)}")
    return value


WindowName = Annotated[str, AfterValidator(_window_name)]
ObjectiveName = Annotated[str, AfterValidator(_objective_name)]


class StandsFor(Model):
    """What a recording stands for: a server with `factor` times the memory that was recorded.

    Its pages are each one of so many, and its time is longer by as much (by more or less where it
    has another number of threads than `recorded_threads`). `passes`: how often the steady part of
    the recording comes, from `steady_from` to `steady_to` (s of what was recorded, as if all memory
    were fast); any two windows of it are `alike` at least (engine/record/windows.hpp). `llc_mib` is
    the cache behind which it was recorded, where that is known.
    """

    factor: Annotated[float, Field(ge=1)]
    recorded_gib: Gib
    recorded_seconds: NonNegative
    recorded_threads: Annotated[float, Field(ge=1, le=MOST_THREADS)]
    llc_mib: NonNegative | None = None
    passes: Annotated[int, Field(ge=1)] = 1
    steady_from: NonNegative | None = None
    steady_to: NonNegative | None = None
    alike: Annotated[float, Field(ge=0, le=1)] | None = None

    def describe(self) -> str:
        """stands for 16 times the 1.03 GiB that were recorded, ..."""
        memory, time = f"{self.recorded_gib:.3g} GiB", f"{self.recorded_seconds:.3g} s"
        told = (
            f"stands for {self.factor:.4g} times the {memory} and {time} that were recorded"
            if self.factor > 1
            else f"has the {memory} that were recorded, and more than their {time}"
        )
        if self.passes == 1 or self.steady_from is None or self.steady_to is None:
            return told
        return (
            f"{told}; the part from {self.steady_from:.3g} to {self.steady_to:.3g} s comes "
            f"{self.passes:,} times (which pages are hot in its windows is alike by "
            f"{self.alike or 0:.2f} or more)"
        )


class Sampling(Model):
    """How a recorded stream was sampled before it was expanded to all accesses, and what of the
    program it lacks.

    `probability` is the share of accesses that were sampled, where there is one; `error_share` is
    the relative standard error of a page's count that results (0: exact). `dropped` observations
    could not be kept; of `cut_short` processes the recording ended before they did; `unseen` ones
    could not be recorded, and others `outlived` the program, which `signal` ended. It may have
    `ended_after` so many seconds, when that was asked for, while the program went on. Above a
    `dropped_share` of `dropped_allowed` the recording is not used.
    """

    MISSING: ClassVar = (
        "dropped",
        "dropped_share",
        "disk_full",
        "cut_short",
        "unseen",
        "outlived",
        "signal",
    )

    sampler: str
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    samples: Annotated[int, Field(ge=0)]
    error_share: NonNegative
    dropped: Annotated[int, Field(ge=0)] = 0
    dropped_share: Annotated[float, Field(ge=0, le=1)] = 0
    dropped_allowed: Annotated[float, Field(ge=0, le=1)] = 0.1
    disk_full: bool = False
    cut_short: Annotated[int, Field(ge=0)] = 0
    unseen: Annotated[int, Field(ge=0)] = 0
    outlived: Annotated[int, Field(ge=0)] = 0
    signal: Annotated[int, Field(ge=1, le=64)] | None = None
    ended_after: Annotated[float, Field(gt=0)] | None = None
    stands_for: StandsFor | None = None

    @model_serializer(mode="wrap")
    def _stated(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what nobody stated: it is not known that an import has everything."""
        return {name: v for name, v in whole(self).items() if name in self.model_fields_set}

    @property
    def missing(self) -> list[str]:
        """What the recording lacks, a clause each."""
        found = []
        if self.dropped:
            found.append(
                f"{plural(self.dropped, 'observation')} could not be kept "
                f"({self.dropped_share:.2g} of all)"
            )
        if self.disk_full:
            found.append("the disk filled up: the trace holds what came before")
        if self.signal is not None:
            found.append(f"signal {self.signal} ended the program")
        if self.cut_short:
            found.append(
                f"the recording of {plural(self.cut_short, 'process')} was cut short: the trace "
                "holds what came before"
            )
        if self.unseen:
            found.append(
                f"{plural(self.unseen, 'process')} could not be recorded, nor what "
                f"{'it' if self.unseen == 1 else 'they'} started"
            )
        if self.outlived:
            found.append(
                f"{plural(self.outlived, 'process')} outlived the program: what came after its end "
                "was not seen"
            )
        return found

    def describe(self) -> str:
        """sampled by pebs: 52,000 samples, one access in 1,000; ..."""
        told = self._seen()
        if self.ended_after is not None:
            told += f"; it ended after {self.ended_after:g} s, as was asked, before the program did"
        return f"{told}; it {self.stands_for.describe()}" if self.stands_for else told

    def _seen(self) -> str:
        if self.error_share == 0:
            if self.missing:
                return f"recorded by {self.sampler}, not whole: {'; '.join(self.missing)}"
            if self.probability is None:
                return f"read from {self.sampler}: {self.samples:,} rows, taken for all there were"
            return f"recorded whole by {self.sampler}: all {self.samples:,} accesses were seen"
        rate = "" if self.probability is None else f", one access in {1 / self.probability:,.4g}"
        uncertain = (
            f"sampled by {self.sampler}: {self.samples:,} samples{rate}; the count of a page is "
            f"uncertain by {self.error_share:.2g} of itself (standard error)"
        )
        return "; ".join([uncertain, *self.missing])


BASE_PAGE_BYTES = 4096
LATENCIES = tuple(name for name in OBJECTIVES if name.startswith("p"))
"""Objectives that need operations."""


class SizesSpec(Model):
    """What `--set` makes larger and smaller: for each of its names the kernel's parameters that
    grow in proportion, by their declared unit. The first ones of `items` and of `value_bytes` are
    themselves that number and that size.

    Memory in use is in proportion to the items, and of an item it is the value and what the input's
    own figures leave beside it. Where `footprint_gib` lists parameters, a limit of memory is
    configured: then it is in proportion to the values, too.
    """

    footprint_gib: list[str] = Field(default_factory=list)
    items: list[str] = Field(default_factory=list)
    value_bytes: list[str] = Field(default_factory=list)
    threads: list[str] = Field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """What can be set."""
        found = [name for name in SIZES if getattr(self, name)]
        memory = ["footprint_gib"] if self.items and not self.footprint_gib else []
        return memory + found


class InputSpec(Model):
    """One input of a workload: full-scale values for its kernel's parameters, or a recording.

    `huge_scale` is R of its runs with 2 MiB pages, of which a fast tier must hold 256 too; without
    it their R is that of all runs. `coarse` says that a run may do with fewer simulated fast
    pages: it shows that things work, and its figures mean little (smoke inputs).

    `sizes` and `operation`, if there are any, replace those of the workload.

    `trace` is the recording's file, relative to the YAML file's folder (the catalog makes it
    absolute). `content` is the recording's identity: the catalog reads it from the file, and
    refuses a document that states another.
    """

    summary: str
    scale: Scale | None = None
    huge_scale: Scale | None = None
    coarse: bool = False
    footprint_gib: Gib | None = None
    window: WindowName | None = None
    operation: str | None = None
    parameters: dict[str, ParameterValue] = Field(default_factory=dict)
    sizes: SizesSpec | None = None
    trace: str | None = None
    content: str | None = None
    sampling: Sampling | None = None

    @model_validator(mode="after")
    def _one_scale(self) -> InputSpec:
        if self.trace is not None and self.huge_scale is not None:
            raise ValueError("huge_scale: a recording has one scale; leave it out")
        return self


class WorkloadSpec(Spec):
    """workloads/NAME.yaml: what runs, what is measured, and on which inputs.

    A workload has a `kernel` that makes its streams, or none, and each input names a recording.
    `scale` is R of the simulated miniature: one simulated page stands for R real ones.
    `operation` is the kind of operation whose latency counts; None where there is none. Where there
    is one, all latencies are objectives, beside those that `objectives` lists. `window` is
    the part of a run that is scored, as the publications score it.
    """

    kernel: str | None = None
    operation: str | None = None
    objective: ObjectiveName
    objectives: Annotated[list[ObjectiveName], Field(min_length=1)]
    footprint_gib: Gib
    scale: Scale
    threads: Annotated[float, Field(ge=1, le=MOST_THREADS)]
    machine: str
    default_input: str
    smoke_input: str
    window: WindowName = "all"
    sizes: SizesSpec | None = None
    inputs: Annotated[dict[str, InputSpec], Field(min_length=1)]

    def footprint_of(self, input: str) -> float:
        """GiB, full-scale."""
        return self.inputs[input].footprint_gib or self.footprint_gib

    def scale_of(self, input: str, page_bytes: int = BASE_PAGE_BYTES) -> float:
        """R of runs whose policy manages pages of so many bytes."""
        spec = self.inputs[input]
        huge = spec.huge_scale if page_bytes > BASE_PAGE_BYTES else None
        return huge or spec.scale or self.scale

    def sizes_of(self, input: str) -> SizesSpec | None:
        return self.inputs[input].sizes or self.sizes

    def operation_of(self, input: str) -> str | None:
        return self.inputs[input].operation or self.operation

    def objectives_of(self, input: str) -> list[str]:
        """All that a run of it can be scored by."""
        latencies = LATENCIES if self.operation_of(input) else ()
        return list(dict.fromkeys((self.objective, *self.objectives, *latencies)))

    def window_of(self, input: str) -> str:
        return self.inputs[input].window or self.window

    def fingerprint(self) -> str:
        """Of a recording only the content counts, not its place or what is said about it; and of
        sizes only the parameters that they have given."""
        content = self.model_dump(exclude={"summary", "sources", "notes", "sizes"})
        for input in content["inputs"].values():
            del input["trace"], input["sampling"], input["sizes"]
            del input["coarse"]  # whether a run is refused, not what comes out
            for name in ("content", "huge_scale", "operation"):
                if input[name] is None:
                    del input[name]
        return content_hash(content)
