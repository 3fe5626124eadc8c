# SPDX-License-Identifier: MIT
"""One configuration for several workloads: studies side by side that try the same configurations,
and are told which of them is best over all.

Each workload has a study like any other, with a log, held-out seeds, a verdict and a report of its
own. They share one search, which learns what a configuration costs over all workloads
(`tuner.study.together`), and the choice of the best. All that happens is in their logs, so that the
command can be killed at any moment, and goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.experiment.checks import (
    Check,
    Checks,
    Workers,
    bounds_of,
    held_out,
    on_seeds,
    run_together,
)
from tuner.experiment.contest import contest
from tuner.experiment.loop import everything_fits
from tuner.experiment.studies import OpenStudy, advance
from tuner.fleet.loop import Tracking
from tuner.fleet.progress import FleetLive
from tuner.objective import OBJECTIVES
from tuner.optimize.shared import Shared, View
from tuner.run.pool import Runner
from tuner.run.trial import TrialResult
from tuner.study.contender import Difference, interval
from tuner.study.log import StudyData, TrialRecord
from tuner.study.request import StudyRequest, StudySummary
from tuner.study.together import Together, best_of, costs
from tuner.terminal import progress, resumable, say
from tuner.text import plural


@dataclass(frozen=True)
class Alone:
    """What a study of one workload alone found: its name, its trials, and every knob."""

    study: str
    trials: int
    knobs: Mapping[str, KnobValue]


@dataclass(frozen=True)
class Part:
    """A workload in the end. `behind` is what the configuration that was tuned for it alone gains
    over the one for all, on the same held-out seeds; None if nobody knows such a one, or it has
    failed."""

    request: StudyRequest
    summary: StudySummary
    alone: Alone | None
    behind: Difference | None


def lag_of(workers: int, studies: int) -> int:
    """Configurations at a time: enough that no worker waits for the last runs of one."""
    return 1 if workers == 1 else math.ceil(workers / studies) + 1


def run_shared(
    requests: Sequence[StudyRequest],
    together: Together,
    *,
    workers: int,
    alone: Mapping[str, Alone],
    go_on: str,
    runner: Runner | None = None,
) -> list[Part]:
    """Runs or continues the studies until each has `budget` trials, and sums them up.

    Args:
        requests: a study for each workload, with the same policy, knobs and budget; their `workers`
            are the configurations at a time.
        workers: runs of all studies at a time.
        alone: by study, the configuration that was tuned for its workload alone, if there is one.
        go_on: the command that continues them.
        runner: runs one trial in a worker process; by default the simulated machine.

    Raises:
        UserError: a fast tier holds everything, a policy's default fails on a workload, or a study
            was started with other settings, is being written by another process, or cannot be
            stored.
        KeyboardInterrupt: after everything that had finished was stored.
    """
    for request in requests:
        if advice := everything_fits(request):
            raise UserError(advice)
    with ExitStack() as stack:
        studies = [stack.enter_context(OpenStudy(request)) for request in requests]
        tracking = stack.enter_context(Tracking())
        everybody = requests[0].model_copy(update={"workers": workers})
        pool = stack.enter_context(Workers(everybody, runner))

        def stopped() -> str:
            done = sum(len(study.log.data.done) for study in studies)
            most = requests[0].budget * len(studies)
            return f"stopped: {done} of {plural(most, 'run')} are stored\ncontinue with: {go_on}"

        with resumable(stopped):
            shared = _Shared(studies, together, pool, tracking)
            shared.search()
            shared.run_held_out(alone)
            return [shared.part(study, alone.get(study.request.study)) for study in studies]


class _Shared:
    def __init__(
        self,
        studies: Sequence[OpenStudy],
        together: Together,
        workers: Workers,
        tracking: Tracking,
    ) -> None:
        self._studies, self._together = studies, together
        self._workers, self._tracking = workers, tracking
        self._checks = {
            study.request.study: Checks(study.request, study.log, workers, say) for study in studies
        }

    @property
    def _logs(self) -> list[StudyData]:
        return [study.log.data for study in self._studies]

    # --- Search -----------------------------------------------------------------------------------

    def search(self) -> None:
        first = self._studies[0]
        for study in self._studies:
            asked = study.log.data.asked
            if study.budget < asked:
                raise UserError(
                    f"study '{study.request.study}' has {asked} trials already, more than --budget "
                    f"{study.budget}"
                )
            self._refuse_failed(study)
            self._prepare(study)
            study.write_best()
        done = sum(len(data.done) for data in self._logs)
        name, total = first.request.policy.name, first.budget * len(self._studies)
        with FleetLive(name, total, done) as live:
            if done:
                live.notice(f"going on: {done} of {plural(total, 'run')} are done")
            for study in self._studies:
                study.notice = live.notice
            self._run("references", [(s, bounds_of(s.request)) for s in self._studies])
            if all(study.complete for study in self._studies):
                return
            shared = Shared(first.optimizer(self._learned), self._logs)
            for study in self._studies:
                study.begin(View(shared))
            live.start()

            def finished(study: OpenStudy, trial: TrialRecord, improved: bool) -> None:
                live.finished(study, trial, improved)
                self._tracking.add(study, trial)
                self._refuse_failed(study)

            advance(self._studies, self._workers.pool(first.request.stream()), finished)

    def _prepare(self, study: OpenStudy) -> None:
        """Makes the stream; an error names the workload."""
        try:
            self._workers.prepare(study.request.stream())
        except UserError as error:
            request = study.request
            where = f"{request.workload.name} ({request.scenario.input})"
            raise UserError(f"{where}: {error}") from error

    def _learned(self, numbers: Sequence[int], seed: int) -> dict[int, float | None]:
        return costs(self._logs, numbers, self._together.how)

    def _refuse_failed(self, study: OpenStudy) -> None:
        """UserError if the defaults fail on a workload: then nothing can be compared with them."""
        first = study.log.data.trial(0)
        if first is not None and first.result is not None and not first.succeeded:
            why, *_ = first.result.error.splitlines() or [first.result.status]
            raise UserError(
                f"{study.request.workload.name} ({study.request.scenario.input}): the defaults of "
                f"{study.request.policy.name} fail, and costs are counted over theirs: {why}"
            )

    def _run(self, what: str, parts: Sequence[tuple[OpenStudy, Sequence[Check]]]) -> None:
        """Those checks that are missing."""
        missing = [
            (checks, checks.missing(wanted))
            for study, wanted in parts
            for checks in [self._checks[study.request.study]]
        ]
        total, done = sum(len(wanted) for _, wanted in missing), 0
        if not total:
            return

        def one(checks: Checks, check: Check, result: TrialResult) -> None:
            nonlocal done
            done += 1
            update(done / total)

        named = f"{what} of {plural(len(parts), 'workload')}, {plural(total, 'run')}"
        with progress(named) as update:
            run_together(self._workers, missing, one)

    # --- End --------------------------------------------------------------------------------------

    def run_held_out(self, alone: Mapping[str, Alone]) -> None:
        """Chooses the best over all workloads, and runs it and its rivals on held-out seeds."""
        number = best_of(self._logs, self._together.how)
        wanted = []
        for study in self._studies:
            checks, data = self._checks[study.request.study], study.log.data
            checks.learn(data)
            if number is not None and data.chosen != number:
                study.log.chose(number)
            runs = contest(checks, data).wanted
            if (own := alone.get(study.request.study)) is not None:
                runs += _on_seeds(study.request, own.knobs)
            wanted.append((study, runs))
        self._run("default, best and first-touch on held-out seeds", wanted)

    def part(self, study: OpenStudy, alone: Alone | None) -> Part:
        checks, data = self._checks[study.request.study], study.log.data
        conclusion, files = study.report(study.judge(checks))
        self._tracking.conclude(study, conclusion, files)
        seconds = sum(trial.result.seconds for trial in data.done if trial.result is not None)
        behind = None if alone is None else self._behind(checks, data, alone)
        return Part(study.request, study.summary(conclusion, seconds), alone, behind)

    def _behind(self, checks: Checks, data: StudyData, alone: Alone) -> Difference | None:
        objective = OBJECTIVES[data.header.request.scenario.objective]
        best = {} if data.best is None else data.best.knobs
        runs = [checks.values(_on_seeds(checks.request, knobs)) for knobs in (alone.knobs, best)]
        gains = [
            objective.gain(one, other)
            for one, other in zip(*runs, strict=True)
            if one is not None and other is not None
        ]
        if not gains:
            return None
        mean, half_width = interval(gains)
        return Difference(gain=mean, half_width=half_width, pairs=len(gains))


def _on_seeds(request: StudyRequest, knobs: Mapping[str, KnobValue]) -> list[Check]:
    return on_seeds(request, knobs, held_out(request), "held-out tuned alone")
