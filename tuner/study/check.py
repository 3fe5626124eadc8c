# SPDX-License-Identifier: MIT
"""Whether a study's folder is as it was written, and its files agree."""

from __future__ import annotations

import os
from pathlib import Path

from tuner.documents.reading import read_bytes
from tuner.errors import UserError
from tuner.files import write_file
from tuner.study import best, events, log, public
from tuner.study.log import StudyData, StudyLog

AGAIN = "`tune run ... --resume` writes it again"

ASIDE = f"{log.EVENTS}.damaged"
"""Beside the log: lines that were taken out of it because they cannot be read."""


def problems(data: StudyData) -> list[str]:
    """What is damaged, missing or contradictory. A study may have stopped anywhere."""
    return [*data.damage, *_series(data), *_best(data), *_passwords(data)]


def _passwords(data: StudyData) -> list[str]:
    path = data.directory / log.HEADER
    return [
        f"{path}: {name} holds a password, which all who may read the file know; change it on the "
        "server, then it does no harm (`tune export` leaves it out)"
        for name in public.held(data.directory)
    ]


def _series(data: StudyData) -> list[str]:
    """Those that the log knows of and that are not as they were written."""
    return [
        f"{log.series_file(data.directory, trial)}: missing or damaged; the report leaves "
        "these time series out"
        for trial in data.with_series
        if not data.series_of(trial)
    ]


def _best(data: StudyData) -> list[str]:
    """What best.yaml says otherwise than the log."""
    path, trial = data.directory / best.FILE, data.best
    if not path.exists():
        return [] if trial is None else [f"{path}: missing; {AGAIN}"]
    try:
        found = best.read(path)
    except UserError as error:
        return [f"{error}; {AGAIN}"]
    if trial is None:
        return [f"{path}: no trial of the log has succeeded"]
    request = data.header.request
    wanted = request.trial(trial.number, trial.knobs)
    pairs = {
        "scenario": (found.scenario.named(), wanted.scenario.named()),
        "knobs": (found.knobs, wanted.knobs),
        "objective.value": (found.objective.value, trial.objective),
        "provenance.study": (found.provenance.study, request.study),
        "provenance.trial": (found.provenance.trial, trial.number),
        "provenance.fingerprints": (found.provenance.fingerprints, data.header.fingerprints),
    }
    differ = [name for name, (said, logged) in pairs.items() if said != logged]
    return [f"{path}: {', '.join(differ)}: not as in {log.EVENTS}; {AGAIN}"] if differ else []


def set_aside(directory: Path) -> None:
    """Moves the lines of the log that are left out to the end of the file ASIDE. A kill in between
    leaves them in both. UserError if a process is writing the study, or the disk is full."""
    with StudyLog(directory) as study:
        path, aside = directory / log.EVENTS, directory / ASIDE
        lines = read_bytes(path, events.LARGEST_LOG, follow=False).split(b"\n")
        out = set(study.data.left_out)
        before = b""
        if os.path.lexists(aside):
            before = read_bytes(aside, events.LARGEST_LOG, follow=False)
        write_file(aside, before + b"".join(lines[index] + b"\n" for index in sorted(out)))
        kept = [line for index, line in enumerate(lines) if index not in out]
        write_file(path, b"\n".join(kept))
