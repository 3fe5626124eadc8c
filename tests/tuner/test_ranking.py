# SPDX-License-Identifier: MIT
"""Orders within noise, and Kendall's tau."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import kendalltau

from tuner import ranking


def tau(first: Sequence[float], second: Sequence[float], noise: float = 0.0) -> float | None:
    pairs = itertools.combinations(range(len(first)), 2)
    return ranking.tau(
        (ranking.order(first[i], first[j], noise), ranking.order(second[i], second[j], noise))
        for i, j in pairs
    )


def test_figures_within_the_noise_are_tied() -> None:
    assert ranking.order(100.0, 100.5, 0.006) == ranking.order(100.5, 100.0, 0.006) == 0
    assert ranking.order(100.0, 101.0, 0.006) == -1
    assert ranking.order(101.0, 100.0, 0.006) == 1
    assert ranking.order(101.0, 100.0, 0.03) == 0


@pytest.mark.parametrize("seed", range(20))
def test_tau_is_scipys_where_a_tie_is_equality(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = [float(x) for x in rng.integers(1, 6, size=8)]
    second = [float(x) for x in rng.integers(1, 6, size=8)]
    assert tau(first, second) == pytest.approx(kendalltau(first, second).statistic)


def test_tau_is_kendalls_with_ties() -> None:
    before = [1.0, 2.0, 3.0, 4.0]
    assert tau(before, before) == 1
    assert tau(before, before[::-1]) == -1
    # One of six pairs reversed: (5 - 1) / 6.
    assert tau(before, [2.0, 1.0, 3.0, 4.0]) == pytest.approx(4 / 6)
    # One pair tied in one of them: 5 / sqrt(6 * 5).
    assert tau(before, [1.0, 1.001, 3.0, 4.0], 0.006) == pytest.approx(5 / 30**0.5)


def test_tau_where_nothing_can_be_told_apart() -> None:
    before, same = [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]
    assert tau(before, same) == tau(same, before) == 0
    assert tau(same, same) is None
    assert tau([], []) is None
