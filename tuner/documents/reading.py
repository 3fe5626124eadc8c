# SPDX-License-Identifier: MIT
"""Reading what people hand in, or what others have left in a folder: whatever a path leads to and
whatever is in the file, reading it ends, in bounded memory.

Nobody else in the package opens such files or parses JSON (`tests/tuner/test_rules.py`).
"""

from __future__ import annotations

import codecs
import errno
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel

from tuner.errors import UserError, brief, one_line
from tuner.files import special

M = TypeVar("M", bound=BaseModel)

MOST_BYTES = 1_000_000
"""Of a document that people write."""
MOST_FIGURES = 100_000_000
"""Bytes of a JSON file of figures: a large comparison takes a few megabytes."""
MOST_VALUES = 2_000_000
"""Of JSON. Each takes some 100 bytes of memory, whatever it takes in the file."""
DEEPEST = 64
"""Objects and lists of JSON inside each other."""
LARGEST = 2**64
"""Above the size of an integer of JSON."""
LONGEST_NUMBER = 100
"""Characters of one: a million digits take long to convert."""


@contextmanager
def opened(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A regular file, to be read. Nothing is read from pipes and devices, which may have no end.

    `follow`: whether a link will do. One may lead to a file that is not meant for whoever is sent
    what is read, so a folder that others have made must hold the file itself. UserError for what
    is no such file; OSError.
    """
    # A pipe is opened without waiting for somebody who writes to it.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a name with a NUL
        raise UserError(f"'{one_line(path)}': no name of a file") from error
    except OSError as error:
        if error.errno == errno.ELOOP and not follow and path.is_symlink():
            raise UserError(f"{one_line(path)}: found a link; must be a regular file") from error
        if error.errno == errno.ENXIO:
            raise UserError(f"{one_line(path)}: found a socket; must be a regular file") from error
        raise
    try:
        if what := special(os.fstat(descriptor).st_mode):
            raise UserError(f"{one_line(path)}: found {what}; must be a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_bytes(path: Path, most: int = MOST_BYTES, *, follow: bool = True) -> bytes:
    """All of a regular file of at most so many bytes. UserError as of `opened`, and if it is
    larger; OSError."""
    with opened(path, follow=follow) as file:
        data = file.read(most + 1)
    if len(data) > most:
        line = data.count(b"\n") + 1
        raise UserError(f"{one_line(path)}:{line}: found more than {most:,} bytes; must be smaller")
    return data


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """As `read_bytes`, of UTF-8 without a byte order mark. UserError for anything else."""
    try:
        data = read_bytes(path, most)
    except OSError as error:
        raise UserError(f"{one_line(path)}: {error.strerror or error}") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{one_line(path)}:{line}: found the byte {data[error.start]:#04x}; "
            "must be text in UTF-8"
        ) from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file that the user may see."""
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


# --- JSON -----------------------------------------------------------------------------------------


def read_json(path: Path, most: int = MOST_FIGURES) -> Any:
    """The content of a file of figures. UserError as of `read_text`, and for what `parse_json`
    refuses."""
    text = read_text(path, most)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{one_line(path)}:{error.lineno}: not valid JSON: {error.msg}") from error
    except ValueError as error:
        raise UserError(f"{one_line(path)}: not valid JSON: {error}") from error


def parse_json(content: str | bytes, most: int = MOST_VALUES) -> Any:
    """Its value. ValueError, saying what is wrong in one line, if it is no JSON in UTF-8, has more
    than so many values, nests too deeply, has a key twice, a number that nothing can hold, or a
    character that no text may have."""
    text = content if isinstance(content, str) else content.decode("utf-8")
    _bounded(text, most)
    found = json.loads(text, object_pairs_hook=_once, parse_int=_integer, parse_float=_real)
    if _DOUBTFUL.search(text):
        for part in _texts(found):
            if wrong := _UNFIT.search(part):
                raise ValueError(f"found the character {wrong[0]!a} in a text")
    return found


def parse_model(content: bytes, model: type[M], most: int = MOST_VALUES) -> M:
    """JSON as the model. ValueError, of which pydantic's is one."""
    if (found := values_of(content)) > most:
        raise ValueError(f"found up to {found:,} values; must be at most {most:,}")
    return model.model_validate_json(content)


def values_of(content: bytes) -> int:
    """How many values JSON has at most, told without parsing it."""
    return 1 + content.count(b",") + content.count(b"[") + content.count(b"{")


_TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|[][{},]', re.DOTALL)
_DOUBTFUL = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_UNFIT = re.compile("[\0\ud800-\udfff]")


def _bounded(text: str, most: int) -> None:
    """Refuses what would take too much memory, stack or time to parse. What is no JSON may pass."""
    depth, values, texts = 0, 1, 0
    for token in _TOKEN.finditer(text):
        match text[token.start()]:
            case "]" | "}":
                depth -= 1
            case '"':
                texts += 1
            case ",":
                values += 1
            case _:
                values += 1
                depth += 1
                if depth > DEEPEST:
                    raise ValueError(f"found more than {DEEPEST} levels inside each other")
        if max(values, texts // 2) > most:
            raise ValueError(f"found more than {most:,} values; must be fewer")


def _integer(text: str) -> int:
    value = int(text) if len(text) <= LONGEST_NUMBER else LARGEST
    if abs(value) >= LARGEST:
        raise ValueError(f"found {brief(text)}; must be an integer below 2^64 in size")
    return value


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"found {brief(text)}; must be a number that is not too large")
    return value


def _texts(value: Any) -> Iterator[str]:
    """All texts in it, keys included."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case dict() as pairs:
                waiting += pairs
                waiting += pairs.values()
            case list() as items:
                waiting += items


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key '{brief(twice)}' is written twice")
    return found
