# SPDX-License-Identifier: MIT
"""The pictures of a study's report. Each is a figure with what it shows in words, or None where the
study has nothing for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import fmean
from typing import TYPE_CHECKING

from tuner.declarations import KnobDecl
from tuner.objective import OBJECTIVES, Objective
from tuner.report import svg
from tuner.report.conclusion import Conclusion
from tuner.report.curves import Curve, position
from tuner.report.pictures import COLOURS
from tuner.report.svg import (
    BEST,
    BOUND,
    DEFAULT,
    GRID,
    INK,
    MOST_MARKS,
    MUTED,
    OTHER,
    Picture,
    better,
)
from tuner.study.constraint import by_how_much
from tuner.study.log import StudyData, TrialRecord
from tuner.study.verdict import Verdict
from tuner.text import quantity, short, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 0.01
"""Of the gain: changes that are not needed and gain less alone are in the table only."""
MOST_AXES = 10
"""Knobs of the picture of all configurations."""
MOST_POINTS = 300
"""Of a time series; of a longer one means are drawn."""
SERIES = ("operations_per_second", "fast_hit_ratio", "promotions", "demotions", "migrated_bytes")
"""Time series that are drawn, where a trial has them: those that show why one is faster."""


# --- Trials ---------------------------------------------------------------------------------------


def history(study: StudyData, verdict: Verdict) -> Picture | None:
    """The objective of each trial, and the best so far."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    good = [trial for trial in study.done if trial.objective is not None]
    if not good:
        return None
    from tuner.report.drawing import MaxNLocator

    figure = svg.figure(2.9)
    axes = figure.subplots()
    numbers = [trial.number for trial in good]
    tips = _scatter(axes, study, good, numbers)
    if line := best_so_far(study):
        axes.step(*zip(*line, strict=True), where="post", color=BEST, lw=1.8, label="best so far")
    if study.default is not None and study.default.objective is not None:
        axes.axhline(study.default.objective, color=DEFAULT, lw=1, label="default")
    for style, (name, value) in zip(("--", ":", "-."), verdict.references.items(), strict=False):
        axes.axhline(value, color=BOUND, lw=1, linestyle=style, label=name)
    failed = [trial.number for trial in study.done if not trial.succeeded]
    if failed:
        floor = axes.get_ylim()[0]
        axes.plot(failed, [floor] * len(failed), "x", color=DEFAULT, label="failed", clip_on=False)
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _objective_axis(axes, objective)
    figure.legend(loc="outside upper left", ncols=3)
    return Picture("history", "the objective of each trial and the best so far", figure, tips)


def searches(studies: Mapping[str, StudyData]) -> Picture | None:
    """The best so far of several studies, a line each."""
    lines = {name: best_so_far(data) for name, data in studies.items()}
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        return None
    objective = OBJECTIVES[next(iter(studies.values())).header.request.scenario.objective]
    figure = svg.figure(2.9)
    axes = figure.subplots()
    for colour, (name, line) in zip(cycle(COLOURS), lines.items(), strict=False):
        axes.step(*zip(*line, strict=True), where="post", color=colour, lw=1.6, label=name)
    axes.set_xlabel("trial")
    _objective_axis(axes, objective)
    figure.legend(loc="outside upper left", ncols=4)
    return Picture("searches", "the best so far of each study", figure, {})


def best_so_far(study: StudyData) -> list[tuple[int, float]]:
    """By the numbers of the trials that succeeded and meet the constraints."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    found: list[tuple[int, float]] = []
    for trial in study.good:
        if (value := trial.objective) is not None:
            first = not found or objective.better(value, found[-1][1])
            found.append((trial.number, value if first else found[-1][1]))
    return found


def _objective_axis(axes: Axes, objective: Objective) -> None:
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, objective.unit))
    axes.set_title(f"{objective.name}, {better(objective)}", loc="left", color=MUTED, fontsize=8)


def _scatter(
    axes: Axes, study: StudyData, trials: Sequence[TrialRecord], x: Sequence[float]
) -> dict[str, list[str]]:
    """A mark for each trial at its objective; returns what they tell."""
    few = len(trials) <= MOST_MARKS
    y = [trial.objective or 0.0 for trial in trials]
    marks = axes.scatter(x, y, 12 if few else 6, color=OTHER, alpha=0.75, linewidths=0)
    marks.set_rasterized(not few)
    marks.set_gid("marks")
    return {"marks": [_told(study, each) for each in trials]} if few else {}


def _told(study: StudyData, trial: TrialRecord) -> str:
    unit = OBJECTIVES[study.header.request.scenario.objective].unit
    value = "failed" if trial.objective is None else quantity(trial.objective, unit)
    missed = study.bounds.missed(trial.result) if trial.result and trial.succeeded else {}
    breaks = f", breaks {by_how_much(missed)}" if missed else ""
    return f"trial {trial.number} ({trial.origin}): {value}{breaks}"


def curve(study: StudyData, knob: KnobDecl, model: Curve | None) -> Picture | None:
    """The objective over a knob's value, from all trials, with what the forest says of the best
    configuration with this knob at another value."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    good = [t for t in study.done if t.objective is not None and knob.name in t.knobs]
    if not good:
        return None
    figure = svg.figure(2.1, 3.6)
    axes = figure.subplots()
    x = [position(knob, trial.knobs[knob.name]) for trial in good]
    tips = _scatter(axes, study, good, x)
    if tips:
        values = [with_unit(trial.knobs[knob.name], knob.unit) for trial in good]
        tips = {"marks": [f"{v}; {told}" for v, told in zip(values, tips["marks"], strict=True)]}
    if model is not None:
        axes.plot(model.x, model.y, color=INK, lw=1.2, linestyle="--")
    for trial, colour, marker in ((study.default, DEFAULT, "s"), (study.best, BEST, "o")):
        if trial is not None and trial.objective is not None:
            place = position(knob, trial.knobs[knob.name])
            axes.plot([place], [trial.objective], marker, color=colour, markersize=6)
            axes.axvline(place, color=colour, lw=0.8, alpha=0.6)
    if knob.values:
        axes.set_xticks(range(len(knob.values)), [short(value) for value in knob.values])
        axes.margins(x=0.15)
    else:
        if knob.log:
            from tuner.report.drawing import NullFormatter

            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
    unit = knob.unit if knob.unit not in ("", "ratio") else "value"
    axes.set_xlabel(f"{unit}{', logarithmic' if knob.log else ''}")
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, objective.unit))
    axes.tick_params(labelsize=8)
    return Picture(knob.name, f"{objective.name} over {knob.name}", figure, tips)


def parallel(study: StudyData, names: Sequence[str]) -> Picture | None:
    """All configurations, of many the best ones: an axis for each knob, the objective's below them,
    a line for each trial. Axes lie, so that names are read and phones have room."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    knobs = {knob.name: knob for knob in study.header.request.tuned}
    shown = [knobs[name] for name in names if name in knobs][:MOST_AXES]
    good = [trial for trial in study.done if trial.objective is not None]
    if not shown or len(good) < 2:
        return None
    costs = sorted(objective.cost(trial.objective or 1.0) for trial in good)
    figure = svg.figure(0.6 + 0.42 * (len(shown) + 1))
    axes = figure.subplots()
    low, high = min(t.objective or 0 for t in good), max(t.objective or 0 for t in good)
    order = sorted(good, key=lambda trial: -objective.cost(trial.objective or 1.0))
    y = [-float(place) for place in range(len(shown) + 1)]
    tips: dict[str, list[str]] = {}
    for trial in order[-MOST_MARKS:]:
        rank = costs.index(objective.cost(trial.objective or 1.0)) / max(1, len(costs) - 1)
        x = [_part(knob, trial) for knob in shown]
        x.append(((trial.objective or 0) - low) / (high - low) if high > low else 0.5)
        colour = BEST if rank <= 0.1 else OTHER
        line = axes.plot(x, y, color=colour, lw=0.9, alpha=0.75 if rank <= 0.1 else 0.3)[0]
        line.set_gid(f"line-{trial.number}")
        tips[f"line-{trial.number}"] = [_configuration(study, trial, shown)]
    for end, colour in ((study.default, DEFAULT), (study.best, BEST)):
        if end is not None and end.objective is not None:
            x = [_part(knob, end) for knob in shown]
            x.append((end.objective - low) / (high - low) if high > low else 0.5)
            axes.plot(x, y, "o-", color=colour, lw=2, markersize=4)
    for place, knob in zip(y, shown, strict=False):
        _ends(axes, place, knob.name, *_limits(knob))
    ends = [quantity(value, objective.unit) for value in (low, high)]
    _ends(axes, y[-1], f"{objective.name}, {better(objective)}", ends[0], ends[1])
    axes.set_axis_off()
    axes.set_ylim(y[-1] - 0.4, 0.55)
    axes.set_xlim(-0.02, 1.02)
    return Picture("parallel", "all configurations: a line through each one's values", figure, tips)


def _part(knob: KnobDecl, trial: TrialRecord) -> float:
    """Where the value is between the ends of its axis."""
    if knob.values:
        return position(knob, trial.knobs[knob.name]) / max(1, len(knob.values) - 1)
    assert knob.min is not None and knob.max is not None
    low, high, value = knob.min, knob.max, float(trial.knobs[knob.name])
    if knob.log:
        low, high, value = (math.log(max(each, 1e-300)) for each in (low, high, value))
    return (value - low) / (high - low) if high > low else 0.5


def _limits(knob: KnobDecl) -> tuple[str, str]:
    if knob.values:
        return short(knob.values[0]), short(knob.values[-1])
    assert knob.min is not None and knob.max is not None
    return short(knob.min), with_unit(knob.max, knob.unit)


def _ends(axes: Axes, y: float, name: str, low: str, high: str) -> None:
    axes.axhline(y, color=GRID, lw=1, zorder=0)
    axes.text(0.5, y + 0.12, name, ha="center", fontsize=8)
    axes.text(0, y + 0.12, low, ha="left", fontsize=7, color=MUTED)
    axes.text(1, y + 0.12, high, ha="right", fontsize=7, color=MUTED)


def _configuration(study: StudyData, trial: TrialRecord, shown: Sequence[KnobDecl]) -> str:
    values = (f"{knob.name} {with_unit(trial.knobs[knob.name], knob.unit)}" for knob in shown)
    return "\n".join([_told(study, trial), *values])


# --- Why --------------------------------------------------------------------------


def shares(conclusion: Conclusion) -> Picture | None:
    """Shares of the gain, and below each what the change gains alone."""
    explanation = conclusion.explanation
    if explanation is None:
        return None
    effects = [e for e in explanation.effects[::-1] if e.share or abs(e.alone or 0) >= SHOWN]
    figure = svg.figure(1.0 + 0.34 * max(1, len(effects)))
    axes = figure.subplots()
    places = range(len(effects))
    axes.barh(
        [place + 0.2 for place in places],
        [100 * (effect.share or 0) for effect in effects],
        0.38,
        xerr=[100 * (effect.half_width or 0) for effect in effects],
        color=BEST,
        ecolor=INK,
        label="share: what it adds, the mean over orders",
    )
    axes.barh(
        [place - 0.2 for place in places],
        [100 * (effect.alone or 0) for effect in effects],
        0.38,
        color=OTHER,
        label="alone (one run)",
    )
    axes.axvline(0, color=MUTED, lw=0.8)
    axes.set_yticks(places, [effect.knob for effect in effects])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_xlabel("part of the gain over the default, %")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=1)
    return Picture("shares", "what each change adds to the gain", figure, {})


# --- Over time ------------------------------------------------------------------------------------


def series(study: StudyData) -> Iterator[tuple[str, Callable[[], Picture]]]:
    """The name of each series that is drawn, and what draws it: the default and the best."""
    ends = (("default", study.default, DEFAULT), ("best", study.best, BEST))
    data = [(name, colour, study.series_of(trial)) for name, trial, colour in ends if trial]
    for name in SERIES:
        lines = [(label, colour, one[name]) for label, colour, one in data if name in one]
        if any(len(values) > 1 for _, _, values in lines):
            yield name.replace("_", " "), _Lines(name, lines)


@dataclass(frozen=True)
class _Lines:
    name: str
    lines: Sequence[tuple[str, str, Sequence[float]]]

    def __call__(self) -> Picture:
        figure = svg.figure(1.7, 3.6)
        axes = figure.subplots()
        width = 1 + max(len(values) for _, _, values in self.lines) // MOST_POINTS
        for label, colour, values in self.lines:
            means = [fmean(values[k : k + width]) for k in range(0, len(values), width)]
            seconds = [k + (width - 1) / 2 for k in range(0, len(values), width)]
            axes.plot(seconds, means, color=colour, lw=1, label=label)
        axes.yaxis.set_major_formatter(lambda value, _: _count(value))
        axes.set_xlabel(f"virtual seconds{f' (means of {width})' if width > 1 else ''}")
        axes.tick_params(labelsize=8)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        return Picture(self.name, f"{self.name} of default and best", figure, {})


def _count(value: float) -> str:
    for factor, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{prefix}"
    return f"{value:g}"
