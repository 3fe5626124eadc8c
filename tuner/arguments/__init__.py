# SPDX-License-Identifier: MIT
"""The arguments of each command. Nothing heavy is imported, so that `--help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

from tuner.arguments import comparing, recording, servers, tuning, upkeep, watching
from tuner.arguments.options import json, tables

COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("find good knobs for a workload", tuning.run),
    "recommend": ("advise a configuration without a study, by a few runs", tuning.recommend),
    "sim": ("run one configuration", tuning.sim),
    "emulate": ("run one configuration on a real kernel, in an emulated machine", servers.emulate),
    "verify": ("measure on a real kernel what a simulated study recommends", servers.verify),
    "explain": ("tell why a study's best configuration is best", tuning.explain),
    "best": ("print the best known configuration of a workload", tuning.best),
    "exec": ("run a program on real memory with a study's best configuration", servers.exec_),
    "apply": ("write what a server needs to run a study's best configuration", servers.apply),
    "report": ("draw the time series of live and simulated runs", servers.report),
    "check": ("check whether a best.yaml still pays, or a study is damaged", watching.check),
    "gate": ("fail if a best.yaml gains too little, for continuous integration", watching.gate),
    "export": ("write a study to one file", upkeep.export),
    "unpack": ("read a study from a file of `tune export`", upkeep.unpack),
    "doctor": ("check whether studies can run on this machine", upkeep.doctor),
    "smoke": ("a few trials of every policy on every workload's smoke input", tuning.smoke),
    "compare": ("compare policies on several workloads and ratios", comparing.compare),
    "fleet": ("tune many workloads, machines, ratios and policies with one budget", tuning.fleet),
    "map": ("map where promotion helps and where it hurts", comparing.map),
    "size": ("find how much fast memory a workload needs", comparing.size),
    "claims": ("check published results against the simulator", comparing.claims),
    "record": ("record a program of your own as a workload", recording.record),
    "samplers": ("list the ways to record a program", json),
    "import": ("make a workload of another tool's output", recording.import_),
    "profile": ("find the objects of a workload that are worth fast memory", recording.profile),
    "policies": ("list the tiering policies", json),
    "knobs": ("list the knobs of a policy", upkeep.knobs),
    "workloads": ("list the workloads and their inputs", recording.workloads),
    "workload": ("draw a workload, or make a recorded one larger", recording.workload),
    "machines": ("list the machines, or print one", upkeep.machines),
    "cache": ("list or clear the cached access streams", upkeep.cache),
    "ui": ("open the studies in the MLflow UI", upkeep.ui),
    "repair": ("rebuild the MLflow store of studies from their logs", upkeep.repair),
}
"""What each command is for, and what declares its arguments. It runs in `tuner.commands`."""

TABLED = frozenset(
    (
        *("apply", "cache", "check", "claims", "compare", "doctor", "emulate", "explain", "fleet"),
        *("gate", "knobs", "machines", "map", "policies", "profile", "recommend", "report"),
        *("samplers", "sim", "size", "smoke", "verify", "workload", "workloads"),
    )
)
"""Those that print tables, and write them to files with --tables."""


def commands(parser: argparse.ArgumentParser, wanted: Collection[str]) -> None:
    """Adds all commands, and the arguments of those that are wanted."""
    group = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, (help, declare) in COMMANDS.items():
        command = group.add_parser(name, help=help, description=help, allow_abbrev=False)
        command.set_defaults(command=name)
        if name in wanted:
            declare(command)
            if name in TABLED:
                tables(command)
