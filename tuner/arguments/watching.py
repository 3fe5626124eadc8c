# SPDX-License-Identifier: MIT
"""The arguments of the commands that tell whether a configuration still pays."""

from __future__ import annotations

import argparse

from tuner.arguments.options import (
    json,
    out,
    percent,
    standing,
    workers,
)


def check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "For a best.yaml: runs it, the policy's defaults and no tiering on held-out seeds of "
        "today's workload in the simulator, and says whether it still pays, what has changed since "
        "its study, and how to tune again. Exit code 3 if it no longer pays. Runs are kept: after "
        "an interruption, repeat the command to continue. For a study (header, each record of the "
        "log, time series, best.yaml), a stream (every block) or an MLflow store (its database, "
        "and what it lacks of the folder's studies): reads it and prints what is damaged, missing "
        "or contradictory, and what --repair would do. Exit code 1 if anything is wrong."
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a best.yaml, a study's folder (OUT/NAME of `tune run`; with an option of the "
        "scenario its best.yaml is meant), a stream (FILE.tts, of the cache or recorded), a folder "
        "of studies, or its mlflow.db",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair what can be repaired: unreadable lines of a log are moved to a file beside "
        "it, a stream of the cache is made again, a store is rebuilt as by `tune repair`",
    )
    parser.add_argument(
        "--tolerance",
        type=percent,
        default=0.03,
        metavar="G",
        help="changes below this count as none: of the gain, of the workload's figures, and of the "
        "lead of another policy's defaults (default: 3%%)",
    )
    standing(parser, "the best one of the study")
    workers(parser, default=False)
    out(parser, "folder of studies, where a better configuration is looked for")
    json(parser)


def gate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "For continuous integration: runs a best.yaml, its policy's defaults and no tiering on "
        "held-out seeds of a workload in the simulator. Exit code 1 if the recorded objective is "
        "not reproduced although nothing has changed, if the mean gain over the defaults or over "
        "no tiering is less than --min-gain, or if the verdict is not to use the configuration. "
        "Runs are kept: after an interruption, repeat the command to continue."
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="a best.yaml")
    parser.add_argument(
        "--min-gain",
        type=percent,
        default=0.0,
        metavar="G",
        help="least gain over the policy's defaults and over no tiering, such as 2%% (default: any "
        "gain beyond chance)",
    )
    parser.add_argument("--junit", metavar="FILE", help="write the four checks as JUnit XML")
    standing(parser, "none")
    workers(parser)
    json(parser)
