# SPDX-License-Identifier: MIT
"""Pages and their tables: what may stand in them, and what HTML and Markdown make of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from tuner import pages


def test_a_table_of_markdown_holds_whatever_its_cells_hold() -> None:
    table = pages.markdown_table((["name", ">value"], [["a|b", "1\n2"], ["\x1b[31m", ""]]))
    assert table.splitlines() == [
        "| name | value |",
        "| --- | ---: |",
        "| a\\|b | 1\\n2 |",
        "| \\x1b[31m |  |",
    ]


def comparison(**content: object) -> str:
    given = {
        "title": "x",
        "headline": "x",
        "objective": "runtime",
        "seeds": 6,
        "bounds": "",
        "uncovered": "",
        "standing": None,
        "searches": None,
        "columns": ["policy", ">default"],
        "studies": [],
    }
    return pages.page("comparison.html", **{**given, **content})


def test_html_escapes_what_is_put_in_and_shows_what_steers_a_terminal() -> None:
    studies = [{"name": '"><script>', "cells": ["<b>", "1"]}]
    page = comparison(title="</title>", headline="a\x1b[2J & b", studies=studies)
    assert "<title>&lt;/title&gt;</title>" in page
    assert "<h1>a\\u001b[2J &amp; b</h1>" in page
    assert '<a href="../&#34;&gt;&lt;script&gt;/report.html">' in page
    assert '<td>&lt;b&gt;</td>\n<td class="number" data-label="default">1</td>' in page


def test_markdown_shows_what_steers_a_terminal() -> None:
    page = pages.page(
        "map.md",
        **dict.fromkeys(("notes", "policies", "rule_notes", "mistakes"), ()),
        name="a\x1b[2J <b>",
        summary=(["policy"], []),
        confusions=None,
        version="1",
        build="2",
    )
    assert page.startswith("# a\\u001b[2J <b>\n")


def test_what_a_template_asks_for_and_nobody_gives_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        pages.page("comparison.html")


def test_every_template_is_used_and_every_page_has_one() -> None:
    sources = {path: path.read_text() for path in pages.TEMPLATES.parent.rglob("*.py")}
    sources |= {path: path.read_text() for path in pages.TEMPLATES.glob("*.j2")}
    for template in pages.TEMPLATES.glob("*.j2"):
        name = template.name.removesuffix(".j2")
        others = [text for path, text in sources.items() if path != template]
        assert any(f'"{name}"' in text or f'"{template.name}"' in text for text in others), name


def test_a_command_that_writes_no_page_imports_no_templates() -> None:
    code = "import sys, tuner.cli; sys.exit('jinja2' in sys.modules)"
    listed = "from tuner.report import page, comparison; from tuner.compare import page"
    for text in (code, f"{listed}; {code}"):
        subprocess.run([sys.executable, "-c", text], check=True, cwd=Path(sys.prefix))
