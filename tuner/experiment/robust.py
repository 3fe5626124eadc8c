# SPDX-License-Identifier: MIT
"""Configurations that hold beside the conditions of their search.

A search goes by one amount of fast memory and one seed, and what is best there by a hair may lose
most of its gain at half the memory. So before one of the best few is called best, they run on a
fresh seed, and with half and twice the fast memory; and what the chosen one is worth there is
measured once more, on held-out seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.declarations import KnobValue
from tuner.experiment.checks import (
    OFF,
    Check,
    Checks,
    held_out,
    judged_on,
    on_seeds,
    reference,
    seeds_beside,
)
from tuner.limits import fast_share
from tuner.objective import OBJECTIVES
from tuner.run.settings import Setting
from tuner.scenario import Scenario
from tuner.study.contender import Contender, Difference, Kind, difference
from tuner.study.front import candidates
from tuner.study.log import StudyData, TrialRecord
from tuner.study.request import StudyRequest
from tuner.study.verdict import Elsewhere

FACTOR = 2.0  # between the fast memory here and at a neighbour
CANDIDATES = 4
LOSS = 0.02  # against the best trial, on the study's seed
SEEDS = 3  # held-out ones, at each neighbour, if they agree


def neighbours(setting: Setting) -> dict[str, dict[str, Any]]:
    """Changes of the scenario to half and twice the fast memory, by their names: of a ratio 1:8,
    1:16 and 1:4. Those that no scenario has, or where everything fits, are left out."""
    scenario = setting.scenario
    found: dict[str, dict[str, Any]] = {}
    for factor in (1 / FACTOR, FACTOR):
        if scenario.fast_gib:
            gib = scenario.fast_gib * factor
            found[f"{gib:g} GiB fast"] = {"fast_gib": gib}
        elif (ratio := _ratio(scenario, factor)) is not None:
            found[ratio] = {"ratio": ratio}
    return {
        name: changes
        for name, changes in found.items()
        if not fits(setting.under(setting.policy, **changes))
    }


def _ratio(scenario: Scenario, factor: float) -> str | None:
    fast, slow = scenario.ratio.split(":")
    ratio = f"{fast}:{float(slow) / factor:g}"
    try:
        fast_share(ratio)
    except ValueError:
        return None
    return ratio


def fits(setting: Setting) -> bool:
    """Whether the fast tier holds the whole footprint."""
    fast, footprint = sizes(setting)
    return fast >= footprint


def sizes(setting: Setting) -> tuple[float, float]:
    """Bytes of the fast tier, and of the whole footprint."""
    scenario = setting.scenario
    fast: float = scenario.engine_arguments(setting.machine)["fast_bytes"]
    return fast, setting.workload.footprint_of(scenario.input) * (1 << 30)


def choose(checks: Checks, data: StudyData) -> int | None:
    """The number of the trial to recommend: of the best few, the one that gains most on the mean
    of a fresh seed and the neighbours. None if there is no choice, or nothing to go by. Those that
    break a constraint on the fresh seed come into question only if all do; constraints are on the
    study's own conditions, so that they do not count at the neighbours."""
    request = checks.request
    candidates = _candidates(data)
    if not request.robust or len(candidates) < 2:
        return None
    seeds = seeds_beside(request.scenario, len(held_out(request)) + 1)[-1:]
    places = [Place(checks, changes, seeds) for changes in ({}, *neighbours(request).values())]
    configurations = [{}, *(trial.knobs for trial in candidates)]
    wanted = [check for place in places for knobs in configurations for check in place.runs(knobs)]
    checks.run(wanted, what=f"the best {len(candidates)} and the default, elsewhere")
    scores = {trial.number: _score(places, trial) for trial in candidates}
    able = [trial for trial in candidates if scores[trial.number] is not None]
    able = [t for t in able if not _breaks(checks, t, seeds)] or able
    return max(able, key=lambda trial: scores[trial.number] or 0.0).number if able else None


def _breaks(checks: Checks, trial: TrialRecord, seeds: Sequence[Mapping[str, int]]) -> bool:
    return any(each.missed > 1 for each in judged_on(checks, trial.knobs, seeds))


class Place:
    """The study's scenario with some changes, on some seeds."""

    def __init__(
        self, checks: Checks, changes: Mapping[str, Any], seeds: Sequence[Mapping[str, int]]
    ) -> None:
        self._checks = checks
        self._seeds = [{**seed, **changes} for seed in seeds]
        self._changes = changes

    def runs(self, knobs: Mapping[str, KnobValue]) -> list[Check]:
        return on_seeds(self._checks.request, knobs, self._seeds, "elsewhere")

    def untiered(self) -> list[Check]:
        """References do not sample, so that one run stands for all seeds of a stream."""
        (off,) = (policy for policy in self._checks.request.references if policy.name == OFF)
        streams = [{"stream_seed": seed["stream_seed"]} for seed in self._seeds]
        return [
            reference(self._checks.request, off, **stream, **self._changes) for stream in streams
        ]

    def gains(self, knobs: Mapping[str, KnobValue]) -> list[float] | None:
        """Over the default by seed, as differences of log costs; None if a run of it fails. Seeds
        on which the default fails are left out."""
        found = []
        for default, run in zip(
            self._checks.run(self.runs({})), self._checks.run(self.runs(knobs)), strict=True
        ):
            if default.cost is None:
                continue
            if run.cost is None:
                return None
            found.append(math.log(default.cost) - math.log(run.cost))
        return found


def _candidates(data: StudyData) -> list[TrialRecord]:
    """The best few, the best first; only itself if that is the default."""
    request: StudyRequest = data.header.request
    objective = OBJECTIVES[request.scenario.objective]
    good = sorted(
        (objective.cost(trial.objective), trial.number, trial)
        for trial in candidates(data)
        if trial.objective is not None
    )
    near = [trial for cost, _, trial in good if cost <= good[0][0] * (1 + LOSS)]
    return [trial for k, trial in enumerate(near) if not k or trial.number][:CANDIDATES]


def _score(places: Sequence[Place], trial: TrialRecord) -> float | None:
    gains = [place.gains(trial.knobs) for place in places]
    if any(each is None for each in gains):
        return None
    means = [sum(each) / len(each) for each in gains if each]
    return sum(means) / len(means) if means else None


def elsewhere(checks: Checks, data: StudyData) -> list[Elsewhere]:
    """What the best configuration is worth at the neighbours, on a few held-out seeds, and on all
    of them where those leave open whether it is a gain. Empty if that is not asked for."""
    request, best = checks.request, data.best
    if not request.robust or best is None or best.number == 0:
        return []
    seeds = held_out(request)
    changes = neighbours(request)
    found: dict[str, Elsewhere] = {}
    for some, what in (
        (seeds[:SEEDS], "half and twice the fast memory"),
        (seeds, "and more seeds"),
    ):
        open_ = [name for name in changes if name not in found or not _clear(found[name].gain)]
        worths = {name: _Worth(checks, best, Place(checks, changes[name], some)) for name in open_}
        checks.run([check for worth in worths.values() for check in worth.wanted], what=what)
        found |= {name: worth.measured(name) for name, worth in worths.items()}
    return [found[name] for name in changes]


def _clear(gain: Difference | None) -> bool:
    """Whether it is a gain or a loss; so is what did not run, which more seeds do not change."""
    return gain is None or gain.half_width is None or abs(gain.gain) > gain.half_width


class _Worth:
    """What a trial is worth at a place, over the defaults and over no tiering."""

    def __init__(self, checks: Checks, trial: TrialRecord, place: Place) -> None:
        self._checks = checks
        self._runs = (
            (Kind.tuned, place.runs(trial.knobs)),
            (Kind.untuned, place.runs({})),
            (Kind.off, place.untiered()),
        )

    @property
    def wanted(self) -> list[Check]:
        return [check for _, runs in self._runs for check in runs]

    def measured(self, where: str) -> Elsewhere:
        top, *others = (
            Contender(
                kind=kind,
                policy=runs[0].trial.scenario.policy,
                page_bytes=runs[0].trial.scenario.page_bytes,
                values=self._checks.values(runs),
            )
            for kind, runs in self._runs
        )
        objective = self._checks.request.scenario.objective
        gain, over_off = (difference(top, other, objective) for other in others)
        return Elsewhere(where=where, gain=gain, over_first_touch=over_off)
