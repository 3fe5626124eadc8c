# SPDX-License-Identifier: MIT
"""What the shell's limits (`ulimit`) must leave for a study; told before anything starts."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from tuner.errors import UserError
from tuner.text import plural, size

MIB = 1 << 20

FILES = 32
"""One worker does with 24."""
FILES_OF_RAY = 64
"""Two workers need between 48 and 64."""
FILE = 4 * MIB
"""Bytes: the store of a small study has 1.6 MiB, its report 0.7 MiB."""
FILE_OF_RAY = 200 * MIB
"""Bytes: its object store is a file of 128 MiB, and some more."""
SPACE = 1024 * MIB
"""Bytes that a process may map: a small input and one worker need between 780 and 880 MiB."""
SPACE_OF_RAY = 4096 * MIB
"""Bytes: as much as was tried."""
THREADS = 8
"""One worker does with 6."""
THREADS_OF_RAY = 256
"""Two workers have up to 205 at a time on two processors, and hang with 160."""


def check(workers: int, *, cluster: bool = False) -> None:
    """UserError naming the limit, what was found and what is needed. The workers are processes of
    this machine, or a cluster's."""
    least = FILES if workers == 1 else FILES_OF_RAY
    _at_least("-n", resource.RLIMIT_NOFILE, least, workers)
    ray = workers > 1 and not cluster
    _at_least("-f", resource.RLIMIT_FSIZE, FILE_OF_RAY if ray else FILE, workers)
    _at_least("-v", resource.RLIMIT_AS, SPACE_OF_RAY if ray else SPACE, workers)
    if not _may_exceed():
        _at_least("-u", resource.RLIMIT_NPROC, THREADS_OF_RAY if ray else THREADS, workers)


def _at_least(option: str, which: int, least: int, workers: int) -> None:
    soft, _ = resource.getrlimit(which)
    taken = 0
    if option == "-u" and soft != resource.RLIM_INFINITY:
        taken = _threads() - 1  # this one is among those that are needed
    if soft == resource.RLIM_INFINITY or soft - taken >= least:
        return
    found, needed = {
        "-n": (f"{soft} open files", f"{least}"),
        "-f": (f"files of {size(soft)}", f"{size(least)}"),
        "-v": (f"{size(soft)} of address space", f"{size(least)}"),
        "-u": (f"{soft} processes and threads, {taken} of which run already", f"{least} more"),
    }[option]
    raise UserError(
        f"`ulimit {option}` of this shell allows {found}; {plural(workers, 'worker')} "
        f"must have {needed} at least"
    )


def _may_exceed() -> bool:
    """Whether the kernel does not count this process's children: the superuser's, and those of one
    that may set limits."""
    if os.getuid() == 0:
        return True
    found = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    return bool(int(found, 16) & (1 << CAP_SYS_ADMIN | 1 << CAP_SYS_RESOURCE))


CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24


def _threads() -> int:
    """Of all processes of this user."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if process.stat().st_uid == os.getuid():
                found += len(os.listdir(process / "task"))  # noqa: PTH208
    return found
