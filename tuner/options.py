# SPDX-License-Identifier: MIT
"""Options that several commands have, and the types of their values. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from tuner.addresses import WAYS, holds_password
from tuner.errors import brief
from tuner.scenario import MOST_GIB

PROCESS, CONTAINER = "process", "container"
CONTAINER_GIB, CONTAINER_CPUS = 4.0, 1.0
DEADLINE_SECONDS, EMULATED_DEADLINE_SECONDS = 600.0, 3600.0
"""Of a trial, unless it is given."""


def scenario(
    parser: argparse.ArgumentParser,
    *,
    required: Sequence[str] = (),
    but: Sequence[str] = (),
    comparable: bool = False,
) -> argparse._ArgumentGroup:
    """Options for the fields of a scenario, or only for those that comparable results share.
    Defaults are filled in later, when the documents are known."""
    from tuner.scenario import options

    group = parser.add_argument_group("scenario")
    for name, option in options().items():
        if name not in but and (option.comparable or not comparable):
            scenario_option(group, name, required=name in required)
    return group


def scenario_option(
    group: argparse._ActionsContainer, name: str, *, required: bool = False
) -> None:
    from tuner.scenario import declared_defaults, flag, options, types
    from tuner.text import exact

    option, default = options()[name], declared_defaults().get(name)
    group.add_argument(
        *(flag(name), *([option.short] if option.short else [])),
        dest=name,
        type=_TYPES[types()[name]],
        choices=option.choices,
        metavar=option.metavar,
        required=required,
        help=option.help + ("" if default in (None, "") else f" (default: {exact(default)})"),
    )


def recording(parser: argparse.ArgumentParser) -> None:
    """Of the commands that write a trace and its workload."""
    parser.add_argument(
        "--output", "-o", default="trace.tts", metavar="NAME.tts", help="default: %(default)s"
    )
    parser.add_argument(
        "--machine",
        default="skx",
        metavar="M",
        help="the machine on which it will be tuned: cache and latency (default: %(default)s)",
    )
    parser.add_argument(
        "--block-ms",
        type=seconds,
        default=10.0,
        metavar="MS",
        help="length of a block of the trace (default: %(default)g)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing trace")


def out(parser: argparse.ArgumentParser, holds: str = "folder of studies") -> None:
    parser.add_argument(
        "--out", default="results", metavar="DIR", help=f"{holds} (default: %(default)s)"
    )


def mlflow_uri(parser: argparse.ArgumentParser, folder: str = "OUT") -> None:
    parser.add_argument(
        "--mlflow-uri", type=address, metavar="URI", help=f"default: {folder}/mlflow.db"
    )


def json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=count(MOST_WORKERS),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="trials at a time (default: the CPUs of this machine, %(default)s)",
    )
    parser.add_argument(
        "--ray-address", type=address, metavar="ADDRESS", help="use this Ray cluster"
    )
    parser.add_argument(
        "--runner",
        choices=(PROCESS, CONTAINER),
        default=PROCESS,
        help="what a trial runs in: a process, or a Docker container without network, rights and a "
        "disk to write on (default: %(default)s)",
    )
    parser.add_argument(
        "--image", help="of the containers (default: tiertune:BUILD, which `make image` builds)"
    )
    parser.add_argument(
        "--memory",
        type=within(LEAST_GIB, MOST_GIB),
        metavar="GIB",
        help=f"that a container may use (default: {CONTAINER_GIB:g})",
    )
    parser.add_argument(
        "--cpus",
        type=within(LEAST_CPUS, MOST_CPUS),
        metavar="N",
        help=f"processors that a container may use (default: {CONTAINER_CPUS:g})",
    )


def run_deadline(parser: argparse.ArgumentParser) -> None:
    """Of the commands whose runs are not trials of a study."""
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=900.0,
        metavar="S",
        help="wall-clock seconds after which a run has failed (default: %(default)g)",
    )


# --- Types of values ------------------------------------------------------------------------------


# Far beyond what anybody needs, and small enough that nothing made of them overflows or fills the
# memory.
MOST_SECONDS = 1e9
MOST_WORKERS = 1024
LEAST_CPUS, MOST_CPUS = 0.01, 1024.0
LEAST_GIB = 0.01
_LONGEST = 100  # characters of a number


def integer(text: str) -> int:
    return int(_parsed(int, "integer", text))


def number(text: str) -> float:
    return _parsed(float, "number", text)


def _parsed(convert: Callable[[str], float], kind: str, text: str) -> float:
    try:
        value = convert(text) if len(text) <= _LONGEST else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"invalid {kind} value: '{brief(text)}'")
    return value


def address(text: str) -> str:
    """Of a server or a database, without a password."""
    if holds_password(text):
        raise argparse.ArgumentTypeError(
            f"holds a login or password, which would be stored and shown; leave it out: {WAYS}"
        )
    return text


def seconds(text: str) -> float:
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"found {text}; must be more than 0")
    return at_most(MOST_SECONDS, value, text)


def within(least: float, most: float) -> Callable[[str], float]:
    """A number from `least` to `most`."""

    def parse(text: str) -> float:
        value = number(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"found {text}; must be from {least:g} to {most:,.0f}")
        return value

    return parse


def count(most: int, *, least: int = 1) -> Callable[[str], int]:
    """`least` to `most` of something."""

    def parse(text: str) -> int:
        value = integer(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"found {text}; must be at least {least}")
        return int(at_most(most, value, text))

    return parse


def at_most(most: float, value: float, text: str) -> float:
    """The value, which `text` was."""
    if value > most:
        raise argparse.ArgumentTypeError(f"found {text}; must be at most {most:,.0f}")
    return value


_TYPES: dict[type, Callable[[str], Any]] = {str: str, int: integer, float: number}
