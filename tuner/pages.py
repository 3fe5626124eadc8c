# SPDX-License-Identifier: MIT
"""Pages of Markdown and HTML by the templates of tuner/templates/, and their tables.

A template has the words and their order; the module of the page has the figures. HTML escapes what
is put in, and neither kind of page gets a character that steers a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import one_line
from tuner.screen import printable

if TYPE_CHECKING:  # it is imported where a page is written: commands that write none start faster
    from jinja2 import Environment

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Columns, where '>' sets one to the right, and rows."""

TEMPLATES = Path(__file__).with_name("templates")


def page(template: str, /, **content: Any) -> str:
    """A template is named without its `.j2`, such as `compare.md`."""
    return environment(TEMPLATES).get_template(f"{template}.j2").render(content)


@cache
def environment(folder: Path) -> Environment:
    """Templates of a folder. A name that a template uses and nobody gives is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["table"] = markdown_table
    return made


def _shown(value: Any) -> Any:
    """What a template puts in, unless a template has made it."""
    return printable(value) if type(value) is str else value


def markdown_table(table: Table) -> str:
    """As lines of Markdown, whatever the cells hold."""
    columns, rows = table
    names = [column.removeprefix(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    cells = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *cells))
