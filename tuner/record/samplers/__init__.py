# SPDX-License-Identifier: MIT
"""Samplers: ways to see which memory a real program touches.

A sampler gets code inside the program (an emulator's plugin) or observes it from outside (a ring
buffer of the kernel), and leaves one spool per process in the recording's folder
(`engine/record/spool.hpp`). `tune record` starts the program, waits for it, and makes the stream; a
sampler only says how to start it. One that `attaches` watches processes that run
(`tuner/commands/attach.py`). Each has a page of documentation beside its module.

A new sampler is one module with a subclass of `Sampler`, and one line in `_MODULES`.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tuner import engine
from tuner.arguments.options import number
from tuner.documents.machine import MachineSpec
from tuner.errors import UserError, brief, nearest, unknown

_MODULES = {
    "emulation": "tuner.record.samplers.emulation:Emulation",
    "pebs": "tuner.record.samplers.pebs:Pebs",
    "damon": "tuner.record.samplers.damon:Damon",
}
"""Where each sampler lives; the first is the default. Imported only when asked for."""

FOLDER_VARIABLE = "TIERTUNE_RECORD"
"""Environment of the program: the folder for spools."""
START_VARIABLE = "TIERTUNE_RECORD_START_NS"
"""Environment of the program: CLOCK_MONOTONIC, in ns, when the recording began."""

CLOCK = "clock"
"""A file of that folder: how far the processes of a recording are, and what their threads have
taken in all, in ns (engine/record/plugin/observer.cpp)."""


@dataclass(frozen=True)
class Option:
    """A number that the user may set with --set NAME=VALUE. Limits are inclusive.

    `default` None: it follows from the machine (`Sampler.from_machine`).
    """

    name: str
    default: float | None
    min: float
    max: float
    unit: str
    meaning: str


def numbers(words: Sequence[str]) -> dict[str, float]:
    """Of --set NAME=VALUE. UserError for what is none."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {brief(word)}: expected NAME=VALUE")
        try:
            given[name] = number(value)
        except ArgumentTypeError as error:
            raise UserError(f"--set {name}: found '{brief(value)}'; must be a number") from error
    return given


def values_of(
    who: str,
    options: Sequence[Option],
    given: Mapping[str, float],
    missing: Callable[[str], float],
) -> dict[str, float]:
    """All options of `who`: the given ones, checked, and defaults; `missing` gives those without.
    UserError for an unknown one or one beyond its limits."""
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            raise UserError(
                f"{who}: no option '{name}'{nearest(name, known)} "
                f"(options: {', '.join(known) or 'none'})"
            )
    values: dict[str, float] = {}
    for option in options:
        value = given.get(option.name, option.default)
        if value is None:
            value = missing(option.name)
        if not option.min <= value <= option.max:
            raise UserError(
                f"{who}: option {option.name}: found {value:g}, allowed "
                f"{option.min:g} to {option.max:g} {option.unit}".rstrip()
            )
        values[option.name] = value
    return values


@dataclass(frozen=True)
class StreamClass:
    """Accesses that share a degree of memory-level parallelism (`engine/trace/stream.hpp`, which
    has the fields)."""

    name: str
    mlp: float
    issue_ns: float = 0
    store_fill: float = 1
    prefetched: float = 0
    translation: float = 1


# No sampler sees how far misses overlap: estimates of the engine (engine/trace/overlap.hpp).
_PATTERNS = engine.patterns()
RANDOM = StreamClass("random", **_PATTERNS["random"])
SEQUENTIAL = StreamClass("sequential", **_PATTERNS["sequential"])
DEPENDENT = StreamClass("dependent", **_PATTERNS["dependent"])
RESIDENT = StreamClass("resident", mlp=RANDOM.mlp, store_fill=0)
"""Stores to lines that were in the cache."""

CYCLES_PER_INSTRUCTION = 0.5
"""While nothing waits for memory: the clock of a program whose real one was not recorded."""


@dataclass(frozen=True)
class Launch:
    """How to start the program. `environment` is added to the user's own."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Sampler(ABC):
    """One way to record; an instance serves one recording.

    `wall_time`: the program runs at full speed, so the clock shows how long it computed; otherwise
    the sampler writes that itself (`compute` records). `classes` are the stream's classes, by the
    indices that records have.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    classes: ClassVar[tuple[StreamClass, ...]]
    wall_time: ClassVar[bool]
    operations: ClassVar[bool] = False
    """It sees where operations of the program begin and end: at marks of `tiertune.h`, or at the
    USDT probes of `usdt`."""
    usdt: str | None = None
    settles: ClassVar[float] = 0.0
    """Seconds that it takes to end a recording whose program goes on."""
    until_ns: int | None = None
    """When it ends such a recording by itself, on CLOCK_MONOTONIC."""
    attaches: ClassVar[bool] = False
    """It watches processes that run (`tune record --pid`), and does not start any."""

    def __init__(self, given: Mapping[str, float], machine: MachineSpec) -> None:
        """`given`: some of the options. UserError for an unknown one or one beyond its limits."""
        self.values = values_of(
            f"sampler {self.name}",
            self.options,
            given,
            lambda name: self.from_machine(name, machine),
        )

    def from_machine(self, name: str, machine: MachineSpec) -> float:
        """The default of an option that depends on the machine."""
        raise NotImplementedError(f"{self.name}: option {name} has no default")

    @classmethod
    def unavailable(cls) -> str | None:
        """Why this sampler cannot run here, and what the user can do; None if it can."""
        return None

    @abstractmethod
    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        """How to start `command` so that it writes spools into `folder`. The program also finds
        FOLDER_VARIABLE and START_VARIABLE in its environment."""

    def attach(self, pid: int) -> None:  # noqa: B027 - most samplers have nothing to do
        """Called when the process exists but has not begun the command (before its `exec`)."""

    def detach(self) -> None:  # noqa: B027
        """Called when the program has ended, before its spools are read; also after a failure."""

    def slowdown(self, folder: Path, seconds: float) -> float | None:
        """How many times as long the program takes as without the recorder, when it has taken so
        many seconds of processor time so far; None: hardly longer, or that is not known."""
        return None

    def remarks(self) -> list[str]:
        """Sentences for the summary that are specific to this sampler, after `detach`."""
        return []


def names() -> list[str]:
    """The default first."""
    return list(_MODULES)


def find(name: str) -> type[Sampler]:
    """UserError naming the known ones."""
    if name not in _MODULES:
        raise unknown("sampler", name, _MODULES)
    module, _, found = _MODULES[name].partition(":")
    sampler: type[Sampler] = getattr(importlib.import_module(module), found)
    return sampler


def program_head(path: Path) -> bytes:
    """The first bytes of a program: an ELF header, or `#!`. UserError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def interpreter(head: bytes) -> list[str]:
    """Of a script: the program that runs it, and that program's argument if there is one, as the
    kernel reads them. Empty: not a script."""
    if not head.startswith(b"#!"):
        return []
    return [word.strip() for word in os.fsdecode(head[2:].splitlines()[0]).split(maxsplit=1)]


def library(name: str) -> Path:
    """A shared library that was built with the engine, in `lib` beside it."""
    path = Path(engine.native().__file__).resolve().parent / "lib" / name
    if not path.is_file():
        raise UserError(f"{path} is missing: install the package again (`pip install .`)")
    return path
