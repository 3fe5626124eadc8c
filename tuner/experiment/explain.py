# SPDX-License-Identifier: MIT
"""Which of the best configuration's changes matter: real runs on held-out seeds.

First, on one seed, best with one change taken back: those that are hardly missed are taken back
together, as many at once as can be, until `KEEP` of the gain would be lost (delta debugging: Zeller
and Hildebrandt 2002, doi:10.1109/32.988498). A set that clearly loses more is given up after a few
seeds; what remains is measured on all. Of the changes that are left none can be taken back.

They are a game of which the changes are the players and the gain is the value: its Shapley values
are the shares. On one seed all sets of changes run, as far as there are few; on the others only
sets of one change, and of all but one, which tell the Shapley values of how those seeds differ from
the first. The values are fitted to the measured sets by the Shapley kernel (Lundberg and Lee 2017,
arXiv:1705.07874, theorem 2; sets by size, the smallest and largest first: AISTATS 2021,
arXiv:2012.01536), which is exact where all sets are measured. Seeds are added until the intervals
are narrow, or all held-out ones have been used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from tuner.declarations import KnobValue
from tuner.experiment.checks import Check, Checks, held_out, judged_on, on_seeds
from tuner.experiment.contest import gains
from tuner.study.contender import half_width as half_width_of
from tuner.study.contender import interval
from tuner.study.explanation import KEEP, Alternative, Effect, Explanation, Interaction
from tuner.study.log import StudyData, TrialRecord

FEW = 2  # held-out seeds, after which a set of changes may be given up
SEEDS = 3  # on which shares are measured at least
NARROW = 0.05  # of the gain: half an interval of a share that is narrow enough
TRIFLE = 0.005  # of the gain: what loses no more is not needed
MOST_SETS = 80  # of changes, that are measured on one seed
NOTABLE = 0.1  # of the gain, from which on an interaction is told
SWAPS = 3  # needed changes of which it is tried what does instead

Gains = Mapping[frozenset[str], float]


def explain(checks: Checks, data: StudyData) -> Explanation | None:
    """None if there is nothing to explain: no gain over the default beyond chance."""
    way = _way(checks, data)
    return None if way is None else way.explanation()


def leaner(checks: Checks, data: StudyData) -> dict[str, KnobValue] | None:
    """The best trial's configuration without the changes that it does not need, if that measures at
    least as good; else None."""
    way = _way(checks, data)
    return None if way is None else way.leaner()


def _way(checks: Checks, data: StudyData) -> _Way | None:
    # Of the trial itself, also where it is recommended without some of its changes.
    trial = None if data.best is None else data.trial(data.best.number)
    if trial is None or trial.number == 0 or not gains(checks, trial.knobs):
        return None
    return _Way(checks, trial)


class _Way:
    """The configurations between the default and a trial, named by the knobs that are changed.

    Costs are logarithms, so that differences are relative and add up. A run that fails has the
    default's cost: the change gains nothing.
    """

    def __init__(self, checks: Checks, trial: TrialRecord) -> None:
        self._checks = checks
        self._seeds = held_out(checks.request)
        self._default = {knob.name: knob.default for knob in checks.request.policy.knobs}
        self._best = {k: v for k, v in trial.knobs.items() if v != self._default[k]}
        self._runs: set[str] = set()
        self._known: dict[frozenset[str], dict[int, float | None]] = {}  # log costs by seed
        self._start = self._logs([], range(len(self._seeds)))
        self._end = self._logs(self._best, range(len(self._seeds)))
        # Seeds on which both ends of the way are known.
        self._all = [k for k in self._start if k in self._end]
        self._several = self._all[:SEEDS]
        self._noise = self._deviation([[], self._best], self._all) or 0.0

    def leaner(self) -> dict[str, KnobValue] | None:
        if self._checks.request.objectives:
            return None  # what adds nothing to the first objective may be for another
        made = self._needed(self._missed())
        kept, half_width = self._in_parts(self._gains(made, self._all), self._wholes(self._all))
        # Of all sets that were tried the best looks better than it is, by as much as chance does.
        least = kept - (half_width or 0.0)
        if len(made) == len(self._best) or kept < 1 - TRIFLE or least < KEEP:
            return None
        knobs = self._knobs(made)
        if self._breaks(knobs):
            return None
        return knobs if gains(self._checks, knobs) else None

    def _breaks(self, knobs: Mapping[str, KnobValue]) -> list[str]:
        """The study's constraints that a configuration breaks, on its own seed or on the mean of
        the held-out ones."""
        own: list[dict[str, int]] = [{}]
        found = [
            each for seeds in (self._seeds, own) for each in judged_on(self._checks, knobs, seeds)
        ]
        return list(dict.fromkeys(each.constraint for each in found if each.missed > 1))

    def explanation(self) -> Explanation:
        missed = self._missed()
        made = self._needed(missed)
        kept, half_width = self._in_parts(self._gains(made, self._all), self._wholes(self._all))
        lean = self.leaner() is not None
        seeds, values = self._shares(made)
        # Of the needed changes' gain. best.yaml has no other, or of its gain this part is theirs.
        told, width = (1.0, 0.0) if lean else (kept, half_width or 0.0)
        shares = {
            name: (told * part, None if half is None else math.hypot(told * half, part * width))
            for name, (part, half) in values.items()
        }
        made.sort(key=lambda name: (-shares[name][0], name))
        aside = sorted(set(self._best) - set(made), key=lambda name: (-_lost(missed[name]), name))
        unit = kept if lean else 1.0  # best.yaml's gain, of the trial's
        effects = []
        for name in [*made, *aside]:
            share, half = shares.get(name, (None, None))
            alone = self._part([name], seeds) if name in shares else None
            without = missed[name]
            effects.append(
                Effect(
                    knob=name,
                    default=self._default[name],
                    best=self._best[name],
                    share=share,
                    half_width=half,
                    alone=None if alone is None else alone / unit,
                    without=None if without is None else without / unit,
                )
            )
        sets = len(_sets(made))
        return Explanation(
            effects=effects,
            minimal=self._knobs(made),
            kept=kept,
            half_width=half_width,
            lean=lean,
            breaks=self._breaks(self._knobs(made)) or None,
            sets=None if sets == _possible(made) else sets,
            interactions=self._interactions(made, seeds, told),
            alternatives=self._alternatives(made, aside, missed, values),
            seeds=[self._seeds[k]["seed"] for k in seeds],
            runs=len(self._runs),
        )

    # --- Runs -------------------------------------------------------------------------------------

    def _knobs(self, changed: Collection[str]) -> dict[str, KnobValue]:
        return {name: value for name, value in self._best.items() if name in changed}

    def _but(self, name: str) -> list[str]:
        return [other for other in self._best if other != name]

    def _wanted(self, changed: Collection[str], seeds: Collection[int]) -> list[Check]:
        wanted = on_seeds(
            self._checks.request,
            self._knobs(changed),
            [self._seeds[k] for k in seeds],
            "explanation",
        )
        self._runs |= {check.key for check in wanted}
        return wanted

    def _run(self, wanted: Mapping[int, Sequence[Collection[str]]], what: str) -> None:
        """Runs many sets by seed at once, so that all workers have something to do."""
        checks = [
            check
            for seed, sets in wanted.items()
            for changed in sets
            for check in self._wanted(changed, [seed])
        ]
        self._checks.run(checks, what=what)

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

    def _wholes(self, seeds: Sequence[int]) -> list[float]:
        return [self._start[k] - self._end[k] for k in seeds]

    def _whole(self, seeds: Sequence[int]) -> float:
        return sum(self._wholes(seeds)) / len(seeds)

    def _kept(self, changed: Collection[str], seeds: Sequence[int]) -> float:
        """Which part of the trial's gain these changes have, by what they lose on these seeds."""
        if len(changed) == len(self._best):
            return 1.0
        lost = zip(self._wholes(seeds), self._gains(changed, seeds), strict=True)
        return 1 - sum(whole - gain for whole, gain in lost) / len(seeds) / self._whole(self._all)

    def _part(self, changed: Collection[str], seeds: Sequence[int]) -> float | None:
        """As `_kept`; None if it does not run."""
        if len(self._logs(changed, seeds)) < len(seeds):
            return None
        return self._kept(changed, seeds)

    def _in_parts(
        self, gains: Sequence[float], wholes: Sequence[float]
    ) -> tuple[float, float | None]:
        """The mean of gains in parts of the mean of others on the same seeds, and half its
        interval: the noise of a ratio of means, by the delta method."""
        whole = sum(wholes) / len(wholes)
        part = sum(gains) / len(gains) / whole
        rests = [gain - part * each for gain, each in zip(gains, wholes, strict=True)]
        _, half_width = interval(rests)
        return part, None if half_width is None else half_width / whole

    def _deviation(self, sets: Sequence[Collection[str]], seeds: Sequence[int]) -> float | None:
        """Standard deviation of a run's log cost, beside what a set and a seed do to all of theirs:
        what remains of a table of two ways. None without a repetition."""
        rows = [[-gain for gain in self._gains(changed, seeds)] for changed in sets]
        free = (len(rows) - 1) * (len(seeds) - 1)
        if free < 1:
            return None
        mean = sum(map(sum, rows)) / len(rows) / len(seeds)
        by_seed = [sum(column) / len(rows) - mean for column in zip(*rows, strict=True)]
        rests = [
            value - sum(row) / len(row) - by_seed[k] for row in rows for k, value in enumerate(row)
        ]
        return math.sqrt(sum(rest**2 for rest in rests) / free)

    # --- Which are needed -------------------------------------------------------------------------

    def _missed(self) -> dict[str, float | None]:
        """What best loses without each change, on one seed; None if it does not run."""
        first = self._several[:1]
        single = [self._but(name) for name in self._best]
        self._run(dict.fromkeys(first, single), "what the best configuration loses without each")
        found = {name: self._part(self._but(name), first) for name in self._best}
        return {name: None if part is None else 1 - part for name, part in found.items()}

    def _needed(self, missed: Mapping[str, float | None]) -> list[str]:
        """The fewest changes found that keep `KEEP` of the gain on all seeds."""
        left = sorted(self._best, key=lambda name: (_lost(missed[name]), name))
        most = 1 - KEEP + self._chance(1)
        spare = sum(_lost(missed[name]) <= most for name in left)
        needed: list[str] = []  # that could not be taken back
        count = spare
        while spare:
            rest = [*needed, *left[count:]]
            if rest and self._keep(rest):
                left, spare = left[count:], spare - count
                count = spare
            elif count > 1:
                count = (count + 1) // 2
            else:
                needed.append(left.pop(0))
                count = spare = spare - 1
        return self._minimal([*needed, *left], missed)

    def _keep(self, changed: Collection[str]) -> bool:
        """Whether these changes keep `KEEP` of the gain on all seeds."""
        few = self._several[:FEW]
        if self._kept(changed, few) < KEEP - self._chance(len(few)):
            return False
        return self._kept(changed, self._all) >= KEEP

    def _chance(self, seeds: int) -> float:
        """By how much what is kept on so many seeds may be off: two standard deviations."""
        return 2 * self._noise * math.sqrt(2 / seeds) / self._whole(self._all)

    def _minimal(self, made: list[str], missed: Mapping[str, float | None]) -> list[str]:
        """Without any that can be taken back by itself after all."""
        order = sorted(made, key=lambda name: (_lost(missed[name]), name))
        few = self._several[:FEW]
        again = True
        while again and len(made) > 1:
            rests = [[n for n in made if n != name] for name in order if name in made]
            self._run(dict.fromkeys(few, rests), "which are needed")
            again = False
            for rest in rests:
                if all(
                    self._kept(rest, seeds) >= min(KEEP, self._kept(made, seeds) - TRIFLE)
                    for seeds in (few, self._all)  # few runs often tell
                ):
                    made, again = rest, True
                    break
        return [name for name in self._best if name in made]

    # --- The game of the needed changes -----------------------------------------------------------

    def _shares(
        self, made: Sequence[str]
    ) -> tuple[list[int], dict[str, tuple[float, float | None]]]:
        """Shapley values in parts of what these changes gain, with half their intervals, and the
        seeds that they were measured on."""
        count = len(self._several)
        if sum(self._gains(made, self._several)) <= 0:  # noise
            count = len(self._all)
        while True:
            seeds = self._all[:count]
            outer = dict.fromkeys(seeds[1:], _sets(made, outer=True))
            self._run({seeds[0]: _sets(made)} | outer, "what makes the difference")
            shares, beside = self._fitted(made, seeds), self._of_first(made, seeds)
            widest = max(half_width or 0.0 for _, half_width in shares.values())
            # More seeds do not help what the first one leaves uncertain.
            if count == len(self._all) or widest <= max(NARROW, *beside.values()):
                break
            count += 1
        return seeds, {
            name: (part, None if half is None else math.hypot(half, beside[name]))
            for name, (part, half) in shares.items()
        }

    def _fitted(
        self, made: Sequence[str], seeds: Sequence[int]
    ) -> dict[str, tuple[float, float | None]]:
        """Shapley values of the first seed, and of what the others differ from it by."""
        base = self._by_set(_sets(made), made, seeds[0])
        values = _shapley(made, base)
        by_seed = [values]
        for seed in seeds[1:]:
            gains = self._by_set(_sets(made, outer=True), made, seed)
            more = _shapley(made, {each: gains[each] - base[each] for each in gains})
            by_seed.append({name: values[name] + more[name] for name in made})
        wholes = self._gains(made, seeds)
        return {name: self._in_parts([each[name] for each in by_seed], wholes) for name in made}

    def _of_first(self, made: Sequence[str], seeds: Sequence[int]) -> dict[str, float]:
        """What is uncertain beside how seeds differ, as half intervals: what sets tell that run on
        the first seed only, and where not even there all of them do, how much they have told."""
        sets, outer = _sets(made), _sets(made, outer=True)
        if len(sets) == len(outer) == _possible(made):
            return dict.fromkeys(made, 0.0)
        gain = sum(self._gains(made, seeds)) / len(seeds)
        deviation = self._deviation([[], made, *outer], seeds)
        free = (len(outer) + 1) * (len(seeds) - 1)
        whole = frozenset(made)
        rough = _estimator(made, [*outer, whole])
        fine = _estimator(made, [*sets, whole])
        base = self._by_set(sets, made, seeds[0])
        found = {}
        for name in made:
            more = {each: fine[name][each] - rough[name].get(each, 0.0) for each in base}
            error = (deviation or 0.0) * math.sqrt(sum(weight**2 for weight in more.values()))
            half_width = half_width_of(error, free) if free else 0.0
            if len(sets) < _possible(made):
                half_width += abs(sum(weight * base[each] for each, weight in more.items()))
            found[name] = half_width / gain
        return found

    def _by_set(
        self, sets: Sequence[frozenset[str]], made: Sequence[str], seed: int
    ) -> dict[frozenset[str], float]:
        """Gains of these sets, and of all that is made."""
        return {each: self._gains(each, [seed])[0] for each in [*sets, frozenset(made)]}

    def _interactions(
        self, made: Sequence[str], seeds: Sequence[int], told: float
    ) -> list[Interaction]:
        """Harsanyi dividends, the notable ones that are no chance, the largest first; none if sets
        are missing."""
        if len(_sets(made)) < _possible(made):
            return []
        outer = _sets(made, outer=True)
        on = seeds if len(outer) == len(_sets(made)) else seeds[:1]
        gain = sum(self._gains(made, on)) / len(on) / told
        deviation = self._deviation([[], made, *outer], seeds)
        found = []
        for group in (g for n in range(2, len(made) + 1) for g in combinations(made, n)):
            parts = [p for n in range(len(group) + 1) for p in combinations(group, n)]
            signed = [(-1) ** (len(group) - len(p)) * sum(self._gains(p, on)) for p in parts]
            part, half_width = sum(signed) / len(on) / gain, None
            if deviation is not None:
                free = (len(outer) + 1) * (len(seeds) - 1)
                spread = deviation * math.sqrt(len(parts) / len(on)) / gain
                half_width = half_width_of(spread, free)
            if abs(part) >= max(NOTABLE, half_width or 0.0):
                found.append(Interaction(knobs=list(group), part=part, half_width=half_width))
        return sorted(found, key=lambda each: -abs(each.part))

    def _alternatives(
        self,
        made: Sequence[str],
        aside: Sequence[str],
        missed: Mapping[str, float | None],
        shares: Mapping[str, tuple[float, float | None]],
    ) -> list[Alternative]:
        """What does instead of needed changes that best itself would hardly miss: one of the
        changes that are not needed, found by halves."""
        spare = [name for name in made if _lost(missed[name]) < shares[name][0] / 2][:SWAPS]
        first = self._several[:1]
        found = []
        for name in spare if aside else ():
            rest = [other for other in made if other != name]
            left = list(aside)
            while len(left) > 1:
                half = left[: (len(left) + 1) // 2]
                does = self._kept([*rest, *half], first) >= (KEEP + self._kept(rest, first)) / 2
                left = half if does else left[len(half) :]
            if (kept := self._kept([*rest, *left], self._all)) >= KEEP:
                found.append(Alternative(knob=left[0], instead_of=name, kept=kept))
        return found


def _lost(part: float | None) -> float:
    """Best does not run without a change that has no value: all is lost, and more."""
    return math.inf if part is None else part


def _possible(names: Sequence[str]) -> int:
    """Sets of some of the names, neither none nor all."""
    return int(2 ** len(names)) - 2


def _sets(names: Sequence[str], *, outer: bool = False) -> list[frozenset[str]]:
    """Sets of some of the names, neither none nor all: those of one and of all but one, and unless
    these `outer` ones are enough, those of two and of all but two, while `MOST_SETS` hold them."""
    found: list[frozenset[str]] = []
    for size in range(1, len(names) // 2 + 1):
        pair = [
            frozenset(group)
            for each in dict.fromkeys((size, len(names) - size))
            for group in combinations(names, each)
        ]
        if size > 1 and (outer or len(found) + len(pair) > MOST_SETS):
            break
        found += pair
    return found


def _shapley(names: Sequence[str], gains: Gains) -> dict[str, float]:
    """Shapley values of a game of which some sets are measured, among them that of all."""
    found = _estimator(names, list(gains))
    return {name: sum(w * gains[each] for each, w in found[name].items()) for name in names}


def _estimator(
    names: Sequence[str], sets: Sequence[frozenset[str]]
) -> dict[str, dict[frozenset[str], float]]:
    """By which weights of the sets' gains the Shapley values are the sums: those of the additive
    game that fits best by the Shapley kernel and has the gain of all. `sets` end with that."""
    import numpy as np

    *some, whole = sets
    if len(names) == 1:
        return {names[0]: {whole: 1.0}}
    rows = np.array([[name in each for name in names] for each in some], dtype=float)
    weights = np.array([_kernel(len(names), len(each)) for each in some])
    inverse = np.linalg.inv(rows.T @ (weights[:, None] * rows))
    free = inverse @ (rows.T * weights)
    ones = inverse.sum(axis=1) / inverse.sum()
    bound = free - np.outer(ones, free.sum(axis=0))
    return {
        name: dict(zip(some, map(float, bound[k]), strict=True)) | {whole: float(ones[k])}
        for k, name in enumerate(names)
    }


def _kernel(players: int, size: int) -> float:
    return (players - 1) / (math.comb(players, size) * size * (players - size))
