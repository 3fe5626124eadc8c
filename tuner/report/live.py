# SPDX-License-Identifier: MIT
"""The page of a study that is still running: what its log has so far."""

from __future__ import annotations

from pathlib import Path

from tuner.files import write_files
from tuner.report import page
from tuner.report.conclusion import Conclusion
from tuner.report.importance import importance
from tuner.report.progress import Progress
from tuner.study.log import EVENTS, StudyData
from tuner.study.verdict import Advice, Verdict

PAGE = "live.html"
SECONDS = 10
"""After which an open page reads itself again."""


def write(study: StudyData) -> Path:
    """Writes the page into the study's directory. UserError if that fails."""
    place = study.directory / PAGE
    write_files({place: page.text(study, provisional(study), refresh=SECONDS)})
    return place


def provisional(study: StudyData) -> Conclusion:
    """What is known before the end. It advises nothing: no configuration has run on held-out
    seeds."""
    request = study.header.request
    progress = Progress(request)
    for trial in study.done:
        progress.add(trial, replayed=True)
    most = "at most " if request.auto_seconds else ""
    done, standing = f"{progress.done} of {most}{request.budget} trials", progress.standing()
    verdict = Verdict(
        advice=Advice.nothing,
        headline=f"running, {done}{f': {standing}' if standing else ''}",
        objective=request.scenario.objective,
        trials=progress.done,
    )
    return Conclusion(verdict, None, importance(study, request.importance))


MOVED = f'<!doctype html><meta http-equiv="refresh" content="0; url={page.PAGE}">\n'


def end(directory: Path) -> None:
    """Leads whoever looks at the page to the report. UserError if it cannot be written."""
    write_files({directory / PAGE: MOVED})


def ended(study: StudyData) -> bool:
    """Whether its report is there and of all that the log has."""
    report, log = study.directory / page.PAGE, study.directory / EVENTS
    if not report.exists() or not study.complete:
        return False
    return report.stat().st_mtime >= log.stat().st_mtime
