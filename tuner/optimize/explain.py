# SPDX-License-Identifier: MIT
"""Which of the best configuration's changes matter: real runs on held-out seeds.

First, on one seed, the default with one change and best with one change taken back: that tells what
to try. Then a greedy path from default to best, on several seeds: the change that gains most is
made next, and one is tried again only while what it promises could still be the most (Minoux's
accelerated greedy algorithm, 1978). Changes of the path that turn out to be unnecessary are taken
back, and what is left is measured on all held-out seeds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tuner.declarations import KnobValue
from tuner.optimize.checks import Check, Checks, held_out, on_seeds
from tuner.study.explanation import KEEP, Effect, Explanation
from tuner.study.log import StudyData
from tuner.study.verdict import Verdict, interval

SEEDS = 3  # held-out ones, on which the path is chosen
TRIES = 3  # changes that are tried for one step of it


def explain(checks: Checks, data: StudyData, verdict: Verdict) -> Explanation | None:
    """None if there is nothing to explain: no gain over the default beyond chance."""
    if data.best is None or verdict.gain is None or not verdict.gain.certain:
        return None
    return _Way(checks, data.best.knobs).explanation()


class _Way:
    """The configurations between default and best, named by the knobs that are changed.

    Costs are logarithms, so that differences are relative and add up. A run that fails has the
    default's cost: the change gains nothing.
    """

    def __init__(self, checks: Checks, best: Mapping[str, KnobValue]) -> None:
        self._checks = checks
        self._seeds = held_out(checks.request)
        self._default = {knob.name: knob.default for knob in checks.request.policy.knobs}
        self._best = {k: v for k, v in best.items() if v != self._default[k]}
        self._runs: set[str] = set()
        self._start = self._logs([], range(len(self._seeds)))
        self._end = self._logs(self._best, range(len(self._seeds)))
        # Seeds on which both ends of the way are known.
        self._all = [k for k in self._start if k in self._end]
        self._several = self._all[:SEEDS]
        if self._whole(self._several) <= 0:  # noise: those few seeds show no gain
            self._several = self._all

    def explanation(self) -> Explanation:
        names, first = list(self._best), self._several[:1]
        single = [*([n] for n in names), *map(self._but, names)]
        self._run(single, first, "what each change does")
        alone = {name: self._part([name], first) for name in names}
        without = {name: self._lost(name, first) for name in names}
        made = self._minimal(self._path(alone, without), without)
        path = self._steps(made)
        aside = sorted(set(names) - set(made), key=lambda name: (-(alone[name] or 0), name))
        effects = [
            Effect(
                knob=name,
                default=self._default[name],
                best=self._best[name],
                alone=alone[name],
                without=without[name],
                **path.get(name, {"share": 0.0}),
            )
            for name in [*made, *aside]
        ]
        return Explanation(
            effects=effects,
            minimal={name: value for name, value in self._best.items() if name in made},
            kept=self._kept(made, self._all),
            seeds=[self._seeds[k]["seed"] for k in self._all],
            runs=len(self._runs),
        )

    # --- Runs -------------------------------------------------------------------------------------

    def _but(self, name: str) -> list[str]:
        return [other for other in self._best if other != name]

    def _wanted(self, changed: Collection[str], seeds: Collection[int]) -> list[Check]:
        knobs = {name: value for name, value in self._best.items() if name in changed}
        wanted = on_seeds(
            self._checks.request, knobs, [self._seeds[k] for k in seeds], "explanation"
        )
        self._runs |= {check.key for check in wanted}
        return wanted

    def _run(self, sets: Sequence[Collection[str]], seeds: Collection[int], what: str) -> None:
        """Runs many at once, so that all workers have something to do."""
        wanted = [check for changed in sets for check in self._wanted(changed, seeds)]
        self._checks.run(wanted, what=what)

    def _logs(self, changed: Collection[str], seeds: Collection[int]) -> dict[int, float]:
        """Log costs by seed, without those that failed."""
        results = self._checks.run(self._wanted(changed, seeds))
        return {
            seed: math.log(result.cost)
            for seed, result in zip(seeds, results, strict=True)
            if result.cost is not None
        }

    def _gains(self, changed: Collection[str], seeds: Sequence[int]) -> list[float]:
        """Over the default, by seed."""
        logs = self._logs(changed, seeds)
        return [self._start[k] - logs.get(k, self._start[k]) for k in seeds]

    def _whole(self, seeds: Sequence[int]) -> float:
        return sum(self._start[k] - self._end[k] for k in seeds) / len(seeds)

    def _kept(self, changed: Collection[str], seeds: Sequence[int]) -> float:
        """Which part of the whole gain these changes have."""
        if len(changed) == len(self._best):
            return 1.0
        return sum(self._gains(changed, seeds)) / len(seeds) / self._whole(seeds)

    def _part(self, changed: Collection[str], seeds: Sequence[int]) -> float | None:
        """As `_kept`, in parts of the gain on all seeds; None if it does not run."""
        if len(self._logs(changed, seeds)) < len(seeds):
            return None
        return sum(self._gains(changed, seeds)) / len(seeds) / self._whole(self._all)

    def _lost(self, name: str, seeds: Sequence[int]) -> float | None:
        rest = self._part(self._but(name), seeds)
        return None if rest is None else self._whole(seeds) / self._whole(self._all) - rest

    # --- What they say ----------------------------------------------------------------------------

    def _path(
        self, alone: Mapping[str, float | None], without: Mapping[str, float | None]
    ) -> list[str]:
        """Until `KEEP` of the gain is reached, also on the seeds that did not choose the way."""
        # Best does not run without the one that has no value: nothing promises more.
        needed = {name: 1.0 if part is None else part for name, part in without.items()}
        promise = {name: max(part or 0.0, needed[name]) for name, part in alone.items()}
        path: list[str] = []
        kept = 0.0
        while promise and not self._enough(path, kept):
            tried: dict[str, float] = {}
            while len(tried) < min(TRIES, len(promise)):
                name = max(promise, key=lambda knob: (promise[knob], knob))
                if name in tried:
                    break
                tried[name] = self._kept([*path, name], self._several)
                promise[name] = tried[name] - kept
            name = max(tried, key=lambda knob: (tried[knob], knob))
            if tried[name] <= kept:  # none helps by itself: one that best cannot do without
                name = max(promise, key=lambda knob: (needed[knob], knob))
                tried[name] = self._kept([*path, name], self._several)
            del promise[name]
            kept = tried[name]
            path.append(name)
        return path

    def _enough(self, changed: Collection[str], kept: float) -> bool:
        return kept >= KEEP and self._kept(changed, self._all) >= KEEP

    def _minimal(self, path: Sequence[str], without: Mapping[str, float | None]) -> list[str]:
        """The path's changes without those that it does not need in the end."""
        made = list(path)
        for name in sorted(path[:-1], key=lambda knob: (without[knob] or 0.0, knob)):
            rest = [other for other in made if other != name]
            if rest and self._enough(rest, self._kept(rest, self._several)):
                made = rest
        return made

    def _steps(self, path: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What each change adds, on all seeds."""
        steps: dict[str, dict[str, Any]] = {}
        whole = self._whole(self._all)
        before = [0.0] * len(self._all)
        parts = [path[: count + 1] for count in range(len(path))]
        self._run(parts, self._all, "what makes the difference")
        for count, name in enumerate(path, start=1):
            gains = self._gains(path[:count], self._all)
            added = [gain - last for gain, last in zip(gains, before, strict=True)]
            share = sum(added) / len(added) / whole
            # The noise of a ratio of means, by the delta method.
            _, half_width = interval(
                [
                    gain - share * (self._start[k] - self._end[k])
                    for k, gain in zip(self._all, added, strict=True)
                ]
            )
            steps[name] = {
                "share": share,
                "half_width": None if half_width is None else half_width / whole,
                "kept": sum(gains) / len(gains) / whole,
            }
            before = gains
        return steps
