"""Turns command-line arguments into a resolved setting: what runs where, with every default."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import catalog, engine
from tuner.errors import UserError, unknown
from tuner.models import (
    OBJECTIVES,
    PolicyDecl,
    Setting,
    StudyRequest,
    WorkloadSpec,
    fast_share,
)

DEFAULT_RATIO = "1:8"


def resolve(args: Namespace, *, policy: PolicyDecl, study: str | None = None) -> Setting:
    """UserError for anything that does not exist or does not fit."""
    workload = catalog.workload(args.workload).spec
    input = args.input or workload.default_input
    if input not in workload.inputs:
        raise unknown(f"input of workload {workload.name}", input, workload.inputs)
    machine = catalog.machine(args.machine or workload.machine).spec
    ratio = checked_ratio(args.ratio)
    objective = checked_objective(args.objective, workload)
    setting = Setting(
        study="x",
        workload=workload,
        input=input,
        policy=policy,
        machine=machine,
        ratio=ratio,
        threads=_at_least("--threads", args.threads, workload.threads, 1),
        scale=_at_least("--scale", args.scale, workload.scale_of(input), 1),
        page_bytes=args.page_bytes or 0,
        objective=objective,
        repeats=args.repeats,
        seed=args.seed or 0,
        stream_seed=args.stream_seed or 0,
        deadline_seconds=args.deadline,
        engine_version=engine.version(),
        engine_build=engine.build_id(),
        stream_maker=engine.stream_id(),
    )
    return setting.model_copy(update={"study": study or study_name(setting)})


def study_request(args: Namespace) -> StudyRequest:
    """`tune run`, resolved."""
    policy = engine.policy(args.policy)
    if not policy.knobs:
        raise UserError(
            f"policy {policy.name} has no knobs to tune; `tune sim --workload {args.workload} "
            f"--policy {policy.name}` runs it"
        )
    space = catalog.space(args.space or policy.name).spec
    if space.policy != policy.name:
        raise UserError(f"space '{args.space}' is of policy {space.policy}, not of {policy.name}")
    setting = resolve(args, policy=policy, study=args.name)
    return StudyRequest(
        **dict(setting),
        out=str(Path(args.out).absolute()),
        space=space,
        knobs=catalog.tuned_knobs(space, policy),
        budget=args.budget,
        workers=args.workers,
        resume=args.resume,
        ray_address=args.ray_address,
        mlflow_uri=args.mlflow_uri,
        json_output=args.json,
    )


def study_name(setting: Setting) -> str:
    """A name from the parameters: equal parameters, equal name. The budget is not part of it, so
    that a study can be resumed with a larger one."""
    parts = [
        setting.workload.name,
        setting.input,
        setting.policy.name,
        setting.machine.name,
        setting.ratio.replace(":", "to"),
        setting.objective,
    ]
    if setting.threads != setting.workload.threads:
        parts.append(f"{setting.threads:g}threads")
    if setting.scale != setting.workload.scale_of(setting.input):
        parts.append(f"scale{setting.scale:g}")
    if setting.page_bytes:
        parts.append(f"{setting.page_bytes}bytes")
    if setting.repeats != 1:
        parts.append(f"{setting.repeats}repeats")
    if setting.stream_seed:
        parts.append(f"stream{setting.stream_seed}")
    parts.append(f"seed{setting.seed}")
    return "-".join(parts)


def checked_ratio(ratio: str | None) -> str:
    ratio = ratio or DEFAULT_RATIO
    try:
        fast_share(ratio)
    except ValueError as error:
        raise UserError(f"--ratio: found '{ratio}'; {error}") from error
    return ratio


def checked_objective(name: str | None, workload: WorkloadSpec) -> str:
    name = name or workload.objective
    if name not in OBJECTIVES or name not in (workload.objective, *workload.objectives):
        raise unknown(f"objective of workload {workload.name}", name, workload.objectives)
    return name


def _at_least(option: str, given: float | None, default: float, least: float) -> float:
    value = default if given is None else given
    if not least <= value < float("inf"):
        raise UserError(f"{option}: found {value:g}; must be at least {least:g}")
    return value
