# SPDX-License-Identifier: MIT
"""What comparisons of cases share (robust.py, carried.py, search.py).

Sets of cases with seeds, runs that are kept so that the same command goes on where one was stopped,
and figures in one file.

A case is a policy on a workload, `WORKLOAD:POLICY`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tuner import engine
from tuner.declarations import KnobDecl, KnobValue
from tuner.documents import catalog
from tuner.run import settings

ROOT = Path(__file__).resolve().parents[2]
Unit = tuple[argparse.Namespace, str, str, int]
"""A workload, a policy and a seed."""


def options(
    parser: argparse.ArgumentParser,
    sets: Iterable[str],
    *,
    seeds: str | None,
    input: str,
    work: str,
) -> None:
    """Those of all comparisons."""
    parser.add_argument("--set", choices=list(sets), default="held-out")
    parser.add_argument("--cases", help="WORKLOAD:POLICY,... in place of a set")
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--input", default=input, help="of the workloads; default: their own")
    parser.add_argument("--page-bytes", type=int, default=4096)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / work)
    parser.add_argument("--out", type=Path, help="of the figures: results/tuner.json, for one")


def units_of(args: argparse.Namespace, sets: Mapping[str, str]) -> list[Unit]:
    """Each case with each seed; all cases of a seed before the next one."""
    return [
        (args, *case.split(":"), int(seed))
        for seed in args.seeds.split(",")
        for case in (args.cases or sets[args.set]).split(",")
    ]


class Searched(NamedTuple):
    """What a search of a case is about."""

    setting: settings.Setting
    tuned: list[KnobDecl]
    fixed: list[KnobDecl]
    starts: list[dict[str, KnobValue]]
    """Of the tuned knobs."""


def searched(args: argparse.Namespace, workload: str, policy: str) -> Searched:
    declared = engine.policy(policy)
    setting = settings.resolve(
        workload,
        policy=declared,
        page_bytes=args.page_bytes,
        input=None if args.input == "default" else args.input,
        ratio="1:8",
    )
    space = catalog.space(policy).spec
    tuned = catalog.tuned_knobs(space, declared)
    names = [knob.name for knob in tuned]
    starts = [{name: start[name] for name in names} for start in catalog.starts(space, declared)]
    return Searched(setting, tuned, declared.others(tuned), starts)


def run(unit: Callable[[Unit], Any], units: Sequence[Unit]) -> list[Any]:
    """In processes of their own, in the order of the units."""
    with ProcessPoolExecutor(units[0][0].processes) as executor:
        return list(executor.map(unit, units))


def publish(args: argparse.Namespace, key: str, figures: Mapping[str, Any], found: Any) -> None:
    """Prints figures, and adds them and what they are of to --out, under a key and the set."""
    print(json.dumps(figures, indent=1))
    if args.out:
        before = json.loads(args.out.read_text()) if args.out.exists() else {}
        sets = before.get(key, {}) | {args.set: {**figures, "cases": found}}
        args.out.write_text(json.dumps(before | {key: sets}, indent=1) + "\n")


def share(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


class Kept:
    """Values by name, in a file of --work for this engine and unit."""

    def __init__(self, unit: Unit) -> None:
        args, workload, policy, seed = unit
        folder = args.work / engine.results_id()
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{workload}-{policy}-{args.input}-{args.page_bytes}-{seed}.jsonl"
        self._known: dict[str, Any] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                self._known |= json.loads(line)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> Any:
        return self._known.get(name)

    def keep(self, name: str, value: Any) -> Any:
        self._known[name] = value
        with self._path.open("a") as file:
            file.write(json.dumps({name: value}) + "\n")
        return value
