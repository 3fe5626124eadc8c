"""Turns command-line arguments into a resolved setting: what runs where, with every default."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from tuner import catalog, engine
from tuner.errors import UserError, unknown
from tuner.models import (
    NAME,
    OBJECTIVES,
    PolicyDecl,
    Setting,
    StudyRequest,
    WorkloadSpec,
    fast_share,
)

DEFAULT_RATIO = "1:8"


OPTIONS = (
    "input",
    "machine",
    "ratio",
    "objective",
    "threads",
    "scale",
    "page_bytes",
    "repeats",
    "seed",
    "stream_seed",
)
"""What `resolve` takes besides the workload; None stands for the default."""


def given(args: Namespace) -> dict[str, Any]:
    """Those of the `OPTIONS` that the command line sets."""
    return {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}


def resolve(
    workload_name: str,
    *,
    policy: PolicyDecl,
    study: str | None = None,
    input: str | None = None,
    machine: str | None = None,
    ratio: str | None = None,
    objective: str | None = None,
    threads: float | None = None,
    scale: float | None = None,
    page_bytes: int = 0,
    repeats: int = 1,
    seed: int = 0,
    stream_seed: int = 0,
    deadline_seconds: float | None = None,
) -> Setting:
    """UserError for anything that does not exist or does not fit."""
    workload = catalog.workload(workload_name).spec
    machine = machine or workload.machine
    input = input or workload.default_input
    if input not in workload.inputs:
        raise unknown(f"input of workload {workload.name}", input, workload.inputs)
    setting = Setting(
        study="x",
        workload=workload,
        input=input,
        policy=policy,
        machine=catalog.machine(machine).spec,
        ratio=checked_ratio(ratio),
        threads=_at_least("--threads", threads, workload.threads, 1),
        scale=_at_least("--scale", scale, workload.scale_of(input), 1),
        page_bytes=page_bytes,
        objective=checked_objective(objective, workload),
        repeats=repeats,
        seed=seed,
        stream_seed=stream_seed,
        deadline_seconds=deadline_seconds,
        engine_version=engine.version(),
        engine_build=engine.build_id(),
        stream_maker=engine.stream_id(workload.kernel) if workload.kernel else "",
        workload_file=catalog.absolute(workload_name),
        machine_file=catalog.absolute(machine),
    )
    if workload.kernel is None:
        _check_recorded(setting)
    return setting.model_copy(update={"study": _checked_name(study) or study_name(setting)})


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
    setting = resolve(
        args.workload,
        policy=policy,
        study=args.name,
        deadline_seconds=args.deadline,
        **given(args),
    )
    return StudyRequest(
        **dict(setting),
        out=str(Path(args.out).absolute()),
        space=space,
        space_argument=args.space and (catalog.absolute(args.space) or args.space),
        knobs=catalog.tuned_knobs(space, policy),
        budget=args.budget,
        workers=args.workers,
        resume=args.resume,
        ray_address=args.ray_address,
        mlflow_uri=args.mlflow_uri,
        json_output=args.json,
    )


def _check_recorded(setting: Setting) -> None:
    """What happened once has one scale, and no seed."""
    recorded = setting.workload.scale_of(setting.input)
    if setting.scale != recorded:
        raise UserError(
            f"--scale: found {setting.scale:g}; {setting.workload.name} ({setting.input}) is a "
            f"recording of scale {recorded:g}"
        )
    if setting.stream_seed:
        raise UserError(
            f"--stream-seed: found {setting.stream_seed}; {setting.workload.name} "
            f"({setting.input}) is a recording, which has no seed"
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


def _checked_name(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(NAME, name):
        raise UserError(
            f"--name: found '{name}'; must consist of letters, digits, '.', '_' and '-'"
        )
    return name


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
