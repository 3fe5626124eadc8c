# SPDX-License-Identifier: MIT
"""`tune run`: resolves the arguments and runs the study, or one per policy and compares them."""

from __future__ import annotations

import itertools
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tuner import engine
from tuner.apply import targets
from tuner.commands import isolated
from tuner.declarations import KnobDecl, KnobValue, PolicyDecl
from tuner.documents import catalog, rivals
from tuner.documents.space import SpaceSpec
from tuner.emulate import live, trials
from tuner.errors import UserError, brief, unknown
from tuner.experiment.checks import OFF, REFERENCES
from tuner.experiment.loop import run_study
from tuner.experiment.verify import best_trials
from tuner.limits import (
    AUTO,
    DEADLINE_SECONDS,
    EMULATED_DEADLINE_SECONDS,
    FEW,
    MOST_AUTO,
    NEIGHBOURS,
    NONE,
    TOGETHER,
)
from tuner.report import comparison, conclusion
from tuner.report.importance import METHODS
from tuner.run import isolation, settings
from tuner.run.doubts import doubts
from tuner.run.isolation import Live
from tuner.run.settings import Setting
from tuner.scenario import EMULATED, LIVE, Scenario
from tuner.study import best as best_file
from tuner.study import constraint, log
from tuner.study.request import Known, StudyRequest, StudySummary
from tuner.study.verdict import Advice
from tuner.terminal import doing, print_json, resumable, say
from tuner.text import shell, short

ALL = "all"
MOST_OBJECTIVES = 4
"""Of more, most trials are on the front: almost any beats another in one of them."""
ALL_GO_ON = "continue with all policies: the same command with --resume"


def run(args: Namespace) -> int:
    """Exit code 0 when every study is complete and at least one trial of it succeeded."""
    if args.workloads is not None:
        from tuner.commands import together

        return together.run(args, study_request)
    names = _policies(args.policy)
    if len(names) > 1:
        return _compare(args, names)
    request = study_request(args)
    summary = run_study(request)
    if request.json_output:
        print_json(_object(summary))
    elif use := _use(summary):
        if request.isolation is None and request.scenario.simulated:
            folder = str(Path(request.out) / request.study)
            say(
                f"measured on a server first: {shell(['tune', 'verify', folder])} {conclusion.LIVE}"
            )
        say(f"for a server: {use}")
    return 0 if summary.best_objective is not None else 1


def _use(summary: StudySummary) -> str | None:
    """What comes next if the best configuration is to be used."""
    if summary.best_config is None or summary.verdict.advice is not Advice.use_best:
        return None
    return targets.command(Path(summary.best_config))


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
        raise UserError("--space applies to one policy; leave it out to tune several")
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


def _deadline(args: Namespace, own: Live | None) -> float:
    if own is not None:
        return live.deadline(own, args.repeats or Scenario.repeats)
    emulated = getattr(args, "substrate", None) == EMULATED
    return EMULATED_DEADLINE_SECONDS if emulated else DEADLINE_SECONDS


def _workers(args: Namespace, own: Live | None) -> int:
    """Live trials of this host take turns; those of a cluster run on a host each."""
    if own is None or args.ray_address is not None:
        return args.workers or len(os.sched_getaffinity(0))
    if args.workers not in (None, 1):
        raise UserError(
            f"--workers: found {args.workers}; one live trial runs at a time on a host. With "
            "--ray-address they run on several"
        )
    return 1


def _settable(setting: Setting, own: Live | None, tuned: list[KnobDecl]) -> list[KnobDecl]:
    """Without those that do nothing where trials run, which is said."""
    if own is None:
        unable = trials.not_settable(setting, doing)
    else:
        unable = live.not_settable(own, setting.policy)
    left = [knob.name for knob in tuned if knob.name in unable]
    for reason in dict.fromkeys(unable[name] for name in left):
        names = ", ".join(name for name in left if unable[name] == reason)
        say(f"tune: {names}: not tuned: {reason}")
    tuned = [knob for knob in tuned if knob.name not in unable]
    if not tuned:
        raise UserError(f"policy {setting.policy.name} has no knob that can be tuned there")
    return tuned


def _objectives(args: Namespace) -> list[str]:
    """Those of --objectives, the first one the study's; none without it."""
    if args.objectives is None:
        return []
    names = [name.strip() for name in args.objectives.split(",")]
    if args.objective not in (None, names[0]):
        raise UserError(
            f"--objective {args.objective}: --objectives begins with {brief(names[0])}; give one"
        )
    if not 2 <= len(set(names)) == len(names) <= MOST_OBJECTIVES:
        raise UserError(
            f"--objectives: found '{brief(args.objectives)}'; must be from 2 to {MOST_OBJECTIVES} "
            "different figures, with commas between them"
        )
    return names


def _pinned(space: SpaceSpec, policy: PolicyDecl) -> PolicyDecl:
    """With what the space pins for defaults, and with the nearest value of a range that leaves out
    the default, which is said: the study's default is another then."""
    pinned = catalog.pinned(space, policy)
    told = [
        f"{new.name} {short(new.default)} (default {short(old.default)})"
        for new, old in zip(pinned.knobs, policy.knobs, strict=True)
        if new.default != old.default
    ]
    if told:
        say(f"tune: by the space, also in what the study calls the default: {', '.join(told)}")
    return pinned


def _name(given: str | None, policy: str) -> str | None:
    return given and f"{given}-{policy}"


def carried(
    args: Namespace, policy: PolicyDecl, tuned: Sequence[KnobDecl], workload: str
) -> tuple[list[dict[str, KnobValue]], list[Known]]:
    """What the study that --from names is for: its best configurations, to be tried first, and, of
    the same workload, all of its trials, for the model. Of a best.yaml it is one configuration.
    Nothing without --from. UserError if they are of no use."""
    if getattr(args, "start_from", None) is None:
        return [], []
    known = {knob.name for knob in tuned}
    if Path(args.start_from).is_file():
        recorded = best_file.read(Path(args.start_from))
        if recorded.scenario.policy != policy.name:
            raise UserError(
                f"--from {args.start_from}: is of policy {recorded.scenario.policy}, not of "
                f"{policy.name}"
            )
        whole = engine.resolve(policy.name, dict(recorded.knobs))
        return [{name: value for name, value in whole.items() if name in known}], []
    folder = log.folder_of(args.start_from, Path(args.out))
    if not log.exists(folder):
        raise UserError(log.missing(folder))
    data = log.load(folder)
    request = data.header.request
    if request.policy.name != policy.name:
        raise UserError(f"--from: study '{request.study}' is of policy {request.policy.name}")
    from tuner.optimize.optimizer import initial_trials

    others = {knob.name for knob in policy.knobs} - known
    most = max(1, initial_trials(args.budget) - 1)
    found = [
        {name: value for name, value in knobs.items() if name in known}
        for _, knobs in itertools.islice(best_trials(data, others), most)
    ]
    if not found:
        raise UserError(f"--from: no trial of study '{request.study}' differs from the defaults")
    if request.workload.name != workload:
        name = request.workload.name
        say(f"tune: --from: of workload {name}: its trials say nothing of this one")
        return found, []
    default = data.default.result if data.default is not None else None
    if default is None or default.cost is None:
        raise UserError(f"--from: the default of study '{request.study}' has no result")
    trials = [(trial.knobs, trial.result.cost) for trial in data.done if trial.result is not None]
    prior = [
        Known(
            knobs={k: v for k, v in engine.resolve(policy.name, knobs).items() if k in known},
            over=cost / default.cost,
        )
        for knobs, cost in trials
        if cost is not None
    ]
    return found, prior


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
    own = live.asked(args, policy) if getattr(args, "substrate", None) == LIVE else None
    objectives = _objectives(args)
    fields = settings.given(args) | ({"objective": objectives[0]} if objectives else {})
    if own is not None:
        fields = live.given(fields, resume=args.resume) | {"ratio": live.ratio(own)}
    space = catalog.space(args.space or policy.name).spec
    if space.policy != policy.name:
        raise UserError(f"space '{args.space}' is for policy {space.policy}, not for {policy.name}")
    policy = _pinned(space, policy)
    setting = settings.resolve(
        args.workload,
        policy=policy,
        study=args.name,
        deadline_seconds=args.deadline or _deadline(args, own),
        **fields,
    )
    if resized := setting.resized():
        say(f"tune: {resized}")
    if own is None:
        setting = trials.on_substrate(setting, doing)
    else:
        live.check_objective(own, setting.scenario.objective)
    tuned = _settable(setting, own, catalog.tuned_knobs(space, policy))
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
    confined = own or isolated.asked(args)
    emulated = setting.scenario.substrate == EMULATED
    simulated = isolation.simulates(confined) and not emulated
    auto = float(args.budget.partition(":")[2]) if isinstance(args.budget, str) else None
    if auto and not simulated:
        raise UserError(f"--budget {AUTO}: other trials than simulated ones need a number")
    if auto and objectives:
        raise UserError(f"--budget {AUTO}: --objectives have no single gain; give a number")
    references = REFERENCES if simulated else trials.REFERENCES if emulated else (OFF,)
    starts, prior = carried(args, policy, tuned, setting.workload.name)
    able = [p.name for p in tunable() if p.name != policy.name]
    if args.rivals not in (None, NONE) and not simulated:
        raise UserError(
            f"--rivals {args.rivals}: other policies run beside simulated trials only; leave it out"
        )
    if args.robust in TOGETHER:
        raise UserError(f"--robust {args.robust}: is of several workloads, --workloads A,B")
    if args.robust == NEIGHBOURS and not simulated:
        raise UserError(
            f"--robust {NEIGHBOURS}: other sizes of fast memory are simulated only; leave it out"
        )
    few = rivals.chosen(args.rivals or FEW, able, setting.workload.name) if simulated else []
    known = constraint.figures_of(setting, confined)
    constraints = constraint.parsed(args.constraints or [], known)
    for name in objectives:
        if name not in known:
            raise unknown("figure for --objectives", name, known)
        if known[name].higher_is_better is None:
            raise UserError(f"--objectives: nobody knows whether more of {name} is better")
    if args.name is None and (constraints or objectives):
        slugs = [setting.study, *(f"and-{name}" for name in objectives[1:])]
        slugs += [each.slug for each in constraints]
        setting = setting.model_copy(update={"study": settings.checked_name("-".join(slugs))})
    return StudyRequest(
        **dict(setting),
        out=str(Path(args.out).absolute()),
        space=space,
        space_argument=args.space and (catalog.absolute(args.space) or args.space),
        tuned=tuned,
        budget=MOST_AUTO if auto else args.budget,
        auto_seconds=auto,
        references=[declared[name] for name in references if name in declared],
        alternatives=[declared[name] for name in few],
        rivals=args.rivals,
        not_run=[name for name in able if name not in few],
        doubts=doubts(setting, [declared[name] for name in few]),
        explain=not (emulated or own) if args.explain is None else args.explain,
        robust=simulated and args.robust != NONE,
        held_out_streams=args.held_out_streams,
        constraints=constraints,
        objectives=objectives,
        importance=args.importance,
        workers=_workers(args, own),
        starts=starts,
        # Costs there hold no penalty, and are of one objective.
        prior=[] if constraints or objectives else prior,
        resume=args.resume,
        ray_address=args.ray_address,
        isolation=confined,
        mlflow_uri=args.mlflow_uri,
        json_output=args.json,
    )
