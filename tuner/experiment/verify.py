# SPDX-License-Identifier: MIT
"""Whether what a simulated study recommends holds on a real kernel.

The best trials of the study, the policy's defaults and no tiering run in the emulated machine, on
several layouts of its memory, or live, in several rounds. Candidates take turns, layout by layout,
so that one that is stopped early has compared them all, and no drift of a host is one candidate's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner import engine
from tuner.declarations import KnobValue
from tuner.emulate import live, trials
from tuner.errors import UserError
from tuner.experiment.checks import OFF
from tuner.limits import EMULATED_DEADLINE_SECONDS
from tuner.objective import OBJECTIVES
from tuner.run import runner, settings
from tuner.run.isolation import Live
from tuner.run.pool import Pool, results_of
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import EMULATED, LIVE, substrate_defaults
from tuner.study.contender import Kind, difference
from tuner.study.events import Checked
from tuner.study.log import StudyData, TrialRecord
from tuner.study.sessions import Runs, sessions_of
from tuner.study.verdict import Advice, Verdict, decide
from tuner.study.verified import Candidate, Session, Verified, agreement, steady
from tuner.terminal import say
from tuner.text import shell


@dataclass
class Plan:
    """What is to be run. `results` are by candidate's place and layout, once they are measured."""

    setting: Setting
    live: Live | None
    candidates: list[Candidate]
    unset: dict[str, str]
    layouts: int
    results: dict[tuple[int, int], TrialResult] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)

    @property
    def machine(self) -> str:
        return str(self.setting.emulated) if self.live is None else self.live.host

    def trial(self, place: int, layout: int, number: int = 0) -> Trial:
        candidate = self.candidates[place]
        policy = engine.policy(candidate.policy)
        return self.setting.under(policy, seed=layout).trial(number, candidate.knobs)

    def places(self) -> Iterator[tuple[int, int]]:
        """All candidates of a layout before those of the next one."""
        for layout, place in itertools.product(range(self.layouts), range(len(self.candidates))):
            yield place, layout


def plan(
    data: StudyData,
    *,
    top: int,
    layouts: int,
    deadline: float | None,
    note: Callable[[str], None],
    own_command: Live | None = None,
) -> Plan:
    """On the emulated machine, or live. UserError if the study's set-up is not one that the machine
    can have, or if there is nothing to compare."""
    _measurable(data)
    if own_command is None:
        setting = _on_the_machine(data, deadline or EMULATED_DEADLINE_SECONDS, note)
        unset = trials.not_settable(setting, note)
    else:
        setting = _live(data, own_command, deadline)
        unset = live.not_settable(own_command, setting.policy)
    own = setting.policy
    defaults = engine.resolve(own.name, {knob.name: knob.default for knob in own.knobs})
    candidates = [_untiered(data)]
    candidates.append(
        Candidate(
            name=f"{own.name}, defaults",
            kind=Kind.untuned,
            policy=own.name,
            trial=0,
            knobs=defaults,
            simulated=None if data.default is None else data.default.objective,
        )
    )
    for trial, knobs in itertools.islice(best_trials(data, unset), top):
        same = knobs == engine.resolve(own.name, dict(trial.knobs))
        simulated = trial.objective if same else _simulated(data, trial.number, knobs)
        candidates.append(
            Candidate(
                name=f"{own.name}, trial {trial.number}",
                kind=Kind.tuned,
                policy=own.name,
                trial=trial.number,
                knobs=knobs,
                simulated=simulated,
            )
        )
    if len(candidates) == 2:
        raise UserError(
            f"study '{data.header.request.study}': no trial differs from the defaults in a knob "
            "that the machine has"
        )
    return Plan(setting, own_command, candidates, unset, layouts)


def best_trials(
    data: StudyData, unset: Collection[str]
) -> Iterator[tuple[TrialRecord, dict[str, KnobValue]]]:
    """The study's trials, the one that it recommends first, then by their objective, each with all
    knobs, of which the unset ones keep their defaults: those that differ from the defaults then,
    and from each other."""
    objective = OBJECTIVES[data.header.request.scenario.objective]
    policy, best = data.header.request.policy, data.best
    defaults = engine.resolve(policy.name, {knob.name: knob.default for knob in policy.knobs})
    seen = [defaults]
    done = sorted(
        (best is not None and t.number != best.number, objective.cost(t.objective), t.number)
        for t in data.good
        if t.objective
    )
    for trial in (t for *_, number in done if (t := data.trial(number)) is not None):
        asked = engine.resolve(policy.name, dict(trial.knobs))
        knobs = asked | {name: defaults[name] for name in unset if name in asked}
        if knobs not in seen:
            seen.append(knobs)
            yield trial, knobs


def _simulated(data: StudyData, number: int, knobs: dict[str, KnobValue]) -> float | None:
    """What the simulation says of the knobs that the machine runs, where they are not the trial's.
    None if it says nothing, as with another engine than the study's."""
    return runner.run(data.header.request.trial(number, knobs)).objective


def _untiered(data: StudyData) -> Candidate:
    results = [check.result for check in data.checks if check.scenario.policy == OFF]
    values = [result.objective for result in results if result.objective is not None]
    return Candidate(
        name=OFF,
        kind=Kind.off,
        policy=OFF,
        trial=None,
        knobs={},
        simulated=values[0] if values else None,
    )


def _measurable(data: StudyData) -> None:
    """UserError if the study is none of simulations."""
    request = data.header.request
    if request.scenario.substrate == EMULATED:
        raise UserError(f"study '{request.study}': its trials ran in the emulated machine already")
    if request.isolation is not None and request.isolation.command is not None:
        raise UserError(f"study '{request.study}': it measured a command, and simulated nothing")


def _live(data: StudyData, own: Live, deadline: float | None) -> Setting:
    """The study's setting on this machine."""
    fields = data.header.request.scenario.plain()
    live.check_objective(own, fields["objective"])
    fields |= {"substrate": LIVE, "seed": 0, "repeats": 1, "placement": ""}
    fields |= substrate_defaults(LIVE) | {"ratio": live.ratio(own)}
    return settings.resolve(
        fields.pop("workload"),
        policy=engine.policy(fields.pop("policy")),
        study=data.header.request.study,
        deadline_seconds=deadline or live.deadline(own, 1),
        **fields,
    )


def _on_the_machine(data: StudyData, deadline: float, note: Callable[[str], None]) -> Setting:
    """The study's setting there."""
    request = data.header.request
    scenario = request.scenario
    if different := trials.differences(scenario):
        raise UserError(
            f"study '{request.study}': found {', '.join(different)}, which the emulated machine "
            f"cannot have. A study that can be verified: {shell(_command(data))}"
        )
    fields = scenario.plain() | {"substrate": EMULATED, "seed": 0, "repeats": 1}
    setting = settings.resolve(
        fields.pop("workload"),
        policy=engine.policy(fields.pop("policy")),
        study=request.study,
        deadline_seconds=deadline,
        **fields,
    )
    return trials.on_substrate(_as_then(setting, data), note)


def _as_then(setting: Setting, data: StudyData) -> Setting:
    """With the study's own machine and workload: what it advises is of those, whatever their files
    say now. Both halves of the table are of the same ones then."""
    request = data.header.request
    then = {"machine": request.machine, "workload": request.workload}
    names = {"machine": request.scenario.machine, "workload": request.scenario.workload}
    for kind, spec in then.items():
        if getattr(setting, kind).fingerprint() != spec.fingerprint():
            say(
                f"tune: note: {kind} {names[kind]} has changed since study '{request.study}' "
                "began, which is verified on what it was then"
            )
    return setting.model_copy(update=then)


def _command(data: StudyData) -> list[str]:
    """Of a study whose set-up the machine can have."""
    scenario, own = data.header.request.scenario, substrate_defaults(EMULATED)
    words = ["tune", "run", "--workload", scenario.workload, "--policy", scenario.policy]
    words += ["--input", own["input"], "--machine", own["machine"], "--ratio", scenario.ratio]
    words += ["--threads", f"{own['threads']:g}", "--page-bytes", str(own["page_bytes"])]
    words += ["--window", own["window"], "--objective", scenario.objective]
    request = data.header.request
    return [*words, "--budget", str(len(data.done) if request.auto_seconds else request.budget)]


def measure(
    plan: Plan,
    pool: Pool,
    done: Callable[[float], None],
    runs: Runs | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Runs all but what is there from earlier sessions, and gives the candidates their values.
    `done` is told the fraction that has run, `note` how the first run of the defaults compares with
    those of earlier sessions: whoever sees that the machine has changed can stop there."""
    wanted = list(plan.places())
    asked = [plan.trial(*each, number) for number, each in enumerate(wanted)]
    made = {} if runs is None else _there(plan, runs)
    plan.results |= {each: run.result for each, run in made.items()}
    left = [trial for each, trial in zip(wanted, asked, strict=True) if each not in made]
    untold = bool(made)
    for result in results_of(pool, left):
        each = wanted[result.number]
        plan.results[each] = result
        if runs is not None:
            made[each] = runs.add(asked[result.number], result)
            default = plan.candidates[each[0]].kind is Kind.untuned
            if untold and default and result.objective is not None:
                untold = False
                note(_compared(plan, made))
        done(len(plan.results) / len(wanted))
    for place, candidate in enumerate(plan.candidates):
        results = [plan.results[place, layout] for layout in range(plan.layouts)]
        candidate.values[:] = [result.objective for result in results]
        candidate.errors[:] = [
            f"{result.status}: {result.error}"
            for result in results
            if result.status is not Status.success
        ]
    if runs is not None:
        _by_session(plan, made)


def _there(plan: Plan, runs: Runs) -> dict[tuple[int, int], Checked]:
    found = {each: runs.find(plan.trial(*each)) for each in plan.places()}
    return {each: run for each, run in found.items() if run is not None}


def earlier(plan: Plan, runs: Runs) -> list[Checked]:
    """What need not run any more."""
    return list(_there(plan, runs).values())


def _by_session(plan: Plan, made: Mapping[tuple[int, int], Checked]) -> None:
    plan.sessions[:] = sessions_of(made.values())
    number = {session.began: place for place, session in enumerate(plan.sessions)}
    for place, candidate in enumerate(plan.candidates):
        runs = [made[place, layout] for layout in range(plan.layouts)]
        candidate.sessions[:] = [number[run.purpose] for run in runs]


def _compared(plan: Plan, made: Mapping[tuple[int, int], Checked]) -> str:
    """What the runs so far say of this session."""
    sessions = sessions_of(made.values())
    number = {session.began: place for place, session in enumerate(sessions)}
    so_far = []
    for place, candidate in enumerate(plan.candidates):
        runs = [run for each, run in made.items() if each[0] == place]
        values = [run.result.objective for run in runs]
        update = {"values": values, "sessions": [number[run.purpose] for run in runs]}
        so_far.append(candidate.model_copy(update=update))
    return steady(so_far, sessions, plan.setting.scenario.objective, len(sessions) - 1)


def judge(plan: Plan, data: StudyData, simulated: Verdict | None) -> Verified:
    """What the runs say. `simulated` is the study's own verdict."""
    objective = plan.setting.scenario.objective
    tuned = [each for each in plan.candidates if each.kind is Kind.tuned]
    others = [each.contender for each in plan.candidates if each.kind is not Kind.tuned]
    policy = plan.setting.policy.name

    def verdict_on(candidate: Candidate) -> Verdict:
        return decide(
            [*others, candidate.contender],
            objective=objective,
            trials=len(data.done),
            policy=policy,
            seeds=range(plan.layouts),
        )

    first, *rest = tuned
    verdict = verdict_on(first)
    winner = first if verdict.advice is Advice.use_best else None
    for each in rest:
        useful = verdict_on(each).advice is Advice.use_best
        if useful and (winner is None or _better(each, winner, objective)):
            winner = each
    tau, pairs = agreement(plan.candidates)
    return Verified(
        study=data.header.request.study,
        emulated=plan.machine,
        objective=objective,
        candidates=plan.candidates,
        unset=plan.unset,
        verdict=verdict,
        simulated=simulated and _same(simulated, policy, len(data.done)),
        winner=None if winner is None else winner.trial,
        tau=tau,
        pairs=pairs,
        sessions=plan.sessions,
    )


def _better(one: Candidate, other: Candidate, objective: str) -> bool:
    """Beyond chance."""
    gain = difference(one.contender, other.contender, objective)
    return gain is not None and gain.certain


def _same(simulated: Verdict, policy: str, trials_done: int) -> Verdict:
    """On the three that the machine compares: no tiering, and the policy's defaults and best."""
    same: Sequence[Kind] = (Kind.off, Kind.untuned, Kind.tuned)
    return decide(
        [
            each
            for each in simulated.contenders
            if each.kind in same and (each.kind is Kind.off or each.policy == policy)
        ],
        objective=simulated.objective,
        trials=trials_done,
        policy=policy,
        seeds=simulated.seeds,
    )
