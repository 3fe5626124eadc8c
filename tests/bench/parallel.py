# SPDX-License-Identifier: MIT
"""What many workers make of a study; writes results/parallelism.json.

    python tests/bench/parallel.py [--budget 100] [--seeds 3] [--out results/parallelism.json]

A trial is proposed while those of the other workers are under way, so that the search knows less
the more workers there are. Each study runs as it would with so many workers, one trial after the
other; when each trial would have begun and ended is then computed from the processor time that
proposals and trials took. The driver proposes one trial at a time. The best configurations run once
more on a seed that no search has seen.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.files import write_file
from tuner.optimize.optimizer import Optimizer, initial_trials
from tuner.run import runner, settings
from tuner.run.trial import Trial, TrialResult
from tuner.terminal import progress

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ("gups:smoke", "drift:smoke")
POLICY = "hybridtier"
WORKERS = (1, 4, 16, 32, 100)
LONG_SECONDS = 60.0
"""Of a trial on a live machine, for comparison."""
SEED, TEST_SEED = 3_000_000, 4_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "results/parallelism.json")
    args = parser.parse_args()
    found = measured(args.budget, args.seeds)
    content = {
        "engine_build": engine.ids()["whole"],
        "policy": POLICY,
        "workloads": list(WORKLOADS),
        "budget": args.budget,
        "seeds": args.seeds,
        "long_seconds": LONG_SECONDS,
        "workers": found,
    }
    write_file(args.out, json.dumps(content, indent=1) + "\n")
    return 0


def measured(budget: int, seeds: int) -> list[dict[str, Any]]:
    """A row for each number of workers."""
    total = len(WORKERS) * len(WORKLOADS) * seeds
    rows: list[dict[str, Any]] = []
    with progress(f"{total} studies of {budget} trials") as update:
        for workers in WORKERS:
            studies = []
            for name in WORKLOADS:
                for seed in range(seeds):
                    studies.append(study(trial_of(name), budget, workers, SEED + seed))
                    update((len(rows) * len(WORKLOADS) * seeds + len(studies)) / total)
            asks = [s for each in studies for s in each["asks"]]
            runs = [s for each in studies for s in each["runs"]]
            row = {
                "workers": workers,
                "gain": math.exp(statistics.fmean(math.log(s["gain"]) for s in studies)) - 1,
                "gains": {
                    name: [s["gain"] - 1 for s in studies[i * seeds : (i + 1) * seeds]]
                    for i, name in enumerate(WORKLOADS)
                },
                "ask_seconds": statistics.median(asks),
                "trial_seconds": statistics.median(runs),
                "seconds": sum(span(s["asks"], s["runs"], workers) for s in studies),
                "seconds_long": sum(
                    span(s["asks"], [LONG_SECONDS] * budget, workers) for s in studies
                ),
            }
            rows.append(row)
    return rows


def trial_of(name: str, policy: str = POLICY) -> Trial:
    workload, _, input = name.partition(":")
    setting = settings.resolve(
        workload, policy=engine.policy(policy), study="bench", input=input, ratio="1:8"
    )
    return setting.trial(0, {})


def study(base: Trial, budget: int, workers: int, seed: int) -> dict[str, Any]:
    """What its best configuration gains on another seed, and the seconds of each proposal and each
    trial."""
    policy = engine.policy(POLICY)
    knobs = catalog.tuned_knobs(catalog.space(POLICY).spec, policy)
    optimizer = Optimizer(
        knobs,
        seed=seed,
        initial=initial_trials(budget),
        lag=workers,
        fixed=policy.others(knobs, base.knobs),
    )
    asks, runs = [], []
    best: tuple[float, dict[str, KnobValue]] | None = None
    for number in range(budget):
        began = time.process_time()
        chosen = dict(base.knobs) | optimizer.ask().knobs
        asked = time.process_time()
        result = run(base, chosen, seed)
        asks.append(asked - began)
        runs.append(time.process_time() - asked)
        optimizer.tell(number, result.cost)
        if result.cost is not None and (best is None or result.cost < best[0]):
            best = result.cost, chosen
    assert best is not None
    default, found = (run(base, chosen, TEST_SEED).cost for chosen in (base.knobs, best[1]))
    assert default is not None and found is not None
    return {"gain": default / found, "asks": asks, "runs": runs}


def run(base: Trial, knobs: dict[str, KnobValue], seed: int) -> TrialResult:
    scenario = dataclasses.replace(base.scenario, seed=seed)
    return runner.run(base.model_copy(update={"knobs": knobs, "scenario": scenario}))


def span(asks: Sequence[float], runs: Sequence[float], workers: int) -> float:
    """Seconds from the first proposal to the end of the last trial. A trial is proposed when a
    worker is free and the results are there that it is proposed from (`Optimizer`)."""
    free = [0.0] * workers
    driver = known = 0.0
    ends: list[float] = []
    for number, (ask, seconds) in enumerate(zip(asks, runs, strict=True)):
        if number >= workers:
            known = max(known, ends[number - workers])
        driver = max(driver, known, heapq.heappop(free)) + ask
        ends.append(driver + seconds)
        heapq.heappush(free, ends[-1])
    return max(ends)


if __name__ == "__main__":
    sys.exit(main())
