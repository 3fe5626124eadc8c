# SPDX-License-Identifier: MIT
"""What the search learns as the cost of a trial, where that is not the objective alone.

Of several objectives it learns a scalarization with other weights at each ask (`scalarized`).
A trial that breaks a constraint has a penalty. It costs no less than the best trial that breaks
none, nor than the default, and more than that by the factor by which each bound is missed (ten at
most): so the model's best is always something that may be used, once there is such a trial, and
the way there leads downhill. That admissible trials go before all others, and those by how far
they miss, is the rule of Deb (2000, doi:10.1016/S0045-7825(99)00389-8); the default in place of
the worst admissible trial keeps a hopeless trial from deciding how steep the way is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.study import front
from tuner.study.constraint import Bounds
from tuner.study.log import StudyData
from tuner.study.request import StudyRequest

LEAST = 1e-3
"""Of the largest cost of all trials: smaller ones are not told apart."""


class Costs:
    """The costs of a study's trials. A pure function of their results: of the same trials it says
    the same, whatever else has finished meanwhile."""

    def __init__(self, data: StudyData) -> None:
        self._data = data

    @staticmethod
    def needed(request: StudyRequest) -> bool:
        """Whether costs are others than those of the objective."""
        return bool(request.constraints or request.objectives)

    def __call__(self, numbers: Sequence[int], seed: int) -> dict[int, float | None]:
        """By trial, of those that have finished; None for what failed."""
        request = self._data.header.request
        trials = [trial for n in numbers if (trial := self._data.trial(n)) is not None]
        costs = {t.number: None if t.result is None else t.result.cost for t in trials}
        if request.objectives:
            figures = {
                t.number: front.values(request, request.objectives, t.result) for t in trials
            }
            vectors = {
                n: None if each is None else front.costs(each) for n, each in figures.items()
            }
            costs = scalarized(vectors, seed)
        if not request.constraints:
            return costs
        default = next((trial.result for trial in trials if trial.number == 0), None)
        bounds = Bounds(request.constraints, request, default)
        missed = {
            trial.number: math.prod(bounds.missed(trial.result).values())
            for trial in trials
            if trial.result is not None and costs[trial.number] is not None
        }
        return penalized(costs, missed)


def penalized(
    costs: Mapping[int, float | None], missed: Mapping[int, float]
) -> dict[int, float | None]:
    """The costs, with a penalty for trials that miss their bounds by a factor above 1."""
    kept = [cost for number, cost in costs.items() if cost is not None and missed[number] == 1]
    floor = [*([min(kept)] if kept else []), *([costs[0]] if costs.get(0) is not None else [])]
    return {
        number: cost
        if cost is None or missed[number] == 1
        else max([cost, *(each for each in floor if each is not None)]) * missed[number]
        for number, cost in costs.items()
    }


def scalarized(vectors: Mapping[int, Sequence[float] | None], seed: int) -> dict[int, float | None]:
    """One cost for several, as ParEGO has it (Knowles 2006, doi:10.1109/TEVC.2005.851274): a
    weighted maximum of normalized costs, with other weights at each ask, by its seed. Logarithms
    are normalized, as the search goes by relative differences; what is below a thousandth of the
    largest cost, such as no migration at all, counts as that."""
    from ConfigSpace import ConfigurationSpace
    from smac import Scenario
    from smac.multi_objective.parego import ParEGO

    known = {number: vector for number, vector in vectors.items() if vector is not None}
    if not known:
        return dict.fromkeys(vectors)
    columns = list(zip(*known.values(), strict=True))
    names = [str(k) for k in range(len(columns))]
    parego = ParEGO(Scenario(ConfigurationSpace(), objectives=names, seed=seed), seed=seed)
    parego.update_on_iteration_start()
    normal = [_normalized(column) for column in columns]
    rows = zip(known, zip(*normal, strict=True), strict=True)
    found = {number: math.exp(parego(np.array(row))) for number, row in rows}
    return {number: found.get(number) for number in vectors}


def _normalized(costs: Sequence[float]) -> list[float]:
    most = max((cost for cost in costs if math.isfinite(cost)), default=0.0)
    if most <= 0:
        return [0.0] * len(costs)
    logs = [math.log(min(max(cost, LEAST * most), most)) for cost in costs]
    low, high = min(logs), max(logs)
    return [(log - low) / (high - low) if high > low else 0.0 for log in logs]
