# SPDX-License-Identifier: MIT
"""Running a program under a sampler.

The program keeps the terminal, its standard streams, its signals and its exit status. What the
sampler sees goes into spools beside the output, one per process, which survive whatever ends the
program.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UserError
from tuner.files import plain, private_folder, remove_abandoned
from tuner.foreign import users_environment
from tuner.record import damon, samplers
from tuner.record.group import Orphans, Witness
from tuner.record.samplers import Launch, Sampler
from tuner.text import size

RESERVE_BYTES = 64 << 20
"""Kept free beside the spools, so that a disk that fills up while the program runs still has room
for the stream of what came before."""

FORWARDED = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
)


CHECK_SECONDS = 0.2

SLOWDOWN_SECONDS = 5.0
"""After so long a recorder says how slow it is."""

GRACE_SECONDS = 1.0
"""For processes that outlive the program: many are about to end, too."""

SPOOLS = ".spools"
UNSEEN = "unseen"
"""Counts the processes that could not begin a spool (engine/record/spool.hpp)."""
FOR_ALL = 0o1733
"""Of the folder of root's recordings: who knows its name may add to it, and nobody may list it."""


@dataclass(frozen=True)
class Ended:
    """How the program ended: with an exit status, or by a signal. `outlived`: processes that it has
    started and that go on."""

    exit_status: int
    signal: int | None
    outlived: int

    @property
    def status(self) -> int:
        """As a shell would say it."""
        return self.exit_status if self.signal is None else 128 + self.signal


@contextmanager
def spools_beside(trace: Path) -> Iterator[Path]:
    """The recording's folder, beside the trace, on the disk that must have room for it anyway.
    Those of recorders that were killed are removed."""
    try:
        remove_abandoned(trace.parent, ".", SPOOLS)
        folder, lock = private_folder(trace.parent, f".{trace.stem}.", SPOOLS)
    except OSError as error:
        raise UserError(f"{trace.parent}: {error.strerror}") from error
    try:
        for name in (UNSEEN, samplers.CLOCK):
            with plain(folder / name, "xb") as counter:
                counter.write(bytes(4096))
            (folder / name).chmod(0o666)
        if os.geteuid() == 0:  # a program may give up root
            folder.chmod(FOR_ALL)
        with plain(folder / "reserve", "xb") as reserve:
            try:
                os.posix_fallocate(reserve.fileno(), 0, RESERVE_BYTES)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                free = size(shutil.disk_usage(folder).free)
                raise UserError(f"the disk of {trace.parent} is full: {free} free") from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def unseen(spools: Path) -> int:
    """Processes that could not begin a spool."""
    return int.from_bytes((spools / UNSEEN).read_bytes()[:8], sys.byteorder)


@dataclass
class Meanwhile:
    """What is done while the program runs: how slowly it does is told once, and the recording ends
    after so many `seconds`, if they are given, by calling `over`; the program goes on."""

    sampler: Sampler
    spools: Path
    seconds: float | None
    over: Callable[[], None]
    slowed: Callable[[float], None]
    ended: bool = False
    slowdown: float | None = None

    def begin(self) -> None:
        self._began = time.monotonic()
        self._look = self._began + SLOWDOWN_SECONDS

    def look(self) -> None:
        now = time.monotonic()
        if self.slowdown is None and now >= self._look and not self.ended:
            self._look = now + SLOWDOWN_SECONDS
            spent = _processor_seconds()
            if spent >= 1:  # of one that only waits, nothing can be said
                self.slowdown = self.sampler.slowdown(self.spools, spent)
                if self.slowdown is not None:
                    self.slowed(self.slowdown)
        if self.seconds is None or self.ended:
            return
        if now >= self._began + self.seconds + self.sampler.settles:
            self.ended = True
            self.sampler.detach()
            self.over()


def _processor_seconds() -> float:
    """Of all processes that descend from this one and live, this one left out."""
    return sum(map(damon.processor, damon.children([os.getpid()])))


def run(
    sampler: Sampler, command: Sequence[str], spools: Path, meanwhile: Meanwhile, *, quiet: bool
) -> Ended:
    """Starts the program, forwards signals, and waits."""
    sampler.until_ns = None
    if meanwhile.seconds is not None:
        sampler.until_ns = time.monotonic_ns() + round(meanwhile.seconds * 1e9)
    launch = sampler.launch(command, spools)
    environment = users_environment() | dict(launch.environment)
    environment[samplers.FOLDER_VARIABLE] = str(spools)
    environment[samplers.START_VARIABLE] = str(time.monotonic_ns())
    waited = {signal.SIGCHLD, *FORWARDED}
    orphans = Orphans()
    witness = Witness()
    before: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, waited))
    try:
        pid, go, failed = _fork(launch, environment, before, quiet=quiet)
        try:
            sampler.attach(pid)
            meanwhile.begin()
            os.write(go, b"\0")
        finally:
            os.close(go)  # without the byte the process exits before it runs the command
            with os.fdopen(failed, "rb") as pipe:
                reason = pipe.read()
        status = _wait(pid, waited, witness, orphans, meanwhile.look)
        if reason:
            raise UserError(f"{launch.command[0]}: {os.strerror(int(reason))}")

        def pause(seconds: float) -> bool:
            info = signal.sigtimedwait(waited, min(seconds, CHECK_SECONDS))
            return info is None or info.si_signo == signal.SIGCHLD  # else: the user is impatient

        outlived = orphans.outlast(pause, GRACE_SECONDS, witness.pid)
        return Ended(max(status, 0), -status if status < 0 else None, outlived)
    finally:
        sampler.detach()
        witness.close()
        orphans.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fork(
    launch: Launch, environment: Mapping[str, str], mask: set[int], *, quiet: bool
) -> tuple[int, int, int]:
    """A process that begins the command when a byte is written to the first descriptor; the second
    yields the errno if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid != 0:
        os.close(go_read)
        os.close(failed_write)
        return pid, go_write, failed_read
    try:
        os.close(go_write)
        if not os.read(go_read, 1):
            os._exit(0)
        if quiet:  # standard output has nothing but the final object
            os.dup2(2, 1)
        for name in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, a program must not
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execve(launch.command[0], list(launch.command), environment)
    except OSError as error:
        os.write(failed_write, str(error.errno).encode())
    finally:
        os._exit(127)


def _wait(
    pid: int,
    waited: set[signal.Signals],
    witness: Witness,
    orphans: Orphans,
    look: Callable[[], None],
) -> int:
    """Looks now and then, and forwards signals until the program has ended, but not what it has got
    already: the terminal and `kill -PGID` signal the whole process group, which is the program's,
    too."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return os.waitstatus_to_exitcode(status)
        look()
        # With a limit: the kernel may deliver SIGCHLD to another thread of this process.
        info = signal.sigtimedwait(waited, CHECK_SECONDS)
        if info is None:
            continue
        if info.si_signo == signal.SIGCHLD:
            orphans.bury(pid, witness.pid)
            continue
        has_it = witness.saw(info.si_signo) and os.getpgid(pid) == os.getpgrp()
        if info.si_code <= 0 and not has_it:  # of a process: SI_USER, SI_QUEUE, SI_TKILL
            os.kill(pid, info.si_signo)
