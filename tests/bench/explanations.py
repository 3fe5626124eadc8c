# SPDX-License-Identifier: MIT
"""Whether explanations keep what they promise, on seeds that no study has used.

    python tests/bench/explanations.py [--out results/explanations.json] [--cases W:P,...]

Each case is a study of a policy on a workload's default input at 1:8, in a miniature COARSER times
smaller than usual, which leaves nothing out that is asked here. On FRESH seeds, which neither
the search nor the explanation has used, run the default, the trial that the explanation is of, and
the minimal configuration. The part of the trial's gain that the latter keeps there, in logarithms,
is held against what the study said of it; and the gain of best.yaml against its verdict. Studies
are kept in --work, so that the same command goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.experiment.checks import seeds_beside
from tuner.experiment.recall import recall
from tuner.run import runner, streams
from tuner.run.trial import Trial, TrialResult
from tuner.study import log
from tuner.study.log import StudyLog
from tuner.study.verdict import HELD_OUT

CASES = (
    "gups:freqtier,gups:hemem,cachelib:hybridtier,cachelib:freqtier,silo:hemem,btree:hybridtier,"
    "redis:hemem,liblinear:hemem,xsbench:memtis,drift:freqtier"
)
COARSER = 4
FRESH = 12
BESIDE = HELD_OUT + 1  # of seeds: what a study uses beside its own
TOP = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="results/explanations.json")
    parser.add_argument("--work", default="build/explanations", help="folder of the studies")
    parser.add_argument("--cases", default=CASES, help="WORKLOAD:POLICY,...")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--budget", type=int, default=40)
    args = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        cases = [
            study(pool, Path(args.work), *case.split(":"), seed=int(seed), budget=args.budget)
            for case in args.cases.split(",")
            for seed in args.seeds.split(",")
        ]
    found = {
        "budget": args.budget,
        "engine_build": engine.results_id(),
        "fresh": FRESH,
        **summary(cases),
        "cases": cases,
    }
    Path(args.out).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(summary(cases), indent=1))
    return 0


def study(
    pool: ProcessPoolExecutor, work: Path, workload: str, policy: str, *, seed: int, budget: int
) -> dict[str, Any]:
    """One study, what its explanation says, and what is so on fresh seeds."""
    name = f"{workload}-{policy}-{seed}"
    words = ["run", "--workload", workload, "--policy", policy, "--seed", str(seed)]
    words += ["--budget", str(budget), "--rivals", "none", "--robust", "none"]
    words += ["--scale", f"{COARSER * catalog.workload(workload).spec.scale:g}"]
    words += ["--out", str(work), "--name", name]
    if log.exists(work / name):
        words.append("--resume")
    subprocess.run([sys.executable, "-m", "tuner", *words], check=True, stdout=subprocess.DEVNULL)
    with StudyLog(work / name) as opened:
        ended, data = recall(opened), opened.data
    assert ended is not None and data.best is not None
    case = {"workload": workload, "policy": policy, "seed": seed}
    told, gain = ended.explanation, ended.verdict.gain
    if told is None or gain is None:
        return case | {"explained": False}
    trial = data.trial(data.best.number)
    assert trial is not None
    request = data.header.request
    fresh = seeds_beside(request.scenario, BESIDE + FRESH)[-FRESH:]

    def costs(knobs: Mapping[str, KnobValue]) -> list[float]:
        runs = [request.under(request.policy, **each).trial(0, knobs) for each in fresh]
        streams.prepare(runs[0].stream)
        results = list(pool.map(_run, runs))
        return [result.cost if result.cost is not None else math.nan for result in results]

    default, whole, few = costs({}), costs(trial.knobs), costs(told.minimal)
    best = few if told.lean else whole  # best.yaml
    gains = [math.log(a / b) for a, b in zip(default, whole, strict=True)]
    kept = _ratio([math.log(a / b) for a, b in zip(default, few, strict=True)], gains)
    again = statistics.fmean(a / b - 1 for a, b in zip(default, best, strict=True))
    half = told.half_width or 0.0
    found = case | {
        "explained": True,
        "changes": len(told.effects),
        "needed": [effect.knob for effect in told.needed],
        "lean": told.lean,
        "kept": told.kept,
        "half_width": half,
        "kept_again": kept,
        "holds": kept >= told.kept - half,
        "gain": gain.gain,
        "gain_half_width": gain.half_width,
        "gain_again": again,
        "gain_holds": again >= gain.gain - (gain.half_width or 0.0),
        "share_error": abs(sum(effect.share or 0.0 for effect in told.needed) - told.told),
        "widest": max(effect.half_width or 0.0 for effect in told.needed),
        "runs": told.runs,
    }
    print(name, json.dumps(found), file=sys.stderr, flush=True)
    return found


def _run(trial: Trial) -> TrialResult:
    return runner.run(trial)


def _ratio(parts: Sequence[float], wholes: Sequence[float]) -> float:
    return statistics.fmean(parts) / statistics.fmean(wholes)


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    told = [case for case in cases if case["explained"]]
    overlaps = [
        len(set(a["needed"][:TOP]) & set(b["needed"][:TOP]))
        / len(set(a["needed"][:TOP]) | set(b["needed"][:TOP]))
        for a, b in itertools.combinations(told, 2)
        if (a["workload"], a["policy"]) == (b["workload"], b["policy"])
    ]
    return {
        "studies": len(cases),
        "explained": len(told),
        "lean": sum(case["lean"] for case in told),
        "holds": sum(case["holds"] for case in told),
        "gain_holds": sum(case["gain_holds"] for case in told),
        "most_share_error": max(case["share_error"] for case in told),
        "median_widest": statistics.median(case["widest"] for case in told),
        "median_runs": statistics.median(case["runs"] for case in told),
        "top_overlap": statistics.fmean(overlaps) if overlaps else None,
    }


if __name__ == "__main__":
    sys.exit(main())
