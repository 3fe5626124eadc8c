# SPDX-License-Identifier: MIT
"""Dependencies that are declared are used; those that are used are declared and locked."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=!~ ;\[]", requirement)[0]) for requirement in requirements}


def imports(*folders: str) -> dict[str, set[str]]:
    """Third-party modules that Python files below the folders import, each with the distributions
    that provide it (several where a project is split)."""
    owners = packages_distributions()
    found: dict[str, set[str]] = {}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            for top in {module.partition(".")[0] for module in modules}:
                if top not in sys.stdlib_module_names and top != "tuner":
                    found[top] = {normal(owner) for owner in owners.get(top, [top])}
    return found


def test_every_import_of_the_package_is_declared_and_every_dependency_imported() -> None:
    declared = names(PROJECT["project"]["dependencies"])
    used = imports("tuner")
    assert not [module for module, owners in used.items() if not owners & declared]
    assert declared <= set().union(*used.values())


def test_every_requirement_has_an_upper_bound_and_a_tested_version() -> None:
    groups = [r for group in PROJECT["dependency-groups"].values() for r in group]
    all_of_them = PROJECT["project"]["dependencies"] + [r for r in groups if isinstance(r, str)]
    unbounded = [r for r in all_of_them if "<" not in r and "==" not in r]
    assert not unbounded
    locked = {
        normal(line.split("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert names(all_of_them) <= locked


def test_the_build_environment_asks_for_what_the_build_group_has() -> None:
    build = set(PROJECT["dependency-groups"]["build"])
    assert set(PROJECT["build-system"]["requires"]) <= build


def test_the_image_builds_the_package_from_all_that_it_names() -> None:
    stages = re.split(r"^FROM ", (ROOT / "docker/Dockerfile").read_text(), flags=re.MULTILINE)
    (build,) = (stage for stage in stages if " AS build\n" in stage)
    copied = {
        word
        for sources, to in re.findall(r"^COPY (.+) (\S+)$", build, re.MULTILINE)
        if to != "/wheels/"
        for word in sources.split()
    }
    project = PROJECT["project"]
    wanted = {"pyproject.toml", "CMakeLists.txt", project["readme"], *project["license-files"]}
    wanted |= set(PROJECT["tool"]["scikit-build"]["wheel"]["packages"])
    assert wanted <= copied
