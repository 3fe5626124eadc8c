# SPDX-License-Identifier: MIT
"""A study as the tools of other optimizers read it: an Optuna study in SQLite, which
optuna-dashboard shows, and the folder of a SMAC3 run, which DeepCAVE shows.

Both are copies of the log for looking at. Trials that have not ended are left out, and so are knobs
that are not active: neither form knows a value that does nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from tuner.declarations import KnobDecl, KnobValue
from tuner.errors import UserError, one_line
from tuner.figure import FIGURES
from tuner.files import PARTIAL, sync_directory, write_files
from tuner.limits import OPTUNA, SMAC3
from tuner.optimize.space import Space
from tuner.report import table
from tuner.report.store import uri_of
from tuner.run.trial import Status
from tuner.study import front
from tuner.study.log import StudyData, TrialRecord

RANGE = "optuna>=4,<6"
"""Of Optuna's versions, as pyproject.toml has it."""
SMAC_FILES = ("scenario.json", "configspace.json", "runhistory.json")
SUFFIXES = {OPTUNA: ".optuna.db", SMAC3: ".smac3"}


def default_place(study: str, form: str) -> Path:
    """Where a study is written to, unless a path is given."""
    return Path(study + SUFFIXES[form])


def existing(place: Path, form: str) -> Path | None:
    """What is there and would be replaced."""
    found = [place / name for name in SMAC_FILES] if form == SMAC3 else [place]
    return next((path for path in found if os.path.lexists(path)), None)


def write(data: StudyData, place: Path, form: str) -> int:
    """Writes the study; returns how many trials it has there. UserError if it cannot be written, or
    Optuna is not installed."""
    try:
        return _optuna(data, place) if form == OPTUNA else _smac(data, place)
    except OSError as error:
        raise UserError(f"cannot write {one_line(place)}: {error.strerror}") from error


def _space(data: StudyData) -> Space:
    request = data.header.request
    return Space(request.tuned, request.policy.others(request.tuned))


def _values(data: StudyData, trial: TrialRecord) -> list[float] | None:
    """The objectives, in their own units; None if it failed."""
    request = data.header.request
    if not trial.succeeded or trial.objective is None:
        return None
    if not request.objectives:
        return [trial.objective]
    found = front.values(request, request.objectives, trial.result)
    return None if found is None else list(found.values())


def _notes(data: StudyData) -> dict[str, str | int]:
    """What a study is, for readers who see nothing else of it."""
    request = data.header.request
    notes: dict[str, str | int] = {
        "workload": f"{request.workload.name} ({request.scenario.input})",
        "policy": request.policy.name,
        "machine": request.machine.name,
        "conditions": request.scenario.conditions(),
        "engine build": request.engine_build,
    }
    if data.best is not None:
        notes["trial in best.yaml"] = data.best.number
    if data.lean is not None:
        notes["best.yaml"] = "has this trial without the changes that add nothing"
    if request.constraints:
        notes["constraints"] = " and ".join(map(str, request.constraints))
    return notes


def _times(trial: TrialRecord) -> tuple[datetime, datetime]:
    """When its run began and ended, UTC."""
    assert trial.result is not None and trial.finished is not None
    end = datetime.fromisoformat(trial.finished).astimezone(UTC)
    return end - timedelta(seconds=trial.result.seconds), end


# --- Optuna ---------------------------------------------------------------------------------------


def _optuna_module() -> ModuleType:
    try:
        return importlib.import_module("optuna")
    except ModuleNotFoundError as error:
        raise UserError(
            f"--format {OPTUNA}: Optuna is not installed; `python -m pip install '{RANGE}'` "
            "installs it"
        ) from error


def _optuna(data: StudyData, place: Path) -> int:
    optuna = _optuna_module()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    request, space = data.header.request, _space(data)
    names = request.objectives or [request.scenario.objective]
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}.{os.getpid()}{PARTIAL}")
    partial.unlink(missing_ok=True)
    try:
        storage = optuna.storages.RDBStorage(uri_of(partial))
        study = optuna.create_study(
            storage=storage,
            study_name=request.study,
            directions=[
                "maximize" if FIGURES[name].higher_is_better else "minimize" for name in names
            ],
        )
        with warnings.catch_warnings(action="ignore"):  # that this is new to Optuna
            study.set_metric_names([_with_unit(name) for name in names])
        for name, note in _notes(data).items():
            study.set_user_attr(name, note)
        for trial in data.done:
            study.add_trial(_frozen(optuna, data, space, trial))
        storage.remove_session()
        storage.engine.dispose()
        partial.replace(place)
        sync_directory(place.parent)
    finally:
        partial.unlink(missing_ok=True)
    return len(data.done)


def _with_unit(name: str) -> str:
    unit = FIGURES[name].unit
    return f"{name} ({unit})" if unit else name


def _frozen(optuna: ModuleType, data: StudyData, space: Space, trial: TrialRecord) -> Any:
    """A trial as it was. One that breaks a constraint is infeasible, by the factors above 1 by
    which it misses each."""
    result = trial.result
    assert result is not None
    values = _values(data, trial)
    active = {
        decl.name: trial.knobs[decl.name]
        for decl in space.decls.values()
        if space.active(decl.name, trial.knobs)
    }
    request = data.header.request
    system: dict[str, Any] = {}
    if request.constraints and values is not None:
        missed = data.bounds.missed(result)
        system["constraints"] = [missed.get(str(c), 1.0) - 1 for c in request.constraints]
    notes = {"trial": trial.number, "origin": trial.origin, "host": result.host}
    notes |= table.compared(request, trial)
    if values is None:
        notes |= {"status": result.status.value, "error": result.error[:2000]}
    frozen = optuna.trial.create_trial(
        state=optuna.trial.TrialState.COMPLETE if values else optuna.trial.TrialState.FAIL,
        values=values,
        params=active,
        distributions={
            name: _distribution(optuna, space.decls[name], value) for name, value in active.items()
        },
        user_attrs=notes,
        system_attrs=system,
    )
    # Optuna has local times, without a zone.
    begin, end = (time.astimezone().replace(tzinfo=None) for time in _times(trial))
    frozen.datetime_start, frozen.datetime_complete = begin, end
    return frozen


def _distribution(optuna: ModuleType, knob: KnobDecl, value: KnobValue) -> Any:
    """The range that was searched. The default may lie outside: its own trial has a wider one."""
    kinds = optuna.distributions
    if knob.type == "boolean":
        return kinds.CategoricalDistribution([False, True])
    if knob.type == "choice":
        return kinds.CategoricalDistribution(list(knob.choices))
    assert knob.min is not None and knob.max is not None
    number = float(value)
    low, high = min(knob.min, number), max(knob.max, number)
    if knob.type == "integer":
        return kinds.IntDistribution(int(-(-low // 1)), int(high // 1), log=knob.log)
    return kinds.FloatDistribution(low, high, log=knob.log)


# --- SMAC3 ----------------------------------------------------------------------------------------

STATUS = {Status.success: "SUCCESS", Status.timeout: "TIMEOUT"}
"""SMAC's names; anything else has crashed."""


def _smac(data: StudyData, place: Path) -> int:
    """By SMAC's own writers. Of a finished trial it knows costs, of which lower is better."""
    from smac import Scenario
    from smac.runhistory import RunHistory, StatusType

    request, space = data.header.request, _space(data)
    names = [_cost_name(name) for name in request.objectives or [request.scenario.objective]]
    runs = RunHistory()
    first = min((_times(trial)[0] for trial in data.done), default=None)
    outside = 0
    for trial in data.done:
        assert trial.result is not None and first is not None
        configuration = space.configuration(trial.knobs)
        if configuration is None:  # the default, of a space that leaves it out
            outside += 1
            continue
        configuration.origin = trial.origin
        costs = _costs(data, trial)
        begin, end = ((time - first).total_seconds() for time in _times(trial))
        runs.add(
            configuration,
            cost=costs if len(names) > 1 else costs[0],
            time=trial.result.seconds,
            status=StatusType[STATUS.get(trial.result.status, "CRASHED")],
            seed=request.scenario.seed,
            starttime=begin,
            endtime=end,
            additional_info=_finite({"trial": trial.number, **table.compared(request, trial)}),
        )
    with TemporaryDirectory() as folder:
        scenario = Scenario(
            space.configspace,
            name=request.study,
            output_directory=Path(folder),
            deterministic=True,
            objectives=names if len(names) > 1 else names[0],
            n_trials=request.budget,
            seed=request.scenario.seed,
            n_workers=request.workers,
        )
        scenario._set_meta({"tiertune": _notes(data)})  # SMAC's facade would; save() wants some
        scenario.save()
        runs.save(scenario.output_directory / "runhistory.json")
        files = {name: (scenario.output_directory / name).read_text() for name in SMAC_FILES}
    content = json.loads(files["scenario.json"])
    files["scenario.json"] = json.dumps(content | {"output_directory": str(place.absolute())})
    write_files({place / name: text for name, text in files.items()})
    return len(data.done) - outside


def _costs(data: StudyData, trial: TrialRecord) -> list[float]:
    """Infinite where it failed, as SMAC has it."""
    request = data.header.request
    count = max(1, len(request.objectives))
    if _values(data, trial) is None:
        return [float("inf")] * count
    if not request.objectives:
        assert trial.result is not None and trial.result.cost is not None
        return [trial.result.cost]
    found = front.values(request, request.objectives, trial.result)
    assert found is not None
    return front.costs(found)


def _cost_name(name: str) -> str:
    """What a cost is: 1 over what is better if it is higher."""
    return f"1/{name}" if FIGURES[name].higher_is_better else name


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if abs(value) < float("inf")}
