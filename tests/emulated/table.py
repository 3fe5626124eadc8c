# SPDX-License-Identifier: MIT
"""The table of real kernels beside the simulator, which writes results/emulated.json.

python tests/emulated/table.py [--workloads gups,redis] [--policies nbt,...] [--ratios 1:4]
    [--layouts 0,1,2] [--kernel 6.12] [--jobs 2] [--out results/emulated.json]

What memory and the kernel cost in the machine is measured first (`costs`). Each cell is a run of
`tune emulate` with the policy's defaults on the workload's input `emulated`, and the simulator's
answer for the same set-up. Runs are kept in the cache, so that an interrupted table goes on; cells
that the file has and that were not asked for stay, unless other programs or another kernel made
them. `first-touch` is always run: what a policy gains is relative to it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.emulate.machine import Machine
from tuner.emulate.measure import compared, measure
from tuner.emulate.plan import trial_of
from tuner.run import runner

ROOT = Path(__file__).resolve().parents[2]
STILL = "first-touch"
POLICIES = (STILL, "autonuma", "nbt", "hybridtier", "freqtier", "hemem", "memtis", "unified")
WORKLOADS = ("gups", "redis", "silo", "btree", "liblinear")
Cell = tuple[str, str, str, int]
"""Workload, policy, ratio, layout."""


def measured(cell: Cell, kernel: str) -> dict[str, Any]:
    workload, policy, ratio, layout = cell
    trial = trial_of(workload, engine.policy(policy), {}, ratio=ratio)
    machine = Machine(kernel)
    request = machine.request(trial, layout=layout)
    found = machine.run(request)
    rows = compared(request, found, runner.run(trial))
    return {
        "workload": workload,
        "policy": policy,
        "ratio": ratio,
        "layout": layout,
        "figures": {row.what: row.figures for row in rows},
        "host_seconds": round(found.host_seconds, 1),
        "built": request.built.model_dump(),
    }


def cells_of(args: argparse.Namespace) -> Iterator[Cell]:
    policies = dict.fromkeys((STILL, *args.policies.split(",")))
    for ratio in args.ratios.split(","):
        for workload in args.workloads.split(","):
            for policy in policies:
                for layout in args.layouts.split(","):
                    yield workload, policy, ratio, int(layout)


def known(path: Path, built: dict[str, Any]) -> dict[str, Any]:
    """What the file has, if the same programs on the same kernel have made it."""
    content = json.loads(path.read_text()) if path.is_file() else None
    if content and content["built"] == built:
        return dict(content)
    if content:
        print(f"{path}: made by other programs or another kernel; it is written anew")
    return {"built": built, "costs": [], "cells": []}


def costs_of(machine: Machine) -> list[dict[str, Any]]:
    return [
        {
            "what": each.what,
            "unit": each.unit,
            "measured": each.value,
            "expected": each.expected,
            "source": each.source,
        }
        for each in measure(machine)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--ratios", default="1:4")
    parser.add_argument("--layouts", default="0")
    parser.add_argument("--kernel", default="6.12")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "results/emulated.json")
    args = parser.parse_args()
    machine = Machine(args.kernel, note=print)
    content = known(args.out, machine.built.model_dump())  # downloads once, for all
    content["costs"] = content["costs"] or costs_of(machine)
    done = {
        (each["workload"], each["policy"], each["ratio"], each["layout"]): each
        for each in content["cells"]
    }
    wanted = [cell for cell in cells_of(args) if cell not in done]
    failed = 0
    with ProcessPoolExecutor(args.jobs) as pool:
        started = time.monotonic()
        running = {pool.submit(measured, cell, args.kernel): cell for cell in wanted}
        for number, job in enumerate(as_completed(running), 1):
            cell = running[job]
            if error := job.exception():
                failed += 1
                print(f"{' '.join(map(str, cell))}: {error}", file=sys.stderr)
                continue
            done[cell] = {name: value for name, value in job.result().items() if name != "built"}
            content["cells"] = [done[key] for key in sorted(done)]
            args.out.write_text(json.dumps(content, indent=1) + "\n")
            spent = time.monotonic() - started
            print(f"{number} of {len(wanted)} in {spent:.0f} s: {' '.join(map(str, cell))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
