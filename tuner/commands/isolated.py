# SPDX-License-Identifier: MIT
"""`--runner` and what belongs to it: what a study's trials run in."""

from __future__ import annotations

from argparse import Namespace

from tuner.arguments.options import LIVE_OPTIONS
from tuner.errors import UserError
from tuner.limits import CONTAINER, CONTAINER_CPUS, CONTAINER_GIB, PROCESS
from tuner.run import container
from tuner.run.isolation import Isolation, default_image, pattern, words_of
from tuner.scenario import EMULATED, LIVE


def asked(args: Namespace) -> Isolation | None:
    """What the command line asks for. UserError if it does not fit together, or if this machine
    cannot run such containers, unless a cluster's machines are to."""
    for name, dest in LIVE_OPTIONS.items():
        if getattr(args, dest, None):
            raise UserError(f"{name}: is of --on {LIVE}")
    command, metric = getattr(args, "trial_command", None), getattr(args, "metric", None)
    if args.runner == CONTAINER and getattr(args, "substrate", None) == EMULATED:
        raise UserError(f"--runner {CONTAINER}: the emulated machine has an isolation of its own")
    if args.runner == PROCESS:
        given = {"image": args.image, "memory": args.memory, "cpus": args.cpus}
        for name, value in (given | {"command": command, "metric": metric}).items():
            if value is not None:
                raise UserError(f"--{name}: needs --runner {CONTAINER}")
        return None
    if (command is None) != (metric is None):
        raise UserError("--command and --metric: found one of them; a command needs both")
    if command is not None and args.image is None:
        raise UserError("--command: the image that has it must be given with --image")
    image = args.image or default_image()
    image_id = None
    if args.ray_address is None or command is not None:
        image_id = container.image_id(image)
    return Isolation(
        image=image,
        memory_gib=args.memory or CONTAINER_GIB,
        cpus=args.cpus or CONTAINER_CPUS,
        command=None if command is None else words_of("--command", command),
        metric=None if metric is None else pattern(metric),
        image_id=None if command is None else image_id,
    )
