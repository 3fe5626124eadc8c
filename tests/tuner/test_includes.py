# SPDX-License-Identifier: MIT
"""The engine's rooms: which may include which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

ALLOWED = {
    "engine/core": "",
    "engine/track": "core",
    "engine/classify": "core",
    "engine/migrate": "core track",
    "engine/regulate": "core track migrate",
    "engine/policy": "core track classify migrate regulate",
    "engine/trace": "core",
    "engine/sim": "core trace",
    "engine/perf": "",
    "engine/record": "core trace perf",
    "engine/emulate": "",
    "engine/live": "core perf emulate",
    "engine/tierd": "core perf live",
    "engine/emulate/plugin": "emulate",
    "engine/emulate/guest": "emulate",
    "engine/emulate/native": "trace emulate kernels",
    "engine/record/plugin": "core trace record",
    "engine/bindings": "core trace sim record live kernels",
    "workloads/kernels": "core trace",
}
"""Beside itself. A room is a folder with what is below it, but for those that are rooms of their
own; it is included by its path below engine/ or workloads/. No policy's file is included by another
room: policies are found by their names (core/seam.hpp). CONTRIBUTING.md has the same table."""
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def room_of(path: str) -> str:
    """The room of a file, by its path from the root. AssertionError if it is in none."""
    found = [room for room in ALLOWED if path.startswith(f"{room}/")]
    assert found, f"{path} is in no room; known: {', '.join(ALLOWED)}"
    return max(found, key=len)


def included_as(room: str) -> str:
    return room.split("/", 1)[1]


def sources(root: Path) -> Iterator[Path]:
    for folder in ("engine", "workloads"):
        yield from sorted((root / folder).rglob("*.[ch]pp"))


def includes(root: Path) -> Iterator[tuple[str, str, str]]:
    """Of each include in quotes: file and line, the file's room, and the room that it is from."""
    names = {included_as(room): room for room in ALLOWED}
    for path in sources(root):
        name = path.relative_to(root).as_posix()
        room = room_of(name)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := INCLUDE.match(line):
                folder = found[1].rpartition("/")[0]
                while folder and folder not in names:
                    folder = folder.rpartition("/")[0]
                # Without a folder it is a file beside it, or one that the build makes.
                yield f"{name}:{number}: {found[1]}", room, names.get(folder, room)


def wrong(root: Path) -> list[str]:
    return [
        f"{where}: {included_as(room)} may include {ALLOWED[room] or 'itself alone'}"
        for where, room, other in includes(root)
        if other != room and included_as(other) not in ALLOWED[room].split()
    ]


def test_rooms_include_only_what_the_table_allows() -> None:
    assert wrong(ROOT) == []


def test_an_include_through_a_wall_is_named_with_its_place(tmp_path: Path) -> None:
    for name, text in {
        "engine/track/scores.hpp": '#pragma once\n#include "core/types.hpp"\n\n'
        '  #  include "classify/bins.hpp"  // so close\n',
        "engine/policy/some.cpp": '#include "sim/machine.hpp"\n',
        "engine/core/seam.hpp": '#include "policy/tpp.hpp"\n#include <sim/standard.hpp>\n',
        "engine/sim/machine.hpp": '#include "record/preload/heat.hpp"\n',
        "engine/record/import/csv.cpp": '#include "record/import/text.hpp"\n'
        '#include "record/plugin/guest.hpp"\n',
        "engine/bindings/bind.cpp": '#include "convert.hpp"\n',
        "workloads/kernels/bfs.cpp": '#include "kernels/kernel.hpp"\n#include "trace/llc.hpp"\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert wrong(tmp_path) == [
        "engine/core/seam.hpp:1: policy/tpp.hpp: core may include itself alone",
        "engine/policy/some.cpp:1: sim/machine.hpp: policy may include core track classify migrate "
        "regulate",
        "engine/record/import/csv.cpp:2: record/plugin/guest.hpp: record may include core trace "
        "perf",
        "engine/sim/machine.hpp:1: record/preload/heat.hpp: sim may include core trace",
        "engine/track/scores.hpp:4: classify/bins.hpp: track may include core",
    ]


def test_no_room_includes_itself_in_a_circle() -> None:
    names = [included_as(room) for room in ALLOWED]
    while names:  # one that includes none of those that are left goes, until none is left
        gone = [
            included_as(room)
            for room in ALLOWED
            if included_as(room) in names and not set(ALLOWED[room].split()) & set(names)
        ]
        assert gone, f"a circle among {', '.join(names)}"
        names = [name for name in names if name not in gone]


def test_the_table_is_that_of_the_documentation_and_of_the_build() -> None:
    rows = re.findall(
        r"^\| `((?:engine|workloads)/[a-z/]+)/` \| `(\w+)` \| (.+?) \|$",
        (ROOT / "CONTRIBUTING.md").read_text(),
        re.MULTILINE,
    )
    assert {room: includes for room, _, includes in rows} == {
        room: ", ".join(f"`{name}`" for name in may.split()) or "nothing else"
        for room, may in ALLOWED.items()
    }
    folders = {
        (folder, library)
        for library, listed in re.findall(
            r"^ *tt_library\((\w+)([^)]+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
        )
        for folder in listed.split()
    }
    library_of = {room: library for room, library, _ in rows}
    assert folders == {(folder, library_of[room_of(f"{folder}/")]) for folder, _ in folders}
    assert {library for library in library_of.values() if library.startswith("tt_")} == {
        library for _, library in folders
    }
