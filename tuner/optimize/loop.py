"""A study: references, then ask, run, record, tell until the budget is spent, then the verdict.

The order of things is decided here alone. A trial is written to the log before it runs and its
result before anything is concluded from it; everything else that is shown or stored is made from
the log, so that a study can be killed at any moment and resumed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.optimize.checks import POLL_SECONDS, Check, Checks, Workers, bounds, judge
from tuner.optimize.explain import explain
from tuner.report.live import Live, Progress
from tuner.report.store import default_store
from tuner.report.tracking import Tracker
from tuner.run.pool import Pool, PoolLost, Runner
from tuner.run.settings import Setting
from tuner.run.trial import TrialResult
from tuner.study import best, log
from tuner.study.best import BestConfiguration
from tuner.study.explanation import Explanation
from tuner.study.log import StudyHeader, StudyLog, TrialRecord
from tuner.study.request import StudyRequest, StudySummary
from tuner.study.verdict import Verdict
from tuner.terminal import say
from tuner.text import size

if TYPE_CHECKING:
    from tuner.optimize.optimizer import Optimizer

PROSE = {"summary", "sources", "source", "notes", "citation", "meaning", "trace", "sampling"}
"""Keys of documents and declarations that change no result."""


def run_study(request: StudyRequest, *, runner: Runner | None = None) -> StudySummary:
    """Runs or resumes a study until it has `request.budget` trials, and sums it up.

    Args:
        request: what to tune, completely resolved.
        runner: runs one trial in a worker process; by default the simulated machine.

    Raises:
        UserError: the study exists (without `resume`), was started with other settings, is being
            written by another process, or cannot be stored.
        KeyboardInterrupt: after everything that had finished was stored, and the command that
            continues the study was printed.
    """
    started = time.monotonic()
    directory = Path(request.out) / request.study
    with _open(directory, request) as study, _tracking(request, study) as tracker:
        found = _run(request, study, runner, tracker)
        return _conclude(request, study, tracker, found, time.monotonic() - started)


# --- Start ----------------------------------------------------------------------------------------


def _open(directory: Path, request: StudyRequest) -> StudyLog:
    from tuner.optimize.optimizer import initial_trials

    if not log.exists(directory):
        header = StudyHeader(
            format=log.FORMAT,
            created=log.now(),
            request=request,
            fingerprints=request.fingerprints,
            stream=request.stream().key,
            lag=request.workers,
            initial=initial_trials(request.budget),
            git_commit=git_commit(),
        )
        return StudyLog(directory, header)
    if not request.resume:
        data = log.load(directory)
        raise UserError(
            f"study '{request.study}' exists in {directory} with {len(data.done)} finished trials; "
            "continue with --resume, or start another with --name"
        )
    study = StudyLog(directory)
    try:
        _refuse_changes(study, request)
        for damage in study.data.damage:
            say(f"warning: {damage}")
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
    asked = study.data.asked
    if request.budget < asked:
        raise UserError(
            f"study '{request.study}' has {asked} trials already, more than --budget "
            f"{request.budget}"
        )


def _depends_on(request: StudyRequest) -> dict[str, Any]:
    """What the results depend on: the scenario with its documents instead of their names, the tuned
    knobs, and the engine."""
    fields = {"workload", "policy", "machine", "space", "tuned", "engine_build", "stream_maker"}
    content = request.scenario.plain() | request.model_dump(include=fields)
    return content | {
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


def git_commit() -> str | None:
    """Commit of the current directory, `-dirty` if it has changes; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


# --- Run ------------------------------------------------------------------------------------------


def _run(
    request: StudyRequest, study: StudyLog, runner: Runner | None, tracker: Tracker
) -> tuple[Verdict, Explanation | None]:
    data = study.data
    standing = Progress(request)
    for trial in data.done:
        standing.add(trial, replayed=True)
    if standing.best is not None:
        _write_best(request, study, standing)
    complete = len(data.done) >= request.budget
    if complete:
        say(f"study '{request.study}' has its {request.budget} trials already")
    else:
        if request.sampling:
            name = f"{request.workload.name} ({request.scenario.input})"
            warning = "tune: warning: " if request.sampling.missing else ""
            say(f"{warning}{name} was {request.sampling.describe()}")
        if advice := everything_fits(request):
            say(advice)
        if data.trials:
            say(f"resuming '{request.study}': {len(data.done)} of {request.budget} trials are done")
    with Workers(request, runner) as workers, Live(standing) as live:
        checks = Checks(request, study, workers, live.notice)
        bounds(checks)
        if not complete:
            pool = workers.pool(request.stream())
            optimizer = _optimizer(request, study)
            standing.start()
            _loop(request, study, optimizer, pool, standing, live, tracker)
            checks.learn(data)
        verdict = judge(checks, data)
        explanation = explain(checks, data, verdict) if request.explain else None
        if standing.best is not None:
            _write_best(request, study, standing, verdict)
        _write_minimal(request, study, checks, verdict, explanation)
        return verdict, explanation


def everything_fits(setting: Setting) -> str | None:
    """Advice when the fast tier holds the whole footprint, so that no placement is a better one.

    Happens on machines whose capacities are fixed, with workloads that are small against them.
    """
    scenario = setting.scenario
    fast = scenario.engine_arguments(setting.machine)["fast_bytes"]
    footprint = setting.workload.footprint_of(scenario.input) * (1 << 30)
    if fast < footprint:
        return None
    return (
        f"note: all {size(footprint)} of {setting.workload.name} fit the fast memory of "
        f"{setting.machine.name} ({size(fast)}): there is nothing to tune; choose another "
        "--machine, or a smaller fast tier"
    )


def _optimizer(request: StudyRequest, study: StudyLog) -> Optimizer:
    """The optimizer, as it was when the last event was written."""
    from tuner.optimize.optimizer import Optimizer

    header = study.data.header
    tuned = {knob.name for knob in request.tuned}
    optimizer = Optimizer(
        request.tuned,
        seed=request.scenario.seed,
        initial=header.initial,
        lag=header.lag,
        fixed={knob.name: knob.default for knob in request.policy.knobs if knob.name not in tuned},
        starts=catalog.starts(request.space, request.policy),
    )
    for number in range(study.data.asked):
        trial = study.data.trial(number)
        if trial is None:  # its record is damaged
            lost = optimizer.ask(again=True)
            study.asked(lost.number, lost.origin, lost.knobs)
            continue
        optimizer.replay(trial.number, trial.knobs)
        if trial.result is not None:
            optimizer.tell(trial.number, trial.result.cost)
    return optimizer


def _loop(
    request: StudyRequest,
    study: StudyLog,
    optimizer: Optimizer,
    pool: Pool,
    standing: Progress,
    live: Live,
    tracker: Tracker,
) -> None:
    from tuner.optimize.optimizer import SpaceExhausted

    # Asked for in an earlier run, and never finished.
    waiting = deque(trial for trial in study.data.trials if trial.result is None)
    running = 0
    budget = request.budget
    while standing.done < budget:
        while running < pool.workers:
            if not waiting and len(study.data.trials) < budget and optimizer.ready():
                try:
                    proposal = optimizer.ask()
                except SpaceExhausted as end:
                    live.notice(f"{end}: the study ends before its budget")
                    budget = len(study.data.trials)
                    break
                waiting.append(study.asked(proposal.number, proposal.origin, proposal.knobs))
            if not waiting:
                break
            trial = waiting.popleft()
            pool.submit(request.trial(trial.number, trial.knobs))
            running += 1
        for result in pool.wait(POLL_SECONDS):
            running -= 1
            trial = study.finished(result)
            optimizer.tell(result.number, result.cost)
            improved = standing.add(trial)
            if improved or (trial.number == 0 and standing.best is not None):
                _write_best(request, study, standing)
            live.finished(trial, improved)
            tracker.add(trial, standing.best_objective)


def _write_best(
    request: StudyRequest, study: StudyLog, standing: Progress, verdict: Verdict | None = None
) -> None:
    """best.yaml of what is known; the verdict is, once the study has ended."""
    trial = standing.best
    assert trial is not None and trial.result is not None
    best.write(
        _configuration(request, study, trial, trial.knobs, trial.result, verdict),
        study.directory / best.FILE,
    )


def _write_minimal(
    request: StudyRequest,
    study: StudyLog,
    checks: Checks,
    verdict: Verdict,
    explanation: Explanation | None,
) -> None:
    path = study.directory / best.MINIMAL
    if explanation is None:
        path.unlink(missing_ok=True)
        return
    trial = study.data.best
    assert trial is not None
    (result,) = checks.run([Check("minimal configuration", request, explanation.minimal)])
    if result.objective is None:
        say(f"warning: no {best.MINIMAL}: its configuration fails on the study's seed")
        path.unlink(missing_ok=True)
        return
    found = _configuration(request, study, trial, explanation.minimal, result, verdict)
    minimal = best.Minimal(changes=list(explanation.minimal), kept=explanation.kept)
    best.write(found.model_copy(update={"minimal": minimal}), path)


def _configuration(
    request: StudyRequest,
    study: StudyLog,
    trial: TrialRecord,
    knobs: Mapping[str, KnobValue],
    result: TrialResult,
    verdict: Verdict | None,
) -> BestConfiguration:
    default = study.data.default
    return BestConfiguration.of(
        request,
        request.trial(trial.number, knobs),
        result,
        default_value=None if default is None else default.objective,
        date=datetime.fromisoformat(trial.finished or trial.asked).astimezone(UTC),
        git_commit=study.data.header.git_commit,
        verdict=verdict,
    )


# --- End ------------------------------------------------------------------------------------------


@contextmanager
def _tracking(request: StudyRequest, study: StudyLog) -> Iterator[Tracker]:
    """Tracks the study in MLflow. If it ends early, says how to continue."""
    tracker = Tracker(study.data, request.mlflow_uri or default_store(Path(request.out)), say)
    try:
        yield tracker
    except BaseException as error:
        tracker.close(interrupted=True)
        if isinstance(error, KeyboardInterrupt | PoolLost):
            # Read from the file: the interrupt may have come between writing it and `study.data`.
            done = len(log.load(study.directory).done)
            say(
                f"stopped: {done} of {request.budget} trials are done and stored "
                f"in {study.directory}\ncontinue with: {resume_command(request)}"
            )
        raise
    tracker.close()


def resume_command(request: StudyRequest) -> str:
    """The command that continues the study."""
    options = {
        "--space": request.space_argument,
        "--importance": request.importance,
        "--deadline": request.deadline_seconds,
        "--budget": request.budget,
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
    words += ["--no-explain"] * (not request.explain)
    words += request.isolation.command_line() if request.isolation else []
    words += ["--held-out-streams"] * request.held_out_streams
    return shlex.join(["tune", "run", *request.scenario.command_line(), *words, "--resume"])


def _conclude(
    request: StudyRequest,
    study: StudyLog,
    tracker: Tracker,
    found: tuple[Verdict, Explanation | None],
    seconds: float,
) -> StudySummary:
    """Scores, report, tracking, and the summary that the command prints."""
    from tuner.report import page
    from tuner.report.conclusion import Conclusion, text
    from tuner.report.importance import importance

    data = study.data
    verdict, explanation = found
    conclusion = Conclusion(verdict, explanation, importance(data, request.importance))
    files = page.write(data, conclusion)
    kept = [study.directory / name for name in (best.FILE, best.MINIMAL)]
    tracker.conclude(conclusion, [*files, *kept])
    print(text(data, conclusion), file=sys.stderr if request.json_output else sys.stdout)
    return StudySummary(
        study=request.study,
        scenario=request.scenario,
        trials=len(data.done),
        failed=sum(not trial.succeeded for trial in data.done),
        default_objective=None if data.default is None else data.default.objective,
        best_objective=None if data.best is None else data.best.objective,
        gain=None if verdict.gain is None else verdict.gain.gain,
        best_config=None if data.best is None else str(study.directory / best.FILE),
        verdict=verdict,
        explanation=explanation,
        importance=conclusion.shares(data),
        importance_forest=conclusion.forest.scores,
        seconds=seconds,
        sampling=request.sampling,
    )
