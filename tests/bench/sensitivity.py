# SPDX-License-Identifier: MIT
"""Measures how much the order of policies depends on figures that nobody measured.

    python tests/bench/sensitivity.py [--workload W ...] [--workers N]

Runs `tune sim --page-bytes 4096 --sensitivity` on the default input of each workload: over all
estimates, at both ends of their ranges, for results/sensitivity.json and .md; and over four values
of what samplers show of prefetched lines, for results/prefetch-shown.json and .md. What is known is
written after every run. The next command measures what is missing, which is everything after a
change of the engine, and the workloads that it names.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.declarations import EstimateDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.files import write_atomically
from tuner.pages import markdown_table

ROOT = Path(__file__).resolve().parents[2]
SHARES = ("0.05", "0.1", "0.3", "1")

Found = Mapping[str, Any]
"""By workload, what `tune sim --sensitivity --json` prints."""


# --- What samplers show of prefetched lines -------------------------------------------------------

PREFETCH_HEAD = """# What if samplers see more, or less, of a sweep?

A demand-miss event leaves out what a prefetcher brought in time. How much of the prefetched lines
it shows all the same is an estimate, `prefetch_shown` ([how](../engine/sim/README.md)). Here every
policy ran with its defaults and 4 KiB pages on the default input of each workload, with four
values. τ is Kendall's, between the order of all policies at the machine's own value and at this
one; policies whose figures differ by less than 0.6 % are tied. The mover is the policy whose cost
changes most.

"""


def prefetch_page(found: Found) -> str:
    rows = []
    for workload, one in sorted(found.items()):
        cells = [
            f"{case['tau']:.2f}, {case['mover']} {case['change']:+.1%}"
            if case["change"]
            else f"{case['tau']:.2f}"
            for case in one["estimates"]
        ]
        pairs = dict.fromkeys(
            f"{a} > {b}" for case in one["estimates"] for a, b in case["reversed"]
        )
        rows.append([workload, *cells, ", ".join(pairs) or "no"])
    shares = (f"τ at {share}, mover" for share in SHARES)
    table = markdown_table((["workload", *shares, "order changes"], rows))
    return f"{PREFETCH_HEAD}{table}\n"


# --- All estimates --------------------------------------------------------------------------------

ESTIMATES_HEAD = """# What if the machine's estimates are off?

Some figures of the machine nobody has measured. Each has a range in which it plausibly lies
([`estimates.cpp`](../engine/sim/estimates.cpp) has them with their sources). Here every policy ran
with its defaults and 4 KiB pages on the default input of each workload, on the machine as it is,
and with one estimate at a time at either end of its range. τ is Kendall's, between the two orders
of all policies; policies whose figures differ by less than 0.6 % are tied. A pair is reversed if
the policy that was ahead is now behind; costs that change by less than 0.05 % are not named. A dash
stands where the range is a multiple of 0 on all machines.

"""
LEAST_CHANGE = 0.0005


def effect(estimate: EstimateDecl, found: Found) -> tuple[float, Sequence[str]]:
    """The smallest tau, and the estimate's row."""
    cases = [
        (workload, case)
        for workload, one in sorted(found.items())
        for case in one["estimates"]
        if case["name"] == estimate.name
    ]
    times = " times" if estimate.relative else ""
    row = [f"`{estimate.name}`", f"{estimate.low:g} to {estimate.high:g}{times}"]
    if not cases:
        return 1.0, [*row, *"––––"]
    where, case = min(cases, key=lambda one: float(one[1]["tau"]))
    tau = float(case["tau"])
    row.append(f"{tau:.2f}, {where}" if tau < 1 else "1.00")
    reversed_in: dict[str, dict[str, None]] = {}
    for workload, case in cases:
        for a, b in case["reversed"]:
            reversed_in.setdefault(f"{a} > {b}", {})[workload] = None
    row.append(str(len(set().union(*reversed_in.values()))))
    row.append("; ".join(f"{pair} ({', '.join(names)})" for pair, names in reversed_in.items()))
    where, case = max(cases, key=lambda one: abs(math.log1p(one[1]["change"])))
    small = abs(case["change"]) < LEAST_CHANGE
    row.append("none" if small else f"{case['change']:+.1%}, {case['mover']} ({where})")
    return tau, [cell or "none" for cell in row]


def estimates_page(found: Found) -> str:
    effects = sorted(effect(estimate, found) for estimate in engine.estimates().values())
    head = ["estimate", "range", "smallest τ", "workloads whose order changes"]
    head += ["reversed", "largest change of a cost"]
    by_estimate = markdown_table((head, [row for _, row in effects]))
    rows = []
    for workload, one in sorted(found.items()):
        decisive = dict.fromkeys(f"`{c['name']}`" for c in one["estimates"] if c["reversed"])
        least = min(float(case["tau"]) for case in one["estimates"])
        survives = "yes" if one["survives"] else "no"
        rows.append([workload, survives, f"{least:.2f}", ", ".join(decisive) or "none"])
    head = ["workload", "order survives", "smallest τ", "estimates that change it"]
    return f"{ESTIMATES_HEAD}{by_estimate}\n\n{markdown_table((head, rows))}\n"


# --- Runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """A file of results, and the page beside it."""

    file: Path
    vary: Sequence[str]
    page: Callable[[Found], str]

    def load(self) -> dict[str, Any]:
        """What this engine has measured."""
        found = json.loads(self.file.read_text()) if self.file.exists() else {}
        build = engine.ids()["whole"]  # streams are made anew, too
        return {name: one for name, one in found.items() if one["engine_build"] == build}

    def add(self, workload: str, one: Mapping[str, Any]) -> None:
        found = self.load() | {workload: {**one, "engine_build": engine.ids()["whole"]}}
        write_atomically(self.file, json.dumps(found, indent=1, sort_keys=True) + "\n")
        write_atomically(self.file.with_suffix(".md"), self.page(found))


RESULTS = ROOT / "results"
REPORTS = (
    Report(
        RESULTS / "prefetch-shown.json",
        ["tiering.prefetch_shown=" + ",".join(SHARES)],
        prefetch_page,
    ),
    Report(RESULTS / "sensitivity.json", [], estimates_page),
)


def measure(workload: str, vary: Sequence[str], workers: int) -> dict[str, Any]:
    # All policies on the same pages: a miniature has too few huge ones of most footprints.
    words = ["sim", "-w", workload, "--workers", str(workers), "--page-bytes", "4096", "--json"]
    words += ["--sensitivity", *vary]
    print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tuner", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    for case in found["estimates"]:
        del case["objectives"]  # by far the larger part, and the pages have what follows from them
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", "-w", action="append", help="measure it, known or not")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    for workload in args.workload or sorted(catalog.names(Kind.workload)):
        for report in REPORTS:
            if args.workload or workload not in report.load():
                report.add(workload, measure(workload, report.vary, args.workers))


if __name__ == "__main__":
    main()
