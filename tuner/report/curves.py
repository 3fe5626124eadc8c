# SPDX-License-Identifier: MIT
"""How the objective goes with one knob, as a forest of the trials has it: the best configuration,
with this knob at every value of its range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.declarations import KnobDecl, KnobValue
from tuner.objective import OBJECTIVES
from tuner.report.importance import FAIR, Encoder, fit
from tuner.study.log import StudyData

POINTS = 64


@dataclass(frozen=True)
class Curve:
    """`x` are positions on the knob's axis, `y` objectives in their unit."""

    x: list[float]
    y: list[float]


def position(knob: KnobDecl, value: KnobValue) -> float:
    """On the knob's axis; of a flag or a choice the number of the value, and before them where a
    space leaves it out, as it may a default."""
    if not knob.values:
        return float(value)
    return float(knob.values.index(value)) if value in knob.values else -1.0


def curves(study: StudyData, knobs: Sequence[KnobDecl]) -> dict[str, Curve]:
    """By knob; none where trials are too few, or the forest does not predict those that it has not
    seen (out-of-bag R² below `FAIR`)."""
    fitted, best = fit(study), study.best
    if fitted is None or best is None or fitted.r2 < FAIR:
        return {}
    objective = OBJECTIVES[study.header.request.scenario.objective]
    encoder = Encoder(study.header.request.tuned)
    found = {}
    for knob in knobs:
        values = _values(knob)
        points = [encoder.encode(best.knobs | {knob.name: value}) for value in values]
        costs = np.exp(fitted.forest.predict(points))
        found[knob.name] = Curve(
            [position(knob, value) for value in values],
            [1 / cost if objective.higher_is_better else cost for cost in map(float, costs)],
        )
    return found


def _values(knob: KnobDecl) -> list[KnobValue]:
    if knob.values:
        return knob.values
    assert knob.min is not None and knob.max is not None
    spread = np.geomspace if knob.log else np.linspace
    return [float(value) for value in spread(knob.min, knob.max, POINTS)]
