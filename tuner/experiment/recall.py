# SPDX-License-Identifier: MIT
"""The conclusion of a study and its files, from its log alone: nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from tuner.experiment.checks import Checks, Workers
from tuner.experiment.contest import judge
from tuner.experiment.explain import explain
from tuner.experiment.fronts import front
from tuner.experiment.robust import choose, elsewhere
from tuner.experiment.studies import OpenStudy
from tuner.report.conclusion import Conclusion
from tuner.report.importance import importance
from tuner.run.trial import Stream
from tuner.study import log
from tuner.study.explanation import Explanation
from tuner.study.front import Front
from tuner.study.log import StudyData, StudyLog
from tuner.study.together import said
from tuner.study.verdict import Elsewhere


class _Unfinished(Exception):
    """The log lacks a run that the conclusion needs."""


class _Nobody(Workers):
    able = False

    def pool(self, stream: Stream) -> NoReturn:
        raise _Unfinished


def recall(study: StudyLog) -> Conclusion | None:
    """What the study came to; None if it was stopped before its end."""
    data = study.data
    request = data.header.request
    if not data.done or len(data.done) < len(data.trials):
        return None
    checks = Checks(request, study, _Nobody(request, None), lambda line: None)
    checks.learn(data)
    try:
        verdict = judge(checks, data)
    except _Unfinished:
        return None
    near, on_front = _elsewhere(checks, data), _front(checks, data)
    verdict = verdict.model_copy(
        update={"elsewhere": near, "front": on_front} | said(request, verdict)
    )
    explanation: Explanation | None = None
    if request.explain:
        try:
            explanation = explain(checks, data)
        except _Unfinished:  # it was resumed with --no-explain
            explanation = None
    return Conclusion(verdict, explanation, importance(data, request.importance))


def _elsewhere(checks: Checks, data: StudyData) -> list[Elsewhere]:
    """Nothing of a study that was resumed with --robust none: the log lacks some of the runs."""
    try:
        choose(checks, data)  # whoever judges the study again needs these runs, too
        return elsewhere(checks, data)
    except _Unfinished:
        return []


def _front(checks: Checks, data: StudyData) -> Front | None:
    try:
        return front(checks, data)
    except _Unfinished:
        return None


def remake(directory: Path) -> None:
    """Makes what a study has beside its log: best.yaml, and once it is complete the smallest
    configuration and the report. UserError if they cannot be written, or the study is in use."""
    request = log.load(directory).header.request.model_copy(update={"resume": True})
    with OpenStudy(request) as study:
        study.write_best()
        conclusion = recall(study.log)
        if conclusion is None:
            return
        explain, robust = conclusion.explanation is not None, bool(conclusion.verdict.elsewhere)
        study.request = request.model_copy(update={"explain": explain, "robust": robust})
        checks = Checks(study.request, study.log, _Nobody(request, None), lambda line: None)
        study.report(study.judge(checks))
