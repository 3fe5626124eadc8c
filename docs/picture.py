# SPDX-License-Identifier: MIT
"""Draws results/study.json as docs/study.svg: what a study finds, against doing nothing.

Plain SVG with a light panel of its own, so that it reads on dark pages, too; the same bytes for the
same file, so that a test can compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 52, 46
INK, GREY, TRIAL, BEST = "#1f2328", "#6e7781", "#8fb8de", "#0a5cad"


def nice_step(span: float) -> float:
    """About five steps of 1, 2 or 5 times a power of ten."""
    step = 1.0
    while step * 5 < span:
        step *= 10
    while step * 5 > span:
        step /= 10
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor * 6 >= span)


def study(data: Mapping[str, Any]) -> str:
    """The picture of a study: a dot per trial, the best so far, and lines for what needs no tuning.

    Args:
        data: results/study.json; `trials` are the objectives in the order of the trials (None:
            failed), `references` those of policies without knobs.
    """
    runtime = data["objective"] == "runtime"
    scale, unit = (1.0, "seconds (less is better)") if runtime else (1e6, "million operations/s")
    trials = [None if value is None else value / scale for value in data["trials"]]
    good = [value for value in trials if value is not None]
    lines = [(name, value / scale) for name, value in data["references"].items()]
    lines.append(("default knobs", data["default"] / scale))
    high: float = max([*good, *(value for _, value in lines)]) * 1.06
    step = nice_step(high)
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(trial: float) -> float:
        return LEFT + across * (trial + 0.5) / len(trials)

    def y(value: float) -> float:
        return TOP + down * (1 - value / high)

    def text(
        at: tuple[float, float],
        words: str,
        anchor: str = "start",
        colour: str = GREY,
        more: str = "",
    ) -> str:
        return (
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" fill="{colour}"{more}>'
            f"{words}</text>"
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{data['title']}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
        text((LEFT, 28), data["title"], colour=INK, more=' font-size="15" font-weight="600"'),
        text((LEFT, 45), unit),
        text((LEFT + across / 2, HEIGHT - 12), "trial", "middle"),
    ]
    for tick in range(int(high / step) + 1):
        level = y(tick * step)
        out.append(f'<path d="M{LEFT} {level:.1f}h{across}" stroke="#eaeef2"/>')
        out.append(text((LEFT - 8, level + 4), f"{tick * step:g}", "end"))
    for trial in range(0, len(trials), max(1, len(trials) // 5)):
        out.append(text((x(trial), HEIGHT - 28), str(trial), "middle"))
    for trial, value in enumerate(trials):
        if value is not None:
            out.append(f'<circle cx="{x(trial):.1f}" cy="{y(value):.1f}" r="3" fill="{TRIAL}"/>')
    path, best = "", None
    for trial, value in enumerate(trials):
        if value is not None and (best is None or (value < best if runtime else value > best)):
            path += f"M{x(trial):.1f} {y(value):.1f}" if best is None else ""
            path += f"H{x(trial):.1f}V{y(value):.1f}"
            best = value
    assert best is not None
    out.append(f'<path d="{path}H{LEFT + across}" fill="none" stroke="{BEST}" stroke-width="2.5"/>')
    lines.append(("tuned", best))
    labels = sorted((y(value), name, value) for name, value in lines)
    last = -1e9
    for level, name, value in labels:
        place = max(level + 4, last + 15)  # labels do not overlap
        last = place
        colour = BEST if name == "tuned" else GREY
        if name != "tuned":
            out.append(
                f'<path d="M{LEFT} {level:.1f}h{across}" stroke="{GREY}" stroke-dasharray="5 4"/>'
            )
        weight = ' font-weight="600"' if name == "tuned" else ""
        label = f"{name} {value:.0f}" if value >= 100 else f"{name} {value:.3g}"
        out.append(text((LEFT + across + 8, place), label, colour=colour, more=weight))
    return "\n".join([*out, "</svg>"]) + "\n"
