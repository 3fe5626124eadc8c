"""Tunes every workload with HybridTier and HeMem and writes the table of what came out.

    python tests/bench/workloads.py --out results/workloads.json [--budget 20] [--workload W ...]

Per workload: footprint, accesses, R, seconds to make the stream, seconds per trial, and default and
tuned objective per policy, at the workload's own machine and a ratio of 1:8. What is already in the
file for the same engine build and budget is kept, so that an interrupted run goes on. `--table`
only prints the file as Markdown. Takes one to three minutes per workload; streams are removed once
they were used, and their figures are kept in workloads/characteristics.json, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

POLICIES = ("hybridtier", "hemem")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stream_of(workload: str) -> dict[str, Any]:
    """Figures of the default stream, which the studies have made; kept as characteristics, too."""
    from tuner.documents import catalog
    from tuner.report import characteristics

    entry = catalog.workload(workload)
    spec = entry.spec
    characteristics.measure(entry, spec.default_input)
    figures = characteristics.known(entry)[spec.default_input].figures
    assert figures is not None
    return {
        "input": spec.default_input,
        "machine": spec.machine,
        "objective": spec.objective,
        "footprint_gib": figures.footprint_gib,
        "scale": figures.scale,
        "accesses": figures.full_accesses,
        "simulated_accesses": figures.accesses,
        "nominal_seconds": figures.seconds,
        "bytes": figures.file_bytes,
        "make_cpu_seconds": figures.making_seconds,
    }


def tune(workload: str, policy: str, budget: int, out: Path) -> dict[str, Any]:
    """One study. Objectives and median seconds of its trials."""
    from tuner.study import log

    done = subprocess.run(
        [sys.executable, "-m", "tuner", "run", "--workload", workload, "--policy", policy,
         "--budget", str(budget), "--out", str(out), "--json"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    summary = json.loads(done.stdout)
    trials = log.load(out / summary["study"]).done
    return {
        "default": summary["default_objective"],
        "tuned": summary["best_objective"],
        "gain": summary["gain"],
        "failed": summary["failed"],
        "trial_seconds": round(
            statistics.median(t.result.seconds for t in trials if t.result is not None), 3
        ),
        "study_seconds": round(summary["seconds"], 1),
    }


def table(rows: dict[str, Any]) -> str:
    """Markdown, as the README has it."""

    def value(x: float, objective: str) -> str:
        if objective == "runtime":
            return f"{x:.4g} s"
        return f"{x / 1e6:.3g} M/s" if x >= 1e6 else f"{x / 1e3:.4g} k/s"

    lines = [
        "| workload | GiB | accesses | R | s to make | s a trial | HybridTier: default → tuned "
        "| gain | HeMem: default → tuned | gain |",
        "| --- " * 10 + "|",
    ]
    for name, row in rows.items():
        accesses = row["accesses"]
        cells = [
            f"`{name}`",
            f"{row['footprint_gib']:.3g}",
            f"{accesses / 1e12:.3g} T" if accesses >= 1e12 else f"{accesses / 1e9:.3g} G",
            f"{row['scale']:g}",
            f"{row['make_cpu_seconds']:.0f}",
            " / ".join(f"{row[policy]['trial_seconds']:.1f}" for policy in POLICIES),
        ]
        for policy in POLICIES:
            default, tuned = (value(row[policy][k], row["objective"]) for k in ("default", "tuned"))
            cells += [f"{default} → {tuned}", f"{100 * row[policy]['gain']:+.1f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rows(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["workloads"] if file.exists() else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/workloads.json"))
    parser.add_argument("--budget", type=int, default=20)
    parser.add_argument("--workload", nargs="+")
    parser.add_argument("--table", action="store_true", help="print the file, run nothing")
    args = parser.parse_args()
    rows = _rows(args.out)
    if args.table:
        print(table(rows))
        return

    from tuner import engine
    from tuner.documents import catalog

    known = catalog.names(catalog.Kind.workload)
    made_by = {"engine_build": engine.build_id(), "budget": args.budget}
    missing = [n for n in known if not made_by.items() <= rows.get(n, {}).items()]
    for workload in args.workload or missing:
        with tempfile.TemporaryDirectory() as work:
            os.environ["TIERTUNE_CACHE"] = str(Path(work) / "cache")
            row: dict[str, Any] = {}
            for policy in POLICIES:
                say(f"{workload}: {policy}")
                row[policy] = tune(workload, policy, args.budget, Path(work) / "results")
            row = made_by | stream_of(workload) | row
        # Another process may have written meanwhile.
        rows = _rows(args.out) | {workload: row}
        rows = {name: rows[name] for name in known if name in rows}
        args.out.write_text(json.dumps({"workloads": rows}, indent=1) + "\n")
        say(json.dumps(row))
    print(table(rows))


if __name__ == "__main__":
    main()
