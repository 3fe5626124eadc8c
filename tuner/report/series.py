# SPDX-License-Identifier: MIT
"""A picture of time series: a panel for each column, a line for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.report.pictures import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 40


def draw(series: Mapping[str, Mapping[str, Sequence[float]]], columns: Sequence[str]) -> Figure:
    """`series`: by run, then by column, values of the same length as the column `second`. Columns
    that are zero in all runs are left out, and so are those beyond MOST_PANELS."""
    from tuner.report.drawing import Figure, FigureCanvasAgg

    shown = [name for name in columns if any(any(data.get(name, ())) for data in series.values())]
    shown = shown[:MOST_PANELS] or list(columns[:1])
    figure = Figure(figsize=(9, 1.6 * len(shown) + 0.5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(shown), squeeze=False, sharex=True)[:, 0]
    for axes, name in zip(panels, shown, strict=True):
        for colour, (run, data) in zip(COLOURS, series.items(), strict=False):
            if name in data:
                axes.plot(data["second"], data[name], color=colour, linewidth=1, label=run)
        axes.set_title(name.replace("_", " "), fontsize=9, loc="left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    panels[-1].set_xlabel("seconds")
    if len(series) > 1:
        panels[0].legend(frameon=False, fontsize=8)
    return figure
