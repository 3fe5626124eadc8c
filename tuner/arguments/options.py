# SPDX-License-Identifier: MIT
"""Options that several commands have, and the types of their values. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from tuner.addresses import WAYS, holds_password
from tuner.errors import brief
from tuner.limits import (
    CONTAINER,
    CONTAINER_CPUS,
    CONTAINER_GIB,
    LEAST_GIB,
    MOST_GIB,
    MOST_NODES,
    MOST_SCALE,
    MOST_SECONDS,
    MOST_THREADS,
    MOST_WORKERS,
    PROCESS,
)

LIVE_OPTIONS = {
    "--warm-up": "warm_up",
    "--for": "measured_for",
    "--keep-running": "keep_running",
    "--pin": "pin",
    "--fast": "fast",
    "--slow": "slow",
    "--tierd": "tierd_options",
}
"""Those of --on live alone, with the names of their values."""


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
        action="append" if option.repeated else "store",
        type=_TYPES[types()[name]],
        choices=option.choices,
        metavar=option.metavar,
        required=required,
        help=option.help + ("" if default in (None, "") else f" (default: {exact(default)})"),
    )


def assignments(parser: argparse.ArgumentParser, over: str = "") -> None:
    """--set of the commands that take knobs, too."""
    from tuner.scenario import SIZES

    parser.add_argument(
        "--set",
        dest="sizes",
        action="append",
        metavar="NAME=VALUE",
        help=f"set a knob{over and ', '}{over}, or a size of the workload ({', '.join(SIZES)}; "
        "repeatable)",
    )


def recording(parser: argparse.ArgumentParser) -> None:
    """Of the commands that write a trace and its workload."""
    parser.add_argument(
        "--output",
        "-o",
        default="trace.tts",
        metavar="NAME.tts",
        help="trace to write (default: %(default)s)",
    )
    parser.add_argument(
        "--machine",
        default="skx",
        metavar="M",
        help="the machine for which it will be tuned; gives cache size and latency (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--block-ms",
        type=seconds,
        default=10.0,
        metavar="MS",
        help="length of a block of the trace (default: %(default)g)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing trace")


def stands_for(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Of the commands that make a recording of another size (tuner/record/stand_in.py)."""
    parser.add_argument(
        "--stands-for",
        type=memory,
        required=required,
        metavar="SIZE",
        help="memory of the server that the recorded program is a small copy of, as 200GiB, or how "
        "many times the copy's, as 16x, which also sets the size of the cache that is recorded "
        "behind: pages, cache, time and knobs are scaled together",
    )
    parser.add_argument(
        "--stretch-to",
        type=within(0, MOST_SECONDS),
        metavar="S",
        help="of what --stands-for makes: repeat a steady phase until it lasts S seconds (default: "
        "3 times what the policies look back; 0: leave its length)",
    )
    parser.add_argument(
        "--server-threads",
        type=count(MOST_THREADS),
        metavar="N",
        help="threads of the server that --stands-for means (default: as recorded)",
    )


def out(parser: argparse.ArgumentParser, holds: str = "folder of studies") -> None:
    parser.add_argument(
        "--out", default="results", metavar="DIR", help=f"{holds} (default: %(default)s)"
    )


def mlflow_uri(parser: argparse.ArgumentParser, folder: str = "OUT") -> None:
    parser.add_argument(
        "--mlflow-uri",
        type=address,
        metavar="URI",
        help=f"MLflow store (default: {folder}/mlflow.db)",
    )


def json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables",
        metavar="FILE",
        help="write the printed tables also to FILE, as its name ends: .csv or .md",
    )


def workers(
    parser: argparse.ArgumentParser, *, default: bool = True, most: int | None = None
) -> None:
    """Without `default` the number is None: of a command that may need no workers. `most` is that
    of one whose runs are over before many workers have started. What runs trials may do so quietly.
    """
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="show no progress on standard error; remarks and warnings stay",
    )
    processors = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--workers",
        type=count(MOST_WORKERS),
        default=(most or processors) if default else None,
        metavar="N",
        help="trials at a time (default: "
        + (f"{most})" if most else f"the CPUs of this machine, {processors})"),
    )
    parser.add_argument(
        "--ray-address", type=address, metavar="ADDRESS", help="use this Ray cluster"
    )
    parser.add_argument(
        "--runner",
        choices=(PROCESS, CONTAINER),
        default=PROCESS,
        help="what a trial runs in: a process, or a Docker container without network, privileges "
        "or a writable disk (default: %(default)s)",
    )
    parser.add_argument(
        "--image",
        help="image of the containers (default: tiertune:BUILD, which `make image` builds)",
    )
    parser.add_argument(
        "--memory",
        type=within(LEAST_GIB, MOST_GIB),
        metavar="GIB",
        help=f"memory that a container may use (default: {CONTAINER_GIB:g})",
    )
    parser.add_argument(
        "--cpus",
        type=within(LEAST_CPUS, MOST_CPUS),
        metavar="N",
        help=f"processors that a container may use (default: {CONTAINER_CPUS:g})",
    )


def command(parser: argparse.ArgumentParser, *, contained: bool = True) -> None:
    """Of the commands that measure a command of the user's, live or, if `contained`, also in a
    container."""
    container = ", or in a container of --image, in place of its entry point" if contained else ""
    group = parser.add_argument_group("a command of yours")
    group.add_argument(
        "--command",
        dest="trial_command",  # `command` is tune's own
        metavar="'WORDS'",
        help="what a trial runs in place of a simulation: on this machine's memory (--on live)"
        f"{container}. Its environment has TUNE_KNOB_name, TUNE_POLICY, TUNE_SEED and TUNE_TRIAL",
    )
    group.add_argument(
        "--metric",
        metavar="M",
        help="the objective: a regular expression for what --command prints (first group of its "
        "last match, with --for the mean of all; named groups are metrics); with --on live also "
        "`exit-time`, how long it takes, or `file:PATH`, a number that it writes",
    )
    group.add_argument(
        "--warm-up", type=duration, metavar="S", help="live: what it does first does not count"
    )
    group.add_argument(
        "--for",
        dest="measured_for",
        type=duration,
        metavar="S",
        help="live: how long it is measured, and then ended (default: it ends by itself)",
    )
    group.add_argument(
        "--keep-running",
        action="store_true",
        help="live: it stays up between trials, and only tierd is started anew; each trial begins "
        "with all of its pages in the slow tier",
    )
    group.add_argument(
        "--pin",
        type=nodes,
        metavar="CPUS",
        help="live: processors that it is bound to, such as 0-7 (default: all that tune may use, "
        "of those at the nodes of --fast if they are given)",
    )
    group.add_argument(
        "--fast",
        type=nodes,
        metavar="NODES",
        help="live: memory nodes of the fast tier, for tierd (default: as the firmware tells)",
    )
    group.add_argument("--slow", type=nodes, metavar="NODES", help="live: those of the slow tier")
    group.add_argument(
        "--tierd",
        dest="tierd_options",
        metavar="'OPTIONS'",
        help="live: further options of `tierd attach`, such as '--source damon --cpu 3%%'",
    )


def standing(parser: argparse.ArgumentParser, against: str) -> None:
    """Of the commands that compare a best.yaml with what is simpler. `against`: its default."""
    seeds = ("repeats", "seed")  # those of the study, so that others are held out
    group = scenario(parser, but=("workload", "policy", "substrate", "placement", *seeds))
    group.add_argument(
        "--workload",
        "-w",
        metavar="W",
        help="today's workload: a name, a YAML file, or a recording (FILE.tts, with its YAML file "
        "beside it) (default: the configuration's own, as it is now)",
    )
    parser.add_argument(
        "--against",
        metavar="P,...",
        help="other policies whose defaults are compared: each runs once, and the best of them on "
        f"all seeds; `all` or `none` (default: {against})",
    )
    run_deadline(parser)


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
LEAST_CPUS, MOST_CPUS = 0.01, 1024.0
MOST_PERCENT, MOST_PRICE = 1e6, 1e12
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


def nodes(text: str) -> list[int]:
    """Numbers of memory nodes, as the kernel lists them: 0-2,5."""
    found: list[int] = []
    for part in text[:_LONGEST].split(","):
        first, dash, last = part.partition("-")
        begin, end = (integer(each) for each in (first, last if dash else first))
        if not 0 <= begin <= end < MOST_NODES or (found and begin <= found[-1]):
            raise argparse.ArgumentTypeError(
                f"found '{brief(text)}'; must be a list of nodes such as 0-2,5"
            )
        found += range(begin, end + 1)
    return found


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


def duration(text: str) -> float:
    """Seconds, as 30 or 30s."""
    digits = text.removesuffix("s")
    try:
        float(digits)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"found '{brief(text)}'; must be seconds, such as 30 or 30s"
        ) from error
    return seconds(digits)


def usdt(text: str) -> str:
    """PROVIDER:BEGIN,END or PROVIDER:PROBE, as SystemTap names them."""
    if not re.fullmatch(r"\w+:\w+(,\w+)?", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"found '{brief(text)}'; must be PROVIDER:BEGIN,END or PROVIDER:PROBE, such as "
            "postgresql:query__start,query__done (`readelf -n` lists a program's)"
        )
    return text


_MEMORY = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def memory(text: str) -> str:
    """200GiB in bytes, or 16x as it is."""
    unit = text[-3:]
    if text.endswith("x"):
        return f"{within(1, MOST_SCALE)(text[:-1]):.17g}x"
    if unit not in _MEMORY:
        raise argparse.ArgumentTypeError(
            f"found '{brief(text)}'; must be a size in {', '.join(_MEMORY)}, such as 200GiB, or "
            "how many times what is recorded, such as 16x"
        )
    found = number(text[:-3]) * _MEMORY[unit]
    if not 0 < found <= MOST_GIB * _MEMORY["GiB"]:
        raise argparse.ArgumentTypeError(
            f"found {brief(text)}; must be more than 0 and at most {MOST_GIB:,}GiB"
        )
    return f"{found:.17g}"


def percent(text: str) -> float:
    """5% as 0.05. The sign is asked for: 0.05 could mean either."""
    digits = text.removesuffix("%")
    if digits == text:
        raise argparse.ArgumentTypeError(f"found {brief(text)}; must end in %, such as 5%")
    value = number(digits.rstrip())
    if not 0 <= value <= MOST_PERCENT:
        raise argparse.ArgumentTypeError(
            f"found {brief(text)}; must be from 0% to {MOST_PERCENT:,.0f}%"
        )
    return value / 100


def price(text: str) -> float:
    return within(0, MOST_PRICE)(text)


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
