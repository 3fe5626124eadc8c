# SPDX-License-Identifier: MIT
"""The runs of a sizing, in rounds: each round is what the searches want next. Results are kept in
the cache folder, so that the same sizing goes on where one was stopped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tuner.errors import UserError
from tuner.experiment.jobs import Job, Result, key_of, known, objective_of
from tuner.objective import OBJECTIVES
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.size.plan import Configuration, Plan
from tuner.size.search import Search, Slowdown

REFINING = 12
"""Runs of a configuration after its grid, about. Of the progress that is shown."""


class Do(Protocol):
    """Runs trials, and calls `done` with each result as it comes."""

    def __call__(self, trials: Sequence[Trial], done: Callable[[Job, Result], None]) -> None: ...


class NoReference(UserError):
    """Nothing to compare with, so that no size can be judged."""

    code = 1


@dataclass(frozen=True)
class Base:
    """Objectives of all-fast and all-slow with pages of one size, and the bytes that hold all."""

    fast: float
    slow: float
    whole_bytes: float
    objective: str

    def slowdown(self, value: float) -> float:
        """Against all-fast: 0.05 is a run time, or a time per operation, that is 5 % longer."""
        cost = OBJECTIVES[self.objective].cost
        return cost(value) / cost(self.fast) - 1


@dataclass(frozen=True)
class Run:
    size: int
    seed: int
    objective: float


@dataclass
class Sized:
    """A configuration and what was found; `failure` is the first run that ended otherwise than by
    success, at which its search stopped."""

    configuration: Configuration
    base: Base
    search: Search
    runs: list[Run] = field(default_factory=list)
    status: Status = Status.success
    failure: str = ""

    def gib(self, size: int) -> float:
        """At full scale."""
        return size * self.configuration.unit_gib

    @property
    def whole_gib(self) -> float:
        return self.gib(self.search.whole)

    @property
    def answer_gib(self) -> float | None:
        answer = self.search.answer
        return None if self.failure or answer is None else self.gib(answer)

    @property
    def below_whole(self) -> bool:
        """Whether a size below the whole footprint meets the bound."""
        answer = self.search.answer
        return not self.failure and answer is not None and answer < self.search.whole

    @property
    def slowdown(self) -> Slowdown | None:
        """At the answer."""
        answer = self.search.answer
        return None if self.failure or answer is None else self.search.at(answer)


@dataclass(frozen=True)
class Found:
    plan: Plan
    bases: Mapping[int, Base]
    sized: Sequence[Sized]
    run: int
    """Runs that were made."""
    kept: int
    """Runs that had been made before."""


def measure(plan: Plan, do: Do, update: Callable[[float], None]) -> Found:
    """Runs what is missing. NoReference, with the reason, if all-fast or all-slow does not run."""
    runs = _Runs(do, update)
    bases = _bases(plan, runs)
    sized = [_begin(plan, each, bases[each.row.page_bytes]) for each in plan.configurations]
    runs.expected += sum(len(each.search.grid) + REFINING for each in sized)
    while wanted := _wanted(sized):
        results = runs.of([trial for _, _, _, trial in wanted])
        for each, size, seed, trial in wanted:
            _take(each, size, seed, results[key_of(trial)])
    return Found(plan, bases, sized, runs.run, runs.kept)


class _Runs:
    def __init__(self, do: Do, update: Callable[[float], None]) -> None:
        self.expected = 0
        self.run = self.kept = 0
        self._do = do
        self._update = update

    def of(self, trials: Sequence[Trial]) -> dict[str, TrialResult]:
        """By key."""
        found: dict[str, TrialResult] = {}
        missing: dict[str, Trial] = {}
        for trial in trials:
            result = known(trial)
            if isinstance(result, TrialResult):
                found[key_of(trial)] = result
            else:
                missing[key_of(trial)] = trial
        self.kept += len(found)

        def done(job: Job, result: Result) -> None:
            assert isinstance(result, TrialResult)
            found[key_of(job)] = result
            self.run += 1
            self._update(min(0.99, (self.run + self.kept) / max(1, self.expected)))

        if missing:
            self._do(list(missing.values()), done)
        return found


def _bases(plan: Plan, runs: _Runs) -> dict[int, Base]:
    pairs = {size: plan.reference(size) for size in plan.references}
    runs.expected = 2 * len(pairs)
    results = runs.of([trial for pair in pairs.values() for trial in pair])
    found = {}
    for size, pair in pairs.items():
        settings = plan.references[size]
        fast, slow = (
            _reference(setting, results[key_of(trial)])
            for setting, trial in zip(settings, pair, strict=True)
        )
        whole = results[key_of(pair[0])].metrics["fast_capacity_bytes"]
        found[size] = Base(fast, slow, whole, settings[0].scenario.objective)
    return found


def _reference(setting: Setting, result: TrialResult) -> float:
    name = f"{setting.policy.name} on {setting.workload.name}"
    if result.status is not Status.success:
        raise NoReference(f"{name}: {result.status}: {result.error}")
    try:
        return objective_of(setting, result)
    except ValueError as error:
        raise NoReference(f"{name}: {error}") from error


def _begin(plan: Plan, each: Configuration, base: Base) -> Sized:
    whole = max(1, math.ceil(base.whole_bytes / 2**30 / each.unit_gib - 1e-6))
    seeded = each.setting.policy.seeded
    search = Search(
        least=min(each.least, whole),
        whole=whole,
        bound=plan.bound,
        empty=base.slowdown(base.slow),
        seeds=plan.seeds if seeded else [],
    )
    return Sized(each, base, search)


Wanted = tuple[Sized, int, int, Trial]


def _wanted(sized: Sequence[Sized]) -> list[Wanted]:
    return [
        (each, size, seed, each.configuration.trial(size, seed))
        for each in sized
        if not each.failure
        for size, seed in each.search.wanted()
    ]


def _take(each: Sized, size: int, seed: int, result: TrialResult) -> None:
    if result.status is Status.success:
        try:
            value = objective_of(each.configuration.setting, result)
        except ValueError as error:  # the trial has its workload's objective, and succeeded by it
            _fail(each, size, Status.failed, str(error))
            return
        each.runs.append(Run(size, seed, value))
        each.search.take(size, seed, each.base.slowdown(value))
    else:
        _fail(each, size, result.status, result.error)


def _fail(each: Sized, size: int, status: Status, reason: str) -> None:
    if not each.failure:
        first, *_ = reason.splitlines() or [""]
        each.status = status
        each.failure = f"at {each.gib(size):.4g} GiB: {status}: {first}"
