# SPDX-License-Identifier: MIT
"""Which configuration to try next: an ask that is a pure function of the trial log.

Nothing here has state that outlives a call except the observations themselves. Every ask derives
its randomness from (seed, trial number) and fits a fresh model to what is known, so a study that
was killed and resumed continues exactly as if nothing had happened, on any host.

The schedule is that of From Good to Great (2025, §4.1): the default configuration and random ones
for the first fifth of the budget, then SMAC's random forest with expected improvement on the log of
the cost, interrupted by a random configuration with probability 0.2. In place of the forest, every
second trial is SMAC's Gaussian process's: on 5 cases that nothing was developed on, with 10 seeds
each, that took the regret after 50 trials from 2.0 to 0.9 % (tests/bench/search.py). Configurations
that the space names as starts come before the random ones, and in their place. Where trials of
another study are known, there are no random ones at all: the model begins with those, which had
theirs. An ask fits SMAC's model afresh to all that is known: what SMAC keeps in files and private
attributes is never relied on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from ConfigSpace import Configuration

from tuner.declarations import KnobDecl, KnobValue
from tuner.optimize.search import suggest
from tuner.optimize.space import Space

Origin = Literal["default", "start", "initial", "random", "model"]
Costs = Callable[[Sequence[int], int], dict[int, float | None]]

INITIAL_SHARE = 0.2
RANDOM_PROBABILITY = 0.2
FAILURE_FACTOR = 2.0  # a failed trial costs this much more than the worst success


class SpaceExhausted(Exception):
    """Every configuration of a finite space has been proposed."""


@dataclass(frozen=True)
class Proposal:
    """A configuration to try: all tuned knobs, the inactive ones at their default."""

    number: int
    knobs: dict[str, KnobValue]
    origin: Origin


class Proposer(Protocol):
    """What a study needs of an `Optimizer`, which it may share (`tuner.optimize.shared`)."""

    @property
    def asked(self) -> int: ...
    def ready(self) -> bool: ...
    def ask(self, *, again: bool = False) -> Proposal: ...
    def replay(self, number: int, knobs: Mapping[str, KnobValue]) -> None: ...
    def tell(self, number: int, cost: float | None) -> None: ...


AUTO_INITIAL = 10
"""Trials before the model takes over where nobody knows how many there will be."""


def initial_trials(budget: int) -> int:
    """Trials before the model takes over, the default configuration included: 20 of 100."""
    return min(budget, max(2, round(INITIAL_SHARE * budget)))


class Optimizer:
    """Proposes configurations and learns from their costs.

    Trials are numbered from 0. Trial n is proposed from the results of the trials up to n - lag;
    the lag - 1 between them count as pending whether or not they have finished, which makes the
    sequence independent of timing. Use as many workers as `lag`.

    Args:
        knobs: the tuned knobs with their (narrowed) limits.
        seed: of the whole sequence.
        initial: trials before the model takes over, the default included (`initial_trials`).
        lag: 1 for a sequential study, the number of workers otherwise.
        fixed: the policy's other knobs, with what they keep as their defaults.
        starts: configurations to try after the default, all tuned knobs of each.
        prior: configurations of an earlier study, each with its cost there over the default's. The
            model takes them for trials of this one, at so many times the cost of its default.
        costs: what the model learns of finished trials, by their numbers and a seed, if that is not
            what was told.
    """

    def __init__(
        self,
        knobs: Sequence[KnobDecl],
        *,
        seed: int,
        initial: int,
        lag: int = 1,
        fixed: Sequence[KnobDecl] = (),
        starts: Sequence[Mapping[str, KnobValue]] = (),
        prior: Sequence[tuple[Mapping[str, KnobValue], float]] = (),
        costs: Costs | None = None,
    ) -> None:
        self.space = Space(knobs, fixed)
        self._starts = [dict(start) for start in starts]
        self._prior = [
            (configuration, over)
            for values, over in prior
            if (configuration := self.space.configuration(dict(values))) is not None
        ]
        self.lag = lag
        self._seed = seed
        self._initial = initial
        self._proposed: list[dict[str, KnobValue]] = []
        self._costs: dict[int, float | None] = {}
        self._learned = costs
        self._configurations: dict[int, Configuration | None] = {}

    @property
    def asked(self) -> int:
        return len(self._proposed)

    def ready(self) -> bool:
        """Whether `ask` may be called: the costs of all trials that it learns from are known."""
        return all(number in self._costs for number in range(max(0, self.asked - self.lag + 1)))

    def ask(self, *, again: bool = False) -> Proposal:
        """The next trial. SpaceExhausted when a finite space has no configuration left.

        `again`: it was asked for before and what came out was lost. It is the same unless results
        that it learned from were lost as well.
        """
        if not (again or self.ready()):
            raise ValueError(f"trial {self.asked} needs the results of earlier trials first")
        number = self.asked
        rng = np.random.default_rng([self._seed, number])
        origin, knobs = self._propose(number, rng)
        self._proposed.append(knobs)
        return Proposal(number, knobs, origin)

    def replay(self, number: int, knobs: Mapping[str, KnobValue]) -> None:
        """Takes a trial of an earlier run as proposed, in order, without the cost of asking."""
        if number != self.asked:
            raise ValueError(f"trial {number} replayed where trial {self.asked} is next")
        self._proposed.append({name: knobs[name] for name in self.space.decls})

    def tell(self, number: int, cost: float | None) -> None:
        """The cost of a proposed trial: positive, lower is better; None if the trial failed."""
        if not 0 <= number < self.asked or number in self._costs:
            raise ValueError(f"trial {number} is not waiting for a result")
        if cost is not None and not (math.isfinite(cost) and cost > 0):
            raise ValueError(f"cost of trial {number} is {cost}, not a positive number")
        self._costs[number] = cost

    def _propose(
        self, number: int, rng: np.random.Generator
    ) -> tuple[Origin, dict[str, KnobValue]]:
        if number == 0:
            return "default", self.space.default()
        if number <= len(self._starts):
            return "start", self._starts[number - 1]
        if number < self._initial and not self._prior:
            return "initial", self._fresh_sample(rng)
        by_chance = rng.random() < RANDOM_PROBABILITY and not self._prior
        if not by_chance and self.space.tuned:
            knobs = self._ask_model(number, int(rng.integers(2**31)))
            if knobs is not None and knobs not in self._proposed:
                return "model", knobs
        return "random", self._fresh_sample(rng)

    def _fresh_sample(self, rng: np.random.Generator) -> dict[str, KnobValue]:
        for _ in range(1000):
            knobs = self.space.sample(rng)
            if knobs not in self._proposed:
                return knobs
        raise SpaceExhausted(f"all {self.asked} configurations of the space have been tried")

    def _ask_model(self, number: int, seed: int) -> dict[str, KnobValue] | None:
        """SMAC's choice given all that is known, or None if it has none."""
        known = self._known(number, seed)
        process = self._by_process(number)
        found = suggest(self.space.configspace, known, seed, process=process) if known else None
        return None if found is None else self.space.knobs(found)

    def _by_process(self, number: int) -> bool:
        """Whether the model is the process, and not the forest."""
        return number % 2 == 0

    def _known(self, number: int, seed: int) -> list[tuple[Configuration, float]]:
        """What the model learns for this trial."""
        default = self._costs.get(0)
        known = [(each, default * over) for each, over in self._prior] if default else []
        known += [
            (configuration, cost)
            for index, cost in self._known_costs(number, seed).items()
            if (configuration := self._configuration(index)) is not None
        ]
        return known

    def _configuration(self, index: int) -> Configuration | None:
        """Of a proposed trial, made once: a long study has many."""
        if index not in self._configurations:
            self._configurations[index] = self.space.configuration(self._proposed[index])
        return self._configurations[index]

    def _known_costs(self, number: int, seed: int) -> dict[int, float]:
        """Costs to learn from, by trial; failed trials and pending ones with an assumed cost.

        A failed trial costs twice the worst success: finite, so that it steers the model away
        without drowning the differences between successes. A pending one is assumed to come out
        at the median of the known ones, which keeps the next proposal away from it.
        """
        finished = {
            index: self._costs[index]
            for index in range(number - self.lag + 1)
            if index in self._costs
        }
        if self._learned is not None:
            finished = self._learned(list(finished), seed)
        good = [cost for cost in finished.values() if cost is not None]
        if not good:
            return {}
        failed = FAILURE_FACTOR * max(good)
        known = {index: failed if cost is None else cost for index, cost in finished.items()}
        return known | self._assumed(range(max(0, number - self.lag + 1), number), known, seed)

    def _assumed(
        self, pending: Sequence[int], known: Mapping[int, float], seed: int
    ) -> dict[int, float]:
        return dict.fromkeys(pending, float(np.median(list(known.values()))))
