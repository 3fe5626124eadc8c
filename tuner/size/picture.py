# SPDX-License-Identifier: MIT
"""size.png: slowdown by fast memory, a curve for each configuration, with the bound and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.experiment.checks import OFF
from tuner.report.pictures import COLOURS
from tuner.size.measure import Found, Sized
from tuner.size.report import gib, headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINEAR = 4.0
"""Bounds up to which the axis of slowdowns is linear where it reaches far beyond them."""

LEAST_LINEAR = 0.01
"""Of a bound of 0."""

STYLES = ("-", "--", ":", "-.")


def draw(found: Found) -> Figure:
    from tuner.report.drawing import Figure

    picture = Figure(figsize=(9.0, 5.4), dpi=120, layout="constrained")
    axes = picture.subplots()
    bound = found.plan.bound
    policies = [each for each in found.sized if each.configuration.row.policy != OFF]
    for each in found.sized:
        if each.configuration.row.policy == OFF:
            _curve(axes, each, "#222222", "-")
        else:
            round, colour = divmod(policies.index(each), len(COLOURS))
            _curve(axes, each, COLOURS[colour], STYLES[round % len(STYLES)])
    axes.axhline(100 * bound, color="#888888", lw=1.2, ls="--", zorder=1, label="bound")
    linear = 100 * LINEAR * max(bound, LEAST_LINEAR)
    slowdowns = [100 * each.search.at(s).mean for each in found.sized for s in each.search.sizes]
    if max(slowdowns) > 2 * linear:
        axes.set_yscale("symlog", linthresh=linear, linscale=1.5)
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(0, 1.02 * max(each.whole_gib for each in found.sized))
    axes.set_xlabel("fast memory, GiB")
    axes.set_ylabel("slower than all-fast, %")
    axes.set_title(headline(found), loc="left", fontsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    columns = 3 if len(found.sized) > 6 else 1
    axes.legend(fontsize=7, frameon=False, ncols=columns)
    return picture


def _curve(axes: Axes, sized: Sized, colour: str, style: str) -> None:
    """Points with their intervals, a line down at the answer, and a square at the knee."""
    search = sized.search
    sizes = search.sizes
    values = [search.at(size) for size in sizes]
    name, answer = sized.configuration.row.name, sized.answer_gib
    axes.errorbar(
        [sized.gib(size) for size in sizes],
        [100 * value.mean for value in values],
        yerr=[100 * (value.half_width or 0.0) for value in values],
        color=colour, ls=style, lw=1.3, marker=".", ms=4, capsize=2,
        label=name if answer is None else f"{name}: {gib(answer)} GiB",
    )  # fmt: skip
    if answer and (there := sized.slowdown):
        axes.vlines(answer, 0, 100 * there.mean, colors=colour, linestyles=":", lw=1)
    if search.knee is not None:
        knee = search.at(search.knee).mean
        axes.plot(sized.gib(search.knee), 100 * knee, marker="s", ms=6, mfc="none", color=colour)
