# SPDX-License-Identifier: MIT
"""Measures what configurations gain where they were not searched.

    python tests/bench/transfer.py [--workloads W,...] [--policies P,...] [--workers N]

They are the published ones of results/compare-tuned, each the best of 20 trials on one workload at
1:8, by an engine of then. Their gains over their policy's defaults are compared in pairs, at home
and elsewhere, where one thing is different:

    ratio     at 1:4 and 1:16, as published
    machine   on another machine of the catalog, run today
    workload  on the next of the workloads, run today
    build     the same run by the engine of then, policies and simulator, and by today's
    kernel    in the simulator, and on the real kernel of the emulated machine (results/verified)

Writes results/transfer.json. Runs are cached: the same command goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import recommend
import starts
from recommend import CHOSEN_AT, SOURCE, Candidate

from tuner import engine
from tuner.compare import earlier
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.experiment import jobs
from tuner.files import write_file
from tuner.objective import OBJECTIVES
from tuner.run import settings, streams
from tuner.run.trial import Trial, TrialResult
from tuner.study.contender import Kind
from tuner.study.verified import Verified

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "results/transfer.json"
WORKLOADS = "cc,drift,liblinear,pr,silo,sssp,tc,xgboost"
POLICIES = "hybridtier,nbt,unified"
OTHERS = ("hybridtier-cxl", "pmem-large")
"""The other machine is the first of these that is not the workload's own."""
HARM = 0.01
SEED = 0

Pair = tuple[float, float]
"""Speed over the defaults at home and elsewhere."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=WORKLOADS, help="that run (default: %(default)s)")
    parser.add_argument("--policies", default=POLICIES, help="that run (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT, help="default: results/transfer.json")
    args = parser.parse_args()
    content = earlier.read(ROOT / SOURCE)
    names, policies = args.workloads.split(","), args.policies.split(",")
    pairs: dict[str, list[Pair]] = {"machine": [], "workload": [], "build": []}
    published = recommend.tuned(content)
    for place, name in enumerate(names):
        following = names[(place + 1) % len(names)]
        for policy in policies:
            run(pairs, content, published, (name, following, policy), args.workers)
    pairs["ratio"] = list(ratios(content))
    pairs["kernel"] = list(kernels())
    found = {
        "source": SOURCE,
        "engine_build": engine.results_id(),
        "workloads": names,
        "policies": policies,
        "differences": {what: summary(of) for what, of in sorted(pairs.items())},
    }
    write_file(args.out, json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["differences"], indent=1))
    return 0


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    """Geometric means of both, the worst elsewhere, and how many are slower than the defaults there
    by more than `HARM`."""
    home, there = zip(*pairs, strict=True)
    return {
        "cases": len(pairs),
        "home": round(mean(home) - 1, 4),
        "there": round(mean(there) - 1, 4),
        "worst": round(min(there) - 1, 4),
        "harmed": sum(each < 1 - HARM for each in there),
    }


def mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


# --- As published ---------------------------------------------------------------------------------


def cells(content: Mapping[str, Any]) -> dict[tuple[str, str, str, bool], Mapping[str, Any]]:
    """By workload, policy, ratio, and whether it is tuned."""
    return {
        (cell["workload"], cell["policy"], cell["ratio"], cell["tuned"]): cell
        for cell in content["cells"]
        if cell["page_bytes"] == BASE_PAGE_BYTES and cell["status"] == "success"
    }


def gain(tuned: Mapping[str, Any], default: Mapping[str, Any], seeds: int | None = None) -> float:
    objective = OBJECTIVES[tuned["objective"]]
    one, other = (statistics.fmean(each["objectives"][:seeds]) for each in (tuned, default))
    return 1 + objective.gain(one, other)


def ratios(content: Mapping[str, Any]) -> Iterator[Pair]:
    by = cells(content)
    for workload, policy, ratio, tuned in by:
        if not tuned or ratio == CHOSEN_AT:
            continue
        places = [(workload, policy, r, t) for r in (CHOSEN_AT, ratio) for t in (True, False)]
        if all(place in by for place in places):
            best, default, best_there, default_there = (by[place] for place in places)
            yield gain(best, default), gain(best_there, default_there)


def kernels() -> Iterator[Pair]:
    for path in sorted((ROOT / "results/verified").glob("*.json")):
        found = Verified.model_validate_json(path.read_text())
        default = next(each for each in found.candidates if each.kind is Kind.untuned)
        objective = OBJECTIVES[found.objective]
        for each in found.candidates:
            if each.kind is not Kind.tuned or None in (each.simulated, each.mean):
                continue
            yield (
                1 + objective.gain(each.simulated, default.simulated),  # type: ignore[arg-type]
                1 + objective.gain(each.mean, default.mean),  # type: ignore[arg-type]
            )


# --- Run today ------------------------------------------------------------------------------------


def run(
    pairs: dict[str, list[Pair]],
    content: Mapping[str, Any],
    published: Mapping[tuple[str, str], Candidate],
    what: tuple[str, str, str],
    workers: int,
) -> None:
    """Adds the pairs of the configuration of a workload and a policy. It is left out where it is
    that of the defaults."""
    name, following, policy = what
    best = published.get((name, policy))
    if best is None or not best.knobs:
        return
    home = trial(name, best)
    other = next(each for each in OTHERS if each != home.scenario.machine)
    nothing = Candidate(policy, None, ())
    there = {
        "machine": [trial(name, each, machine=other) for each in (best, nothing)],
        "workload": [trial(following, each) for each in (best, nothing)],
    }
    wanted = {"home": [home, trial(name, nothing)], **there}
    trials = [each for both in wanted.values() for each in both]
    for stream in {each.stream.key: each.stream for each in trials}.values():
        streams.prepare(stream)
    done = starts.done(trials, workers, f"{policy} of {name}")

    def speed(both: Sequence[Trial]) -> float | None:
        results = [done[jobs.key_of(each)] for each in both]
        costs = [each.cost for each in results if isinstance(each, TrialResult)]
        if None in costs:
            return None
        return costs[1] / costs[0]  # type: ignore[operator]

    here = speed(wanted["home"])
    if here is None:
        return
    for difference, both in there.items():
        if (elsewhere := speed(both)) is not None:
            pairs[difference].append((here, elsewhere))
    by = cells(content)
    tuned, default = (by.get((name, policy, CHOSEN_AT, each)) for each in (True, False))
    if tuned and default:
        pairs["build"].append((gain(tuned, default, seeds=1), here))


def trial(name: str, one: Candidate, **fields: Any) -> Trial:
    """With the seed of the first published run."""
    setting = settings.resolve(
        name,
        policy=engine.policy(one.policy),
        study="transfer",
        deadline_seconds=1800.0,
        ratio=CHOSEN_AT,
        page_bytes=BASE_PAGE_BYTES,
        seed=SEED,
        **fields,
    )
    return setting.trial(0, engine.resolve(one.policy, dict(one.knobs)))


if __name__ == "__main__":
    sys.exit(main())
