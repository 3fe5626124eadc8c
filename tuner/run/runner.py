# SPDX-License-Identifier: MIT
"""`run(trial) -> result` on the simulated machine: the seam between studies and simulations.

A trial's own failure is a result with a status and a message, never an exception. Only Ctrl-C
and a defect of the runner itself raise.
"""

from __future__ import annotations

import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tuner import engine, terminal
from tuner.documents.placement import PlacedObject
from tuner.errors import UserError
from tuner.objective import OBJECTIVES
from tuner.run import streams
from tuner.run.trial import RecordedStream, Status, Trial, TrialResult

R = TypeVar("R")


def run(trial: Trial, *, progress: Callable[[float], None] | None = None) -> TrialResult:
    """Makes the stream if need be, replays it under the trial's knobs, and returns the result.

    Repeats use the seeds seed, seed+1, ...; the result is that of the median run (the lower of the
    two middle ones for an even number, so that it is an actual run). `progress` is called with
    the fraction of the simulation that is done. The deadline covers the simulations, but not the
    making of the stream.
    """
    return attempt(trial, lambda: _measure(trial, progress))


def attempt(trial: Trial, measure: Callable[[], dict[str, Any]]) -> TrialResult:
    """The result of what `measure` returns, its fields, or of what it raises."""
    started = time.monotonic()

    def finish(status: Status, **fields: Any) -> TrialResult:
        return TrialResult(
            study=trial.study,
            number=trial.number,
            status=status,
            seconds=time.monotonic() - started,
            engine_version=engine.version(),
            engine_build=engine.results_id(),
            host=platform.node(),
            **fields,
        )

    try:
        outcome = measure()
    except TimeoutError as error:
        return finish(Status.timeout, error=str(error) or "its deadline passed")
    except HostFailed as error:
        return finish(Status.failed, error=str(error), host_failed=True)
    except (ValueError, RuntimeError, OSError, UserError) as error:
        return finish(Status.failed, error=str(error) or type(error).__name__)
    except Exception as error:  # whatever it is, it concerns this trial alone
        return finish(Status.failed, error=f"{type(error).__name__}: {error}")
    return finish(Status.success, **outcome)


def profile(
    trial: Trial, *, progress: Callable[[float], None] | None = None
) -> tuple[TrialResult, list[PlacedObject]]:
    """One run of the trial's policy on fast memory alone, and what it has learned: the objects of a
    placement, best ones first."""
    placed: list[PlacedObject] = []

    def measure() -> dict[str, Any]:
        path = _stream(trial)
        watch = part(progress, 0, 1)
        found = _simulate(trial, path, trial.scenario.seed, time.monotonic(), watch, profile=True)
        placed.extend(PlacedObject.model_validate(dict(item)) for item in found["placement"])
        return {"rows": found["rows"], "metrics": dict(found["metrics"])}

    return attempt(trial, measure), placed


class HostFailed(Exception):
    """Why no trial of this stream and engine can run on this host."""


def _stream(trial: Trial) -> Path:
    if trial.engine_build != engine.results_id():
        raise HostFailed(
            f"the trial was made for engine build {trial.engine_build}, but this worker has "
            f"{engine.results_id()}; install the same version on every host"
        )
    try:
        return streams.ensure(trial.stream)
    except (ValueError, RuntimeError, OSError, UserError) as error:
        raise HostFailed(str(error) or type(error).__name__) from error


def _measure(trial: Trial, progress: Callable[[float], None] | None) -> dict[str, Any]:
    path = _stream(trial)
    started = time.monotonic()  # making a stream is not the trial's own time
    scenario = trial.scenario
    objective = OBJECTIVES[scenario.objective]
    runs: list[tuple[float, Mapping[str, Any]]] = []
    for repeat in range(scenario.repeats):
        watch = part(progress, repeat, scenario.repeats)
        result = _simulate(trial, path, scenario.seed + repeat, started, watch)
        runs.append((objective.value(result, trial.operation), result))
    middle, result, spread = median(runs)
    metrics = dict(result["metrics"])
    metrics |= {
        "seconds": result["seconds"],
        "total_seconds": result["total_seconds"],
        "operations": result["operations"],
    }
    metrics |= spread
    return {
        "objective": middle,
        "cost": objective.cost(middle),
        "metrics": {name: float(value) for name, value in metrics.items()},
        "latency": {
            kind: {name: float(value) for name, value in summary.items()}
            for kind, summary in result["latency"].items()
        },
        "breakdown": dict(result["breakdown"]),
        "series": {name: list(values) for name, values in result["series"].items()},
        "rows": list(result.get("rows", ())),
    }


def median(runs: Sequence[tuple[float, R]]) -> tuple[float, R, dict[str, float]]:
    """Of runs and their objectives: the median objective, the run that has it, and metrics of all
    objectives, none of a single one."""
    values = [value for value, _ in runs]
    middle = statistics.median_low(values)
    found = next(found for value, found in runs if value == middle)
    if len(values) == 1:
        return middle, found, {}
    spread = {
        "repeat.count": float(len(values)),
        "repeat.min": min(values),
        "repeat.max": max(values),
        "repeat.stdev": statistics.stdev(values),
    }
    return middle, found, spread


def part(
    progress: Callable[[float], None] | None, part: int, parts: int
) -> Callable[[float], bool] | None:
    """Converts the progress of one part into progress of the whole."""
    if progress is None:
        return None

    def watch(fraction: float) -> bool:
        progress((part + fraction) / parts)
        return True

    return watch


def _simulate(
    trial: Trial,
    path: Path,
    seed: int,
    started: float,
    progress: Callable[[float], bool] | None,
    **more: Any,
) -> Mapping[str, Any]:
    if trial.placement is not None:
        more["placement"] = [placed.model_dump() for placed in trial.placement.objects]

    def once() -> Mapping[str, Any]:
        left = None
        if trial.deadline_seconds is not None:
            left = trial.deadline_seconds - (time.monotonic() - started)
            if left <= 0:
                raise TimeoutError(f"its deadline of {trial.deadline_seconds:g} s passed")
        try:
            simulated: Mapping[str, Any] = engine.native().simulate(
                str(path),
                machine=trial.machine.document(),
                policy=trial.scenario.policy,
                knobs=trial.knobs,
                coarse=trial.coarse,
                seed=seed,
                deadline_seconds=left,
                progress=progress,
                **trial.scenario.engine_arguments(trial.machine),
                **more,
            )
        except TimeoutError as error:
            raise TimeoutError(f"its deadline of {trial.deadline_seconds:g} s passed") from error
        return simulated

    try:
        return once()
    except (RuntimeError, ValueError) as error:
        # Either the trial itself fails, or the file is damaged although its note still fits: then
        # it is made again.
        try:
            streams.verify(path)
        except streams.CorruptStream:
            streams.invalidate(trial.stream)
            streams.ensure(trial.stream, note=terminal.say)
            return once()
        if isinstance(trial.stream, RecordedStream) and HELPS in str(error):
            raise type(error)(_helping(str(error))) from error
        raise


HELPS = "What helps:"
FINER = re.compile(r" --scale \S+ or less \([^)]*\);?| a workload with a larger footprint")


def _helping(coarse: str) -> str:
    """What the engine says of a run that is too coarse (engine/sim/scale.cpp), for a recording: its
    scale is what it is."""
    said, _, ways = coarse.partition(HELPS)
    left = FINER.sub("", ways).strip()
    return f"{said}{HELPS} a recording of more data" + (f"; {left}" if left else "")
