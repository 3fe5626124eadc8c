# SPDX-License-Identifier: MIT
"""The table of real kernels beside the simulator, which writes results/emulated.json.

python tests/emulated/table.py [--workloads gups,redis] [--policies nbt,nbt:hot_threshold=20]
    [--ratios 1:4] [--layouts 0,1,2] [--kernel 6.12] [--jobs 2] [--simulate] [--most N]

A cell is a run of `tune emulate` with the policy's defaults, or with knobs of it, on the workload's
input `emulated`, and the simulator's answer for the same set-up. `first-touch` is always run: what
a policy gains is relative to it. Each cell names the sources that made it: a cell is run if it was
asked for and is missing, or if other sources made it; of those that were not asked for, those of
other sources are dropped. The simulator's half is always of this engine; `--simulate` makes only
that one anew. What memory and the kernel cost in the machine is measured when its sources change.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from tuner import engine
from tuner.commands.sim import parse_knobs
from tuner.emulate.machine import Machine
from tuner.emulate.measure import compared, measure
from tuner.emulate.plan import Emulated, How, Request, alike, how, trial_of
from tuner.files import write_atomically
from tuner.run import runner
from tuner.run.trial import Trial

ROOT = Path(__file__).resolve().parents[2]
STILL = "first-touch"
POLICIES = (STILL, "autonuma", "nbt", "hybridtier", "freqtier", "hemem", "memtis", "unified")
WORKLOADS = ("gups", "redis", "silo", "btree", "liblinear", "cachelib", "bc", "xsbench")


class Cell(NamedTuple):
    workload: str
    policy: str
    """With knobs: NAME:KNOB=VALUE."""
    ratio: str
    layout: int

    def trial(self) -> Trial:
        name, *settings = self.policy.split(":")
        policy = engine.policy(name)
        return trial_of(self.workload, policy, parse_knobs(settings, policy), ratio=self.ratio)


def sources(machine: Machine, request: Request, trial: Trial) -> dict[str, str]:
    """What a run depends on, as hashes of sources: programs of other compilers do the same."""
    ids = engine.ids()
    found = {
        "kernel": machine.built.kernel,
        "qemu": machine.built.qemu,
        "machine": ids["emulated"],
        "stream": trial.stream.key,
        "setup": request.setup,
    }
    if how(request.policy) is How.tierd:
        found["tierd"] = f"{ids['policies']}-{ids['live']}"
    return found


def current(cell: Cell, machine: Machine) -> tuple[Trial, Request, dict[str, str]]:
    """What it would be made of now."""
    trial = cell.trial()
    request = machine.request(trial, layout=cell.layout)
    return trial, request, sources(machine, request, trial)


def measured(cell: Cell, kernel: str, old: dict[str, Any] | None, simulate: bool) -> dict[str, Any]:
    """The cell. What the machine said is `old`'s if the same sources made it, or if only the
    simulator's half is wanted."""
    machine = Machine(kernel)
    trial, request, by = current(cell, machine)
    if old and (simulate or old["sources"] == by):
        found, by = Emulated.model_validate(old["found"]), old["sources"]
    else:
        found = machine.run(request)
    rows = compared(request, found, runner.run(alike(trial, request, found)))
    return {
        **cell._asdict(),
        "figures": {row.what: row.figures for row in rows},
        "found": found.model_dump(mode="json", exclude={"console", "series"}),
        "sources": by,
    }


def cells_of(args: argparse.Namespace) -> Iterator[Cell]:
    policies = dict.fromkeys((STILL, *args.policies.split(",")))
    for ratio in args.ratios.split(","):
        for layout in args.layouts.split(","):
            for workload in args.workloads.split(","):
                for policy in policies:
                    yield Cell(workload, policy, ratio, int(layout))


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


def in_parallel(
    jobs: int, wanted: Iterable[Cell], work: Callable[..., Any], arguments: Callable[[Cell], Any]
) -> Iterator[tuple[Cell, Future[Any]]]:
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(work, cell, *arguments(cell)): cell for cell in wanted}
        for job in as_completed(running):
            yield running[job], job


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--ratios", default="1:4")
    parser.add_argument("--layouts", default="0")
    parser.add_argument("--kernel", default="6.12")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=0, help="of cells to run; 0: all")
    parser.add_argument(
        "--simulate", action="store_true", help="of all cells there are, only the simulator's half"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results/emulated.json")
    args = parser.parse_args()
    machine = Machine(args.kernel, note=print)
    made = {
        "kernel": machine.built.kernel,
        "qemu": machine.built.qemu,
        "machine": engine.ids()["emulated"],
    }
    content = json.loads(args.out.read_text()) if args.out.is_file() else {}
    done = {Cell(*(each[name] for name in Cell._fields)): each for each in content.get("cells", [])}
    costs = content.get("costs")
    if not args.simulate and (not costs or content.get("built") != made):
        costs = costs_of(machine)
    wanted = list(done) if args.simulate else list(dict.fromkeys(cells_of(args)))
    if not args.simulate:
        for cell, old in list(done.items()):
            if cell not in wanted and old["sources"] != current(cell, machine)[2]:
                print(f"{' '.join(map(str, cell))}: of other sources; dropped")
                del done[cell]
    if args.most:
        wanted = wanted[: args.most]
    failed = 0
    started = time.monotonic()
    results = in_parallel(
        args.jobs, wanted, measured, lambda cell: (args.kernel, done.get(cell), args.simulate)
    )
    for number, (cell, job) in enumerate(results, 1):
        name = " ".join(map(str, cell))
        if error := job.exception():
            failed += 1
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        done[cell] = job.result()
        whole = {"built": made, "costs": costs, "cells": [done[key] for key in sorted(done)]}
        write_atomically(args.out, json.dumps(whole, indent=1) + "\n")
        seconds, said = done[cell]["figures"]["run time, s"]
        print(
            f"{number} of {len(wanted)} in {time.monotonic() - started:.0f} s: {name}: "
            f"{seconds:.3f} s, simulated {'-' if said is None else format(said, '.3f')}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
