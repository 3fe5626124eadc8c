# SPDX-License-Identifier: MIT
"""A confined container: no network, no capabilities, no rights of this user, a root that it cannot
write, a small scratch folder in memory, and limits of memory, processors and processes.

Each container bears a label with the process that it belongs to. A guard beside that process
removes it when the process is gone, however it ended; should the guard be gone as well, the next
process that makes a container on the host does. Containers of processes that live, and of other
hosts, are left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
from tuner import text
from tuner.errors import UserError, brief
from tuner.run import local_ray
from tuner.run.isolation import Isolation, default_image
from tuner.run.metric import Failed
from tuner.run.trial import Status

LABEL = "tiertune.owner"

SCRATCH = "/tmp"
SCRATCH_BYTES = 64 << 20
PROCESSES = 64
NOBODY = 65534

LONGEST_ANSWER = 16 << 20
"""Bytes of a line of standard output, and of all of it that `finish` gives."""

KEPT_LOG = 4096
"""Last bytes of standard error that are kept."""

GUARD = """
import os, sys
if os.fork():  # no child of the worker's: Ray ends a worker's children with it
    os._exit(0)
left = set()
for line in sys.stdin:
    (left.add if line[0] == "+" else left.discard)(line[1:].strip())
if left:
    import docker
    client = docker.from_env()
    for container in left:
        try:
            client.api.remove_container(container, force=True)
        except docker.errors.APIError:
            pass
"""


class Died(Failed):
    """The container ended by itself. `for_good`: another one would end in the same way."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(Status.crashed, message)
        self.for_good = for_good


# --- The Docker Engine ----------------------------------------------------------------------------


def connect() -> Any:
    """The Docker Engine's client. UserError, with what to do, if none answers."""
    found = None
    try:
        found = docker.from_env(timeout=60)
        found.ping()
    except Exception as error:  # docker.errors, requests' and whatever lies beneath
        if found is not None:
            found.close()
        where = os.environ.get("DOCKER_HOST", "/var/run/docker.sock")
        last = str(error).splitlines()[-1] if str(error) else type(error).__name__
        raise UserError(
            f"no Docker Engine answers at {where} ({brief(last, 120)}): start it, or set "
            "DOCKER_HOST, or leave out --runner container"
        ) from error
    return found


def image_id(name: str) -> str:
    """Of an image whose containers can run here. UserError if there is no Docker Engine, no such
    image, or one for another processor."""
    client = connect()
    try:
        image = _image(client, name)
        wanted, has = client.version()["Arch"], image.attrs["Architecture"]
    finally:
        client.close()
    if has and wanted != has:
        raise UserError(
            f"--image: {name} is for {has}, this Docker Engine runs {wanted}: build it here "
            "(`make image`)"
        )
    return str(image.id)


def _image(client: Any, name: str) -> Any:
    try:
        return client.images.get(name)
    except docker.errors.ImageNotFound as error:
        own = name == default_image()
        raise UserError(
            f"the Docker Engine has no image {brief(name)}: "
            + ("`make image` builds it" if own else "pull or build it, or leave out --image")
        ) from error
    except docker.errors.APIError as error:
        raise UserError(f"--image: found '{brief(name)}': {error.explanation}") from error


def _confined(isolation: Isolation) -> dict[str, Any]:
    """How the Docker SDK is told."""
    memory = int(isolation.memory_gib * (1 << 30))
    return {
        "user": f"{os.getuid() or NOBODY}:{os.getgid() or NOBODY}",
        "network_mode": "none",
        "read_only": True,
        "tmpfs": {SCRATCH: f"size={SCRATCH_BYTES},mode=1777"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": int(isolation.cpus * 1e9),
        "pids_limit": PROCESSES,
        "log_config": {"type": "none"},  # what it says is read here, and fills no disk
        "init": True,
    }


# --- One container --------------------------------------------------------------------------------


class Container:
    """A running container, and the two ends of its standard input and output.

    Args:
        command: in place of the image's own, and of its entry point.
        mounts: files and folders of this host that it can read, and where it has them.

    Raises:
        Failed: it cannot be made or started.
        UserError: no Docker Engine answers.
    """

    def __init__(
        self,
        isolation: Isolation,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        mounts: Mapping[Path, str],
    ) -> None:
        self._isolation = isolation
        self._client = connect()
        _remove_dead(self._client)
        self._guard = _guard()
        self._connection: Any = None
        self._out = bytearray()
        self.log = b""
        try:
            created = self._client.containers.create(
                isolation.image,
                list(command[1:]),
                entrypoint=list(command[:1]),
                stdin_open=True,
                labels={LABEL: owner()},
                volumes={str(p): {"bind": there, "mode": "ro"} for p, there in mounts.items()},
                environment={"HOME": SCRATCH, **environment},
                **_confined(isolation),
            )
        except docker.errors.APIError as error:
            self._client.close()
            reason = f"no container of {isolation.image}: {error.explanation or error}"
            raise Failed(Status.failed, reason) from error
        self.id = str(created.id)
        try:
            self._tell_guard("+")
            self._start()
        except BaseException:
            self.remove()
            raise

    def _start(self) -> None:
        asked = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._connection = self._client.api.attach_socket(self.id, params=asked)
        self._socket = getattr(self._connection, "_sock", self._connection)
        try:
            self._client.api.start(self.id)
        except docker.errors.APIError as error:
            reason = f"its container does not start: {error.explanation or error}"
            raise Failed(Status.failed, reason) from error

    def _tell_guard(self, sign: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):  # without it the next process removes what is left
            self._guard.stdin.write(f"{sign}{self.id}\n".encode())
            self._guard.stdin.flush()

    def send(self, line: bytes, until: float | None) -> None:
        """A line on standard input. Failed if it is not taken before `until`, of the monotonic
        clock; None: for ever."""
        try:
            self._socket.settimeout(_left(until))
            self._socket.sendall(line + b"\n")
        except TimeoutError:
            raise _overdue() from None
        except OSError:
            raise self._death() from None

    def receive(self, until: float | None) -> bytes:
        """The next line of standard output. Failed if there is none before `until`."""
        searched = 0
        while (end := self._out.find(b"\n", searched)) < 0:
            searched = len(self._out)
            if not self._take(until):
                raise self._death()
        line = bytes(self._out[:end])
        del self._out[: end + 1]
        return line

    def finish(self, until: float | None) -> bytes:
        """Waits for its end: all that is left of standard output. Failed if it has not ended well
        before `until`."""
        while self._take(until):
            pass
        death = self._death()
        if death.code != 0:
            raise death
        return bytes(self._out)

    def _take(self, until: float | None) -> bool:
        """Takes what it says next; False at its end."""
        head = self._read(8, until)
        if not head:
            return False
        kind, size = struct.unpack(">BxxxL", head)
        if kind == 2:
            self.log = (self.log + self._read(size, until))[-KEPT_LOG:]
        else:
            self._out += self._read(size, until)
            if len(self._out) > LONGEST_ANSWER:
                said = f"its container says more than {text.size(LONGEST_ANSWER)} at a time"
                raise Failed(Status.failed, said)
        return True

    def _read(self, size: int, until: float | None) -> bytes:
        """So many bytes; none at the end of the container."""
        parts = []
        while size:
            try:
                self._socket.settimeout(_left(until))
                part = self._socket.recv(min(size, 1 << 20))
            except TimeoutError:
                raise _overdue() from None
            except OSError:
                part = b""
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _death(self) -> _Ended:
        """Why it ended."""
        try:
            self._client.api.wait(self.id, timeout=10)
            state = self._client.api.inspect_container(self.id)["State"]
        except (docker.errors.APIError, OSError) as error:
            return _Ended(-1, f"its container is gone ({type(error).__name__})")
        if state["OOMKilled"]:
            allowed = f"--memory allows {self._isolation.memory_gib:g} GiB"
            return _Ended(-1, f"its container ran out of memory: {allowed}", for_good=True)
        said = self.log.decode(errors="replace").strip().splitlines()
        last = f": {brief(said[-1], 200)}" if said else ""
        return _Ended(state["ExitCode"], f"its container exited with {state['ExitCode']}{last}")

    def remove(self) -> None:
        if self._connection is not None:
            # First: the Docker Engine ends no container whose output it cannot get rid of.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._connection.close()
        with contextlib.suppress(docker.errors.APIError, OSError):
            self._client.api.remove_container(self.id, force=True)
            self._tell_guard("-")
        self._client.close()


class _Ended(Died):
    def __init__(self, code: int, message: str, *, for_good: bool = False) -> None:
        super().__init__(message, for_good=for_good)
        self.code = code


def _left(until: float | None) -> float | None:
    """Seconds for a socket; it takes 0 for `do not wait`."""
    return None if until is None else max(0.001, until - time.monotonic())


def _overdue() -> Failed:
    return Failed(Status.timeout, "its container was killed: still running past its deadline")


# --- What outlives its process --------------------------------------------------------------------

_guards: list[subprocess.Popen[bytes]] = []


def _guard() -> subprocess.Popen[bytes]:
    """The process that removes what this one leaves when it dies."""
    if not _guards:
        command = [sys.executable, "-P", "-c", GUARD]
        # It outlives the worker that has started it, and so must not look like one: what ends the
        # workers of a driver that was killed goes by their environment.
        environment = {k: v for k, v in os.environ.items() if k != local_ray.VARIABLE}
        _guards.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # who reads ours must not wait for it
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
    return _guards[0]


@atexit.register
def _dismiss_guard() -> None:
    for guard in _guards:
        assert guard.stdin is not None
        with contextlib.suppress(OSError):  # it was killed
            guard.stdin.close()
        guard.wait()


def owner() -> str:
    """This process, told apart from all others of all hosts and times."""
    return f"{socket.gethostname()} {_boot()} {os.getpid()} {_start_of(str(os.getpid()))}"


def _remove_dead(client: Any) -> None:
    """Removes containers of processes of this host that are no more."""
    for container in client.api.containers(all=True, filters={"label": LABEL}):
        host, boot, pid, start = (container["Labels"][LABEL].split() + [""] * 4)[:4]
        alive = boot == _boot() and start == _start_of(pid)
        if host == socket.gethostname() and not alive:
            with contextlib.suppress(docker.errors.APIError):  # another process removes it
                client.api.remove_container(container["Id"], force=True)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_of(pid: str) -> str:
    """When a process started; empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""
