# SPDX-License-Identifier: MIT
"""Pictures of a workload's memory accesses.

Three PNGs: a heat map of accesses over pages and time, the hotness curve (which share of the
accesses the hottest pages get), and a table of the allocation sites. Everything is shown at full
scale; time is nominal, as if all memory were fast and idle.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.report.characteristics import PAGE_BYTES, Figures
from tuner.run.settings import Setting
from tuner.text import clock, gib, percent, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS, COLUMNS = 512, 400  # of the heat map; about what a picture has in pixels
MOST_SITES = 40  # rows of the table as a picture
MARKS = (0.01, 0.1, 0.2)  # shares of pages that are marked on the hotness curve
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#555555")


@dataclass(frozen=True)
class Subject:
    """A stream, and what was found in it."""

    setting: Setting
    path: Path
    info: Mapping[str, Any]
    found: Mapping[str, Any]
    figures: Figures

    @property
    def label(self) -> str:
        return f"{self.setting.workload.name} ({self.setting.scenario.input})"

    @property
    def page_gib(self) -> float:
        """What a simulated page stands for."""
        return float(PAGE_BYTES * self.info["scale"] / (1 << 30))

    @property
    def timed_minutes(self) -> float:
        return float(sum(to - start for start, to in self.found["timed"]) / 60)

    @property
    def how_recorded(self) -> str:
        """How the stream was made, for the reader of a picture."""
        scale = self.info["scale"]
        pages = f"{self.found['pages']:,} pages in all"
        if scale != 1:
            pages += f", each standing for {scale:g}"
        sampling = self.setting.sampling
        return f"{pages}; {sampling.describe()}" if sampling else pages


# --- Allocation sites -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """Full scale; minutes since the beginning of the stream. `classes` are shares by stream class;
    `heat` is accesses per page and minute of the timed part."""

    site: str
    objects: int
    freed: int
    peak_gib: float
    gib: float
    pages: int
    first_touch: float | None
    last_touch: float | None
    last_free: float | None
    accesses: float
    set_up_accesses: float
    share: float
    heat: float
    store_share: float
    classes: dict[str, float]


def sites(subject: Subject) -> Iterator[Site]:
    """Those with accesses first, the most accessed on top."""
    scale, minutes = subject.info["scale"], subject.timed_minutes
    names = [entry["name"] for entry in subject.info["classes"]]
    total = subject.found["loads"] + subject.found["stores"]

    def when(seconds: float) -> float | None:
        return None if seconds < 0 else seconds / 60

    def accesses(site: Mapping[str, Any]) -> int:
        return sum(loads + stores for loads, stores in site["accesses"])

    for site in sorted(subject.found["sites"], key=lambda s: (-accesses(s), -s["peak_pages"])):
        own = accesses(site)
        yield Site(
            site=site["site"],
            objects=site["objects"],
            freed=site["freed"],
            peak_gib=site["peak_pages"] * subject.page_gib,
            gib=site["pages"] * subject.page_gib,
            pages=site["pages"],
            first_touch=when(site["first_touch"]),
            last_touch=when(site["last_touch"]),
            last_free=when(site["last_free"]),
            accesses=own * scale,
            set_up_accesses=site["set_up_accesses"] * scale,
            share=own / total if total else 0.0,
            heat=own / site["pages"] / minutes if site["pages"] and minutes else 0.0,
            store_share=sum(stores for _, stores in site["accesses"]) / own if own else 0.0,
            classes={
                name: (loads + stores) / own
                for name, (loads, stores) in zip(names, site["accesses"], strict=True)
                if loads + stores
            },
        )


COLUMN_NAMES = (
    *("site", ">objects", ">freed", ">GiB", ">pages", ">first", ">last", ">accesses", ">share"),
    *(">per page, min", ">stores"),
)


def row(site: Site) -> tuple[str, ...]:
    def when(minutes: float | None) -> str:
        return "-" if minutes is None else clock(minutes * 60)

    return (
        site.site,
        str(site.objects),
        str(site.freed) if site.freed else "-",
        gib(site.peak_gib),
        f"{site.pages:,}",
        when(site.first_touch),
        when(site.last_touch),
        si(site.accesses),
        percent(site.share),
        si(site.heat),
        percent(site.store_share, 0),
    )


# --- Pictures -------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Figure:
    from tuner.report.drawing import Figure, FigureCanvasAgg

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def heat_map(subject: Subject) -> Figure:
    from tuner.report.drawing import LogNorm, colormaps

    heat = subject.found["heat"]
    edges = np.array(heat["edges"])
    unit, seconds = ("minutes", 60.0) if edges[-1] > 120 else ("seconds", 1.0)
    minutes = np.diff(edges) / 60
    edges /= seconds
    shape = (len(edges) - 1, heat["rows"])
    accesses = np.frombuffer(heat["accesses"], np.uint64).reshape(shape).T.astype(float)
    pages = np.frombuffer(heat["pages"], np.uint32).reshape(shape).T.astype(float)
    timed = subject.found["timed"]
    figure = _figure(11, 7)
    axes = figure.add_subplot()
    height = heat["rows"] * heat["pages_per_row"] * subject.page_gib
    axes.set_ylim(0, height)
    axes.set_xlim(0, edges[-1] if edges[-1] > 0 else 1)
    axes.set_facecolor("#dddddd")
    if accesses.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            value = accesses / pages / minutes
        # A page that was freed within a column is still there; one of a foreign stream may have
        # accesses without ever having been touched.
        value = np.ma.masked_invalid(np.where(pages > 0, value, np.nan))
        top = float(value.max())
        least = max(float(value[value > 0].min()), top / 1e5)
        mesh = axes.pcolorfast(
            edges,
            np.linspace(0, height, heat["rows"] + 1),
            value.clip(least / 2),  # no access is below the scale, which a logarithm of 0 is not
            cmap=colormaps["inferno"].with_extremes(under="black", bad="#dddddd"),
            norm=LogNorm(least, top if top > least else least * 10),
        )
        bar = figure.colorbar(mesh, ax=axes, pad=0.01, extend="min", shrink=0.8)
        bar.set_label("accesses per page and minute (black: none; grey: no page there)")
    _mark_set_up(axes, [(start / seconds, stop / seconds) for start, stop in timed], edges[-1])
    _mark_sites(axes, subject)
    axes.set_xlabel(f"{unit} (nominal: as if all memory were fast)")
    axes.set_ylabel("memory in order of its first allocation, GiB")
    axes.set_title(f"{subject.label}: where and when memory is accessed", loc="left", pad=22)
    axes.text(0, 1.012, _caption(subject), transform=axes.transAxes, fontsize=8, color="#444444")
    return figure


def _caption(subject: Subject) -> str:
    row = subject.found["heat"]["pages_per_row"]
    return (
        f"{subject.figures.footprint_gib:.3g} GiB in use at most; {subject.how_recorded}; "
        f"a row is {row} ({gib(row * subject.page_gib)} GiB)"
    )


def _mark_set_up(axes: Axes, timed: Sequence[tuple[float, float]], end: float) -> None:
    """Shades set-up, which is not timed."""
    untimed, at = [], 0.0
    for start, stop in timed:
        untimed.append((at, start))
        at = stop
    untimed.append((at, end))
    for start, stop in untimed:
        if stop - start <= end * 1e-6:
            continue
        axes.axvspan(start, stop, facecolor="none", edgecolor="white", hatch="//", alpha=0.35, lw=0)
        axes.axvline(stop if start == 0 else start, color="white", lw=0.8, ls="--")
        if stop - start > end * 0.06:
            axes.text(
                (start + stop) / 2,
                0.985,
                "set-up",
                color="white",
                ha="center",
                va="top",
                fontsize=8,
                transform=axes.get_xaxis_transform(),
                bbox={"facecolor": "black", "alpha": 0.55, "pad": 1.5, "lw": 0},
            )


def _mark_sites(axes: Axes, subject: Subject) -> None:
    """Lines between allocation sites, and their names where there is room."""
    top = axes.get_ylim()[1]
    for site, first, pages in subject.found["extents"]:
        start, stop = first * subject.page_gib, (first + pages) * subject.page_gib
        if stop - start < top * 0.01:
            continue
        if start > 0:
            axes.axhline(start, color="white", lw=0.5, alpha=0.7)
        if stop - start >= top * 0.028:
            axes.annotate(
                _short(site),
                (0.006, (start + stop) / 2),
                xycoords=axes.get_yaxis_transform(),
                fontsize=7.5,
                color="white",
                va="center",
                bbox={"facecolor": "black", "alpha": 0.55, "pad": 1.5, "lw": 0},
                parse_math=False,  # names of sites may have dollar signs
            )


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most // 2 - 1] + "…" + text[-most // 2 :]


def hotness(subjects: Sequence[Subject]) -> Figure:
    """Linear and logarithmic, so that both the whole and the hottest thousandth can be read."""
    figure = _figure(11, 5.2)
    linear, log = figure.subplots(1, 2, sharey=True)
    for subject, colour in zip(subjects, _cycle(COLOURS), strict=False):
        curve = np.array([(0.0, 0.0), *subject.found["curve"]])
        label = f"{subject.label}, {subject.figures.footprint_gib:.3g} GiB"
        linear.plot(curve[:, 0] * 100, curve[:, 1] * 100, color=colour, lw=1.8, label=label)
        log.plot(curve[1:, 0] * 100, curve[1:, 1] * 100, color=colour, lw=1.8)
        hottest = dict(subject.found["hottest"])
        for share in MARKS if len(curve) > 1 else ():
            for axes in (linear, log):
                axes.plot(share * 100, hottest[share] * 100, "o", color=colour, ms=4.5)
            if len(subjects) == 1:
                log.annotate(
                    f"{share:.0%}: {percent(hottest[share], 0)}",
                    (share * 100, hottest[share] * 100),
                    textcoords="offset points",
                    xytext=(-6, 5),
                    ha="right",
                    fontsize=9,
                )
    even = np.array([1e-3, *np.geomspace(2e-3, 100, 60)])
    for axes in (linear, log):
        axes.plot(even, even, color="#999999", lw=1, ls=":", label="all pages alike")
        axes.grid(alpha=0.25)
        axes.set_ylim(0, 102)
    linear.set_xlim(0, 100)
    log.set_xscale("log")
    smallest = min((s.found["curve"][0][0] * 100 for s in subjects if s.found["curve"]), default=1)
    log.set_xlim(max(1e-3, smallest), 100)
    log.xaxis.set_major_formatter("{x:g}")
    linear.set_xlabel("share of pages, hottest first, %")
    log.set_xlabel("share of pages, hottest first, % (logarithmic)")
    linear.set_ylabel("share of accesses, %")
    linear.legend(loc="lower right", fontsize=8)
    figure.suptitle(
        ("Hotness" if len(subjects) > 1 else f"{subjects[0].label}: hotness")
        + " over the whole timed part (set-up does not count)",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    return figure


def _cycle(colours: Sequence[str]) -> Iterator[str]:
    while True:
        yield from colours


def site_table(subject: Subject, sites: Sequence[Site]) -> Figure:
    """The table, with the mix of stream classes as a bar."""
    shown = sites[:MOST_SITES]
    names = [entry["name"] for entry in subject.info["classes"]]
    colours = dict(zip(names, _cycle(COLOURS), strict=False))
    rows = [[_short(cells[0]), *cells[1:]] for cells in map(row, shown)]
    titles = [name.removeprefix(">") for name in COLUMN_NAMES]
    widths = [max(map(len, column)) + 2.5 for column in zip(titles, *rows, strict=True)]
    bar = 16.0
    total = sum(widths) + bar
    lines = len(shown) + 1 + (len(sites) > len(shown))
    figure = _figure(max(9.0, total * 0.085), 0.26 * lines + 1.15)
    axes = figure.add_subplot()
    axes.set_xlim(0, total)
    axes.set_ylim(lines - 0.5, -0.6)
    axes.axis("off")
    ends = list(np.cumsum(widths))
    for column, title in enumerate([*titles, "classes"]):
        _cell(axes, column, ends, 0, title, weight="bold")
    axes.axhline(0.5, color="#333333", lw=0.8)
    for line, (cells, site) in enumerate(zip(rows, shown, strict=True), 1):
        if line % 2 == 0:
            axes.axhspan(line - 0.5, line + 0.5, color="#f2f2f2", lw=0)
        for column, text in enumerate(cells):
            _cell(axes, column, ends, line, text)
        at = ends[-1] + 1.0
        for name, share in site.classes.items():
            axes.barh(line, share * (bar - 1.5), 0.6, at, color=colours[name])
            at += share * (bar - 1.5)
    if len(sites) > len(shown):
        _cell(axes, 0, ends, lines - 1, more(sites), color="#555555")
    from tuner.report.drawing import Patch

    used = [name for name in names if any(name in site.classes for site in shown)]
    figure.legend(
        handles=[Patch(color=colours[name], label=name) for name in used],
        loc="outside lower left",
        ncols=max(1, min(len(used), 6)),
        fontsize=8,
        frameon=False,
    )
    axes.set_title(
        f"{subject.label}: allocation sites (full scale; pages of the miniature; "
        "first and last touch in min:s)",
        loc="left",
        fontsize=11,
    )
    return figure


def _cell(
    axes: Axes, column: int, ends: Sequence[float], line: int, text: str, **style: Any
) -> None:
    """Sites and classes to the left, numbers to the right."""
    left = column in (0, len(ends))
    x = (ends[column - 1] + 1 if column else 0.5) if left else ends[column] - 0.5
    style |= {"ha": "left" if left else "right", "va": "center", "fontsize": 8.5}
    axes.text(x, line, text, parse_math=False, **style)


def more(sites: Sequence[Site]) -> str:
    """What a table leaves out, if it does."""
    rest = sites[MOST_SITES:]
    if not rest:
        return ""
    part = percent(sum(site.share for site in rest))
    return f"and {len(rest):,} more sites, {part} of the accesses"
