# SPDX-License-Identifier: MIT
"""compare.png: performance over the base as bars, a panel for each ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tuner.compare.cells import Row
from tuner.compare.figures import Figure, Figures, Line
from tuner.compare.tables import MEAN
from tuner.experiment.checks import BOUND
from tuner.report.pictures import COLOURS
from tuner.text import page_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

DASHES: dict[str, Literal["-", "--", ":"]] = {
    "all-fast": "-",
    "offline-optimal": ":",
    BOUND: "--",
}
"""Lines over a group of bars."""

MOST_BARS = 150
"""Figures that are drawn as bars; more are a heat map."""

FAR = 6
"""Bounds that are so many times the highest bar are named at the edge: drawn to scale they would
leave the bars no room."""

LINEAR = 1.5
"""Figures that differ by a larger factor are drawn on a logarithmic axis."""


def draw(figures: Figures) -> Picture:
    comparison = figures.comparison
    bars = [row for row in comparison.rows if not row.reference]
    groups = [*comparison.workloads, *([MEAN] if len(comparison.workloads) > 1 else [])]
    if len(bars) * len(groups) > MOST_BARS:
        return _heat(figures, groups)
    width = max(7.0, 1.6 + len(groups) * (0.5 + 0.3 * len(bars)))
    picture = _picture(width, 1.1 + 2.7 * len(comparison.ratios))
    panels = picture.subplots(len(comparison.ratios), squeeze=False)[:, 0]
    for axes, ratio in zip(panels, comparison.ratios, strict=True):
        table = {line.row: line for line in figures.table(ratio)}
        _panel(axes, figures, table, bars, groups)
        axes.set_title(ratio, loc="left", fontsize=10)
        for number, workload in enumerate(comparison.workloads):
            for i, row in enumerate(bars):
                if table[row].figures[workload] is None:
                    said = figures.at(ratio, workload, row).outcome
                    x = _place(number, i, len(bars))
                    axes.text(x, 1, f" {said}", rotation=90, ha="center", va="bottom", fontsize=7)
    base = comparison.base
    label = f"performance over {base.policy}, {page_size(base.page_bytes)} pages"
    picture.supylabel(label, fontsize=9)
    picture.legend(
        handles=_legend(bars, comparison.bounds),
        loc="outside lower center",
        ncols=max(2, int(width / 1.7)),
        fontsize=8,
        frameon=False,
    )
    return picture


def _picture(width: float, height: float) -> Picture:
    from tuner.report.drawing import Figure

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def _place(group: int, bar: int, bars: int) -> float:
    return group - 0.4 + (bar + 0.5) * 0.8 / bars


def _panel(
    axes: Axes,
    figures: Figures,
    table: dict[Row, Line],
    bars: Sequence[Row],
    groups: Sequence[str],
) -> None:
    drawn = [1.0]
    for number, group in enumerate(groups):
        for i, row in enumerate(bars):
            if found := _of(table[row], group):
                spread = found.half_width or 0.0
                x = _place(number, i, len(bars))
                style = _style(row, bars)
                axes.bar(x, found.value - 1, 0.74 / len(bars), bottom=1, zorder=2, **style)
                axes.errorbar(x, found.value, spread, color="#222222", capsize=2, lw=1, zorder=3)
                drawn += [found.value + spread, max(found.value - spread, found.value / 2)]
    ceiling = FAR * max(drawn)
    for number, group in enumerate(groups):
        beyond = []
        for row in figures.comparison.bounds:
            if not (found := _of(table[row], group)):
                continue
            if found.value > ceiling:
                beyond.append(f"{row.policy} {found.value:.3g}")
                continue
            ends = (number - 0.44, number + 0.44)
            axes.hlines(found.value, *ends, colors="black", linestyles=DASHES[row.policy], lw=1.3)
            drawn.append(found.value)
        if beyond:  # in the order of the axis
            axes.annotate(
                "\n".join(f"\N{UPWARDS ARROW} {each}" for each in beyond),
                (number, 1),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="top",
                fontsize=7,
            )
    low, high = min(drawn), max(drawn)
    if high > LINEAR * low:
        from tuner.report.drawing import FixedLocator, NullLocator

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(low / (high / low) ** 0.05, high * (high / low) ** 0.08)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(1, color="#555555", lw=0.8, zorder=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)


ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
FEWEST_TICKS = 4


def _ticks(low: float, high: float) -> list[float]:
    """Of a logarithmic axis: figures that can be read off, 1 among them. Powers of two if there are
    enough between the ends, or else numbers that are round."""
    powers = [2.0**k for k in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    if len(powers) >= FEWEST_TICKS:
        return powers[:: math.ceil(len(powers) / (2 * FEWEST_TICKS))]
    scales = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [digit * 10.0**scale for scale in scales for digit in ROUND]
    return [tick for tick in found if low <= tick <= high]


def _heat(figures: Figures, groups: Sequence[str]) -> Picture:
    """Defaults and tuned configurations side by side, a panel for each ratio, the best policy by
    its mean at the top."""
    comparison = figures.comparison
    kinds = [False, True] if comparison.budget else [False]
    tables = {
        ratio: {line.row: line for line in figures.table(ratio)} for ratio in comparison.ratios
    }
    rows = {tuned: _by_mean(figures, tables, tuned) for tuned in kinds}
    height = 0.2 * len(rows[False]) + 1.2
    size = (2 + 0.52 * len(groups)) * len(kinds), 1 + height * len(comparison.ratios)
    picture = _picture(*size)
    panels = picture.subplots(len(comparison.ratios), len(kinds), squeeze=False)
    for across, ratio in zip(panels, comparison.ratios, strict=True):
        for axes, tuned in zip(across, kinds, strict=True):
            lines = [tables[ratio][row] for row in rows[tuned]]
            drawn = _cells(axes, [[_of(line, group) for group in groups] for line in lines])
            axes.set_yticks(
                range(len(lines)), [line.row.untuned.name for line in lines], fontsize=7
            )
            axes.set_xticks(range(len(groups)), groups, rotation=45, ha="right", fontsize=7)
            axes.set_title(f"{ratio}, {'tuned' if tuned else 'default'}", loc="left", fontsize=10)
    base = comparison.base
    bar = picture.colorbar(drawn, ax=panels, fraction=0.012, extend="both")
    bar.set_label(f"performance over {base.policy}, {page_size(base.page_bytes)} pages", fontsize=9)
    bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
    return picture


def _by_mean(figures: Figures, tables: Mapping[str, Mapping[Row, Line]], tuned: bool) -> list[Row]:
    """The bounds, and below them the policies by the mean over ratios."""
    comparison = figures.comparison
    rows = [row for row in comparison.rows if not row.reference and row.tuned == tuned]

    def mean(row: Row) -> float:
        means = [table[row].mean for table in tables.values()]
        return sum(math.log(found.value) for found in means if found)

    return [*comparison.bounds, *sorted(rows, key=mean, reverse=True)]


def _cells(axes: Axes, rows: Sequence[Sequence[Figure | None]]) -> Any:
    """A coloured cell with its figure for each; grey where there is none."""
    values = [[math.log2(found.value) if found else math.nan for found in row] for row in rows]
    drawn = axes.imshow(values, cmap="RdBu", vmin=-2, vmax=2, aspect="auto")
    axes.set_facecolor("#bbbbbb")
    for y, row in enumerate(rows):
        for x, found in enumerate(row):
            if found:
                dark = abs(values[y][x]) > 1.3
                shown = f"{found.value:.2f}" if found.value < 10 else f"{found.value:.1f}"
                colour = "white" if dark else "black"
                axes.text(x, y, shown, ha="center", va="center", fontsize=5.5, color=colour)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return drawn


def _of(line: Line, group: str) -> Figure | None:
    """A workload's figure, or the mean if it is of all workloads."""
    return line.full_mean if group == MEAN else line.figures[group]


def _style(row: Row, bars: Sequence[Row]) -> dict[str, Any]:
    """A policy's colour, hatched where it is tuned."""
    rows = list(dict.fromkeys(bar.untuned for bar in bars))
    colour = COLOURS[rows.index(row.untuned) % len(COLOURS)]
    return {
        "facecolor": colour,
        "hatch": "////" if row.tuned else "",
        "edgecolor": "white",
        "lw": 0,
    }


def _legend(bars: Sequence[Row], bounds: Sequence[Row]) -> list[Any]:
    from tuner.report.drawing import Line2D, Patch

    handles: list[Any] = [Patch(label=row.name, **_style(row, bars)) for row in bars]
    for row in bounds:
        style = DASHES[row.policy]
        handles.append(Line2D([], [], color="black", linestyle=style, lw=1.3, label=row.policy))
    return handles
