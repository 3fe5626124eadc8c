# SPDX-License-Identifier: MIT
"""Loop 5: documents and traces that are damaged at random are accepted or refused, never more."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from document_fuzz import fuzz
from harness import forked
from loops import Loop, Result

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("stream", "spool", "import", "requests")
PER_CASE = 40
RUNS = 2500
FOUND = re.compile(r"no finding in (\d+) runs")


def document_loop(folder: Path) -> Loop:
    """A case is a process that reads so many."""

    def read(seed: str) -> int:
        told: list[str] = []
        counts = fuzz(PER_CASE, seed, folder, told.append)
        print(json.dumps([counts["accepted"], counts["refused"], told]))
        return 0

    def run(case: int, seed: int) -> Result:
        outcome = forked(lambda: read(f"{seed}-{case}"), folder)
        if outcome.code:
            return Result({}, [f"ended with {outcome.code}: {outcome.err[-300:]}"])
        accepted, refused, told = json.loads(outcome.out)
        counts = {"documents": PER_CASE, "accepted": accepted, "refused": refused}
        return Result(counts, told)

    return Loop("documents", 10_000 // PER_CASE, 8, run)


def trace_loop(driver: Path) -> Loop:
    """A case is a run of the fuzz driver, under sanitizers, on one of its targets."""
    if not driver.exists():
        raise SystemExit(f"{driver} is not built; `make torture` builds it")

    def run(case: int, seed: int) -> Result:
        target = TARGETS[case % len(TARGETS)]
        done = subprocess.run(
            [
                *(driver, target, "--corpus", ROOT / "tests/fuzz/corpus" / target),
                *("--runs", str(RUNS), "--seed", str(seed * 1_000_000 + case)),
            ],
            env={"PATH": "/usr/bin:/bin"},  # without the preload, which sanitizers do not bear
            capture_output=True,
            text=True,
            errors="replace",
        )
        if counted := FOUND.search(done.stdout):
            return Result({"traces": int(counted[1])})
        return Result({}, [f"{target}: {(done.stderr or done.stdout)[-500:]}"])

    return Loop("traces", 402, 3, run)
