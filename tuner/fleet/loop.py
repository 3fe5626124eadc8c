# SPDX-License-Identifier: MIT
"""A fleet: studies side by side on one pool, until the trials of all are spent.

Everything that happens is in the logs of the studies, and what comes next follows from them. So a
fleet can be killed at any moment; the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.errors import UserError
from tuner.experiment.checks import Check, Checks, Workers, bounds_of, run_together
from tuner.experiment.contest import contest
from tuner.experiment.loop import tracker_of
from tuner.experiment.studies import OpenStudy, advance
from tuner.fleet.allocation import Progress, allocate
from tuner.fleet.progress import FleetLive
from tuner.report.conclusion import Conclusion
from tuner.report.tracking import LAST_SECONDS, Line, Tracker
from tuner.run.pool import Pool, Runner
from tuner.run.trial import TrialResult
from tuner.study.log import StudyData, TrialRecord
from tuner.study.request import StudyRequest, StudySummary
from tuner.terminal import GO_ON, progress, resumable, say
from tuner.text import plural


@dataclass(frozen=True)
class Member:
    """A study of a fleet in the end: what it came to, or why it came to nothing. `objectives` are
    those of its trials, None where one failed."""

    request: StudyRequest
    summary: StudySummary | None
    error: str
    objectives: list[float | None]

    @property
    def trials(self) -> int:
        return len(self.objectives)


def run_fleet(
    name: str,
    requests: Sequence[StudyRequest],
    budget: int,
    *,
    workers: int,
    runner: Runner | None = None,
) -> list[Member]:
    """Runs or continues the studies of a fleet until they have had so many trials together.

    Args:
        requests: their budgets are equal parts, for which a study chooses what it does first, and
            their `workers` are the trials of one study at a time.
        workers: trials of all studies at a time.
        runner: runs one trial in a worker process; by default the simulated machine.

    Raises:
        UserError: a study was started with other settings, is being written by another process, or
            cannot be stored.
        KeyboardInterrupt: after everything that had finished was stored.
    """
    with ExitStack() as stack:
        studies = [stack.enter_context(OpenStudy(request)) for request in requests]
        everybody = requests[0].model_copy(update={"workers": workers})
        tracking = stack.enter_context(Tracking())
        workers_of_all = stack.enter_context(Workers(everybody, runner))
        fleet = _Fleet(name, studies, budget, workers_of_all, tracking)

        def stopped() -> str:
            done = sum(len(study.log.data.done) for study in studies)
            return f"stopped: {done} of {budget} trials are done and stored; {GO_ON}"

        with resumable(stopped):
            fleet.search()
            return fleet.conclude()


class Tracking:
    """Trackers of the studies that have trials, on one thread: a store takes one thing at a time.
    A study without a conclusion has ended early."""

    def __init__(self) -> None:
        self._line = Line()
        self._trackers: dict[str, Tracker] = {}
        self._concluded: set[str] = set()

    def _of(self, study: OpenStudy) -> Tracker:
        name = study.request.study
        if name not in self._trackers:
            self._trackers[name] = tracker_of(study, self._line)
        return self._trackers[name]

    def add(self, study: OpenStudy, trial: TrialRecord) -> None:
        self._of(study).add(trial, study.standing.best_objective)

    def conclude(self, study: OpenStudy, conclusion: Conclusion, files: Sequence[Path]) -> None:
        self._of(study).conclude(conclusion, files)
        self._concluded.add(study.request.study)

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        until = time.monotonic() + LAST_SECONDS
        for name, tracker in self._trackers.items():
            early = kind is not None or name not in self._concluded
            tracker.close(interrupted=early, seconds=max(0.0, until - time.monotonic()))
        self._line.end()


class _Fleet:
    def __init__(
        self,
        name: str,
        studies: Sequence[OpenStudy],
        budget: int,
        workers: Workers,
        tracking: Tracking,
    ) -> None:
        self._name, self._studies, self._budget, self._workers = name, studies, budget, workers
        self._tracking = tracking
        self._checks = {
            study.request.study: Checks(study.request, study.log, workers, say) for study in studies
        }
        self._ready: set[str] = set()
        self._broken: dict[str, str] = {}

    def _able(self, studies: Iterable[OpenStudy]) -> list[OpenStudy]:
        """Those whose stream is there, or could be made. The others are broken."""
        for study in studies:
            name = study.request.study
            if name not in self._ready and name not in self._broken:
                try:
                    self._workers.prepare(study.request.stream())
                    self._ready.add(name)
                except UserError as error:
                    say(f"tune: warning: {name}: {error}")
                    self._broken[name] = str(error)
        return [study for study in studies if study.request.study in self._ready]

    def _pool(self, studies: Sequence[OpenStudy]) -> Pool:
        return self._workers.pool(studies[0].request.stream())

    # --- Search -----------------------------------------------------------------------------------

    def search(self) -> None:
        """Runs what is granted, until nothing is left to be granted."""
        done = sum(len(study.log.data.done) for study in self._studies)
        begun = False
        with FleetLive(self._name, self._budget, done) as live:
            for study in self._studies:
                study.notice = partial(_notice, live, study.request.study)
                study.write_best()
            if done:
                live.notice(f"going on: {done} of {self._budget} trials are done")
            while True:
                granted = allocate([self._progress(study) for study in self._studies], self._budget)
                for study, trials in zip(self._studies, granted, strict=True):
                    study.budget = max(trials, study.log.data.asked)
                left = [s for s in self._studies if not s.complete]
                left = [s for s in left if s.request.study not in self._broken]
                if not left:
                    return
                if not (able := self._able(left)):
                    continue  # these are broken, which frees what they were granted
                if not begun:
                    begun = True
                    self._run_bounds(able)
                pool = self._pool(able)
                live.start()

                def finished(study: OpenStudy, trial: TrialRecord, improved: bool) -> None:
                    live.finished(study, trial, improved)
                    self._tracking.add(study, trial)

                advance(able, pool, finished)

    def _progress(self, study: OpenStudy) -> Progress:
        done = _in_order(study.log.data)
        failed = bool(done) and not done[0].succeeded
        ended = study.ended is not None or study.request.study in self._broken
        return Progress(len(done), failed, ended)

    def _run_bounds(self, studies: Sequence[OpenStudy]) -> None:
        self._run_checks(
            [(self._checks[s.request.study], bounds_of(s.request)) for s in studies], "references"
        )

    def _run_checks(self, parts: Sequence[tuple[Checks, list[Check]]], what: str) -> None:
        """Those that are missing."""
        missing = [(checks, checks.missing(wanted)) for checks, wanted in parts]
        total, done = sum(len(wanted) for _, wanted in missing), 0
        if not total:
            return
        with progress(f"{what} of {plural(len(parts), 'study')}, {plural(total, 'run')}") as update:

            def one(checks: Checks, check: Check, result: TrialResult) -> None:
                nonlocal done
                done += 1
                update(done / total)

            update(0.0)
            run_together(self._workers, missing, one)

    # --- End --------------------------------------------------------------------------------------

    def conclude(self) -> list[Member]:
        """Verdicts from held-out seeds, reports and tracking."""
        judged = [study for study in self._studies if study.log.data.done]
        wanted = {
            study.request.study: self._missing(study)
            for study in judged
            if study.request.study not in self._broken
        }
        lacking = [study for study in judged if wanted.get(study.request.study)]
        able = {study.request.study for study in self._able(lacking)}
        parts = [(self._checks[name], wanted[name]) for name in wanted if name in able]
        self._run_checks(parts, "held-out seeds")
        members = []
        with progress(f"reports of {plural(len(self._studies), 'study')}") as update:
            for count, study in enumerate(self._studies, start=1):
                members.append(self._member(study))
                update(count / len(self._studies))
        return members

    def _missing(self, study: OpenStudy) -> list[Check]:
        checks, data = self._checks[study.request.study], study.log.data
        checks.learn(data)
        lacking = checks.missing(bounds_of(study.request))
        return lacking or checks.missing(contest(checks, data).wanted)

    def _member(self, study: OpenStudy) -> Member:
        name, data = study.request.study, study.log.data
        objectives = [trial.objective for trial in data.done]
        error, summary = self._broken.get(name, ""), None
        if not error and data.done:
            conclusion, files = study.report(study.judge(self._checks[name]))
            self._tracking.conclude(study, conclusion, files)
            results = [trial.result for trial in data.done if trial.result is not None]
            summary = study.summary(conclusion, sum(result.seconds for result in results))
            if data.default is None:
                first, *_ = results[0].error.splitlines() or [results[0].status]
                error = f"the default fails: {first}"
        return Member(study.request, summary, error, objectives)


def _notice(live: FleetLive, name: str, text: str) -> None:
    live.notice(f"{name}: {text}")


def _in_order(data: StudyData) -> list[TrialRecord]:
    """Finished trials from the first on, up to one that has not."""
    found: list[TrialRecord] = []
    for number in range(data.asked):
        trial = data.trial(number)
        if trial is None or trial.result is None:
            break
        found.append(trial)
    return found
