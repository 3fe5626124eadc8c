# SPDX-License-Identifier: MIT
"""What is shown to people: tables on standard output, progress on standard error.

Away from a terminal a table is one line per row, and progress a line at the start and at the end.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tuner.pages import Table, markdown_table
from tuner.screen import printable, unguarded

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> None:
    """The only thing that a command with --json writes to standard output. JSON has no infinity and
    no NaN: they become null."""
    ascii = sys.stdout.encoding.lower() not in ("utf-8", "utf8")
    print(json.dumps(_plain(value), indent=2, ensure_ascii=ascii, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(message: str) -> None:
    """A remark; standard output stays clean. What was printed before comes before, also where both
    go to one file."""
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)


_quiet = False


def be_quiet(quiet: bool) -> None:
    """Whether progress is left out from now on: what has begun, how far it is, each trial. Remarks
    and warnings stay."""
    global _quiet
    _quiet = quiet


def quiet() -> bool:
    return _quiet


def doing(what: str) -> None:
    """Of what takes a while, when it begins."""
    if not _quiet:
        say(f"tune: {what} ...")


GO_ON = "repeat the command to continue"


@contextmanager
def resumable(how: Callable[[], str]) -> Iterator[None]:
    """Of work that can be continued: whatever ends it early, Ctrl-C or a full disk, `how` says what
    is kept and which command continues."""
    try:
        yield
    except BaseException:
        say(how())
        raise


_kept: list[Table] | None = None


@contextmanager
def tables_kept(file: str | None) -> Iterator[None]:
    """Writes the tables that are shown meanwhile to the file as well, as CSV or Markdown by its
    name, tables apart by an empty line. UserError for another name, and if none was shown."""
    global _kept
    if file is None:
        yield
        return
    from tuner.errors import UserError

    if (form := FORMS.get(Path(file).suffix)) is None:
        raise UserError(f"--tables: found {file}; must end in {' or '.join(FORMS)}")
    _kept = []
    try:
        yield
        if not _kept:
            raise UserError(f"--tables: no table was printed, so {file} is not written")
        from tuner.files import write_file

        write_file(Path(file), "\n".join(form(each) for each in _kept))
    finally:
        _kept = None


def _csv(table: Table) -> str:
    import csv
    import io

    columns, rows = table
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name.removeprefix(">") for name in columns)
    writer.writerows(rows)
    return text.getvalue()


def _markdown(table: Table) -> str:
    return markdown_table(table) + "\n"


FORMS = {".csv": _csv, ".md": _markdown}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, prose: int = 0) -> None:
    """Aligned columns, without wrapping. A column whose name starts with '>' is set to the right.

    The last `prose` columns are sentences: a terminal shows them wrapped under their row.
    """
    if _kept is not None:
        _kept.append((columns, rows))
    shown = len(columns) - prose if sys.stdout.isatty() else len(columns)
    names = [name.removeprefix(">") for name in columns]
    rows = [[cell.replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if column.startswith(">") else cell.ljust(width)
            for column, cell, width in zip(columns, cells[:shown], widths, strict=False)
        )
        return "  ".join(aligned).rstrip()

    if not sys.stdout.isatty():
        for cells in (names, *rows):
            print(line(cells))
        return
    from rich.padding import Padding
    from rich.text import Text

    drawn = console(sys.stdout)
    drawn.print(Text(line(names), style="bold"), soft_wrap=True)
    for cells in rows:
        drawn.print(Text(printable(line(cells))), soft_wrap=True)
        if texts := [printable(cell) for cell in cells[shown:] if cell]:
            drawn.print(Padding(Text(" · ".join(texts), style="dim"), (0, 0, 0, 4)))


def console(stream: TextIO) -> Console:
    """What draws on a terminal. Whoever uses it gives it `printable` text."""
    from rich.console import Console

    return Console(file=unguarded(stream), soft_wrap=False)


LINE_SECONDS = 60.0
"""Where standard error is no terminal, long work tells how far it is once in so many."""


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes the fraction done. Nothing is shown before its first call."""
    if _quiet:
        yield lambda fraction: None
        return
    if sys.stderr.isatty():
        from rich.progress import Progress

        with Progress(console=console(sys.stderr), transient=True) as bars:
            task = bars.add_task(printable(title), total=1.0, visible=False)
            yield lambda fraction: bars.update(task, completed=fraction, visible=True)
        return
    told: list[float] = []  # when a line was printed

    def update(fraction: float) -> None:
        now = time.monotonic()
        if not told:
            told.append(now)
            say(f"{title} ...")
        elif now - told[-1] >= LINE_SECONDS:
            told.append(now)
            say(f"{title}: {fraction:.0%} in {now - told[0]:.0f} s")

    yield update
    if told:
        say(f"{title}: done in {time.monotonic() - told[0]:.1f} s")
