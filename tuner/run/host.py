# SPDX-License-Identifier: MIT
"""A command that runs on this machine's own memory, and what tierd does to it meanwhile.

Only what is in the standard library and beside this file is imported, so that it runs where nothing
else of tune does (tests/live).

Whatever is started has a variable in its environment. A guard (`guard.py`) ends all that have it,
and then has tierd undo what was changed in the kernel's settings: when it is told to, or when this
process is gone, however that ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import platform
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.files import plain
from tuner.run import guard

VARIABLE = "TIERTUNE_LIVE"
LOCK = Path("/sys/devices/system/node")
"""Whose lock a live trial holds: there is one on a host, for everybody, and nothing to be made."""
CACHES = Path("/proc/sys/vm/drop_caches")
GRACE_SECONDS = 10.0
"""For a program that was told to end."""
TIERD_SECONDS = 60.0
"""For tierd to write settings. It takes milliseconds."""
REST_SECONDS = 1.0
"""In which what a program has said last is read, if children of it still could say something."""
SETTLE_SECONDS, LOOK_SECONDS, STILL_BYTES = 30.0, 0.5, 8 << 20
"""How long free memory is waited for, until it has changed by less from one look to the next."""
KEPT_OUTPUT, KEPT_LOG = 16 << 20, 4096
"""Last bytes of standard output and standard error."""
LONGEST_WAIT = 1_000_000.0
PROMOTED, DEMOTED = "promotions", "demotions"
"""Pages, as the simulator's metrics have them."""
MIGRATE_PAGES = {"x86_64": 256, "aarch64": 238}
"""Numbers of the system call migrate_pages(2)."""
NODE_WORDS = 16
"""Of 64 nodes each, in its masks."""


class Ended(Exception):
    """Why a run has no result. `log` is the end of what was said on standard error."""

    log = ""


class Overdue(Ended):
    """It still ran at its deadline."""


@dataclass(frozen=True)
class Run:
    """What is to be done.

    `apply` are words for tierd before the command is measured, and `attach` for the one beside it;
    none of both: no tiering. `seconds` are those of the window that is measured after the warm-up,
    None if the command ends by itself. With `fast` and `slow` it stays for other measurements:
    each of them begins with its pages moved from the ones of these nodes to the others.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    tierd: str
    apply: Sequence[str] = ()
    attach: Sequence[str] = ()
    warm_up: float = 0.0
    seconds: float | None = None
    deadline: float = math.inf
    processors: Sequence[int] = ()
    fast: Sequence[int] = ()
    slow: Sequence[int] = ()


@dataclass
class Ran:
    """`said` is standard output since the end of the warm-up; `seconds` from the start of the
    command, or of the window, to its end; `began` the wall clock at the start."""

    said: bytes
    seconds: float
    began: float
    counters: dict[str, float] = field(default_factory=dict)


def locked(*, wait: bool) -> int:
    """The host's lock, until the descriptor is closed. BlockingIOError if somebody has it, unless
    that is waited for."""
    lock = os.open(LOCK, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(lock)
        raise
    return lock


def settle() -> dict[str, float]:
    """Gives the page cache back, as far as this user may, and waits until free memory stands still:
    what is free on each node then."""
    os.sync()
    with contextlib.suppress(OSError), plain(CACHES, "ab") as file:
        file.write(b"3\n")
    before, until = _free(), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        now = _free()
        if all(abs(now[node] - before.get(node, 0)) < STILL_BYTES for node in now):
            return now
        before = now
    return before


def _free() -> dict[str, float]:
    found = {}
    for path in LOCK.glob("node[0-9]*/meminfo"):
        if said := re.search(r"MemFree: +(\d+) kB", path.read_text()):
            found[f"free_bytes.{path.parent.name}"] = float(said[1]) * 1024
    return found


def drain(processes: Sequence[int], fast: Sequence[int], slow: Sequence[int]) -> None:
    """Moves all pages of the processes that are on fast nodes to slow ones. Ended if it cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = MIGRATE_PAGES.get(platform.machine())
    if call is None:
        raise Ended(f"migrate_pages: its number on {platform.machine()} is not known")
    for process in processes:
        masks = [ctypes.byref(_mask(nodes)) for nodes in (fast, slow)]
        if libc.syscall(call, process, 64 * NODE_WORDS, *masks) < 0:
            error = ctypes.get_errno()
            if Path(f"/proc/{process}").exists():
                raise Ended(f"process {process}: its pages stay fast: {os.strerror(error)}")


def _mask(nodes: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    words = (ctypes.c_uint64 * NODE_WORDS)()
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    return words


class _Output(threading.Thread):
    """Takes what a program says, so that it never waits for a reader: the last bytes are kept."""

    def __init__(self, file: int, most: int) -> None:
        super().__init__(daemon=True)
        self._file, self._most = file, most
        self._said = bytearray()
        self._lock = threading.Lock()
        self.start()

    def run(self) -> None:
        while part := os.read(self._file, 1 << 16):
            with self._lock:
                self._said += part
                del self._said[: -self._most]

    def clear(self) -> None:
        with self._lock:
            self._said.clear()

    @property
    def said(self) -> bytes:
        with self._lock:
            return bytes(self._said)


class _Process:
    """One of ours, with what it says."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], processors: Sequence[int]
    ) -> None:
        self.name = words[0]
        pin = partial(os.sched_setaffinity, 0, processors) if processors else None
        try:
            self._popen = subprocess.Popen(
                list(words),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # signals of the terminal, and of a worker that is killed
                preexec_fn=pin,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Ended(f"{self.name}: {getattr(error, 'strerror', None) or error}") from error
        assert self._popen.stdout is not None and self._popen.stderr is not None
        self._files = self._popen.stdout, self._popen.stderr
        self.output = _Output(self._files[0].fileno(), KEPT_OUTPUT)
        self.errors = _Output(self._files[1].fileno(), KEPT_LOG)
        self.pid = self._popen.pid

    @property
    def status(self) -> int | None:
        """That it has ended with; None while it runs."""
        return self._popen.poll()

    def close(self) -> None:
        """Once it has ended: all that it has said is there."""
        for output, file in zip((self.output, self.errors), self._files, strict=True):
            output.join(REST_SECONDS)
            if not output.is_alive():
                file.close()

    def stop(self) -> int:
        """Tells it to end, then ends it: its status."""
        if self.status is None:
            for end in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, end)
                if ended([self], time.monotonic() + GRACE_SECONDS):
                    break
        return self._popen.wait()

    @property
    def death(self) -> str:
        status = self._popen.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended: {status}"
        lines = self.errors.said.decode(errors="replace").strip().splitlines()
        return f"{self.name} {how}" + (f": {lines[-1][:200]}" if lines else "")


def ended(processes: Sequence[_Process], until: float) -> _Process | None:
    """The first of them that has ended; None if none has before `until`, of the monotonic clock."""
    poll = select.poll()
    with contextlib.ExitStack() as opened:
        by = {}
        for process in processes:
            if process.status is not None:
                return process
            file = os.pidfd_open(process.pid)
            opened.callback(os.close, file)
            poll.register(file, select.POLLIN)
            by[file] = process
        while (left := until - time.monotonic()) > 0:
            for file, _ in poll.poll(1000 * min(left, LONGEST_WAIT)):
                return by[file]
    return None


class Program:
    """A command that runs, and the only live trial of this host while it is there."""

    def __init__(self, run: Run) -> None:
        """Waits for other live trials of the host to end."""
        self._run = run
        self._variable = f"{VARIABLE}={secrets.token_hex(16)}"
        name, _, value = self._variable.partition("=")
        self._environment = {**run.environment, name: value}
        self._process: _Process | None = None
        with contextlib.ExitStack() as opened:
            lock = locked(wait=True)
            opened.callback(os.close, lock)
            self._undone = opened.enter_context(tempfile.TemporaryFile())
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, self._variable, run.tierd, "restore"],
                stdin=subprocess.PIPE,
                stdout=self._undone,
                stderr=self._undone,
                pass_fds=[lock],  # the host is free when all is undone
                start_new_session=True,
            )
            self._opened = opened.pop_all()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.status is None

    def measure(self, run: Run) -> Ran:
        """One measurement. Ended if there is none."""
        began, start = time.time(), time.monotonic()
        watch: list[_Process] = []
        try:
            counters = {} if self._process else settle()
            until = time.monotonic() + run.deadline
            if run.apply:
                self._tierd(run.apply)
            fresh = self._process is None
            program = self._process or self._start(run)
            if run.fast:
                if fresh:  # it has to have its memory first
                    _wait([program], min(start + run.warm_up, until), "before it was warm")
                drain(self._processes(), run.fast, run.slow)
                program.output.clear()
            start = time.monotonic()
            watch.append(program)
            if run.attach:
                words = [run.tierd, *run.attach, "--pid", str(program.pid)]
                watch.append(_Process(words, self._environment, run.processors))
            if run.warm_up:
                _wait(watch, min(start + run.warm_up, until), "before its warm-up was over")
                program.output.clear()
            before = _moved()
            if run.seconds is None:
                _end(watch, until)
            else:
                start = time.monotonic()
                _wait(watch, min(start + run.seconds, until), "before it was measured to the end")
            if time.monotonic() >= until:
                raise Overdue("its deadline passed")
            seconds = time.monotonic() - start
            said = program.output.said
            counters |= {name: value - before[name] for name, value in _moved().items()}
            if run.attach:
                counters |= _told(watch[-1])
            return Ran(said, seconds, began, counters)
        except Ended as error:
            error.log = error.log or (
                watch[0].errors.said.decode(errors="replace") if watch else ""
            )
            raise
        finally:
            for tierd in watch[1:]:
                tierd.stop()
                tierd.close()

    def _start(self, run: Run) -> _Process:
        self._process = _Process(run.command, self._environment, run.processors)
        assert self._guard.stdin is not None
        os.write(self._guard.stdin.fileno(), b"\n")  # it need not look any longer
        return self._process

    def _processes(self) -> list[int]:
        """The command's, and those of what it has started."""
        found = guard.Guard(self._variable)
        found.look()
        found.close()
        return found.found

    def _tierd(self, words: Sequence[str]) -> None:
        process = _Process([self._run.tierd, *words], self._environment, ())
        ended([process], time.monotonic() + TIERD_SECONDS)
        status = process.stop()
        process.close()
        if status != 0:
            raise Ended(process.death)

    def undo(self) -> None:
        """What tierd has changed in the kernel's settings. Ended if that fails."""
        self._tierd(["restore"])

    def end(self) -> None:
        """Ends the command and what it has started, and undoes what tierd has changed. Ended if
        that fails."""
        if self._process is not None:
            self._process.stop()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        failed = self._guard.wait() != 0
        if self._process is not None:
            self._process.close()
        self._undone.seek(0)
        said = self._undone.read().decode(errors="replace").strip()
        self._opened.close()
        if failed:
            raise Ended(f"not all of the kernel's settings are as before: {said}")


def _wait(watch: Sequence[_Process], until: float, when: str) -> None:
    """Ended if one of them ends meanwhile."""
    if process := ended(watch, until):
        process.close()
        raise Ended(f"{process.death}, {when}")


def _end(watch: Sequence[_Process], until: float) -> None:
    """Waits for the end of the first, a good one. The other may end with it, but not before."""
    process = ended(watch, until)
    if process is None:
        return
    if process is not watch[0] and process.status != 0:
        process.close()
        raise Ended(process.death)
    if ended(watch[:1], until) is None:
        return
    watch[0].close()
    if watch[0].status != 0:
        raise Ended(watch[0].death)


def _told(tierd: _Process) -> dict[str, float]:
    """What tierd has moved: it says so at its end. Ended if it could not go on."""
    if tierd.stop() != 0:
        raise Ended(tierd.death)
    tierd.close()
    said = tierd.errors.said.decode(errors="replace")
    found = re.search(r"moved (\d+) MiB up and (\d+) MiB down", said)
    if found is None:
        return {}
    return {PROMOTED: float(found[1]) * 256, DEMOTED: float(found[2]) * 256}


def _moved() -> dict[str, float]:
    """Pages that the kernel's own tiering has moved, of the whole machine."""
    found = dict.fromkeys((PROMOTED, DEMOTED), 0.0)
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, value = line.split()
        if name == "pgpromote_success":
            found[PROMOTED] += float(value)
        elif name.startswith("pgdemote_"):
            found[DEMOTED] += float(value)
    return found
