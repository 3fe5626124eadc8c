# SPDX-License-Identifier: MIT
"""The arguments of the commands that find a configuration, run it and explain it."""

from __future__ import annotations

import argparse
import os

from tuner.arguments.options import (
    assignments,
    command,
    count,
    integer,
    json,
    mlflow_uri,
    out,
    run_deadline,
    scenario,
    scenario_option,
    seconds,
    workers,
)
from tuner.limits import (
    AUTO,
    AUTO_SECONDS,
    DEADLINE_SECONDS,
    EMULATED_DEADLINE_SECONDS,
    MOST_BUDGET,
    MOST_WORKERS,
    RIVALS,
    ROBUST,
)


def run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tunes the knobs of a policy for a workload on a simulated tiered machine: references and "
        "other policies' defaults first, then a Bayesian search. Ends with what to do: use the "
        "best configuration, keep the defaults, use another policy, or leave tiering off."
    )
    group = scenario(parser, but=("workload", "policy"))
    which = group.add_mutually_exclusive_group(required=True)
    scenario_option(which, "workload")
    which.add_argument(
        "--workloads",
        metavar="W,W[,W]",
        help="one configuration for several workloads (W or W:INPUT), as --robust says",
    )
    group.add_argument(
        "--policy",
        metavar="P[,P...]",
        help="tiering policy; several, or `all`: one study for each, with the whole budget, and "
        f"a comparison (default: {_default_policy()})",
    )
    parser.add_argument("--space", help="name or YAML file of the knobs' ranges (default: policy)")
    parser.add_argument(
        "--budget",
        type=budget,
        default=100,
        metavar="N",
        help="trials; `auto`: until they bring nothing more, for a minute of search at most, and "
        "`auto:300` for so many seconds (default: %(default)s)",
    )
    workers(parser, default=False)
    command(parser)
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar="STUDY",
        help="try the best configurations of this study, or the one of a best.yaml, right after "
        "the default; of a study of the same workload the model knows all trials",
    )
    parser.add_argument(
        "--deadline",
        type=seconds,
        metavar="S",
        help="wall-clock seconds after which a trial has failed (default: "
        f"{DEADLINE_SECONDS:g}; on the emulated machine {EMULATED_DEADLINE_SECONDS:g}; live by "
        f"--for, else {EMULATED_DEADLINE_SECONDS:g})",
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
        "yes, but not on a real kernel, where each takes minutes)",
    )
    parser.add_argument(
        "--rivals",
        choices=RIVALS,
        help="other policies to run at their defaults, so that the advice covers them: `few` (at "
        "most four, which the published comparison ranks near the best), `all` or `none` (default: "
        "few; with --resume those of the study)",
    )
    parser.add_argument(
        "--robust",
        choices=ROBUST,
        help="which trial is called best: `neighbours`, of the best few the one that gains most on "
        "a fresh seed and with half and twice the fast memory; `none`, the best on the study's "
        "seed; of --workloads: `worst` or `geomean`, by the worst cost over the defaults' or the "
        "geometric mean (default: neighbours, where trials are simulated; of --workloads: worst)",
    )
    parser.add_argument(
        "--objectives",
        metavar="O,O[,O]",
        help="improve several figures, in place of --objective: the search looks for the front of "
        "what no other configuration beats in all of them; best.yaml is by the first one",
    )
    parser.add_argument(
        "--constraint",
        dest="constraints",
        action="append",
        metavar="FIGURE<=BOUND",
        help="bound a figure that trials measure: `p99<=1.05*default`, `migrated_gib_per_h<=50`, "
        "`fast_hit_ratio>=60%%`; what breaks one is not called best (repeatable)",
    )
    parser.add_argument(
        "--held-out-streams",
        action="store_true",
        help="also give each held-out seed its own access stream (making one takes up to a minute)",
    )
    out(parser)
    parser.add_argument("--name", help="name of the study (default: made from the options)")
    parser.add_argument("--resume", action="store_true", help="continue a study that was stopped")
    mlflow_uri(parser)
    json(parser)


def recommend(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Advises a policy and its configuration without a study: runs a small portfolio of "
        "published tuned configurations on the workload, takes the best of them to held-out seeds "
        "beside never moving a page, and says what a study could add, by what it added on "
        "published workloads that had no part in the portfolio. Writes the configuration as "
        "OUT/recommend-NAME/best.yaml. Runs are kept: after an interruption, repeat the command "
        "to continue."
    )
    but = ("policy", "substrate", "placement", "repeats")
    group = scenario(parser, required=("workload",), but=but)
    group.add_argument(
        "--policy",
        metavar="P[,P...]",
        help="advise one of these: tries their defaults and all of their published configurations "
        "(default: the portfolio, of several policies)",
    )
    run_deadline(parser)
    workers(parser, most=1)
    out(parser, "folder that gets recommend-NAME")
    parser.add_argument("--name", help="name of the result (default: made from the options)")
    json(parser)


def budget(text: str) -> int | str:
    """Trials, or `auto` with its seconds."""
    if text.partition(":")[0] != AUTO:
        return count(MOST_BUDGET)(text)
    found = text.partition(":")[2] if ":" in text else f"{AUTO_SECONDS:g}"
    return f"{AUTO}:{seconds(found):g}"


def _default_policy() -> str:
    from tuner.scenario import Scenario

    return Scenario.policy


def sim(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a workload once under one configuration and shows where the time goes. With "
        "--config, checks that the objective in the file is reproduced exactly."
    )
    what = scenario(parser, but=("policy", "sizes")).add_mutually_exclusive_group()
    assignments(parser, "over the default or over --config")
    what.add_argument("--config", metavar="FILE", help="a best.yaml")
    scenario_option(what, "policy")
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


def explain(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Says why a study's best configuration is best: what each changed knob adds to the gain, "
        "alone and together, what would do instead, and how: pages moved, accesses served by fast "
        "memory, and where the run time goes. All of it was measured by the study; nothing is run."
    )
    parser.add_argument("study", metavar="STUDY", help="its name, or its folder")
    out(parser)
    json(parser)


def best(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the best configuration found by the studies of a folder. Only results obtained "
        "under the same conditions are compared; defaults are those of `tune run`."
    )
    scenario(parser, required=("workload",), comparable=True)
    parser.add_argument("--policy", metavar="P", help="consider only this policy (default: all)")
    out(parser)
    json(parser)


def fleet(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tunes many workloads, machines, ratios and policies with one budget on one pool of "
        "workers. Every study gets an equal part of the budget. Writes OUT/NAME with a folder for "
        "each study and fleet.md, .json and .png over all. After an interruption, repeat the "
        "command to continue."
    )
    parser.add_argument("file", metavar="FILE.yaml", help="the plan; docs/fleet.md describes it")
    workers(parser)
    out(parser, "folder of NAME")
    parser.add_argument("--name", help="name of the fleet (default: the file's)")
    mlflow_uri(parser, "OUT/NAME")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show studies, trials and time, and run no study",
    )
    json(parser)


def smoke(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs every policy on the smoke input of every workload: its default configuration and, if "
        "it has knobs, two random ones from its space. Any error fails the command. Takes a few "
        "minutes on two CPUs."
    )
    parser.add_argument("--policy", action="append", help="only this one (repeatable)")
    parser.add_argument("--workload", "-w", action="append", help="only this one (repeatable)")
    parser.add_argument("--workers", type=count(MOST_WORKERS), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=integer, default=0, help="seed of the random configurations")
    json(parser)
