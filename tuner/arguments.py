# SPDX-License-Identifier: MIT
"""The arguments of each command. Nothing heavy is imported, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from tuner import upkeep
from tuner.options import (
    DEADLINE_SECONDS,
    EMULATED_DEADLINE_SECONDS,
    MOST_WORKERS,
    count,
    integer,
    json,
    mlflow_uri,
    number,
    out,
    recording,
    run_deadline,
    scenario,
    scenario_option,
    seconds,
    workers,
)
from tuner.scenario import MOST_BUDGET, MOST_SEEDS, MOST_THREADS


def _run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tunes the knobs of a policy for a workload on a simulated tiered machine: references and "
        "the other policies' defaults first, then a Bayesian search. Ends with what to do: use the "
        "best configuration, keep the defaults, use another policy, or leave tiering off."
    )
    group = scenario(parser, required=("workload",), but=("policy",))
    group.add_argument(
        "--policy",
        metavar="P[,P...]",
        help="tiering policy; several, or `all`: a study each with the whole budget, and a "
        f"comparison (default: {_default_policy()})",
    )
    parser.add_argument("--space", help="name or YAML file of the knobs' ranges (default: policy)")
    parser.add_argument(
        "--budget",
        type=count(MOST_BUDGET),
        default=100,
        metavar="N",
        help="trials (default: %(default)s)",
    )
    workers(parser)
    parser.add_argument(
        "--command",
        dest="trial_command",  # `command` is tune's own
        metavar="'WORDS'",
        help="what a trial runs in a container of --image, in place of its entry point and of a "
        "simulation; its environment has TUNE_KNOB_name, TUNE_POLICY, TUNE_SEED and TUNE_TRIAL",
    )
    parser.add_argument(
        "--metric",
        metavar="REGEX",
        help="finds the objective in what --command prints: the first group of its last match; "
        "named groups are metrics",
    )
    parser.add_argument(
        "--deadline",
        type=seconds,
        metavar="S",
        help="wall-clock seconds after which a trial has failed (default: "
        f"{DEADLINE_SECONDS:g}; on the emulated machine {EMULATED_DEADLINE_SECONDS:g})",
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
        "--explain",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether to measure, in runs at the end, which changes made the difference (default: "
        "yes, but not on the emulated machine, where each takes minutes)",
    )
    parser.add_argument(
        "--held-out-streams",
        action="store_true",
        help="give each held-out seed an access stream of its own as well (making one takes up to "
        "a minute)",
    )
    out(parser)
    parser.add_argument("--name", help="name of the study (default: made from the options)")
    parser.add_argument("--resume", action="store_true", help="continue a study that was stopped")
    mlflow_uri(parser)
    json(parser)


def _default_policy() -> str:
    from tuner.scenario import Scenario

    return Scenario.policy


def _sim(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload once under one configuration and shows where the time goes. With "
        "--config, checks that the objective in the file is reproduced exactly."
    )
    what = scenario(parser, but=("policy",)).add_mutually_exclusive_group()
    what.add_argument("--config", metavar="FILE", help="a best.yaml")
    scenario_option(what, "policy")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="set a knob, over the default or over --config (repeatable)",
    )
    parser.add_argument(
        "--deadline", type=seconds, metavar="S", help="give up after S wall-clock seconds"
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
    workers(parser)
    json(parser)


def _best(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the best configuration that the studies of a folder have found. Only results of "
        "the same conditions are compared; each default is that of `tune run`."
    )
    scenario(parser, required=("workload",), comparable=True)
    parser.add_argument("--policy", metavar="P", help="only of this policy (default: of any)")
    out(parser)
    json(parser)


def _smoke(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Makes the smoke input of every workload and runs every policy on it: the default "
        "configuration, and two random ones from the policy's space if it has knobs. Any error "
        "fails the command. Takes a few minutes on two CPUs."
    )
    parser.add_argument("--policy", action="append", help="only this one (repeatable)")
    parser.add_argument("--workload", "-w", action="append", help="only this one (repeatable)")
    parser.add_argument("--workers", type=count(MOST_WORKERS), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=integer, default=0, help="of the random configurations")
    json(parser)


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
    parser.add_argument(
        "--update",
        action="store_true",
        help="keep the figures of DIR/claims.json, and run only the named claims and those that "
        "are new or ask for other runs",
    )
    parser.add_argument("--claims", metavar="DIR", help="folder of claims (default: the shipped)")
    parser.add_argument("--workers", type=count(MOST_WORKERS), default=len(os.sched_getaffinity(0)))
    json(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs policies on several workloads and ratios, and prints tables of their performance "
        "over first-touch, with all-fast as the upper bound and static-hot as an oracle. Writes "
        "OUT/compare-NAME with compare.csv, .json, .md and .png. What ran before is not run again: "
        "the same command goes on where one was stopped."
    )
    parser.add_argument(
        "--workloads", required=True, metavar="W[:I],...", help="with their inputs, or `all`"
    )
    parser.add_argument(
        "--policies",
        default="all",
        metavar="P,...",
        help="tiering policies, or `all` that have knobs (default: %(default)s); P@BYTES for pages "
        "of another size than the policy's, as hemem@4096",
    )
    parser.add_argument(
        "--ratios",
        default="1:16,1:8,1:4",
        metavar="F:S,...",
        help="fast to slow capacities (default: %(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=count(MOST_SEEDS),
        default=3,
        metavar="K",
        help="sampling seeds of each cell (default: %(default)s)",
    )
    parser.add_argument(
        "--tuned",
        type=count(MOST_BUDGET),
        metavar="N",
        help="also tune every policy on every workload with N trials each, and compare the best "
        "configurations, on seeds that the searches have not seen",
    )
    parser.add_argument(
        "--tune-ratio",
        default="1:8",
        metavar="F:S",
        help="at which --tuned searches (default: %(default)s)",
    )
    one_run = (
        *("workload", "input", "policy", "substrate", "ratio", "fast_gib"),
        *("placement", "repeats", "seed"),
    )
    scenario(parser, but=one_run)
    run_deadline(parser)
    workers(parser)
    out(parser, "folder of compare-NAME")
    parser.add_argument("--name", help="of the comparison (default: made from the options)")
    parser.add_argument(
        "--update",
        action="store_true",
        help="add to the comparison that OUT/compare-NAME has: its workloads stay, with the "
        "figures that were measured under the same conditions, by whichever engine build",
    )
    mlflow_uri(parser)
    json(parser)


def _fleet(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tunes many workloads, machines, ratios and policies as one plan on one pool of workers. "
        "Every study gets a few trials, and what is left of the budget goes to those that still "
        "gain. Writes OUT/NAME with a folder for each study and fleet.md, .json and .png over all. "
        "The same command goes on where one was stopped."
    )
    parser.add_argument(
        "file", metavar="FILE.yaml", help="the plan: docs/fleet.md lists what it may say"
    )
    workers(parser)
    out(parser, "folder of NAME")
    parser.add_argument("--name", help="of the fleet (default: the file's)")
    mlflow_uri(parser, "OUT/NAME")
    parser.add_argument(
        "--dry-run", action="store_true", help="show studies, trials and time, and run nothing"
    )
    json(parser)


def _map(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Maps where promotion helps and where it hurts: performance of policies over first-touch "
        "by size of the fast tier, share of accesses to a hot window, drift of that window, and "
        "machine, on streams of the workload drift. Half of the streams give a rule that turns "
        "promotion off by what an operator sees; it is judged on the other half, beside `stop when "
        "demotions equal promotions`. Writes OUT/map-NAME with map.csv, .json, .md and a picture "
        "for each policy. What ran before is not run again: the same command goes on where one was "
        "stopped."
    )
    parser.add_argument(
        "--policies", required=True, metavar="P,...", help="tiering policies, or `all`"
    )
    parser.add_argument(
        "--ratios",
        default="1:16,1:8,1:4",
        metavar="F:S,...",
        help="fast to slow capacities, of the memory in use (default: %(default)s)",
    )
    parser.add_argument(
        "--skews",
        default="0.3,0.5,0.7,0.9",
        metavar="S,...",
        help="shares of the accesses that go to the hot window (default: %(default)s)",
    )
    parser.add_argument(
        "--drifts",
        default="0.5,1,2,5,20,never",
        metavar="D,...",
        help="10^9 accesses in which the whole window is replaced by another: the fewer, the fewer "
        "accesses come to a page after its promotion (default: %(default)s)",
    )
    parser.add_argument(
        "--machines",
        default="memtis-cxl,memtis-nvm",
        metavar="M,...",
        help="what a promotion is worth: one server with two kinds of slow memory, where a "
        "promotion costs the same and saves less or more (default: %(default)s)",
    )
    parser.add_argument(
        "--input", metavar="I", help="of drift, whose other parameters hold (default: the default)"
    )
    parser.add_argument(
        "--also",
        metavar="W[:I],...",
        help="other workloads on which the rule is judged, each on its own machine; `all`: the "
        "smoke inputs of all",
    )
    parser.add_argument(
        "--seeds",
        type=count(MOST_SEEDS),
        default=1,
        metavar="K",
        help="sampling seeds of each cell (default: %(default)s)",
    )
    varied = ("workload", "input", "policy", "machine", "substrate", "ratio", "fast_gib")
    scenario(parser, but=(*varied, "placement", "repeats", "seed"))
    run_deadline(parser)
    workers(parser)
    out(parser, "folder of map-NAME")
    parser.add_argument("--name", help="of the map (default: made from the options)")
    json(parser)


def _record(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a program under a sampler and writes its memory accesses as a workload. The program "
        "keeps its standard streams, its signals and its exit status, which is also that of this "
        "command."
    )
    parser.usage = "tune record [options] -- command [args...]"
    recording(parser)
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
        type=seconds,
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


def _profile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload once on fast memory alone, scores its objects, and writes a placement "
        "file, which `tune sim --placement` and `tune run --placement` take. One holds for all "
        "ratios."
    )
    parser.add_argument("workload_name", metavar="WORKLOAD", help="name or YAML file")
    group = parser.add_argument_group("scenario")
    for name in ("input", "policy", "machine", "threads", "scale", "page_bytes", "stream_seed"):
        scenario_option(group, name)
    scenario_option(group, "seed")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="set a knob of the profiling run (repeatable)",
    )
    parser.add_argument(
        "--output", "-o", default="placement.yaml", metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    json(parser)


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
    recording(parser)
    expansion = parser.add_mutually_exclusive_group()
    expansion.add_argument(
        "--period",
        type=number,
        metavar="N",
        help="accesses that one observation stands for (default: what the input says, else 1)",
    )
    expansion.add_argument(
        "--probability", type=number, metavar="P", help="of an access to be observed: 1 / period"
    )
    parser.add_argument(
        "--threads",
        type=count(MOST_THREADS),
        metavar="N",
        help="that the program ran on (default: the busiest second of perf-script, else 1)",
    )
    json(parser)


def _knobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY")
    json(parser)


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
    json(parser)


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("find good knobs for a workload", _run),
    "sim": ("run one configuration", _sim),
    "emulate": ("run one configuration on a real kernel, in an emulated machine", upkeep.emulate),
    "verify": ("measure on a real kernel what a simulated study recommends", upkeep.verify),
    "best": ("print the best known configuration of a workload", _best),
    "exec": ("run a program on real memory with a study's best configuration", upkeep.exec_),
    "report": ("draw the time series of live and simulated runs", upkeep.report),
    "check": ("tell whether a study, a stream or a store is undamaged", upkeep.check),
    "export": ("write a study to one file", upkeep.export),
    "unpack": ("read a study from such a file", upkeep.unpack),
    "doctor": ("tell what would stop a study on this machine", upkeep.doctor),
    "smoke": ("a few trials of every policy on every workload's smoke input", _smoke),
    "compare": ("compare policies on several workloads and ratios", _compare),
    "fleet": ("tune many workloads, machines, ratios and policies as one plan", _fleet),
    "map": ("map where promotion helps and where it hurts", _map),
    "claims": ("check published results against the simulator", _claims),
    "record": ("record a program of your own as a workload", _record),
    "samplers": ("list the ways to record a program", json),
    "import": ("make a workload of another tool's output", _import),
    "profile": ("find the objects of a workload that are worth fast memory", _profile),
    "policies": ("list the tiering policies", json),
    "knobs": ("list the knobs of a policy", _knobs),
    "workloads": ("list the workloads and their inputs", _workloads),
    "workload": ("draw a workload: `tune workload show W`", upkeep.workload),
    "machines": ("list the machine profiles, or print one", upkeep.machines),
    "cache": ("list or clear the cached access streams", upkeep.cache),
    "ui": ("open the studies in the MLflow UI", upkeep.ui),
    "repair": ("make the MLflow store of studies again, from their logs", upkeep.repair),
}
"""What each command is for, and what declares its arguments. It runs in `tuner.commands`."""
