# SPDX-License-Identifier: MIT
"""tune claims: the language of values, and how figures and orders are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tuner import ranking
from tuner.claims import expression, verdict
from tuner.claims.document import Interval
from tuner.claims.runs import NotEvaluable
from tuner.claims.verdict import Pair

# --- Expressions ----------------------------------------------------------------------------------


class Numbers:
    """A family of given performances."""

    def __init__(self, *values: float, axis: Sequence[Any] = ()) -> None:
        self.values, self.axes = values, list(axis)

    def select(self, axes: Any) -> Numbers:
        keep = [i for i, x in enumerate(self.axes) if x in axes.values()] if axes else None
        return self if keep is None else Numbers(*(self.values[i] for i in keep))

    def axis(self, name: str) -> expression.Floats:
        return np.array(self.axes, dtype=np.float64)

    def performance(self) -> expression.Floats:
        return np.array(self.values)

    objective = performance

    def metric(self, name: str) -> expression.Floats:
        return np.array(self.values) * 10

    part = knob = metric


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("perf(a) / perf(b)", [0.5, 0.5]),
        ("mean(perf(a)) - 1", 0.5),
        ("max(perf(a)) * -2 ** 3", -16.0),
        ("[perf(a, n=7), min(perf(b))]", [2.0, 2.0]),
        ("at_best(a, 'n')", 7.0),
        ("axis(a, 'n')", [5.0, 7.0]),
        ("geomean(perf(b))", 8**0.5),
        ("metric(one, 'x')", 30.0),
        ("mean(perf(a) < perf(b))", 1.0),
        ("count(perf(a) >= 2)", 1.0),
        ("abs(1 - perf(one))", 2.0),
        ("pearson(perf(a), perf(b))", 1.0),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    families = {"a": Numbers(1, 2, axis=(5, 7)), "b": Numbers(2, 4), "one": Numbers(3)}
    assert expression.evaluate(text, families) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "perf()",
        "perf('a')",
        "perf(a, 'x')",
        "perf(a, b)",
        "perf(a, n=-7)",
        "perf(a, **n)",
        "metric(a)",
        "metric(a, x)",
    ],
)
def test_an_argument_that_a_function_does_not_take_is_an_error(text: str) -> None:
    name = text.partition("(")[0]
    with pytest.raises(ValueError, match=rf"found '.*'; {name} needs the name of a run, \d quoted"):
        expression.check(text, {"a": (), "b": ()})


# --- Verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "found", "tolerance", "relative", "right"),
    [
        (2.0, 2.1, 0.1, False, True),
        (2.0, 2.11, 0.1, False, False),
        (2.0, 2.19, 0.1, True, True),
        (2.0, 2.21, 0.1, True, False),
        ([1.0, 2.0], [1.0, 2.0], 0.0, False, True),
        ([1.0, 2.0], [1.0, 2.1], 0.0, False, False),
        (1.0, [1.0, 1.0], 0.0, False, True),
        (Interval(at_least=1.07, at_most=2.09), 1.5, 0.0, False, True),
        (Interval(at_least=1.07, at_most=2.09), 2.1, 0.0, False, False),
        (Interval(at_least=1.07, at_most=2.09), 1.03, 0.05, False, True),
        (Interval(at_most=100), -5.0, 0.0, False, True),
        (Interval(at_least=95), 94.0, 0.0, False, False),
        (1.0, float("nan"), 9.0, False, False),
    ],
)
def test_what_holds(
    published: Any, found: Any, tolerance: float, relative: bool, right: bool
) -> None:
    assert verdict.holds(published, found, tolerance, relative=relative) is right


def test_another_number_of_figures_is_not_evaluable() -> None:
    with pytest.raises(NotEvaluable, match="2 published figures, 3 of ours"):
        verdict.holds([1.0, 2.0], [1.0, 2.0, 3.0], 1, relative=False)


def pairs(published: Sequence[float], ours: Sequence[float], band: float = 0.0) -> list[Pair]:
    names = [f"s{i}" for i in range(len(published))]
    return list(
        verdict.ranked(
            [""],
            {name: [x] for name, x in zip(names, published, strict=True)},
            {name: [x] for name, x in zip(names, ours, strict=True)},
            band,
        )
    )


def tau(found: Sequence[Pair]) -> float | None:
    return ranking.tau(pair.orders for pair in found)


def test_tau_is_pooled_over_cells_and_none_without_pairs() -> None:
    right, wrong = pairs([1, 2], [1, 2]), pairs([1, 2], [2, 1])
    assert tau([*right, *right, *right, *wrong]) == pytest.approx(0.5)
    assert tau([]) is None
    assert tau(pairs([1, 1], [1, 1])) is None


def test_what_is_within_the_band_is_tied() -> None:
    (pair,) = pairs([100, 98], [100, 90], band=0.03)
    assert (pair.published, pair.ours, pair.right) == (0, 1, True)
    (pair,) = pairs([100, 90], [100, 98], band=0.03)
    assert (pair.published, pair.ours, pair.right) == (1, 0, False)
    assert tau([pair, *pairs([2, 1], [2, 1])]) == pytest.approx(2**-0.5)
