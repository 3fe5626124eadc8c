"""The command line. Only the arguments are here: each command imports what it needs when it runs,
so that `tune --help` answers at once.

Exit codes: 0 done, 1 the command ran and failed (or a defect of ours), 2 the user can put it right,
130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence

EPILOG = """\
examples:
  tune run --workload cachelib --budget 100     find good knobs for a workload
  tune best --workload cachelib                 print the best known configuration
  tune sim --workload cachelib --config best.yaml   replay it
  tune record -o mine.tts -- ./program args     record a program of your own
  tune knobs hybridtier                         what can be set, and what it means
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The `tune` command; returns its exit code."""
    parser = _parser()
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments:
        parser.print_help()
        return 0
    from tuner.errors import UserError

    try:
        args = parser.parse_args(arguments)
        if args.version:
            return _version(args.version_json)
        if args.version_json:
            parser.error("--json goes behind the command, or with --version")
        if args.command is None:
            parser.error("the following arguments are required: COMMAND")
        module, function = args.command.split(":")
        run: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(f"tuner.{module}"), function
        )
        code = run(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"tune: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tune: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _version(as_json: bool) -> int:
    """Asks the engine, and only when asked: loading it takes a while."""
    from tuner import engine

    if as_json:
        import json
        import platform

        facts = {
            "version": engine.version(),
            "engine_build": engine.build_id(),
            "isa": engine.isa(),
            "isas": engine.supported_isas(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        print(json.dumps(facts))
    else:
        print(f"tune {engine.version()} (engine build {engine.build_id()}, {engine.isa()} loops)")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tune",
        description="Finds, explains and replays the best configuration of a memory-tiering "
        "engine, per workload.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="store_true",
        help="print version, engine build and instruction set; with --json as an object",
    )
    parser.add_argument("--json", action="store_true", dest="version_json", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    parser.set_defaults(command=None)

    def command(name: str, target: str, help: str, **more: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=help, description=more.get("description", help), allow_abbrev=False
        )
        sub.set_defaults(command=target)
        return sub

    run = command(
        "run",
        "launch:run",
        "find good knobs for a workload",
        description="Tunes the knobs of a policy for a workload on a simulated tiered machine: "
        "the default configuration first, then a Bayesian search.",
    )
    _target_options(run, workload_required=True)
    run.add_argument("--policy", default="hybridtier", help="what to tune (default: %(default)s)")
    run.add_argument("--space", help="name or YAML file of the knobs' ranges (default: the policy)")
    run.add_argument(
        "--budget", type=_positive, default=100, metavar="N", help="trials (default: %(default)s)"
    )
    run.add_argument(
        "--workers",
        type=_positive,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="trials at a time (default: the CPUs of this machine, %(default)s)",
    )
    run.add_argument(
        "--deadline",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="seconds after which a trial counts as timed out (default: %(default)g)",
    )
    _out_option(run)
    run.add_argument("--name", help="name of the study (default: made from the parameters)")
    run.add_argument("--resume", action="store_true", help="go on with a study that was stopped")
    run.add_argument("--ray-address", metavar="ADDRESS", help="use this Ray cluster")
    run.add_argument("--mlflow-uri", metavar="URI", help="default: OUT/mlflow.db")
    _json_option(run)

    sim = command(
        "sim",
        "replay:sim",
        "run one configuration",
        description="Replays a workload under one configuration and shows where the time goes. "
        "With --config, checks that the recorded objective is reproduced exactly.",
    )
    _target_options(sim, workload_required=False)
    what = sim.add_mutually_exclusive_group()
    what.add_argument("--config", metavar="FILE", help="a best.yaml")
    what.add_argument("--policy", help="a policy (default: hybridtier)")
    sim.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="set a knob, over the default or over --config (repeatable)",
    )
    sim.add_argument("--deadline", type=_seconds, metavar="S", help="give up after so many seconds")
    sim.add_argument("--series", metavar="FILE", help="write the per-second time series as CSV")
    _json_option(sim)

    best = command("best", "known:best", "print the best known configuration of a workload")
    best.add_argument("--workload", "-w", required=True, metavar="W", help="name or YAML file")
    best.add_argument("--policy", help="only of this policy (default: of any)")
    best.add_argument("--input", "-i", help="only of this input (default: as `tune run`)")
    for option in ("machine", "ratio", "objective"):
        best.add_argument(f"--{option}", help=f"only of this {option} (default: as `tune run`)")
    best.add_argument("--threads", type=_number, metavar="N", help="only of so many threads")
    best.add_argument("--scale", type=_number, metavar="R", help="only of this scale")
    _out_option(best)
    _json_option(best)

    smoke = command(
        "smoke",
        "smoke:smoke",
        "a few trials of every policy on every workload's smoke input",
        description="Makes the smoke input of every workload and runs every policy on it: the "
        "default configuration, and two random ones from the policy's space if it has knobs. "
        "Any error fails the command. Takes well under a minute on two CPUs.",
    )
    smoke.add_argument("--policy", action="append", help="only this one (repeatable)")
    smoke.add_argument("--workload", "-w", action="append", help="only this one (repeatable)")
    smoke.add_argument("--workers", type=_positive, default=len(os.sched_getaffinity(0)))
    smoke.add_argument("--seed", type=_seed, default=0, help="of the random configurations")
    _json_option(smoke)

    record = command(
        "record",
        "record:record",
        "record a program of your own as a workload",
        description="Runs a program under a sampler and writes what it does to memory as a "
        "workload. The program keeps its standard streams, its signals and its exit status, which "
        "is also ours.",
    )
    record.usage = "tune record [options] -- command [args...]"
    record.add_argument(
        "--output", "-o", default="trace.tts", metavar="NAME.tts", help="default: %(default)s"
    )
    record.add_argument(
        "--sampler", default="emulation", metavar="S", help="`tune samplers` (default: %(default)s)"
    )
    record.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="set an option of the sampler (repeatable)",
    )
    record.add_argument(
        "--machine",
        default="skx",
        metavar="M",
        help="the machine on which it will be tuned: cache and latency (default: %(default)s)",
    )
    record.add_argument(
        "--block-ms",
        type=_seconds,
        default=10.0,
        metavar="MS",
        help="length of a block of the trace (default: %(default)g)",
    )
    record.add_argument(
        "--set-up",
        type=_seconds,
        default=0.0,
        metavar="S",
        help="the first S seconds (on the sampler's clock) are set-up: replayed, but not timed",
    )
    record.add_argument("--force", action="store_true", help="replace an existing trace")
    record.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON; the program's output goes to standard error",
    )
    record.add_argument("program", nargs=argparse.REMAINDER, metavar="command", help="what to run")
    _json_option(command("samplers", "record:listing", "list the ways to record a program"))

    importer = command(
        "import",
        "importers:run",
        "make a workload of what another tool saw of a program",
        description="Reads the output of another tool and writes it as a workload: a trace and its "
        "YAML file. Nothing is written unless all of the input was understood.",
    )
    importer.add_argument("file", metavar="FILE", help="what to read, gzipped or not; - for stdin")
    importer.add_argument(
        "--format",
        required=True,
        choices=("perf-script", "damon", "lackey", "csv"),
        help="of the input",
    )
    importer.add_argument(
        "--output", "-o", default="trace.tts", metavar="NAME.tts", help="default: %(default)s"
    )
    expansion = importer.add_mutually_exclusive_group()
    expansion.add_argument(
        "--period",
        type=_number,
        metavar="N",
        help="accesses that one observation stands for (default: what the input says, else 1)",
    )
    expansion.add_argument(
        "--probability", type=_number, metavar="P", help="of an access to be observed: 1 / period"
    )
    importer.add_argument(
        "--threads",
        type=_positive,
        metavar="N",
        help="that the program ran on (default: the busiest second of perf-script, else 1)",
    )
    importer.add_argument(
        "--machine",
        default="skx",
        metavar="M",
        help="the machine on which it will be tuned: cache and latency (default: %(default)s)",
    )
    importer.add_argument(
        "--block-ms",
        type=_seconds,
        default=10.0,
        metavar="MS",
        help="length of a block of the trace (default: %(default)g)",
    )
    importer.add_argument("--force", action="store_true", help="replace an existing trace")
    _json_option(importer)

    _json_option(command("policies", "listing:policies", "list the tiering policies"))
    knobs = command("knobs", "listing:knobs", "list the knobs of a policy")
    knobs.add_argument("policy", metavar="POLICY")
    _json_option(knobs)
    workloads = command(
        "workloads",
        "listing:workloads",
        "list the workloads and their inputs",
        description="Lists the workloads with what their streams are like: how much memory is in "
        "use, how often it is accessed, and how few pages get most of the accesses. Figures of the "
        "shipped workloads were measured; those of your own appear once --measure or a trial has "
        "made the stream.",
    )
    workloads.add_argument(
        "workload", nargs="*", metavar="W[:I]", help="list all inputs of these (or this one)"
    )
    workloads.add_argument(
        "--measure",
        action="store_true",
        help="make the streams (up to a minute each) of what is listed and missing or stale, "
        "measure them, and keep the figures in characteristics.json beside the YAML file",
    )
    _json_option(workloads)
    workload = commands.add_parser(
        "workload", help="draw a workload: `tune workload show W`", allow_abbrev=False
    ).add_subparsers(metavar="ACTION", required=True)
    drawn = workload.add_parser(
        "show",
        help="draw what a workload does to memory",
        description="Draws a heat map of accesses over pages and time, the hotness curve and the "
        "allocation sites as PNG, and prints the figures. Makes the workload's stream if it is not "
        "cached.",
        allow_abbrev=False,
    )
    drawn.set_defaults(command="show:show")
    drawn.add_argument("workload", metavar="W", help="name or YAML file")
    drawn.add_argument("--input", "-i", metavar="I", help="input of the workload")
    drawn.add_argument(
        "--compare",
        nargs="+",
        default=[],
        metavar="W[:I]",
        help="draw the hotness of these into the same picture",
    )
    _out_option(drawn, "folder of W-I/*.png")
    _json_option(drawn)
    _json_option(command("machines", "listing:machines", "list the machine profiles"))
    cache = command(
        "cache",
        "listing:cache",
        "list or clear the cached access streams",
        description="Lists or clears the access streams in TIERTUNE_CACHE (default: "
        "~/.cache/tiertune). The cache is kept below TIERTUNE_CACHE_GIB (default: 32): streams "
        "that another engine build made go first, then those that were not used for longest.",
    )
    cache.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    cache.add_argument(
        "--stale", action="store_true", help="clear only what another engine build made"
    )
    _json_option(cache)

    ui = command("ui", "ui:ui", "open the studies in the MLflow UI")
    _out_option(ui)
    ui.add_argument("--mlflow-uri", metavar="URI", help="default: OUT/mlflow.db")
    ui.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    ui.add_argument("--port", type=_positive, default=5000, help="default: %(default)s")
    return parser


def _target_options(parser: argparse.ArgumentParser, *, workload_required: bool) -> None:
    """What runs where; everything that is left out has the workload's default."""
    group = parser.add_argument_group("what runs where")
    group.add_argument(
        "--workload", "-w", metavar="W", required=workload_required, help="name or YAML file"
    )
    group.add_argument("--input", "-i", metavar="I", help="input of the workload")
    group.add_argument("--machine", metavar="M", help="name or YAML file of a machine profile")
    group.add_argument("--ratio", metavar="F:S", help="fast to slow capacity (default: 1:8)")
    group.add_argument("--objective", metavar="O", help="throughput, runtime, p50, p90, p99, p999")
    group.add_argument("--threads", type=_number, metavar="N", help="application threads")
    group.add_argument("--scale", type=_number, metavar="R", help="real pages per simulated page")
    group.add_argument(
        "--page-bytes", type=int, choices=(4096, 2 << 20), help="managed page (default: policy's)"
    )
    group.add_argument("--repeats", type=_positive, metavar="N", help="runs per trial; the median")
    group.add_argument("--seed", type=_seed, metavar="N", help="of search and sampling (default 0)")
    group.add_argument("--stream-seed", type=_seed, metavar="N", help="of the workload (default 0)")


def _out_option(parser: argparse.ArgumentParser, holds: str = "folder of studies") -> None:
    parser.add_argument(
        "--out", default="results", metavar="DIR", help=f"{holds} (default: %(default)s)"
    )


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"found {text}; must be more than 0 seconds")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}; must be at least 1")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"found {text}; must be 0 or more")
    return value


for _type, _told in ((_number, "number"), (_seconds, "number"), (_positive, "integer")):
    _type.__name__ = _told  # argparse says "invalid number value: 'x'"
_seed.__name__ = "integer"
