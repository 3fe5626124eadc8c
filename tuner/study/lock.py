# SPDX-License-Identifier: MIT
"""One writer for each study's folder, and one message for a folder that cannot be written."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tuner.documents.reading import opened
from tuner.errors import UserError, one_line
from tuner.files import plain

LOCK = "lock"


def in_use(directory: Path) -> bool:
    """Whether a process is writing the study."""
    try:
        with opened(directory / LOCK, follow=False) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError):  # no lock, nobody who holds it
        return False
    return False


@contextmanager
def undisturbed(directory: Path) -> Iterator[None]:
    """Keeps others from writing the study. UserError if a process is doing that."""
    with ExitStack() as stack:
        with disk(directory), suppress(FileNotFoundError):  # nobody ever wrote it here
            file = stack.enter_context(opened(directory / LOCK, follow=False))
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"a process is working on the study in {directory}; repeat this when it has "
                    "ended"
                ) from None
        yield


@contextmanager
def disk(directory: Path) -> Iterator[None]:
    """Turns a full disk, or a folder that cannot be used, into one clear message."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk is full: cannot write to {one_line(directory)}; finished trials are "
                "safe, free some space and continue with --resume"
            ) from error
        if error.errno == errno.EFBIG:
            raise UserError(
                f"cannot write to {one_line(directory)}: a file would be larger than this shell "
                "allows (`ulimit -f`); finished trials are safe, continue with --resume"
            ) from error
        raise UserError(
            f"cannot use {one_line(error.filename or directory)}: {error.strerror}"
        ) from error


def acquire(directory: Path) -> BinaryIO:
    """The lock file, held until closed. The kernel releases it when the process dies."""
    with disk(directory):
        file = plain(directory / LOCK, "a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
        except BlockingIOError:
            file.seek(0)
            owner = file.read().decode(errors="replace").strip() or "unknown"
            file.close()
            raise UserError(
                f"another process (pid {owner}) is working on the study in {directory}"
            ) from None
        except BaseException:
            file.close()
            raise
    return file
