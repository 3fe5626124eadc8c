# SPDX-License-Identifier: MIT
"""A picture for each policy: performance over first-touch by skew and drift, a panel for each ratio
and machine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tuner.compare.cells import Row
from tuner.map.cells import drift_text
from tuner.map.points import Found, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
    from matplotlib.image import AxesImage

LEAST_RANGE = 1.1
"""The colours reach at least from one over this to this, so that noise stays pale."""


def draw(found: Found, row: Row) -> Picture:
    from tuner.report.drawing import Figure

    axes = found.plan.axes
    rows, columns = len(axes.ratios), len(axes.machines)
    panel = 1.3 + 0.62 * len(axes.drifts), 0.75 + 0.42 * len(axes.skews)
    picture = Figure(
        figsize=(1.2 + columns * panel[0], 1.1 + rows * panel[1]), dpi=100, layout="constrained"
    )
    panels = picture.subplots(rows, columns, squeeze=False)
    means = [point.mean for point in found.of(row) if point.mean]
    reach = max([LEAST_RANGE, *means, *(1 / mean for mean in means)])
    image = None
    for i, ratio in enumerate(axes.ratios):
        for j, machine in enumerate(axes.machines):
            image = _panel(panels[i, j], found, row, ratio, machine, math.log2(reach))
    picture.suptitle(f"{row.name}: performance over first-touch", fontsize=10)
    picture.supxlabel("accesses in which the hot window is replaced (10⁹)", fontsize=9)
    picture.supylabel("share of accesses that go to the window", fontsize=9)
    if image is not None:
        bar = picture.colorbar(image, ax=panels.ravel().tolist(), shrink=0.6, pad=0.01)
        ticks = np.linspace(-math.log2(reach), math.log2(reach), 5)
        bar.set_ticks(ticks.tolist(), labels=[f"{2**tick:.2f}" for tick in ticks])
        bar.ax.tick_params(labelsize=7)
    return picture


def _panel(
    panel: Axes, found: Found, row: Row, ratio: str, machine: str, reach: float
) -> AxesImage:
    axes = found.plan.axes
    grid = [[found.at(row, machine, ratio, s, d) for d in axes.drifts] for s in axes.skews]
    values = np.array([[math.log2(p.mean) if p.mean else math.nan for p in line] for line in grid])
    image = panel.imshow(
        values, cmap="RdBu", vmin=-reach, vmax=reach, origin="lower", aspect="auto"
    )
    for y, line in enumerate(grid):
        for x, point in enumerate(line):
            dark = point.mean is not None and abs(math.log2(point.mean)) > 0.6 * reach
            colour = "white" if dark else "black"
            panel.text(x, y, _text(point), ha="center", va="center", fontsize=7, color=colour)
            if found.rule and (case := point.case) and found.rule.off(case):
                _frame(panel, x, y)
    window = found.plan.fast_over_hot(ratio)
    panel.set_title(f"{machine}, {ratio} (fast = {window:.2g} windows)", fontsize=8, loc="left")
    panel.set_xticks(range(len(axes.drifts)), [drift_text(drift) for drift in axes.drifts])
    panel.set_yticks(range(len(axes.skews)), [f"{skew:g}" for skew in axes.skews])
    panel.tick_params(labelsize=7, length=0)
    panel.spines[:].set_visible(False)
    return image


def _text(point: Point) -> str:
    if point.mean is None:
        return str(point.status)
    return f"{point.mean:.2f}" if point.mean < 10 else f"{point.mean:.1f}"


def _frame(panel: Axes, x: float, y: float) -> None:
    """Around a cell in which the rule turns promotion off."""
    from tuner.report.drawing import Rectangle

    panel.add_patch(
        Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="black", lw=1.2)
    )
