# SPDX-License-Identifier: MIT
"""Where trials run: worker processes whose death does not end the study.

A pool runs `runner(trial)` on other processes and hands back one TrialResult per trial, whatever
happened: a runner that raises, hangs past its deadline or takes its process down costs its own
trial and nothing else. A trial whose process died is repeated once, on a stream that is verified as
a whole before: damage of its file may have been the reason. What a host is to blame for is repeated
on another.

Pools with the same behaviour: `ray_pool` (a local Ray instance, or a cluster), `gateway` around it,
which outlives the cluster, and, for a single worker, `process_pool`. `pools` chooses.
"""

from __future__ import annotations

import itertools
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.errors import UserError, limited
from tuner.run import streams
from tuner.run.trial import Status, Trial, TrialResult

Runner = Callable[[Trial], TrialResult]
"""Runs one trial. Must be importable by name in another process (no lambda, no closure). If it has
`resources`, they are Ray's, by name: what a node of a cluster must have and gives meanwhile."""

GRACE_SECONDS = 60.0
"""Wall-clock time to start a worker and to make a stream that its host does not have."""

SILENT_SECONDS = 5.0
"""Without a result, after which the hosts of a cluster are asked whether they are there."""

MOST_HOSTS = 5
"""That a trial is tried on. More than one fails it for reasons of their own, such as a full disk,
only where something is wrong with many."""

logger = logging.getLogger(__name__)


class PoolLost(UserError):
    """The workers are gone, and with them the trials that were running, but no result."""

    code = 1


class Pool(Protocol):
    """Trials in, results out, at most `workers` at a time. A result belongs to the trial of its
    study and number, so that trials of several studies may run side by side."""

    workers: int

    def submit(self, trial: Trial) -> None:
        """Starts the trial and returns at once."""

    def wait(self, timeout: float) -> list[TrialResult]:
        """Results that are available, or the first one within `timeout` wall-clock seconds.
        PoolLost if no trial can run any more."""

    def close(self) -> None:
        """Ends running trials, without results, and the processes."""


POLL_SECONDS = 1.0


def results_of(pool: Pool, trials: Sequence[Trial]) -> Iterator[TrialResult]:
    """Runs trials of different numbers, and yields their results as they come."""
    waiting = iter(trials)
    running = 0
    while True:
        for trial in itertools.islice(waiting, pool.workers - running):
            pool.submit(trial)
            running += 1
        if not running:
            return
        for result in pool.wait(POLL_SECONDS):
            running -= 1
            yield result


def hard_limit(trial: Trial) -> float:
    """Seconds after which a trial is killed. A runner keeps its own deadline; this is for one that
    no longer can, so it leaves room for the start of a worker."""
    if trial.deadline_seconds is None:
        return math.inf
    return 1.25 * trial.deadline_seconds + GRACE_SECONDS


def without_result(trial: Trial, status: Status, error: str, seconds: float) -> TrialResult:
    """What is recorded for a trial that did not come back with a result of its own."""
    return TrialResult(
        study=trial.study,
        number=trial.number,
        status=status,
        error=error,
        seconds=seconds,
        engine_build=trial.engine_build,
        host=socket.gethostname(),
    )


@dataclass
class Flight:
    """A trial that runs; `repeated` if its process has died before, after so many other `hosts`
    that failed. `node` is where it was sent, if it was not left to Ray."""

    trial: Trial
    started: float
    repeated: bool = False
    hosts: int = 0
    node: str = ""

    def again(self, reason: str, *, host: bool = False) -> Flight:
        logger.warning("trial %d: %s, started again", self.trial.number, reason)
        repeated, hosts = self.repeated or not host, self.hosts + host
        return Flight(self.trial, time.monotonic(), repeated=repeated, hosts=hosts)

    def message(self) -> tuple[str, bool]:
        """What `execute` is told."""
        return self.trial.model_dump_json(), self.repeated

    def without_result(self, status: Status, error: str) -> TrialResult:
        return without_result(self.trial, status, error, time.monotonic() - self.started)


def overdue(limit: float) -> str:
    return f"killed: still running {limit:.0f} s after its start"


def execute(runner: Runner, trial_json: str, repeated: bool) -> str:
    """Runs in the worker: the runner's result as JSON, or what went wrong as a result."""
    trial = Trial.model_validate_json(trial_json)
    start = time.monotonic()
    try:
        if repeated:
            streams.invalidate(trial.stream)
        result = runner(trial)
        if (result.study, result.number) != (trial.study, trial.number):
            raise ValueError(f"the runner answered trial {result.number} of {result.study}")
        if result.status is Status.success:
            for name, value in (("objective", result.objective), ("cost", result.cost)):
                if value is None or not (math.isfinite(value) and value > 0):
                    raise ValueError(f"the {name} is {value}, not a positive number")
    except TimeoutError as error:
        result = without_result(trial, Status.timeout, line(error), time.monotonic() - start)
    except Exception as error:  # whatever a runner raises is the trial's failure, not the study's
        result = without_result(trial, Status.failed, line(error), time.monotonic() - start)
    return result.model_dump_json()


def line(error: BaseException) -> str:
    if isinstance(error, MemoryError) and (found := limited(error)):
        return found
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
