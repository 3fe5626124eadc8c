# SPDX-License-Identifier: MIT
"""A pool of one child process, which starts in a fraction of Ray's five seconds."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

from tuner.run.pool import Flight, Runner, execute, hard_limit, overdue
from tuner.run.trial import Status, Trial, TrialResult


class ProcessPool:
    """One worker in a child process that is replaced when it dies."""

    workers = 1

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        # spawn: the parent has threads (tracking, Ray's start), which fork does not survive.
        self._context = multiprocessing.get_context("spawn")
        self._running: Flight | None = None
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
        self._launch(Flight(trial, time.monotonic()))

    def _launch(self, flight: Flight) -> None:
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
            result = flight.without_result(Status.timeout, overdue(limit))
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
