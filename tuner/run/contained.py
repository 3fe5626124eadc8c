# SPDX-License-Identifier: MIT
"""Trials in containers: `run(trial) -> result` as in `tuner.run.runner`, behind the same seam.

`EngineRunner` replays streams with the engine of our own image. A worker keeps one container, warm,
and sends it one trial after the other (`tuner.run.serve`); it makes the streams, which the
container can only read. `CommandRunner` starts a container of the user's image for each trial, and
finds its metric in what the command prints.

What happens in a container costs its own trial: past its deadline, or dead, the container is
removed, and the next trial gets a new one.
"""

from __future__ import annotations

import atexit
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tuner import engine
from tuner.documents.reading import parse_json
from tuner.errors import UserError, brief
from tuner.run import metric, streams
from tuner.run.container import Container, Died
from tuner.run.isolation import Isolation
from tuner.run.metric import Failed
from tuner.run.pool import GRACE_SECONDS, without_result
from tuner.run.trial import RecordedStream, Status, Trial, TrialResult

STREAMS, RECORDING = "/streams", "/recording.tts"
"""Where a container has the cache and a recording."""

SERVE = ("python", "-P", "-u", "-m", "tuner.run.serve")


@dataclass(frozen=True)
class EngineRunner:
    """Can be sent to another process, as any runner."""

    isolation: Isolation

    def __call__(self, trial: Trial) -> TrialResult:
        started = time.monotonic()
        try:
            return self._run(trial)
        except Failed as failure:
            _discard(self.isolation)
            seconds = time.monotonic() - started
            return without_result(trial, failure.status, str(failure), seconds)
        except (UserError, OSError, RuntimeError) as error:  # of streams, and the Docker Engine
            _discard(self.isolation)
            seconds = time.monotonic() - started
            result = without_result(trial, Status.failed, str(error), seconds)
            return result.model_copy(update={"host_failed": True})

    def _run(self, trial: Trial) -> TrialResult:
        path = streams.ensure(trial.stream)
        try:
            result = self._attempt(trial, path)
            if result.status is not Status.failed or _sound(path):
                return result
        except Died as died:
            if died.for_good:
                raise
        # Once more, on a stream that is verified, as a pool does with a trial whose process died.
        _discard(self.isolation)
        streams.invalidate(trial.stream)
        try:
            return self._attempt(trial, streams.ensure(trial.stream))
        except Died as died:
            raise Died(f"{died}, twice") from died

    def _attempt(self, trial: Trial, path: Path) -> TrialResult:
        started = time.monotonic()
        recording = path if isinstance(trial.stream, RecordedStream) else None
        server = _warm(self.isolation, recording)
        if server.engine_build != trial.engine_build:
            raise UserError(
                f"the trial was made for engine build {trial.engine_build}, but image "
                f"{self.isolation.image} has {server.engine_build}; `make image` builds another"
            )
        inside = RecordedStream(
            workload=trial.stream.workload,
            input=trial.stream.input,
            trace=RECORDING if recording else f"{STREAMS}/{path.name}",
            content=engine.stream_info(path)["identity"],
        )
        until = _deadline(trial, started)
        moved = trial.model_copy(update={"stream": inside})
        server.container.send(moved.model_dump_json().encode(), until)
        answer = server.container.receive(until)
        try:
            result = TrialResult.model_validate_json(answer)
        except ValidationError as error:
            said = brief(answer[:80].decode(errors="replace"))
            raise Failed(Status.failed, f"its container answers '{said}'") from error
        if (result.study, result.number) != (trial.study, trial.number):
            raise Failed(Status.failed, f"its container answers trial {result.number}")
        seconds = time.monotonic() - started
        return result.model_copy(update={"host": socket.gethostname(), "seconds": seconds})


def _deadline(trial: Trial, started: float) -> float | None:
    """When its container is killed: the engine keeps a trial's deadline, unless it no longer
    can."""
    if trial.deadline_seconds is None:
        return None
    return started + 1.1 * trial.deadline_seconds + GRACE_SECONDS / 4


def _sound(path: Path) -> bool:
    try:
        streams.verify(path)
    except streams.CorruptStream:
        return False
    return True


class _Server:
    """A warm container that runs trials on the streams of the cache, or on one recording."""

    def __init__(self, isolation: Isolation, recording: Path | None) -> None:
        self.recording = recording
        self.container = Container(
            isolation,
            SERVE,
            environment={"TIERTUNE_CACHE": "/tmp/cache"},
            mounts={recording: RECORDING} if recording else {streams.folder(): STREAMS},
        )
        try:
            self.engine_build = _hello(self.container, GRACE_SECONDS)
        except BaseException:
            self.container.remove()
            raise


def build_of(isolation: Isolation, seconds: float = GRACE_SECONDS) -> str:
    """The engine build that a new container says it has. Failed if none starts, or it does not
    answer in time."""
    container = Container(isolation, SERVE, environment={"TIERTUNE_CACHE": "/tmp/cache"}, mounts={})
    try:
        return _hello(container, seconds)
    finally:
        container.remove()


def _hello(container: Container, seconds: float) -> str:
    hello = container.receive(time.monotonic() + seconds)
    try:
        return str(parse_json(hello)["engine_build"])
    except (ValueError, KeyError, TypeError) as error:
        said = brief(hello[:80].decode(errors="replace"))
        raise Failed(Status.failed, f"its container answers '{said}'") from error


_servers: dict[Isolation, _Server] = {}


def _warm(isolation: Isolation, recording: Path | None) -> _Server:
    """This process's server."""
    found = _servers.get(isolation)
    if found is None or found.recording != recording:
        _discard(isolation)
        found = _servers[isolation] = _Server(isolation, recording)
    return found


def _discard(isolation: Isolation) -> None:
    if found := _servers.pop(isolation, None):
        found.container.remove()


@atexit.register
def _discard_all() -> None:
    for isolation in list(_servers):
        _discard(isolation)


# --- The user's own command -----------------------------------------------------------------------


@dataclass(frozen=True)
class CommandRunner:
    """Runs `isolation.command` for each trial, and finds `isolation.metric` in what it prints.

    The command has the trial in its environment (`metric.environment`).
    """

    isolation: Isolation

    def __call__(self, trial: Trial) -> TrialResult:
        started = time.monotonic()
        log = b""
        try:
            container = Container(
                self.isolation,
                self.isolation.command or (),
                environment=metric.environment(trial),
                mounts={},
            )
            try:
                until = trial.deadline_seconds and started + trial.deadline_seconds
                printed = container.finish(until)
            finally:
                log = container.log
                container.remove()
            return self._result(trial, printed, started)
        except Failed as failure:
            seconds = time.monotonic() - started
            result = without_result(trial, failure.status, str(failure), seconds)
            return result.model_copy(update={"log": log.decode(errors="replace")})

    def _result(self, trial: Trial, printed: bytes, started: float) -> TrialResult:
        assert self.isolation.metric is not None
        found = metric.matches(self.isolation.metric, printed)
        if not found:
            raise Failed(Status.failed, f"its command printed nothing like {self.isolation.metric}")
        value, named = metric.values(found[-1])
        return metric.result(trial, metric.positive(value), named, started)
