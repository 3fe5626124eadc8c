# SPDX-License-Identifier: MIT
"""A study in MLflow: a parent run per study, a child run per trial. A copy of the log, never its
source.

A value takes half a kilobyte of MLflow's database, and a simulated trial measures thousands. So a
trial's run has what trials are compared by; all its scalars are a row of the parent's trials.csv,
and the parent has the time series of the default and the best.

All of it happens on a thread of its own, so that no trial waits for a database. What cannot be
tracked is reported once and does no other harm. A store that fails is tried again later; what it
lacks in the end, for whatever reason, is added by `tune repair` or when the study is resumed, and
nothing is added twice.
"""

from __future__ import annotations

import json
import math
import queue
import re
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from tuner.limits import AUTO
from tuner.report import table
from tuner.report.conclusion import Conclusion
from tuner.report.progress import Progress
from tuner.report.store import (
    PARENT_TAG,
    client_of,
    experiment_of,
    parent_run,
    reason,
    repair_command,
)
from tuner.report.tracked import (
    STUDY_TAG,
    TRIAL_TAG,
    VIEW_TAG,
    experiment_name,
    front_table,
    page,
    sorted_out,
    study_id,
    view,
)
from tuner.run.trial import Status
from tuner.scenario import label
from tuner.study import log
from tuner.study.contender import Difference, Kind
from tuner.study.log import HEADER, StudyData, TrialRecord
from tuner.study.public import without_passwords
from tuner.study.verdict import Verdict
from tuner.study.verified import current, figures

MOST_METRICS = 1000
"""Of a trial; MLflow's limit for one call."""
TRIALS = "trials.csv"
FRONT = "front.json"
RETRY_SECONDS = 15.0
"""After a failure. Meanwhile trials are not offered: a server that does not answer takes a minute
to say so."""


PATIENT_SECONDS = 5.0
"""That users wait without knowing for what."""

LAST_SECONDS = 1.0
"""That they wait after Ctrl-C. What is stored by half then is stored again by whoever goes on."""


class Line:
    """A thread that does one task after the other."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # The requests library does it too; but what is set in this thread is lost where the other
        # one leaves warnings.catch_warnings() meanwhile.
        warnings.filterwarnings("ignore", "SOCKS support in urllib3")
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def put(self, task: Callable[[], None]) -> None:
        self._queue.put(task)

    def end(self) -> None:
        """After the tasks that are there. Does not wait for them."""
        self._queue.put(None)

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            task()


class Tracker:
    """Copies a study to the tracking store at `uri`, in the background.

    Args:
        study: trials that are finished already are tracked first, unless the store has them.
        uri: of the MLflow tracking store.
        notify: called once, with a message, if tracking fails.
        line: does the work, also that of other studies; by default one of the tracker's own.
    """

    def __init__(
        self,
        study: StudyData,
        uri: str,
        notify: Callable[[str], None],
        line: Line | None = None,
    ) -> None:
        self._study = study
        self._uri = uri
        self._notify = notify
        self._store: _Store | None = None
        self._trials = list(study.done)  # for the store, which may have them
        self._behind = True  # it may lack some of them
        self._failed: float | None = None  # when it did last
        self._stop = threading.Event()
        self._done: threading.Event | None = None  # once it is closed: that all is stored
        self._own = line is None
        self._line = line or Line()
        self._line.put(lambda: self._attempt(self._catch_up))

    def add(self, trial: TrialRecord, best: float | None) -> None:
        """A trial finished; `best` is the best objective so far."""

        def work() -> None:
            self._trials.append(trial)
            wait = self._failed is not None and time.monotonic() - self._failed < RETRY_SECONDS
            if self._behind and not wait:
                self._attempt(self._catch_up)
            elif not self._behind:
                self._attempt(lambda store: store.add(trial, best))

        self._put(work)

    def conclude(self, conclusion: Conclusion, files: Sequence[Path]) -> None:
        """Stores the scores and files of a complete study, and what is still missing; then tells
        where a server shows them. A database has no pages before `tune ui` has begun."""

        def finish(store: _Store) -> None:
            self._catch_up(store)
            store.conclude(conclusion, files)
            if store.address:
                self._notify(f"in MLflow: {store.address}")

        self._put(lambda: self._attempt(finish))

    def close(self, *, interrupted: bool = False, seconds: float = LAST_SECONDS) -> None:
        """Waits until all is stored. When interrupted, also in this, only for what is being stored
        now, and for no more than so many seconds."""
        if interrupted:
            self._stop.set()
        if self._done is None:
            self._done = done = threading.Event()

            def end() -> None:
                if self._stop.is_set() and self._store is not None:
                    self._attempt(lambda store: store.interrupted())
                done.set()

            self._line.put(end)
            if self._own:
                self._line.end()
        done = self._done
        if not done.wait(seconds if interrupted else PATIENT_SECONDS) and not interrupted:
            self._notify(f"waiting for MLflow at {self._uri} to take the rest of this study")
            while not done.wait(PATIENT_SECONDS) and self._line.alive:
                pass

    def _put(self, task: Callable[[], None]) -> None:
        self._line.put(lambda: None if self._stop.is_set() else task())

    def _catch_up(self, store: _Store) -> None:
        store.add_missing(self._trials, self._stop)
        self._behind = False

    def _attempt(self, task: Callable[[_Store], None]) -> None:
        try:
            if self._store is None:
                self._store = _Store(self._study, self._uri, self._notify)
            task(self._store)
        except Exception as error:  # a store of any kind can fail in any way; the study continues
            first, self._failed = self._failed is None, time.monotonic()
            # Another one finds out what the store has, and removes what it has by half.
            self._store, self._behind = None, True
            # A study that is stopped does not continue: whoever goes on stores it, or hears.
            if first and not self._stop.is_set():
                self._report(error)
        else:
            if self._failed is not None:
                self._failed = None
                self._notify(f"MLflow at {self._uri} takes this study again")

    def _report(self, error: Exception) -> None:
        self._notify(
            f"warning: MLflow at {self._uri} does not take this study ({reason(error)}); the study "
            "continues without it, and afterwards "
            f"`{repair_command(self._uri, self._study.directory.parent)}` adds what is missing"
        )


def restore(
    study: StudyData,
    conclusion: Conclusion | None,
    files: Sequence[Path],
    *,
    uri: str,
    notify: Callable[[str], None],
    verify: bool = False,
) -> int:
    """Adds what the store lacks of a study that no process is working on; returns how many trials
    those were. Whatever the store raises, an exception of any kind, is the caller's to report.

    Args:
        conclusion: None if the study is not complete.
        files: that are stored with the conclusion.
        notify: is told if the store's database was broken and is made anew.
        verify: reads all of a local database to find damage.
    """
    store = _Store(study, uri, notify, verify=verify)
    missing = [trial for trial in study.done if trial.number not in store.tracked]
    store.add_missing(study.done)
    if conclusion is None:
        store.interrupted()
    else:
        store.conclude(conclusion, files)
    return len(missing)


class _Store:
    """The study's runs in one tracking store. Used by one thread."""

    def __init__(
        self,
        study: StudyData,
        uri: str,
        notify: Callable[[str], None],
        *,
        verify: bool = False,
    ) -> None:
        out = study.directory.parent
        self._client = client_of(uri, out, notify, verify=verify)
        from mlflow.entities import Metric, Param, RunTag

        self._metric, self._param, self._run_tag = Metric, Param, RunTag
        self._study, self._uri = study, uri
        self._request = study.header.request
        self._experiment = experiment_of(self._client, experiment_name(study), uri, out, notify)
        self._client.set_experiment_tag(self._experiment, VIEW_TAG, view())
        self._parent = self._find_parent(notify)
        self.tracked = self._find_children()
        self._store_settings()

    @property
    def address(self) -> str | None:
        """Of a server's page of the workload's studies."""
        served = urlsplit(self._uri).scheme in ("http", "https")
        return page(self._uri, self._experiment) if served else None

    def _find_parent(self, notify: Callable[[str], None]) -> str:
        found = parent_run(self._client, self._experiment, STUDY_TAG, study_id(self._study), notify)
        if found is not None:
            self._client.update_run(found, status="RUNNING")
            return found
        request, header = self._request, self._study.header
        run = self._client.create_run(
            self._experiment,
            start_time=_milliseconds(header.created),
            run_name=request.study,
            tags=self._common_tags() | {STUDY_TAG: study_id(self._study)},
        )
        return str(run.info.run_id)

    def _store_settings(self) -> None:
        """Also of a run that was there: whoever made it may have been killed before this."""
        request = self._request
        settings = {
            **{name: label(str(value)) for name, value in request.scenario.plain().items()},
            "budget": f"{AUTO}:{most:g}" if (most := request.auto_seconds) else request.budget,
            "workers": request.workers,
        }
        if request.sampling:
            settings |= {f"sampling.{k}": v for k, v in request.sampling.model_dump().items()}
        params = [self._param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self._parent, params=params)
        if clean := without_passwords(self._study.directory).get(HEADER):
            self._client.log_text(self._parent, clean.decode(), HEADER)
        else:
            self._client.log_artifact(self._parent, str(self._study.directory / HEADER))

    def _common_tags(self) -> dict[str, str]:
        header = self._study.header
        tags = {
            "seed": str(self._request.scenario.seed),
            "engine.version": self._request.engine_version,
            "engine.build": self._request.engine_build,
            "workload": self._request.workload.name,
            "policy": self._request.policy.name,
        }
        if header.git_commit:
            tags["mlflow.source.git.commit"] = header.git_commit
        return tags

    def _find_children(self) -> set[int]:
        """Numbers of the trials that are completely tracked. Half-tracked ones are removed."""
        tracked, superfluous = sorted_out(self._client, self._experiment, self._parent)
        for run in superfluous:
            self._client.delete_run(run.info.run_id)
        return tracked

    def add_missing(
        self, trials: Sequence[TrialRecord], stop: threading.Event | None = None
    ) -> None:
        """In the order in which they finished, with what was the best at the time."""
        standing = Progress(self._request)
        for trial in sorted(trials, key=lambda trial: trial.finished or ""):
            if stop is not None and stop.is_set():
                return
            standing.add(trial)
            self.add(trial, standing.best_objective)

    def add(self, trial: TrialRecord, best: float | None) -> None:
        """One child run, unless the trial has one."""
        result = trial.result
        if result is None or trial.number in self.tracked:
            return
        assert trial.finished is not None
        ended = _milliseconds(trial.finished)
        tags = self._common_tags() | {
            PARENT_TAG: self._parent,
            TRIAL_TAG: str(trial.number),
            "status": result.status.value,
            "origin": trial.origin,
            "host": result.host,
        }
        if result.error:
            tags["error"] = result.error[:4000]
        if result.log:
            tags["log"] = result.log[-4000:]
        run = self._client.create_run(
            self._experiment,
            start_time=ended - round(1000 * result.seconds),
            run_name=f"trial {trial.number}",
            tags=tags,
        )
        params = [self._param(name_for(key), str(value)) for key, value in trial.knobs.items()]
        metrics = [
            self._metric(name_for(name), value, ended, 0)
            for name, value in table.compared(self._request, trial).items()
            if _finite(value)
        ][:MOST_METRICS]
        run_id = run.info.run_id
        self._client.log_batch(run_id, metrics=metrics, params=params[:100])
        for start in range(100, len(params), 100):
            self._client.log_batch(run_id, params=params[start : start + 100])
        if best is not None:
            self._client.log_metric(
                self._parent, "best_objective", best, timestamp=ended, step=trial.number
            )
        ok = result.status is Status.success
        self._client.set_terminated(run_id, "FINISHED" if ok else "FAILED", ended)
        self.tracked.add(trial.number)

    def conclude(self, conclusion: Conclusion, files: Sequence[Path]) -> None:
        done = self._study.done
        # Of a metric MLflow shows the value with the latest time: that of the last event, so that a
        # later conclusion replaces an earlier one.
        ends = [t.finished for t in done if t.finished] + [c.time for c in self._study.checks]
        now = max(map(_milliseconds, ends), default=0)
        verdict, forest = conclusion.verdict, conclusion.forest
        shares = conclusion.shares(self._study)
        # Each is a chart by itself in MLflow: what has no share is in importance.json alone, and so
        # are the forest's scores.
        metrics = {f"importance/{name_for(k)}": v for k, v in shares.items() if v}
        metrics |= {f"reference/{name_for(k)}": v for k, v in verdict.references.items()}
        metrics |= {f"untuned/{name_for(k)}": v for k, v in verdict.untuned.items()}
        metrics["importance_forest_r2"] = forest.r2
        metrics["trials"] = float(len(done))
        metrics["failed"] = float(sum(not trial.succeeded for trial in done))
        optional = {
            "best": self._study.best.objective if self._study.best else None,
            "default": self._study.default.objective if self._study.default else None,
            "way_to_static_hot": verdict.way,
            "minimal_kept": conclusion.explanation.kept if conclusion.explanation else None,
        }
        metrics |= {name: value for name, value in optional.items() if value is not None}
        metrics |= _of_constraints(verdict)
        if verdict.front is not None:
            metrics["front/trials"] = float(len(verdict.front.points) + verdict.front.left_out)
        for name in ("gain", "over_first_touch", "over_untuned"):
            found: Difference | None = getattr(verdict, name)
            if found is not None:
                metrics[name] = found.gain
                if found.half_width is not None:
                    metrics[f"{name}_half_width"] = found.half_width
        verified = current(self._study)
        if verified is not None:
            metrics |= {f"verified/{name}": value for name, value in figures(verified).items()}
        tags = {
            "verdict": verdict.headline,
            "advice": verdict.advice.value,
            "mlflow.note.content": "\n\n".join(filter(None, [verdict.headline, verdict.uncovered])),
            "not_run": ", ".join(verdict.not_run),
            "constraints": verdict.constraints.text if verdict.constraints else "",
            "together": self._request.together.by if self._request.together else "",
            "importance_forest.method": forest.method,
            "importance_forest.reliability": forest.reliability,
        }
        if verified is not None:
            tags["verified"] = verified.verdict.headline
        self._client.log_batch(
            self._parent,
            metrics=[self._metric(k, v, now, 0) for k, v in metrics.items() if _finite(v)],
            tags=[self._run_tag(name, value) for name, value in tags.items()],
        )
        # What `mlflow.log_table` would write, which appends when it is called again.
        effects = conclusion.explanation.effects if conclusion.explanation else []
        parts = {e.knob: [e.half_width, e.alone, e.without] for e in effects}
        scores = {
            "columns": [
                "knob",
                "importance",
                "half_width",
                "alone",
                "without",
                "importance_forest",
            ],
            "data": [
                [name, shares.get(name, 0.0), *parts.get(name, [None] * 3), forest.scores[name]]
                for name in shares or forest.scores
            ],
        }
        self._client.log_text(self._parent, json.dumps(scores), "importance.json")
        self._client.log_text(self._parent, table.csv_text(self._study), TRIALS)
        if verdict.front is not None:
            self._client.log_text(self._parent, json.dumps(front_table(verdict.front)), FRONT)
        for trial in (self._study.default, self._study.best):
            if trial is not None and self._study.series_of(trial):
                path = log.series_file(self._study.directory, trial)
                self._client.log_artifact(self._parent, str(path), log.SERIES)
        for file in files:
            if file.exists():
                self._client.log_artifact(self._parent, str(file))
        self._mark_tables("importance.json", *[FRONT][: verdict.front is not None])
        self._client.set_terminated(self._parent, "FINISHED", now)

    def _mark_tables(self, *artifacts: str) -> None:
        """The UI shows an artifact as a table if this tag lists it."""
        value = json.dumps([{"path": artifact, "type": "table"} for artifact in artifacts])
        self._client.set_tag(self._parent, "mlflow.loggedArtifacts", value)

    def interrupted(self) -> None:
        self._client.set_terminated(self._parent, "KILLED")


def _of_constraints(verdict: Verdict) -> dict[str, float]:
    """How many trials meet them, and the factors by which the held-out runs of the default and of
    the best miss each: 1 for one that is met."""
    found = verdict.constraints
    if found is None:
        return {}
    metrics = {"constraints/met_by": float(found.met_by)}
    for name, kind in (("default", Kind.untuned), ("best", Kind.tuned)):
        contender = verdict.contender(kind, found.policy)
        for each in contender.judged or () if contender is not None else ():
            metrics[f"constraints/{name_for(each.constraint)}/{name}"] = each.missed
    return metrics


def name_for(text: str) -> str:
    """MLflow allows letters, digits and `_-. /` in names."""
    return re.sub(r"[^\w\-. /]", "_", text, flags=re.ASCII)


def _finite(value: float) -> bool:
    return math.isfinite(value)


def _milliseconds(time: str) -> int:
    return round(1000 * datetime.fromisoformat(time).timestamp())
