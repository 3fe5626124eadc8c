"""The arguments of each command. Nothing heavy is imported, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from typing import Any


def _run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tunes the knobs of a policy for a workload on a simulated tiered machine: references and "
        "the other policies' defaults first, then a Bayesian search. Ends with what to do: use the "
        "best configuration, keep the defaults, use another policy, or leave tiering off."
    )
    group = _scenario(parser, required=("workload",), but=("policy",))
    group.add_argument(
        "--policy",
        metavar="P[,P...]",
        help="tiering policy; several, or `all`: a study each with the whole budget, and a "
        f"comparison (default: {_default_policy()})",
    )
    parser.add_argument("--space", help="name or YAML file of the knobs' ranges (default: policy)")
    parser.add_argument(
        "--budget", type=_positive, default=100, metavar="N", help="trials (default: %(default)s)"
    )
    _workers(parser)
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="wall-clock seconds after which a trial has failed (default: %(default)g)",
    )
    parser.add_argument(
        "--importance",
        default="default-slice",
        metavar="METHOD",
        help="how to score the knobs: default-slice (variance of the predicted cost while one knob "
        "moves and the others keep their defaults), default-range (its range), or impurity (of the "
        "forest's splits, which includes interactions) (default: %(default)s)",
    )
    parser.add_argument(
        "--no-explain",
        dest="explain",
        action="store_false",
        help="leave out the runs at the end that measure which changes made the difference",
    )
    parser.add_argument(
        "--held-out-streams",
        action="store_true",
        help="give each held-out seed an access stream of its own as well (making one takes up to "
        "a minute)",
    )
    _out(parser)
    parser.add_argument("--name", help="name of the study (default: made from the options)")
    parser.add_argument("--resume", action="store_true", help="continue a study that was stopped")
    parser.add_argument("--mlflow-uri", metavar="URI", help="default: OUT/mlflow.db")
    _json(parser)


def _default_policy() -> str:
    from tuner.scenario import Scenario

    return Scenario.policy


def _workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=_positive,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="trials at a time (default: the CPUs of this machine, %(default)s)",
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="use this Ray cluster")


def _sim(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload once under one configuration and shows where the time goes. With "
        "--config, checks that the objective in the file is reproduced exactly."
    )
    what = _scenario(parser, but=("policy",)).add_mutually_exclusive_group()
    what.add_argument("--config", metavar="FILE", help="a best.yaml")
    _scenario_option(what, "policy")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="set a knob, over the default or over --config (repeatable)",
    )
    parser.add_argument(
        "--deadline", type=_seconds, metavar="S", help="give up after S wall-clock seconds"
    )
    parser.add_argument("--series", metavar="FILE", help="write the time series as CSV")
    parser.add_argument(
        "--sensitivity",
        nargs="*",
        metavar="ESTIMATE[=V,V]",
        help="run every policy with its defaults while the machine's estimated figures vary, one "
        "at a time, and tell whether the order of the policies survives (default: all estimates, "
        "over their plausible ranges)",
    )
    _workers(parser)
    _json(parser)


def _best(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the best configuration that the studies of a folder have found. Only results of "
        "the same conditions are compared; each default is that of `tune run`."
    )
    _scenario(parser, required=("workload",), comparable=True)
    parser.add_argument("--policy", metavar="P", help="only of this policy (default: of any)")
    _out(parser)
    _json(parser)


def _smoke(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Makes the smoke input of every workload and runs every policy on it: the default "
        "configuration, and two random ones from the policy's space if it has knobs. Any error "
        "fails the command. Takes well under a minute on two CPUs."
    )
    parser.add_argument("--policy", action="append", help="only this one (repeatable)")
    parser.add_argument("--workload", "-w", action="append", help="only this one (repeatable)")
    parser.add_argument("--workers", type=_positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0, help="of the random configurations")
    _json(parser)


def _claims(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Checks published results against the simulator: runs what the claims need and prints a "
        "verdict for each. Without ids and --quick it writes claims.json and claims.md."
    )
    parser.add_argument("id", nargs="*", help="only these claims")
    parser.add_argument("--quick", action="store_true", help="only claims of a few small runs")
    parser.add_argument("--list", action="store_true", help="list the claims and run nothing")
    parser.add_argument(
        "--cached", action="store_true", help="run nothing: judge by what has run before"
    )
    parser.add_argument(
        "--output", "-o", metavar="DIR", help="write claims.json and claims.md (default: results)"
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="compare with an earlier claims.json; exit code 1 if a verdict got worse",
    )
    parser.add_argument("--claims", metavar="DIR", help="folder of claims (default: the shipped)")
    parser.add_argument("--workers", type=_positive, default=len(os.sched_getaffinity(0)))
    _json(parser)


def _record(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a program under a sampler and writes its memory accesses as a workload. The program "
        "keeps its standard streams, its signals and its exit status, which is also that of this "
        "command."
    )
    parser.usage = "tune record [options] -- command [args...]"
    _recording(parser)
    parser.add_argument(
        "--sampler", default="emulation", metavar="S", help="`tune samplers` (default: %(default)s)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="set an option of the sampler (repeatable)",
    )
    parser.add_argument(
        "--set-up",
        type=_seconds,
        default=0.0,
        metavar="S",
        help="the first S seconds (on the sampler's clock) are set-up: replayed, but not timed",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON; the program's output goes to standard error",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="command", help="what to run")


def _import(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads the output of another tool and writes it as a workload: a trace and its YAML file. "
        "Nothing is written unless all of the input was understood."
    )
    parser.add_argument("file", metavar="FILE", help="what to read, gzipped or not; - for stdin")
    parser.add_argument(
        "--format",
        required=True,
        choices=("perf-script", "damon", "lackey", "csv"),
        help="of the input",
    )
    _recording(parser)
    expansion = parser.add_mutually_exclusive_group()
    expansion.add_argument(
        "--period",
        type=_number,
        metavar="N",
        help="accesses that one observation stands for (default: what the input says, else 1)",
    )
    expansion.add_argument(
        "--probability", type=_number, metavar="P", help="of an access to be observed: 1 / period"
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        metavar="N",
        help="that the program ran on (default: the busiest second of perf-script, else 1)",
    )
    _json(parser)


def _knobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY")
    _json(parser)


def _workloads(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the workloads with the figures of their access streams: how much memory is in use, "
        "how often it is accessed, and how few pages get most of the accesses. Figures of the "
        "shipped workloads are measured; those of your own appear once --measure or a trial has "
        "made the stream."
    )
    parser.add_argument(
        "workload", nargs="*", metavar="W[:I]", help="list all inputs of these (or this one)"
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="make the streams (up to a minute each) of what is listed and missing or stale, "
        "measure them, and keep the figures in characteristics.json beside the YAML file",
    )
    _json(parser)


def _workload(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="draw the memory accesses of a workload",
        description="Draws a heat map of accesses over pages and time, the hotness curve and the "
        "allocation sites as PNG, and prints the figures. Makes the workload's stream if it is not "
        "cached.",
        allow_abbrev=False,
    )
    show.add_argument("workload", metavar="W", help="name or YAML file")
    show.add_argument("--input", "-i", metavar="I", help="input of the workload")
    show.add_argument(
        "--compare",
        nargs="+",
        default=[],
        metavar="W[:I]",
        help="draw the hotness of these into the same picture",
    )
    _out(show, "folder of W-I/*.png")
    _json(show)


def _cache(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists or clears the access streams in TIERTUNE_CACHE (default: ~/.cache/tiertune). The "
        "cache is kept below TIERTUNE_CACHE_GIB (default: 32): streams of another engine build are "
        "removed first, then the least recently used."
    )
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    parser.add_argument(
        "--stale", action="store_true", help="clear only what another engine build made"
    )
    _json(parser)


def _ui(parser: argparse.ArgumentParser) -> None:
    _out(parser)
    parser.add_argument("--mlflow-uri", metavar="URI", help="default: OUT/mlflow.db")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=_positive, default=5000, help="default: %(default)s")


# --- Options that several commands have -----------------------------------------------------------


def _scenario(
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
            _scenario_option(group, name, required=name in required)
    return group


def _scenario_option(
    group: argparse._ActionsContainer, name: str, *, required: bool = False
) -> None:
    from tuner.scenario import declared_defaults, flag, options, types
    from tuner.text import exact

    option, default = options()[name], declared_defaults().get(name)
    group.add_argument(
        *(flag(name), *([option.short] if option.short else [])),
        type=_TYPES[types()[name]],
        choices=option.choices,
        metavar=option.metavar,
        required=required,
        help=option.help + ("" if default is None else f" (default: {exact(default)})"),
    )


def _recording(parser: argparse.ArgumentParser) -> None:
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
        type=_seconds,
        default=10.0,
        metavar="MS",
        help="length of a block of the trace (default: %(default)g)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing trace")


def _out(parser: argparse.ArgumentParser, holds: str = "folder of studies") -> None:
    parser.add_argument(
        "--out", default="results", metavar="DIR", help=f"{holds} (default: %(default)s)"
    )


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


# --- Types of values ------------------------------------------------------------------------------


def _integer(text: str) -> int:
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"found {text}; must be more than 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}; must be at least 1")
    return value


_TYPES: dict[type, Callable[[str], Any]] = {str: str, int: _integer, float: _number}

for _type in (_number, _seconds):
    _type.__name__ = "number"  # argparse says "invalid number value: 'x'"
for _type in (_integer, _positive):
    _type.__name__ = "integer"


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("find good knobs for a workload", _run),
    "sim": ("run one configuration", _sim),
    "best": ("print the best known configuration of a workload", _best),
    "smoke": ("a few trials of every policy on every workload's smoke input", _smoke),
    "claims": ("check published results against the simulator", _claims),
    "record": ("record a program of your own as a workload", _record),
    "samplers": ("list the ways to record a program", _json),
    "import": ("make a workload of another tool's output", _import),
    "policies": ("list the tiering policies", _json),
    "knobs": ("list the knobs of a policy", _knobs),
    "workloads": ("list the workloads and their inputs", _workloads),
    "workload": ("draw a workload: `tune workload show W`", _workload),
    "machines": ("list the machine profiles", _json),
    "cache": ("list or clear the cached access streams", _cache),
    "ui": ("open the studies in the MLflow UI", _ui),
}
"""What each command is for, and what declares its arguments. It runs in `tuner.commands`."""
