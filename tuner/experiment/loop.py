# SPDX-License-Identifier: MIT
"""A study: references, then ask, run, record, tell until the budget is spent, then the verdict.

The order of things is decided here; what each of them does is in `studies.py`, which runs several
studies side by side just as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tuner.emulate.live import as_it_is
from tuner.errors import UserError, one_line
from tuner.experiment import noise
from tuner.experiment.checks import Checks, Workers, bounds, seeds_of
from tuner.experiment.robust import sizes
from tuner.experiment.studies import Found, OpenStudy, advance
from tuner.limits import AUTO, AUTO_GAIN, AUTO_TRIALS
from tuner.report.progress import Live
from tuner.report.store import default_store
from tuner.report.tracking import Line, Tracker
from tuner.run.isolation import simulates
from tuner.run.pool import Runner
from tuner.run.settings import Setting
from tuner.scenario import LIVE
from tuner.study import log
from tuner.study.log import TrialRecord
from tuner.study.request import StudyRequest, StudySummary
from tuner.terminal import resumable, say
from tuner.text import clock, shell, size

CONTENDERS = 3
"""That every study's verdict compares: no tiering, the default, and the best configuration."""


def run_study(request: StudyRequest, *, runner: Runner | None = None) -> StudySummary:
    """Runs or resumes a study until it has `request.budget` trials, and sums it up.

    Args:
        request: what to tune, completely resolved.
        runner: runs one trial in a worker process; by default the simulated machine.

    Raises:
        UserError: the study exists (without `resume`), was started with other settings, is being
            written by another process, or cannot be stored; or the fast tier holds everything.
        KeyboardInterrupt: after everything that had finished was stored, and the command that
            continues the study was printed.
    """
    started = time.monotonic()
    if simulates(request.isolation) and (advice := everything_fits(request)):
        raise UserError(advice)
    # Ending the workers takes a second: whoever stops a study hears before how to go on.
    with OpenStudy(request) as study, Workers(study.request, runner) as workers:
        asked = study.log.data.asked
        if request.budget < asked:
            raise UserError(
                f"study '{request.study}' has {asked} trials already, more than --budget "
                f"{request.budget}"
            )
        with _tracking(study) as tracker:
            found = _run(study, workers, tracker)
            workers.close()
            return _conclude(study, tracker, found, time.monotonic() - started)


# --- Run ------------------------------------------------------------------------------------------


def _run(study: OpenStudy, workers: Workers, tracker: Tracker) -> Found:
    request, data = study.request, study.log.data
    study.write_best()
    complete = study.complete
    budget = str(request.budget)
    if request.auto_seconds:
        budget = f"at most {request.budget}"
    if complete:
        why = f"has ended ({data.ended})" if study.ended else f"has its {request.budget} trials"
        say(f"study '{request.study}' {why} already")
    else:
        if request.sampling:
            name = f"{request.workload.name} ({request.scenario.input})"
            warning = "tune: warning: " if request.sampling.missing else ""
            say(f"{warning}{name} was {request.sampling.describe()}")
        for doubt in request.doubts:
            say(f"tune: warning: {doubt}")
        if request.emulated:
            held_out = CONTENDERS * seeds_of(request.scenario)
            runs = len(request.references) + request.budget + held_out
            at_a_time = f"{request.workers} at a time"
            say(
                f"on {request.emulated}: {runs} runs of a minute or more, {at_a_time}; each is kept"
            )
        if request.scenario.substrate == LIVE:
            say(f"tune: note: {as_it_is()}")
        if data.trials:
            say(f"resuming '{request.study}': {len(data.done)} of {budget} trials are done")
        if request.auto_seconds:
            say(
                f"--budget {AUTO}: until {AUTO_TRIALS} trials in a row bring less than "
                f"{100 * AUTO_GAIN:g} % together, for {clock(request.auto_seconds)} at most"
            )
    with Live(study.standing, data.trials) as live:
        study.notice = live.notice
        checks = Checks(request, study.log, workers, live.notice)
        bounds(checks)
        if request.scenario.substrate == LIVE and not complete:
            live.notice(noise.measured(checks))
        if not complete:
            pool = workers.pool(request.stream())
            study.begin()

            def finished(_: OpenStudy, trial: TrialRecord, improved: bool) -> None:
                live.finished(trial, improved)
                tracker.add(trial, study.standing.best_objective)

            study.standing.start()
            advance([study], pool, finished)
        return study.judge(checks)


def everything_fits(setting: Setting) -> str | None:
    """Why there is nothing to tune: the fast tier holds the whole footprint.

    Happens on machines whose capacities are fixed, with workloads that are small against them.
    """
    fast, footprint = sizes(setting)
    if fast < footprint:
        return None
    return (
        f"all {size(footprint)} of {setting.workload.name} fit the fast memory of "
        f"{setting.machine.name} ({size(fast)}): there is nothing to tune; choose another "
        "--machine, or a smaller fast tier"
    )


# --- End ------------------------------------------------------------------------------------------


def tracker_of(study: OpenStudy, line: Line | None = None) -> Tracker:
    """Tracks the study in MLflow."""
    request = study.request
    uri = request.mlflow_uri or default_store(Path(request.out))
    return Tracker(study.log.data, uri, say, line)


@contextmanager
def _tracking(study: OpenStudy) -> Iterator[Tracker]:
    """Tracks the study. If it ends early, says how to continue."""
    with ExitStack() as stack, resumable(lambda: _stopped(study)):
        tracker = tracker_of(study)
        stack.push(partial(_let_go, tracker))
        yield tracker
        tracker.close()


def _let_go(tracker: Tracker, kind: type[BaseException] | None, *_: object) -> None:
    if kind is not None:
        tracker.close(interrupted=True)


def _stopped(study: OpenStudy) -> str:
    # Read from the file: an interrupt may have come between writing it and `study.log.data`.
    done = len(log.load(study.log.directory).done)
    most = "at most " if study.request.auto_seconds else ""
    return (
        f"stopped: {done} of {most}{study.request.budget} trials are done and stored in "
        f"{one_line(study.log.directory)}\ncontinue with: {resume_command(study.request)}"
    )


def resume_command(request: StudyRequest) -> str:
    """The command that continues the study."""
    options = {
        "--space": request.space_argument,
        "--importance": request.importance,
        "--deadline": request.deadline_seconds,
        "--budget": request.budget_option,
        "--workers": request.workers,
        "--ray-address": request.ray_address,
        "--mlflow-uri": request.mlflow_uri,
        "--out": request.out,
        "--name": request.study,
    }
    words = [
        word
        for option, value in options.items()
        if value is not None
        for word in (option, str(value))
    ]
    if request.explain != request.scenario.simulated:
        words.append("--explain" if request.explain else "--no-explain")
    simulated = simulates(request.isolation) and request.scenario.simulated
    if request.robust != simulated:
        words += ["--robust", "neighbours" if request.robust else "none"]
    words += request.isolation.command_line() if request.isolation else []
    words += ["--rivals", request.rivals] if request.rivals else []
    words += request.judged_by
    return shell(["tune", "run", *request.scenario.command_line(), *words, "--resume"])


def _conclude(study: OpenStudy, tracker: Tracker, found: Found, seconds: float) -> StudySummary:
    """Scores, report, tracking, and the summary that the command prints."""
    from tuner.report.conclusion import text

    conclusion, files = study.report(found)
    tracker.conclude(conclusion, files)
    to = sys.stderr if study.request.json_output else sys.stdout
    print(text(study.log.data, conclusion), file=to)
    return study.summary(conclusion, seconds)
