"""What is shown to people: tables on standard output, progress on standard error.

On a terminal rich draws; anywhere else a table is aligned columns without wrapping, one row per
line, and progress is a line at the start and one at the end.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def print_json(value: Any) -> None:
    """The only thing that a command with --json writes to standard output. JSON has no infinity and
    no NaN: they become null."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(message: str) -> None:
    """A remark; standard output stays clean."""
    print(message, file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Text columns. A column whose name starts with '>' is aligned to the right."""
    names = [name.removeprefix(">") for name in columns]
    right = [name.startswith(">") for name in columns]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        drawn = Table(
            title=title or None, title_justify="left", header_style="bold", box=SIMPLE_HEAD
        )
        for name, to_right in zip(names, right, strict=True):
            drawn.add_column(name, justify="right" if to_right else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*(escape(cell) for cell in row))
        Console().print(drawn)
        return
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for line in (names, *rows):
        cells = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the fraction done. Nothing is shown before its first call."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(title, total=1.0, visible=False)
            yield lambda fraction: bars.update(task, completed=fraction, visible=True)
        return
    started: list[float] = []

    def tell(fraction: float) -> None:
        if not started:
            started.append(time.monotonic())
            say(f"{title} ...")

    yield tell
    if started:
        say(f"{title}: done in {time.monotonic() - started[0]:.1f} s")
