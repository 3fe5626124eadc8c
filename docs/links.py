# SPDX-License-Identifier: MIT
"""Checks the links of Markdown files: each relative path exists, each anchor is a heading there.

    python docs/links.py FILE ...

Addresses on the web are left alone: no check of this project needs the network. Prints
`file:line: what is wrong` and exits with 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
FENCE = re.compile(r"^ *(```|~~~)")
CODE = re.compile(r"`[^`]*`")


def lines_of_text(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside of fenced code."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(path: Path) -> set[str]:
    """The names by which the headings of a file can be linked, as GitHub makes them."""
    found: set[str] = set()
    for _, line in lines_of_text(path):
        if heading := HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            count = 0
            while (unique := f"{name}-{count}" if count else name) in found:
                count += 1
            found.add(unique)
    return found


def broken(path: Path) -> Iterator[str]:
    """A complaint for every link of the file that leads nowhere."""
    for number, line in lines_of_text(path):
        for link in LINK.findall(CODE.sub("", line)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = path.parent / target if target else path
            if not file.exists():
                yield f"{path}:{number}: {link}: no such file"
            elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
                yield f"{path}:{number}: {link}: no such heading"


def main(files: list[str]) -> int:
    complaints = [complaint for file in files for complaint in broken(Path(file))]
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
