# SPDX-License-Identifier: MIT
"""The picture of a verification: what simulation and machine say of each configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.objective import OBJECTIVES
from tuner.report.pictures import COLOURS
from tuner.study.contender import Kind
from tuner.study.verified import Verified

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(found: Verified) -> Figure:
    """A row for each configuration: the simulated objective, and the measured one of each layout
    with their mean."""
    from tuner.report.drawing import Figure, FigureCanvasAgg

    objective = OBJECTIVES[found.objective]
    shown = found.candidates[::-1]
    figure = Figure(figsize=(8, 1.1 + 0.42 * len(shown)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    simulated, measured = COLOURS[0], COLOURS[1]
    for place, each in enumerate(shown):
        good = [value for value in each.values if value is not None]
        axes.plot(good, [place] * len(good), "|", color=measured, markersize=12)
        if each.mean is not None:
            axes.plot([each.mean], [place], "o", color=measured, markersize=7)
        if each.simulated is not None:
            axes.plot([each.simulated], [place], "D", color=simulated, markersize=6, mfc="none")
        if each.kind is Kind.off and each.mean is not None:
            axes.axvline(each.mean, color="#999999", linewidth=0.8, zorder=0)
    axes.plot([], [], "D", color=simulated, mfc="none", label="simulated")
    axes.plot([], [], "o", color=measured, label="measured (mean; ticks: single runs)")
    axes.set_yticks(range(len(shown)), [each.name for each in shown])
    better = "more" if objective.higher_is_better else "less"
    axes.set_xlabel(f"{objective.name} ({objective.unit}), {better} is better")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    return figure
