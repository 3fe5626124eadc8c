# SPDX-License-Identifier: MIT
"""Which knobs of HeMem matter on which workload, beside what is published.

    python tests/bench/reasons.py [--workloads bc,pr,...] [--folder DIR] [--out results/tuner.json]

From Good to Great (2025), Table 5, names for seven workloads on its machine pmem-large at 1:8 the
knobs that matter, and why. Here a study of each (HeMem, 2 MiB pages, 100 trials, defaults
otherwise) says which changes its gain needs, by runs. A study that is in --folder is taken from
there or goes on. `make docs` writes the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tuner
from tuner import engine

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED: dict[str, tuple[str, tuple[str, ...]]] = {
    "bc": (
        "accurate classification, timely migrations",
        ("read_hot_threshold", "sampling_period", "cooling_threshold"),
    ),
    "pr": (
        "no unnecessary migrations",
        ("read_hot_threshold", "write_hot_threshold", "cooling_threshold"),
    ),
    "cc": (
        "no unnecessary migrations",
        ("read_hot_threshold", "write_hot_threshold", "cooling_threshold"),
    ),
    "silo": (
        "hot pages found better, fewer migrations of warm pages, less sampling of writes",
        ("read_hot_threshold", "sampling_period", "cooling_pages"),
    ),
    "btree": (
        "pages that are written count less",
        ("write_hot_threshold", "write_sampling_period"),
    ),
    "xsbench": (
        "no migrations of warm pages",
        ("read_hot_threshold", "write_hot_threshold", "cooling_threshold"),
    ),
    "gups": (
        "more accurate sampling, hot pages found sooner",
        ("read_hot_threshold", "sampling_period", "write_hot_threshold"),
    ),
}
SHOWN = 0.05
"""A change with a smaller share of the gain is left out. One that only others make worth its while
has less than none."""


def found(workload: str, folder: Path) -> dict[str, Any]:
    """What a study of the workload says."""
    study = tuner.tune(
        workload,
        policy="hemem",
        machine="pmem-large",
        ratio="1:8",
        budget=100,
        rivals="none",
        robust="none",
        name=f"hemem-{workload}",
        out=folder,
        resume=True,
    )
    explanation = study.explain()
    needed = explanation.needed if explanation else []
    why, knobs = PUBLISHED[workload]
    return {
        "workload": workload,
        "published": {"why": why, "knobs": knobs},
        "headline": study.verdict.headline,
        "shares": {each.knob: each.share for each in needed if abs(each.share or 0) >= SHOWN},
        "mechanism": study.mechanism(),
        "best": {each.knob: study.best[each.knob] for each in needed},
    }


def figures(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """How far both name the same: how many of the published knobs have a share here, and in how
    many cases the largest share is one of theirs."""
    explained = [case for case in cases if case["shares"]]
    both = [
        [knob for knob in case["published"]["knobs"] if case["shares"].get(knob, 0.0) >= SHOWN]
        for case in explained
    ]
    first = [
        max(case["shares"], key=case["shares"].__getitem__) in case["published"]["knobs"]
        for case in explained
    ]
    return {
        "explained": len(explained),
        "published": sum(len(case["published"]["knobs"]) for case in explained),
        "both": sum(map(len, both)),
        "first_is_published": sum(first),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(PUBLISHED))
    parser.add_argument("--folder", type=Path, default=ROOT / "build/reasons")
    parser.add_argument("--out", type=Path, help="of the figures: results/tuner.json, for one")
    args = parser.parse_args()
    cases = []
    for workload in args.workloads.split(","):
        cases.append(case := found(workload, args.folder))
        print(json.dumps(case), file=sys.stderr, flush=True)
    whole = {"engine_build": engine.results_id(), **figures(cases), "cases": cases}
    print(json.dumps(whole, indent=1))
    if args.out:
        before = json.loads(args.out.read_text()) if args.out.exists() else {}
        args.out.write_text(json.dumps(before | {"reasons": whole}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
