# SPDX-License-Identifier: MIT
"""What came out of a study, as a page to look at.

`report.html` stands alone (pictures inside, nothing from the network); `importance.png` is the same
bar chart by itself.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import pages
from tuner.declarations import KnobValue
from tuner.files import write_files
from tuner.objective import OBJECTIVES
from tuner.report.conclusion import Conclusion, rows, share, text
from tuner.report.verification import draw
from tuner.study.explanation import KEEP, Explanation
from tuner.study.log import StudyData
from tuner.study.verdict import Kind, Verdict
from tuner.study.verified import Verified, current, sentences
from tuner.text import with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
BARS = "importance.png"
KERNEL = "On a real kernel"
BLUE, RED, GREY = "#1f6feb", "#d1242f", "#8a8f98"
SERIES = ("operations_per_second", "fast_hit_ratio", "promotions", "demotions", "migrated_bytes")
"""Time series that are drawn, where a trial has them: those that show why one is faster."""


def write(study: StudyData, conclusion: Conclusion) -> list[Path]:
    """Writes the page and the bar chart into the study's directory; returns their paths. UserError
    if that fails."""
    bars = _png(_share_bars(conclusion.explanation))
    pictures = [("What to do", _png(_standing(study, conclusion.verdict)))]
    pictures += [("Best so far", _png(_curve(study, conclusion.verdict)))]
    if conclusion.explanation is not None:
        pictures.append(("What made the difference", bars))
    series = _series(study)
    if series is not None:
        pictures.append(("Default against best, over time", _png(series)))
    verified = current(study)
    if verified is not None:
        pictures.append((KERNEL, _png(draw(verified))))
    page = _page(study, conclusion, pictures, verified)
    return write_files({study.directory / PAGE: page, study.directory / BARS: bars})


def _default_of(study: StudyData, name: str) -> KnobValue:
    return next(knob.default for knob in study.header.request.tuned if knob.name == name)


# --- Pictures -------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Figure:
    from tuner.report.drawing import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _standing(study: StudyData, verdict: Verdict) -> Figure:
    """Everything that was compared, as bars, in the order of the terminal."""
    objective = OBJECTIVES[study.header.request.scenario.objective]
    found = rows(study, verdict)[::-1]
    figure = _figure(8, 0.9 + 0.3 * max(1, len(found)))
    axes = figure.subplots()
    colours = {"default": RED, "best": BLUE}
    names = [name for name, _, _ in found]
    bars = axes.barh(
        names, [value for _, value, _ in found], color=[colours.get(n, GREY) for n in names]
    )
    axes.bar_label(bars, [f" {text}" for _, _, text in found], fontsize=8)
    for contender in verdict.contenders:
        good = [value for value in contender.values if value is not None]
        policy = study.header.request.policy.name
        own = {Kind.untuned: "default", Kind.tuned: "best"}.get(contender.kind, contender.policy)
        name = own if contender.policy == policy else contender.name
        if name in names:  # each held-out seed a tick
            axes.plot(good, [names.index(name)] * len(good), "|", color="black", markersize=9)
    better = "more" if objective.higher_is_better else "less"
    axes.set_xlabel(f"{objective.name} ({objective.unit}), {better} is better; ticks: seeds")
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    _clean(axes)
    return figure


def _curve(study: StudyData, verdict: Verdict) -> Figure:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    figure = _figure(8, 3.6)
    axes = figure.subplots()
    numbers: list[int] = []
    values: list[float] = []
    best: list[float] = []
    for trial in study.done:
        value = trial.objective
        if value is None:
            continue
        numbers.append(trial.number)
        values.append(value)
        if not best or objective.better(value, best[-1]):
            best.append(value)
        else:
            best.append(best[-1])
    axes.scatter(numbers, values, s=14, color=GREY, label="trial", zorder=2)
    axes.step(numbers, best, where="post", color=BLUE, linewidth=2, label="best so far")
    lines = {"default": (study.default.objective if study.default else None, RED)}
    lines |= {name: (value, "#1a7f37") for name, value in verdict.references.items()}
    for (name, (value, colour)), style in zip(lines.items(), ("--", ":", "-.", "-"), strict=False):
        if value is not None:
            axes.axhline(value, color=colour, linewidth=1, linestyle=style, label=name)
    failed = [trial.number for trial in study.done if not trial.succeeded]
    if failed:
        floor = axes.get_ylim()[0]
        axes.scatter(failed, [floor] * len(failed), marker="x", color=RED, label="failed")
    axes.set_xlabel("trial")
    axes.set_ylabel(f"{objective.name} ({objective.unit})")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    _clean(axes)
    return figure


def _share_bars(explanation: Explanation | None) -> Figure:
    """Shares of the gain, and below each what the change gains alone."""
    effects = [] if explanation is None else explanation.effects[::-1]
    figure = _figure(8, 1.1 + 0.34 * max(1, len(effects)))
    axes = figure.subplots()
    rows = range(len(effects))
    axes.barh(
        [row + 0.2 for row in rows],
        [100 * (effect.share or 0) for effect in effects],
        0.4,
        xerr=[100 * (effect.half_width or 0) for effect in effects],
        color=BLUE,
        label="share: what it adds, by the mean of all orders",
    )
    axes.barh(
        [row - 0.2 for row in rows],
        [100 * (effect.alone or 0) for effect in effects],
        0.4,
        color=GREY,
        label="alone (one run)",
    )
    axes.set_yticks(rows, [effect.knob for effect in effects])
    axes.set_xlabel("part of the gain over the default, %")
    if explanation is None:
        axes.set_title("no gain to explain", fontsize=9, loc="left")
    if explanation is not None:
        figure.legend(frameon=False, fontsize=8, loc="outside lower left", ncols=2)
    _clean(axes)
    return figure


def _series(study: StudyData) -> Figure | None:
    ends = (("default", study.default), ("best", study.best))
    runs = [(name, trial) for name, trial in ends if trial is not None]
    data = {name: study.series(trial.number) for name, trial in runs}
    shown = [
        name for name in SERIES if any(len(series.get(name, ())) > 1 for series in data.values())
    ]
    if not shown:
        return None
    figure = _figure(8, 2.2 * len(shown))
    for axes, name in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
        for label, color in (("default", RED), ("best", BLUE)):
            if name in data.get(label, {}):
                axes.plot(data[label][name], color=color, linewidth=1, label=label)
        axes.set_ylabel(name.replace("_", " "))
        axes.set_xlabel("virtual seconds")
        axes.legend(frameon=False)
        _clean(axes)
    return figure


# --- The page -------------------------------------------------------------------------------------

COLUMNS = (
    *("knob", ">default", ">best", ">share of the gain", ">alone", ">without it", ">forest"),
    "",
)


def _page(
    study: StudyData,
    conclusion: Conclusion,
    pictures: list[tuple[str, bytes]],
    verified: Verified | None,
) -> str:
    request = study.header.request
    return pages.page(
        PAGE,
        title=request.study,
        headline=conclusion.verdict.headline,
        subject=_subject(study),
        text=text(study, conclusion),
        pictures=[(title, base64.b64encode(png).decode()) for title, png in pictures],
        verification="" if verified is None else "\n".join(sentences(verified)),
        columns=COLUMNS,
        knobs=list(_knobs(study, conclusion)),
        caveat=_caveat(conclusion),
        failures=[
            {
                "number": trial.number,
                "status": trial.result.status,
                "error": trial.result.error,
                "log": trial.result.log if trial.result.log.strip() else "",
            }
            for trial in study.done
            if trial.result is not None and not trial.succeeded
        ],
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


def _knobs(study: StudyData, conclusion: Conclusion) -> Iterator[dict[str, Any]]:
    """Rows of the table of knobs."""
    explanation, forest = conclusion.explanation, conclusion.forest
    effects = {} if explanation is None else {e.knob: e for e in explanation.effects}
    shares = conclusion.shares(study) or dict.fromkeys(forest.scores, 0.0)
    minimal = {} if explanation is None else explanation.minimal
    units = {knob.name: knob.unit for knob in study.header.request.policy.knobs}
    for name in [*effects, *(name for name in shares if name not in effects)]:
        default = _default_of(study, name)
        value = study.best.knobs[name] if study.best is not None else default
        numbers = ["", "", ""]
        if effect := effects.get(name):
            numbers = [
                "" if effect.share is None else share(effect.share, effect.half_width),
                *(
                    "fails" if part is None else share(part, None)
                    for part in (effect.alone, effect.without)
                ),
            ]
        both = with_unit(default, units[name]), with_unit(value, units[name])
        cells = [name, *both, *numbers, f"{100 * forest.scores[name]:.0f} %"]
        needed = "needed" if name in minimal else ""
        yield {"changed": value != default, "cells": [*cells, needed]}


def _caveat(conclusion: Conclusion) -> str:
    explanation = conclusion.explanation
    measured = "No share was measured: there is no gain over the default to explain. "
    if explanation is not None:
        measured = (
            f"Shares are measured by {explanation.runs} real runs on held-out seeds "
            f"({', '.join(map(str, explanation.seeds))}). They are what a change adds on the mean "
            f"of {'all' if explanation.orders is None else explanation.orders} orders in which the "
            f"needed changes can be made (Shapley values). Those keep {100 * KEEP:.0f} % of the "
            "gain or more; the others together make up for the rest, "
            f"{share(1 - explanation.kept, None)}. `alone` is what a change gains by itself, "
            "`without it` what best loses without it, both by one run. "
        )
    return (
        f"{measured}The forest's scores say how much a model of the trials varies with a knob "
        f"({conclusion.forest.method}, {conclusion.forest.reliability}). They include changes for "
        "the worse and are not causes: do not read them as gains."
    )
