# SPDX-License-Identifier: MIT
"""What grows with a study: studies of several lengths on gups' smoke input.

    python tests/bench/length.py [--trials 100,300,1000]

Prints one JSON object. `study.N.seconds` is the wall time of N trials with references, verdict,
explanation and report, `study.N.driver_seconds` the processor time of the `tune` process, and
`study.ratio` the wall time of the second length over that of the first. `study.driver_mib` is what
the resident memory of that process grows by in 100 trials of the search, between the last two
lengths; `study.mlflow_mb` what database and artifacts of MLflow grow by in 100 trials.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TRIAL = re.compile(r"trial +\d+ \((\d+)/")
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """`resident` is the driver's memory by finished trials, in MiB."""

    seconds: float
    driver_seconds: float
    resident: dict[int, float]
    stored: int  # bytes


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def run(trials: int) -> Measured:
    with tempfile.TemporaryDirectory() as work:
        words = ["run", "--workload", "gups", "--input", "smoke", "--budget", str(trials)]
        print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner", *words, "--out", work],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        seen: dict[int, float] = {}
        assert process.stderr is not None
        for line in process.stderr:
            if found := TRIAL.match(line):
                seen[int(found[1])] = resident(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            raise SystemExit(f"tune {' '.join(words)}: ended with {status}")
        database, artifacts = Path(work, "mlflow.db"), Path(work, "mlartifacts")
        files = [database, *(path for path in artifacts.rglob("*") if path.is_file())]
        stored = sum(path.stat().st_size for path in files)
    return Measured(seconds, usage.ru_utime + usage.ru_stime, seen, stored)


def figures(lengths: list[int]) -> dict[str, float]:
    found = {trials: run(trials) for trials in lengths}
    first, second, *_ = lengths
    before, last = lengths[-2:]
    hundreds = (last - before) / 100
    memory = found[last].resident
    own = {
        f"study.{trials}.{name}": value
        for trials, measured in found.items()
        for name, value in (
            ("seconds", measured.seconds),
            ("driver_seconds", measured.driver_seconds),
        )
    }
    return own | {
        "study.ratio": found[second].seconds / found[first].seconds,
        "study.driver_mib": (memory[last] - memory[before]) / hundreds,
        "study.mlflow_mb": (found[last].stored - found[before].stored) / 1e6 / hundreds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", default="100,300,1000", help="lengths, rising; two at least")
    args = parser.parse_args()
    print(json.dumps(figures([int(trials) for trials in args.trials.split(",")]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
