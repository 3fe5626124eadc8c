# SPDX-License-Identifier: MIT
"""The arguments of the commands that bring a configuration to real kernels and servers."""

from __future__ import annotations

import argparse
import os

from tuner.arguments.options import (
    assignments,
    command,
    count,
    json,
    mlflow_uri,
    nodes,
    out,
    scenario,
    scenario_option,
    seconds,
)
from tuner.limits import EMULATED_DEADLINE_SECONDS, MOST_WORKERS
from tuner.scenario import EMULATED, LIVE


def emulate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload's program on a real Linux kernel in an emulated machine with two memory "
        "tiers, timed in QEMU's virtual time, and prints what the simulator says of the same "
        "set-up beside it. What it needs (QEMU, a kernel, a shell) comes from Debian's archive "
        "into the cache folder; nothing is installed. A run takes minutes and is kept. "
        "docs/emulated.md explains how it works and what it leaves out."
    )
    group = scenario(
        parser,
        but=(
            *("policy", "substrate", "page_bytes", "pages", "window", "placement", "repeats"),
            *("start", "sizes"),
        ),
    )
    scenario_option(group, "policy")
    parser.set_defaults(policy="hybridtier")
    assignments(parser)
    parser.add_argument(
        "--kernel", default="6.12", metavar="V", help="6.12 or 7.3 (default: %(default)s)"
    )
    parser.add_argument(
        "--layout",
        type=count(99, least=0),
        default=0,
        metavar="N",
        help="seed of the machine's memory layout, which is otherwise fixed (default: 0)",
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
        help="where tierd gets its samples: the machine's own sampler, or damon (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--report",
        type=seconds,
        default=0.0,
        metavar="S",
        help="make the program print its figures every S seconds, which costs it some time",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure what memory and the kernel's own work cost in the machine, and run nothing",
    )
    json(parser)


def verify(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs the best configurations of a simulated study, the policy's defaults and no tiering "
        "on a real kernel, several times each, and says whether the simulation's advice holds "
        "there and which configuration to use: in the emulated machine, on layouts of its memory, "
        "or with --on live a command of yours on the memory of this machine. Writes "
        "verified.json and verified.png into the study's folder, and best-verified.yaml if one is "
        "better than the defaults and no tiering. Each run is kept: after an interruption, repeat "
        "the command to continue. Exit code 3 if the machine advises something else, 1 if nothing "
        "could be measured."
    )
    out(parser)
    parser.add_argument("study", metavar="STUDY", help="name, or path of its folder")
    parser.add_argument(
        "--on",
        dest="substrate",
        choices=(EMULATED, LIVE),
        default=EMULATED,
        help="the machine (default: %(default)s)",
    )
    command(parser, contained=False)
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
        type=count(100, least=2),
        default=5,
        metavar="N",
        help="layouts of memory, or rounds of live runs, on each of which every configuration "
        "runs; one alone would not tell what is chance (default: %(default)s)",
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="live: drop the runs of a verification that was stopped, and measure all again",
    )
    parser.add_argument(
        "--workers",
        type=count(MOST_WORKERS),
        metavar="N",
        help="machines side by side, each with up to 3 GiB (default: the CPUs of this machine, "
        f"{len(os.sched_getaffinity(0))})",
    )
    parser.add_argument(
        "--deadline",
        type=seconds,
        metavar="S",
        help="wall-clock seconds after which a run has failed (default: "
        f"{EMULATED_DEADLINE_SECONDS:g}; live by --for, if it is given)",
    )
    mlflow_uri(parser)
    json(parser)


def exec_(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a program on this machine's memory with the best configuration of a study. It "
        "becomes `tierd run`; the program keeps its standard streams, its signals and its exit "
        "status. "
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


def apply(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes what a server needs to run a study's best configuration: a shell script that "
        "checks, applies and undoes it, and a unit for systemd. Prints what it takes, what becomes "
        "of each knob (exact, converted, not settable, and what that costs as far as the study has "
        "measured it), how to undo it, and the counters that prove that it works. Nothing is "
        "changed on this machine."
    )
    out(parser)
    parser.add_argument(
        "study", metavar="STUDY", help="name, path of its folder, or path of a best.yaml"
    )
    parser.add_argument(
        "--for",
        required=True,
        dest="target",
        choices=(
            *("linux", "tierd", "damo", "hmsdk", "hemem", "hybridtier", "memtierd"),
            *("kubernetes", "ansible"),
        ),
        help="what runs it: Linux itself, tierd as a service, DAMON by damo or by HMSDK's, the "
        "public code of HeMem or HybridTier, memtierd, tierd as a DaemonSet of Kubernetes, or Linux"
        " or tierd by a role of Ansible",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="print, and write no file")
    mode.add_argument(
        "--script",
        action="store_true",
        help="print only the script, which applies: tune apply ... --script | ssh root@SERVER sh",
    )
    mode.add_argument("--undo", action="store_true", help="print only the script, which undoes")
    parser.add_argument(
        "--fast",
        type=nodes,
        metavar="NODES",
        help="memory nodes of the server's fast tier, for DAMON and memtierd (default: 0)",
    )
    parser.add_argument(
        "--slow", type=nodes, metavar="NODES", help="those of the slow tier (default: 1)"
    )
    parser.add_argument(
        "--pods",
        metavar="LABELS",
        help="kubernetes: of the pods whose pages move, such as app=redis",
    )
    parser.add_argument(
        "--output", "-o", metavar="DIR", help="folder of the files (default: apply-TARGET)"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    json(parser)


def report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Of a study: writes its report.html again, from its log alone; of one that is still "
        "running live.html, which an open browser reads again by itself. Of files: draws time "
        "series over each other, of live runs (tierd run --series) and of simulated ones (tune sim "
        "--series). Columns of the same name mean the same."
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="STUDY|FILE",
        help="a study's name or folder, or CSV files with a column 'second'",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="a study: write the page again with its new trials, until it ends",
    )
    parser.add_argument(
        "--output", "-o", metavar="PNG", help="of files (default: beside the first)"
    )
    out(parser)
    json(parser)
