"""Writing files durably: whatever happens, a file has its old content or the new."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tuner.errors import UserError

PARTIAL = ".partial"
"""Ends the names of files that are being written, after the number of the process."""


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
    try:
        with temporary.open("wb") as file:
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
        raise UserError(f"cannot write {path}: {error.strerror}") from error


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
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
