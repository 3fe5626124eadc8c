# SPDX-License-Identifier: MIT
"""Studies while they run: opened, advanced side by side on one pool, and concluded.

A trial is written to the log before it runs and its result before anything is concluded from it;
everything else that is shown or stored is made from the log, so that a study can be killed at any
moment and resumed. What a study proposes depends on its own results alone, whatever else runs on
the pool.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.errors import UserError, one_line
from tuner.experiment.checks import POLL_SECONDS, Check, Checks
from tuner.experiment.contest import judge
from tuner.experiment.explain import explain, leaner
from tuner.experiment.fronts import front
from tuner.experiment.robust import choose, elsewhere
from tuner.files import make_folder
from tuner.limits import AUTO
from tuner.report.progress import Progress
from tuner.run import admission, streams
from tuner.run.isolation import simulates
from tuner.run.pool import Pool
from tuner.run.trial import Trial, TrialResult
from tuner.study import best, log, public
from tuner.study.best import BestConfiguration
from tuner.study.commit import commit_of
from tuner.study.explanation import Explanation
from tuner.study.front import Front, Point
from tuner.study.log import StudyHeader, StudyLog, TrialRecord
from tuner.study.request import StudyRequest, StudySummary
from tuner.study.together import said
from tuner.study.verdict import Verdict
from tuner.terminal import say
from tuner.text import clock, plural

if TYPE_CHECKING:
    from tuner.optimize.optimizer import Costs, Optimizer, Proposer
    from tuner.report.conclusion import Conclusion

PROSE = {
    "summary",
    "sources",
    "source",
    "notes",
    "citation",
    "addresses",
    "meaning",
    "trace",
    "sampling",
}
"""Keys of documents and declarations that change no result."""

Found = tuple[Verdict, Explanation | None]


class OpenStudy:
    """A study that this process writes: its log, what is known of it, and what comes next. Use as a
    context manager.

    `budget` are the trials that it may have so far; it may grow. `notice` is told what a person
    should know. `ended` says why there are no more trials than there are, if the budget is not why.
    """

    def __init__(self, request: StudyRequest) -> None:
        """Creates the study, or opens it. UserError if it exists (without `resume`), was started
        with other settings, is being written by another process, or cannot be stored."""
        self.request = request
        if request.ray_address is None and simulates(request.isolation):
            streams.path_of(request.stream())  # without a folder for it there is no study
        elif request.ray_address is not None:
            admission.check(
                request.ray_address, starting=admission.STARTING_SECONDS
            )  # nor without a cluster
        self.log = _open(Path(request.out) / request.study, request)
        self.request = request = _with_its_rivals(request, self.log)
        self.budget = request.budget
        self.notice: Callable[[str], None] = say
        same = request.auto_seconds == self.log.data.header.request.auto_seconds
        self.ended = self.log.data.ended if request.auto_seconds and same else None
        self._began = time.monotonic()
        self.standing = Progress(request)
        for trial in self.log.data.done:
            self.standing.add(trial, replayed=True)
        # Asked for in an earlier run, and never finished.
        self._waiting = deque(trial for trial in self.log.data.trials if trial.result is None)
        self._optimizer: Proposer | None = None

    def __enter__(self) -> OpenStudy:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    # --- Trials -----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        budget = self.log.data.asked if self.ended else self.budget
        return self.standing.done >= budget

    def optimizer(self, costs: Costs | None) -> Optimizer:
        """One that has proposed nothing. `costs`: what it learns, if not the objective alone."""
        from tuner.optimize.optimizer import Optimizer

        request, data = self.request, self.log.data
        starts = list(request.starts)
        if not request.prior:  # which began with them
            starts += catalog.starts(request.space, request.policy)
        tuned = [knob.name for knob in request.tuned]
        return Optimizer(
            request.tuned,
            seed=request.scenario.seed,
            initial=data.header.initial,
            lag=data.header.lag,
            fixed=request.policy.others(request.tuned),
            starts=[{name: start[name] for name in tuned} for start in starts],
            prior=[(known.knobs, known.over) for known in request.prior],
            costs=costs,
        )

    def begin(self, proposer: Proposer | None = None) -> None:
        """Brings the optimizer, its own or one that it shares, to where it was when the last event
        was written."""
        from tuner.optimize.costs import Costs

        self._began = time.monotonic()
        data = self.log.data
        if proposer is None:
            proposer = self.optimizer(Costs(data) if Costs.needed(self.request) else None)
        self._optimizer = optimizer = proposer
        for number in range(data.asked):
            trial = data.trial(number)
            if trial is None:  # its record is damaged
                lost = optimizer.ask(again=True)
                self._waiting.append(self.log.asked(lost.number, lost.origin, lost.knobs))
                continue
            optimizer.replay(trial.number, trial.knobs)
            if trial.result is not None:
                optimizer.tell(trial.number, trial.result.cost)

    def next_trial(self) -> Trial | None:
        """A trial to be started now; None if there is none before others have finished."""
        from tuner.optimize.optimizer import SpaceExhausted

        if self._optimizer is None:
            if self.complete:
                return None
            self.begin()
        optimizer = self._optimizer
        assert optimizer is not None
        more = self.ended is None and len(self.log.data.trials) < self.budget
        if not self._waiting and more and optimizer.ready():
            if (reason := self._enough()) is not None:
                self.ended = reason
                self.log.ended(reason)
                self.notice(f"the search ends after {plural(optimizer.asked, 'trial')}: {reason}")
                return None
            try:
                proposal = optimizer.ask()
            except SpaceExhausted as end:
                self.ended = str(end)
                if self.request.auto_seconds:
                    self.log.ended(self.ended)
                self.notice(f"{end}: the study ends before its budget")
                return None
            self._waiting.append(self.log.asked(proposal.number, proposal.origin, proposal.knobs))
        if not self._waiting:
            return None
        trial = self._waiting.popleft()
        return self.request.trial(trial.number, trial.knobs)

    def _enough(self) -> str | None:
        """Why a search without a number of trials ends now; None if it goes on. It goes by results,
        those that the next proposal would go by, but for its cap."""
        most, data = self.request.auto_seconds, self.log.data
        if most is None or not data.asked:
            return None
        from tuner.optimize.enough import enough

        if reason := enough(data, max(0, data.asked - data.header.lag + 1)):
            return reason
        if time.monotonic() - self._began < most:
            return None
        return (
            f"its {clock(most)} are over, and more may be found: --resume with --budget N, or with "
            f"a longer --budget {AUTO}:SECONDS, goes on"
        )

    def take(self, result: TrialResult) -> tuple[TrialRecord, bool]:
        """Records the end of a trial; also whether it is the best so far."""
        trial = self.log.finished(result)
        assert self._optimizer is not None
        self._optimizer.tell(result.number, result.cost)
        improved = self.standing.add(trial)
        if improved or (trial.number == 0 and self.standing.best is not None):
            self.write_best()
        return trial, improved

    # --- Files and conclusion ---------------------------------------------------------------------

    def write_best(self, verdict: Verdict | None = None) -> None:
        """best.yaml of what is known, if a trial succeeded; the verdict is, once the study has
        ended. One that shares its configurations has none before: its own best is not what is
        looked for."""
        trial = self.log.data.best
        if self.request.together and self.log.data.chosen is None:
            (self.log.directory / best.FILE).unlink(missing_ok=True)
        elif trial is not None and trial.result is not None:
            found = self._configuration(trial, trial.knobs, trial.result, verdict)
            best.write(found, self.log.directory / best.FILE)

    def _write_front(self, found: Front | None) -> None:
        """A file for each point of the front, and none of an earlier one."""
        folder = self.log.directory / best.FRONT
        shown = {} if found is None else {best.front_file(p.trial): p.trial for p in found.points}
        if shown:
            make_folder(folder)
        for name, number in shown.items():
            trial = self.log.data.trial(number)
            assert trial is not None and trial.result is not None
            each = self._configuration(trial, trial.knobs, trial.result, None)
            best.write(each.model_copy(update={"on_front": True}), self.log.directory / name, name)
        for path in folder.glob("trial-*.yaml") if folder.is_dir() else ():
            if f"{best.FRONT}/{path.name}" not in shown:
                path.unlink()

    def _write_minimal(
        self, verdict: Verdict, explanation: Explanation | None, result: TrialResult | None
    ) -> None:
        path = self.log.directory / best.MINIMAL
        if explanation is None:
            path.unlink(missing_ok=True)
            return
        trial = self.log.data.best
        assert trial is not None
        if result is None or result.objective is None:
            say(f"warning: no {best.MINIMAL}: its configuration fails on the study's seed")
            path.unlink(missing_ok=True)
            return
        if explanation.breaks:
            path.unlink(missing_ok=True)
            return
        found = self._configuration(trial, explanation.minimal, result, verdict)
        minimal = best.Minimal(changes=list(explanation.minimal), kept=explanation.kept)
        best.write(found.model_copy(update={"minimal": minimal}), path)

    def _configuration(
        self,
        trial: TrialRecord,
        knobs: Mapping[str, KnobValue],
        result: TrialResult,
        verdict: Verdict | None,
    ) -> BestConfiguration:
        data = self.log.data
        return BestConfiguration.of(
            self.request,
            self.request.trial(trial.number, knobs),
            result,
            default_value=None if data.default is None else data.default.objective,
            date=datetime.fromisoformat(trial.finished or trial.asked).astimezone(UTC),
            git_commit=data.header.git_commit,
            verdict=verdict,
            fingerprints=data.header.fingerprints,
        )

    def judge(self, checks: Checks) -> Found:
        """The verdict on a complete study and what explains it, with the files of the best."""
        data = self.log.data
        checks.learn(data)
        if data.header.request.auto_seconds and not data.complete:  # it was given a number since
            self.log.ended(f"its budget of {plural(len(data.done), 'trial')}")
        chosen = choose(checks, data)
        if chosen is not None and data.best is not None and chosen != data.best.number:
            self.log.chose(chosen)
        if self.request.explain:
            self._choose_leaner(checks)
        verdict, near, found, (explanation, minimal) = checks.together(
            partial(judge, checks, data),
            partial(elsewhere, checks, data),
            partial(front, checks, data),
            partial(self._explain, checks),
        )
        verdict = verdict.model_copy(
            update={"elsewhere": near, "front": found} | said(data.header.request, verdict)
        )
        self.write_best(verdict)
        self._write_front(found)
        self._write_minimal(verdict, explanation, minimal)
        return verdict, explanation

    def _choose_leaner(self, checks: Checks) -> None:
        """Recommends the best trial without changes that add nothing, if that is as good."""
        data = self.log.data
        # The verdict's other runs, for workers that have nothing else to do.
        knobs, _ = checks.together(partial(leaner, checks, data), partial(judge, checks, data))
        if data.best is None:
            return
        lean = None
        if knobs is not None:
            (result,) = checks.run([_minimal(self.request, knobs)])
            lean = None if result.objective is None else result.number
        if lean != data.lean:
            self.log.chose(data.best.number, lean)

    def _explain(self, checks: Checks) -> tuple[Explanation | None, TrialResult | None]:
        """Also what the minimal configuration comes to on the study's own seed."""
        found = explain(checks, self.log.data) if self.request.explain else None
        if found is None:
            return None, None
        (result,) = checks.run([_minimal(self.request, found.minimal)])
        return found, result

    def report(self, found: Found) -> tuple[Conclusion, list[Path]]:
        """Writes the report; also its files and those of the best."""
        from tuner.report import page
        from tuner.report.conclusion import Conclusion
        from tuner.report.importance import importance

        data = self.log.data
        conclusion = Conclusion(*found, importance(data, self.request.importance))
        files = page.write(data, conclusion)
        kept = [self.log.directory / name for name in (best.FILE, best.MINIMAL)]
        if conclusion.verdict.front is not None:
            kept += [Path(self._file(point)) for point in conclusion.verdict.front.points]
        return conclusion, [*files, *kept]

    def _file(self, point: Point) -> str:
        return str(self.log.directory / best.front_file(point.trial))

    def summary(self, conclusion: Conclusion, seconds: float) -> StudySummary:
        request, data, verdict = self.request, self.log.data, conclusion.verdict
        return StudySummary(
            study=request.study,
            scenario=request.scenario,
            trials=len(data.done),
            failed=sum(not trial.succeeded for trial in data.done),
            default_objective=None if data.default is None else data.default.objective,
            best_objective=None if data.best is None else data.best.objective,
            gain=None if verdict.gain is None else verdict.gain.gain,
            best_config=None if data.best is None else str(self.log.directory / best.FILE),
            front={p.trial: self._file(p) for p in verdict.front.points} if verdict.front else {},
            verdict=verdict,
            explanation=conclusion.explanation,
            importance=conclusion.shares(data),
            importance_forest=conclusion.forest.scores,
            ended=data.ended,
            seconds=seconds,
            sampling=request.sampling,
        )


def _minimal(request: StudyRequest, knobs: Mapping[str, KnobValue]) -> Check:
    return Check("minimal configuration", request, knobs, series=True)


def advance(
    studies: Sequence[OpenStudy],
    pool: Pool,
    finished: Callable[[OpenStudy, TrialRecord, bool], None],
) -> None:
    """Runs trials until every study is complete. Whichever has asked for the fewest comes first, of
    equals the first.

    Args:
        finished: is called with each trial that ends, and whether it is its study's best so far.
    """
    by_name = {study.request.study: study for study in studies}
    running = 0
    while not all(study.complete for study in studies):
        while running < pool.workers and (trial := _next(studies)) is not None:
            pool.submit(trial)
            running += 1
        for result in pool.wait(POLL_SECONDS) if running else ():
            running -= 1
            study = by_name[result.study]
            finished(study, *study.take(result))


def _next(studies: Sequence[OpenStudy]) -> Trial | None:
    for study in sorted(studies, key=lambda study: study.log.data.asked):
        if (trial := study.next_trial()) is not None:
            return trial
    return None


# --- Opening --------------------------------------------------------------------------------------


def _open(directory: Path, request: StudyRequest) -> StudyLog:
    from tuner.optimize.optimizer import AUTO_INITIAL, initial_trials

    if not log.exists(directory):
        header = StudyHeader(
            format=log.FORMAT,
            created=log.now(),
            request=request,
            fingerprints=request.fingerprints,
            stream=request.stream().key,
            lag=request.workers,
            initial=AUTO_INITIAL if request.auto_seconds else initial_trials(request.budget),
            git_commit=commit_of(Path.cwd()),
        )
        return StudyLog(directory, header)
    if not request.resume:
        data = log.load(directory)
        raise UserError(
            f"study '{request.study}' exists in {one_line(directory)} with {len(data.done)} "
            "finished trials; continue with --resume, or start another with --name"
        )
    study = StudyLog(directory)
    try:
        _refuse_changes(study, request)
        for damage in study.data.damage:
            say(f"warning: {damage}")
        for field in public.held(directory):
            say(f"warning: {directory / log.HEADER} holds a password in {field}; change it")
    except BaseException:
        study.close()
        raise
    return study


def _refuse_changes(study: StudyLog, request: StudyRequest) -> None:
    """Trials of one study must be comparable: nothing that changes a result may have changed."""
    before = _depends_on(study.data.header.request)
    changes = list(_differences(before, _depends_on(request)))
    if changes:
        shown = "".join(f"\n  {change}" for change in changes[:10])
        more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
        raise UserError(
            f"study '{request.study}' cannot be resumed: its {len(study.data.done)} finished "
            f"trials were made with other settings:{shown}{more}\n"
            "start another study with --name, or go back to those settings"
        )


def _with_its_rivals(request: StudyRequest, study: StudyLog) -> StudyRequest:
    """The request with the rivals of the study, and what it started from. Its verdicts are on them:
    what is made from the log later could not know of others. UserError if others are asked for."""
    before = study.data.header.request
    same = {"alternatives": before.alternatives, "not_run": before.not_run}
    same |= {"starts": before.starts, "prior": before.prior, "doubts": before.doubts}
    if request.rivals in (None, before.rivals):
        return request.model_copy(update=same)
    old, new = ([policy.name for policy in each.alternatives] for each in (before, request))
    if old != new:
        study.close()
        raise UserError(
            f"study '{request.study}' has {len(old)} rivals, and --rivals {request.rivals} means "
            f"{len(new)}; leave it out, or start another study with --name"
        )
    return request


def _depends_on(request: StudyRequest) -> dict[str, Any]:
    """What the results depend on: the scenario with its documents instead of their names, the tuned
    knobs, and the engine."""
    fields = {"workload", "policy", "machine", "space", "tuned", "engine_build", "stream_maker"}
    fields |= {"constraints", "objectives", "together"}
    content = request.scenario.plain() | request.model_dump(include=fields)
    return content | {
        "emulated": request.emulated,
        "isolation": request.isolation and request.isolation.measures,
        "placement": request.placement and request.placement.fingerprint(),
    }


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """One line for each place where two documents differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            if key not in PROSE:
                place = f"{path}.{key}" if path else str(key)
                yield from _differences(before.get(key), after.get(key), place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            label = old.get("name", index) if isinstance(old, Mapping) else index
            yield from _differences(old, new, f"{path}[{label}]")
    elif before != after:
        yield f"{path}: was {_short(before)}, is {_short(after)}"


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
