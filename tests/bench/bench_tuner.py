# SPDX-License-Identifier: MIT
"""What the tuner itself costs per trial, and whether working in parallel costs quality.

    python tests/bench/bench_tuner.py [--only overhead,quality] [--seeds 6] [--budget 50]

Prints one JSON object. `tuner.overhead.seconds` is everything between two trials that is not the
trial: optimizer, log, Ray, and the processor time that MLflow takes in the background, median of
100 trials of a stub that answers at once with as much data as a real one.
`tuner.parallel_quality` is the mean normalised regret of a two-worker study over that of a
sequential one with the same budget: 1 is equal, below 1 better.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tuner"))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the workers find the stub there

from synthetic import answer, request

from tuner.declarations import KnobCondition, KnobDecl
from tuner.documents.space import SpaceSpec
from tuner.run.trial import Trial, TrialResult

SECONDS = 660  # of virtual time: length of the time series of a cachelib trial
SERIES = 14


def number(name: str, low: float, high: float, default: float, *, log: bool = False) -> KnobDecl:
    return KnobDecl(name=name, type="real", default=default, min=low, max=high, log=log)


# Shaped like a tiering policy's: a few knobs on log scales, valleys, a cliff, much that is inert.
KNOBS = [
    number("period", 1e2, 1e6, 1e5, log=True),
    number("threshold", 1, 64, 5, log=True),
    number("interval", 1e1, 1e5, 1e3, log=True),
    number("watermark", 0.0, 0.5, 0.02),
    number("cooling", 1e2, 1e6, 1e3, log=True),
    number("rate", 0.1, 100, 1.0, log=True),
    KnobDecl(name="hashes", type="integer", default=4, min=1, max=8),
    KnobDecl(name="variant", type="choice", default="paper", choices=["paper", "artifact", "both"]),
    KnobDecl(name="aol", type="boolean", default=False),
    KnobDecl(
        name="aol.low", type="real", default=40.0, min=0.0, max=200.0,
        condition=KnobCondition(parent="aol", values=[True]),
    ),
    number("inert.a", 0, 1, 0.5),
    number("inert.b", 0, 1, 0.5),
]  # fmt: skip


def _unit(knobs: dict[str, Any], name: str) -> float:
    """The knob's place in its range, 0 to 1 on its scale."""
    knob = next(k for k in KNOBS if k.name == name)
    assert knob.min is not None and knob.max is not None
    if knob.log:
        return math.log(knobs[name] / knob.min) / math.log(knob.max / knob.min)
    return float((knobs[name] - knob.min) / (knob.max - knob.min))


def valley(knobs: dict[str, Any]) -> float:
    """The right threshold depends on the sampling period: a narrow diagonal valley."""
    period, threshold = _unit(knobs, "period"), _unit(knobs, "threshold")
    seconds = 100 + 60 * abs(threshold - (0.9 - 0.8 * period)) + 25 * (period - 0.35) ** 2
    seconds += 8 * (_unit(knobs, "cooling") - 0.6) ** 2
    return seconds + {"paper": 1.0, "artifact": 3.0, "both": 0.0}[knobs["variant"]]


def cliff(knobs: dict[str, Any]) -> float:
    """Promotion pays until it thrashes: better and better up to an edge, then far worse."""
    pressure = _unit(knobs, "rate") - 0.6 * _unit(knobs, "threshold")
    seconds = 100 + 40 * max(0.0, 0.35 - pressure) + (60 if pressure > 0.4 else 0)
    seconds += 15 * abs(_unit(knobs, "watermark") - 0.15) + 6 * abs(_unit(knobs, "interval") - 0.3)
    return seconds + 0.5 * abs(int(knobs["hashes"]) - 5)


def regulated(knobs: dict[str, Any]) -> float:
    """The best is behind a switch whose default threshold makes it look bad."""
    seconds = 100 + 20 * (_unit(knobs, "period") - 0.5) ** 2
    seconds += (
        20 * (_unit(knobs, "interval") - 0.7) ** 2 + 10 * (_unit(knobs, "cooling") - 0.4) ** 2
    )
    if knobs["aol"]:
        return seconds + 0.3 * abs(float(knobs["aol.low"]) - 120)
    return seconds + 15


OBJECTIVES: dict[str, Callable[[dict[str, Any]], float]] = {
    "valley": valley, "cliff": cliff, "regulated": regulated,
}  # fmt: skip
OPTIMUM = 100.0  # of each of them


def regret(objective: str, seed: int, budget: int, lag: int) -> float:
    """(best - optimum) / (default - optimum) after the budget."""
    from tuner.optimize.optimizer import Optimizer, initial_trials

    seconds = OBJECTIVES[objective]
    optimizer = Optimizer(KNOBS, seed=seed, initial=initial_trials(budget), lag=lag)
    costs: list[float] = []
    told = 0
    while len(costs) < budget:
        while not optimizer.ready():
            optimizer.tell(told, costs[told])
            told += 1
        costs.append(seconds(optimizer.ask().knobs))
    return (min(costs) - OPTIMUM) / (costs[0] - OPTIMUM)


def quality(seeds: int, budget: int, processes: int) -> dict[str, float]:
    jobs = [(o, s, budget, lag) for o in OBJECTIVES for s in range(seeds) for lag in (1, 2)]
    with ProcessPoolExecutor(processes) as executor:
        found = list(executor.map(regret, *zip(*jobs, strict=True)))
    by_lag = {
        lag: [f for f, job in zip(found, jobs, strict=True) if job[3] == lag] for lag in (1, 2)
    }
    sequential, parallel = statistics.mean(by_lag[1]), statistics.mean(by_lag[2])
    return {
        "tuner.regret.sequential": sequential,
        "tuner.regret.two_workers": parallel,
        "tuner.parallel_quality": parallel / sequential,
    }


def stub(trial: Trial) -> TrialResult:
    """Answers at once, with as many metrics and series as the simulated machine."""
    knobs = {name: trial.knobs[name] for name in (knob.name for knob in KNOBS)}
    return answer(trial, valley(knobs)).model_copy(
        update={
            "metrics": {f"metric_{i}": float(i) for i in range(40)},
            "series": {f"s{i}": [i + t / 7 for t in range(SECONDS)] for i in range(SERIES)},
        }
    )


def overhead(budget: int = 100) -> dict[str, float]:
    from tuner.experiment.loop import run_study
    from tuner.report import tracking
    from tuner.study import log
    from tuner.study.log import TrialRecord

    tracked: list[float] = []
    original = tracking._Store.add

    def timed(self: tracking._Store, trial: TrialRecord, best: float | None) -> None:
        start = time.thread_time()
        original(self, trial, best)
        tracked.append(time.thread_time() - start)

    tracking._Store.add = timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as work:
            base = request(Path(work))
            study = request(
                Path(work), budget=budget, workers=2, tuned=KNOBS, json_output=True,
                policy=base.policy.model_copy(update={"knobs": KNOBS}),
                references=[], alternatives=[], explain=False,
                space=SpaceSpec.model_validate(
                    {"policy": "paper", "summary": "all", "knobs": {k.name: {} for k in KNOBS}}
                ),
            )  # fmt: skip
            start = datetime.now().astimezone()
            run_study(study, runner=stub)
            end = datetime.now().astimezone()
            trials = log.load(Path(work) / study.study).trials
    finally:
        tracking._Store.add = original  # type: ignore[method-assign]
    asked = [datetime.fromisoformat(trial.asked) for trial in trials]
    finished = max(datetime.fromisoformat(trial.finished or "") for trial in trials)
    between = [(b - a).total_seconds() for a, b in itertools.pairwise(asked)]
    loop, store = statistics.median(between), statistics.median(tracked)
    return {
        "tuner.overhead.seconds": loop + store,
        "tuner.loop.seconds": loop,
        "tuner.tracking.seconds": store,
        "tuner.startup.seconds": (asked[0] - start).total_seconds(),
        "tuner.finish.seconds": (end - finished).total_seconds(),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="overhead,quality")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    if "overhead" in args.only:
        figures |= overhead()
    if "quality" in args.only:
        figures |= quality(args.seeds, args.budget, args.processes)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
