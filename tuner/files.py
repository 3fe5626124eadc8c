# SPDX-License-Identifier: MIT
"""Writing files durably: whatever happens, a file has its old content or the new.

Folders may have been made by somebody else. What is written replaces a file, or goes through
`plain`: nothing else in the package opens a file for writing (tests/tuner/test_rules.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from tuner.errors import UserError, limited, one_line

PARTIAL = ".partial"
"""Ends the names of files that are being written, after the number of the process."""


def plain(path: Path, mode: Literal["ab", "a+b", "xb"], *, buffering: int = -1) -> BinaryIO:
    """Opens a regular file for writing: no link is followed, so that nothing is written elsewhere,
    and no pipe is waited for. OSError that says what was found, or of `open`."""
    return open(path, mode, buffering, opener=_regular)


def write_setting(path: Path, text: str) -> None:
    """Writes to a file of the kernel's that is there, as in /sys. OSError."""
    with open(path, "wb", 0, opener=_regular) as file:
        file.write(text.encode())


def _regular(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        # Of a link, and of a pipe that nobody reads.
        if error.errno in (errno.ELOOP, errno.ENXIO) and (what := special(os.lstat(path).st_mode)):
            raise _no_regular(what, path) from error
        raise
    if what := special(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_regular(what, path)
    return descriptor


def _no_regular(what: str, path: str) -> OSError:
    return OSError(errno.EINVAL, f"found {what}; must be a regular file", path)


def special(mode: int) -> str | None:
    """What it is, if it is no regular file."""
    if stat.S_ISREG(mode):
        return None
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless it is there. OSError if it is a link: what is
    written there would be elsewhere."""
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.EINVAL, "found a link; must be a folder", str(path))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replaces the file in one step, and returns when the new content is on the disk.

    OSError if that fails; the file is then as it was.
    """
    with atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomically(path: Path) -> Iterator[BinaryIO]:
    """As `write_atomically`, for what is written bit by bit."""
    # Of a long name only the start: a name has at most 255 bytes.
    temporary = path.with_name(f"{path.name[:50]}.{os.getpid()}{PARTIAL}")
    if path.absolute().parent == Path("/dev"):  # /dev/stdout would be gone, for everybody
        raise _no_regular("a device", str(path))
    try:
        temporary.unlink(missing_ok=True)  # of an earlier process with our number
        with plain(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_room(path: Path) -> None:
    """Removes a folder that stands in the place of a file, in a cache. OSError if that fails."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def private_folder(parent: Path, prefix: str, suffix: str) -> tuple[Path, int]:
    """A new folder that nobody else may read or write, and the descriptor that holds its lock for
    as long as this process, or one that it was passed to, has it open."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=parent))
        with suppress(FileNotFoundError):  # taken for a dead one, before it had its lock
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            with suppress(OSError):  # a file system without locks: nothing is removed there
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def remove_abandoned(parent: Path, prefix: str, suffix: str) -> None:
    """Removes private folders whose processes are gone. None where they cannot be listed."""
    name = re.compile(f"{re.escape(prefix)}.*{re.escape(suffix)}")
    names: list[str] = []
    with suppress(PermissionError):  # a /tmp in which one may write, but not look
        names = os.listdir(parent)  # noqa: PTH208
    for folder in map(parent.joinpath, filter(name.fullmatch, names)):
        # Not if it is no folder, in use, or was just removed by another process.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def remove_leftovers(folder: Path) -> None:
    """Removes what processes that died in `write_atomically` have left in the folder, if there is
    one. OSError if that fails."""
    for path in folder.glob(f"*.*{PARTIAL}"):
        process = process_of(path)
        if process is not None and not runs(process) and not path.is_dir():
            path.unlink(missing_ok=True)


def process_of(path: Path) -> int | None:
    """The number of the process that writes a file or folder whose name ends with PARTIAL."""
    process = path.name.removesuffix(PARTIAL).rpartition(".")[2]
    return int(process) if process.isdecimal() else None


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; no process's
        return True
    return True


def write_file(path: Path, content: str | bytes) -> None:
    """Atomically, its folder included. UserError naming the file if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        reason = limited(error) or error.strerror
        raise UserError(f"cannot write {one_line(path)}: {reason}") from error


def write_files(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Each of them as `write_file`; returns their paths. What killed processes left beside them is
    removed."""
    for path, content in files.items():
        write_file(path, content)
    with suppress(OSError):  # the files are written; what is left over waits for the next time
        for folder in {path.parent for path in files}:
            remove_leftovers(folder)
    return list(files)


def shipped(in_source: str, in_wheel: str) -> Path:
    """A file or folder that ships with the package: the source tree's when the package runs from
    it, else the wheel's."""
    package = Path(__file__).resolve().parent
    source = package.parent / in_source
    if (package.parent / "pyproject.toml").is_file() and source.exists():
        return source
    return package / "data" / in_wheel


def sync_directory(path: Path) -> None:
    """Makes created and renamed names in the directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
