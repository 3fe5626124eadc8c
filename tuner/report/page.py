# SPDX-License-Identifier: MIT
"""What came out of a study, as a page to look at and to print.

`report.html` stands alone: pictures, and the script that explores the trials, are inside, and it
forbids itself the network. `importance.png` is one of its pictures by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import pages
from tuner.declarations import KnobDecl, KnobValue
from tuner.files import write_files
from tuner.report import charts, contenders, front, svg, verification
from tuner.report.conclusion import (
    Conclusion,
    constrained,
    fewest,
    nearby,
    parts,
    share,
    steps,
    together,
)
from tuner.report.curves import curves
from tuner.report.explorer import explorer
from tuner.report.mechanism import mechanism
from tuner.report.pictures import png
from tuner.report.risk import risk
from tuner.run.isolation import simulates
from tuner.study.explanation import KEEP
from tuner.study.log import StudyData
from tuner.study.verified import current, sentences
from tuner.text import faster, plural, with_unit

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE = "report.html"
BARS = "importance.png"
WAIT = "Wait for its end, which advises; if it was interrupted, its tune run with --resume goes on"
MOST_CURVES = 6
MATTERS = 0.01


def write(study: StudyData, conclusion: Conclusion) -> list[Path]:
    """Writes the page and the bar chart into the study's directory; returns their paths. UserError
    if that fails."""
    page = text(study, conclusion)
    return write_files({study.directory / PAGE: page, study.directory / BARS: _bars(conclusion)})


def _bars(conclusion: Conclusion) -> bytes:
    with svg.style("shares"):
        found = charts.shares(conclusion)
        figure = svg.figure(1.0) if found is None else found.figure
        if found is None:
            figure.suptitle("no gain to explain", fontsize=9)
        figure.set_dpi(120)
        return png(figure)


# --- The page -------------------------------------------------------------------------------------


def text(study: StudyData, conclusion: Conclusion, *, refresh: int = 0) -> str:
    """The page. With `refresh` that of a study that is running, which reads itself again after so
    many seconds, and has no trials to explore: they would be gone with every reading."""
    request, verdict = study.header.request, conclusion.verdict
    explanation, verified = conclusion.explanation, current(study)
    ranked = ranking(study, conclusion)
    simulated = request.emulated is None and simulates(request.isolation)
    explored = None if refresh else explorer(study, ranked)
    columns, knobs = _knobs(study, conclusion)
    return pages.page(
        PAGE,
        title=request.study,
        headline=verdict.headline,
        subject=_subject(study),
        facts=list(_facts(study, conclusion)),
        refresh=refresh,
        most_marks=svg.MOST_MARKS,
        steps=[(WAIT, "")] if refresh else steps(study, verdict),
        standing=svg.drawn("standing", lambda: contenders.standing(study, verdict)),
        notes=[
            *constrained(verdict),
            *nearby(study, verdict),
            *filter(None, [verdict.uncovered]),
        ],
        risk=risk() if simulated else "",
        front=None
        if verdict.front is None
        else {
            "pictures": list(front.pictures(study, verdict.front)),
            "table": front.table(verdict.front),
            "told": front.reason(verdict.front),
        },
        shares=svg.drawn("shares", lambda: charts.shares(conclusion)),
        together=[]
        if explanation is None
        else [*together(explanation), fewest(study, explanation)],
        mechanism=mechanism(study),
        columns=columns,
        knobs=knobs,
        kept=list(_kept(study)),
        caveat=_caveat(conclusion, ended=not refresh),
        curves=list(_curves(study, conclusion, ranked)),
        elsewhere=svg.drawn("elsewhere", lambda: contenders.elsewhere(study, verdict)),
        history=svg.drawn("history", lambda: charts.history(study, verdict)),
        parallel=svg.drawn("parallel", lambda: charts.parallel(study, ranked)),
        explorer=explored,
        scripts=[] if explored is None else explored.hashes,
        series=[(name, svg.drawn(name, each)) for name, each in charts.series(study)],
        kernel=None
        if verified is None
        else svg.markup(verification.draw(verified), "simulated and measured"),
        verification="" if verified is None else "\n".join(sentences(verified)),
        failures=list(_failures(study)),
        version=request.engine_version,
        build=request.engine_build,
        created=study.header.created,
    )


def _subject(study: StudyData) -> str:
    request = study.header.request
    scenario = request.scenario
    return (
        f"{request.policy.name} on {request.workload.name} ({scenario.input}), "
        f"{request.machine.name}, {scenario.conditions()}; objective: {scenario.objective}"
        + (f"; {request.sampling.describe()}" if request.sampling else "")
    )


def _facts(study: StudyData, conclusion: Conclusion) -> Iterator[tuple[str, str]]:
    """The figures of the verdict, each with what it is."""
    verdict = conclusion.verdict
    for what, found in (
        ("the best found over the default", verdict.gain),
        ("over leaving tiering off", verdict.over_first_touch),
        (f"over untuned {verdict.best_untuned}", verdict.over_untuned),
    ):
        if found is not None:
            yield faster(found.gain, found.half_width, verdict.objective), what
    if verdict.way is not None:
        yield f"{100 * verdict.way:.0f} %", "of static-hot's gain over first-touch"
    wrong = sum(not trial.succeeded for trial in study.done)
    failed = f", {wrong} of them failed" if wrong else ""
    why = f", which ended: {study.ended}" if study.ended else ""
    yield plural(len(study.done), "trial"), f"of the search{failed}{why}"
    if verdict.seeds:
        yield plural(len(verdict.seeds), "seed"), "held out of the search, for the verdict"


def ranking(study: StudyData, conclusion: Conclusion) -> list[str]:
    """The tuned knobs, those first that made the difference, then by the forest's scores."""
    shares = conclusion.shares(study)
    scores = conclusion.forest.scores
    return sorted(scores, key=lambda name: (-shares.get(name, 0.0), -scores[name], name))


def _curves(
    study: StudyData, conclusion: Conclusion, ranked: list[str]
) -> Iterator[tuple[KnobDecl, Markup]]:
    """Of the knobs that matter: that have a share, or that the forest goes by."""
    shares, scores = conclusion.shares(study), conclusion.forest.scores

    def matters(name: str) -> bool:
        return bool(shares.get(name)) or scores[name] >= MATTERS

    knobs = {knob.name: knob for knob in study.header.request.tuned}
    shown = [knobs[name] for name in ranked if name in knobs and matters(name)][:MOST_CURVES]
    models = curves(study, shown)
    for knob in shown:
        draw = partial(charts.curve, study, knob, models.get(knob.name))
        if (found := svg.drawn(f"curve-{knob.name}", draw)) is not None:
            yield knob, found


# --- Knobs ----------------------------------------------------------------------------------------

COLUMNS = ("knob", ">default", ">best", ">share of the gain", ">alone", ">without it", ">forest")


def _knobs(study: StudyData, conclusion: Conclusion) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of the table of the knobs that were changed; columns in which there is
    nothing are left out."""
    explanation, forest = conclusion.explanation, conclusion.forest
    effects = {} if explanation is None else {e.knob: e for e in explanation.effects}
    minimal = {} if explanation is None else explanation.minimal
    declared = {knob.name: knob for knob in study.header.request.policy.knobs}
    table = []
    for name in [*effects, *(name for name in forest.scores if name not in effects)]:
        default, value = _values(study, name)
        if value == default:
            continue
        numbers = ["", "", ""]
        if effect := effects.get(name):
            numbers = [
                "" if effect.share is None else share(effect.share, effect.half_width),
                *parts(effect),
            ]
        knob = declared[name]
        both = with_unit(default, knob.unit), with_unit(value, knob.unit)
        score = f"{100 * forest.scores[name]:.0f} %"
        needed = "needed" if name in minimal else ""
        table.append([name, *both, *numbers, score, needed, knob.meaning])
    names = [*COLUMNS, "", "meaning"]
    used = [k for k in range(len(names)) if any(row[k] for row in table)]
    rows = [
        {"changed": row[7] != "" or explanation is None, "cells": [row[k] for k in used]}
        for row in table
    ]
    return [names[k] for k in used], rows


def _values(study: StudyData, name: str) -> tuple[KnobValue, KnobValue]:
    """Of a tuned knob: by default, and in the best configuration."""
    default = next(knob.default for knob in study.header.request.tuned if knob.name == name)
    return default, study.best.knobs[name] if study.best is not None else default


def _kept(study: StudyData) -> Iterator[tuple[str, str, str]]:
    """The tuned knobs that stay as they are: name, value and meaning."""
    for knob in study.header.request.tuned:
        default, value = _values(study, knob.name)
        if value == default:
            yield knob.name, with_unit(default, knob.unit), knob.meaning


def _caveat(conclusion: Conclusion, *, ended: bool) -> str:
    explanation = conclusion.explanation
    measured = "No share was measured: there is no gain over the default to explain. "
    if not ended:
        measured = "Shares of the gain are measured at the end. "
    if explanation is not None:
        measured = (
            f"Shares are measured by {explanation.runs} real runs on held-out seeds "
            f"({', '.join(map(str, explanation.seeds))}). They are what a change adds on the mean "
            "of all orders in which the needed changes can be made (Shapley values"
            + (f", by {explanation.sets} sets of changes" if explanation.sets else "")
            + f"). Those keep {100 * KEEP:.0f} % of the trial's gain or more. `alone` is what a "
            "needed change gains by itself, `without it` what the trial loses without it, by one "
            "run. "
        )
    return (
        f"{measured}The forest's scores say how much a model of the trials varies with a knob "
        f"({conclusion.forest.method}, {conclusion.forest.reliability}). They include changes for "
        "the worse and are not causes: do not read them as gains."
    )


def _failures(study: StudyData) -> Iterator[dict[str, Any]]:
    for trial in study.done:
        if trial.result is not None and not trial.succeeded:
            yield {
                "number": trial.number,
                "status": trial.result.status,
                "error": trial.result.error,
                "log": trial.result.log if trial.result.log.strip() else "",
            }
