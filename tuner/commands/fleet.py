# SPDX-License-Identifier: MIT
"""`tune fleet`: many studies as one plan, whose trials go where they still gain.

The same command goes on where an interrupted one stopped: what comes next follows from the logs.
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner import engine, text
from tuner.commands.run import study_request
from tuner.documents import catalog
from tuner.documents.loader import Key
from tuner.errors import UserError, unknown
from tuner.files import write_files
from tuner.fleet import plan, report
from tuner.fleet.allocation import Rule
from tuner.fleet.loop import run_fleet
from tuner.fleet.plan import Cell, Plan
from tuner.fleet.report import Fleet
from tuner.objective import OBJECTIVES
from tuner.report import characteristics
from tuner.report.pictures import png
from tuner.run import settings
from tuner.scenario import label
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT
from tuner.terminal import print_json, resumable, say, table

ACCESSES_PER_SECOND = 3e8
"""Simulated ones of a run, by a slow policy. Of the estimate."""
ASK_SECONDS = 0.2
"""To propose a trial, while nothing else is proposed. Of the estimate."""


def run(args: Namespace) -> int:
    """Exit code 0 when a best configuration is worth using, 1 when none is."""
    found = plan.read(Path(args.file))
    name = settings.checked_name(args.name or label(args.file))
    spec = found.spec
    rule = Rule(spec.budget, spec.per_study.least, spec.per_study.most, spec.per_study.batch)
    requests = _requests(found, args, name)
    if args.dry_run:
        _show_plan(name, requests, rule, args)
        return 0
    fleet = Fleet(name, rule, run_fleet(name, requests, rule, workers=args.workers))
    with resumable(lambda: "stopped: all trials are stored; the same command writes the rest"):
        written = _write(fleet, Path(args.out) / name)
    if args.json:
        print_json(report.content(fleet) | {"files": [str(path) for path in written]})
    else:
        table(report.COLUMNS, report.rows(fleet.outcome.members))
        for line in report.headlines(fleet):
            print(f"- {line}")
        print(report.spent(fleet))
        for path in written:
            say(f"wrote {path}")
    return 0 if fleet.recommends else 1


def _write(fleet: Fleet, folder: Path) -> list[Path]:
    from tuner.fleet.picture import draw

    picture = folder / "fleet.png"
    data = json.dumps(report.content(fleet), indent=1) + "\n"
    return write_files(
        {
            folder / "fleet.json": data,
            folder / "fleet.md": report.markdown(fleet, picture.name),
            picture: png(draw(fleet)),
        }
    )


# --- The plan -------------------------------------------------------------------------------------


def _requests(found: Plan, args: Namespace, name: str) -> list[StudyRequest]:
    """The studies, with every name looked up. UserError naming file, line and key for what does not
    exist or does not fit."""
    _look_up(found)
    # Half of the studies run in a round, and should keep all workers busy.
    half = math.ceil(len(found.cells) / 2)
    lag = min(found.spec.per_study.batch, math.ceil(args.workers / half))
    requests: dict[str, StudyRequest] = {}
    for cell in found.cells:
        try:
            request = study_request(_arguments(found, cell, args, name, lag))
        except UserError as error:
            raise found.complain(cell.keys["workload"], f"{_title(cell)}: {error}") from error
        if request.study in requests:
            wrong = f"{_title(cell)}: study {request.study} is there twice"
            raise found.complain(cell.keys["workload"], wrong)
        # The others' defaults are run by their own studies.
        requests[request.study] = request.model_copy(update={"alternatives": []})
    return list(requests.values())


def _title(cell: Cell) -> str:
    return f"{cell.policy} on {cell.workload}"


def _arguments(found: Plan, cell: Cell, args: Namespace, name: str, lag: int) -> Namespace:
    """Those of `tune run`."""
    spec = found.spec
    workload, input = characteristics.split(cell.workload)
    own: dict[str, Any] = {
        "workload": workload,
        "input": input,
        "policy": cell.policy,
        "machine": cell.machine,
        "ratio": cell.ratio,
        "objective": spec.objective,
        "seed": spec.seed,
        "deadline": spec.deadline,
        "explain": spec.explain,
        "budget": spec.per_study.least,
        "workers": lag,
        "out": str(Path(args.out) / name),
        "name": None,
        "space": None,
        "importance": "default-slice",
        "held_out_streams": False,
        "resume": True,
    }
    return Namespace(**vars(args) | own)


def _look_up(found: Plan) -> None:
    """Complains about every name that does not exist, at its place."""
    wrong: dict[Key, str] = {}

    def check(key: Key, look: Callable[..., object], *names: str | None) -> None:
        try:
            look(*names)
        except UserError as error:
            wrong.setdefault(key, str(error))

    for cell in found.cells:
        keys = cell.keys
        check(keys["workload"], _workload, cell.workload, found.spec.objective)
        check(keys["policy"], _policy, cell.policy)
        if cell.machine is not None:
            check(keys["machine"], catalog.machine, cell.machine)
    if wrong:
        complaints = [found.document.complaint(key, why) for key, why in wrong.items()]
        raise UserError("\n".join(complaints))


def _workload(name: str, objective: str | None) -> None:
    workload, input = characteristics.split(name)
    spec = catalog.workload(workload).spec
    if input is not None and input not in spec.inputs:
        raise unknown(f"input of workload {spec.name}", input, spec.inputs)
    if objective is not None and objective not in (spec.objective, *spec.objectives):
        raise unknown(f"objective of workload {spec.name}", objective, spec.objectives)


def _policy(name: str) -> None:
    if not engine.policy(name).knobs:
        raise UserError(f"policy {name} has no knobs to tune")


# --- --dry-run ------------------------------------------------------------------------------------


def _show_plan(name: str, requests: list[StudyRequest], rule: Rule, args: Namespace) -> None:
    checks = len(requests) * (len(requests[0].references) + 2 * HELD_OUT)
    seconds = _estimate(requests, rule, args.workers)
    studies = [_planned(request, rule) for request in requests]
    if args.json:
        print_json(
            {
                "fleet": name,
                "budget": rule.budget,
                "per_study": {"least": rule.least, "most": rule.most, "batch": rule.batch},
                "trials_at_once": requests[0].workers,
                "checks": checks,
                "seconds": seconds,
                "studies": studies,
            }
        )
        return
    columns = ("workload", "input", "policy", "machine", "ratio", "objective", ">trials")
    table(columns, [tuple(str(study[c.removeprefix(">")]) for c in columns) for study in studies])
    rest = rule.budget - rule.least * len(requests)
    print(
        f"{text.plural(len(requests), 'study')} with {rule.least} trials each, and "
        f"{text.plural(rest, 'trial')} in batches of {rule.batch} where they gain"
    )
    print(f"up to {checks} runs beside them: references, and held-out seeds")
    about = "not known" if seconds is None else f"roughly {text.clock(seconds)}"
    print(f"time: {about} on {text.plural(args.workers, 'worker')}")


def _planned(request: StudyRequest, rule: Rule) -> dict[str, Any]:
    scenario = request.scenario
    most = rule.budget if rule.most is None else min(rule.most, rule.budget)
    return {
        "study": request.study,
        "workload": request.workload.name,
        "input": scenario.input,
        "policy": scenario.policy,
        "machine": label(scenario.machine),
        "ratio": scenario.ratio,
        "objective": OBJECTIVES[scenario.objective].name,
        "least": rule.least,
        "most": most,
        "trials": f"{rule.least} to {most}",
    }


def _estimate(requests: list[StudyRequest], rule: Rule, workers: int) -> float | None:
    """Wall seconds, if every study gets the same; None if a stream's size is not known."""
    total = 0.0
    for request in requests:
        entry = catalog.workload(request.scenario.workload)
        figures = characteristics.known(entry)[request.scenario.input].figures
        if figures is None:
            return None
        accesses = (figures.accesses + figures.set_up_accesses) * request.scenario.repeats
        runs = rule.budget / len(requests) + len(request.references) + 2 * HELD_OUT
        total += runs * accesses / ACCESSES_PER_SECOND
    return max(total / workers, rule.budget * ASK_SECONDS)
