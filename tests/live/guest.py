# SPDX-License-Identifier: MIT
"""What tests run in a guest with two memory nodes: programs of this folder, and of Debian's.

Emulation proves behaviour, not speed: both nodes are equally fast, and time is the host's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.emulate import guest
from tuner.emulate.debian import STABLE, Suite, Unusable, run
from tuner.emulate.guest import Failed, Ran, Tools

__all__ = ["Failed", "Ran", "Tools", "Unusable", "boot", "built", "program", "python"]


def boot(
    tools: Tools, job: str, files: Mapping[str, bytes], *, append: str = "", **options: Any
) -> Ran:
    """As `tuner.emulate.guest.boot`. A host that is busy may be late with the guest's timer, at
    which its kernel would give up: it is not to look."""
    return guest.boot(tools, job, files, append=f"no_timer_check {append}".strip(), **options)


def program(package: str, *paths: str) -> dict[str, bytes]:
    """Programs of a package of Debian's with the libraries that they load, by their paths in the
    guest."""
    suite = Suite(STABLE)
    # As if nothing were installed: what the host has may be of another version.
    needed = suite.missing(package)
    own = package.split("-")[0]
    root = suite.unpacked(package, [name for name in needed if name.startswith(("lib", own))])
    common = root / "usr/lib/x86_64-linux-gnu"
    folders = [common / own, common, root / "lib/x86_64-linux-gnu"]
    loader = next(each / "ld-linux-x86-64.so.2" for each in reversed(folders) if each.is_dir())
    places = ":".join(str(folder) for folder in folders)
    files = {"/lib64/ld-linux-x86-64.so.2": loader.read_bytes()}
    for path in paths:
        said = run(str(loader), "--library-path", places, "--list", str(root / path))
        files[f"/{path}"] = (root / path).read_bytes()
        for name, found in re.findall(r"^\s*([^/\s]+) => (/\S+) ", said, re.MULTILINE):
            files[f"/lib/x86_64-linux-gnu/{name}"] = Path(found).read_bytes()
    return files


LISTS = """
import sys
sys.path.insert(0, sys.argv[1])
import encodings.ascii, encodings.latin_1, ntpath
for module in sys.argv[2:]:
    __import__(module)
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""


def python(*modules: str) -> dict[str, bytes]:
    """The Python that runs the tests, as /python, with modules of ours and what they import, by
    their paths in the guest: the same as here."""
    root = str(Path(__file__).resolve().parents[2])
    own = Path(sys.executable).resolve()
    said = run(str(own), "-I", "-S", "-c", LISTS, root, *modules)
    libraries = [own, *(path for path in map(Path, said.split()) if path.suffix == ".so")]
    paths = {path: path for path in map(Path, said.split()) if path.is_absolute()}
    for library in libraries:
        paths |= {Path(p): Path(p) for p in re.findall(r"(/\S+) \(0x", run("ldd", str(library)))}
    for path in list(paths):  # of `import a.b` also a
        if path.suffix == ".py" and (first := path.parent / "__init__.py").is_file():
            paths[first] = first
    files = {str(path): path.read_bytes() for path in paths}
    words = f'#!/bin/sh\nexport PYTHONPATH={root}\nexec {own} "$@"\n'
    return {**files, str(own): own.read_bytes(), "/python": words.encode()}


def built(work: Path) -> dict[str, bytes]:
    """The programs of this folder, by their paths in the guest."""
    out = {}
    for source in sorted(Path(__file__).parent.glob("*.c")):
        made = work / source.stem
        options = ("-O2", "-Wall", "-Werror", "-static", "-pthread")
        run("cc", *options, "-o", str(made), str(source))
        out[f"/{source.stem}"] = made.read_bytes()
    return out
