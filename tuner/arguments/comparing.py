# SPDX-License-Identifier: MIT
"""The arguments of the commands that compare policies, workloads and sizes."""

from __future__ import annotations

import argparse
import os

from tuner.arguments.options import (
    count,
    json,
    mlflow_uri,
    out,
    percent,
    price,
    run_deadline,
    scenario,
    workers,
)
from tuner.limits import (
    MOST_BUDGET,
    MOST_SEEDS,
    MOST_WORKERS,
)


def compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs policies on several workloads and ratios, and prints tables of their performance "
        "over first-touch, beside all-fast (everything in fast memory) and the oracle static-hot. "
        "Writes OUT/compare-NAME with compare.csv, .json, .md and .png. Runs are kept: after an "
        "interruption, repeat the command to continue."
    )
    parser.add_argument(
        "--workloads",
        required=True,
        metavar="W[:I],...",
        help="workloads, with inputs that are not the default; or `all`",
    )
    parser.add_argument(
        "--policies",
        default="all",
        metavar="P,...",
        help="tiering policies, or `all` that have knobs (default: %(default)s; with --on emulated "
        "those that a running process can have); P@BYTES for pages of another size than the "
        "policy's, as hemem@4096",
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
        help="sampling seeds of each cell, or layouts of memory with --on emulated (default: "
        "%(default)s)",
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
        help="ratio at which --tuned searches (default: %(default)s)",
    )
    one_run = (
        *("workload", "input", "policy", "ratio", "fast_gib"),
        *("placement", "repeats", "seed"),
    )
    scenario(parser, but=one_run)
    run_deadline(parser)
    workers(parser)
    out(parser, "folder of compare-NAME")
    parser.add_argument("--name", help="name of the comparison (default: made from the options)")
    parser.add_argument(
        "--update",
        action="store_true",
        help="add to the comparison that OUT/compare-NAME has: its workloads stay, with the "
        "figures that any engine build has measured under the same conditions",
    )
    mlflow_uri(parser)
    json(parser)


def map(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Maps where promotion helps and where it hurts: performance of policies over first-touch "
        "by size of the fast tier, share of accesses to a hot window, drift of that window, and "
        "machine, on streams of the workload drift. Half of the streams give a rule that turns "
        "promotion off by what an operator sees; it is judged on the other half, beside `stop when "
        "demotions equal promotions`. Writes OUT/map-NAME with map.csv, .json, .md and a picture "
        "for each policy. Runs are kept: after an interruption, repeat the command to continue."
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
        "--input",
        metavar="I",
        help="input of drift that gives all other parameters (default: its default input)",
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
    parser.add_argument("--name", help="name of the map (default: made from the options)")
    json(parser)


def size(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Finds the least fast memory at which a workload is at most --max-slowdown slower than "
        "with all of its memory fast, for policies at their defaults, for tuned configurations, "
        "and for no tiering (first-touch), with the curve of slowdown by fast memory. Writes "
        "OUT/size-NAME with size.csv, .json and .png. Runs are kept: after an interruption, "
        "repeat the command to continue. Exit code 3 if no configuration meets the bound with "
        "less than all of the memory fast."
    )
    but = ("policy", "substrate", "fast_gib", "placement", "repeats", "seed")
    group = scenario(parser, but=but)
    group.add_argument(
        "--policy",
        metavar="P[,P...]",
        help="tiering policies, or `all` that have knobs (default: that of --config, or of "
        "`tune run`)",
    )
    parser.add_argument(
        "--max-slowdown",
        type=percent,
        default=0.05,
        metavar="N%",
        help="bound on the slowdown against all-fast: of the time per operation, the run time or "
        "the latency (default: 5%%)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a best.yaml, whose policy is sized with its knobs, too; the scenario is its own "
        "where no option says otherwise (default: what `tune best` finds in OUT for each policy)",
    )
    parser.add_argument(
        "--seeds",
        type=count(MOST_SEEDS, least=2),
        default=3,
        metavar="K",
        help="held-out sampling seeds of the sizes around each answer (default: %(default)s)",
    )
    for kind in ("fast", "slow"):
        parser.add_argument(
            f"--price-{kind}",
            type=price,
            metavar="N",
            help=f"price of a GiB of {kind} memory, in any currency",
        )
    run_deadline(parser)
    workers(parser)
    out(parser, "folder of size-NAME, and of studies")
    parser.add_argument("--name", help="name of the sizing (default: made from the options)")
    json(parser)


def claims(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Checks published results against the simulator: runs what the claims need and prints a "
        "verdict for each. Without ids and --quick it also writes claims.json and claims.md."
    )
    parser.add_argument("id", nargs="*", help="only these claims")
    parser.add_argument("--quick", action="store_true", help="only claims of a few small runs")
    parser.add_argument("--list", action="store_true", help="list the claims and run nothing")
    parser.add_argument("--cached", action="store_true", help="run nothing: judge by earlier runs")
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
    parser.add_argument("--claims", metavar="DIR", help="folder of claims (default: those shipped)")
    parser.add_argument("--workers", type=count(MOST_WORKERS), default=len(os.sched_getaffinity(0)))
    json(parser)
