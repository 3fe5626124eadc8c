"""Measures how far results depend on the scale of the miniature; writes results/scale.json.

    python tests/bench/scale.py [--workloads pr gups ...] [--policies hemem ...]
                                [--factors 0.5 1 2 4] [--out results/scale.json]

The default input of every workload, under every policy with default knobs, at half, once, twice and
four times the scale R of that input, and what the streams hold at full scale. A run that is refused
for its few simulated fast pages is made all the same: that is what the refusal is about.

Takes some three hours of one core, most of it for the streams at R/2; what it has is written after
every stream, and a run with the same engine goes on where the last one ended. Streams are made in a
temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.files import write_atomically
from tuner.run import runner, settings, streams
from tuner.run.trial import Status

ROOT = Path(__file__).resolve().parents[2]
FACTORS = (0.5, 1.0, 2.0, 4.0)
Figures = dict[str, Any]


def load(path: Path) -> Figures:
    """What an earlier run of this engine has written; nothing of another engine's."""
    empty: Figures = {"engine": engine.build_id(), "workloads": {}}
    try:
        found: Figures = json.loads(path.read_text())
    except FileNotFoundError:
        return empty
    return found if found["engine"] == empty["engine"] else empty


def measure(workload: str, page_bytes: int, policies: list[str], factor: float) -> Figures:
    """One stream, and a run of each policy on it."""
    figures: Figures = {"policies": {}}
    for name in policies:
        policy = engine.policy(name)
        usual = settings.resolve(workload, policy=policy, page_bytes=page_bytes).scenario.scale
        setting = settings.resolve(
            workload, policy=policy, page_bytes=page_bytes, scale=usual * factor
        )
        trial = setting.trial(0, {}).model_copy(update={"coarse": True})
        if "scale" not in figures:
            started = time.process_time()
            info = engine.stream_info(streams.ensure(trial.stream))
            figures |= {
                "scale": info["scale"],
                "accesses": info["accesses"] * info["scale"],
                "operations": info["operations"] * info["scale"],
                "nominal_seconds": info["nominal_seconds"],
                "making_seconds": round(time.process_time() - started, 1),
            }
        result = runner.run(trial)
        if result.status is Status.success:
            found: Figures = {
                "objective": result.objective,
                "fast_pages": round(
                    result.metrics["fast_capacity_bytes"] / info["scale"] / page_bytes
                ),
                "seconds": round(result.seconds, 2),
            }
        else:
            found = {"error": result.error}
        print(workload, f"{factor:g} R", name, found, file=sys.stderr, flush=True)
        figures["policies"][name] = found
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = {name: policy.page_bytes for name, policy in engine.policies().items()}
    workloads = sorted(catalog.names(catalog.Kind.workload))
    parser.add_argument("--workloads", nargs="+", default=workloads)
    parser.add_argument("--policies", nargs="+", default=sorted(known), choices=sorted(known))
    parser.add_argument("--factors", nargs="+", type=float, default=FACTORS)
    parser.add_argument("--out", type=Path, default=ROOT / "results/scale.json")
    args = parser.parse_args()
    results = load(args.out)
    for workload in args.workloads:
        # The cheapest first.
        for factor in sorted(args.factors, reverse=True):
            for page_bytes in sorted(set(known.values())):
                row = results["workloads"].setdefault(workload, {}).setdefault(str(page_bytes), {})
                had: Figures = row.get(f"{factor:g}", {"policies": {}})
                left = [
                    name
                    for name in args.policies
                    if known[name] == page_bytes and name not in had["policies"]
                ]
                if not left:
                    continue
                with tempfile.TemporaryDirectory() as work:
                    os.environ["TIERTUNE_CACHE"] = work
                    found = measure(workload, page_bytes, left, factor)
                found["policies"] = had["policies"] | found["policies"]
                row[f"{factor:g}"] = found
                write_atomically(args.out, json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
