# SPDX-License-Identifier: MIT
"""Compares this tuner's search with others, and with itself on several workers.

    PYTHONPATH=DIR python tests/bench/search.py [--set development|held-out|widened]
        [--seeds 0,1,...] [--contenders ours,random,tpe,smac,...] [--out FILE]

Optuna is no dependency of the project: `pip install --target DIR optuna`.

A case is a policy on a workload's default input with pages of 4 KiB at 1:8, where what a study of
20 trials finds is ahead of first-touch (results/compare-tuned). Development and held-out cases have
no workload in common. The objective has one sampling seed, so that what a configuration costs is
the same for all; seeds are of the search. All contenders have the same knobs and ranges, and the
default as their first trial. A failed trial counts to all of them as twice the worst success. The
regret after so many trials is the log of the least cost so far over the least of all runs of the
case.

    ours       as a study searches: initial trials, starts of the space, the model
    no-starts  without the starts, which the others do not have
    random     uniform (on log scales where the knob has one)
    tpe        Optuna's default sampler
    smac       SMAC's HyperparameterOptimizationFacade as it comes
    narrow     ours, with the ranges as they were where the best was often on an edge (edges.py)
    forest     ours, but all proposals of the model's by SMAC's random forest, as it was before
    workers-4  ours on four workers: three trials are pending at each proposal, which are assumed to
               come out at the median
    W-least, W-mean, W-model  the same, assumed at the least or mean cost, or what the model says

Stated before the first run. Pairs are of the same case and seed; p is Wilcoxon's signed-rank
test's, two-sided, of the regrets after the whole budget. The search is ahead of a contender if its
mean regret is less, with p < .05. A model whose every second proposal is SMAC's Gaussian process's
enters the search if on the held-out cases its mean regret is less than that of the forest alone,
with p < .05; so does the best of W-* on development cases against
`workers-4`, if 4 workers there cost more than 1.05 times the regret of one. Held-out cases are run
once with HELD_OUT_SEEDS, from the first on, as many as there is time for, whatever they show; a
contender with fewer seeds than `ours` is compared on those. DEVELOPMENT_SEEDS are free to use.

What changed after the first start, for want of processor time: eight held-out cases became five
when `ours` had run on one that stayed (silo:freqtier), its result unread; and when that case's
results had been seen, `ours`, `random` and `tpe` were put before the other contenders, which have
run on fewer cases or none. The process entered by that rule (regret .0088
for .0198, 38 pairs to 11, p < .0001): `ours` has it since, with lengths that are rounded, and ran
again on the same cases with what is made of it; `forest` is what was `ours` before.

The published searches asked for wider ranges (edges.py). The rule, set before it ran: these get
them, unless that is behind `narrow` with p < .05 on the set `widened`, with DEVELOPMENT_SEEDS.

Trials are kept in the cache of runs, and what each contender tried in --work: the same command goes
on where one was stopped. --again has contenders search anew, after a change of theirs.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import cases
import numpy as np
from cases import Kept, Unit
from ConfigSpace import CategoricalHyperparameter, UniformIntegerHyperparameter

from tuner import engine
from tuner.declarations import KnobDecl, KnobValue
from tuner.experiment import jobs
from tuner.optimize.optimizer import FAILURE_FACTOR, Optimizer, initial_trials
from tuner.optimize.search import Forest
from tuner.optimize.space import Space
from tuner.run import streams
from tuner.run.trial import TrialResult

CASES = {
    "development": "microbench:freqtier,microbench:unified,liblinear:hemem,liblinear:memtis",
    "held-out": "silo:freqtier,tc:hemem,graph500:freqtier,xgboost:hybridtier,tc:unified",
    "widened": "liblinear:memtis,microbench:unified,tc:arms,microbench:autonuma",
}
DEVELOPMENT_SEEDS = "0,1,2,3,4"
HELD_OUT_SEEDS = "100,101,102,103,104,105,106,107,108,109"
SEARCH_SEED, OBJECTIVE_SEED = 6_000_000, 7_000_000
BUDGET = 50
SHOWN = (10, 25, 50)
WITHIN = math.log1p(0.02)
WORKERS = 4
NARROW: dict[str, dict[str, dict[str, float]]] = {
    "arms": {"sampling_period": {"min": 500}},
    "autonuma": {"aol.high": {"max": 250}},
    "memtis": {"cooling_period": {"max": 5e7}},
    "unified": {"r_max": {"min": 0.3}},
}
WORKERS_TARGET = 1.05
SIGNIFICANT = 0.05

Knobs = dict[str, KnobValue]


# --- A case, and those who search it --------------------------------------------------------------


class Case:
    """What is searched, and what a configuration of it costs."""

    def __init__(self, args: argparse.Namespace, workload: str, policy: str) -> None:
        setting, self.tuned, self.fixed, self.starts = cases.searched(args, workload, policy)
        scenario = replace(setting.scenario, seed=OBJECTIVE_SEED)
        self._setting = setting.model_copy(update={"scenario": scenario})
        self.policy = policy
        self.space = Space(self.tuned, self.fixed)
        streams.prepare(self._setting.trial(0, {}).stream)

    def cost(self, knobs: Mapping[str, KnobValue]) -> float | None:
        own = engine.resolve(self._setting.policy.name, dict(knobs))
        result = jobs.work(self._setting.trial(0, own))
        assert isinstance(result, TrialResult)
        return result.cost


class Searcher(Protocol):
    def ask(self) -> Knobs: ...

    def tell(self, cost: float | None) -> None: ...


class Ours:
    def __init__(
        self,
        case: Case,
        seed: int,
        budget: int,
        kind: type[Optimizer] = Optimizer,
        *,
        initial: int | None = None,
        lag: int = 1,
        starts: bool = True,
        knobs: Sequence[KnobDecl] | None = None,
    ) -> None:
        self._optimizer = kind(
            knobs or case.tuned, seed=seed, initial=initial or initial_trials(budget), lag=lag,
            fixed=case.fixed, starts=case.starts if starts else [],
        )  # fmt: skip

    def ask(self) -> Knobs:
        return self._optimizer.ask().knobs

    def tell(self, cost: float | None) -> None:
        self._optimizer.tell(self._optimizer.asked - 1, cost)


def narrow(case: Case, seed: int, budget: int) -> Ours:
    limits = NARROW.get(case.policy, {})
    knobs = [knob.model_copy(update=limits.get(knob.name, {})) for knob in case.tuned]
    return Ours(case, seed, budget, knobs=knobs)


class Tpe:
    """Optuna's own, as it comes."""

    def __init__(self, case: Case, seed: int, budget: int) -> None:
        optuna: Any = importlib.import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._space = case.space
        default = case.space.default()
        tuned = case.space.tuned
        self._study.enqueue_trial({n: default[n] for n in tuned if case.space.active(n, default)})
        self._worst = 0.0
        self._trial: Any = None

    def ask(self) -> Knobs:
        self._trial = self._study.ask()
        knobs = self._space.default()
        for parameter in self._space.configspace.values():  # parents first
            if self._space.active(parameter.name, knobs):
                knobs[parameter.name] = self._suggested(parameter)
        configuration = self._space.configuration(knobs)
        assert configuration is not None, knobs
        return self._space.knobs(configuration)

    def _suggested(self, parameter: Any) -> KnobValue:
        if isinstance(parameter, CategoricalHyperparameter):
            choices = [plain(choice) for choice in parameter.choices]
            return plain(self._trial.suggest_categorical(parameter.name, choices))
        whole = isinstance(parameter, UniformIntegerHyperparameter)
        ask = self._trial.suggest_int if whole else self._trial.suggest_float
        found = ask(parameter.name, parameter.lower, parameter.upper, log=parameter.log)
        return int(found) if whole else float(min(max(found, parameter.lower), parameter.upper))

    def tell(self, cost: float | None) -> None:
        self._worst = max(self._worst, cost or 0.0)
        self._study.tell(self._trial, FAILURE_FACTOR * self._worst if cost is None else cost)


def plain(value: Any) -> KnobValue:
    """Of numpy's types."""
    return value.item() if isinstance(value, np.generic) else value  # type: ignore[no-any-return]


class Smac:
    """The facade that SMAC recommends for hyperparameters, as it comes."""

    def __init__(self, case: Case, seed: int, budget: int) -> None:
        from smac import HyperparameterOptimizationFacade, Scenario

        self._space = case.space
        self._folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            case.space.configspace, n_trials=budget, deterministic=True, seed=seed,
            output_directory=Path(self._folder.name),
        )  # fmt: skip
        self._smac = HyperparameterOptimizationFacade(
            scenario, lambda configuration, seed: 0.0, logging_level=False
        )
        self._asked: Any = None
        self._worst = 0.0

    def ask(self) -> Knobs:
        from smac.runhistory import TrialInfo

        if self._asked is None:
            default = self._space.default()
            self._asked = TrialInfo(self._space.configuration(default), seed=0)
            return default
        self._asked = self._smac.ask()
        return self._space.knobs(self._asked.config)

    def tell(self, cost: float | None) -> None:
        from smac.runhistory import TrialValue

        self._worst = max(self._worst, cost or 0.0)
        value = FAILURE_FACTOR * self._worst if cost is None else cost
        self._smac.tell(self._asked, TrialValue(value), save=False)


class ForestAlone(Optimizer):
    def _by_process(self, number: int) -> bool:
        return False


class Least(Optimizer):
    def _assumed(
        self, pending: Sequence[int], known: Mapping[int, float], seed: int
    ) -> dict[int, float]:
        return dict.fromkeys(pending, min(known.values()))


class Mean(Optimizer):
    def _assumed(
        self, pending: Sequence[int], known: Mapping[int, float], seed: int
    ) -> dict[int, float]:
        return dict.fromkeys(pending, math.exp(statistics.fmean(map(math.log, known.values()))))


class Believer(Optimizer):
    """Kriging believer (Ginsbourger et al. 2010, doi:10.1007/978-3-642-10701-6_6)."""

    def _assumed(
        self, pending: Sequence[int], known: Mapping[int, float], seed: int
    ) -> dict[int, float]:
        vectors = {n: c.get_array() for n in known if (c := self._configuration(n)) is not None}
        asked = {n: c.get_array() for n in pending if (c := self._configuration(n)) is not None}
        if not vectors or not asked:
            return {}
        forest = Forest(self.space.configspace, seed)
        forest.train(np.array(list(vectors.values())), np.log([[known[n]] for n in vectors]))
        means = forest.predict_marginalized(np.array(list(asked.values())))[0][:, 0]
        return {n: float(mean) for n, mean in zip(asked, np.exp(means), strict=True)}


Made = Callable[[Case, int, int], Searcher]
CONTENDERS: dict[str, Made] = {
    "ours": Ours,
    "no-starts": lambda case, seed, budget: Ours(case, seed, budget, starts=False),
    "random": lambda case, seed, budget: Ours(case, seed, budget, initial=budget, starts=False),
    "tpe": Tpe,
    "smac": Smac,
    "narrow": narrow,
    "forest": lambda case, seed, budget: Ours(case, seed, budget, ForestAlone),
    "workers-4": lambda case, seed, budget: Ours(case, seed, budget, lag=WORKERS),
    "W-least": lambda case, seed, budget: Ours(case, seed, budget, Least, lag=WORKERS),
    "W-mean": lambda case, seed, budget: Ours(case, seed, budget, Mean, lag=WORKERS),
    "W-model": lambda case, seed, budget: Ours(case, seed, budget, Believer, lag=WORKERS),
}


# --- Runs -----------------------------------------------------------------------------------------


def unit(given: Unit) -> dict[str, Any]:
    """What the contenders find in a case: the least log cost after each trial."""
    args, workload, policy, seed = given
    kept = Kept(given)
    case: Case | None = None
    found: dict[str, Any] = {}
    for contender in args.contenders.split(","):
        name = f"search {contender} {args.budget}"
        if args.kept and name not in kept:
            continue
        if name not in kept or contender in args.again.split(","):
            case = case or Case(args, workload, policy)
            same = contender == "no-starts" and not case.starts and f"search ours {args.budget}"
            made = CONTENDERS[contender]
            kept.keep(
                name,
                kept.get(same)
                if same and same in kept
                else searched(case, made(case, SEARCH_SEED + seed, args.budget), args.budget),
            )
        run = kept.get(name)
        costs = [math.inf if cost is None else math.log(cost) for cost in run["costs"]]
        found[contender] = {
            "least": [min(costs[: n + 1]) for n in range(len(costs))],
            "ask_seconds": run["ask_seconds"],
        }
    best = min((row["least"][-1] for row in found.values()), default=0.0)
    shown = {name: f"{row['least'][-1] - best:.3f}" for name, row in found.items()}
    print(workload, policy, seed, shown, file=sys.stderr, flush=True)
    return {"workload": workload, "policy": policy, "seed": seed, "found": found}


def searched(case: Case, searcher: Searcher, budget: int) -> dict[str, Any]:
    tried, costs, seconds = [], [], 0.0
    for _ in range(budget):
        began = time.process_time()
        knobs = searcher.ask()
        seconds += time.process_time() - began
        cost = case.cost(knobs)
        searcher.tell(cost)
        tried.append(dict(knobs))
        costs.append(cost)
    return {"knobs": tried, "costs": costs, "ask_seconds": seconds / budget}


# --- Figures --------------------------------------------------------------------------------------


def regrets(found: Sequence[Mapping[str, Any]], shown: Sequence[int]) -> list[dict[str, Any]]:
    """Of each case and seed, the regret of each contender after so many trials."""
    best: dict[tuple[str, str], float] = {}
    for each in found:
        key = each["workload"], each["policy"]
        least = min(row["least"][-1] for row in each["found"].values())
        best[key] = min(least, best.get(key, math.inf))
    return [
        {
            **{name: each[name] for name in ("workload", "policy", "seed")},
            "regret": {
                contender: [
                    round(row["least"][trials - 1] - best[each["workload"], each["policy"]], 5)
                    for trials in shown
                ]
                for contender, row in each["found"].items()
            },
        }
        for each in found
    ]


def summary(rows: Sequence[Mapping[str, Any]], shown: Sequence[int]) -> dict[str, Any]:
    """By contender: mean regrets and the share within 2 % of the best known, after so many trials
    each; and against `ours`, pair by pair, with the regret of `ours` in the same pairs."""
    found: dict[str, Any] = {}
    for contender in dict.fromkeys(name for row in rows for name in row["regret"]):
        its = [row["regret"][contender] for row in rows if contender in row["regret"]]
        found[contender] = {
            "runs": len(its),
            "regret": [statistics.fmean(each[i] for each in its) for i in range(len(shown))],
            "within": [cases.share(each[i] <= WITHIN for each in its) for i in range(len(shown))],
        }
        if contender != "ours":
            found[contender]["against_ours"] = paired(rows, contender, "ours")
    return found


def paired(rows: Sequence[Mapping[str, Any]], one: str, other: str) -> dict[str, Any]:
    """Of the regrets at the end: their means, in how many pairs the one is better and worse, and
    the p of two-sided tests (Wilcoxon's signed ranks; signs)."""
    from scipy.stats import binomtest, wilcoxon

    both = pairs(rows, one, other)
    apart = [a - b for a, b in both]
    better, worse = sum(each < 0 for each in apart), sum(each > 0 for each in apart)
    unequal = better + worse
    return {
        "regrets": [statistics.fmean(column) for column in zip(*both, strict=True)],
        "better": better,
        "worse": worse,
        "p": float(wilcoxon(apart).pvalue) if unequal else 1.0,
        "p_signs": float(binomtest(better, unequal).pvalue) if unequal else 1.0,
    }


def pairs(rows: Sequence[Mapping[str, Any]], *names: str) -> list[list[float]]:
    """The regrets at the end, where all of them ran."""
    return [
        [row["regret"][name][-1] for name in names]
        for row in rows
        if all(name in row["regret"] for name in names)
    ]


def on_workers(rows: Sequence[Mapping[str, Any]], contender: str) -> dict[str, Any]:
    """The regret of several workers over that of one, with 95 % of resamples of the pairs."""
    both = np.array(pairs(rows, contender, "ours"))
    rng = np.random.default_rng(0)
    means = both[rng.integers(len(both), size=(10_000, len(both)))].mean(axis=1)
    ratios = means[means[:, 1] > 0]
    low, high = np.percentile(ratios[:, 0] / ratios[:, 1], (2.5, 97.5)) if len(ratios) else (1, 1)
    several, one = both.mean(axis=0)
    return {
        "runs": len(both),
        "over_one": float(several / one) if one else None,
        "interval": [float(low), float(high)],
        "against_one": paired(rows, contender, "ours"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cases.options(parser, CASES, seeds=None, input="default", work="search")
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument(
        "--contenders", default="ours,no-starts,random,tpe,smac,forest,workers-4",
        help=", ".join(CONTENDERS),
    )  # fmt: skip
    parser.add_argument(
        "--kept", action="store_true", help="figures of what has run already, alone"
    )
    parser.add_argument("--again", default="", help="contenders that are to search anew")
    args = parser.parse_args()
    args.seeds = args.seeds or (HELD_OUT_SEEDS if args.set == "held-out" else DEVELOPMENT_SEEDS)
    if "tpe" in args.contenders.split(",") and not installed("optuna"):
        sys.exit(
            "search.py: tpe needs Optuna: pip install --target DIR optuna, then PYTHONPATH=DIR"
        )
    found = [each for each in cases.run(unit, cases.units_of(args, CASES)) if each["found"]]
    shown = [trials for trials in SHOWN if trials < args.budget] + [args.budget]
    rows = regrets(found, shown)
    about = {
        "engine_build": engine.results_id(),
        "budget": args.budget,
        "input": args.input,
        "page_bytes": args.page_bytes,
        "seeds": len({row["seed"] for row in rows}),
    }
    searches = summary(rows, shown)
    for name, row in searches.items():
        row["ask_seconds"] = statistics.fmean(
            each["found"][name]["ask_seconds"] for each in found if name in each["found"]
        )
    workers = [name for name in searches if name.startswith("W-") or name == "workers-4"]
    versions = {name: metadata.version(name) for name in ("smac", "optuna") if installed(name)}
    figures = about | {"versions": versions, "trials": shown, "within": WITHIN}
    figures["contenders"] = {n: row for n, row in searches.items() if n not in workers}
    cases.publish(args, "search", figures, rows)
    if workers and "ours" in searches:
        figures = about | {"workers": WORKERS, "target": WORKERS_TARGET}
        figures["contenders"] = {name: on_workers(rows, name) for name in workers}
        cases.publish(args, "workers", figures, [])
    return 0


def installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
