# SPDX-License-Identifier: MIT
"""The arguments of the commands that look after what there is, machines, streams and studies, or
put it to use."""

from __future__ import annotations

import argparse
import os

from tuner.options import (
    EMULATED_DEADLINE_SECONDS,
    MOST_WORKERS,
    address,
    count,
    json,
    mlflow_uri,
    out,
    scenario,
    scenario_option,
    seconds,
)


def cache(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists or clears the access streams in TIERTUNE_CACHE (default: ~/.cache/tiertune). The "
        "cache is kept below TIERTUNE_CACHE_GIB (default: 32): streams that this engine's kernels "
        "would not make are removed first, then the least recently used."
    )
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    parser.add_argument("--stale", action="store_true", help="clear only what other kernels made")
    json(parser)


def check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads a study (header, each record of the log, time series, best.yaml), a stream (every "
        "block) or an MLflow store (its database, and what it lacks of the folder's studies), and "
        "prints what is damaged, missing or contradictory, and what --repair would do. Exit code 1 "
        "if anything is wrong."
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a study's folder (OUT/NAME of `tune run`), a stream (FILE.tts, of the cache or "
        "recorded), a folder of studies, or its mlflow.db",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="mend what can be: lines of a log that cannot be read are moved to a file beside it, "
        "a stream of the cache is made again, a store as by `tune repair`",
    )
    json(parser)


def report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draws time series over each other: of live runs (tierd run --series) and of simulated "
        "ones (tune sim --series). Columns that both have mean the same."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a CSV with a column 'second'")
    parser.add_argument("--output", "-o", metavar="PNG", help="(default: beside the first file)")
    json(parser)


def export(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes a study (its request, log, time series, best configuration, report and pictures) "
        "to one file, which `tune unpack` reads. The same study gives the same bytes. Recordings "
        "and documents of your own are not included: their contents are noted, but --resume needs "
        "the files; the command names them. A study that a process is writing is refused."
    )
    parser.add_argument("study", metavar="STUDY", help="name, or path of its folder")
    parser.add_argument(
        "--output", "-o", metavar="FILE", help="default: STUDY.tar.gz in the current folder"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    out(parser)
    json(parser)


def unpack(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads a study from a file of `tune export` into a folder of studies, and adds it to the "
        "MLflow store. Everything is checked first: a file that is damaged, too large or not of "
        "`tune export`, and a study that exists, are refused, and nothing is left behind."
    )
    parser.add_argument("file", metavar="FILE", help="of `tune export`")
    out(parser)
    mlflow_uri(parser)
    json(parser)


def doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints versions, paths and their free space, limits, optional tools, Ray's network, the "
        "MLflow store and clocks, each with what is wrong; starts a container, if there is the "
        "image. Exit code 1 if something would stop a study. Asks a cluster and an MLflow server "
        "if they are named, for two minutes each at most."
    )
    out(parser)
    parser.add_argument(
        "--ray-address",
        type=address,
        metavar="HOST:PORT",
        help="whether this Ray cluster lets us in, and which CPUs, engine and Ray its nodes have",
    )
    parser.add_argument(
        "--mlflow-uri",
        type=address,
        metavar="URI",
        help="whether this MLflow server answers, takes our login and can be written; what is "
        "written is removed",
    )
    json(parser)


def ui(parser: argparse.ArgumentParser) -> None:
    out(parser)
    mlflow_uri(parser)
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=count(65535), default=5000, help="default: %(default)s")


def repair(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Adds to the MLflow store what it lacks of the folder's studies, from their logs, which "
        "have everything: for when a store was deleted, damaged or out of reach. Nothing is added "
        "twice. A damaged OUT/mlflow.db is kept under another name, and made anew."
    )
    out(parser)
    mlflow_uri(parser)
    json(parser)


def exec_(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a program on this machine's memory with the best configuration of a study: becomes "
        "`tierd run`, whose program keeps its standard streams, its signals and its exit status. "
        "With --pid PID, or --cgroup PATH, in place of a program it becomes `tierd attach`. What "
        "stands between STUDY and -- is for tierd: --fast-limit SIZE, --fast NODES --slow NODES, "
        "--set KNOB=VALUE, --journal FILE, --quiet, and what else `tierd help` lists."
    )
    parser.usage = "tune exec [--out DIR] STUDY [options of tierd] -- command [args...]"
    out(parser)
    parser.add_argument(  # with all that follows: argparse would take the -- away
        "words",
        nargs=argparse.REMAINDER,
        metavar="STUDY",
        help="name, path of its folder, or path of a best.yaml",
    )


def verify(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs the best configurations of a simulated study, the policy's defaults and no tiering "
        "on a real kernel in the emulated machine, on several layouts of its memory, and says "
        "whether the simulation's advice holds there and which configuration to use. Writes "
        "verified.json and verified.png into the study's folder, and best-verified.yaml if one is "
        "better than the defaults and no tiering. A run takes minutes and is kept: the same "
        "command goes on where one was stopped. Exit code 3 if the machine advises something else."
    )
    out(parser)
    parser.add_argument("study", metavar="STUDY", help="name, or path of its folder")
    parser.add_argument(
        "--on", choices=("emulated",), default="emulated", help="the machine (default: emulated)"
    )
    parser.add_argument(
        "--top",
        type=count(100),
        default=5,
        metavar="K",
        help="how many of the study's best trials, of those that differ in knobs that the machine "
        "has (default: %(default)s)",
    )
    parser.add_argument(
        "--layouts",
        type=count(100),
        default=5,
        metavar="N",
        help="of memory, each a run of every configuration (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=count(MOST_WORKERS),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="machines side by side, each with up to 3 GiB (default: the CPUs of this machine, "
        "%(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=EMULATED_DEADLINE_SECONDS,
        metavar="S",
        help="wall-clock seconds after which a run has failed (default: %(default)g)",
    )
    mlflow_uri(parser)
    json(parser)


def machines(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the machine profiles, or prints one of them: what it says itself and what its base "
        "says, each value with the place where it is written."
    )
    parser.add_argument("machine", nargs="?", metavar="M", help="a name, or the path of a file")
    json(parser)


def workload(parser: argparse.ArgumentParser) -> None:
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
    out(show, "folder of W-I/*.png")
    json(show)


def emulate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload's program on a real Linux kernel in an emulated machine with two memory "
        "tiers, timed in QEMU's virtual time, and prints what the simulator says of the same "
        "set-up beside it. What it needs (QEMU, a kernel, a shell) comes from Debian's archive "
        "into the cache folder; nothing is installed. A run is made once and kept; it takes "
        "minutes. docs/emulated.md tells how it works and what it leaves out."
    )
    group = scenario(
        parser,
        but=(
            *("policy", "substrate", "page_bytes", "pages", "window", "placement", "repeats"),
            "start",
        ),
    )
    scenario_option(group, "policy")
    parser.set_defaults(policy="hybridtier")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob (repeatable)"
    )
    parser.add_argument(
        "--kernel", default="6.12", metavar="V", help="6.12 or 7.3 (default: %(default)s)"
    )
    parser.add_argument(
        "--layout",
        type=count(99, least=0),
        default=0,
        metavar="N",
        help="lay the machine's memory out otherwise: a seed of what else is fixed",
    )
    parser.add_argument(
        "--daemons",
        choices=("own", "shared"),
        default="own",
        help="whether tierd and the kernel's threads have a processor of their own, or share the "
        "program's (default: %(default)s)",
    )
    parser.add_argument(
        "--source",
        default="emulated",
        metavar="S",
        help="of tierd: the machine's own sampler, or damon (default: %(default)s)",
    )
    parser.add_argument(
        "--report",
        type=seconds,
        default=0.0,
        metavar="S",
        help="the program tells its figures every S seconds, which costs it some time",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure what memory and the kernel's own work cost in the machine, and run nothing",
    )
    json(parser)
