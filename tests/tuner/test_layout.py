# SPDX-License-Identifier: MIT
"""The tuner's folders: which may import which, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

PACKAGE = ROOT / "tuner"
ORDER = (
    *("", "arguments", "documents", "run", "emulate", "study", "report", "record", "optimize"),
    *("experiment", "apply", "claims", "compare", "map", "size", "fleet", "commands", "cli"),
)
"""A folder imports only from itself and from those before it, when a function is called as well.
"" are the files beside them; what starts the program comes last."""
START = {"tuner", "tuner.api", "tuner.cli", "tuner.__main__"}
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def folder_of(module: str) -> str:
    if module in START:
        return "cli"
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else ""


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that Python may run: what is for type checkers is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from (other, *statements(other))
        else:
            yield child
            yield from statements(child)


def imports(path: Path) -> set[str]:
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in full}
    return (found & MODULES) - {"tuner"}


GRAPH = {module_of(path): imports(path) for path in FILES}


def test_every_folder_has_its_place() -> None:
    assert {"tuner.study.log", "tuner.run.isolation"} <= GRAPH["tuner.experiment.loop"]
    assert "tuner.report.conclusion" in GRAPH["tuner.experiment.studies"]  # within a function
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ORDER) - {"", "cli"}


def test_folders_import_only_from_those_before_them() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in others
        if ORDER.index(folder_of(other)) > ORDER.index(folder_of(module))
    ]
    assert wrong == []


def test_no_module_imports_itself_in_a_circle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for other in GRAPH[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in GRAPH:
        visit(module, ())


def test_no_file_is_too_long() -> None:
    lines = {module_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {module: count for module, count in lines.items() if count > 500} == {}
