# SPDX-License-Identifier: MIT
"""The search for the least fast memory at which a configuration meets a bound on its slowdown.

Sizes are whole units of the miniature: simulated pages, or what stands for huge ones. A policy may
be slower with more fast memory, so a bisection of the whole range could end anywhere. A grid comes
first, and only the gap above the largest size that fails is bisected, by runs of one seed. The
sizes on both sides of the edge are then run with held-out seeds, whose means replace what the
search saw; if that moves the edge, the search goes on there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.experiment.jobs import STUDY_SEED
from tuner.ranking import NOISE
from tuner.study.contender import interval

GRID = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)
"""Shares of the footprint that are measured first."""

RESOLUTION = 0.05
"""The gap below the answer is bisected until it is at most this share of the answer."""

SEARCH_SEED = STUDY_SEED


@dataclass(frozen=True)
class Slowdown:
    """Of one size against all-fast: 0.05 is 5 % slower. `half_width` is half of the 95 % interval
    over the held-out seeds; 0 where nothing is left to chance, None of the search's one run."""

    mean: float
    half_width: float | None

    @property
    def low(self) -> float:
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half_width or 0.0)


@dataclass(frozen=True)
class Rise:
    """Two neighbouring sizes of which the larger is slower by more than noise."""

    smaller: int
    larger: int
    before: float
    after: float


@dataclass
class Search:
    """The sizes of one configuration, in units: what was measured, and what is to be next.

    Attributes:
        least: units below which a run would be too coarse.
        whole: units that hold everything.
        bound: on the slowdown.
        empty: slowdown without any fast memory, which no policy changes.
        seeds: held-out ones; none where nothing is sampled, so that one run is exact.
    """

    least: int
    whole: int
    bound: float
    empty: float
    seeds: Sequence[int]
    runs: dict[int, dict[int, float]] = field(default_factory=dict)
    """Slowdowns by size and seed."""

    def take(self, size: int, seed: int, slowdown: float) -> None:
        self.runs.setdefault(size, {})[seed] = slowdown

    # --- What is known ----------------------------------------------------------------------------

    @property
    def grid(self) -> list[int]:
        sizes = {max(self.least, round(share * self.whole)) for share in GRID}
        return sorted({min(size, self.whole) for size in sizes})

    @property
    def sizes(self) -> list[int]:
        """Those that were measured, and 0."""
        return [0, *sorted(self.runs)]

    def at(self, size: int) -> Slowdown:
        """Of a size that was measured, or of 0."""
        if size == 0:
            return Slowdown(self.empty, 0.0)
        if not self.seeds:
            return Slowdown(self.runs[size][SEARCH_SEED], 0.0)
        if self._unconfirmed(size):
            return Slowdown(self.runs[size][SEARCH_SEED], None)
        return Slowdown(*interval([self.runs[size][seed] for seed in self.seeds]))

    def meets(self, size: int) -> bool:
        return self.at(size).mean <= self.bound

    @property
    def failing(self) -> int | None:
        """The largest size that fails; None if not even 0 does."""
        return max((size for size in self.sizes if not self.meets(size)), default=None)

    @property
    def answer(self) -> int | None:
        """The least size from which on all that were measured meet the bound; 0 if no fast memory
        is needed, None if the largest one fails. A size below it may meet the bound as well."""
        if self.meets(0):
            return 0
        failing = self.failing
        assert failing is not None  # 0 at least
        return next((size for size in self.sizes if size > failing), None)

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Where the least size lies: above the first and at most at the second. These are the
        nearest sizes around the answer whose intervals leave no doubt; None: there is none above.
        """
        answer = self.answer
        if not answer:
            return 0, answer
        below = [size for size in self.sizes if size < answer]
        above = [size for size in self.sizes if size >= answer]
        low = max((size for size in below if self._surely_fails(size)), default=0)
        high = min((size for size in above if self._surely_meets(size)), default=None)
        return low, high

    @property
    def least_meets(self) -> bool:
        """Whether the answer is the least size that can be told: the true one may be smaller."""
        return self.answer == self.least < self.whole and self.failing == 0

    @property
    def early(self) -> list[int]:
        """Sizes that meet the bound although a larger one fails."""
        failing = self.failing
        return [size for size in self.sizes if failing and size < failing and self.meets(size)]

    @property
    def rises(self) -> list[Rise]:
        """Where more fast memory made it slower."""
        pairs = itertools.pairwise((size, self.at(size).mean) for size in self.sizes)
        return [
            Rise(smaller, larger, before, after)
            for (smaller, before), (larger, after) in pairs
            if 1 + after > (1 + before) * (1 + NOISE)
        ]

    @property
    def knee(self) -> int | None:
        """The size past which more memory gains less than on average over the whole range: where
        the curve is farthest below the line between its ends (Satopaa et al., Finding a "Kneedle"
        in a Haystack, SIMPLEX 2011). None if the curve is flat or straight."""
        if not self.runs:
            return None
        last = self.sizes[-1]
        top, bottom = self.empty, self.at(last).mean
        if 1 + top <= (1 + bottom) * (1 + NOISE):
            return None

        def depth(size: int) -> float:
            return (top - self.at(size).mean) / (top - bottom) - size / last

        found = max(self.sizes, key=depth)
        return found if depth(found) > NOISE else None

    def _unconfirmed(self, size: int) -> list[int]:
        """Seeds that a size was not run with."""
        return [seed for seed in self.seeds if seed not in self.runs.get(size, {})] if size else []

    def _surely_fails(self, size: int) -> bool:
        found = self.at(size)
        return found.half_width is not None and found.low > self.bound

    def _surely_meets(self, size: int) -> bool:
        found = self.at(size)
        return found.half_width is not None and found.high <= self.bound

    # --- What comes next --------------------------------------------------------------------------

    def wanted(self) -> list[tuple[int, int]]:
        """Sizes and seeds to run now; none when the search has ended."""
        if missing := [size for size in self.grid if size not in self.runs]:
            return [(size, SEARCH_SEED) for size in missing]
        answer, failing = self.answer, self.failing
        if answer == 0 or failing is None:
            return []
        if answer is None:
            return self._confirmations([self.whole])
        if answer > self.least and answer - failing > max(1, RESOLUTION * answer):
            return [(max(self.least, (failing + answer) // 2), SEARCH_SEED)]
        below = [size for size in reversed(self.sizes) if size < answer]
        above = [size for size in self.sizes if size >= answer]
        return [
            *self._until_sure(below, self._surely_fails, answer),
            *self._until_sure(above, self._surely_meets, answer),
        ]

    def _until_sure(
        self, sizes: Sequence[int], sure: Callable[[int], bool], answer: int
    ) -> list[tuple[int, int]]:
        """What to run on one side of the edge, from the nearest size on: held-out seeds, and sizes
        between measured ones that are far apart, until there is a size without doubt."""
        for size, following in itertools.zip_longest(sizes, sizes[1:]):
            if unconfirmed := self._confirmations([size]):
                return unconfirmed
            if sure(size) or following is None:
                break
            step = max(1, round(RESOLUTION * answer), abs(size - answer))
            if abs(following - size) > 2 * step:
                between = size + step if following > size else size - step
                if between >= self.least:
                    return [(between, SEARCH_SEED)]
        return []

    def _confirmations(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        return [(size, seed) for size in sizes for seed in self._unconfirmed(size)]
