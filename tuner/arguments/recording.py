# SPDX-License-Identifier: MIT
"""The arguments of the commands that make and show workloads."""

from __future__ import annotations

import argparse

from tuner.arguments.options import (
    assignments,
    count,
    duration,
    json,
    number,
    out,
    recording,
    scenario_option,
    seconds,
    stands_for,
    usdt,
    within,
)
from tuner.limits import MOST_SCALE, MOST_THREADS


def record(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a program under a sampler and writes its memory accesses as a workload. The program "
        "keeps its standard streams, its signals and its exit status, which is also that of this "
        "command. With --pid or --cgroup it watches processes that run already instead, for --for "
        "seconds, and leaves nothing behind."
    )
    parser.usage = (
        "tune record [options] -- command [args...]\n"
        "       tune record [options] (--pid P | --cgroup C) --for S"
    )
    recording(parser)
    stands_for(parser)
    parser.add_argument(
        "--sampler",
        metavar="S",
        help="one of `tune samplers` (default: emulation; with --pid and --cgroup damon)",
    )
    attached = parser.add_mutually_exclusive_group()
    attached.add_argument(
        "--pid",
        type=count(1 << 22),
        action="append",
        metavar="P",
        help="watch this process (repeatable)",
    )
    attached.add_argument(
        "--cgroup",
        metavar="C",
        help="watch the processes of this control group: its folder, or its path below "
        "/sys/fs/cgroup",
    )
    parser.add_argument(
        "--for",
        "--duration",
        type=duration,
        dest="seconds",
        metavar="S",
        help="end the recording after so many seconds; the program goes on, not recorded",
    )
    parser.add_argument(
        "--after",
        type=duration,
        metavar="S",
        help="with --pid and --cgroup: begin so many seconds from now",
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
        help="treat the first S seconds (on the sampler's clock) as set-up: replayed, not timed",
    )
    parser.add_argument(
        "--operation-usdt",
        type=usdt,
        metavar="P:BEGIN[,END]",
        help="operations of the program are from one USDT probe of provider P to the other (with "
        "one: from each time to the next); without it, those that it marks (--header)",
    )
    parser.add_argument(
        "--offered-load",
        type=within(1e-3, 1e12),
        metavar="N",
        help="clients ask for N operations per second: the program is idle for the rest of the "
        "time (default: as many as it can answer)",
    )
    parser.add_argument(
        "--header",
        action="store_true",
        help="print tiertune.h, by which a C or C++ program marks its operations, and exit",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON; the program's output goes to standard error",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="command", help="what to run")


def import_(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads the output of another tool and writes it as a workload: a trace and its YAML file. "
        "Nothing is written unless all of the input was understood."
    )
    parser.add_argument("file", metavar="FILE", help="what to read, gzipped or not; - for stdin")
    parser.add_argument(
        "--format",
        required=True,
        choices=("perf-script", "damon", "lackey", "csv", "requests"),
        help="format of the input",
    )
    recording(parser)
    stands_for(parser)
    expansion = parser.add_mutually_exclusive_group()
    expansion.add_argument(
        "--period",
        type=number,
        metavar="N",
        help="accesses that one observation stands for (default: what the input says, else 1)",
    )
    expansion.add_argument(
        "--probability",
        type=number,
        metavar="P",
        help="probability that an access is observed: 1 / period",
    )
    parser.add_argument(
        "--threads",
        type=count(MOST_THREADS),
        metavar="N",
        help="threads of the program (default: those in the busiest second of perf-script, 16 that "
        "answer requests, or 8 with Redis, else 1)",
    )
    parser.add_argument(
        "--scale",
        type=count(MOST_SCALE),
        default=1,
        metavar="R",
        help="keep one page (of requests: one key) in R, which stands for all of them: for what is "
        "too large to simulate whole",
    )
    parser.add_argument(
        "--store",
        choices=("cachelib", "redis"),
        help="of requests: what answers them (default: cachelib)",
    )
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help="of requests in a table without a heading: time, key, size, key_size, op, ttl, count, "
        "or - for one that is not needed, with commas (--columns=-,key,size)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="of requests: set an option of the store that answers them (repeatable)",
    )
    json(parser)


def profile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload once on fast memory alone, scores its objects, and writes a placement "
        "file for `tune sim --placement` and `tune run --placement`. One file serves all ratios."
    )
    parser.add_argument("workload_name", metavar="WORKLOAD", help="name or YAML file")
    group = parser.add_argument_group("scenario")
    for name in ("input", "policy", "machine", "threads", "scale", "page_bytes", "stream_seed"):
        scenario_option(group, name)
    scenario_option(group, "seed")
    assignments(parser)
    parser.add_argument(
        "--output",
        "-o",
        default="placement.yaml",
        metavar="FILE",
        help="file to write (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    json(parser)


def workload(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
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
    resize = actions.add_parser(
        "resize",
        help="make a recorded workload stand for a larger server, or last longer",
        description="Makes a new workload of a recorded one: each page stands for more of a "
        "server's, and a steady phase is repeated until policies have time to act. What was "
        "recorded stays as it is. `--stands-for 1x` only makes it longer.",
        allow_abbrev=False,
    )
    resize.add_argument("workload", metavar="W", help="name or YAML file of a recorded workload")
    resize.add_argument("--input", "-i", metavar="I", help="input of the workload")
    stands_for(resize, required=True)
    resize.add_argument(
        "--output", "-o", required=True, metavar="NAME.tts", help="trace to write, beside NAME.yaml"
    )
    resize.add_argument("--force", action="store_true", help="replace an existing trace")
    json(resize)


def workloads(parser: argparse.ArgumentParser) -> None:
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
