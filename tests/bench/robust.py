# SPDX-License-Identifier: MIT
"""Compares ways to find a configuration that holds beside the conditions of its search.

    make bench-tuner [ARGS="--set development|held-out --rules seed,near --seeds 0,1 --runs 80"]

A case is a policy on a workload's smoke input with pages of 4 KiB at 1:8. Each rule has the same
number of runs, for search and choice together, of which one of another size of fast memory or seed
counts as one. Of what it chooses the gain over the defaults is measured on seeds that it has not
seen: at 1:8 (home), 1:16 (half), 1:4 (twice), and at 1:8 on other streams. Gains are differences of
log costs.

Stated before the first run: rules are made and chosen from on the development cases. The one with
the greatest mean gain over the four places wins, among those that lose at most 2 % at home on the
mean against the best on the seed (`seed`). It replaces today's (`near`) if it is ahead of it there.
Then the held-out cases, of other workloads, are run once, with the winner, `near` and `seed`, and
published as they come out.

Runs and choices are kept in --work by what they depend on, so that the same command goes on where
one was stopped, and a rule more costs only its own runs. --again has rules choose anew.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cases
import numpy as np
from cases import Kept, share

from tuner import engine
from tuner.declarations import KnobValue
from tuner.experiment.robust import LOSS, neighbours
from tuner.model import content_hash
from tuner.optimize.optimizer import Optimizer, initial_trials
from tuner.run import runner, streams

CASES = {
    "development": (
        "gups:freqtier,gups:hemem,cachelib:hybridtier,cachelib:memtis,silo:freqtier,silo:hemem,"
        "btree:hybridtier,btree:memtis"
    ),
    "held-out": (
        "redis:memtis,liblinear:hemem,bc:hybridtier,cc:freqtier,microbench:hybridtier,"
        "xgboost:hemem,gpt2:freqtier,graph500:memtis,roms:hybridtier,tc:hemem,"
        "xsbench:hybridtier,drift:freqtier"
    ),
}
HOME, ELSEWHERE = "home", ("half", "twice")
PLACES = (HOME, *ELSEWHERE)
STREAM = "stream"  # home, on other streams

SEARCH_SEED, CHOICE, FRESH = 5_000_000, 1, 100
TESTS = 4  # fresh seeds at each place
OTHER_STREAMS = 2
LEAST = 0.02  # a gain at home that is worth keeping
KEPT = 0.85  # the target
MARGIN = math.log1p(LOSS)

Knobs = Mapping[str, KnobValue]
Gains = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options(parser, runs=80)
    parser.add_argument("--rules", default="seed,near", help=", ".join(RULES))
    parser.add_argument("--again", default="", help="rules that are to choose anew")
    args = parser.parse_args()
    found = cases.run(unit, cases.units_of(args, CASES))
    figures = {
        "engine_build": engine.results_id(),
        "runs": args.runs,
        "tests": TESTS,
        "input": args.input,
        "page_bytes": args.page_bytes,
        "least": LEAST,
        "kept": KEPT,
        **summary(found),
    }
    cases.publish(args, "robust", figures, found)
    return 0


def options(parser: argparse.ArgumentParser, *, runs: int) -> None:
    """Those of comparisons on these cases."""
    cases.options(parser, CASES, seeds="0", input="smoke", work="robust")
    parser.add_argument("--runs", type=int, default=runs, help="of a study (default: %(default)s)")


# --- One case -------------------------------------------------------------------------------------


class Bed:
    """A case with a seed: its runs by place and seed, each simulated once."""

    def __init__(self, args: argparse.Namespace, workload: str, policy: str, seed: int) -> None:
        found = cases.searched(args, workload, policy)
        self.setting, self.tuned, self._fixed, self._starts = found
        self.runs = args.runs
        self.seed = SEARCH_SEED + 1000 * seed
        self._changes: dict[str, dict[str, Any]] = {HOME: {}}
        self._changes |= dict(zip(ELSEWHERE, neighbours(self.setting).values(), strict=True))
        self.kept = Kept((args, workload, policy, seed))
        self.used: set[str] = set()
        self._searched: list[tuple[Knobs, float]] = []
        self._optimizer: Optimizer | None = None

    def cost(self, knobs: Knobs, place: str, seed: int = 0, stream: int = 0) -> float | None:
        """The log of it; None if the run fails."""
        scenario = replace(
            self.setting.scenario,
            seed=self.seed + seed,
            stream_seed=stream,
            **self._changes[place],
        )
        key = content_hash([scenario.named(), dict(knobs)])
        self.used.add(key)
        if key not in self.kept:
            setting = self.setting.model_copy(update={"scenario": scenario})
            trial = setting.trial(0, knobs)
            streams.prepare(trial.stream)
            cost = runner.run(trial).cost
            self.kept.keep(key, None if cost is None else math.log(cost))
        value: float | None = self.kept.get(key)
        return value

    def gain(self, knobs: Knobs, place: str, seed: int = 0, stream: int = 0) -> float:
        """Over the default; of what fails, as if it took twice as long."""
        default = self.cost(self.default, place, seed, stream)
        cost = self.cost(knobs, place, seed, stream)
        if default is None:
            return 0.0
        return -math.log(2) if cost is None else default - cost

    def gains(self, knobs: Knobs, seed: int = 0) -> Gains:
        return {place: self.gain(knobs, place, seed) for place in PLACES}

    @property
    def default(self) -> Knobs:
        return {knob.name: knob.default for knob in self.tuned}

    def optimizer(self, trials: int) -> Optimizer:
        return Optimizer(
            self.tuned, seed=self.seed, initial=initial_trials(trials),
            fixed=self._fixed, starts=self._starts,
        )  # fmt: skip

    def search(self, trials: int) -> list[tuple[Knobs, float]]:
        """The first trials of a search at home, with their gains. Rules share it."""
        optimizer = self._optimizer = self._optimizer or self.optimizer(self.runs)
        while len(self._searched) < trials:
            number = len(self._searched)
            name = f"search {self.runs} {number}"
            knobs = self.kept.get(name)
            if knobs is None:
                knobs = self.kept.keep(name, optimizer.ask().knobs)
            else:
                optimizer.replay(number, knobs)
            cost = self.cost(knobs, HOME)
            optimizer.tell(number, None if cost is None else math.exp(cost))
            self._searched.append((knobs, self.gain(knobs, HOME)))
        for knobs, _ in self._searched[:trials]:
            self.cost(knobs, HOME)  # this rule's, too
        return self._searched[:trials]


def unit(given: tuple[argparse.Namespace, str, str, int]) -> dict[str, Any]:
    """What the rules choose in a case, and what that gains."""
    args, workload, policy, seed = given
    bed = Bed(args, workload, policy, seed)
    found: dict[str, Any] = {}
    for rule in args.rules.split(","):
        name = f"rule {rule} {args.runs}"
        chosen = bed.kept.get(name)
        if chosen is None or rule in args.again.split(","):
            bed.used.clear()
            knobs = RULES[rule](bed)
            chosen = bed.kept.keep(name, {"knobs": dict(knobs), "runs": len(bed.used)})
        knobs = chosen["knobs"]
        tests = range(FRESH, FRESH + TESTS)
        gains = {p: statistics.fmean(bed.gain(knobs, p, test) for test in tests) for p in PLACES}
        gains[STREAM] = statistics.fmean(
            bed.gain(knobs, HOME, test, 1 + test % OTHER_STREAMS) for test in tests
        )
        gains = {place: round(gain, 4) for place, gain in gains.items()}
        found[rule] = {"gain": gains, "runs": chosen["runs"]}
    shown = {
        rule: " ".join(f"{g:.3f}" for g in row["gain"].values()) for rule, row in found.items()
    }
    print(workload, policy, seed, json.dumps(shown), file=sys.stderr, flush=True)
    return {"workload": workload, "policy": policy, "seed": seed, "rules": found}


# --- Rules ----------------------------------------------------------------------------------------


def on_seed(bed: Bed) -> Knobs:
    """The best on the seed of the search."""
    return max(bed.search(bed.runs), key=lambda trial: trial[1])[0]


def near(bed: Bed, count: int = 4, margin: float = MARGIN) -> Knobs:
    """Of the best few within a margin, what gains most on the mean of places on a fresh seed."""
    found = bed.search(bed.runs - len(PLACES) * (count + 1))
    best = max(gain for _, gain in found)
    close = [knobs for knobs, gain in sorted(found, key=lambda t: -t[1]) if gain >= best - margin]
    return max(close[:count], key=lambda knobs: sum(bed.gains(knobs, CHOICE).values()))


def lean(bed: Bed, count: int = 4, margin: float = MARGIN) -> Knobs:
    """As `near`, on the seed of the search, so that the runs at home are there already."""
    found = bed.search(bed.runs - len(ELSEWHERE) * (count + 1))
    best = max(gain for _, gain in found)
    close = [knobs for knobs, gain in sorted(found, key=lambda t: -t[1]) if gain >= best - margin]
    return max(close[:count], key=lambda knobs: sum(bed.gains(knobs).values()))


WIDE = math.log1p(0.05)


def pool(bed: Bed, count: int = 11, margin: float = WIDE) -> Knobs:
    """As `near`, of more that are unlike: each next one is as far as can be from those taken, by
    the distance of its knobs within their ranges."""
    found = bed.search(bed.runs - len(PLACES) * (count + 1))
    return rescored(bed, unlike(bed, found, count, margin))


def halved(bed: Bed, count: int = 14, kept: int = 3, margin: float = WIDE) -> Knobs:
    """As `pool`, of more: all of them run elsewhere on the seed of the search, and the best of them
    on a fresh one."""
    found = bed.search(bed.runs - len(ELSEWHERE) * (count + 1) - len(PLACES) * (kept + 1))
    scored = [(knobs, bed.gains(knobs)) for knobs in unlike(bed, found, count, margin)]
    best = max(gains[HOME] for _, gains in scored)
    able = [each for each in scored if each[1][HOME] >= best - MARGIN]
    able.sort(key=lambda each: -sum(each[1].values()))
    return rescored(bed, [knobs for knobs, _ in able[:kept]])


def unlike(
    bed: Bed, found: Sequence[tuple[Knobs, float]], count: int, margin: float
) -> list[Knobs]:
    """Of the trials within a margin of the best."""
    best = max(gain for _, gain in found)
    space = bed.optimizer(bed.runs).space
    close, vectors = [], []
    for knobs, gain in sorted(found, key=lambda trial: -trial[1]):
        configuration = space.configuration(knobs)
        if gain >= best - margin and configuration is not None:
            close.append(knobs)
            vectors.append(np.nan_to_num(configuration.get_array(), nan=-1.0))
    taken = [0]
    while len(taken) < min(count, len(close)):
        apart = [
            -1.0 if i in taken else min(float(np.abs(vector - vectors[j]).sum()) for j in taken)
            for i, vector in enumerate(vectors)
        ]
        taken.append(int(np.argmax(apart)))
    return [close[i] for i in taken]


def rescored(bed: Bed, candidates: Sequence[Knobs]) -> Knobs:
    """What gains most on the mean of places, of those that lose little at home."""
    return holding([(knobs, bed.gains(knobs, CHOICE)) for knobs in candidates])


def holding(found: Sequence[tuple[Knobs, Gains]]) -> Knobs:
    best = max(gains[HOME] for _, gains in found)
    able = [each for each in found if each[1][HOME] >= best - MARGIN]
    return max(able, key=lambda each: sum(each[1].values()))[0]


def mean(bed: Bed) -> Knobs:
    """A search whose trials run at all places, on their mean log cost."""
    trials = bed.runs // len(PLACES)
    optimizer = bed.optimizer(trials)
    found = []
    for number in range(trials):
        knobs = optimizer.ask().knobs
        gains = bed.gains(knobs)
        optimizer.tell(number, math.exp(-statistics.fmean(gains.values())))
        found.append((knobs, gains))
    return max(found, key=lambda each: sum(each[1].values()))[0]


def race(bed: Bed, share: float = 0.2, margin: float = MARGIN) -> Knobs:
    """A search that runs a trial elsewhere, too, if it comes near the best so far, for a share of
    its trials at most; the best on the mean of places of those."""
    left, best, number = bed.runs, 0.0, 0
    found: list[tuple[Knobs, Gains]] = []
    while left > 0:
        knobs, gain = bed.search(number + 1)[number]
        left -= 1
        allowed = len(found) < 2 + share * number and left >= len(ELSEWHERE)
        if number == 0 or (gain >= best - margin and allowed):
            left -= len(ELSEWHERE)
            found.append((knobs, bed.gains(knobs)))
        best, number = max(best, gain), number + 1
    return holding(found)


RULES: dict[str, Callable[[Bed], Knobs]] = {
    "seed": on_seed,
    "near": near,
    "near-2": lambda bed: near(bed, 2),
    "lean": lean,
    "pool": pool,
    "pool-7": lambda bed: pool(bed, 7),
    "pool-close": lambda bed: pool(bed, margin=MARGIN),
    "near-11": lambda bed: near(bed, 11, WIDE),
    "halved": halved,
    "mean": mean,
    "race": race,
}


# --- Figures --------------------------------------------------------------------------------------


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By rule: mean gains by place; what is kept of the gain at home, and of the most that any rule
    gains there; what is lost at home against `seed`; and the difference to `near`, case by case."""
    rules = list(found[0]["rules"])
    rows = {rule: [case["rules"][rule]["gain"] for case in found] for rule in rules}
    others = [*ELSEWHERE, STREAM]
    out: dict[str, Any] = {}
    for rule, gains in rows.items():
        kept, attained, harmful = [], [], []
        for number, each in enumerate(gains):
            most = {place: max(rows[other][number][place] for other in rules) for place in others}
            if each[HOME] >= math.log1p(LEAST):
                kept += [each[place] / each[HOME] for place in others]
            attained += [each[p] / most[p] for p in others if most[p] >= math.log1p(LEAST)]
            harmful += [each[place] < -math.log1p(0.01) for place in others]
        lost = [ours[HOME] - each[HOME] for ours, each in zip(rows["seed"], gains, strict=True)]
        total = [statistics.fmean(each.values()) for each in gains]
        out[rule] = {
            "gain": {p: statistics.fmean(each[p] for each in gains) for p in (*PLACES, STREAM)},
            "mean_gain": statistics.fmean(total),
            "kept_enough": share(part >= KEPT for part in kept),
            "kept_median": statistics.median(kept) if kept else None,
            "attained_enough": share(part >= KEPT for part in attained),
            "harmful": share(harmful),
            "lost_at_home": statistics.fmean(lost),
            "lost_little": share(each <= MARGIN for each in lost),
            "runs": statistics.fmean(case["rules"][rule]["runs"] for case in found),
        }
        if "near" in rows:
            today = [statistics.fmean(each.values()) for each in rows["near"]]
            apart = [ours - theirs for ours, theirs in zip(total, today, strict=True)]
            out[rule]["over_near"] = {
                "mean": statistics.fmean(apart),
                "error": statistics.stdev(apart) / math.sqrt(len(apart)) if apart[1:] else None,
                "better": sum(each > 0.002 for each in apart),
                "worse": sum(each < -0.002 for each in apart),
            }
    return {"studies": len(found), "rules": out}


if __name__ == "__main__":
    sys.exit(main())
