# SPDX-License-Identifier: MIT
"""The processes around a recorded program: who got a signal, and who outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

MARK = signal.SIGRTMIN
"""Asks the witness. Signals are delivered by their numbers: all that came before are told first."""

STALL_SECONDS = 1.0


class Witness:
    """A process in our group that tells which signals it gets.

    A signal to the group (`timeout`, a shell's `kill 0`, the terminal) has reached the program;
    one to us alone has not. They look alike to us, but only the former reaches the witness, too.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        us = os.getpid()
        self._told, tell = os.pipe()
        self._seen: set[int] = set()
        self.pid = os.fork()
        if self.pid != 0:
            os.close(tell)
            return
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # Who waits for the end of our pipes and locks must not wait for the witness.
            os.closerange(0, tell)
            os.closerange(tell + 1, os.sysconf("SC_OPEN_MAX"))
            while os.getppid() == us:
                os.write(tell, bytes([signal.sigwait(signal.valid_signals())]))
        finally:
            os._exit(0)

    def saw(self, number: int) -> bool:
        """Whether the signal that we have got went to the group. To be asked about each."""
        told: list[int] = []
        ours = {MARK}
        marks = 1
        os.kill(self.pid, MARK)
        while told.count(MARK) < marks:
            if not select.select([self._told], [], [], STALL_SECONDS)[0]:
                # Somebody has stopped it: it goes on, and what it tells of that is ours.
                os.kill(self.pid, signal.SIGCONT)
                os.kill(self.pid, MARK)
                ours.add(signal.SIGCONT)
                marks += 1
            more = os.read(self._told, 256)
            if not more:  # somebody has killed it
                return False
            told += more
        self._seen |= set(told) - ours
        seen = number in self._seen
        self._seen.discard(number)
        return seen

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._told)


class Orphans:
    """The program's descendants whose parents have ended. They become our children instead of
    init's, so that it is known which of them outlive the program."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._ours = set(_children().get(os.getpid(), []))
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def bury(self, *others: int) -> int:
        """Takes note of those that have ended; returns how many live, their descendants included.
        `others`: children of ours that are none."""
        children = _children()
        living = 0
        found = [p for p in children.get(os.getpid(), []) if p not in self._ours | set(others)]
        for pid in found:  # grows meanwhile
            with contextlib.suppress(ChildProcessError):  # of another parent, and not ours to bury
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    continue
            living += 1
            found += children.get(pid, [])
        return living

    def outlast(self, pause: Callable[[float], bool], seconds: float, *others: int) -> int:
        """Those that live on after so long. `pause` waits for a part of it; False: no more."""
        until = time.monotonic() + seconds
        while living := self.bury(*others):
            left = until - time.monotonic()
            if left <= 0 or not pause(left):
                break
        return living

    def close(self) -> None:
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> dict[int, list[int]]:
    """All processes by their parents. A zombie is its parent's business, unless that is us."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" or int(parent) == os.getpid():
                found.setdefault(int(parent), []).append(int(stat.parent.name))
    return found
