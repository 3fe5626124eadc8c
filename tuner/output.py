# SPDX-License-Identifier: MIT
"""Standard output and standard error, which may be closed, full, or read by nobody.

Whatever becomes of them, a command does its work to the end: a study must not end because `head`
has read enough of its progress. What cannot be written is left out, and the exit code tells.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, TextIO

READER_LEFT = 141
"""Exit code when nobody reads the output any more: what shells show of a program that SIGPIPE has
ended."""


class Output(io.FileIO):
    """A descriptor whose writer never sees an error: `failed` is the first one, after which nothing
    more is written."""

    failed: OSError | None = None

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)

    def write(self, data: Any) -> int:
        while self.failed is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.failed = error
            else:
                if written is not None:
                    return written
                # Somebody who shares the pipe or terminal has set it to non-blocking.
                select.select([], [self], [])
        return memoryview(data).nbytes


def prepare() -> None:
    """Replaces the standard streams by ones that do not fail. Closed ones become empty ones: else
    the next file that is opened, a log for example, gets the number of one, and what is printed.
    Characters that an encoding lacks are shown as escapes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    sys.stdout = _safe(sys.stdout, sys.__stdout__, 1)
    sys.stderr = _safe(sys.stderr, sys.__stderr__, 2)


def _safe(stream: TextIO | None, original: TextIO | None, descriptor: int) -> TextIO:
    if stream is not original:  # of whoever calls us as a function
        return stream or io.StringIO()
    file = Output(descriptor)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=getattr(stream, "encoding", None),
        errors="backslashreplace",
        line_buffering=descriptor == 2 or file.isatty(),
        write_through=getattr(stream, "write_through", False),
    )


def failure() -> OSError | None:
    """Why results could not be written, or messages; None if all was written, or if only messages
    have lost their reader, who knows that."""
    sys.stdout.flush()
    sys.stderr.flush()
    results, messages = _failed(sys.stdout), _failed(sys.stderr)
    return results or (None if isinstance(messages, BrokenPipeError) else messages)


def _failed(stream: TextIO) -> OSError | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.failed if isinstance(raw, Output) else None
