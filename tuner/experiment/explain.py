# SPDX-License-Identifier: MIT
"""Which of the best configuration's changes matter: real runs on held-out seeds.

First, on one seed, the default with one change and best with one change taken back: that tells what
to try. Then a greedy path from default to best, on several seeds: the change that gains most is
made next, and one is tried again only while what it promises could still be the most (Minoux's
accelerated greedy algorithm, 1978). Changes of the path that turn out to be unnecessary are taken
back. What is left is a game of which the changes are the players and the gain is the value: its
Shapley values are the shares, on all held-out seeds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, permutations

from tuner.declarations import KnobValue
from tuner.experiment.checks import Check, Checks, held_out, on_seeds
from tuner.study.explanation import KEEP, Alternative, Effect, Explanation, Interaction
from tuner.study.log import StudyData
from tuner.study.verdict import Verdict, interval

SEEDS = 3  # held-out ones, on which the path is chosen
TRIES = 3  # changes that are tried for one step of it
TRIFLE = 0.005  # of the gain: what loses no more is not needed
EXACT = 4  # changes of which all orders are measured
NOTABLE = 0.1  # of the gain, from which on an interaction is told
SWAPS = 3  # pairs that are tried, of a needed change and one that may do instead


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
        self._known: dict[frozenset[str], dict[int, float | None]] = {}  # log costs by seed
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
        shares = self._shares(made)
        made.sort(key=lambda name: (-shares[name][0], name))
        aside = sorted(set(names) - set(made), key=lambda name: (-(alone[name] or 0), name))
        effects = []
        for name in [*made, *aside]:
            share, half_width = shares.get(name, (None, None))
            effects.append(
                Effect(
                    knob=name,
                    default=self._default[name],
                    best=self._best[name],
                    share=share,
                    half_width=half_width,
                    alone=alone[name],
                    without=without[name],
                )
            )
        kept = self._kept(made, self._all)
        return Explanation(
            effects=effects,
            minimal={name: value for name, value in self._best.items() if name in made},
            kept=kept,
            orders=None if len(made) <= EXACT else sum(len(_orders(made, k)) for k in self._all),
            interactions=self._interactions(made),
            alternatives=self._alternatives(effects),
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

    def _announce(self, first: Collection[str], changes: int) -> None:
        """How many runs the path may take, unless the first of them is there from earlier."""
        if self._checks.missing(self._wanted(first, self._several)):
            most = changes * (TRIES + 1) * len(self._several) + changes * len(self._all)
            left = self._checks.left(most)
            self._checks.tell(f"the path from default to best: at most {most} runs{left} at most")

    def _logs(self, changed: Collection[str], seeds: Collection[int]) -> dict[int, float]:
        """Log costs by seed, without those that failed."""
        known = self._known.setdefault(frozenset(changed), {})
        new = [seed for seed in seeds if seed not in known]
        for seed, result in zip(new, self._checks.run(self._wanted(changed, new)), strict=True):
            known[seed] = None if result.cost is None else math.log(result.cost)
        return {seed: log for seed in seeds if (log := known[seed]) is not None}

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
                if not path and not tried:
                    self._announce([name], len(promise))
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
        for name in sorted(path, key=lambda knob: (without[knob] or 0.0, knob)):
            rest = [other for other in made if other != name]
            if rest and all(
                self._kept(rest, seeds) >= min(KEEP, self._kept(made, seeds) - TRIFLE)
                for seeds in (self._several, self._all)  # few runs often tell
            ):
                made = rest
        return made

    # --- The game of the needed changes -----------------------------------------------------------

    def _shares(self, made: Sequence[str]) -> dict[str, tuple[float, float | None]]:
        """Shapley values on all seeds in parts of the whole gain, and half their intervals."""
        orders = {k: _orders(made, k) for k in self._all}
        self._run_on(
            {k: {frozenset(o[:n]) for o in orders[k] for n in range(len(o) + 1)} for k in orders},
            "what makes the difference",
        )
        shares = {}
        for name in made:
            added = []
            for k in self._all:
                each = [order[: order.index(name)] for order in orders[k]]
                added.append(sum(self._adds(name, before, k) for before in each) / len(each))
            shares[name] = self._in_parts(added)
        return shares

    def _adds(self, name: str, before: Sequence[str], seed: int) -> float:
        return self._gains([*before, name], [seed])[0] - self._gains(before, [seed])[0]

    def _in_parts(self, gains: Sequence[float]) -> tuple[float, float | None]:
        """The mean of gains on all seeds in parts of the whole gain, and half its interval: the
        noise of a ratio of means, by the delta method."""
        whole = self._whole(self._all)
        part = sum(gains) / len(gains) / whole
        rests = [
            gain - part * (self._start[k] - self._end[k])
            for k, gain in zip(self._all, gains, strict=True)
        ]
        _, half_width = interval(rests)
        return part, None if half_width is None else half_width / whole

    def _interactions(self, made: Sequence[str]) -> list[Interaction]:
        """The notable ones that are no chance, the largest first. They take all subsets."""
        found = []
        for group in _subsets(made) if len(made) <= EXACT else ():
            if len(group) < 2:
                continue
            gains = [
                sum(
                    (-1) ** (len(group) - len(part)) * self._gains(part, [k])[0]
                    for part in _subsets(group)
                )
                for k in self._all
            ]
            part, half_width = self._in_parts(gains)
            if abs(part) >= max(NOTABLE, half_width or 0.0):
                found.append(Interaction(knobs=list(group), part=part, half_width=half_width))
        return sorted(found, key=lambda each: -abs(each.part))

    def _alternatives(self, effects: Sequence[Effect]) -> list[Alternative]:
        """Of changes that are not needed, but gain something alone: what they can stand in for,
        which best itself would hardly miss."""
        needed = [effect for effect in effects if effect.share is not None]
        missed = {e.knob: 1.0 if e.without is None else e.without for e in needed}
        spare = [e.knob for e in needed if missed[e.knob] < (e.share or 0.0) / 2]
        others = [e for e in effects if e.share is None and (e.alone or 0.0) >= NOTABLE]
        pairs = [(other.knob, name) for other in others for name in spare][:SWAPS]
        made = [effect.knob for effect in needed]
        swapped = {pair: [pair[0], *(n for n in made if n != pair[1])] for pair in pairs}
        self._run(list(swapped.values()), self._all, "what does instead")
        found = [
            Alternative(knob=other, instead_of=name, kept=self._kept(changed, self._all))
            for (other, name), changed in swapped.items()
        ]
        return [each for each in found if each.kept >= KEEP]

    def _run_on(self, wanted: Mapping[int, Collection[frozenset[str]]], what: str) -> None:
        """Runs many sets at once, each on a seed."""
        checks = [
            check
            for seed, sets in wanted.items()
            for changed in sorted(sets, key=lambda each: (len(each), sorted(each)))
            for check in self._wanted(changed, [seed])
        ]
        self._checks.run(checks, what=what)


def _orders(names: Sequence[str], seed: int) -> list[tuple[str, ...]]:
    """Orders in which the changes are made on a seed: all of them if there are few; else one that
    begins with another change on each seed, and its reverse, so that the changes take turns at
    every place."""
    if len(names) <= EXACT:
        return list(permutations(names))
    turn = seed % len(names)
    turned = (*names[turn:], *names[:turn])
    return [turned, turned[::-1]]


def _subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [group for n in range(len(names) + 1) for group in combinations(names, n)]
