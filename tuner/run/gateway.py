# SPDX-License-Identifier: MIT
"""A Ray cluster that may be gone for a while: its head restarts, or its network is cut.

Ray ends a process whose cluster is gone, at a moment of its own choice, so that only another
process can outlive it. All of Ray therefore runs in a child process, the gateway. When that has
ended, what is lost are the trials in flight: another gateway joins the cluster as soon as there is
one again, and they are started again in it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

from tuner.errors import UserError
from tuner.run import admission
from tuner.run.asking import host_and_port, knock
from tuner.run.pool import PoolLost, Runner
from tuner.run.process_pool import die_with_parent
from tuner.run.ray_pool import RayPool
from tuner.run.trial import Trial, TrialResult
from tuner.text import clock

PATIENCE_SECONDS = 600.0
"""For a cluster to come back."""
PAUSE_SECONDS = 2.0
"""From the start of an attempt to join it to that of the next."""
POLL_SECONDS = 0.02
"""Between two looks for trials to start, while others run."""
CLOSE_SECONDS = 20.0

Message = tuple[str, str]
"""From the gateway: "joined"; "refused" and why; "result" and it; "warning" and its text. The
parent adds "gone"."""

logger = logging.getLogger(__name__)


class ClusterPool:
    """Workers of the cluster at `address`, HOST:PORT. UserError if it does not answer.

    Args:
        patience: seconds for which it may be gone.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        workers: int,
        address: str,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        admission.check(address)
        self.workers = workers
        self._address = address
        self._patience = patience
        self._arguments = (runner, workers, address)
        # spawn: the parent has threads, which fork does not survive.
        self._context = multiprocessing.get_context("spawn")
        self._flights: dict[tuple[str, int], Trial] = {}  # by study and number
        self._joined = False
        self._gone: float | None = None  # since when
        self._start()
        kind, content = self._message(None)
        if kind != "joined":
            self._end(0)
            raise UserError(content)
        self._joined = True

    def _start(self) -> None:
        self._started = time.monotonic()
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(*self._arguments, theirs), name="tune-gateway", daemon=True
        )
        self._process.start()
        theirs.close()

    def submit(self, trial: Trial) -> None:
        self._flights[trial.study, trial.number] = trial
        if self._joined:
            self._send(trial)

    def _send(self, trial: Trial) -> None:
        with contextlib.suppress(OSError):  # wait() sees that it is gone
            self._pipe.send(trial.model_dump_json())

    def wait(self, timeout: float) -> list[TrialResult]:
        until = time.monotonic() + timeout
        results: list[TrialResult] = []
        while self._flights:
            left = max(0.0, until - time.monotonic())
            kind, content = self._message(0 if results else left)
            if not kind:
                break
            if kind == "result":
                result = TrialResult.model_validate_json(content)
                del self._flights[result.study, result.number]
                results.append(result)
            elif kind == "warning":
                logger.warning(content)
            elif kind == "joined":
                self._rejoined()
            else:
                self._again(content, left)
        return results

    def _message(self, seconds: float | None) -> Message:
        """The next one; an empty one if none comes in time, and without end if None."""
        try:
            if self._pipe.poll(seconds):
                kind, content = self._pipe.recv()
                return kind, content
        except (EOFError, OSError):
            return "gone", f"no Ray cluster answers at {self._address}: its process ended"
        return "", ""

    def _rejoined(self) -> None:
        self._joined, self._gone = True, None
        logger.warning("the cluster at %s is back", self._address)
        for trial in self._flights.values():
            self._send(trial)

    def _again(self, reason: str, seconds: float) -> None:
        """After the end of a gateway: starts another, unless that would be too soon and not come
        to be within so many seconds. PoolLost if the cluster has been gone for too long."""
        now = time.monotonic()
        if self._gone is None:
            self._joined, self._gone = False, now
            logger.warning(
                "the cluster at %s is gone; what ran there starts again when it is back",
                self._address,
            )
        if now - self._gone > self._patience:
            raise PoolLost(
                f"the cluster at {self._address} has been gone for {clock(now - self._gone)} "
                f"({reason}); repeat the command to continue; `tune run` also needs --resume"
            )
        pause = max(0.0, self._started + PAUSE_SECONDS - now)
        time.sleep(min(pause, seconds))
        if pause <= seconds:
            self._end(0)
            self._start()

    def _end(self, seconds: float) -> None:
        """Ends the gateway, which has some time to do so by itself."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    def close(self) -> None:
        self._flights.clear()
        with contextlib.suppress(OSError):
            self._pipe.send("")
        self._end(CLOSE_SECONDS if self._joined else 0)


# --- The gateway ----------------------------------------------------------------------------------


def _serve(runner: Runner, workers: int, address: str, pipe: Connection) -> None:
    """Trials come in and results go out until the parent closes the pipe or dies."""
    os.setsid()  # Ctrl-C at the terminal is for the study
    die_with_parent()
    logging.getLogger("tuner").addHandler(_Teller(pipe))
    # When Ray ends this process, it says at length why.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    try:
        if place := host_and_port(address):
            knock(*place)  # Ray would look for its head for a minute
        pool = RayPool(runner, workers=workers, address=address)
    except UserError as error:
        pipe.send(("refused", str(error)))
        return
    pipe.send(("joined", ""))
    flying = 0
    with contextlib.closing(pool), contextlib.suppress(EOFError, OSError):
        while True:
            while pipe.poll(0 if flying else None):
                trial = pipe.recv()
                if not trial:
                    return
                pool.submit(Trial.model_validate_json(trial))
                flying += 1
            for result in pool.wait(POLL_SECONDS):
                pipe.send(("result", result.model_dump_json()))
                flying -= 1


class _Teller(logging.Handler):
    """Passes on to the parent what users are to know."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            self._pipe.send(("warning", self.format(record)))
