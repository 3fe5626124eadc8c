# SPDX-License-Identifier: MIT
"""Advice without a study: published tuned configurations run on the workload itself, and the best
of them on held-out seeds beside never moving a page and its policy's defaults.

A run takes about a second, so what a configuration gains here is measured and not predicted. What a
study would find beyond that is not known; how far such a choice was behind studies on published
workloads that had no part in it is (`tuner.documents.portfolio`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner import engine
from tuner.documents import catalog, portfolio
from tuner.documents.portfolio import Configuration, Left
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.errors import UserError
from tuner.experiment.checks import (
    OFF,
    REFERENCES,
    Check,
    on_seeds,
    reference,
    seeds_beside,
)
from tuner.experiment.jobs import Answers, Job, key_of
from tuner.limits import fast_share
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.run import settings
from tuner.run.doubts import doubts
from tuner.run.settings import Setting
from tuner.run.trial import Status, TrialResult
from tuner.scenario import Scenario, defaults
from tuner.study.best import BestConfiguration, BestObjective, Provenance
from tuner.study.contender import Contender, Kind, difference
from tuner.study.request import Fingerprints
from tuner.study.verdict import HELD_OUT, Advice, Verdict, chosen, decide
from tuner.text import faster, plural

WORTH = 0.02
"""A study is advised if fast memory alone would gain as much over what is advised, and if searches
gained as much over the portfolio on one in ten of the published workloads."""


class Tried(Model):
    """A configuration's run on the scenario's own seed. `gain` over first-touch; None of both if it
    failed, for which `error` has the reason."""

    configuration: Configuration
    objective: float | None
    gain: float | None
    error: str = ""


class Recommendation(Model):
    """`policy` is what to use, `first-touch` for leaving tiering off, and `configuration` the tried
    one that this is, if it is one. `ceiling` is what a machine with fast memory alone gains over
    what is advised. `evidence` is what such a choice was worth on published workloads, and `unlike`
    in what they differ from this case; None if nothing measured speaks of it. `seconds` are what
    the runs took when they ran, one after the other."""

    headline: str
    policy: str
    configuration: Configuration | None
    scenario: Scenario
    verdict: Verdict
    tried: list[Tried]
    ceiling: float | None
    evidence: Left | None
    unlike: list[str]
    study: bool
    runs: int
    seconds: float

    @property
    def failed(self) -> bool:
        return self.verdict.advice is Advice.nothing


@dataclass
class Plan(Answers):
    """What is to be run. `among`: the configurations that are tried; `policies`: of which something
    is to be advised, none if of any."""

    setting: Setting
    among: list[Configuration]
    policies: list[str]
    seeds: list[dict[str, int]]
    results: dict[str, TrialResult] = field(default_factory=dict)

    @property
    def objective(self) -> str:
        return self.setting.scenario.objective

    @property
    def name(self) -> str:
        """Made from the scenario, with whatever is tried in place of a policy."""
        setting, tried = self.setting, ",".join(self.policies) or "portfolio"
        input, size = setting.scenario.input, BASE_PAGE_BYTES
        usual = defaults(setting.workload, setting.policy, input, size) | {"page_bytes": size}
        return replace(setting.scenario, policy=tried).study_name(usual)

    def screening(self) -> list[tuple[Configuration, Check]]:
        return [(each, Check("recommend", self.under(each), each.knobs)) for each in self.among]

    def bounds(self) -> dict[str, Check]:
        return {name: reference(self.setting, engine.policy(name)) for name in REFERENCES}

    def under(self, one: Configuration, **seed: int) -> Setting:
        """With the same pages under every policy, so that one stream is enough."""
        size = self.setting.scenario.page_bytes
        return self.setting.under(engine.policy(one.policy), page_bytes=size, **seed)

    def default(self, one: Configuration) -> Check:
        """Its policy's, on the scenario's own seed."""
        return Check("recommend", self.under(one), {})

    def best(self) -> Configuration | None:
        """Of what ran on the scenario's own seed; the first of equals."""
        objective = OBJECTIVES[self.objective]
        able = [
            (objective.cost(value), number, each)
            for number, (each, check) in enumerate(self.screening())
            if (value := self.value(check)) is not None
        ]
        return min(able, key=lambda found: found[:2])[2] if able else None

    def contest(self) -> Iterator[tuple[Kind, str, list[Check]]]:
        """By contender, simplest first. Needs the results of the screening."""
        streams = [{"stream_seed": seed["stream_seed"]} for seed in self.seeds]
        off = engine.policy(OFF)
        yield Kind.off, OFF, [reference(self.setting, off, **stream) for stream in streams]
        one = self.best()
        if one is None:
            return
        under = self.under(one)
        yield Kind.untuned, one.policy, on_seeds(under, {}, self.seeds, "default")
        if one.knobs:
            yield Kind.tuned, one.policy, on_seeds(under, one.knobs, self.seeds, "configuration")

    def wanted(self) -> list[Check]:
        first = [check for _, check in self.screening()] + list(self.bounds().values())
        if any(key_of(check.trial) not in self.results for check in first):
            return first
        second = [check for _, _, checks in self.contest() for check in checks]
        if one := self.best():
            second.append(self.default(one))
        return first + second

    def jobs(self) -> list[Job]:
        return self.missing(self.wanted())


def plan(
    workload: str, policies: Sequence[str] = (), deadline: float | None = None, **given: Any
) -> Plan:
    """UserError for what does not exist or does not fit.

    Args:
        policies: of which something is to be advised; none: the portfolio.
        given: fields of the scenario.
    """
    first = engine.policy(policies[0] if policies else Scenario.policy)
    given = {"page_bytes": BASE_PAGE_BYTES} | given
    setting = settings.resolve(
        workload, policy=first, study="recommend", deadline_seconds=deadline, **given
    )
    found = portfolio.published()
    among = found.portfolio
    if policies:
        among = []
        for policy in (engine.policy(name) for name in dict.fromkeys(policies)):
            if policy.family == "oracle" or not policy.knobs:
                raise UserError(
                    f"--policy {policy.name}: cannot be advised; must be one that has knobs and "
                    "knows no future (`tune policies`)"
                )
            among += [Configuration(policy=policy.name), *found.tuned.get(policy.name, [])]
    seeds = seeds_beside(setting.scenario, HELD_OUT)
    return Plan(setting, among, list(dict.fromkeys(policies)), seeds)


# --- What it says ---------------------------------------------------------------------------------


def judge(plan: Plan) -> Recommendation:
    objective = OBJECTIVES[plan.objective]
    references = {
        name: value
        for name, check in plan.bounds().items()
        if (value := plan.value(check)) is not None
    }
    one = plan.best()
    verdict = _verdict(plan, one, references)
    top = chosen(verdict)
    failed = verdict.advice is Advice.nothing
    policy = OFF if top is None or failed else top.policy
    taken = None
    if top is not None and one is not None and not failed and top.kind is not Kind.off:
        taken = one if top.kind is Kind.tuned else Configuration(policy=one.policy)
    fast = references.get("all-fast")
    mean = top.mean if top else None
    ceiling = objective.gain(fast, mean) if fast and mean and not failed else None
    evidence, unlike = _evidence(plan)
    results = [plan.of(check) for check in {c.key: c for c in plan.wanted()}.values()]
    headline = _headline(verdict, taken)
    off = reference(plan.setting, engine.policy(OFF)).trial.scenario
    return Recommendation(
        headline=headline,
        policy=policy,
        configuration=taken,
        scenario=plan.under(taken).scenario if taken else off,
        verdict=verdict.model_copy(update={"headline": headline}),
        tried=_tried(plan, references.get(OFF)),
        ceiling=ceiling,
        evidence=evidence,
        unlike=unlike,
        study=_study(evidence, ceiling),
        runs=len(results),
        seconds=sum(result.seconds for result in results),
    )


def _verdict(plan: Plan, one: Configuration | None, references: dict[str, float]) -> Verdict:
    contenders = [
        Contender(
            kind=kind,
            policy=policy,
            page_bytes=checks[0].trial.scenario.page_bytes,
            values=[plan.value(check) for check in checks],
        )
        for kind, policy, checks in plan.contest()
    ]
    missing = plan.setting.sampling.missing if plan.setting.sampling else []
    under = plan.under(one) if one else plan.setting
    return decide(
        contenders,
        objective=plan.objective,
        trials=len(plan.among),
        policy=under.policy.name,
        seeds=[seed["seed"] for seed in plan.seeds],
        stream_seeds=[seed["stream_seed"] for seed in plan.seeds],
        references=references,
        doubts=[*(f"the recording is not whole: {text}" for text in missing), *doubts(under)],
    )


def _tried(plan: Plan, off: float | None) -> list[Tried]:
    """The best first."""
    objective, found = OBJECTIVES[plan.objective], []
    for each, check in plan.screening():
        result = plan.of(check)
        value = result.objective
        error = "" if result.status is Status.success else f"{result.status}: {result.error}"
        gain = objective.gain(value, off) if value is not None and off is not None else None
        found.append(Tried(configuration=each, objective=value, gain=gain, error=error))
    return sorted(found, key=lambda t: (t.objective is None, objective.cost(t.objective or 1.0)))


def _headline(verdict: Verdict, taken: Configuration | None) -> str:
    able = {each.kind: each for each in verdict.contenders if each.mean is not None}
    off, objective = able.get(Kind.off), verdict.objective
    top = able.get(Kind.tuned) or able.get(Kind.untuned)
    if verdict.advice is Advice.nothing or off is None or top is None:
        return "no result: nothing that was tried ran to the end"

    def over(one: Contender, other: Contender) -> str:
        gain = difference(one, other, objective)
        return "not comparable" if gain is None else faster(gain.gain, gain.half_width, objective)

    if taken is None:
        return (
            f"use {OFF}: the best of {plural(verdict.trials, 'configuration')} is not measurably "
            f"better than never moving a page ({over(top, off)})"
        )
    mine = able[Kind.tuned if taken.knobs else Kind.untuned]
    reasons = [f"{over(mine, off)} than {OFF}"]
    if taken.knobs and Kind.untuned in able:
        reasons.append(f"{over(mine, able[Kind.untuned])} than its defaults")
    return f"use {taken.name}: {', '.join(reasons)}"


# --- What a study would add -----------------------------------------------------------------------


def _evidence(plan: Plan) -> tuple[Left | None, list[str]]:
    """What was measured on published workloads, and in what this choice differs from those."""
    setting, scenario = plan.setting, plan.setting.scenario
    if plan.policies:
        return None, ["it was measured of the whole portfolio, not of policies by themselves"]
    share = fast_share(scenario.ratio)
    if scenario.fast_gib:
        share = min(1.0, scenario.fast_gib / setting.workload.footprint_of(scenario.input))
    own = setting.workload.name if catalog.workload(scenario.workload).packaged else None
    found = portfolio.left(share, without=own)
    unlike = []
    if share != fast_share(found.ratio):
        here = f"{scenario.fast_gib:g} GiB fast" if scenario.fast_gib else scenario.ratio
        unlike.append(f"measured at {found.ratio}, and not at {here}")
    if scenario.objective not in ("runtime", "throughput"):
        unlike.append(f"measured for run times and throughputs, not for {scenario.objective}")
    if scenario.page_bytes != BASE_PAGE_BYTES:
        unlike.append("measured with pages of 4 KiB")
    if own in portfolio.published().evidence[found.ratio]:
        unlike.append(f"{own} had a part in choosing the portfolio, which flatters this result")
    return found, unlike


def _study(evidence: Left | None, ceiling: float | None) -> bool:
    """Whether one is advised. What is not known does not speak against it."""
    room = ceiling is None or ceiling >= WORTH
    return room and (evidence is None or evidence.search_tenth >= WORTH)


# --- The file -------------------------------------------------------------------------------------


def configuration(plan: Plan, found: Recommendation, date: str) -> BestConfiguration:
    """As a study's best.yaml, for the commands that take one. Only of what advises a policy."""
    taken = found.configuration
    assert taken is not None
    under = plan.under(taken)
    check = Check("recommend", under, taken.knobs)
    result = plan.of(check)
    assert result.objective is not None
    spec = catalog.space(under.policy.name).spec
    return BestConfiguration(
        scenario=under.scenario,
        knobs=check.trial.knobs,
        objective=BestObjective(
            value=result.objective, default_value=plan.value(plan.default(taken))
        ),
        provenance=Provenance(
            study="recommend",
            trial=0,
            date=date,
            engine_version=result.engine_version,
            engine_build=result.engine_build,
            stream_maker=under.stream_maker or None,
            fingerprints=Fingerprints(
                workload=under.workload.fingerprint(),
                space=spec.fingerprint(),
                machine=under.machine.fingerprint(),
                placement=under.placement.fingerprint() if under.placement else None,
            ),
            host=result.host,
        ),
        # Of a default, too, the file is what to use.
        verdict=found.verdict.model_copy(update={"advice": Advice.use_best}),
    )
