# SPDX-License-Identifier: MIT
"""Absolute paths in a study's files, when the folder of studies was moved or copied.

Files in that folder are looked for where it is now, if they came along. All others stay where they
were. Nothing is written: `study.json` keeps the paths of then, because the log has its hash.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.documents.reading import parse_json, read_bytes
from tuner.errors import UserError
from tuner.scenario import Scenario
from tuner.study.request import StudyRequest

HEADER = "study.json"
LARGEST = 8_000_000
"""Bytes of a study.json: an ordinary one has some 100,000."""

DOCUMENTS = ("workload", "machine", "placement")
"""Fields of a scenario that may be paths."""


def request_in(directory: Path, request: StudyRequest) -> StudyRequest:
    """The request of the study that is in the directory now."""
    old, out = request.out, str(directory.absolute().parent)
    if old == out:
        return request
    inputs = {
        name: input.model_copy(update={"trace": input.trace and _follow(input.trace, old, out)})
        for name, input in request.workload.inputs.items()
    }
    space = request.space_argument
    return request.model_copy(
        update={
            "out": out,
            "scenario": _followed(request.scenario, old, out),
            "workload": request.workload.model_copy(update={"inputs": inputs}),
            "space_argument": space and _follow(space, old, out),
        }
    )


def scenario_in(directory: Path, scenario: Scenario) -> Scenario:
    """The scenario of a best.yaml in a study's directory, whose study.json tells where that was.
    Without one, paths are what they are."""
    if any(getattr(scenario, name).startswith("/") for name in DOCUMENTS):
        with suppress(OSError, UserError, ValueError, KeyError, TypeError):
            content = parse_json(read_bytes(directory / HEADER, LARGEST, follow=False))
            old = content["request"]["out"]
            return _followed(scenario, str(old), str(directory.absolute().parent))
    return scenario


def _followed(scenario: Scenario, old: str, new: str) -> Scenario:
    paths: dict[str, Any] = {n: _follow(getattr(scenario, n), old, new) for n in DOCUMENTS}
    return replace(scenario, **paths)


def _follow(path: str, old: str, new: str) -> str:
    now = new + path.removeprefix(old)
    return now if path.startswith(f"{old}/") and Path(now).exists() else path
