# SPDX-License-Identifier: MIT
"""The front of a study with several objectives: its pictures, its table, and its lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from tuner.figure import FIGURES
from tuner.report import svg
from tuner.report.svg import BEST, DEFAULT, INK, MOST_MARKS, MUTED, OTHER, Picture
from tuner.study import best as best_file
from tuner.study import front
from tuner.study.constraint import shown
from tuner.study.front import Front, Point
from tuner.study.log import StudyData

if TYPE_CHECKING:
    from markupsafe import Markup


def told(found: Front) -> list[str]:
    """The front as lines: what it is, and its points."""
    names = ", ".join(found.objectives)
    rows = [_row(found, point) for point in found.points]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    left = f"; {found.left_out} more are in the log" if found.left_out else ""
    head = f"on the study's seed no trial beats these in all of {names}{left}; figures here are "
    return [f"{head}means of {len(found.seeds)} held-out seeds", *lines]


def _row(found: Front, point: Point) -> list[str]:
    figures = [f"{name} {shown(name, point.held_out.get(name))}" for name in found.objectives]
    return [f"  trial {point.trial}", *figures, _note(found, point)]


def _note(found: Front, point: Point) -> str:
    notes = []
    if point.trial == found.best:
        notes.append(best_file.FILE)
    if point.trial == 0:
        notes.append("the default")
    if point.beaten:
        notes.append("beaten by another on held-out seeds")
    if not point.held_out:
        notes.append("failed on a held-out seed")
    return ", ".join(notes)


def reason(found: Front) -> str:
    """Why one of the points is in best.yaml, as a sentence without a full stop."""
    return (
        f"{best_file.FILE} has trial {found.best}, which was chosen by the first objective, "
        f"{found.objectives[0]}; {best_file.FRONT}/ has a file for each"
    )


def table(found: Front) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: of each point the figures on the study's seed and the held-out means."""
    columns = [">trial"]
    columns += [f">{name}{what}" for name in found.objectives for what in ("", ", held out")]
    rows = []
    for point in found.points:
        cells = [str(point.trial)]
        for name in found.objectives:
            cells += [shown(name, point.values.get(name)), shown(name, point.held_out.get(name))]
        rows.append([*cells, _note(found, point)])
    return [*columns, ""], rows


def pictures(study: StudyData, found: Front) -> Iterator[Markup]:
    """The first objective against each other one."""
    for other in found.objectives[1:]:
        drawn = svg.drawn(f"front-{other}", partial(_draw, study, found, other))
        if drawn is not None:
            yield drawn


def _draw(study: StudyData, found: Front, other: str) -> Picture | None:
    first, request = found.objectives[0], study.header.request
    figures = {
        trial.number: each
        for trial in study.done
        if (each := front.values(request, found.objectives, trial.result)) is not None
    }
    if not figures:
        return None
    from tuner.report.drawing import MaxNLocator

    figure = svg.figure(3.0)
    axes = figure.subplots()
    good = {trial.number for trial in study.good}
    tips: dict[str, list[str]] = {}
    for gid, numbers, colour in (
        ("marks", [n for n in figures if n in good], OTHER),
        ("broken", [n for n in figures if n not in good], MUTED),
    ):
        if not numbers:
            continue
        x, y = ([figures[n][name] for n in numbers] for name in (other, first))
        few = len(figures) <= MOST_MARKS
        own = gid == "marks"
        label = None if own else "breaks a constraint"
        marks = axes.scatter(
            x, y, 12 if few else 6, color=colour, alpha=0.75, linewidths=0.8,
            marker="o" if own else "x", label=label,
        )  # fmt: skip
        marks.set_rasterized(not few)
        marks.set_gid(gid)
        if few:
            tips[gid] = [_tip(n, figures[n]) for n in numbers]
    line = [figures[trial.number] for trial in front.candidates(study)]
    if len(found.objectives) == 2:  # of more, a line would cross itself
        axes.plot([e[other] for e in line], [e[first] for e in line], color=BEST, lw=1.2)
    axes.plot(
        [each[other] for each in line], [each[first] for each in line],
        "o", color=BEST, markersize=4, label="front",
    )  # fmt: skip
    for number, colour, marker, name in ((0, DEFAULT, "s", "default"), (found.best, INK, "*", "")):
        if number in figures:
            where = [figures[number][other]], [figures[number][first]]
            label = name or best_file.FILE
            axes.plot(*where, marker, color=colour, markersize=7, label=label, linestyle="none")
    for axis, name in ((axes.xaxis, other), (axes.yaxis, first)):
        axis.set_major_formatter(partial(_written, name))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(f"{other}, {_better(other)}")
    axes.set_title(f"{first}, {_better(first)}", loc="left", color=MUTED, fontsize=8)
    axes.tick_params(labelsize=8)
    figure.legend(loc="outside upper left", ncols=4)
    return Picture(f"front-{other}", f"{first} over {other} of each trial, and the front",
                   figure, tips)  # fmt: skip


def _written(name: str, value: float, _: int) -> str:
    return shown(name, value)


def _better(name: str) -> str:
    return "more is better" if FIGURES[name].higher_is_better else "less is better"


def _tip(number: int, figures: dict[str, float]) -> str:
    return f"trial {number}: " + ", ".join(f"{n} {shown(n, v)}" for n, v in figures.items())
