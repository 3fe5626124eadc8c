# SPDX-License-Identifier: MIT
"""Chooses what a search of a policy starts from (`starts` in spaces/POLICY.yaml).

    python tests/bench/starts.py --policy unified [--workloads W,...] [--candidates 160] [--keep 5]

Draws configurations that differ from the default in some of the tuned knobs; runs them, and those
that the space has already, on all workloads and at all ratios; and keeps, one after the other, the
one that raises the geometric mean of what a search of those kept comes to. Such a search chooses at
1:8 alone, as `tune compare` does, so that a configuration is worth nothing that is good there and
bad elsewhere. Prints the kept ones as YAML, and what they are worth on workloads that had no part
in the choice: each workload is left out once.

Trials have seeds of their own, which no comparison uses. All runs are cached: the same command goes
on where one was stopped.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import yaml

from tuner import engine
from tuner.declarations import KnobValue, PolicyDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.space import SpaceSpec
from tuner.experiment import jobs
from tuner.experiment.jobs import Job, Result
from tuner.run import pools, runner, settings, streams
from tuner.run.trial import Trial, TrialResult
from tuner.terminal import progress, say

Configuration = Mapping[str, KnobValue]
Place = tuple[str, str]
Matrix = Mapping[Place, Sequence[float]]
"""By workload and ratio: the performance of each candidate over the default's. The first is the
default."""

CHOSEN_AT = "1:8"
RATIOS = (CHOSEN_AT, "1:4", "1:16")
TEST_SEED = jobs.STUDY_SEED + 1
CHANGED = 0.4  # of the knobs
LEAST_GAIN = 1.001


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="unified")
    parser.add_argument("--workloads", help="default: all")
    parser.add_argument("--candidates", type=int, default=160, help="configurations to draw")
    parser.add_argument("--keep", type=int, default=5, help="configurations to choose")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    policy = engine.policy(args.policy)
    names = args.workloads.split(",") if args.workloads else catalog.names(Kind.workload)
    space = catalog.space(policy.name).spec
    candidates: list[Configuration] = [{}, *space.starts, *drawn(policy, space, args.candidates)]
    matrix = measured(names, policy, candidates, args.workers)
    kept = chosen(matrix, names, args.keep)
    gains = ", ".join(f"{worth(matrix, names, kept, (r,)):.3f} at {r}" for r in RATIOS)
    print(f"# geometric means over the default, {len(names)} workloads: {gains}")
    left_out = []
    for name in names:
        without = chosen(matrix, [other for other in names if other != name], args.keep)
        left_out.append(worth(matrix, [name], without, RATIOS))
    print(f"# over all ratios, on workloads left out of the choice: {mean(left_out):.3f}")
    for i in kept:
        gained = {name: matrix[name, CHOSEN_AT][i] for name in names}
        good = ", ".join(f"{name} {gain:.2f}" for name, gain in gained.items() if gain > 1.01)
        print(f"# at {CHOSEN_AT}: {good}")
        print(yaml.safe_dump([dict(candidates[i])], default_flow_style=None, width=96), end="")
    return 0


def drawn(policy: PolicyDecl, spec: SpaceSpec, count: int) -> list[Configuration]:
    """What differs from the default and has an effect."""
    from tuner.optimize.space import Space

    tuned = catalog.tuned_knobs(spec, policy)
    space = Space(tuned, policy.others(tuned))
    rng = np.random.default_rng(TEST_SEED)
    found: list[Configuration] = []
    while len(found) < count:
        fresh = space.sample(rng)
        picked = {}
        for knob in tuned:
            choices = [False, True] if knob.type == "boolean" else knob.choices
            others = [choice for choice in choices if choice != knob.default]
            value = others[int(rng.integers(len(others)))] if others else fresh[knob.name]
            if rng.random() < CHANGED:
                picked[knob.name] = float(f"{value:.3g}") if isinstance(value, float) else value
        whole = space.default() | picked
        drawn = {
            name: value
            for name, value in picked.items()
            if space.active(name, whole) and value != space.decls[name].default
        }
        if drawn and drawn not in found:
            found.append(drawn)
    return found


def done(wanted: Sequence[Job], workers: int, what: str) -> dict[str, Result]:
    """The results by key, from the cache where it has them."""
    found = {jobs.key_of(job): result for job in wanted if (result := jobs.known(job))}
    missing = [job for job in wanted if jobs.key_of(job) not in found]
    if not missing:
        return found
    count = 0
    workers_pool = pools.open_pool(runner.run, workers=min(workers, len(missing)))
    try:
        with progress(what) as update:

            def took(job: Job, result: Result) -> None:
                found[jobs.key_of(job)] = result

            def one() -> None:
                nonlocal count
                count += 1
                update(count / len(missing))

            jobs.run_on(workers_pool, missing, took, one)
    finally:
        workers_pool.close()
    return found


def measured(
    names: Sequence[str],
    policy: PolicyDecl,
    candidates: Sequence[Configuration],
    workers: int,
) -> Matrix:
    trials = {}
    for name in names:
        for ratio in RATIOS:
            setting = settings.resolve(
                name, policy=policy, study="starts", deadline_seconds=7200.0, ratio=ratio
            )
            scenario = replace(setting.scenario, seed=TEST_SEED)
            seeded = setting.model_copy(update={"scenario": scenario})
            trials[name, ratio] = [
                seeded.trial(0, engine.resolve(policy.name, dict(candidate)))
                for candidate in candidates
            ]
        streams.prepare(trials[name, CHOSEN_AT][0].stream)
    everything = [each for row in trials.values() for each in row]
    found = done(everything, workers, f"{len(everything)} runs of {len(candidates)} candidates")

    def cost(each: Trial) -> float:
        result = found[jobs.key_of(each)]
        assert isinstance(result, TrialResult)
        if result.cost is None:
            say(f"{each.workload}: {result.error}")
        return math.inf if result.cost is None else result.cost

    costs = {place: [cost(each) for each in row] for place, row in trials.items()}
    return {place: [row[0] / value for value in row] for place, row in costs.items()}


def chosen(matrix: Matrix, names: Sequence[str], keep: int) -> list[int]:
    """Greedily, the candidates that are worth most together."""
    kept: list[int] = []
    candidates = range(1, len(matrix[names[0], CHOSEN_AT]))
    while len(kept) < keep:
        others = [i for i in candidates if i not in kept]
        best = max(others, key=lambda i: worth(matrix, names, [*kept, i], RATIOS), default=None)
        now = worth(matrix, names, kept, RATIOS)
        if best is None or worth(matrix, names, [*kept, best], RATIOS) <= now * LEAST_GAIN:
            break
        kept.append(best)
    return kept


def worth(
    matrix: Matrix, names: Sequence[str], kept: Sequence[int], ratios: Sequence[str]
) -> float:
    """Of what is the best at CHOSEN_AT, on each workload."""
    best = {name: max([0, *kept], key=matrix[name, CHOSEN_AT].__getitem__) for name in names}
    return mean([matrix[name, ratio][best[name]] for name in names for ratio in ratios])


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    sys.exit(main())
