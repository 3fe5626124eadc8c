"""Chooses what a search of a policy starts from (`starts` in spaces/POLICY.yaml).

    python tests/bench/starts.py --policy unified [--workloads W,...] [--budget 100] [--keep 5]

Searches the policy's space on every workload at 1:8, without its present starts; runs the best of
each search on all workloads; and keeps, one after the other, the configuration that raises the
geometric mean of what the best of those kept, the default included, comes to. Prints them as YAML,
and what they are worth on workloads that had no part in the choice: each workload is left out once.

Trials have seeds of their own, which no comparison uses. All runs are cached: the same command goes
on where one was stopped.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tuner import engine
from tuner.declarations import KnobValue, PolicyDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.optimize import jobs
from tuner.optimize.jobs import Job, Result, Study, StudyResult
from tuner.run import pool, runner, settings, streams
from tuner.run.trial import Trial, TrialResult
from tuner.terminal import progress, say

Configuration = Mapping[str, KnobValue]
Matrix = Mapping[str, Sequence[float]]
"""By workload: the performance of each candidate over the default's. The first is the default."""

RATIO = "1:8"
TEST_SEED = jobs.STUDY_SEED + 1
LEAST_GAIN = 1.001


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="unified")
    parser.add_argument("--workloads", help="default: all")
    parser.add_argument("--budget", type=int, default=100, help="trials of each search")
    parser.add_argument("--keep", type=int, default=5, help="configurations to choose")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    policy = engine.policy(args.policy)
    names = args.workloads.split(",") if args.workloads else catalog.names(Kind.workload)
    studies = {name: study_on(name, policy, args.budget) for name in names}
    for study in studies.values():
        streams.prepare(study.stream)
    found = done(list(studies.values()), args.workers, f"{len(studies)} searches")
    candidates: list[Configuration] = [{}]
    searched_on = [""]
    for name, study in studies.items():
        result = found[jobs.key_of(study)]
        assert isinstance(result, StudyResult)
        candidates.append(changed(policy, result.knobs))
        searched_on.append(name)
    matrix = measured(studies, candidates, args.workers)
    kept = chosen(matrix, range(1, len(candidates)), args.keep)
    print(f"# geometric mean over the default, {len(matrix)} workloads: {worth(matrix, kept):.3f}")
    left_out = []
    for name, row in matrix.items():
        others = {other: matrix[other] for other in matrix if other != name}
        allowed = [i for i in range(1, len(candidates)) if searched_on[i] != name]
        left_out.append(max(row[i] for i in [0, *chosen(others, allowed, args.keep)]))
    print(f"# on workloads left out of the choice: {mean(left_out):.3f}")
    for i in kept:
        good = ", ".join(f"{name} {row[i]:.2f}" for name, row in matrix.items() if row[i] > 1.01)
        print(f"# {good}")
        print(yaml.safe_dump([dict(candidates[i])], default_flow_style=None, width=96), end="")
    return 0


def study_on(workload: str, policy: PolicyDecl, budget: int) -> Study:
    setting = settings.resolve(
        workload, policy=policy, study="starts", deadline_seconds=7200.0, ratio=RATIO
    )
    return jobs.study(setting, {}, budget).model_copy(update={"starts": []})


def changed(policy: PolicyDecl, knobs: Configuration) -> Configuration:
    """What differs from the default and has an effect."""
    from tuner.optimize.space import Space

    space = catalog.space(policy.name).spec
    tuned = Space(
        catalog.tuned_knobs(space, policy),
        {knob.name: knob.default for knob in policy.knobs if knob.name not in space.knobs},
    )
    defaults = {knob.name: knob.default for knob in policy.knobs}
    return {
        name: value
        for name, value in knobs.items()
        if value != defaults[name] and tuned.active(name, knobs)
    }


def done(wanted: Sequence[Job], workers: int, what: str) -> dict[str, Result]:
    """The results by key, from the cache where it has them."""
    found = {jobs.key_of(job): result for job in wanted if (result := jobs.known(job))}
    missing = [job for job in wanted if jobs.key_of(job) not in found]
    if not missing:
        return found
    total = sum(job.budget if isinstance(job, Study) else 1 for job in missing)
    count = 0
    workers_pool = pool.open_pool(runner.run, workers=min(workers, len(missing)))
    try:
        with progress(what) as update:

            def took(job: Job, result: Result) -> None:
                found[jobs.key_of(job)] = result

            def one() -> None:
                nonlocal count
                count += 1
                update(count / total)

            jobs.run_on(workers_pool, missing, took, one)
    finally:
        workers_pool.close()
    return found


def measured(
    studies: Mapping[str, Study], candidates: Sequence[Configuration], workers: int
) -> Matrix:
    def trial(study: Study, candidate: Configuration) -> Trial:
        knobs: dict[str, Any] = dict(study.trial.knobs) | dict(candidate)
        scenario = study.trial.scenario
        seeded = type(scenario)(**(scenario.plain() | {"seed": TEST_SEED}))
        return study.trial.model_copy(update={"knobs": knobs, "scenario": seeded})

    trials = {name: [trial(study, c) for c in candidates] for name, study in studies.items()}
    everything = [each for row in trials.values() for each in row]
    found = done(everything, workers, f"{len(everything)} runs of {len(candidates)} candidates")

    def cost(each: Trial) -> float:
        result = found[jobs.key_of(each)]
        assert isinstance(result, TrialResult)
        if result.cost is None:
            say(f"{each.workload}: {result.error}")
        return math.inf if result.cost is None else result.cost

    costs = {name: [cost(each) for each in row] for name, row in trials.items()}
    return {name: [row[0] / value for value in row] for name, row in costs.items()}


def chosen(matrix: Matrix, candidates: Sequence[int], keep: int) -> list[int]:
    """Greedily, the candidates that are worth most together."""
    kept: list[int] = []
    while len(kept) < keep:
        others = [i for i in candidates if i not in kept]
        best = max(others, key=lambda i: worth(matrix, [*kept, i]), default=None)
        if best is None or worth(matrix, [*kept, best]) <= worth(matrix, kept) * LEAST_GAIN:
            break
        kept.append(best)
    return kept


def worth(matrix: Matrix, kept: Sequence[int]) -> float:
    return mean([max(row[i] for i in [0, *kept]) for row in matrix.values()])


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    sys.exit(main())
