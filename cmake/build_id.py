# SPDX-License-Identifier: MIT
"""Writes a header with hashes of the engine's sources.

A result depends on `policies` and on `simulator`, and on its access stream, which has a hash for
each kernel file: of the file, what it includes, transitively, and the .cpp beside each header. So
results stay valid while a sampler changes, and streams while a policy or another kernel does.
`live` is of tierd without its policies, `emulated` of the emulated machine, which depends on a
kernel as its streams do. `whole` is of everything.

Comments and the layout of the code do not count. Usage: build_id.py ROOT HEADER
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

POLICIES = ("core", "track", "classify", "migrate", "regulate", "policy")
SIMULATOR = ("sim", "trace")
LIVE = ("live", "tierd")
SIMULATION = "engine/bindings/simulation.cpp"
"""The door of a trial to the simulator; with what it includes of the bindings."""

SPLICE = "\x01"  # stands for a backslash at the end of a line
TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<space> [^\S\n]+ )
  | (?P<newline> \n )
  | (?P<raw> (?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)" )
  | (?P<word>
        (?:u8|[uUL])? "(?:[^"\\\n]|\\.)*"
      | (?:u8|[uUL])? '(?:[^'\\\n]|\\.)*'
      | \.?\d (?:[eEpP][+-] | '\w | [\w.\x01])*
      | \w [\w\x01]*
    )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
ALONE = frozenset("()[]{},;")  # never part of a longer operator
INCLUDE = re.compile(r'^# ?include ?"([^"]+)"', re.MULTILINE)


def code(text: str) -> str:
    """C++ without comments, and with no more white space than tells tokens apart. Directives stand
    on lines of their own."""
    out: list[str] = []
    last = "\n"  # kind of the last token: "w" a word, "\n" a line's end, or a punctuation character
    space = False  # since the last token
    line_start, directive = True, False
    for match in TOKEN.finditer(text.replace("\\\n", SPLICE)):
        kind, token = match.lastgroup, match[0]
        if kind == "end":  # the innermost group that matched last
            kind = "raw"
        if kind == "newline":
            if directive:
                out.append("\n")
                last, directive = "\n", False
            line_start = space = True
        elif kind in ("comment", "space"):
            space = True
        elif token != SPLICE:
            if token == "#" and line_start:
                if last != "\n":
                    out.append("\n")
                last, directive = "\n", True
            now = token if kind == "other" else "w"
            apart = (now == "w") == (last == "w") and not {now, last} & ALONE
            if space and last != "\n" and (directive or apart):
                out.append(" ")
            out.append(token.replace(SPLICE, "\\\n" if kind == "raw" else ""))
            last, space, line_start = now, False, False
    return "".join(out)


class Sources:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.code = cache(lambda path: code(path.read_text("utf-8")))

    def below(self, *folders: str) -> set[Path]:
        """The sources in these folders of the root and in all below them."""
        return {path for name in folders for path in (self.root / name).rglob("*.[ch]pp")}

    def behind(self, *paths: Path) -> set[Path]:
        """The files, what they include, transitively, and the .cpp beside each header."""
        waiting, found = set(paths), set[Path]()
        while waiting:
            path = waiting.pop()
            if path in found or not path.is_file():
                continue
            found.add(path)
            for header in INCLUDE.findall(self.code(path)):
                for folder in (path.parent, self.root / "engine", self.root / "workloads"):
                    included = folder / header
                    waiting |= {included, included.with_suffix(".cpp")}
        return found

    def hash(self, paths: Iterable[Path], digits: int) -> str:
        names = {path.relative_to(self.root).as_posix(): path for path in paths}
        digest = hashlib.sha256()
        for name, path in sorted(names.items()):
            own = hashlib.sha256(self.code(path).encode()).hexdigest()
            digest.update(f"{name} {own}\n".encode())
        return digest.hexdigest()[:digits]


def header(root: Path) -> str:
    sources = Sources(root)
    bindings = sources.behind(root / SIMULATION) & sources.below("engine/bindings")
    ids = {
        "policies": sources.hash(sources.below(*(f"engine/{room}" for room in POLICIES)), 12),
        "simulator": sources.hash(
            bindings | sources.below(*(f"engine/{room}" for room in SIMULATOR)), 12
        ),
        "live": sources.hash(sources.below(*(f"engine/{room}" for room in LIVE)), 12),
        "emulated": sources.hash(sources.below("engine/emulate"), 12),
        "whole": sources.hash(sources.below("engine", "workloads/kernels"), 16),
    }
    kernels = root / "workloads/kernels"
    # The registry completes a kernel's parameters; no header has its name.
    streams = {
        path.stem: sources.hash(sources.behind(path, kernels / "registry.cpp"), 16)
        for path in sorted(kernels.glob("*.cpp"))
    }
    lines = ["// Made by cmake/build_id.py.", "#pragma once"]
    for array, meaning, entries in (
        ("build_ids", "Parts of the engine, and the hash of each.", ids),
        (
            "stream_ids",
            "File of a kernel, without its ending, and the hash of what makes its streams.",
            streams,
        ),
    ):
        lines += [f"/// {meaning}", f"inline constexpr const char* {array}[][2] = {{"]
        lines += [f'    {{"{name}", "{id}"}},' for name, id in entries.items()]
        lines.append("};")
    return "\n".join(lines) + "\n"


def main() -> None:
    root, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    text = header(root)
    # What includes it is compiled again only if it says something else.
    if not out.exists() or out.read_text() != text:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)


if __name__ == "__main__":
    main()
