"""`tune run`: resolves the arguments and runs the study."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine
from tuner.documents import catalog
from tuner.errors import UserError, unknown
from tuner.optimize.loop import run_study
from tuner.report.importance import METHODS
from tuner.run import settings
from tuner.scenario import Scenario
from tuner.study.request import StudyRequest
from tuner.terminal import print_json


def run(args: Namespace) -> int:
    """Exit code 0 when the study is complete and at least one trial succeeded."""
    request = study_request(args)
    summary = run_study(request)
    if request.json_output:
        content = summary.model_dump()
        print_json({"study": content.pop("study"), **content.pop("scenario"), **content})
    return 0 if summary.best_objective is not None else 1


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
        deadline_seconds=args.deadline,
        **settings.given(args),
    )
    return StudyRequest(
        **dict(setting),
        out=str(Path(args.out).absolute()),
        space=space,
        space_argument=args.space and (catalog.absolute(args.space) or args.space),
        tuned=catalog.tuned_knobs(space, policy),
        budget=args.budget,
        importance=args.importance,
        workers=args.workers,
        resume=args.resume,
        ray_address=args.ray_address,
        mlflow_uri=args.mlflow_uri,
        json_output=args.json,
    )
