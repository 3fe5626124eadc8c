# SPDX-License-Identifier: MIT
"""What may reach the terminal. Names, messages and figures come from files that others have made:
characters that steer a terminal are shown as escapes, and passwords of addresses are hidden."""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO, cast

from tuner.addresses import redacted

_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but for newline and tab, and those that turn the direction of text."""


def printable(text: str) -> str:
    """The text with `\\u001b` for an escape, which is what JSON has for it, too."""
    return redacted(_STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


class Screen:
    """A stream to which only `printable` text is written."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """From now on, of all that is printed."""
    sys.stdout = _guarded(sys.stdout)
    sys.stderr = _guarded(sys.stderr)


def _guarded(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, Screen) else cast(TextIO, Screen(stream))


def unguarded(stream: TextIO) -> TextIO:
    """For what draws with escapes, and is given `printable` text."""
    return stream.stream if isinstance(stream, Screen) else stream
