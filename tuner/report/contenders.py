# SPDX-License-Identifier: MIT
"""Pictures of a verdict: what was compared, and what it is worth elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.objective import OBJECTIVES
from tuner.report import svg
from tuner.report.conclusion import UNTUNED, rows
from tuner.report.svg import BEST, BOUND, DEFAULT, INK, MUTED, OTHER, Picture, better
from tuner.study.contender import Contender, Difference, Kind, interval, pairs
from tuner.study.log import StudyData
from tuner.study.verdict import Verdict, chosen
from tuner.text import change, page_size, quantity


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
    base = "the default" if any(row.name == "default" for row in found) else None
    return _rows(found, verdict.objective, base, DEFAULT)


def policies(verdict: Verdict) -> Picture | None:
    """As `standing`, of several policies' studies: over leaving tiering off, if that ran."""
    objective = OBJECTIVES[verdict.objective]
    off = verdict.contender(Kind.off)
    base = None if off is None else off.mean
    advised = chosen(verdict)
    found = []
    for contender in verdict.contenders:
        if contender.mean is None:
            continue
        seeds, half_width = _spread(contender, off)
        told = quantity(contender.mean, objective.unit)
        colours = {Kind.tuned: BEST, Kind.untuned: DEFAULT, Kind.off: OTHER}
        pages = (
            ""
            if off is None or contender.page_bytes == off.page_bytes
            else (f", {page_size(contender.page_bytes)} pages")
        )
        found.append(
            _Row(
                name=contender.name + pages + (" (advised)" if contender == advised else ""),
                value=contender.mean if base is None else 100 * (contender.mean / base - 1),
                half_width=half_width,
                seeds=seeds,
                words=told
                if base is None or contender is off
                else f"{told}  {change(contender.mean / base - 1)}",
                colour=colours[contender.kind],
                bound=False,
            )
        )
    found.sort(key=lambda row: row.value, reverse=objective.higher_is_better)
    return _rows(found, verdict.objective, None if off is None else off.name, OTHER)


def _rows(found: Sequence[_Row], name: str, base: str | None, colour: str) -> Picture | None:
    """A line for each, as the difference from `base` in percent if there is one."""
    if not found:
        return None
    objective = OBJECTIVES[name]
    relative = base is not None
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
        axes.axvline(0, color=colour, lw=1, zorder=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
    axes.set_yticks(range(len(found)), [row.name for row in found[::-1]])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.margins(x=0.08)
    axes.grid(axis="y", visible=False)
    unit = objective.unit if base is None else f"difference from {base}"
    axes.set_xlabel(f"{objective.name}: {unit}; {better(objective)}")
    return Picture("standing", "what was compared, with intervals", figure, {})


def _compared(study: StudyData, verdict: Verdict) -> list[_Row]:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    contenders = {_label(each, study): each for each in verdict.contenders}
    default = contenders.get("default")
    base = None if default is None else default.mean
    advised = chosen(verdict)
    found = []
    for name, value, words, _ in rows(study, verdict):
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


def _label(contender: Contender, study: StudyData) -> str:
    """Its name in `rows`."""
    request = study.header.request
    if contender.kind is Kind.off and contender.page_bytes != request.scenario.page_bytes:
        return f"{contender.name} with {page_size(contender.page_bytes)} pages"
    if contender.kind is Kind.off or contender.policy != request.policy.name:
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
        values = [100 * (value / other - 1) for value, other in pairs(contender, default)]
    return values, interval(values)[1] if values and contender is not default else None


def elsewhere(study: StudyData, verdict: Verdict) -> Picture | None:
    """What the best configuration is worth with other amounts of fast memory."""
    home = study.header.request.scenario.ratio
    places = [(f"{home} (here)", verdict.gain, verdict.over_first_touch)]
    places += [(each.where, each.gain, each.over_first_touch) for each in verdict.elsewhere]
    if not verdict.elsewhere:
        return None
    title = "what it is worth with other amounts of fast memory"
    return gains(places, "elsewhere", title)


def gains(
    places: Sequence[tuple[str, Difference | None, Difference | None]], name: str, title: str
) -> Picture | None:
    """The gain of one configuration at several places, over the default and over no tiering."""
    if all(gain is None and off is None for _, gain, off in places):
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
    axes.locator_params(axis="x", nbins=6)  # whose labels do not touch
    axes.xaxis.set_major_formatter(lambda value, _: change(value / 100).replace(".0", ""))
    axes.set_xlabel("gain of the best configuration")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=2)
    return Picture(name, title, figure, {})
