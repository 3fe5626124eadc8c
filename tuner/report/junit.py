# SPDX-License-Identifier: MIT
"""Results of checks as JUnit XML, which continuous integration servers show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tuner.errors import one_line


@dataclass(frozen=True)
class Case:
    """A check. `passed` is None if it does not apply; `text` says what was found either way."""

    name: str
    passed: bool | None
    text: str


def render(suite: str, cases: Sequence[Case]) -> str:
    """The document. Times are left out: the same results give the same bytes."""
    root = ElementTree.Element(
        "testsuite",
        name=_plain(suite),
        tests=str(len(cases)),
        failures=str(sum(case.passed is False for case in cases)),
        errors="0",
        skipped=str(sum(case.passed is None for case in cases)),
    )
    for case in cases:
        element = ElementTree.SubElement(
            root, "testcase", classname=_plain(suite), name=_plain(case.name)
        )
        text = _plain(case.text)
        if case.passed is False:
            ElementTree.SubElement(element, "failure", message=text)
        elif case.passed is None:
            ElementTree.SubElement(element, "skipped", message=text)
        else:
            ElementTree.SubElement(element, "system-out").text = text
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _plain(text: str) -> str:
    """Without the characters that XML cannot have, even escaped."""
    return one_line(text)
