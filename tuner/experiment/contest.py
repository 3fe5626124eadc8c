# SPDX-License-Identifier: MIT
"""The verdict on a study: its best configuration against simpler choices, on seeds that the search
has not used."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.declarations import KnobValue
from tuner.experiment.checks import (
    BOUND,
    OFF,
    Check,
    Checks,
    held_out,
    on_seeds,
    reference,
    seeds_beside,
    untuned_of,
)
from tuner.objective import OBJECTIVES
from tuner.run.trial import TrialResult
from tuner.study.constraint import judged
from tuner.study.contender import Contender, Difference, Kind, difference
from tuner.study.log import StudyData
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT, Constraints, Verdict, decide, left_to_chance


@dataclass(frozen=True)
class Contest:
    """What a verdict compares: runs on held-out seeds by kind and policy. `references` and
    `untuned` are objectives on the study's own seed, by policy."""

    references: dict[str, float]
    untuned: dict[str, float]
    runs: list[tuple[Kind, str, list[Check]]]

    @property
    def wanted(self) -> list[Check]:
        """They take turns: what drifts meanwhile, on a real machine, is nobody's alone."""
        turns = itertools.zip_longest(*(wanted for _, _, wanted in self.runs))
        return [check for turn in turns for check in turn if check is not None]


def contest(
    checks: Checks, data: StudyData, seeds: Sequence[Mapping[str, int]] | None = None
) -> Contest:
    """On these seeds, or on those that are held out. Follows from the search, and from the bounds,
    which are run if they have not been."""
    request = checks.request
    objective = OBJECTIVES[request.scenario.objective]
    seeds = seeds or held_out(request)
    by_name = {policy.name: policy for policy in (*request.references, *request.alternatives)}

    def known(wanted: Sequence[Check]) -> dict[str, float]:
        values = zip(wanted, checks.values(wanted), strict=True)
        return {check.trial.scenario.policy: value for check, value in values if value is not None}

    references = known([reference(request, policy) for policy in request.references])
    untuned = known([untuned_of(request, policy) for policy in request.alternatives])
    runs: list[tuple[Kind, str, list[Check]]] = []
    simulated = request.scenario.simulated
    others = [{"stream_seed": seed["stream_seed"]} for seed in seeds] if simulated else seeds
    for name in (OFF, BOUND):
        if name in references:
            wanted = [reference(request, by_name[name], **seed) for seed in others]
            runs.append((Kind.off, name, wanted))
    own = request.policy.name
    best = data.best
    if data.default is not None:
        runs.append((Kind.untuned, own, on_seeds(request, {}, seeds, "held-out default")))
    if best is not None and best.number != 0:
        runs.append((Kind.tuned, own, on_seeds(request, best.knobs, seeds, "held-out best")))
    if untuned:
        rival = min(untuned, key=lambda name: objective.cost(untuned[name]))
        wanted = on_seeds(request, {}, seeds, f"held-out untuned {rival}", by_name[rival])
        runs.append((Kind.untuned, rival, wanted))
        # Its pages are a gain that no tiering can have as well.
        under = request.under(by_name[rival])
        if OFF in references and under.scenario.page_bytes != request.scenario.page_bytes:
            wanted = [reference(under, by_name[OFF], **seed) for seed in others]
            runs.insert(1, (Kind.off, OFF, wanted))
    return Contest(references, untuned, runs)


def _moved(results: Sequence[TrialResult]) -> float | None:
    """Pages moved, the mean of the runs that have counted them."""
    counted = [
        result.metrics["promotions"] + result.metrics["demotions"]
        for result in results
        if {"promotions", "demotions"} <= result.metrics.keys()
    ]
    return sum(counted) / len(counted) if counted else None


def judge(checks: Checks, data: StudyData) -> Verdict:
    """The verdict on what the study has found, from runs on held-out seeds: more of them where few
    leave the choice to chance, if they can be run."""
    request = checks.request
    seeds = held_out(request)
    found = contest(checks, data)
    checks.run(found.wanted, what=f"default, best and rivals on {len(seeds)} held-out seeds")
    verdict = _verdict(checks, data, found, seeds)
    if not request.scenario.simulated or not left_to_chance(verdict):
        return verdict
    seeds = [*seeds, *_more_seeds(request)]
    found = contest(checks, data, seeds)
    if not checks.obtainable(found.wanted):
        return verdict
    checks.run(found.wanted, what=f"chance could decide: the same on {len(seeds)} seeds")
    return _verdict(checks, data, found, seeds)


def _more_seeds(request: StudyRequest) -> list[dict[str, int]]:
    """As many as are held out again. The one after those has chosen among the best few
    (robust.py)."""
    count = 2 * HELD_OUT + 1
    found = seeds_beside(request.scenario, count, streams=request.held_out_streams)
    return found[HELD_OUT + 1 :]


def _verdict(
    checks: Checks, data: StudyData, found: Contest, seeds: Sequence[Mapping[str, int]]
) -> Verdict:
    """From runs that are known."""
    request = checks.request
    defaults: list[TrialResult] = []
    if request.constraints:
        defaults = checks.run(on_seeds(request, {}, seeds, "held-out default"))
    contenders = [
        Contender(
            kind=kind,
            policy=name,
            page_bytes=wanted[0].trial.scenario.page_bytes,
            values=checks.values(wanted),
            study=request.study if kind is Kind.tuned else None,
            moved=_moved(checks.run(wanted)),
            judged=judged(request, request.constraints, checks.run(wanted), defaults) or None,
        )
        for kind, name, wanted in found.runs
    ]
    missing = request.sampling.missing if request.sampling else []
    lacking = [f"the recording is not whole: {text}" for text in missing]
    return decide(
        [contender for contender in contenders if contender.policy != BOUND],
        objective=request.scenario.objective,
        trials=len(data.done),
        policy=request.policy.name,
        static_hot=next((c for c in contenders if c.policy == BOUND), None),
        seeds=[seed["seed"] for seed in seeds],
        stream_seeds=[seed["stream_seed"] for seed in seeds],
        references=found.references,
        untuned=found.untuned,
        not_run=[p.name for p in request.alternatives if p.name not in found.untuned]
        + request.not_run,
        doubts=[*lacking, *request.doubts],
        constraints=_constraints(data),
    )


def _constraints(data: StudyData) -> Constraints | None:
    """What the search says of them."""
    constraints = data.header.request.constraints
    if not constraints:
        return None
    nearest = data.bounds.nearest(data.trials)
    default = data.default
    broken = data.bounds.missed(default.result) if default and default.result else {}
    return Constraints(
        policy=data.header.request.policy.name,
        constraints=[str(each) for each in constraints],
        met_by=len(data.good),
        default_breaks=broken,
        nearest=None if nearest is None else nearest[0].number,
        missed={} if nearest is None else nearest[1],
    )


# --- Gains ----------------------------------------------------------------------------------------


def gains(checks: Checks, knobs: Mapping[str, KnobValue]) -> bool:
    """Whether a configuration of the study's policy gains something over the default beyond chance,
    as its verdict says it."""
    request = checks.request
    seeds = held_out(request)
    gain = _gain(checks, _both(request, knobs, seeds))
    if gain is not None and gain.left_to_chance and request.scenario.simulated:
        pair = _both(request, knobs, [*seeds, *_more_seeds(request)])
        if checks.obtainable([run for runs in pair for run in runs]):
            gain = _gain(checks, pair)
    return gain is not None and gain.certain


def _both(
    request: StudyRequest, knobs: Mapping[str, KnobValue], seeds: Sequence[Mapping[str, int]]
) -> list[list[Check]]:
    """Runs of a configuration, and of the default."""
    return [on_seeds(request, each, seeds, "explanation") for each in (knobs, {})]


def _gain(checks: Checks, pair: Sequence[Sequence[Check]]) -> Difference | None:
    request = checks.request
    checks.run([run for runs in pair for run in runs])
    top, base = (
        Contender(
            kind=kind,
            policy=request.policy.name,
            page_bytes=request.scenario.page_bytes,
            values=checks.values(runs),
        )
        for kind, runs in zip((Kind.tuned, Kind.untuned), pair, strict=True)
    )
    return difference(top, base, request.scenario.objective)
