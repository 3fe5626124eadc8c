"""Reading what people hand in: text files and JSON, whatever the path leads to."""

from __future__ import annotations

import codecs
import json
import os
import stat
from pathlib import Path
from typing import Any

from tuner.errors import UserError, brief

MOST_BYTES = 1_000_000
"""Of a document that people write."""
MOST_FIGURES = 100_000_000
"""Bytes of a JSON file of figures: a large comparison takes a few megabytes."""


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a regular file of at most so many bytes in UTF-8, without a byte order mark.

    UserError for anything else; nothing is read from pipes and devices, which may have no end.
    """
    try:
        # A pipe is opened without waiting for somebody who writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if what := _special(os.fstat(descriptor).st_mode):
                raise UserError(f"{path}: found {what}; must be a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a name with a NUL
        raise UserError(f"{str(path)!r}: no name of a file") from error
    if len(data) > most:
        line = data.count(b"\n") + 1
        raise UserError(f"{path}:{line}: found more than {most:,} bytes; must be smaller")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: found the byte {data[error.start]:#04x}; must be text in UTF-8"
        ) from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file that the user may see."""
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _special(mode: int) -> str | None:
    """What it is, if it is no regular file."""
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def read_json(path: Path) -> Any:
    """The content of a file of figures. UserError as of `read_text`, and if it is no JSON, nests
    too deeply, or has a key twice."""
    text = read_text(path, MOST_FIGURES)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except ValueError as error:  # also of an integer with thousands of digits
        raise UserError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path}: not valid JSON: nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{brief(twice)}' is written twice")
    return found
