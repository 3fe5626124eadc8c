# SPDX-License-Identifier: MIT
"""Which knobs matter for a workload: scores from the trials that a study already has.

One function, `importance(...)`, with several methods (`METHODS`). The default one is that
of From Good to Great (2025, §3.1): fit a random forest to the trials; for each knob hold all others
at their default, sample the knob over its range, and see how much the predicted cost moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.declarations import KnobDecl, KnobValue
from tuner.errors import unknown
from tuner.study.log import StudyData, TrialRecord

Floats = NDArray[np.float64]

TREES = 200
SAMPLES = 256  # values of a knob that are tried on the forest
CLIP = 2.0  # a failed or hopeless trial counts as this many times the median cost, at most
FEW = 10  # with fewer trials there are no scores
GOOD, FAIR = 0.6, 0.3  # out-of-bag R² from which a forest is so called


@dataclass(frozen=True)
class Importance:
    """Scores by knob, highest first, and how far to trust them.

    `scores` are shares: they sum to 1, or are all 0 when the forest sees no difference. `r2` is the
    forest's out-of-bag coefficient of determination: 1 predicts unseen trials perfectly, 0 or less
    no better than their mean. `trials` were used.
    """

    scores: dict[str, float]
    r2: float
    trials: int
    method: str

    @property
    def reliability(self) -> str:
        """How far to trust the scores, in words."""
        if self.trials < FEW:
            return f"no basis: only {self.trials} trials"
        grade = "good" if self.r2 >= GOOD else "fair" if self.r2 >= FAIR else "poor"
        return f"{grade} (out-of-bag R² {self.r2:.2f} on {self.trials} trials)"

    def top(self, count: int) -> list[tuple[str, float]]:
        return [(name, score) for name, score in self.scores.items() if score > 0][:count]


def importance(study: StudyData, method: str = "default-slice") -> Importance:
    """Scores of a study's tuned knobs. UserError for an unknown method. Deterministic.

    Fewer than `FEW` trials give all-zero scores rather than noise.
    """
    if method not in METHODS:
        raise unknown("importance method", method, METHODS)
    knobs = study.header.request.tuned
    fitted = fit(study)
    if fitted is None:
        scores = dict.fromkeys((k.name for k in knobs), 0.0)
        return Importance(scores, 0.0, len(_usable(study)), method)
    impact = METHODS[method](fitted.forest, Encoder(knobs))
    total = sum(impact.values())
    ranked = sorted(impact.items(), key=lambda item: (-item[1], item[0]))
    return Importance(
        {name: value / total if total > 0 else 0.0 for name, value in ranked},
        fitted.r2,
        len(_usable(study)),
        method,
    )


@dataclass(frozen=True)
class Fitted:
    """A forest that predicts the log cost of what `Encoder` encodes, and its `Importance.r2`."""

    forest: Any
    r2: float


def fit(study: StudyData) -> Fitted | None:
    """None with fewer than `FEW` trials, or where all cost the same. Deterministic."""
    usable, encoder = _usable(study), Encoder(study.header.request.tuned)
    costs = _clipped([trial.result.cost if trial.result else None for trial in usable])
    if len(usable) < FEW or costs is None or not np.ptp(costs):
        return None
    forest = _forest(np.array([encoder.encode(trial.knobs) for trial in usable]), costs)
    return Fitted(forest, float(forest.oob_score_))


def _usable(study: StudyData) -> list[TrialRecord]:
    return [trial for trial in study.done if trial.result is not None]


def _clipped(costs: Sequence[float | None]) -> Floats | None:
    """Log costs, or None if nothing succeeded. Failed trials and hopeless ones get the same high
    cost: a forest fitted to larger ones would learn nothing else."""
    good = [cost for cost in costs if cost is not None]
    if not good:
        return None
    ceiling = CLIP * float(np.median(good))
    return np.log([min(cost if cost is not None else ceiling, ceiling) for cost in costs])


def _forest(points: Floats, costs: Floats) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        n_estimators=TREES, oob_score=True, min_samples_leaf=2, random_state=0, n_jobs=1
    )
    return forest.fit(points, costs)


class Encoder:
    """Knobs as numbers for the forest: log where the knob is, choices one column each, since
    their order means nothing."""

    def __init__(self, knobs: Sequence[KnobDecl]) -> None:
        self.knobs = {knob.name: knob for knob in knobs}
        self.default: dict[str, KnobValue] = {knob.name: knob.default for knob in knobs}

    def encode(self, values: Mapping[str, KnobValue]) -> list[float]:
        row: list[float] = []
        for name, knob in self.knobs.items():
            value = values[name]
            if knob.type == "choice":
                row += [float(value == choice) for choice in knob.choices]
            else:
                number = float(value)
                row.append(math.log(max(number, 1e-300)) if knob.log else number)
        return row

    def slice(self, name: str) -> list[dict[str, KnobValue]]:
        """Configurations that differ from the default in one knob, which covers its range evenly.

        A conditional knob is moved with the parents that activate it switched on, because it
        has no effect otherwise.
        """
        knob = self.knobs[name]
        base = self.default | self._activation(knob)
        return [base | {name: value} for value in self._values(knob)]

    def _activation(self, knob: KnobDecl) -> dict[str, KnobValue]:
        settings: dict[str, KnobValue] = {}
        while knob.condition is not None and knob.condition.parent in self.knobs:
            parent, values = knob.condition.parent, knob.condition.values
            settings[parent] = self.default[parent] if self.default[parent] in values else values[0]
            knob = self.knobs[parent]
        return settings

    @staticmethod
    def _values(knob: KnobDecl) -> list[KnobValue]:
        if knob.type == "boolean":
            return [False, True]
        if knob.type == "choice":
            return list(knob.choices)
        assert knob.min is not None and knob.max is not None
        spread = np.geomspace if knob.log else np.linspace
        return [float(value) for value in spread(knob.min, knob.max, SAMPLES)]


def _default_slice(forest: Any, encoder: Encoder) -> dict[str, float]:
    """Variance of the predicted log cost while one knob moves and the others stay at default."""
    return {
        name: float(np.var(forest.predict([encoder.encode(row) for row in encoder.slice(name)])))
        for name in encoder.knobs
    }


def _default_range(forest: Any, encoder: Encoder) -> dict[str, float]:
    """As `default-slice`, but the distance from best to worst: what a knob can gain or lose."""
    return {
        name: float(np.ptp(forest.predict([encoder.encode(row) for row in encoder.slice(name)])))
        for name in encoder.knobs
    }


def _impurity(forest: Any, encoder: Encoder) -> dict[str, float]:
    """How much splits on the knob explain over the whole space, interactions included."""
    scores: dict[str, float] = {}
    shares = iter(forest.feature_importances_)
    for name, knob in encoder.knobs.items():
        columns = len(knob.choices) if knob.type == "choice" else 1
        scores[name] = float(sum(next(shares) for _ in range(columns)))
    return scores


METHODS: dict[str, Callable[[Any, Encoder], dict[str, float]]] = {
    "default-slice": _default_slice,
    "default-range": _default_range,
    "impurity": _impurity,
}
