# SPDX-License-Identifier: MIT
"""The Pareto front of a study, measured on seeds that its search has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.declarations import KnobValue
from tuner.experiment.checks import Check, Checks, held_out, on_seeds
from tuner.study.front import Front, Point, beats, candidates, costs, spread, values
from tuner.study.log import StudyData, TrialRecord

SEEDS = 3
"""Held-out ones. That a point is on the front is what chance may have done on the study's own."""


def front(checks: Checks, data: StudyData) -> Front | None:
    """None for a study with one objective, and where there is nothing best."""
    request, best = checks.request, data.best
    if not request.objectives or best is None:
        return None
    every = candidates(data)
    shown = spread(every, best.number)
    seeds = held_out(request)[:SEEDS]
    wanted = [check for knobs in ({}, *_knobs(shown)) for check in _runs(checks, knobs, seeds)]
    checks.run(wanted, what=f"the front's {len(shown)} trials on {len(seeds)} held-out seeds")
    points = [_point(checks, trial, seeds) for trial in shown]
    vectors = {each.trial: costs(each.held_out) for each in points if each.held_out}
    found = [
        each.model_copy(
            update={
                "beaten": each.trial in vectors
                and any(beats(other, vectors[each.trial]) for other in vectors.values())
            }
        )
        for each in points
    ]
    return Front(
        objectives=request.objectives,
        seeds=[seed["seed"] for seed in seeds],
        points=found,
        left_out=len(every) - len(shown),
        best=best.number,
        default=None if data.default is None else _point(checks, data.default, seeds),
    )


def _knobs(trials: Sequence[TrialRecord]) -> list[dict[str, KnobValue]]:
    return [trial.knobs for trial in trials]


def _runs(
    checks: Checks, knobs: Mapping[str, KnobValue], seeds: Sequence[Mapping[str, int]]
) -> list[Check]:
    return on_seeds(checks.request, knobs, seeds, "front")


def _point(checks: Checks, trial: TrialRecord, seeds: Sequence[Mapping[str, int]]) -> Point:
    request = checks.request
    runs = checks.run(_runs(checks, trial.knobs if trial.number else {}, seeds))
    measured = [values(request, request.objectives, result) for result in runs]
    known = [each for each in measured if each is not None]
    means = {}
    if known and len(known) == len(measured):
        means = {n: sum(each[n] for each in known) / len(known) for n in request.objectives}
    own = values(request, request.objectives, trial.result) or {}
    return Point(trial=trial.number, values=own, held_out=means)
