# SPDX-License-Identifier: MIT
"""Results of trials by content, in the cache folder: what ran once with this engine runs no more.

The key covers all that the result depends on: scenario, knobs, machine, stream and the engine's
build. So an interrupted command resumes, and claims and comparisons share runs.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from tuner.documents.document import first_of
from tuner.documents.reading import parse_model, read_bytes
from tuner.errors import UserError
from tuner.files import make_room, remove_leftovers, write_file
from tuner.model import Model, content_hash
from tuner.run import streams
from tuner.run.trial import Trial, TrialResult
from tuner.terminal import say

M = TypeVar("M", bound=Model)

LARGEST = 16_000_000
"""Bytes of a result."""
KEPT_BUILDS = 5
"""Engine builds whose results stay, the most recently used ones."""
EMULATED = "emulated"
"""In place of a build: runs of the emulated machine, whose keys have all that they depend on."""
KEPT_ALWAYS = (EMULATED,)
"""An hour of work for a few kilobytes."""


def folder(build: str) -> Path:
    return streams.folder() / "runs" / build


def key(trial: Trial) -> str:
    """Equal keys, equal results."""
    content = trial.model_dump(exclude={"study", "number", "deadline_seconds"}, mode="json")
    return content_hash(content | {"stream": trial.stream.key})


def get(build: str, name: str, model: type[M]) -> M | None:
    """None if there is none, or none that can be read, which is then said: it is measured again."""
    path = folder(build) / f"{name}.json"
    try:
        return parse_model(read_bytes(path, LARGEST), model)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UserError) as error:
        if path not in _told:
            _told.add(path)
            say(f"tune: note: {path} is damaged and counts as missing ({_reason(error)})")
        return None


_told: set[Path] = set()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return first_of(error) if isinstance(error, ValidationError) else str(error)


def put(build: str, name: str, result: Model) -> None:
    path = folder(build) / f"{name}.json"
    with suppress(OSError):  # else writing says why
        make_room(path)
    write_file(path, result.model_dump_json())


def prune(build: str) -> None:
    """Removes the results of old builds, and what killed processes left among this one's.
    UserError if the folder cannot be used."""
    try:
        folder(build).mkdir(parents=True, exist_ok=True)
        os.utime(folder(build))
        remove_leftovers(folder(build))
    except OSError as error:
        raise streams.unusable(error) from error
    builds = [path for path in folder(build).parent.iterdir() if path.name not in KEPT_ALWAYS]
    builds.sort(key=lambda path: -path.lstat().st_mtime)
    for path in builds[KEPT_BUILDS:]:
        shutil.rmtree(path, ignore_errors=True)


def without_series(result: TrialResult) -> TrialResult:
    """As it is kept: who asks wants whole runs, and series are the larger part of a result."""
    return result.model_copy(update={"series": {}})
