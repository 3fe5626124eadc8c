"""A Ray instance of our own, which nobody else can reach and which leaves nothing behind.

Its servers listen on the loopback interface only, and ask for a token that is in the environment of
its processes alone. Ray binds to the address that it takes for its node's; with
RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, the default where Ray has no clusters, that is the loopback
address. Without it Ray listens on all interfaces, whatever `_node_ip_address` says: it replaces a
loopback address by that of the host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.run import guard

ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}

OBJECT_STORE = 128 << 20
"""Bytes of shared memory. Trials and results are small."""

CORE = {"raylet", "gcs_server"}

MARK = "tiertune.lock"
"""In the session folders that are ours; locked until their processes have ended."""

VARIABLE = "TIERTUNE_RAY"
"""By which the guard knows Ray's processes: only they have it, with a value of their own."""


def prepare_environment() -> None:
    """What of it the user's environment does not set. Ray reads it when it is imported: a process
    that has done so, a notebook for example, keeps Ray's own settings."""
    if "ray" in sys.modules:
        return
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


class LocalRay:
    """A running instance, which this process has started. Only one per process at a time."""

    def __init__(self, ray: Any, *, workers: int, **options: Any) -> None:
        # Ray's own default is 15: beside any other load trials would get next to no time.
        os.environ.setdefault("RAY_worker_niceness", "0")
        value = secrets.token_hex(16)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, f"{VARIABLE}={value}", MARK],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
        )
        os.environ[VARIABLE] = value
        try:
            with kept_handler():
                # "local": never join another cluster because RAY_ADDRESS is set.
                context = ray.init(
                    address="local",
                    num_cpus=workers,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE,
                    **options,
                )
            assert self._guard.stdin is not None
            os.write(self._guard.stdin.fileno(), b"\n")
        except BaseException:
            self._end_guard()
            raise
        finally:
            del os.environ[VARIABLE]
        self._ray = ray
        self._session = Path(context.address_info["session_dir"])
        _remove_dead(but=self._session)
        core = [pid for pid in _children(os.getpid()) if _name(pid) in CORE]
        self._core = [os.pidfd_open(pid) for pid in core]

    @property
    def alive(self) -> bool:
        """Whether the processes still run that all others depend on. Ray takes up to a minute to
        notice by itself, and then ends this process."""
        return not select.select(self._core, [], [], 0)[0]

    def close(self) -> None:
        """Ends it, and removes what it has on the disk."""
        self._ray.shutdown()
        self._end_guard()
        for end in self._core:
            os.close(end)
        shutil.rmtree(self._session, ignore_errors=True)

    def _end_guard(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


@contextlib.contextmanager
def kept_handler() -> Iterator[None]:
    """Ray takes SIGTERM over, and ends the process in the middle of what it does. One that comes
    within the block has its effect at the end."""
    before = signal.getsignal(signal.SIGTERM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit:
        signal.signal(signal.SIGTERM, before)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove_dead(*, but: Path) -> None:
    """Removes the session folders of our processes that were killed."""
    for mark in but.parent.glob(f"session_*/{MARK}"):
        if mark.parent == but:
            continue
        # Not if it is another user's, in use, or was just removed by another process.
        with contextlib.suppress(OSError), mark.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)


def _children(pid: int) -> list[int]:
    """Processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            # State, parent and so on stand behind the name, which may have any letters.
            if entry.name.isdigit():
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                if status[0] != "Z" and int(status[1]) == pid:
                    found.append(int(entry.name))
    return found


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
