# SPDX-License-Identifier: MIT
"""`tune run`: resolves the arguments and runs the study, or one per policy and compares them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine
from tuner.declarations import KnobDecl, PolicyDecl
from tuner.documents import catalog
from tuner.emulate import trials
from tuner.errors import UserError, unknown
from tuner.optimize.checks import OFF, REFERENCES
from tuner.optimize.loop import run_study
from tuner.options import DEADLINE_SECONDS, EMULATED_DEADLINE_SECONDS
from tuner.report import comparison
from tuner.report.importance import METHODS
from tuner.run import isolation, settings
from tuner.run.settings import Setting
from tuner.scenario import EMULATED, Scenario
from tuner.study.request import StudyRequest, StudySummary
from tuner.study.verdict import Advice
from tuner.terminal import doing, print_json, resumable, say

ALL = "all"
ALL_GO_ON = "continue with all policies: the same command with --resume"


def run(args: Namespace) -> int:
    """Exit code 0 when every study is complete and at least one trial of it succeeded."""
    names = _policies(args.policy)
    if len(names) > 1:
        return _compare(args, names)
    request = study_request(args)
    summary = run_study(request)
    if request.json_output:
        print_json(_object(summary))
    return 0 if summary.best_objective is not None else 1


def _object(summary: StudySummary) -> dict[str, object]:
    content = summary.model_dump()
    return {"study": content.pop("study"), **content.pop("scenario"), **content}


def _policies(argument: str | None) -> list[str]:
    if argument == ALL:
        return [policy.name for policy in tunable()]
    return list(dict.fromkeys((argument or Scenario.policy).split(",")))


def tunable() -> list[PolicyDecl]:
    """The policies that have knobs and could be used: oracles could not."""
    return [p for p in engine.policies().values() if p.knobs and p.family != "oracle"]


def _compare(args: Namespace, names: list[str]) -> int:
    """A study per policy, each with the whole budget, and one page over all."""
    if args.space:
        raise UserError("--space is of one policy; leave it out to tune several")
    requests = [
        study_request(Namespace(**vars(args) | {"policy": name, "name": _name(args.name, name)}))
        for name in names
    ]
    summaries: list[StudySummary] = []
    for request in requests:
        say(f"tuning {request.policy.name}, {len(summaries) + 1} of {len(requests)}")
        with resumable(lambda: ALL_GO_ON):
            summaries.append(run_study(request))
    name = args.name or comparison.name_of([request.study for request in requests])
    with resumable(lambda: ALL_GO_ON):
        verdict = comparison.write(Path(args.out).absolute() / name, summaries)
    if args.json:
        studies = [_object(summary) for summary in summaries]
        print_json({"verdict": verdict.model_dump(), "studies": studies})
    else:
        print(comparison.text(verdict, summaries, Path(args.out).absolute() / name))
    return 1 if verdict.advice is Advice.nothing else 0


def _deadline(args: Namespace) -> float:
    return (
        EMULATED_DEADLINE_SECONDS
        if getattr(args, "substrate", None) == EMULATED
        else DEADLINE_SECONDS
    )


def _settable(setting: Setting, tuned: list[KnobDecl]) -> list[KnobDecl]:
    """Without those that do nothing where trials run, which is said."""
    unable = trials.not_settable(setting, doing)
    left = [knob.name for knob in tuned if knob.name in unable]
    for reason in dict.fromkeys(unable[name] for name in left):
        names = ", ".join(name for name in left if unable[name] == reason)
        say(f"tune: {names}: not tuned: {reason}")
    tuned = [knob for knob in tuned if knob.name not in unable]
    if not tuned:
        raise UserError(f"policy {setting.policy.name} has no knob that can be tuned there")
    return tuned


def _name(given: str | None, policy: str) -> str | None:
    return given and f"{given}-{policy}"


def study_request(args: Namespace) -> StudyRequest:
    """The request, with every name looked up. UserError for anything that does not fit."""
    policy = engine.policy(args.policy or Scenario.policy)
    if args.importance not in METHODS:
        raise unknown("importance method", args.importance, METHODS)
    if not policy.knobs:
        raise UserError(
            f"policy {policy.name} has no knobs to tune; `tune sim --workload {args.workload} "
            f"--policy {policy.name}` runs it"
        )
    space = catalog.space(args.space or policy.name).spec
    if space.policy != policy.name:
        raise UserError(f"space '{args.space}' is of policy {space.policy}, not of {policy.name}")
    setting = settings.resolve(
        args.workload,
        policy=policy,
        study=args.name,
        deadline_seconds=args.deadline or _deadline(args),
        **settings.given(args),
    )
    setting = trials.on_substrate(setting, doing)
    tuned = _settable(setting, catalog.tuned_knobs(space, policy))
    if setting.placement and (never := policy.never_met(policy.profiled_when, tuned)):
        raise UserError(
            f"--placement: {policy.name} goes by one only with {never}, which is not among what "
            f"space '{args.space or policy.name}' searches"
        )
    if args.held_out_streams and setting.workload.kernel is None:
        raise UserError(
            f"--held-out-streams: {setting.workload.name} is a recording, which has no other stream"
        )
    declared = engine.policies()
    confined = isolation.asked(args)
    emulated = setting.scenario.substrate == EMULATED
    simulated = isolation.simulates(confined) and not emulated
    references = REFERENCES if simulated else trials.REFERENCES if emulated else (OFF,)
    return StudyRequest(
        **dict(setting),
        out=str(Path(args.out).absolute()),
        space=space,
        space_argument=args.space and (catalog.absolute(args.space) or args.space),
        tuned=tuned,
        budget=args.budget,
        references=[declared[name] for name in references if name in declared],
        alternatives=[p for p in tunable() if p.name != policy.name] if simulated else [],
        explain=not emulated if args.explain is None else args.explain,
        held_out_streams=args.held_out_streams,
        importance=args.importance,
        workers=args.workers,
        resume=args.resume,
        ray_address=args.ray_address,
        isolation=confined,
        mlflow_uri=args.mlflow_uri,
        json_output=args.json,
    )
