# SPDX-License-Identifier: MIT
"""What a study's trials run in, if not in the worker's own process. Imports no Docker SDK."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from typing import Any

from tuner import engine
from tuner.errors import UserError
from tuner.model import Model, Positive
from tuner.options import CONTAINER, CONTAINER_CPUS, CONTAINER_GIB, PROCESS
from tuner.scenario import EMULATED


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


def simulates(isolation: Isolation | None) -> bool:
    """Whether trials there replay streams, rather than run a command of the user's."""
    return isolation is None or isolation.command is None


def asked(args: Namespace) -> Isolation | None:
    """What the command line asks for. UserError if it does not fit together, or if this machine
    cannot run such containers, unless a cluster's machines are to."""
    command, metric = getattr(args, "trial_command", None), getattr(args, "metric", None)
    if args.runner == CONTAINER and getattr(args, "substrate", None) == EMULATED:
        raise UserError(f"--runner {CONTAINER}: the emulated machine has an isolation of its own")
    if args.runner == PROCESS:
        given = {"image": args.image, "memory": args.memory, "cpus": args.cpus}
        for name, value in (given | {"command": command, "metric": metric}).items():
            if value is not None:
                raise UserError(f"--{name}: is of --runner {CONTAINER}")
        return None
    if (command is None) != (metric is None):
        raise UserError("--command and --metric: found one of them; a command needs both")
    if command is not None and args.image is None:
        raise UserError("--command: the image that has it must be given with --image")
    image = args.image or default_image()
    image_id = None
    if args.ray_address is None or command is not None:
        from tuner.run import container

        image_id = container.image_id(image)
    return Isolation(
        image=image,
        memory_gib=args.memory or CONTAINER_GIB,
        cpus=args.cpus or CONTAINER_CPUS,
        command=None if command is None else _words(command),
        metric=None if metric is None else _pattern(metric),
        image_id=None if command is None else image_id,
    )


def _words(command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UserError(f"--command: {error}") from error
    if not words:
        raise UserError("--command: is empty")
    return words


def _pattern(metric: str) -> str:
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
