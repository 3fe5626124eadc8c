"""The conclusion of a study, from its log alone: nothing is run."""

from __future__ import annotations

from typing import NoReturn

from tuner.optimize.checks import Checks, Workers, judge
from tuner.optimize.explain import explain
from tuner.report.conclusion import Conclusion
from tuner.report.importance import importance
from tuner.run.trial import Stream
from tuner.study.explanation import Explanation
from tuner.study.log import StudyLog


class _Unfinished(Exception):
    """The log lacks a run that the conclusion needs."""


class _Nobody(Workers):
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
    explanation: Explanation | None = None
    if request.explain:
        try:
            explanation = explain(checks, data, verdict)
        except _Unfinished:  # it was resumed with --no-explain
            explanation = None
    return Conclusion(verdict, explanation, importance(data, request.importance))
