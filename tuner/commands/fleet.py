# SPDX-License-Identifier: MIT
"""`tune fleet`: many studies as one plan, each with an equal part of its trials.

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
from tuner.fleet.allocation import equal_parts
from tuner.fleet.loop import run_fleet
from tuner.fleet.plan import Cell, Plan
from tuner.fleet.report import Fleet
from tuner.limits import NONE
from tuner.objective import OBJECTIVES
from tuner.report import characteristics
from tuner.report.pictures import png
from tuner.run import isolation, settings, streams
from tuner.run import runner as simulation
from tuner.scenario import label
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT
from tuner.terminal import print_json, progress, resumable, say, table

# Of the estimate, in seconds of one processor; all but the simulations are one after the other.
START_SECONDS = 5.0
ASK_SECONDS = 0.1
"""To propose a trial, and to store it."""
REPORT_SECONDS = 1.7
"""Of a study."""
ACCESSES_PER_SECOND = 3e8
"""Simulated ones of a run whose stream is not there, which would be measured."""


def run(args: Namespace) -> int:
    """Exit code 0 when a best configuration is worth using, 1 when none is."""
    found = plan.read(Path(args.file))
    name = settings.checked_name(args.name or label(args.file))
    budget = found.spec.budget
    requests = _requests(found, args, name)
    if args.dry_run:
        _show_plan(name, requests, budget, args)
        return 0
    fleet = Fleet(name, budget, run_fleet(name, requests, budget, workers=args.workers))
    with resumable(lambda: "stopped: all trials are stored; the same command writes the rest"):
        written = _write(fleet, Path(args.out) / name)
    if args.json:
        print_json(report.content(fleet) | {"files": [str(path) for path in written]})
    else:
        table(report.COLUMNS, report.rows(fleet.members))
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
    parts = equal_parts(found.spec.budget, len(found.cells))
    lag = min(parts[-1], math.ceil(args.workers / len(parts)))  # keeps all workers busy
    requests: dict[str, StudyRequest] = {}
    for cell, part in zip(found.cells, parts, strict=True):
        try:
            request = study_request(_arguments(found, cell, args, name, part, lag))
        except UserError as error:
            raise found.complain(cell.keys["workload"], f"{_title(cell)}: {error}") from error
        if request.study in requests:
            wrong = f"{_title(cell)}: study {request.study} is given twice"
            raise found.complain(cell.keys["workload"], wrong)
        requests[request.study] = request
    return list(requests.values())


def _title(cell: Cell) -> str:
    return f"{cell.policy} on {cell.workload}"


def _arguments(
    found: Plan, cell: Cell, args: Namespace, name: str, budget: int, lag: int
) -> Namespace:
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
        "objectives": None,
        "constraints": None,
        "seed": spec.seed,
        "deadline": spec.deadline,
        "explain": spec.explain,
        "budget": budget,
        "workers": lag,
        "out": str(Path(args.out) / name),
        "name": None,
        "space": None,
        "importance": "default-slice",
        "held_out_streams": False,
        "rivals": NONE,  # their own studies run them
        "robust": NONE,  # which is of single studies
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
    able = spec.objectives_of(input or spec.default_input)
    if objective is not None and objective not in able:
        raise unknown(f"objective of workload {spec.name}", objective, able)


def _policy(name: str) -> None:
    if not engine.policy(name).knobs:
        raise UserError(f"policy {name} has no knobs to tune")


# --- --dry-run ------------------------------------------------------------------------------------


def _show_plan(name: str, requests: list[StudyRequest], budget: int, args: Namespace) -> None:
    checks = len(requests) * (len(requests[0].references) + 2 * HELD_OUT)
    seconds, unknown = _estimate(requests, args.workers)
    studies = [_planned(request) for request in requests]
    if args.json:
        print_json(
            {
                "fleet": name,
                "budget": budget,
                "trials_at_once": requests[0].workers,
                "checks": checks,
                "seconds": seconds,
                "streams_to_make": unknown,
                "studies": studies,
            }
        )
        return
    columns = ("workload", "input", "policy", "machine", "ratio", "objective", ">trials")
    table(columns, [tuple(str(study[c.removeprefix(">")]) for c in columns) for study in studies])
    print(f"{text.plural(len(requests), 'study')}, {text.plural(budget, 'trial')} in equal parts")
    print(f"up to {checks} runs beside them: references, and held-out seeds")
    about = "not known" if seconds is None else f"about {text.clock(seconds)}"
    if unknown:
        about += f", and the making of {text.plural(unknown, 'stream')}"
    print(f"time: {about} on {text.plural(args.workers, 'worker')}")


def _planned(request: StudyRequest) -> dict[str, Any]:
    scenario = request.scenario
    return {
        "study": request.study,
        "workload": request.workload.name,
        "input": scenario.input,
        "policy": scenario.policy,
        "machine": label(scenario.machine),
        "ratio": scenario.ratio,
        "objective": OBJECTIVES[scenario.objective].name,
        "trials": request.budget,
    }


def _estimate(requests: list[StudyRequest], workers: int) -> tuple[float | None, int]:
    """Wall seconds, from a run of each default where its stream is there; None if one's size is not
    known. Also how many streams are to be made first, which is not in the seconds."""
    simulated, missing = 0.0, set()
    with progress(f"measuring {text.plural(len(requests), 'default')}") as update:
        for number, request in enumerate(requests, start=1):
            stream = request.stream()
            runs = request.budget + len(request.references) + 2 * HELD_OUT
            if not streams.is_ready(stream):
                missing.add(stream.key)
                if (accesses := _accesses(request)) is None:
                    return None, len(missing)
                simulated += runs * accesses / ACCESSES_PER_SECOND
            elif isolation.simulates(request.isolation):
                simulated += runs * simulation.run(request.trial(0, {})).seconds
            else:
                return None, len(missing)  # what a command takes is not known
            update(number / len(requests))
    rest = START_SECONDS + REPORT_SECONDS * len(requests)
    return rest + simulated / workers + ASK_SECONDS * sum(r.budget for r in requests), len(missing)


def _accesses(request: StudyRequest) -> float | None:
    entry = catalog.workload(request.scenario.workload)
    figures = characteristics.known(entry)[request.scenario.input].figures
    if figures is None:
        return None
    return (figures.accesses + figures.set_up_accesses) * request.scenario.repeats
