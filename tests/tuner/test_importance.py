# SPDX-License-Identifier: MIT
"""Importance scores: the knob that matters is found, the others are not, and doubt is stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import KNOBS, answer, request

from tuner.errors import UserError
from tuner.optimize.space import Space
from tuner.report.importance import METHODS, Importance, importance
from tuner.run.trial import Status
from tuner.study import log
from tuner.study.log import StudyData, StudyHeader, TrialRecord


def study(
    trials: int, seconds: Callable[[dict[str, Any]], float | None], seed: int = 0
) -> StudyData:
    """A study of random configurations, made in memory; None is a failed trial."""
    wanted = request(Path("/nowhere"), budget=trials)
    header = StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream="x", lag=1, initial=trials,
    )  # fmt: skip
    rng, space = np.random.default_rng(seed), Space(KNOBS)
    records = []
    for number in range(trials):
        knobs = space.sample(rng)
        value = seconds(knobs)
        result = answer(wanted.trial(number, knobs), value or 1.0)
        if value is None:
            failed = {"status": Status.failed, "objective": None, "cost": None}
            result = result.model_copy(update=failed)
        records.append(TrialRecord(number, "initial", knobs, "", "", result))
    return StudyData(Path("/nowhere"), header, records)


def only_period(knobs: dict[str, Any]) -> float:
    return 100.0 + 10 * math.log10(knobs["period"])


@pytest.mark.parametrize("method", METHODS)
def test_the_one_knob_that_matters_is_found(method: str) -> None:
    scores = importance(study(60, only_period), method)
    assert next(iter(scores.scores)) == "period"
    assert scores.scores["period"] > 0.9
    assert sum(scores.scores.values()) == pytest.approx(1.0)
    assert set(scores.scores) == {knob.name for knob in KNOBS}
    assert scores.r2 > 0.6
    assert scores.reliability.startswith("good")


def test_scores_rank_by_effect() -> None:
    def seconds(knobs: dict[str, Any]) -> float:
        modes = {"plain": 0.0, "eager": 0.0, "lazy": 12.0}
        return 100.0 + 20 * float(knobs["share"]) + modes[knobs["mode"]]

    names = list(importance(study(100, seconds)).scores)
    assert set(names[:2]) == {"share", "mode"}


def test_a_conditional_knob_is_judged_where_it_acts() -> None:
    """`aol.low` acts only when `aol` is on, which is not the default."""

    def seconds(knobs: dict[str, Any]) -> float:
        return 100.0 + (abs(knobs["aol.low"] - 60) if knobs["aol"] else 0.0)

    assert importance(study(100, seconds)).scores["aol.low"] > 0.5


def test_noise_is_called_unreliable() -> None:
    rng = np.random.default_rng(3)
    scores = importance(study(60, lambda _: 100.0 + rng.random()))
    assert scores.r2 < 0.3
    assert scores.reliability.startswith("poor")


def test_failed_trials_do_not_drown_the_others() -> None:
    """A tenth of the trials fail for a reason that no knob explains."""
    count = iter(range(1000))
    scores = importance(study(80, lambda k: None if next(count) % 10 == 9 else only_period(k)))
    assert next(iter(scores.scores)) == "period"


def test_same_study_same_scores() -> None:
    assert importance(study(40, only_period)) == importance(study(40, only_period))


@pytest.mark.parametrize(
    "data",
    [study(3, only_period), study(30, lambda _: None), study(30, lambda _: 100.0)],
    ids=["few", "failed", "flat"],
)
def test_nothing_is_claimed_without_a_basis(data: StudyData) -> None:
    scores = importance(data)
    assert set(scores.scores.values()) == {0.0}
    assert scores.top(3) == []


def test_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match="default-slice"):
        importance(study(3, only_period), "guess")


def test_top_leaves_out_knobs_without_effect() -> None:
    scores = Importance({"a": 0.7, "b": 0.3, "c": 0.0}, 0.9, 50, "default-slice")
    assert scores.top(3) == [("a", 0.7), ("b", 0.3)]
