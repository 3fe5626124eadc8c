# SPDX-License-Identifier: MIT
"""`make torture`: disturbs the tuner in every way that the loops know, and counts what happens.

Counts are added per loop to results/torture.json, so that a run that was interrupted goes on where
it was; with another build of the engine, another seed or --anew a loop begins anew.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/tuner")]

import harness  # noqa: E402

RESULTS = ROOT / "results/torture.json"
TARGETS = {"traces": 10**6, "documents": 10**4, "kills": 10**3}
TELL_SECONDS = 20.0
SHOWN_FAILURES = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample, in about two minutes")
    parser.add_argument("--loop", action="append", metavar="NAME", help="only loops named so")
    parser.add_argument("--skip", action="append", metavar="NAME", help="not those named so")
    parser.add_argument(
        "--driver", type=Path, default=ROOT / "build/fuzz/fuzz", help="of traces (make fuzz-build)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each loop")
    parser.add_argument("--anew", action="store_true", help="forget what was counted before")
    parser.add_argument("--case", type=int, help="only this one, with what is printed in it")
    parser.add_argument("--out", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}")
    args = parser.parse_args()
    harness.verbose = args.case is not None
    if args.out is None and not args.quick and args.case is None:
        args.out = RESULTS
    if not os.environ.get(harness.PRELOAD):
        build = ROOT / "build/torture"
        build.mkdir(parents=True, exist_ok=True)
        harness.prepare(build)
    # Short: the loops' folders are in messages and in the header of a study.
    with tempfile.TemporaryDirectory(prefix="tt-torture-") as folder:
        return torture(args, Path(folder))


def torture(args: argparse.Namespace, folder: Path) -> int:
    import every_loop

    from tuner import engine

    failed = 0
    for make in every_loop.loops(folder, args.driver.absolute()):
        if args.loop and not make.name.startswith(tuple(args.loop)):
            continue
        if args.skip and make.name.startswith(tuple(args.skip)):
            continue
        loop = make.make()
        if args.case is not None:
            entry, cases = new_entry(args, engine.ids()["whole"]), [args.case]
        elif args.quick:
            rng = random.Random(f"{args.seed}/{loop.name}")
            cases = rng.sample(range(loop.cases), min(loop.quick, loop.cases))
            entry = new_entry(args, engine.ids()["whole"])
        else:
            entry = stored(args, loop.name, engine.ids()["whole"])
            cases = order(loop.cases, args.seed)[entry["cases"] :]
        failed += go_through(args, loop, cases, entry)
    if args.out:
        print(json.dumps(read(args.out)["totals"]))
    return 1 if failed else 0


def order(cases: int, seed: int) -> list[int]:
    """All cases, so that the first of them are a fair sample. One more case leaves the others in
    their order."""
    return sorted(range(cases), key=lambda case: zlib.crc32(f"{seed}/{case}".encode()))


def go_through(args: argparse.Namespace, loop: Any, cases: list[int], entry: Any) -> int:
    """Runs the cases; returns how many have failed, also in earlier runs that are counted."""
    began = told = time.monotonic()
    before, counts = entry["seconds"], Counter(entry["counts"])
    for done, case in enumerate(cases, start=1):
        result = loop.run(case, args.seed)
        counts.update(result.counts)
        for failure in result.failures:
            print(f"FAILED {loop.name}, case {case}: {failure}", flush=True)
            entry["failures"].append(f"case {case}: {failure}")
        now = time.monotonic()
        entry |= {"cases": entry["cases"] + 1, "of": loop.cases, "counts": dict(counts)}
        entry["failed"] += bool(result.failures)
        entry["seconds"] = round(before + now - began, 1)
        if now - told > TELL_SECONDS or done == len(cases) or now - began > args.seconds:
            told = now
            print(
                f"{loop.name}: {entry['cases']} of {loop.cases} cases, "
                f"{entry['failed']} failed, {entry['seconds']:.0f} s; {dict(counts)}",
                flush=True,
            )
            if args.out:
                store(args.out, loop.name, entry)
        if now - began > args.seconds:
            break
    return int(entry["failed"])


# --- The file of counts ---------------------------------------------------------------------------


def new_entry(args: argparse.Namespace, build: str) -> dict[str, Any]:
    return {
        "seed": args.seed,
        "engine_build": build,
        "cases": 0,
        "of": 0,
        "failed": 0,
        "seconds": 0.0,
        "counts": {},
        "failures": [],
    }


def stored(args: argparse.Namespace, name: str, build: str) -> dict[str, Any]:
    found = read(args.out)["loops"].get(name)
    if found and not args.anew and (found["seed"], found["engine_build"]) == (args.seed, build):
        return dict(found)
    return new_entry(args, build)


def read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"loops": {}, "totals": {}}
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def store(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Replaces one loop's entry, while other processes may replace those of others."""
    with (ROOT / "build/torture/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = read(path)
        content["loops"][name] = entry | {"failures": entry["failures"][:SHOWN_FAILURES]}
        totals: Counter[str] = Counter()
        for loop in content["loops"].values():
            totals.update(loop["counts"])
            totals.update({"cases": loop["cases"], "failed": loop["failed"]})
        content["totals"] = dict(sorted(totals.items()))
        content["targets"] = TARGETS
        content["seconds"] = round(sum(loop["seconds"] for loop in content["loops"].values()), 1)
        content["loops"] = dict(sorted(content["loops"].items()))
        temporary = path.with_suffix(".partial")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
