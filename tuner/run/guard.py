# SPDX-License-Identifier: MIT
"""Ends what is left of a Ray instance of ours, or of a live trial, once the process is gone that
has started it.

A program of its own, for which the standard library is enough:

    python -I -S guard.py NAME=VALUE [PROGRAM ARGUMENT...]

It looks for the processes that have this variable in their environment, until a byte comes on
standard input: then the instance has started. At the end of standard input it ends the processes,
and becomes the program, if there is one. For as long as it runs it keeps the descriptors open that
it was started with, such as the lock of the instance's folder.

Ray's agents make it necessary: by themselves they try for more than a minute to tell a driver that
was killed that its instance is gone. They put a title over their environment soon after they have
started, so they are looked for from the beginning.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

SECONDS = 0.2
"""Between two looks. An agent imports for longer before it sets its title."""
WAIT_SECONDS = 30.0
"""For processes to be gone that were killed."""


class Guard:
    def __init__(self, variable: str) -> None:
        self._variable = variable
        self._found: dict[Path, int] = {}  # pidfd by folder in /proc

    @property
    def found(self) -> list[int]:
        return [int(process.name) for process in self._found]

    def look(self) -> bool:
        """Whether there are processes that were not found before."""
        before = len(self._found)
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and process not in self._found:
                with contextlib.suppress(OSError):  # it has ended, or is another user's
                    self._see(process)
        return len(self._found) > before

    def _see(self, process: Path) -> None:
        end = os.pidfd_open(int(process.name))
        try:
            if self._variable in _words(process / "environ"):
                self._found[process] = end
        finally:
            if process not in self._found:
                os.close(end)

    def end(self) -> None:
        while True:
            for end in self._found.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
            if not self.look():
                return

    def wait(self, seconds: float) -> None:
        """Until those that were ended are gone: one that is about to is still there to others."""
        until = time.monotonic() + seconds
        for end in self._found.values():
            poll = select.poll()
            poll.register(end, select.POLLIN)
            poll.poll(1000 * max(0.0, until - time.monotonic()))

    def close(self) -> None:
        for end in self._found.values():
            os.close(end)


def _words(file: Path) -> list[str]:
    return os.fsdecode(file.read_bytes()).split("\0")


def main(variable: str, *program: str) -> None:
    guard = Guard(variable)
    while not select.select([0], [], [], SECONDS)[0]:
        guard.look()
    if os.read(0, 1):
        guard.look()
        os.read(0, 1)
    guard.end()
    if program:
        guard.wait(WAIT_SECONDS)
        os.execv(program[0], program)


if __name__ == "__main__":
    main(*sys.argv[1:])
