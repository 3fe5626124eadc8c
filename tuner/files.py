"""Writing files durably: whatever happens, a file has its old content or the new."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import UserError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replaces the file in one step, and returns when the new content is on the disk.

    OSError if that fails; the file is then as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_files(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Each of them atomically, their folders included; returns their paths. UserError naming the
    one that cannot be written."""
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
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
