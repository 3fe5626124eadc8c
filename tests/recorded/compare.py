# SPDX-License-Identifier: MIT
"""Draws hotness curves side by side: native kernels against recordings of the real programs.

    python tests/recorded/compare.py --out hotness.png \
        liblinear,./liblinear.yaml@1.3: xgboost,./xgboost.yaml@1.5:4,./xgboost.yaml

Each argument is a panel: workloads as `tune workload show` takes them (W or W:INPUT), the one that
the others are compared with first. A kernel says which part of its run counts, a program does not:
@FROM:TO (nominal seconds, as in the heat map that `tune workload show` draws) takes a part. Prints
as JSON how far each curve is from the first: the largest difference in the share of accesses that
the same share of pages gets.
"""

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tuner import engine
from tuner.errors import UserError
from tuner.report import characteristics
from tuner.run import streams

COLUMNS = 200  # steps of time, at least, in which a part can be chosen
SHARES = (0.01, 0.1, 0.2, 0.5)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


@dataclass(frozen=True)
class Curve:
    """Share of accesses over share of pages, hottest first, from (0, 0) to (1, 1)."""

    label: str
    pages: NDArray[np.float64]
    accesses: NDArray[np.float64]
    count: int  # accesses, simulated
    mib: float  # of the pages, simulated

    def at(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(share, self.pages, self.accesses)


def curve(text: str) -> Curve:
    match = re.fullmatch(r"([^@]+)(?:@([\d.]*):([\d.]*))?", text)
    if not match:
        raise UserError(f"{text}: must be W, W:INPUT, or one of them with @FROM:TO")
    name, start, stop = match.groups()
    setting = characteristics.setting(*characteristics.split(name))
    path = streams.ensure(setting.stream(), note=lambda text: print(text, file=sys.stderr))
    label = f"{setting.workload.name} ({setting.scenario.input})"
    if start is None:
        return _timed(path, label)
    return _part(path, label, float(start or 0), float(stop or math.inf))


def _timed(path: Path, label: str) -> Curve:
    found = engine.characteristics(path)
    points = np.array([(0.0, 0.0), *found["curve"]])
    pages = found["timed_pages"]
    return Curve(label, points[:, 0], points[:, 1], found["loads"] + found["stores"], pages / 256)


def _part(path: Path, label: str, start: float, stop: float) -> Curve:
    """Of the accesses between two times, over all pages that were there then."""
    # A row for each page: there are never more rows than places for pages.
    heat = engine.characteristics(path, rows=1 << 32, columns=COLUMNS)["heat"]
    edges = np.array(heat["edges"])
    shape = (len(edges) - 1, heat["rows"])
    inside = (edges[:-1] >= start) & (edges[1:] <= stop)
    if not inside.any():
        raise UserError(f"{path}: nothing between {start:g} and {stop:g} of {edges[-1]:g} s")
    accesses = np.frombuffer(heat["accesses"], np.uint64).reshape(shape)[inside].sum(axis=0)
    there = np.frombuffer(heat["pages"], np.uint32).reshape(shape)[inside].max(axis=0) > 0
    hottest = np.sort(accesses[there | (accesses > 0)])[::-1].astype(float)
    till = f"{stop:g} s" if stop < edges[-1] else "the end"
    return Curve(
        f"{label}, {start:g} s to {till}",
        np.arange(len(hottest) + 1) / len(hottest),
        np.concatenate([[0.0], np.cumsum(hottest)]) / hottest.sum(),
        int(accesses.sum()),
        len(hottest) / 256,
    )


def distance(a: Curve, b: Curve) -> tuple[float, float]:
    """The largest vertical one, and the share of pages where it is."""
    shares = np.union1d(a.pages, b.pages)
    apart = np.abs(a.at(shares) - b.at(shares))
    return float(apart.max()), float(shares[apart.argmax()])


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws hotness curves side by side.")
    parser.add_argument("panels", nargs="+", metavar="W,W[@FROM:TO],...")
    parser.add_argument("--out", type=Path, required=True, metavar="PNG")
    args = parser.parse_args()
    figure = Figure(figsize=(4.6 * len(args.panels), 5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    rows = []
    all_axes = figure.subplots(1, len(args.panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(all_axes, args.panels, strict=True):
        curves = [curve(text) for text in panel.split(",")]
        for one, colour in zip(curves, COLOURS, strict=False):
            row = {"curve": one.label, "accesses": one.count, "simulated_mib": round(one.mib, 1)}
            row |= {f"{s:.0%}": round(float(one.at(np.array(s))), 3) for s in SHARES}
            label = one.label
            if one is not curves[0]:
                apart, where = distance(curves[0], one)
                ends = [c.at(np.array(where)) * 100 for c in (curves[0], one)]
                axes.vlines(where * 100, *ends, color=colour, lw=1, ls="--")
                row |= {"apart": round(apart, 3), "apart_at": round(where, 4)}
                label += f": {apart:.0%} apart"
            axes.plot(one.pages * 100, one.accesses * 100, color=colour, lw=1.8, label=label)
            rows.append(row)
        even = np.geomspace(0.1, 100, 60)
        axes.plot(even, even, color="#999999", lw=1, ls=":", label="all pages alike")
        axes.set_xscale("log")
        axes.set_xlim(0.1, 100)
        axes.set_ylim(0, 102)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("share of pages, hottest first, % (logarithmic)")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7.5, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    all_axes[0].set_ylabel("share of accesses, %")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Software": None})
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"compare.py: {error}")
