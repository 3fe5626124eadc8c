# SPDX-License-Identifier: MIT
"""Work that is kept by content: a trial, or a study of which only the best configuration counts.

Claims and comparisons ask for the same things here, so that each runs once with an engine.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from tuner import engine
from tuner.declarations import KnobDecl, KnobValue
from tuner.documents import catalog
from tuner.experiment.checks import Check
from tuner.model import Model, content_hash
from tuner.objective import OBJECTIVES
from tuner.run import cache, runner
from tuner.run.pool import Pool
from tuner.run.settings import Setting
from tuner.run.trial import Status, Stream, Trial, TrialResult
from tuner.scenario import EMULATED

STUDY_SEED = 1_000_000
"""Sampling seed of a study's trials, and of its search. The best configuration is run again with
the seeds 0, 1, ..., which the search has not seen: a gain by luck in one seed does not count."""

POLL_SECONDS = 1.0


class Study(Model):
    """A study as one piece of work: the trial to vary, the tuned knobs, where the search starts,
    and how many trials."""

    trial: Trial
    knobs: list[KnobDecl]
    starts: list[dict[str, KnobValue]] = Field(default_factory=list)
    budget: int

    @property
    def key(self) -> str:
        knobs = [knob.model_dump(mode="json") for knob in self.knobs]
        fields = {"knobs": knobs, "starts": self.starts, "budget": self.budget}
        return content_hash({"run": cache.key(self.trial)} | fields)

    @property
    def stream(self) -> Stream:
        return self.trial.stream

    @property
    def engine_build(self) -> str:
        return self.trial.engine_build


class StudyResult(Model):
    """The best configuration of a study, by the cost of its trials, and their wall time."""

    status: Status
    error: str = ""
    knobs: dict[str, KnobValue] = Field(default_factory=dict)
    seconds: float = 0


Job = Trial | Study
Result = TrialResult | StudyResult


class Work(Protocol):
    """Jobs that are to be done, some only when the results of others are known."""

    def jobs(self) -> list[Job]:
        """What can be done now and has not been, each once."""

    def take(self, job: Job, result: Result) -> None:
        """The result of a job."""


class Answers:
    """What checks measured, by the key of their trials: a part of `Work`."""

    results: dict[str, TrialResult]

    def missing(self, checks: Iterable[Check]) -> list[Job]:
        """The trials that have not been run, each once."""
        trials = {key_of(check.trial): check.trial for check in checks}
        return [trial for key, trial in trials.items() if key not in self.results]

    def take(self, job: Job, result: Result) -> None:
        assert isinstance(result, TrialResult)
        self.results[key_of(job)] = result

    def of(self, check: Check) -> TrialResult:
        return self.results[key_of(check.trial)]

    def value(self, check: Check) -> float | None:
        return self.of(check).objective


def key_of(job: Job) -> str:
    return job.key if isinstance(job, Study) else cache.key(job)


# --- What to do -----------------------------------------------------------------------------------


def trials(setting: Setting, knobs: Mapping[str, KnobValue], seeds: int) -> list[Trial]:
    """One for each sampling seed, or layout of the emulated machine's memory; one only where that
    makes no difference. Each has its workload's objective, so that who asks for different
    objectives shares it: `objective_of` has theirs. The emulated machine does not tell all of them.
    """
    own = engine.resolve(setting.policy.name, dict(knobs))
    emulated = setting.scenario.substrate == EMULATED
    objective = setting.scenario.objective if emulated else setting.workload.objective
    return [
        seeded(setting, own, seed, objective)
        for seed in range(seeds if setting.policy.seeded else 1)
    ]


def study(setting: Setting, knobs: Mapping[str, KnobValue], budget: int) -> Study:
    """The search of a policy's space; knobs that are given stay as they are."""
    space = catalog.space(setting.policy.name).spec
    policy = catalog.pinned(space, setting.policy)
    tuned = [knob for knob in catalog.tuned_knobs(space, policy) if knob.name not in knobs]
    pins = {name for name, limits in space.knobs.items() if limits.pin is not None}
    stay = {knob.name: knob.default for knob in policy.knobs if knob.name in pins}
    own = engine.resolve(setting.policy.name, stay | dict(knobs))
    starts = catalog.starts(space, setting.policy)
    return Study(
        trial=seeded(setting, own, STUDY_SEED, setting.scenario.objective),
        knobs=tuned,
        starts=[{name: start[name] for name in start if name not in knobs} for start in starts],
        budget=budget,
    )


def seeded(setting: Setting, knobs: Mapping[str, KnobValue], seed: int, objective: str) -> Trial:
    """The trial of one sampling seed."""
    scenario = dataclasses.replace(setting.scenario, seed=seed, objective=objective)
    return setting.model_copy(update={"scenario": scenario}).trial(0, knobs)


def objective_of(setting: Setting, result: TrialResult) -> float:
    """The setting's objective of a result, whatever the trial's was. ValueError if the result does
    not have it."""
    parts = {**result.metrics, "latency": result.latency}
    return OBJECTIVES[setting.scenario.objective].value(
        parts, setting.workload.operation_of(setting.scenario.input)
    )


# --- Doing it -------------------------------------------------------------------------------------


def known(job: Job) -> Result | None:
    """The result, if it is in the cache."""
    model: type[Result] = StudyResult if isinstance(job, Study) else TrialResult
    return cache.get(job.engine_build, key_of(job), model)


def _keep(job: Job, result: Result) -> Result:
    """The result as it is kept. What did not succeed is tried again next time."""
    if isinstance(result, TrialResult):
        result = cache.without_series(result)
    if result.status is Status.success:
        cache.put(job.engine_build, key_of(job), result)
    return result


def work(job: Job) -> Result:
    """Does a job in this process: the result, from the cache if it is there."""
    if found := known(job):
        return found
    if isinstance(job, Trial):
        return _keep(job, runner.run(job))
    steps = search(job)
    trial = next(steps)
    while True:
        result = work(trial)
        assert isinstance(result, TrialResult)
        try:
            trial = steps.send(result)
        except StopIteration as end:
            return _keep(job, end.value)


def search(study: Study) -> Generator[Trial, TrialResult, StudyResult]:
    """Yields the study's trials one by one, and is sent the result of each."""
    from tuner.optimize.optimizer import Optimizer, initial_trials

    policy = engine.policy(study.trial.scenario.policy)
    optimizer = Optimizer(
        study.knobs,
        seed=STUDY_SEED,
        initial=initial_trials(study.budget),
        fixed=policy.others(study.knobs, study.trial.knobs),
        starts=study.starts,
    )
    best: tuple[float, dict[str, KnobValue]] | None = None
    seconds = 0.0
    for number in range(study.budget):
        knobs = dict(study.trial.knobs) | optimizer.ask().knobs
        result = yield study.trial.model_copy(update={"knobs": knobs})
        cost = result.cost
        seconds += result.seconds
        optimizer.tell(number, cost)
        if cost is None:
            if number == 0:  # the default itself does not run, so nothing will
                return StudyResult(status=result.status, error=result.error, seconds=seconds)
        elif best is None or cost < best[0]:
            best = cost, knobs
    assert best is not None
    return StudyResult(status=Status.success, knobs=best[1], seconds=seconds)


@dataclass
class _Step:
    """A trial that somebody waits for: itself a job, or the next one of a study."""

    job: Job
    trial: Trial
    steps: Generator[Trial, TrialResult, StudyResult] | None = None


def run_on(
    pool: Pool,
    jobs: Iterable[Job],
    done: Callable[[Job, Result], None],
    trial_done: Callable[[], None] = lambda: None,
) -> None:
    """Does jobs on the workers of a pool. `done` is called with each result as it comes, and
    `trial_done` after each trial, those of studies included.

    A search runs here, between its trials; several of them keep the workers busy.
    """
    waiting = deque(jobs)
    ready: deque[_Step] = deque()  # next trials of studies, which have begun
    flying: dict[int, _Step] = {}
    number = 0

    def take(step: _Step, result: TrialResult) -> None:
        trial_done()
        if step.steps is None:
            done(step.job, result)
            return
        try:
            step.trial = step.steps.send(result)
        except StopIteration as end:
            done(step.job, _keep(step.job, end.value))
            return
        ready.append(step)

    while waiting or ready or flying:
        while (ready or waiting) and len(flying) < pool.workers:
            step = ready.popleft() if ready else _begin(waiting.popleft())
            found = known(step.trial)
            if isinstance(found, TrialResult):
                take(step, found)
                continue
            flying[number] = step
            pool.submit(step.trial.model_copy(update={"number": number}))
            number += 1
        for result in pool.wait(POLL_SECONDS):
            step = flying.pop(result.number)
            result = result.model_copy(update={"number": step.trial.number})
            kept = _keep(step.trial, result)
            assert isinstance(kept, TrialResult)
            take(step, kept)


def _begin(job: Job) -> _Step:
    if isinstance(job, Trial):
        return _Step(job, job)
    steps = search(job)
    return _Step(job, next(steps), steps)
