# SPDX-License-Identifier: MIT
"""fleet.png: how the best of each study grew with its trials, and what it gains in the end."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tuner.fleet.loop import Member
from tuner.fleet.report import Fleet, gain_of, member_name
from tuner.objective import OBJECTIVES
from tuner.report.pictures import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--", ":", "-.")


def draw(fleet: Fleet) -> Figure:
    from tuner.report.drawing import Figure

    members = fleet.members
    height = max(3.2, 1.2 + 0.24 * len(members))
    picture = Figure(figsize=(11.0, height), dpi=120, layout="constrained")
    growth, bars = picture.subplots(1, 2)
    for index, member in enumerate(members):
        colour, style = _look(index)
        points = curve(member)
        if points:
            growth.step(
                range(1, len(points) + 1), points, where="post", color=colour, ls=style, lw=1.3
            )
            growth.plot(len(points), points[-1], marker=".", color=colour)
        if gain := gain_of(member):
            bars.barh(index, 100 * gain.gain, 0.7, color=colour)
            bars.errorbar(
                100 * gain.gain, index, xerr=100 * (gain.half_width or 0), color="black", lw=0.8
            )
        else:
            bars.text(0, index, " nothing", va="center", fontsize=7)
    growth.set_xlabel("trials")
    growth.set_ylabel("best so far over the default, %")
    growth.set_title("search", loc="left", fontsize=10)
    bars.axvline(0, color="black", lw=0.8)
    bars.set_yticks(range(len(members)), [member_name(m) for m in members], fontsize=7)
    bars.set_ylim(len(members) - 0.4, -0.6)
    bars.set_xlabel("best over the default, held-out seeds, %")
    bars.set_title("gain", loc="left", fontsize=10)
    for axes in (growth, bars):
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=7)
    return picture


def _look(index: int) -> tuple[str, str]:
    round, colour = divmod(index, len(COLOURS))
    return COLOURS[colour], STYLES[round % len(STYLES)]


def curve(member: Member) -> list[float]:
    """Best so far over the default in percent, by trial; empty if the default failed."""
    objective = OBJECTIVES[member.request.scenario.objective]
    if not member.objectives or member.objectives[0] is None:
        return []
    default = member.objectives[0]
    gains = [
        0.0 if value is None else 100 * objective.gain(value, default)
        for value in member.objectives
    ]
    return list(accumulate(gains, max))
