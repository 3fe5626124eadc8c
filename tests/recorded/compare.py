"""Draws the hotness curves of recorded programs beside those of native kernels: one panel a pair.

    python tests/recorded/compare.py --out hotness.png \
        './liblinear.yaml=liblinear' './redis.yaml@20:=./redis-uniform.yaml,redis'

A pair is RECORDED=NATIVE,...: workloads as `tune workload show` takes them, W or W:INPUT. A kernel
says which part of its run counts, a program does not: @FROM:TO (nominal seconds, as in the heat map
that `tune workload show` draws) takes a part of it, and the whole is drawn dotted beside it. Prints
as JSON how far the curves are apart: the largest difference in the share of accesses that the same
share of pages gets.
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

from tuner import characteristics, engine, streams
from tuner.errors import UserError

COLUMNS = 1000  # steps of time in which a part can be chosen
SHARES = (0.01, 0.1, 0.2, 0.5)
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")


@dataclass(frozen=True)
class Curve:
    """Share of accesses over share of pages, hottest first, from (0, 0) to (1, 1)."""

    label: str
    pages: NDArray[np.float64]
    accesses: NDArray[np.float64]
    count: float  # accesses
    mib: float  # of the pages, simulated

    def at(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(share, self.pages, self.accesses)


def curve(name: str) -> Curve:
    """Of the timed part of a stream."""
    path, label = _stream(name)
    found = engine.characteristics(path)
    points = np.array([(0.0, 0.0), *found["curve"]])
    pages = found["timed_pages"]
    return Curve(label, points[:, 0], points[:, 1], found["loads"] + found["stores"], pages / 256)


def part(name: str, start: float, stop: float) -> Curve:
    """Of the accesses between two times, over all pages that were there then."""
    path, label = _stream(name)
    pages = engine.characteristics(path)["pages"]
    heat = engine.characteristics(path, rows=1 << math.ceil(math.log2(pages + 1)), columns=COLUMNS)
    heat = heat["heat"]
    if heat["pages_per_row"] != 1:
        raise UserError(f"{name}: a row of the heat map is more than a page")
    edges = np.array(heat["edges"])
    shape = (len(edges) - 1, heat["rows"])
    inside = (edges[:-1] >= start) & (edges[1:] <= stop)
    if not inside.any():
        raise UserError(f"{name}: nothing between {start:g} and {stop:g} of {edges[-1]:g} s")
    accesses = np.frombuffer(heat["accesses"], np.uint64).reshape(shape)[inside].sum(axis=0)
    there = np.frombuffer(heat["pages"], np.uint32).reshape(shape)[inside].max(axis=0) > 0
    hottest = np.sort(accesses[there | (accesses > 0)])[::-1].astype(float)
    till = f"{stop:g}" if stop < edges[-1] else "the end"
    return Curve(
        f"{label}, {start:g} s to {till}",
        np.arange(len(hottest) + 1) / len(hottest),
        np.concatenate([[0.0], np.cumsum(hottest)]) / hottest.sum(),
        float(hottest.sum()),
        len(hottest) / 256,
    )


def distance(a: Curve, b: Curve) -> tuple[float, float]:
    """The largest vertical one, and the share of pages where it is."""
    shares = np.union1d(a.pages, b.pages)
    apart = np.abs(a.at(shares) - b.at(shares))
    return float(apart.max()), float(shares[apart.argmax()])


def _stream(name: str) -> tuple[Path, str]:
    setting = characteristics.setting(*characteristics.split(name))
    label = f"{setting.workload.name} ({setting.input})"
    return streams.ensure(setting.stream(), note=lambda text: print(text, file=sys.stderr)), label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="RECORDED[@FROM:TO]=NATIVE,...")
    parser.add_argument("--out", type=Path, required=True, metavar="PNG")
    args = parser.parse_args()
    figure = Figure(figsize=(4.6 * len(args.pairs), 4.9), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    rows = []
    panels = figure.subplots(1, len(args.pairs), sharey=True, squeeze=False)[0]
    for axes, pair in zip(panels, args.pairs, strict=True):
        match = re.fullmatch(r"([^@=]+)(?:@([\d.]*):([\d.]*))?=(.+)", pair)
        if not match:
            parser.error(f"{pair}: must be RECORDED=NATIVE,... or RECORDED@FROM:TO=NATIVE,...")
        recorded, start, stop, natives = match.groups()
        whole = curve(recorded)
        chosen = (
            whole if start is None else part(recorded, float(start or 0), float(stop or math.inf))
        )
        if chosen is not whole:
            axes.plot(whole.pages * 100, whole.accesses * 100, ":", color=COLOURS[0], lw=1.4)
            axes.plot([], [], ":", color=COLOURS[0], lw=1.4, label=f"{whole.label}, whole run")
        title = []
        for number, one in enumerate([chosen, *map(curve, natives.split(","))]):
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(one.pages * 100, one.accesses * 100, color=colour, lw=1.8, label=one.label)
            row = {"curve": one.label, "accesses": one.count, "simulated_mib": round(one.mib, 1)}
            row |= {f"{s:.0%}": round(float(one.at(np.array(s))), 3) for s in SHARES}
            if number:
                apart, where = distance(chosen, one)
                axes.vlines(where * 100, *(c.at(np.array(where)) * 100 for c in (chosen, one)),
                            color=colour, lw=1, ls="--")  # fmt: skip
                row |= {"apart": round(apart, 3), "apart_at": round(where, 4)}
                title.append(f"{apart:.0%}")
            rows.append(row)
        axes.set_title(f"at most {' and '.join(title)} apart", fontsize=10, loc="left")
        axes.set_xscale("log")
        axes.set_xlim(0.1, 100)
        axes.set_ylim(0, 102)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("share of pages, hottest first, % (logarithmic)")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7.5, loc="upper left")
    panels[0].set_ylabel("share of accesses, %")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Software": None})
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"compare.py: {error}")
