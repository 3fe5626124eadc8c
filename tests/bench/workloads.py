# SPDX-License-Identifier: MIT
"""Tunes every workload with HybridTier and HeMem and writes what came out.

    python tests/bench/workloads.py --out results/workloads.json [--budget 20] [--workload W ...]

Per workload: footprint, accesses, R, seconds to make the stream, seconds per trial, and default and
tuned objective per policy, and the objective of placements without knobs, on the workload's own
machine at a ratio of 1:8, as means over the six held-out seeds. HeMem runs with its pages of 2 MiB
where the input has a stream for them, and else with 4 KiB. What is already in the file for the same
engine build and budget is kept, so that an interrupted run continues. Takes one to three minutes
per workload; figures of the streams are also kept in workloads/characteristics.json. `make docs`
writes docs/tuning-results.md from the file.
"""

from __future__ import annotations

import argparse
import json
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
    """Figures of the default stream, which the studies have made; also kept as characteristics."""
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
    """One study: means over its held-out seeds, references, and median seconds of its trials."""
    from tuner.study import log

    command = [sys.executable, "-m", "tuner", "run", "--workload", workload, "--policy", policy]
    command += ["--budget", str(budget), "--no-explain", "--out", str(out), "--json"]
    if policy == "hemem" and not has_huge_pages(workload):
        command += ["--page-bytes", "4096"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    summary = json.loads(done.stdout)
    trials = log.load(out / summary["study"]).done
    values = {
        contender["kind"]: statistics.mean(contender["values"])
        for contender in summary["verdict"]["contenders"]
        if contender["policy"] == policy
    }
    default, tuned = values["untuned"], values.get("tuned", values["untuned"])
    gain = tuned / default if summary["objective"] == "throughput" else default / tuned
    return {
        "page_bytes": summary["page_bytes"],
        "default": default,
        "tuned": tuned,
        "gain": gain - 1,
        "failed": summary["failed"],
        "advice": summary["verdict"]["headline"],
        "references": summary["verdict"]["references"],
        "trial_seconds": round(
            statistics.median(t.result.seconds for t in trials if t.result is not None), 3
        ),
        "study_seconds": round(summary["seconds"], 1),
    }


def has_huge_pages(workload: str) -> bool:
    """Whether the default input has a scale at which 2 MiB pages are fine enough."""
    from tuner.documents import catalog

    spec = catalog.workload(workload).spec
    return spec.inputs[spec.default_input].huge_scale is not None


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
    args = parser.parse_args()
    rows = _rows(args.out)
    from tuner import engine
    from tuner.documents import catalog

    known = catalog.names(catalog.Kind.workload)
    made_by = {"engine_build": engine.ids()["whole"], "budget": args.budget}
    missing = [n for n in known if not made_by.items() <= rows.get(n, {}).items()]
    for workload in args.workload or missing:
        with tempfile.TemporaryDirectory() as work:
            row: dict[str, Any] = {}
            for policy in POLICIES:
                say(f"{workload}: {policy}")
                row[policy] = tune(workload, policy, args.budget, Path(work))
            # Of pages of 4 KiB.
            row["references"] = row["hybridtier"].pop("references")
            row["hemem"].pop("references")
            row = made_by | stream_of(workload) | row
        # Another process may have written in the meantime.
        rows = _rows(args.out) | {workload: row}
        rows = {name: rows[name] for name in known if name in rows}
        args.out.write_text(json.dumps({"workloads": rows}, indent=1) + "\n")
        say(json.dumps(row))


if __name__ == "__main__":
    main()
