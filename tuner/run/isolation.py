# SPDX-License-Identifier: MIT
"""What a study's trials run in or are, if they are not simulated in the worker's own process: in
containers, or a command on the memory of a host. Imports no Docker SDK."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from tuner import engine
from tuner.errors import UserError
from tuner.limits import CONTAINER, CONTAINER_CPUS, CONTAINER_GIB
from tuner.model import Model, NonNegative, Positive


class Isolation(Model):
    """Containers of an image, and what one may use.

    With a `command`, that is what a trial runs, in an image that was `image_id`; `metric` is a
    regular expression whose first group is the objective in what it prints, and whose named groups
    are metrics. Without one the image has an engine, and a trial is simulated.
    """

    image: str
    memory_gib: Positive = CONTAINER_GIB
    cpus: Positive = CONTAINER_CPUS
    command: tuple[str, ...] | None = None
    metric: str | None = None
    image_id: str | None = None

    @property
    def measures(self) -> dict[str, Any] | None:
        """What results depend on; None if they are an engine's, which are the same anywhere."""
        if self.command is None:
            return None
        return self.model_dump(include={"command", "metric", "image_id", "memory_gib", "cpus"})

    def command_line(self) -> list[str]:
        """The options that ask for it."""
        words = ["--runner", CONTAINER, "--memory", f"{self.memory_gib:g}"]
        words += ["--cpus", f"{self.cpus:g}"]
        if self.image != default_image():
            words += ["--image", self.image]
        if self.command is not None:
            words += ["--command", shlex.join(self.command), "--metric", str(self.metric)]
        return words


LIVE_RESOURCE = "tiertune_live"
"""Of Ray's: a host of a cluster that has one runs a live trial at a time."""
EXIT_TIME, FILE = "exit-time", "file:"
"""Metrics that are no regular expression: how long the command takes, and what it writes."""


class Live(Model):
    """A command of the user's on the memory of a host, under tierd or a policy of the kernel's.

    Of what it says in `window_seconds` after `warm_up_seconds`, or until it ends, `metric` finds
    the objective. It is bound to `processors`. `keep_running`: it stays up from one trial to the
    next. `fast` and `slow` are the nodes of the tiers; `named` if tierd has to be told of them.
    `options` are further words for tierd. `host` is what other hosts must be like.
    """

    command: tuple[str, ...]
    metric: str
    warm_up_seconds: NonNegative = 0.0
    window_seconds: Positive | None = None
    keep_running: bool = False
    processors: tuple[int, ...] = ()
    fast: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()
    named: bool = False
    options: tuple[str, ...] = ()
    host: str

    @property
    def measures(self) -> dict[str, Any]:
        return self.model_dump()

    @property
    def nodes(self) -> list[str]:
        """tierd's options for the nodes of the tiers."""
        if not self.named:
            return []
        return ["--fast", _numbers(self.fast), "--slow", _numbers(self.slow)]

    def command_line(self) -> list[str]:
        """The options that ask for it."""
        words = ["--command", shlex.join(self.command), "--metric", self.metric, *self.nodes]
        words += ["--pin", _numbers(self.processors)]
        if self.warm_up_seconds:
            words += ["--warm-up", f"{self.warm_up_seconds:g}"]
        if self.window_seconds is not None:
            words += ["--for", f"{self.window_seconds:g}"]
        if self.options:
            words += ["--tierd", shlex.join(self.options)]
        return [*words, "--keep-running"] if self.keep_running else words


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def simulates(isolation: Isolation | Live | None) -> bool:
    """Whether trials there replay streams, rather than run a command of the user's."""
    return isolation is None or isolation.command is None


def words_of(option: str, command: str) -> tuple[str, ...]:
    """As a shell reads them. UserError if they are none."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(f"{option}: {error}") from error
    if not words:
        raise UserError(f"{option}: is empty")
    return words


def pattern(metric: str) -> str:
    """UserError if it is no regular expression with a group."""
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise UserError(f"--metric: found '{metric}'; {error}") from error
    if groups == 0:
        raise UserError(f"--metric: found '{metric}'; must have a group, such as 'Mops: ([0-9.]+)'")
    return metric


def default_image() -> str:
    """The one that `make image` builds of this checkout."""
    return f"tiertune:{engine.results_id()}"
