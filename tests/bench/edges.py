# SPDX-License-Identifier: MIT
"""Which knobs have their best on an edge of their range, and which do nothing.

    python tests/bench/edges.py [--out results/tuner.json]

Edges: of the best configurations of published searches (results/compare-tuned: each policy on each
workload, the best of 20 trials) those knobs that differ from their default and act. A knob is on
an edge if it is within EDGE of its range, on its scale, or has the range's end. How often that is
by chance is counted of random configurations; p is a one-sided binomial test's, adjusted for all
knobs and both ends (Benjamini and Hochberg 1995).

Effects: of all trials that tests/bench/search.py keeps in --work, by policy. A forest of the log
costs of a case's trials is asked with one knob shuffled, on trials that it has not seen: what the
knob explains is the rise of the squared error over the variance. Those that explain less than
LEAST in all of a policy's cases are named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cases
import numpy as np
from cases import ROOT

from tuner import engine
from tuner.declarations import KnobDecl, KnobValue
from tuner.documents import catalog
from tuner.optimize.space import Space

EDGE = 0.05
DRAWN = 4000
SIGNIFICANT = 0.05
LEAST = 0.005
ENDS = ("low", "high")


def space_of(policy: str) -> Space:
    declared = engine.policy(policy)
    tuned = catalog.tuned_knobs(catalog.space(policy).spec, declared)
    return Space(tuned, declared.others(tuned))


def end_of(knob: KnobDecl, value: KnobValue) -> str | None:
    """On which edge of the range a value is, if on one."""
    assert knob.min is not None and knob.max is not None
    low, high, at = float(knob.min), float(knob.max), float(value)
    if knob.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    part = (at - low) / (high - low)
    return "low" if part <= EDGE else "high" if part >= 1 - EDGE else None


def counted(space: Space, found: Sequence[Mapping[str, KnobValue]]) -> dict[str, dict[str, int]]:
    """By knob: in how many configurations it acts and differs from its default, and is on an
    edge."""
    out: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(("all", *ENDS), 0))
    for given in found:
        knobs = space.default() | {name: v for name, v in given.items() if name in space.decls}
        for name in space.tuned:
            knob = space.decls[name]
            numeric = knob.type in ("integer", "real")
            if numeric and space.active(name, knobs) and knobs[name] != knob.default:
                out[name]["all"] += 1
                if end := end_of(knob, knobs[name]):
                    out[name][end] += 1
    return out


def edges(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Knobs that are on an edge more often than by chance, the surest first."""
    from scipy.stats import binomtest, false_discovery_control

    best: dict[str, list[Any]] = defaultdict(list)
    for cell in cells:
        if cell["tuned"] and cell["ratio"] == "1:8" and cell["knobs"]:
            best[cell["policy"]].append(cell["knobs"])
    rows: list[dict[str, Any]] = []
    for policy, found in sorted(best.items()):
        space = space_of(policy)
        legal = {knob.name: knob for knob in engine.policy(policy).knobs}
        rng = np.random.default_rng(0)
        chance = counted(space, [space.sample(rng) for _ in range(DRAWN)])
        for name, counts in counted(space, found).items():
            for end in ENDS:
                by_chance = chance[name][end] / chance[name]["all"]
                test = binomtest(counts[end], counts["all"], by_chance, alternative="greater")
                knob = space.decls[name]
                rows.append(
                    {
                        "policy": policy,
                        "knob": name,
                        "end": end,
                        "on_edge": counts[end],
                        "best": counts["all"],
                        "chance": round(by_chance, 4),
                        "p": float(test.pvalue),
                        "range": [knob.min, knob.max],
                        "legal": [legal[name].min, legal[name].max],
                    }
                )
    for row, p in zip(rows, false_discovery_control([row["p"] for row in rows]), strict=True):
        row["adjusted"] = float(p)
    kept = sorted((r for r in rows if r["adjusted"] < SIGNIFICANT), key=lambda row: row["p"])
    print(f"{len(rows)} ends of {len(rows) // 2} knobs", file=sys.stderr)
    return kept


def idle(work: Path) -> dict[str, dict[str, Any]]:
    """By policy: knobs that explain less than LEAST in all of its cases, and their trials."""
    trials: dict[tuple[str, str], dict[str, tuple[Any, float]]] = defaultdict(dict)
    for path in sorted((work / engine.results_id()).glob("*.jsonl")):
        workload, rest = path.stem.split("-", 1)
        policy = rest.split("-default-")[0]
        for line in path.read_text().splitlines():
            for run in json.loads(line).values():  # of a contender
                for knobs, cost in zip(run["knobs"], run["costs"], strict=True):
                    if cost is not None:
                        trials[workload, policy][json.dumps(knobs)] = knobs, math.log(cost)
    found: dict[str, dict[str, Any]] = {}
    for (workload, policy), case in sorted(trials.items()):
        parts = explained(space_of(policy), list(case.values()))
        small = {name for name, part in parts.items() if part < LEAST}
        one = found.setdefault(policy, {"trials": {}, "knobs": sorted(small)})
        one["trials"][workload] = len(case)
        one["knobs"] = [name for name in one["knobs"] if name in small]
    return found


def explained(space: Space, trials: Sequence[tuple[Any, float]]) -> dict[str, float]:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    names = list(space.configspace)
    rows = [space.configuration(knobs) for knobs, _ in trials]
    pairs = [(c.get_array(), cost) for c, (_, cost) in zip(rows, trials, strict=True) if c]
    vectors = np.nan_to_num(np.array([vector for vector, _ in pairs]), nan=-1.0)
    costs = np.array([cost for _, cost in pairs])
    total = np.zeros(len(names))
    folds = list(KFold(5, shuffle=True, random_state=0).split(vectors))
    for train, test in folds:
        forest = RandomForestRegressor(100, random_state=0).fit(vectors[train], costs[train])
        risen = permutation_importance(
            forest, vectors[test], costs[test], n_repeats=5, random_state=0,
            scoring="neg_mean_squared_error",
        )  # fmt: skip
        total += risen.importances_mean / len(folds)
    spread = float(costs.var())
    return {
        n: float(part / spread) if spread else 0.0 for n, part in zip(names, total, strict=True)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / "build/search")
    parser.add_argument("--out", type=Path, help="of the figures: results/tuner.json, for one")
    args = parser.parse_args()
    args.set = "published"
    compared = json.loads((ROOT / "results/compare-tuned/compare.json").read_text())
    figures = {"edge": EDGE, "least": LEAST, "idle": idle(args.work)}
    cases.publish(args, "edges", figures, edges(compared["cells"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
