# SPDX-License-Identifier: MIT
"""Whether trials that go where studies still gain are worth more; writes results/fleet.json.

    python tests/bench/fleet.py [--seeds 1] [--workers 2] [--out results/fleet.json]

A fleet of every workload's smoke input under some policies has as many trials as if each study had
`MEANS` of them: given in equal parts, or as `tune fleet` does. The best configurations run once
more on a seed that no search has seen. Studies are searched up to `MOST` trials; what a fleet would
have had of them follows, since a study's trials do not depend on the others.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parallel

from tuner import engine
from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.files import write_file
from tuner.fleet.allocation import Curve, Rule, allocate
from tuner.optimize.optimizer import Optimizer, initial_trials
from tuner.terminal import progress

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("hybridtier", "memtis")
MEANS = (20,)
LEAST, MOST = 10, 60
SEED, TEST_SEED = 5_000_000, 6_000_000

Trials = Sequence[tuple[float | None, dict[str, KnobValue]]]


@dataclass(frozen=True)
class Search:
    """`initial` is the budget that its initial design is for."""

    workload: str
    policy: str
    seed: int
    initial: int
    budget: int


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "results/fleet.json")
    args = parser.parse_args()
    places = [(w, p) for w in catalog.names(Kind.workload) for p in POLICIES]
    wanted = [
        Search(workload, policy, SEED + seed, *size)
        for seed in range(args.seeds)
        for workload, policy in places
        for size in [(LEAST, MOST), *((mean, mean) for mean in MEANS)]
    ]
    found: dict[Search, Trials] = {}
    with (
        progress(f"{len(wanted)} searches") as update,
        ProcessPoolExecutor(args.workers) as pool,
    ):
        for search, trials in zip(wanted, pool.map(searched, wanted), strict=True):
            found[search] = trials
            update(len(found) / len(wanted))
    content = {
        "engine_build": engine.ids()["whole"],
        "policies": list(POLICIES),
        "studies": len(places),
        "seeds": args.seeds,
        "least": LEAST,
        "rows": [row(places, mean, args.seeds, found) for mean in MEANS],
    }
    write_file(args.out, json.dumps(content, indent=1) + "\n")
    return 0


def searched(search: Search) -> Trials:
    policy = engine.policy(search.policy)
    base = parallel.trial_of(f"{search.workload}:smoke", search.policy)
    space = catalog.space(search.policy).spec
    knobs = catalog.tuned_knobs(space, policy)
    optimizer = Optimizer(
        knobs,
        seed=search.seed,
        initial=initial_trials(search.initial),
        fixed=policy.others(knobs, base.knobs),
        starts=catalog.starts(space, policy),
    )
    trials = []
    for number in range(search.budget):
        chosen = dict(base.knobs) | optimizer.ask().knobs
        cost = parallel.run(base, chosen, search.seed).cost
        optimizer.tell(number, cost)
        trials.append((cost, chosen))
    return trials


def row(
    places: Sequence[tuple[str, str]], mean: int, seeds: int, found: Mapping[Search, Trials]
) -> dict[str, Any]:
    """What equal parts and a fleet's rounds make of so many trials a study."""
    equal, adaptive, granted = [], [], []
    for seed in range(seeds):
        grown = [found[Search(w, p, SEED + seed, LEAST, MOST)] for w, p in places]
        curves = [Curve([cost for cost, _ in trials]) for trials in grown]
        given = allocate(curves, Rule(mean * len(places), LEAST, MOST)).granted
        granted.append(given)
        for place, trials, count in zip(places, grown, given, strict=True):
            adaptive.append(gain(place, trials[:count]))
            equal.append(gain(place, found[Search(*place, SEED + seed, mean, mean)]))
    return {
        "trials": mean,
        "equal": mean_gain(equal),
        "adaptive": mean_gain(adaptive),
        "granted": granted,
    }


def gain(place: tuple[str, str], trials: Trials) -> float:
    """Of the best of some trials over the default, as a ratio of costs on another seed."""
    base = parallel.trial_of(f"{place[0]}:smoke", place[1])
    _, best = min((cost, number) for number, (cost, _) in enumerate(trials) if cost is not None)
    default, chosen = (
        parallel.run(base, knobs, TEST_SEED).cost for knobs in (base.knobs, trials[best][1])
    )
    assert default is not None and chosen is not None
    return default / chosen


def mean_gain(ratios: Sequence[float]) -> float:
    """Geometric, above 1."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios)) - 1


if __name__ == "__main__":
    sys.exit(main())
