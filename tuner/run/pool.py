# SPDX-License-Identifier: MIT
"""Where trials run: worker processes whose death does not end the study.

A pool runs `runner(trial)` on other processes and hands back one TrialResult per trial, whatever
happened: a runner that raises, hangs past its deadline or takes its process down costs its own
trial and nothing else. A trial whose process died is repeated once, on a stream that is verified as
a whole before: damage of its file may have been the reason. What a host is to blame for is repeated
on another.

Pools with the same behaviour: `RayPool` (a local Ray instance, or a cluster), `ClusterPool` around
it, which outlives the cluster, and, for a single worker, `ProcessPool`: one child process, which
starts in a fraction of Ray's five seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import math
import multiprocessing
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from tuner.errors import UserError, limited
from tuner.run import streams
from tuner.run.cluster import Node, is_node
from tuner.run.local_ray import LocalRay, job_config, kept_handler, prepare_environment
from tuner.run.trial import Status, Trial, TrialResult

Runner = Callable[[Trial], TrialResult]
"""Runs one trial. Must be importable by name in another process (no lambda, no closure)."""

GRACE_SECONDS = 60.0
"""Wall-clock time to start a worker and to make a stream that its host does not have."""

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


def open_pool(runner: Runner, *, workers: int, ray_address: str | None = None) -> Pool:
    """A pool of `workers` workers. UserError if a cluster does not answer."""
    if ray_address is not None:
        from tuner.run.gateway import ClusterPool

        return ClusterPool(runner, workers=workers, address=ray_address)
    return ProcessPool(runner) if workers == 1 else RayPool(runner, workers=workers)


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
class _Flight:
    """A trial that runs; `repeated` if its process has died before, after so many other `hosts`
    that failed. `node` is where it was sent, if it was not left to Ray."""

    trial: Trial
    started: float
    repeated: bool = False
    hosts: int = 0
    node: str = ""

    def again(self, reason: str, *, host: bool = False) -> _Flight:
        logger.warning("trial %d: %s, started again", self.trial.number, reason)
        repeated, hosts = self.repeated or not host, self.hosts + host
        return _Flight(self.trial, time.monotonic(), repeated=repeated, hosts=hosts)

    def message(self) -> tuple[str, bool]:
        """What `execute` is told."""
        return self.trial.model_dump_json(), self.repeated

    def without_result(self, status: Status, error: str) -> TrialResult:
        return without_result(self.trial, status, error, time.monotonic() - self.started)


def _overdue(limit: float) -> str:
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
        result = without_result(trial, Status.timeout, _line(error), time.monotonic() - start)
    except Exception as error:  # whatever a runner raises is the trial's failure, not the study's
        result = without_result(trial, Status.failed, _line(error), time.monotonic() - start)
    return result.model_dump_json()


def _line(error: BaseException) -> str:
    if isinstance(error, MemoryError) and (found := limited(error)):
        return found
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- One child process ----------------------------------------------------------------------------


class ProcessPool:
    """One worker in a child process that is replaced when it dies."""

    workers = 1

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        # spawn: the parent has threads (tracking, Ray's start), which fork does not survive.
        self._context = multiprocessing.get_context("spawn")
        self._running: _Flight | None = None
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(self._runner, theirs), name="tune-worker", daemon=True
        )
        self._process.start()
        theirs.close()

    def submit(self, trial: Trial) -> None:
        if self._running is not None:
            raise RuntimeError("the pool's one worker is busy")
        if not self._process.is_alive():  # it died while idle, through no fault of this trial
            self._start()
        self._launch(_Flight(trial, time.monotonic()))

    def _launch(self, flight: _Flight) -> None:
        self._running = flight
        with contextlib.suppress(BrokenPipeError):  # wait() sees a death and accounts for it
            self._pipe.send(flight.message())

    def wait(self, timeout: float) -> list[TrialResult]:
        if self._running is None:
            return []
        flight = self._running
        limit = hard_limit(flight.trial)
        left = flight.started + limit - time.monotonic()
        if self._pipe.poll(max(0.0, min(timeout, left))):
            try:
                result = TrialResult.model_validate_json(self._pipe.recv())
            except (EOFError, ConnectionResetError):
                self._process.join()
                reason = f"its worker process {_death(self._process.exitcode)}"
                self._start()
                if not flight.repeated:
                    self._launch(flight.again(reason))
                    return []
                result = flight.without_result(Status.crashed, f"{reason}, twice")
        elif time.monotonic() - flight.started >= limit:
            result = flight.without_result(Status.timeout, _overdue(limit))
            self._kill()
            self._start()
        else:
            return []
        self._running = None
        return [result]

    def _kill(self) -> None:
        # The worker leads its own process group: what the runner started is killed with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()  # in case it had not yet made its group
        self._process.join()
        self._pipe.close()

    def close(self) -> None:
        self._running = None
        self._kill()


def _serve(runner: Runner, pipe: Connection) -> None:
    """The child: trials come in until the parent closes the pipe or dies."""
    os.setsid()  # Ctrl-C at the terminal is for the study, which decides what happens to trials
    die_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            pipe.send(execute(runner, *pipe.recv()))


PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """A study that is killed takes its worker along, also in the middle of a trial. (For the kernel
    the parent is the thread that started the worker: the main one.)"""
    parent = multiprocessing.parent_process()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and parent.pid != os.getppid():  # it died before
        os._exit(1)


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"was killed by {signal.Signals(-exitcode).name}"
    return f"exited with {exitcode}"


# --- Ray ------------------------------------------------------------------------------------------


def _on_node(runner: Runner, trial_json: str, repeated: bool) -> tuple[str, str]:
    """Runs in Ray's worker: the node's identity, and what `execute` returns."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return str(node), execute(runner, trial_json, repeated)


class RayPool:
    """Workers of a local Ray instance of our own, or of the cluster at `address`.

    A process that already has Ray initialised (a notebook, a test) shares it and keeps it.
    """

    def __init__(self, runner: Runner, *, workers: int, address: str | None = None) -> None:
        # All must be set before the import.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if address is None:
            prepare_environment()
        import ray

        self._ray = ray
        self.workers = workers
        self._address = address
        self._local: LocalRay | None = None
        self._node: Node | None = None
        self._owner = not ray.is_initialized()
        if self._owner:
            self._connect(address)
        # max_retries: Ray would run a trial that kills its worker three more times.
        self._execute = ray.remote(num_cpus=1, max_retries=0)(_on_node)
        self._runner = ray.put(runner)
        self._flights: dict[Any, _Flight] = {}
        self._unfit: set[str] = set()  # nodes that have failed trials for reasons of their own
        self._seen = time.monotonic()  # that the cluster had a CPU for each trial

    def _connect(self, address: str | None) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            try:
                self._local = LocalRay(self._ray, workers=self.workers, **quiet)
            except UserError:
                raise
            except Exception as error:  # Ray raises anything here, also a plain Exception
                self._ray.shutdown()
                raise UserError(
                    f"Ray does not start here: {_line(error).splitlines()[0]}; it needs a short "
                    "TMPDIR with some room; --workers 1 runs without Ray"
                ) from error
            return
        try:
            with kept_handler():
                if not is_node(address):
                    self._node = Node(address)
                self._ray.init(address=address, job_config=job_config(), **quiet)
        except ConnectionError as error:
            self._leave()
            raise UserError(f"no Ray cluster answers at {address}: {_line(error)}") from error
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        if self._node is not None:
            self._node.close()

    def submit(self, trial: Trial) -> None:
        self._launch(_Flight(trial, time.monotonic()))

    def _launch(self, flight: _Flight) -> None:
        remote = self._execute.options(**self._placed(flight))
        self._flights[remote.remote(self._runner, *flight.message())] = flight

    def _placed(self, flight: _Flight) -> dict[str, Any]:
        """Ray's options: none, unless there are nodes to be avoided, and others."""
        if not self._unfit:
            return {}
        cpus = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in self._nodes()}
        fit = {node: have for node, have in cpus.items() if have >= 1 and node not in self._unfit}
        if not fit:
            self._unfit.clear()  # they may have recovered, and nothing is left to lose
            return {}
        busy = Counter(each.node for each in self._flights.values())
        flight.node = min(fit, key=lambda node: busy[node] / fit[node])
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(flight.node, soft=False)}

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def wait(self, timeout: float) -> list[TrialResult]:
        if not self._flights:
            self._seen = time.monotonic()
            return []
        self._refuse_dead()
        clock = time.monotonic()
        left = min(f.started + hard_limit(f.trial) - clock for f in self._flights.values())
        ready, _ = self._ray.wait(
            list(self._flights), num_returns=1, timeout=max(0.0, min(timeout, left))
        )
        self._refuse_dead()  # it may be why they are ready
        results = [self._collect(reference) for reference in ready]
        self._excuse_waiting()
        clock = time.monotonic()
        for reference, flight in list(self._flights.items()):
            limit = hard_limit(flight.trial)
            if clock - flight.started >= limit:
                del self._flights[reference]
                self._ray.cancel(reference, force=True)
                results.append(flight.without_result(Status.timeout, _overdue(limit)))
        return [result for result in results if result is not None]

    def _excuse_waiting(self) -> None:
        """While a cluster has fewer CPUs than we have trials, some of them wait for one, and which
        is not known: the time counts for none."""
        now = time.monotonic()
        if self._address is not None and any(
            f.trial.deadline_seconds for f in self._flights.values()
        ):
            cpus = sum(node["Resources"].get("CPU", 0.0) for node in self._nodes())
            if cpus < len(self._flights):
                for flight in self._flights.values():
                    flight.started += now - max(self._seen, flight.started)
        self._seen = now

    def _refuse_dead(self) -> None:
        if self._local is not None and not self._local.alive:
            raise PoolLost(
                "the local Ray instance has died (was it killed, or short of memory?); "
                "the same command goes on, of a study with --resume"
            )

    def _collect(self, reference: Any) -> TrialResult | None:
        """The result, or None if the trial was started again because its process or host died, or
        its host could not run it."""
        flight = self._flights.pop(reference)
        errors = self._ray.exceptions
        try:
            node, answer = self._ray.get(reference)
        except errors.WorkerCrashedError:
            reason = "its worker process died (killed, out of memory, or a fault in the engine)"
            if flight.repeated:
                return flight.without_result(Status.crashed, f"{reason}, twice")
            self._launch(flight.again(reason))
            return None
        except (
            errors.NodeDiedError,
            errors.LocalRayletDiedError,
            errors.OutOfMemoryError,
            errors.TaskUnschedulableError,
        ) as error:
            reason = f"its host failed ({type(error).__name__})"
            result = flight.without_result(Status.crashed, reason)
        except errors.RayError as error:
            return flight.without_result(Status.crashed, _line(error).splitlines()[0])
        else:
            result = TrialResult.model_validate_json(answer)
            if not result.host_failed or self._local is not None:  # there is no other host
                return result
            reason = f"{result.host}: {result.error}"
            self._unfit.add(node)
        if flight.hosts + 1 == MOST_HOSTS:
            return result
        self._launch(flight.again(reason, host=True))
        return None

    def close(self) -> None:
        if self._local is None or self._local.alive:
            for reference in self._flights:
                self._ray.cancel(reference, force=True)
        self._flights.clear()
        if self._local is not None:
            self._local.close()
        elif self._owner:
            self._ray.shutdown()
        self._leave()
