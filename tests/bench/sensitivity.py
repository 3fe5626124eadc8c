"""Measures how much the order of policies depends on what samplers show of prefetched lines.

    python tests/bench/sensitivity.py [--workload W ...] [--workers N]

Runs `tune sim --page-bytes 4096 --sensitivity tiering.prefetch_shown=0.05,0.1,0.3,1` on the default
input of each workload, and writes results/prefetch-shown.json and .md. Workloads that are not named
keep what was measured of them before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.documents import catalog
from tuner.documents.catalog import Kind

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "results" / "prefetch-shown.json"
SHARES = ("0.05", "0.1", "0.3", "1")
HEAD = """# What if samplers see more, or less, of a sweep?

A demand-miss event leaves out what a prefetcher brought in time. How much of the prefetched lines
it shows all the same is an estimate, `prefetch_shown` ([how](../engine/sim/README.md)). Here every
policy ran with its defaults and 4 KiB pages on the default input of each workload, with four
values. τ is Kendall's, between the order of all policies at the machine's own value and at this
one; policies whose figures differ by less than 0.6 % are tied. The mover is the policy whose cost
changes most.

"""


def measure(workload: str, workers: int) -> dict[str, Any]:
    # All policies on the same pages: a miniature has too few huge ones of most footprints.
    words = ["sim", "-w", workload, "--workers", str(workers), "--page-bytes", "4096", "--json"]
    words += ["--sensitivity", "tiering.prefetch_shown=" + ",".join(SHARES)]
    print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tuner", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def page(found: Mapping[str, Any]) -> str:
    columns = ["workload", *(f"τ at {share}, mover" for share in SHARES), "order changes"]
    lines = [columns, ["---"] * len(columns)]
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
        lines.append([workload, *cells, ", ".join(pairs) or "no"])
    return HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", "-w", action="append")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for workload in args.workload or sorted(catalog.names(Kind.workload)):
        found[workload] = measure(workload, args.workers)
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        FILE.with_suffix(".md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
