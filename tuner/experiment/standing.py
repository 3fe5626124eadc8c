# SPDX-License-Identifier: MIT
"""Whether a configuration that was tuned once still pays: it runs beside no tiering, the policy's
defaults and other policies' defaults, in the simulator, on held-out seeds of today's workload.

The seeds and the choice are those of a study's verdict. One thing differs: to go over to another
policy is a change of what runs, so that its defaults must be ahead by more than a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tuner import engine
from tuner.declarations import KnobValue, PolicyDecl
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.experiment.checks import OFF, Check, on_seeds, reference, seeds_beside
from tuner.experiment.jobs import Answers, Job, key_of
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.run.trial import Status, TrialResult
from tuner.scenario import EMULATED, Scenario, defaults
from tuner.study import log, replay
from tuner.study.best import BestConfiguration
from tuner.study.constraint import judged
from tuner.study.contender import Contender, Difference, Kind, difference
from tuner.study.replay import Replay
from tuner.study.verdict import HELD_OUT, Advice, Verdict, decide
from tuner.text import faster


class Outcome(StrEnum):
    pays = "still-pays"
    gone = "gain-gone"
    off = "do-nothing"
    another = "another-default"
    broken = "breaks-constraint"
    nothing = "no-result"


_OUTCOMES = {
    Advice.use_best: Outcome.pays,
    Advice.keep_default: Outcome.gone,
    Advice.leave_off: Outcome.off,
    Advice.use_untuned: Outcome.another,
    Advice.nothing: Outcome.nothing,
}


class Standing(Model):
    """`verdict` has the contenders with their values on its seeds, and the gains. `elsewhere` is
    what differs from the study's conditions, `errors` what became of runs that failed, by
    contender. `replay` is of the recorded objective, if that was asked for."""

    outcome: Annotated[Outcome, Field(strict=False)]
    headline: str
    scenario: Scenario
    verdict: Verdict
    recorded: Verdict | None
    elsewhere: list[str]
    errors: dict[str, str]
    replay: Replay | None = None

    @property
    def pays(self) -> bool:
        return self.outcome is Outcome.pays


@dataclass
class Plan(Answers):
    """What is to be run: the configuration on `setting`, and what it is compared with. `rivals`
    are other policies, of which the one runs on all seeds that is best at its defaults on the
    scenario's own seed."""

    recorded: BestConfiguration
    setting: Setting
    knobs: dict[str, KnobValue]
    rivals: list[PolicyDecl]
    seeds: list[dict[str, int]]
    again: bool
    then: Setting | None
    results: dict[str, TrialResult] = field(default_factory=dict)

    @property
    def objective(self) -> str:
        return self.setting.scenario.objective

    def screening(self) -> list[Check]:
        """Runs that tell which rival is the best: none where there is no choice."""
        if len(self.rivals) < 2:
            return []
        return [Check(p.name, self.setting.under(p), {}) for p in self.rivals]

    def contest(self) -> list[tuple[Kind, str, list[Check]]]:
        """By contender, simplest first. Needs the results of the screening."""
        own, seeds = self.setting.policy, self.seeds
        streams = [{"stream_seed": seed["stream_seed"]} for seed in seeds]
        off = engine.policy(OFF)
        found = [
            (Kind.off, OFF, [reference(self.setting, off, **stream) for stream in streams]),
            (Kind.untuned, own.name, on_seeds(self.setting, {}, seeds, "default")),
            (Kind.tuned, own.name, on_seeds(self.setting, self.knobs, seeds, "configuration")),
        ]
        if rival := self._rival():
            runs = on_seeds(self.setting, {}, seeds, "rival", rival)
            found.append((Kind.untuned, rival.name, runs))
        return found

    def _rival(self) -> PolicyDecl | None:
        screened = [
            (OBJECTIVES[self.objective].cost(value), policy.name, policy)
            for check, policy in zip(self.screening(), self.rivals, strict=False)
            if (value := self.value(check)) is not None
        ]
        if screened:
            return min(screened, key=lambda each: each[:2])[2]
        return self.rivals[0] if len(self.rivals) == 1 else None

    @property
    def recording(self) -> Check:
        """The run that recorded the objective."""
        return Check("recorded", self.setting, self.knobs)

    @property
    def differences(self) -> list[str]:
        """What is not as it was in that run."""
        return replay.differences(self.setting, self.recording.trial, self.recorded)

    def jobs(self) -> list[Job]:
        """What can be run now and has not been, each once: the screening first."""
        wanted = self.screening()
        if all(key_of(check.trial) in self.results for check in wanted):
            wanted = [check for _, _, checks in self.contest() for check in checks]
            if self.again and not self.differences:
                wanted.insert(0, self.recording)
        return self.missing(wanted)


# --- What to run ----------------------------------------------------------------------------------


def plan(
    path: Path,
    recorded: BestConfiguration,
    *,
    workload: str | None,
    given: Mapping[str, Any],
    rivals: Sequence[PolicyDecl],
    deadline: float | None,
    again: bool = False,
) -> Plan:
    """UserError for what does not exist, does not fit, or was not simulated.

    Args:
        path: of the best.yaml, beside which its study may be.
        workload: today's; None: the configuration's own, as it is now.
        given: fields of the scenario that are not the study's.
        again: also run what recorded the objective.
    """
    scenario = recorded.scenario
    if scenario.substrate == EMULATED:
        raise UserError(
            f"{path}: it was measured on the emulated machine, which this command does not run; "
            "`tune verify` compares a simulated study's configurations there"
        )
    if recorded.provenance.fingerprints.command is not None:
        raise UserError(f"{path}: it was measured by a command, which the simulator cannot run")
    policy = engine.policy(scenario.policy)
    knobs = replay.knobs_of(str(path), recorded)
    name = workload or scenario.workload
    then = _study(path.parent, recorded)
    fields = settings.other_size(_fields(recorded, name, given.get("input"), then), given)
    setting = settings.resolve(
        name, policy=policy, study="standing", deadline_seconds=deadline, **fields
    )
    streams = recorded.verdict is not None and len(set(recorded.verdict.stream_seeds)) > 1
    streams = streams and setting.workload.kernel is not None  # a recording has one
    return Plan(
        recorded=recorded,
        setting=setting,
        knobs=knobs,
        rivals=[rival for rival in rivals if rival.name != policy.name],
        seeds=seeds_beside(setting.scenario, HELD_OUT, streams=streams),
        again=again,
        then=then,
    )


def _study(folder: Path, recorded: BestConfiguration) -> Setting | None:
    """What the configuration was tuned for, with the documents of then: from the study.json beside
    it, else from today's, if they say the same."""
    try:
        request = log.read_header(folder)[0].request
    except UserError:
        request = None
    if request and request.study == recorded.provenance.study:
        return request
    fields = recorded.scenario.plain()
    try:
        setting = settings.resolve(
            fields.pop("workload"), policy=engine.policy(fields.pop("policy")), **fields
        )
    except UserError:
        return None
    then = recorded.provenance.fingerprints
    same = (setting.workload.fingerprint(), setting.machine.fingerprint())
    return setting if same == (then.workload, then.machine) else None


def _fields(
    recorded: BestConfiguration, name: str, input: str | None, then: Setting | None
) -> dict[str, Any]:
    """The study's scenario without workload and policy. With another workload, content of it or
    input, what was the old one's default is left to the new one; machine and ratio stay."""
    before = recorded.scenario
    fields = before.plain()
    del fields["workload"], fields["policy"]
    if name != before.workload or input not in (None, before.input):
        fields["sizes"] = ""  # of another workload
    spec = catalog.workload(name, before.input, fields["sizes"]).spec
    same = spec.fingerprint() == recorded.provenance.fingerprints.workload
    if same and input in (None, before.input):
        return fields
    own = ("input", "objective", "threads", "scale", "window")
    old: dict[str, Any] = {field: fields[field] for field in own}
    if then is not None:
        old = defaults(then.workload, then.policy, then.scenario.input, then.scenario.page_bytes)
    for field_name in own:
        if fields[field_name] == old[field_name]:
            del fields[field_name]
    if before.input in spec.inputs and input is None:
        fields["input"] = before.input
    if before.objective in spec.objectives_of(fields.get("input", input) or spec.default_input):
        fields["objective"] = before.objective
    if spec.kernel is None:  # a recording has neither
        fields |= {"scale": None, "stream_seed": Scenario.stream_seed}
    return fields | {"placement": ""}


# --- What it says ---------------------------------------------------------------------------------


def judge(plan: Plan, tolerance: float) -> Standing:
    """What the runs say. `tolerance`: by which another policy's defaults must be ahead."""
    contenders, errors = [], {}
    contest = plan.contest()
    constraints = plan.recorded.constraints or []
    defaults = [plan.of(check) for check in contest[1][2]]
    for kind, policy, checks in contest:
        results = [plan.of(check) for check in checks]
        contender = Contender(
            kind=kind,
            policy=policy,
            page_bytes=checks[0].trial.scenario.page_bytes,
            values=[result.objective for result in results],
            judged=judged(plan.setting, constraints, results, defaults) or None,
        )
        contenders.append(contender)
        failed = [plan.of(c) for c in checks if plan.of(c).status is not Status.success]
        if failed:
            errors[contender.name] = f"{failed[0].status}: {failed[0].error}"
    for check in plan.screening():
        result = plan.of(check)
        if result.status is not Status.success:
            errors[f"untuned {check.purpose}"] = f"{result.status}: {result.error}"
    tuned = next(each for each in contenders if each.kind is Kind.tuned)
    far = [
        each
        for each in contenders
        if each.kind is not Kind.untuned
        or each.policy == tuned.policy
        or _ahead(each, tuned, plan.objective, tolerance)
    ]
    verdict = _verdict(plan, far)
    told = _verdict(plan, contenders)
    own = [each for each in far if each.kind is Kind.off or each.policy == tuned.policy]
    without = [each.name for each in own if each.mean is None]
    outcome = Outcome.nothing if without else _OUTCOMES[verdict.advice]
    headline = f"no result: {', '.join(without)} did not run to the end"
    if not without and tuned.broken:
        outcome = Outcome.broken
        which = " and ".join(f"{each.constraint}: {each}" for each in tuned.broken)
        headline = f"breaks what it was tuned to meet: {which}"
    elif not without:
        headline = _headline(outcome, far, plan.objective)
    update = {
        "advice": Advice.nothing if without else verdict.advice,
        "contenders": contenders,
        "over_untuned": told.over_untuned,
        "best_untuned": told.best_untuned,
        "headline": headline,
    }
    return Standing(
        outcome=outcome,
        headline=headline,
        scenario=plan.setting.scenario,
        verdict=verdict.model_copy(update=update),
        recorded=plan.recorded.verdict,
        elsewhere=replay.elsewhere(plan.setting, plan.recorded),
        errors=errors,
        replay=_replay(plan),
    )


def _replay(plan: Plan) -> Replay | None:
    """Of the run that recorded the objective, if that was asked for."""
    if not plan.again:
        return None
    check = plan.recording
    if plan.differences:
        return Replay(f"{replay.ANOTHER}{', '.join(plan.differences)}", None)
    result = plan.of(check)
    if result.status is not Status.success:
        return Replay(f"the recorded run ended: {result.status}: {result.error}", False, True)
    return replay.replay(plan.setting, check.trial, plan.recorded, result)


def _verdict(plan: Plan, contenders: Sequence[Contender]) -> Verdict:
    return decide(
        contenders,
        objective=plan.objective,
        trials=plan.recorded.verdict.trials if plan.recorded.verdict else 0,
        policy=plan.setting.policy.name,
        seeds=[seed["seed"] for seed in plan.seeds],
        stream_seeds=[seed["stream_seed"] for seed in plan.seeds],
    )


def _ahead(one: Contender, other: Contender, objective: str, tolerance: float) -> bool:
    """By more than the tolerance, beyond chance."""
    lead = difference(one, other, objective)
    return lead is not None and lead.certain and _least(lead) > tolerance


def _least(gain: Difference) -> float:
    return gain.gain - (gain.half_width or 0.0)


def _headline(outcome: Outcome, contenders: Sequence[Contender], objective: str) -> str:
    """Of contenders that all ran: no tiering, the defaults, the configuration, and perhaps another
    policy's defaults."""
    off, default, tuned, *rivals = contenders

    def over(one: Contender, other: Contender) -> str:
        gain = difference(one, other, objective)
        return "not comparable" if gain is None else faster(gain.gain, gain.half_width, objective)

    defaults_of = f"the defaults of {tuned.policy}"
    match outcome:
        case Outcome.pays:
            than = f"{over(tuned, default)} than {defaults_of}, {over(tuned, off)} than {off.name}"
            return f"still pays: {than}"
        case Outcome.gone:
            return f"gain gone: the configuration is {over(tuned, default)} than {defaults_of}"
        case Outcome.off:
            return f"do nothing: the configuration is {over(tuned, off)} than {off.name}"
        case _:
            (rival,) = rivals
            return (
                f"another default is better: {rival.name} is {over(rival, tuned)} than the "
                "configuration"
            )


def unit(objective: str) -> str:
    return OBJECTIVES[objective].unit


def lost(standing: Standing, tolerance: float) -> bool:
    """Whether the gain over the defaults has fallen by more than the tolerance since the study. Of
    another objective nothing is known."""
    then, now = standing.recorded, standing.verdict
    if then is None or then.objective != now.objective or not (then.gain and now.gain):
        return False
    return then.gain.gain - now.gain.gain > tolerance


def retune(scenario: Scenario) -> list[str]:
    """The command that searches for a configuration of this scenario."""
    return ["tune", "run", *replace(scenario, placement="").command_line()]
