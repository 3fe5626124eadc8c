# SPDX-License-Identifier: MIT
"""What a study's best configuration keeps of its gain beside the conditions of its search.

    python tests/bench/robust.py [--out results/tuner.json] [--cases W:P,...] [--seeds 0,1]

Each case is a study of a policy on a workload's default input at 1:8. Of its best trial on the
study's seed (`top`) and of the one that it calls best (`chosen`), the gain over the defaults is
measured on seeds that neither the search, the choice nor the verdict has used: at 1:8, at 1:16 and
at 1:4. What is kept at a neighbour is the gain there in parts of the gain at 1:8, in logarithms;
cases that gain less than LEAST at 1:8 do not count. Studies are kept in --work, so that the
same command goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.experiment.checks import seeds_beside
from tuner.experiment.robust import neighbours
from tuner.run import runner, streams
from tuner.study import log
from tuner.study.log import StudyData, TrialRecord
from tuner.study.verdict import HELD_OUT

CASES = (
    "gups:freqtier,gups:hemem,gups:memtis,cachelib:freqtier,cachelib:hybridtier,cachelib:hemem,"
    "silo:freqtier,silo:hemem,btree:memtis,btree:hybridtier,redis:memtis,redis:hemem,"
    "liblinear:hemem,xsbench:memtis,bc:hemem,drift:freqtier"
)
HOME = "1:8"
SEEDS = 3  # fresh ones at each place
LEAST = 0.02
KEPT = 0.85  # the target of a case


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="results/tuner.json")
    parser.add_argument("--work", default="build/robust", help="folder of the studies")
    parser.add_argument("--cases", default=CASES, help="WORKLOAD:POLICY,...")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--budget", type=int, default=60)
    args = parser.parse_args()
    cases = [
        study(Path(args.work), *case.split(":"), seed=int(seed), budget=args.budget)
        for case in args.cases.split(",")
        for seed in args.seeds.split(",")
    ]
    found = {
        "robust": {
            "budget": args.budget,
            "engine_build": engine.results_id(),
            "least": LEAST,
            **summary(cases),
            "cases": cases,
        }
    }
    path = Path(args.out)
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | found, indent=1) + "\n")
    print(json.dumps(summary(cases), indent=1))
    return 0


def study(work: Path, workload: str, policy: str, *, seed: int, budget: int) -> dict[str, Any]:
    """One study, and the gains of its two best over the defaults by place."""
    name = f"{workload}-{policy}-{seed}"
    words = ["run", "--workload", workload, "--policy", policy, "--ratio", HOME]
    words += ["--seed", str(seed), "--budget", str(budget), "--rivals", "none", "--no-explain"]
    words += ["--out", str(work), "--name", name]
    if log.exists(work / name):
        words.append("--resume")
    subprocess.run([sys.executable, "-m", "tuner", *words], check=True, stdout=subprocess.DEVNULL)
    data = log.load(work / name)
    top, chosen = data.top, data.best
    assert top is not None and chosen is not None
    gains = {"top": measured(data, top), "chosen": measured(data, chosen)}
    print(name, json.dumps(gains), file=sys.stderr, flush=True)
    return {
        "workload": workload,
        "policy": policy,
        "seed": seed,
        "trial": {"top": top.number, "chosen": chosen.number},
        "gain": gains,
    }


def measured(data: StudyData, trial: TrialRecord) -> dict[str, float]:
    """The mean gain over the default on fresh seeds by place, as a difference of log costs."""
    request = data.header.request
    fresh = seeds_beside(request.scenario, HELD_OUT + 1 + SEEDS)[-SEEDS:]
    found = {}
    for place, changes in {HOME: {}, **neighbours(request)}.items():
        logs = []
        for knobs in ({}, trial.knobs):
            results = []
            for each in fresh:
                one = request.under(request.policy, **each, **changes).trial(0, knobs)
                streams.prepare(one.stream)
                results.append(runner.run(one))
            logs.append([math.log(r.cost) if r.cost is not None else math.nan for r in results])
        found[place] = statistics.fmean(a - b for a, b in zip(*logs, strict=True))
    return found


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"studies": len(cases)}
    for which in ("top", "chosen"):
        kept: list[float] = []
        home: list[float] = []
        for case in cases:
            gains = case["gain"][which]
            home.append(gains[HOME])
            if case["gain"]["top"][HOME] >= math.log1p(LEAST):
                kept += [gain / gains[HOME] for place, gain in gains.items() if place != HOME]
        out[which] = {
            "mean_gain_at_home": statistics.fmean(home),
            "places": len(kept),
            "kept_enough": sum(part >= KEPT for part in kept) / len(kept) if kept else None,
            "kept_median": statistics.median(kept) if kept else None,
            "harmful": sum(part < 0 for part in kept) / len(kept) if kept else None,
        }
    losses = [case["gain"]["top"][HOME] - case["gain"]["chosen"][HOME] for case in cases]
    out["loss_at_home"] = statistics.fmean(losses)
    out["worst_loss_at_home"] = max(losses)
    return out


if __name__ == "__main__":
    sys.exit(main())
