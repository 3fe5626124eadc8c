# SPDX-License-Identifier: MIT
"""A Ray instance of our own, which nobody else can reach and which leaves nothing behind.

Its servers listen on the loopback interface only, and ask for a token that is in the environment of
its processes alone. Ray binds to the address that it takes for its node's; with
RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, the default where Ray has no clusters, that is the loopback
address. Without it Ray listens on all interfaces, whatever `_node_ip_address` says: it replaces a
loopback address by that of the host.

Ray makes its folder one that everybody may write, sockets included, in a place that everybody
knows. It therefore gets one within a folder that nobody else may enter.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.errors import UserError
from tuner.files import private_folder, remove_abandoned
from tuner.run import guard

DEFAULTS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}

OBJECT_STORE = 128 << 20
"""Bytes of shared memory. Trials and results are small."""

CORE = {"raylet", "gcs_server"}

PREFIX, SUFFIX = "tune-", ".ray"
"""Of the private folder, which is locked until the processes have ended."""

SESSION = "session_2026-01-02_03-04-05_678901_2345678"
SOCKET = f"/{PREFIX}12345678{SUFFIX}/r/{SESSION}/sockets/plasma_store"
"""What comes behind the folder for temporary files."""
LONGEST_SOCKET = 107  # bytes: Linux' limit
OTHER = Path("/tmp")
"""Where Ray's folder is if it cannot be where the others are."""

VARIABLE = "TIERTUNE_RAY"
"""By which the guard knows Ray's processes: only they have it, with a value of their own."""


def prepare_environment() -> None:
    """What of it the user's environment does not set. Ray reads it when it is imported: a process
    that has done so, a notebook for example, keeps Ray's own settings."""
    if "ray" in sys.modules:
        return
    for name, value in (DEFAULTS | ENVIRONMENT).items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def place() -> Path:
    """Where private folders of Ray can be: the folder for temporary files, or else OTHER. UserError
    if the paths would be too long, or others could put another folder in the place of ours."""
    reasons = []
    for parent in dict.fromkeys((Path(tempfile.gettempdir()), OTHER)):
        if len(os.fsencode(f"{parent}{SOCKET}")) > LONGEST_SOCKET:
            most = max(0, LONGEST_SOCKET - len(SOCKET))
            reasons.append(f"{parent}: Ray needs a TMPDIR of at most {most} bytes")
        elif not _is_safe(parent):
            reasons.append(f"{parent}: other users may rename what is in it (it should be 1777)")
        else:
            return parent
    raise UserError(f"{'; '.join(reasons)}; --workers 1 runs without Ray")


def _is_safe(parent: Path) -> bool:
    found = parent.stat()
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.geteuid()) and (
        not others_write or bool(found.st_mode & stat.S_ISVTX)
    )


def private(parent: Path) -> tuple[Path, int]:
    """A folder for Ray, and the descriptor of its lock. Those of processes that were killed are
    removed."""
    remove_abandoned(parent, PREFIX, SUFFIX)
    return private_folder(parent, PREFIX, SUFFIX)


def job_config() -> Any:
    """Of a job whose workers do not look for modules in the current folder of this process, which
    they do unless Ray's own client has started it."""
    from ray.job_config import JobConfig

    found = JobConfig()
    found._client_job = True
    return found


class LocalRay:
    """A running instance, which this process has started. Only one per process at a time."""

    def __init__(self, ray: Any, *, workers: int, **options: Any) -> None:
        # Ray's own default is 15: beside any other load trials would get next to no time.
        os.environ.setdefault("RAY_worker_niceness", "0")
        value = secrets.token_hex(16)
        self._folder, self._lock = private(place())
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, f"{VARIABLE}={value}"],
            stdin=subprocess.PIPE,
            pass_fds=[self._lock],
            start_new_session=True,  # Ctrl-C at the terminal is not for it
        )
        os.environ[VARIABLE] = value
        try:
            with kept_handler():
                # "local": never join another cluster because RAY_ADDRESS is set.
                ray.init(
                    address="local",
                    _temp_dir=str(self._folder / "r"),  # it opens the folder itself to everybody
                    job_config=job_config(),
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

    def _end_guard(self) -> None:
        """The folder goes when nothing runs in it any more."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


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
