# SPDX-License-Identifier: MIT
"""`tune sim --sensitivity`: does the order of the policies depend on figures that nobody measured?

Every policy runs with its defaults on the machine as it is, and then with one estimate at a time at
the ends of its plausible range (`engine/sim/estimates.cpp`).
"""

from __future__ import annotations

import itertools
import math
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tuner import engine, ranking
from tuner.arguments import options
from tuner.commands import isolated
from tuner.declarations import EstimateDecl
from tuner.documents.machine import MachineSpec
from tuner.emulate.trials import runner_in
from tuner.errors import UserError, brief, unknown
from tuner.objective import OBJECTIVES
from tuner.run import settings, streams
from tuner.run.pool import results_of
from tuner.run.pools import open_pool
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import EMULATED
from tuner.terminal import print_json, progress, say, table
from tuner.text import change

Costs = Mapping[str, float]
"""By policy; lower is better."""


@dataclass(frozen=True)
class Case:
    """The machine with one estimate at another value."""

    estimate: EstimateDecl
    value: float
    machine: MachineSpec


@dataclass(frozen=True)
class Effect:
    """What became of the order and of the figures. `reversed` are pairs of which the one that was
    better by more than noise is now worse by more than noise; `change` is of the policy's cost."""

    case: Case
    objectives: Mapping[str, float]
    tau: float
    reversed: Sequence[tuple[str, str]]
    mover: str
    change: float


def run(args: Namespace) -> int:
    for option in ("config", "policy", "placement", "series"):
        if getattr(args, option):
            raise UserError(f"--sensitivity runs every policy as published: leave out --{option}")
    if args.workload is None:
        raise UserError("what to run? give --workload")
    if args.substrate == EMULATED:
        raise UserError("--sensitivity: varies the simulator's figures; leave out --on")
    given = settings.given(args)
    all_settings = [
        settings.resolve(
            args.workload,
            policy=policy,
            study="sensitivity",
            deadline_seconds=args.deadline,
            **given,
        )
        for policy in engine.policies().values()
    ]
    if resized := all_settings[0].resized():
        say(f"tune: {resized}")
    machine = all_settings[0].machine
    cases = [case for text in args.sensitivity for case in _asked(text, machine)]
    if not args.sensitivity:
        cases = [case for one in engine.estimates().values() for case in _range(one, machine)]
    results = _run(args, all_settings, [None, *cases])
    for (number, policy), result in sorted(results.items()):
        if result.status is not Status.success:
            case = f" with {_named(cases[number - 1])}" if number else ""
            say(f"tune: note: {policy}{case} is left out: {result.status}: {result.error}")
    default = _of_case(results, 0)
    effects = [
        _effect(case, default, _of_case(results, number + 1)) for number, case in enumerate(cases)
    ]
    if args.json:
        print_json(_object(all_settings[0], default, effects))
    else:
        _show(all_settings[0], default, effects)
    return 0


# --- What varies ----------------------------------------------------------------------------------


def _asked(text: str, machine: MachineSpec) -> list[Case]:
    """The cases of NAME or NAME=VALUE,VALUE. UserError if there is no such estimate or value."""
    name, equals, values = text.partition("=")
    known = engine.estimates()
    if name not in known:
        raise unknown("estimate of the machine", name, known)
    if not equals:
        return _range(known[name], machine)
    try:
        return [_case(known[name], options.number(value), machine) for value in values.split(",")]
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise UserError(
            f"--sensitivity {brief(text)}: found {detail['input']}; {detail['msg']}"
        ) from error
    except ArgumentTypeError as error:
        raise UserError(f"--sensitivity {brief(text)}: {error}") from error


def _range(estimate: EstimateDecl, machine: MachineSpec) -> list[Case]:
    """Its ends. No case if both are the machine's own value, as a multiple of 0 is."""
    own = value_of(estimate, machine)
    ends = [end * own if estimate.relative else end for end in (estimate.low, estimate.high)]
    cases = []
    for end in ends:
        with suppress(ValidationError):  # a multiple that no machine may have, such as a share of 2
            cases.append(_case(estimate, end, machine))
    return [case for case in cases if case.value != own]


def value_of(estimate: EstimateDecl, machine: MachineSpec) -> float:
    """What the machine's document says, or the engine's default."""
    place: Any = machine.model_dump(exclude_none=True)
    for key in estimate.name.split("."):
        place = place.get(key, estimate.default)
    return float(place)


def _case(estimate: EstimateDecl, value: float, machine: MachineSpec) -> Case:
    document = machine.model_dump(exclude_none=True)
    place = document
    *parents, last = estimate.name.split(".")
    for key in parents:
        place = place[key]
    place[last] = value
    return Case(estimate, value, MachineSpec.model_validate(document))


# --- Runs -----------------------------------------------------------------------------------------


def _run(
    args: Namespace, all_settings: Sequence[Setting], cases: Sequence[Case | None]
) -> dict[tuple[int, str], TrialResult]:
    """The results of all policies in all cases, by number of the case and policy. None: the machine
    as it is."""
    runner = runner_in(isolated.asked(args))
    for setting in all_settings:  # some manage huge pages, whose streams are others
        streams.prepare(setting.stream())
    wanted = list(itertools.product(range(len(cases)), all_settings))
    trials: list[Trial] = []
    for number, (c, setting) in enumerate(wanted):
        case = cases[c]
        trial = setting.trial(number, {})
        trials.append(trial.model_copy(update={"machine": case.machine}) if case else trial)
    pool = open_pool(runner, workers=args.workers, ray_address=args.ray_address)
    results: dict[tuple[int, str], TrialResult] = {}
    try:
        with progress(f"running {len(trials)} trials") as update:
            for result in results_of(pool, trials):
                c, setting = wanted[result.number]
                results[c, setting.policy.name] = result
                update(len(results) / len(trials))
    finally:
        pool.close()
    return results


def _of_case(results: Mapping[tuple[int, str], TrialResult], case: int) -> dict[str, TrialResult]:
    """By policy, of those that came to an end."""
    return {
        policy: result
        for (number, policy), result in results.items()
        if number == case and result.status is Status.success
    }


# --- What follows ---------------------------------------------------------------------------------


def _order(a: float, b: float) -> int:
    return ranking.order(a, b, ranking.NOISE)


def _tau(before: Costs, after: Costs) -> float:
    """Kendall's tau of two rankings of the same policies. 1 if nothing in either can be told
    apart."""
    found = ranking.tau(
        (_order(before[a], before[b]), _order(after[a], after[b]))
        for a, b in itertools.combinations(before, 2)
    )
    return 1.0 if found is None else found


def _effect(
    case: Case, default: Mapping[str, TrialResult], found: Mapping[str, TrialResult]
) -> Effect:
    common = [name for name in default if name in found]
    if not common:
        raise UserError(f"no policy could run, neither as it is nor with {_named(case)}")
    before = {name: _cost(default[name]) for name in common}
    after = {name: _cost(found[name]) for name in common}
    change = {name: after[name] / before[name] - 1 for name in common}
    mover = max(common, key=lambda name: abs(math.log1p(change[name])))
    return Effect(
        case=case,
        objectives={name: _objective(found[name]) for name in common},
        tau=_tau(before, after),
        reversed=[
            (a, b)
            for a, b in itertools.permutations(common, 2)
            if _order(before[a], before[b]) == -1 and _order(after[a], after[b]) == 1
        ],
        mover=mover,
        change=change[mover],
    )


def _named(case: Case) -> str:
    return f"{case.estimate.name} = {case.value:g}"


def _cost(result: TrialResult) -> float:
    assert result.cost is not None  # it is a success
    return result.cost


def _objective(result: TrialResult) -> float:
    assert result.objective is not None
    return result.objective


def _object(
    setting: Setting, default: Mapping[str, TrialResult], effects: Sequence[Effect]
) -> dict[str, Any]:
    scenario = setting.scenario.plain()
    del scenario["policy"]
    return {
        **scenario,
        "engine_build": setting.engine_build,
        "noise": ranking.NOISE,
        "default": {name: result.objective for name, result in default.items()},
        "survives": not any(effect.reversed for effect in effects),
        "estimates": [
            {
                "name": effect.case.estimate.name,
                "default": value_of(effect.case.estimate, setting.machine),
                "value": effect.case.value,
                "tau": effect.tau,
                "reversed": [list(pair) for pair in effect.reversed],
                "mover": effect.mover,
                "change": effect.change,
                "objectives": dict(effect.objectives),
            }
            for effect in effects
        ],
    }


def _show(setting: Setting, default: Mapping[str, TrialResult], effects: Sequence[Effect]) -> None:
    scenario = setting.scenario
    unit = OBJECTIVES[scenario.objective].unit
    print(
        f"{setting.workload.name} ({scenario.input}) on {setting.machine.name}, "
        f"{scenario.conditions()}"
    )
    ranking = sorted(default, key=lambda name: _cost(default[name]))
    table(
        ("policy", f">{scenario.objective}, {unit}"),
        [(name, f"{_objective(default[name]):,.6g}") for name in ranking],
    )
    print()
    table(
        ("estimate", ">default", ">value", ">tau", ">largest change of a cost", "", "reversed"),
        [
            (
                effect.case.estimate.name,
                f"{value_of(effect.case.estimate, setting.machine):g}",
                f"{effect.case.value:g}",
                f"{effect.tau:.2f}",
                change(effect.change),
                effect.mover,
                ", ".join(f"{a} > {b}" for a, b in effect.reversed) or "-",
            )
            for effect in effects
        ],
    )
    decisive = sorted({effect.case.estimate.name for effect in effects if effect.reversed})
    print(
        f"\nthe order depends on {', '.join(decisive)}"
        if decisive
        else "\nthe order of the policies survives"
    )
