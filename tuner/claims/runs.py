# SPDX-License-Identifier: MIT
"""From the points of claims to results: what must run, on worker processes, each thing once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Any

import numpy as np

from tuner import engine
from tuner.claims.document import Point
from tuner.claims.expression import Floats
from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.experiment.jobs import (
    Job,
    Result,
    Study,
    StudyResult,
    key_of,
    objective_of,
    study,
    trials,
    work,
)
from tuner.model import content_hash
from tuner.objective import OBJECTIVES
from tuner.run import settings, streams
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.terminal import say

DEADLINE = 900.0  # seconds for one replay; the longest take some ten


class NotEvaluable(Exception):
    """Why a claim has no verdict."""


# --- Work -----------------------------------------------------------------------------------------


def execute(jobs: Sequence[Job], workers: int, done: Callable[[Job, Result], None]) -> None:
    """Does all jobs; `done` is called with each result as it comes.

    Where a stream is missing, the last job on it makes it, and the others start when it is there.
    """
    ready: deque[Job] = deque()
    waiting: dict[str, list[Job]] = {}
    for job in jobs:
        there = streams.path_of(job.stream).exists()
        (ready if there else waiting.setdefault(job.stream.key, [])).append(job)
    leaders = deque(waiting)
    running: dict[Future[Result], Job] = {}
    # Not `open_pool`: its workers run one trial each, and a study's next trial depends on the ones
    # before, so that a study would have to be steered from here, and its search would run here.
    with ProcessPoolExecutor(min(workers, len(jobs) or 1), get_context("spawn")) as pool:
        try:
            while ready or leaders or running:
                while len(running) < workers and (ready or leaders):
                    if ready:
                        job = ready.popleft()
                    else:
                        job = waiting[leaders.popleft()].pop()
                        say(f"making the stream of {job.stream.workload} ({job.stream.input})")
                    running[_submit(pool, job)] = job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    result = _result(future, job)
                    done(job, result)
                    others = waiting.pop(job.stream.key, [])
                    if streams.path_of(job.stream).exists():
                        ready.extend(others)
                        continue
                    for other in others:  # they would only repeat it
                        done(other, _as_for(other, result))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # else a study under way is waited for
                worker.terminate()
            raise


def _submit(pool: ProcessPoolExecutor, job: Job) -> Future[Result]:
    try:
        return pool.submit(work, job)
    except BrokenProcessPool as error:  # a worker died with another job, which ended the pool
        future: Future[Result] = Future()
        future.set_exception(error)
        return future


def _result(future: Future[Result], job: Job) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        crashed = StudyResult(status=Status.crashed, error="a worker process died")
        return _as_for(job, crashed)


def _as_for(job: Job, result: Result) -> Result:
    """What went wrong, as the result of a job."""
    if isinstance(job, Study):
        return StudyResult(status=result.status, error=result.error)
    return TrialResult(study=job.study, number=job.number, status=result.status, error=result.error)


# --- Points ---------------------------------------------------------------------------------------


def resolve(point: Point) -> Setting:
    """UserError if something that the point names does not exist or does not fit."""
    given = dict(point.scenario)
    return settings.resolve(
        given.pop("workload"),
        policy=engine.policy(given.pop("policy")),
        study="claims",
        deadline_seconds=DEADLINE,
        **given,
    )


@dataclass
class Plan:
    """What a set of families needs, and what has come of it so far."""

    families: list[Mapping[str, list[Point]]]

    def __post_init__(self) -> None:
        self.results: dict[str, Result] = {}
        self.crashed: dict[str, str] = {}
        self._settings: dict[str, Setting] = {}

    def setting(self, point: Point) -> Setting:
        """As `resolve`, which reads files, but once for all points of the same scenario."""
        key = content_hash(dict(point.scenario))
        if key not in self._settings:
            self._settings[key] = resolve(point)
        return self._settings[key]

    def jobs(self) -> list[Job]:
        """What can be done now and has not been, without duplicates. Studies come first, since runs
        of their best configurations follow them."""
        found: dict[str, Job] = {}
        for families in self.families:
            for family in families.values():
                for i, point in enumerate(family):
                    try:
                        for job in self._needed(families, point, i):
                            found.setdefault(key_of(job), job)
                    except (UserError, NotEvaluable):
                        continue  # its claim will say so
        left = [job for key, job in found.items() if key not in self.results]
        return sorted(left, key=lambda job: isinstance(job, Trial))

    def _needed(
        self, families: Mapping[str, list[Point]], point: Point, number: int
    ) -> Iterable[Job]:
        if search := self._search(families, point, number):
            found = self.results.get(search.key)
            if found is None:
                return [search]
            return trials(self.setting(point), self._best(search), point.seeds)
        return trials(self.setting(point), point.knobs, point.seeds)

    def _search(
        self, families: Mapping[str, list[Point]], point: Point, number: int
    ) -> Study | None:
        """The study whose best configuration the point runs: its own, or that of the point of
        another family with the same number, or of its only one."""
        if point.best_of:
            others = families[point.best_of]
            point = others[number if len(others) > 1 else 0]
        return study(self.setting(point), point.knobs, point.tune) if point.tune else None

    def _best(self, search: Study) -> dict[str, KnobValue]:
        result = self.results[search.key]
        if not isinstance(result, StudyResult) or result.status is not Status.success:
            raise NotEvaluable(f"the study did not run: {result.status}: {result.error}")
        return result.knobs

    def take(self, job: Job, result: Result) -> None:
        self.results[key_of(job)] = result
        if result.status in (Status.crashed, Status.timeout):
            self.crashed[key_of(job)] = f"{describe(job)}: {result.status}: {result.error}"

    def measured(self, families: Mapping[str, list[Point]], name: str) -> Measured:
        """The results of a family. NotEvaluable if one is not there."""
        rows: list[list[TrialResult]] = []
        knobs: list[Mapping[str, KnobValue]] = []
        for number, point in enumerate(families[name]):
            try:
                jobs = self._needed(families, point, number)
            except UserError as error:
                raise NotEvaluable(str(error)) from error
            row = []
            for job in jobs:
                result = self.results.get(key_of(job))
                if not isinstance(result, TrialResult):
                    raise NotEvaluable(f"{describe(job)} did not run")
                if result.status is not Status.success:
                    raise NotEvaluable(f"{describe(job)}: {result.status}: {result.error}")
                row.append(result)
                assert isinstance(job, Trial)
                found = job.knobs
            rows.append(row)
            knobs.append(found)
        found_settings = [self.setting(point) for point in families[name]]
        return Measured(families[name], rows, found_settings, knobs)


def describe(job: Job) -> str:
    trial = job.trial if isinstance(job, Study) else job
    scenario = trial.scenario
    what = f"{scenario.policy} on {trial.workload} ({scenario.input}), {scenario.ratio}"
    return f"study of {what}" if isinstance(job, Study) else what


class Measured:
    """Results of a family: means over the sampling seeds, point by point."""

    def __init__(
        self,
        points: Sequence[Point],
        rows: Sequence[Sequence[TrialResult]],
        settings: Sequence[Setting],
        knobs: Sequence[Mapping[str, KnobValue]],
    ) -> None:
        self._points, self._rows, self._settings, self._knobs = points, rows, settings, knobs

    def select(self, axes: Mapping[str, Any]) -> Measured:
        kept = [i for i, point in enumerate(self._points) if axes.items() <= point.axes.items()]
        columns = (self._points, self._rows, self._settings, self._knobs)
        return Measured(*([column[i] for i in kept] for column in columns))  # type: ignore[arg-type]

    @property
    def labels(self) -> list[str]:
        return [point.label for point in self._points]

    def axis(self, name: str) -> Floats:
        return np.array([float(point.axes[name]) for point in self._points])

    def knob(self, name: str) -> Floats:
        return np.array([float(knobs[name]) for knobs in self._knobs])

    def _mean(self, of: Callable[[TrialResult], float]) -> Floats:
        return np.array([np.mean([of(result) for result in row]) for row in self._rows])

    def objective(self) -> Floats:
        return np.array(
            [
                np.mean([_objective(setting, result) for result in row])
                for setting, row in zip(self._settings, self._rows, strict=True)
            ]
        )

    def performance(self) -> Floats:
        """One over the cost of the mean objective."""
        names = (setting.scenario.objective for setting in self._settings)
        pairs = zip(names, self.objective(), strict=True)
        return np.array([1 / OBJECTIVES[name].cost(float(value)) for name, value in pairs])

    def metric(self, name: str) -> Floats:
        for row in self._rows:
            if name not in row[0].metrics:
                known = ", ".join(sorted(row[0].metrics))
                raise NotEvaluable(f"the engine reports no metric '{name}' (known: {known})")
        return self._mean(lambda result: result.metrics[name])

    def part(self, name: str) -> Floats:
        for row in self._rows:
            if name not in row[0].breakdown:
                known = ", ".join(sorted(row[0].breakdown))
                raise NotEvaluable(f"the breakdown has no '{name}' (known: {known})")
        return self._mean(lambda r: r.breakdown[name] / sum(r.breakdown.values()))


def _objective(setting: Setting, result: TrialResult) -> float:
    try:
        return objective_of(setting, result)
    except ValueError as error:
        raise NotEvaluable(str(error)) from error
