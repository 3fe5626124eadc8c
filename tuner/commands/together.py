# SPDX-License-Identifier: MIT
"""`tune run --workloads`: resolves the arguments, and runs a study for each workload with the same
configurations."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tuner.apply import targets
from tuner.commands import best as best_command
from tuner.errors import UserError, brief
from tuner.fleet import shared_report
from tuner.fleet.shared_report import Shared
from tuner.fleet.together import Alone, lag_of, run_shared
from tuner.limits import ALL, AUTO, GEOMEAN, NONE, TOGETHER, WORST
from tuner.report import characteristics
from tuner.run import settings
from tuner.scenario import Scenario, flag, options
from tuner.study import best as best_file
from tuner.study.request import StudyRequest
from tuner.study.together import Together
from tuner.study.verdict import Advice
from tuner.terminal import print_json, resumable, say, table
from tuner.text import shell

OPTIONS = (
    *("space", "budget", "workers", "ray_address", "runner", "image", "memory", "cpus", "deadline"),
    *("importance", "rivals", "explain", "held_out_streams", "mlflow_uri", "out", "name"),
)
"""Those of `tune run` beside the scenario's that may come with --workloads."""


def run(args: Namespace, request_of: Callable[[Namespace], StudyRequest]) -> int:
    """Exit code 0 unless nothing ran on all workloads. `request_of`: how `tune run` makes a study's
    request."""
    names = _names(args.workloads)
    _refuse(args)
    workers = args.workers or len(os.sched_getaffinity(0))
    requests, folder = _requests(args, names, lag_of(workers, len(names)), request_of)
    together = requests[0].together
    assert together is not None
    runs = requests[0].budget * len(names)
    say(f"{requests[0].budget} configurations on {len(names)} workloads: {runs} runs")
    parts = run_shared(
        requests,
        together,
        workers=workers,
        alone={request.study: each for request in requests if (each := _alone(request))},
        go_on=_go_on(args),
    )
    found = Shared(folder, together, parts)
    with resumable(lambda: f"all runs are stored; continue with: {_go_on(args)}"):
        shared_report.write(found)
    if args.json:
        print_json(shared_report.content(found))
        return 1 if found.verdict.advice is Advice.nothing else 0
    print(found.verdict.headline)
    table(shared_report.COLUMNS, shared_report.rows(found))
    print(shared_report.text(found))
    best = folder / best_file.FILE
    if found.verdict.advice is Advice.use_best and (use := targets.command(best)):
        say(f"for a server: {use}")
    return 1 if found.verdict.advice is Advice.nothing else 0


def _names(argument: str) -> list[str]:
    names = [name.strip() for name in argument.split(",")]
    if not 2 <= len(set(names)) == len(names) or not all(names):
        raise UserError(
            f"--workloads: found '{brief(argument)}'; must be two or more different ones, each as "
            "W or W:INPUT, with commas between them"
        )
    return names


def _refuse(args: Namespace) -> None:
    """UserError for what has no meaning for several workloads, or is not there for them."""
    several = args.policy is not None and (args.policy == ALL or "," in args.policy)
    wrong = {
        "--robust": args.robust not in (None, *TOGETHER) and f"must be {' or '.join(TOGETHER)}",
        "--policy": several and "must be one policy; `tune compare` runs several on workloads",
        "--input": args.input and "each workload has its own: --workloads W:INPUT,...",
        "--set": args.sizes and "each workload has its own sizes; give files of resized workloads",
        "--placement": args.placement
        and "a placement is of one workload; each is profiled by itself",
        "--on": args.substrate not in (None, Scenario.substrate) and "trials must be simulated",
        "--command": args.trial_command and "trials must be simulated",
        "--budget": isinstance(args.budget, str) and f"{AUTO} is for one workload; give a number",
        "--from": args.start_from and "a study is of one workload; a space can name starts",
        "--objectives": args.objectives and "several objectives take one workload",
        "--constraint": args.constraints and "a constraint is for the trials of one workload",
        "--explain": args.explain
        and "an explanation is of one workload: `tune run -w W --explain`",
        "--rivals": args.rivals not in (None, NONE)
        and "rivals are chosen for one workload; `tune compare` runs other policies on several",
    }
    for option, why in wrong.items():
        if why:
            raise UserError(f"{option} with --workloads: {why}")


def _requests(
    args: Namespace,
    names: Sequence[str],
    lag: int,
    request_of: Callable[[Namespace], StudyRequest],
) -> tuple[list[StudyRequest], Path]:
    """A request for each workload, and the folder of what is about all of them."""
    how: Literal["worst", "geomean"] = "geomean" if args.robust == GEOMEAN else "worst"
    own = {"robust": NONE, "rivals": NONE, "explain": False, "workers": lag, "name": None}
    found = []
    for name in names:
        workload, input = characteristics.split(name)
        given: dict[str, Any] = {"workload": workload, "input": input, **own}
        try:
            found.append(request_of(Namespace(**vars(args) | given)))
        except UserError as error:
            raise UserError(f"--workloads: {name}: {error}") from error
    labels = [f"{r.workload.name}-{r.scenario.input}" for r in found]
    if len(set(labels)) < len(labels):
        raise UserError(f"--workloads: {' and '.join(names)}: two have the same name and input")
    group = settings.checked_name(args.name or _group(how, labels, found))
    studies = [settings.checked_name(f"{group}.{label}") for label in labels]
    together = Together(how=how, studies=studies, workloads=list(names))
    requests = [
        request.model_copy(update={"study": study, "together": together})
        for request, study in zip(found, studies, strict=True)
    ]
    return requests, Path(requests[0].out) / group


def _group(how: str, labels: Sequence[str], found: Sequence[StudyRequest]) -> str:
    """What the workloads are, and what the names of their studies would share."""
    rest = [r.study.removeprefix(f"{label}-") for r, label in zip(found, labels, strict=True)]
    first, *others = ([*name.split("-")] for name in rest)
    shared = [word for word in first if all(word in other for other in others)]
    return "-".join([how, "of", *labels, *shared])


def _alone(request: StudyRequest) -> Alone | None:
    """What was tuned for the workload alone under the same conditions, by studies that have ended:
    the best of them."""
    out = Path(request.out)
    known = [
        (path, best)
        for path, best in (best_command.find(out) if out.is_dir() else [])
        if best.together is None
        and best.verdict is not None
        and best.scenario.named() == request.scenario.named()
    ]
    winner = best_command.best_of(known, request)
    if winner is None or (verdict := winner[1].verdict) is None:
        return None
    return Alone(winner[1].provenance.study, verdict.trials, winner[1].knobs)


def _go_on(args: Namespace) -> str:
    """The command that continues."""
    words = ["--workloads", args.workloads, "--robust", args.robust or WORST]
    for name in ("policy", *(n for n in options() if n not in ("workload", "policy")), *OPTIONS):
        value = getattr(args, name, None)
        if value is True:
            words.append(flag(name))
        elif value not in (None, False):
            words += [flag(name), str(value)]
    return shell(["tune", "run", *words, "--resume"])
