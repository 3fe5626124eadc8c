# SPDX-License-Identifier: MIT
"""The pictures of a study's report. Each is a figure with what it shows in words, or None where the
study has nothing for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.declarations import KnobDecl
from tuner.objective import OBJECTIVES, Objective
from tuner.report import svg
from tuner.report.conclusion import UNTUNED, Conclusion, rows
from tuner.report.curves import Curve, position
from tuner.report.svg import BEST, BOUND, DEFAULT, GRID, INK, MOST_MARKS, MUTED, OTHER
from tuner.study.log import StudyData, TrialRecord
from tuner.study.verdict import Contender, Kind, Verdict, chosen, interval
from tuner.text import change, quantity, short, with_unit

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_AXES = 10
"""Knobs of the picture of all configurations."""
LATER = "virtual seconds"
SERIES = ("operations_per_second", "fast_hit_ratio", "promotions", "demotions", "migrated_bytes")
"""Time series that are drawn, where a trial has them: those that show why one is faster."""


@dataclass(frozen=True)
class Picture:
    """`about` is what it shows; `tips` are of its marks, as `svg.markup` has them."""

    name: str
    about: str
    figure: Figure
    tips: Mapping[str, Sequence[str]]

    def markup(self) -> Markup:
        return svg.markup(self.figure, self.about, self.tips)


def drawn(name: str, draw: Callable[[], Picture | None]) -> Markup | None:
    """The picture that the function makes, in the style of a page."""
    with svg.style(name):
        picture = draw()
        return None if picture is None else picture.markup()


# --- What was compared ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    name: str
    value: float  # in the unit of the axis
    half_width: float | None
    seeds: list[float]
    words: str
    colour: str
    bound: bool


def standing(study: StudyData, verdict: Verdict) -> Picture | None:
    """Everything that was compared, the best on top: how much it differs from the default, with
    intervals over the held-out seeds. Without a default the values themselves."""
    found = _compared(study, verdict)
    if not found:
        return None
    name = study.header.request.scenario.objective
    objective = OBJECTIVES[name]
    relative = any(row.name == "default" for row in found)
    figure = svg.figure(0.9 + 0.27 * len(found))
    axes = figure.subplots()
    for place, row in enumerate(found[::-1]):
        axes.plot(row.seeds, [place] * len(row.seeds), "|", color=MUTED, markersize=7)
        spread = [row.half_width] if row.half_width is not None else None
        axes.errorbar([row.value], [place], xerr=spread, color=row.colour, capsize=3, lw=1.6)
        axes.plot(
            *([row.value], [place]),
            *("D" if row.bound else "o",),
            color=row.colour,
            markersize=6,
            mfc="none" if row.bound else row.colour,
        )
        axes.annotate(
            row.words,
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=MUTED,
        )
    if relative:
        axes.axvline(0, color=DEFAULT, lw=1, zorder=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
    axes.set_yticks(range(len(found)), [row.name for row in found[::-1]])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.margins(x=0.08)
    axes.grid(axis="y", visible=False)
    unit = "difference from the default" if relative else objective.unit
    axes.set_xlabel(f"{objective.name}: {unit}; {_better(objective)}")
    return Picture("standing", "what was compared, with intervals", figure, {})


def _better(objective: Objective) -> str:
    return "more is better" if objective.higher_is_better else "less is better"


def _compared(study: StudyData, verdict: Verdict) -> list[_Row]:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    policy = study.header.request.policy.name
    contenders = {_label(each, policy): each for each in verdict.contenders}
    default = contenders.get("default")
    base = None if default is None else default.mean
    advised = chosen(verdict)
    found = []
    for name, value, words in rows(study, verdict):
        contender = contenders.get(name)
        seeds, half_width = _spread(contender, default)
        colour = BOUND if contender is None and not name.startswith(UNTUNED) else OTHER
        if contender is not None:
            colour = DEFAULT if name == "default" else OTHER
            colour = BEST if contender == advised or name == "best" else colour
        told = quantity(value, objective.unit)
        found.append(
            _Row(
                name=f"{name} (advised)" if contender and contender == advised else name,
                value=value if base is None else 100 * (value / base - 1),
                half_width=half_width,
                seeds=seeds,
                words=f"{told}  {words}".rstrip(),
                colour=colour,
                bound=contender is None and not name.startswith(UNTUNED),
            )
        )
    return found


def _label(contender: Contender, policy: str) -> str:
    """Its name in `rows`."""
    if contender.kind is Kind.off or contender.policy != policy:
        return contender.name
    return "default" if contender.kind is Kind.untuned else "best"


def _spread(
    contender: Contender | None, default: Contender | None
) -> tuple[list[float], float | None]:
    """Its held-out seeds, and half of an interval: over the default's run of the same seed, in
    percent; without a default in the objective's unit."""
    if contender is None:
        return [], None
    if default is None or default.mean is None:
        values = [value for value in contender.values if value is not None]
    elif contender is default:  # to itself it stands the same on every seed
        values = [100 * (v / default.mean - 1) for v in default.values if v is not None]
    else:
        values = [
            100 * (value / other - 1)
            for value, other in zip(contender.values, default.values, strict=True)
            if value is not None and other is not None
        ]
    return values, interval(values)[1] if values and contender is not default else None


# --- Trials ---------------------------------------------------------------------------------------


def history(study: StudyData, verdict: Verdict) -> Picture | None:
    """The objective of each trial, and the best so far."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    good = [trial for trial in study.done if trial.objective is not None]
    if not good:
        return None
    values = [trial.objective or 0.0 for trial in good]
    best: list[float] = []
    for value in values:
        best.append(value if not best or objective.better(value, best[-1]) else best[-1])
    figure = svg.figure(2.9)
    axes = figure.subplots()
    numbers = [trial.number for trial in good]
    tips = _scatter(axes, study, good, numbers)
    axes.step(numbers, best, where="post", color=BEST, lw=1.8, label="best so far")
    if study.default is not None and study.default.objective is not None:
        axes.axhline(study.default.objective, color=DEFAULT, lw=1, label="default")
    for style, (name, value) in zip(("--", ":", "-."), verdict.references.items(), strict=False):
        axes.axhline(value, color=BOUND, lw=1, linestyle=style, label=name)
    failed = [trial.number for trial in study.done if not trial.succeeded]
    if failed:
        floor = axes.get_ylim()[0]
        axes.plot(failed, [floor] * len(failed), "x", color=DEFAULT, label="failed", clip_on=False)
    axes.set_xlabel("trial")
    _objective_axis(axes, objective)
    figure.legend(loc="outside upper left", ncols=3)
    return Picture("history", "the objective of each trial and the best so far", figure, tips)


def _objective_axis(axes: Axes, objective: Objective) -> None:
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, objective.unit))
    axes.set_title(f"{objective.name}, {_better(objective)}", loc="left", color=MUTED, fontsize=8)


def _scatter(
    axes: Axes, study: StudyData, trials: Sequence[TrialRecord], x: Sequence[float]
) -> dict[str, list[str]]:
    """A mark for each trial at its objective; returns what they tell."""
    few = len(trials) <= MOST_MARKS
    y = [trial.objective or 0.0 for trial in trials]
    for each, value, place in zip(trials, y, x, strict=True):
        if few:
            marks = axes.plot([place], [value], "o", color=OTHER, markersize=3.5, alpha=0.75)
            marks[0].set_gid(f"mark-{each.number}")
    if not few:
        axes.plot(x, y, "o", color=OTHER, markersize=2.5, alpha=0.5, rasterized=True)
        return {}
    return {f"mark-{each.number}": [_told(study, each)] for each in trials}


def _told(study: StudyData, trial: TrialRecord) -> str:
    unit = OBJECTIVES[study.header.request.scenario.objective].unit
    value = "failed" if trial.objective is None else quantity(trial.objective, unit)
    return f"trial {trial.number} ({trial.origin}): {value}"


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
        tips = {
            f"mark-{trial.number}": [
                f"{with_unit(trial.knobs[knob.name], knob.unit)}; {_told(study, trial)}"
            ]
            for trial in good
        }
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
    """All configurations: an axis for each knob, the objective's below them, a line for each trial.
    Axes lie, so that names are read and phones have room."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    knobs = {knob.name: knob for knob in study.header.request.tuned}
    shown = [knobs[name] for name in names if name in knobs][:MOST_AXES]
    good = [trial for trial in study.done if trial.objective is not None]
    if not shown or len(good) < 2:
        return None
    costs = sorted(objective.cost(trial.objective or 1.0) for trial in good)
    figure = svg.figure(0.6 + 0.42 * (len(shown) + 1))
    axes = figure.subplots()
    few = len(good) <= MOST_MARKS
    low, high = min(t.objective or 0 for t in good), max(t.objective or 0 for t in good)
    order = sorted(good, key=lambda trial: -objective.cost(trial.objective or 1.0))
    y = [-float(place) for place in range(len(shown) + 1)]
    tips: dict[str, list[str]] = {}
    for trial in order:
        rank = costs.index(objective.cost(trial.objective or 1.0)) / max(1, len(costs) - 1)
        x = [_part(knob, trial) for knob in shown]
        x.append(((trial.objective or 0) - low) / (high - low) if high > low else 0.5)
        colour = BEST if rank <= 0.1 else OTHER
        line = axes.plot(x, y, color=colour, lw=0.9, alpha=0.75 if rank <= 0.1 else 0.3)[0]
        line.set_rasterized(not few)
        if few:
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
    _ends(axes, y[-1], f"{objective.name}, {_better(objective)}", ends[0], ends[1])
    axes.set_axis_off()
    axes.set_ylim(y[-1] - 0.4, 0.55)
    axes.set_xlim(-0.02, 1.02)
    return Picture("parallel", "all configurations: a line through each one's values", figure, tips)


def _part(knob: KnobDecl, trial: TrialRecord) -> float:
    """Where the value is between the ends of its axis."""
    if knob.values:
        return knob.values.index(trial.knobs[knob.name]) / max(1, len(knob.values) - 1)
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


# --- Why, and where else --------------------------------------------------------------------------


def shares(conclusion: Conclusion) -> Picture | None:
    """Shares of the gain, and below each what the change gains alone."""
    explanation = conclusion.explanation
    if explanation is None:
        return None
    effects = explanation.effects[::-1]
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


def elsewhere(study: StudyData, verdict: Verdict) -> Picture | None:
    """What the best configuration is worth with other amounts of fast memory."""
    home = study.header.request.scenario.ratio
    places = [(f"{home} (here)", verdict.gain, verdict.over_first_touch)]
    places += [(each.where, each.gain, each.over_first_touch) for each in verdict.elsewhere]
    if not verdict.elsewhere or all(gain is None and off is None for _, gain, off in places):
        return None
    figure = svg.figure(0.9 + 0.42 * len(places))
    axes = figure.subplots()
    for side, found, colour, marker, label in (
        (0.12, [gain for _, gain, _ in places], DEFAULT, "s", "over the default"),
        (-0.12, [off for _, _, off in places], OTHER, "o", "over first-touch"),
    ):
        drawn = [(place, gain) for place, gain in enumerate(found[::-1]) if gain is not None]
        axes.errorbar(
            [100 * gain.gain for _, gain in drawn],
            [place + side for place, _ in drawn],
            xerr=[100 * (gain.half_width or 0) for _, gain in drawn],
            fmt=marker,
            color=colour,
            capsize=3,
            label=label,
        )
    axes.axvline(0, color=INK, lw=1)
    axes.set_yticks(range(len(places)), [name for name, _, _ in places[::-1]])
    axes.set_ylim(-0.5, len(places) - 0.5)
    axes.xaxis.set_major_formatter(lambda value, _: change(value / 100).replace(".0", ""))
    axes.set_xlabel("gain of the best configuration")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=2)
    return Picture("elsewhere", "what it is worth with other amounts of fast memory", figure, {})


# --- Over time ------------------------------------------------------------------------------------


def series(study: StudyData) -> Iterator[tuple[str, Callable[[], Picture]]]:
    """The name of each series that is drawn, and what draws it: the default and the best."""
    ends = (("default", study.default, DEFAULT), ("best", study.best, BEST))
    data = [(name, colour, study.series(trial.number)) for name, trial, colour in ends if trial]
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
        for label, colour, values in self.lines:
            axes.plot(values, color=colour, lw=1, label=label)
        axes.yaxis.set_major_formatter(lambda value, _: _count(value))
        axes.set_xlabel(LATER)
        axes.tick_params(labelsize=8)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        return Picture(self.name, f"{self.name} of default and best", figure, {})


def _count(value: float) -> str:
    for factor, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{prefix}"
    return f"{value:g}"
