"""Measures what docs/accuracy.md compares with publications; writes results/checks.json.

    python tests/bench/checks.py [--tests build/engine/engine_tests] [--out results/checks.json]

Takes some minutes: a stream of `cachelib` at two more scales is made, and removed afterwards. Needs
the engine's tests (`make engine-test`), which replay the microbenchmark with placements by object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FIGURE = re.compile(
    r"sequential on fast ([\d.]+) %, chase on fast ([\d.]+) % \(.*\), all slow ([\d.]+) %"
)


def soar(tests: Path) -> list[dict[str, Any]]:
    """Soar/Alto (OSDI'25), Fig. 1, as the engine's own test prints it."""
    command = [str(tests), "Figure 1 of Soar/Alto"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = FIGURE.search(printed)
    if found is None:
        raise SystemExit(f"{tests}: no line like '{FIGURE.pattern}' in:\n{printed}")
    published = (0.524, 0.524 * 1.34, 0.474)
    checks = (
        "Soar/Alto Fig. 1: sequential buffer fast, relative to all fast",
        "the same, chased buffer fast",
        "the same, all slow",
    )
    return [
        {"check": check, "published": paper, "here": float(here) / 100}
        for check, paper, here in zip(checks, published, found.groups(), strict=True)
    ]


def throughput(policy: str, *options: str) -> float:
    words = ["sim", "--workload", "cachelib", "--policy", policy, *options, "--json"]
    print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tuner", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return float(json.loads(done.stdout)["objective"])


def freqtier() -> list[dict[str, Any]]:
    """FreqTier (2024), Table II, 1:8: throughput relative to all local memory."""
    machine = ("--machine", "freqtier-cxl1")
    fast = throughput("all-fast", *machine)
    return [
        {
            "check": f"FreqTier Table II, CacheLib CDN at 1:8: {name} relative to all fast",
            "published": published,
            "here": throughput(policy, *machine) / fast,
        }
        for name, policy, published in (("FreqTier", "freqtier", 0.888), ("HeMem", "hemem", 0.791))
    ]


def scales() -> list[dict[str, Any]]:
    """The same workload in miniatures of other sizes. No publication has this."""
    usual = throughput("all-fast", "--scale", "256")
    with tempfile.TemporaryDirectory() as work:  # streams that nothing else needs
        os.environ["TIERTUNE_CACHE"] = work
        try:
            found = {scale: throughput("all-fast", "--scale", str(scale)) for scale in (64, 1024)}
        finally:
            del os.environ["TIERTUNE_CACHE"]
    return [
        {
            "check": f"all-fast throughput of `cachelib` at R = {scale} against 256",
            "here": value / usual - 1,
        }
        for scale, value in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tests", type=Path, default=ROOT / "build/engine/engine_tests")
    parser.add_argument("--out", type=Path, default=ROOT / "results/checks.json")
    args = parser.parse_args()
    checks = [*soar(args.tests), *freqtier(), *scales()]
    args.out.write_text(json.dumps({"checks": checks}, indent=1) + "\n")


if __name__ == "__main__":
    main()
