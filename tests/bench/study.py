# SPDX-License-Identifier: MIT
"""Runs the README's study and the placements that it is compared with; writes results/study.json.

    python tests/bench/study.py [--out results/study.json]

Then `make docs` writes the README's figures and its picture from that file.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD, POLICY, BUDGET = "gups", "freqtier", 100
TITLE = "GUPS with a hot set that moves, DRAM and Optane at 1:8, FreqTier"
REFERENCES = ("all-fast", "static-hot", "first-touch", "all-slow")


def tune(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", *words]
    print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)


def objectives(study: Path) -> list[float | None]:
    """Of every trial, in order; None where it failed."""
    events = [json.loads(line) for line in (study / "trials.jsonl").read_text().splitlines()]
    results = [event["result"] for event in events if event["event"] == "finished"]
    return [result["objective"] for result in sorted(results, key=lambda result: result["number"])]


def measure() -> dict[str, Any]:
    words = ["run", "--workload", WORKLOAD, "--policy", POLICY, "--budget", str(BUDGET)]
    with tempfile.TemporaryDirectory() as work:
        out = Path(work)
        printed = tune(*words, cwd=out).stdout
        (study,) = (path.parent for path in out.glob("results/*/study.json"))
        trials = objectives(study)
    references = {}
    for policy in REFERENCES:
        done = tune("sim", "--workload", WORKLOAD, "--policy", policy, "--json", cwd=ROOT)
        sim = json.loads(done.stdout)
        references[policy] = sim["objective"]
    objective = sim["objective_name"]
    best = (min if objective == "runtime" else max)(t for t in trials if t is not None)
    return {
        "title": TITLE,
        "command": "tune " + " ".join(words),
        "output": re.sub(r"(?<= )/\S*?/results/", "./results/", printed).splitlines(),
        "engine_build": json.loads(tune("--version", "--json", cwd=ROOT).stdout)["whole"],
        "policy": POLICY,
        "objective": objective,
        "default": trials[0],
        "best": best,
        "references": references,
        "trials": trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results/study.json")
    args = parser.parse_args()
    args.out.write_text(json.dumps(measure(), indent=1) + "\n")


if __name__ == "__main__":
    main()
