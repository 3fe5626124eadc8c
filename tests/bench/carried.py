# SPDX-License-Identifier: MIT
"""Compares what a study with few trials can make of a simulated study of the same workload.

    python tests/bench/carried.py [--set development|held-out] [--rules R,...] [--out FILE]

Trials on a real machine are few. A simulated study (`--runs` trials at 1:8) stands for what one
has before; the real machine is played by another one: its slow tier has 1.3 times the latency and
0.8 of the bandwidth, moving a page and taking a sample cost 1.5 times as much, and the workload's
stream is another. There each rule has `--trials` trials, the default among them. The best known
there is the least cost of a search of its own with `--there` trials and of all rules' trials; a
rule's regret is its least cost over that, on a logarithmic scale. The target is a regret of 2 % in
90 % of the cases.

Stated before the first run: rules are compared on the development cases; the one with the least
mean regret replaces `top-1`, which is what `--from` did with so few trials, if it is within 2 %
more often. Then the held-out cases are run once, with it, `top-1` and `none`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import cases
from cases import share
from robust import CASES, HOME, WIDE, Bed, Knobs, options, unlike

from tuner import engine
from tuner.optimize.optimizer import Optimizer, initial_trials

WITHIN = math.log1p(0.02)
STREAM = 1


class There(Bed):
    """The same case on a machine that is not quite the simulated one."""

    def __init__(self, args: argparse.Namespace, workload: str, policy: str, seed: int) -> None:
        elsewhere = argparse.Namespace(**(vars(args) | {"work": args.work / "there"}))
        elsewhere.runs = args.there
        super().__init__(elsewhere, workload, policy, seed)
        machine = self.setting.machine
        slow, tiering = machine.slow, machine.tiering
        machine = machine.model_copy(
            update={
                "slow": slow.model_copy(
                    update={
                        "latency_ns": 1.3 * slow.latency_ns,
                        **{
                            name: 0.8 * getattr(slow, name)
                            for name in ("read_gbps", "write_gbps", "total_gbps")
                        },
                    }
                ),
                "tiering": tiering.model_copy(
                    update={
                        "migration_fixed_us": 1.5 * tiering.migration_fixed_us,
                        "sample_assist_ns": 1.5 * tiering.sample_assist_ns,
                    }
                ),
            }
        )
        self.setting = self.setting.model_copy(update={"machine": machine})
        self.seed += 500  # of the sampler, too

    def cost(self, knobs: Knobs, place: str, seed: int = 0, stream: int = STREAM) -> float | None:
        return super().cost(knobs, place, seed, stream)

    def run(self, optimizer: Optimizer, trials: int) -> float:
        """The least log cost of so many trials."""
        found = []
        for number in range(trials):
            cost = self.cost(optimizer.ask().knobs, HOME)
            optimizer.tell(number, None if cost is None else math.exp(cost))
            found += [] if cost is None else [cost]
        return min(found)

    def started(
        self, starts: Sequence[Knobs], trials: int, prior: Sequence[tuple[Knobs, float]] = ()
    ) -> float:
        optimizer = Optimizer(
            self.tuned, seed=self.seed, initial=initial_trials(trials), fixed=self._fixed,
            starts=[*starts, *([] if prior else self._starts)], prior=prior,
        )  # fmt: skip
        return self.run(optimizer, trials)


def differing(bed: Bed, there: There) -> list[tuple[Knobs, float]]:
    """Trials of the simulated study, the best first, without the default."""
    found = sorted(bed.search(bed.runs), key=lambda trial: -trial[1])
    return [(knobs, gain) for knobs, gain in found if knobs != there.default]


def top(count: int) -> Rule:
    def rule(bed: Bed, there: There, trials: int) -> float:
        return there.started([knobs for knobs, _ in differing(bed, there)[:count]], trials)

    return rule


def apart(count: int, margin: float = WIDE) -> Rule:
    def rule(bed: Bed, there: There, trials: int) -> float:
        found = differing(bed, there)
        return there.started(unlike(bed, found, count, margin), trials)

    return rule


def prior(count: int, chosen: Callable[[Bed, There, int], Sequence[Knobs]]) -> Rule:
    """Starts, and a model that has learned from the simulated trials, too."""

    def rule(bed: Bed, there: There, trials: int) -> float:
        known = [(knobs, math.exp(-gain)) for knobs, gain in bed.search(bed.runs)]
        return there.started(chosen(bed, there, count), trials, known)

    return rule


Rule = Callable[[Bed, There, int], float]
RULES: dict[str, Rule] = {
    "none": lambda bed, there, trials: there.started([], trials),
    "top-1": top(1),
    "top-3": top(3),
    "top-7": top(7),
    "apart-3": apart(3),
    "apart-7": apart(7),
    "prior-1": prior(1, lambda b, t, n: [k for k, _ in differing(b, t)[:n]]),
    "prior-3": prior(3, lambda b, t, n: unlike(b, differing(b, t), n, WIDE)),
}


def unit(given: tuple[argparse.Namespace, str, str, int]) -> dict[str, Any]:
    args, workload, policy, seed = given
    bed, there = Bed(args, workload, policy, seed), There(args, workload, policy, seed)
    found = {rule: RULES[rule](bed, there, args.trials) for rule in args.rules.split(",")}
    default = there.cost(there.default, HOME)
    assert default is not None
    search = max(gain for _, gain in there.search(args.there))
    best = min(default - search, *found.values())
    rows = {rule: round(cost - best, 4) for rule, cost in found.items()}
    print(workload, policy, seed, f"{default - best:.3f}", rows, file=sys.stderr, flush=True)
    return {
        "workload": workload, "policy": policy, "seed": seed,
        "gain": round(default - best, 4), "regret": rows,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options(parser, runs=200)
    parser.add_argument("--rules", default="none,top-1", help=", ".join(RULES))
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--there", type=int, default=100, help="trials of the search of its own")
    args = parser.parse_args()
    found = cases.run(unit, cases.units_of(args, CASES))
    rules = {
        rule: {
            "regret": statistics.fmean(case["regret"][rule] for case in found),
            "worst": max(case["regret"][rule] for case in found),
            "within": share(case["regret"][rule] <= WITHIN for case in found),
        }
        for rule in found[0]["regret"]
    }
    figures = {
        "engine_build": engine.results_id(), "runs": args.runs, "trials": args.trials,
        "there": args.there, "input": args.input, "page_bytes": args.page_bytes,
        "studies": len(found), "rules": rules,
    }  # fmt: skip
    cases.publish(args, "carried", figures, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
