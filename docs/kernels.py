# SPDX-License-Identifier: MIT
"""What a real kernel does in the emulated machine, beside the simulator."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sources import ROOT, results

from tuner import ranking
from tuner.pages import Table
from tuner.study.verified import COLUMNS, Verified, sentences
from tuner.study.verified import rows as rows_of

SEEN = ("gups", "redis", "silo", "btree", "liblinear", "xsbench")
"""Workloads by whose cells the models were mended; the others were run once that was done."""


def emulated_cells(seen: bool) -> dict[tuple[str, str], dict[str, list[dict[str, Any]]]]:
    """Cells by workload and ratio, then by policy, `first-touch` first: one for each layout. Of
    the workloads in SEEN, or of the others."""
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for cell in results("emulated.json")["cells"]:
        if (cell["workload"] in SEEN) != seen:
            continue
        cells = found.setdefault((cell["workload"], cell["ratio"]), {})
        cells.setdefault(cell["policy"], []).append(cell)
    return {
        place: dict(sorted(cells.items(), key=lambda each: (each[0] != "first-touch", each[0])))
        for place, cells in found.items()
    }


def relative_times(
    cells: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, tuple[list[float], float]]:
    """Of each policy the run time as a share of first-touch's on the same layout: those of the
    machine's layouts, and the mean of the simulator's."""
    still = {cell["layout"]: cell["figures"]["run time, s"] for cell in cells["first-touch"]}
    found = {}
    for policy, each in cells.items():
        times = [(cell["figures"]["run time, s"], still[cell["layout"]]) for cell in each]
        real = [one[0] / other[0] for one, other in times]
        found[policy] = real, statistics.fmean(one[1] / other[1] for one, other in times)
    return found


def emulated() -> Table:
    return table_of(emulated_cells(seen=True))


def emulated_others() -> Table:
    return table_of(emulated_cells(seen=False))


def table_of(places: Mapping[tuple[str, str], Mapping[str, Sequence[dict[str, Any]]]]) -> Table:
    def means(cells: Sequence[dict[str, Any]], what: str) -> list[str]:
        pairs = [cell["figures"][what] for cell in cells]
        return [
            "-" if None in figures else f"{statistics.fmean(figures):,.0f}"
            for figures in zip(*pairs, strict=True)
        ]

    rows = []
    for (workload, ratio), cells in places.items():
        times = relative_times(cells)
        for policy, each in cells.items():
            real, simulated = times[policy]
            seconds = statistics.fmean(cell["figures"]["run time, s"][0] for cell in each)
            spread = "" if len(real) == 1 else f"{min(real):.3f} to {max(real):.3f}"
            rows.append(
                (
                    f"`{workload}` {ratio}",
                    f"`{policy}`",
                    str(len(real)),
                    f"{seconds:.2f}",
                    f"{statistics.fmean(real):.3f}",
                    spread,
                    f"{simulated:.3f}",
                    *means(each, "misses served by the fast tier, %"),
                    *means(each, "migrated pages in all"),
                )
            )
    head = ("workload", "policy", "layouts", "run time, s", "to first-touch", "of which")
    return ((*head, "simulated", "fast hits, %", "simulated", "pages moved", "simulated"), rows)


def verifications() -> Iterator[tuple[str, Verified]]:
    for path in sorted((ROOT / "results/verified").glob("*.json")):
        yield path.stem, Verified.model_validate_json(path.read_text())


def verified() -> Table:
    head = ("study", *(name.lstrip(">") for name in COLUMNS))
    rows = [(f"`{name}`", *row) for name, found in verifications() for row in rows_of(found)]
    return head, rows


def verified_sentences() -> dict[str, Any]:
    said = {}
    for name, found in verifications():
        first, second, *others = sentences(found)
        tau = next((line for line in others if line.startswith("Kendall")), "")
        said[name] = f"{first[0].lower()}{first[1:]} {second} {tau}".rstrip()
    return {"studies": said}


def emulated_costs() -> Table:
    def shown(figure: float | None, unit: str) -> str:
        return "" if figure is None else f"{figure:.3g} {unit}"

    return (
        ("what", "measured", "expected", "from"),
        [
            (
                row["what"],
                shown(row["measured"], row["unit"]),
                shown(row["expected"], row["unit"]),
                row["source"],
            )
            for row in results("emulated.json")["costs"]
        ],
    )


def emulated_sentence() -> dict[str, Any]:
    return agreement(emulated_cells(seen=True).values())


def emulated_others_sentence() -> dict[str, Any]:
    return agreement(emulated_cells(seen=False).values())


MOVES = 1000
"""Migrated pages from which on a cell's number of them is compared."""


def agreement(places: Iterable[Mapping[str, Sequence[dict[str, Any]]]]) -> dict[str, Any]:
    """The two figures that lead, the order of policies and errors of run time, beside what layouts
    change in the machine itself; and how many cells move about as many pages."""
    pairs, errors, spreads, moved, reversed_far, far = [], [], [], [], 0, 0
    for cells in places:
        relative = relative_times(cells)
        times = {name: (statistics.fmean(real), said) for name, (real, said) in relative.items()}
        errors += [abs(a - b) * 100 for name, (a, b) in times.items() if name != "first-touch"]
        spreads += [(max(real) - min(real)) * 100 for real, _ in relative.values() if len(real) > 1]
        for each in cells.values():
            figures = [cell["figures"]["migrated pages in all"] for cell in each]
            real, said = (statistics.fmean(side) for side in zip(*figures, strict=True))
            if max(real, said) >= MOVES:
                moved.append(abs(said - real) <= 0.3 * real)
        for one, two in itertools.combinations(times.values(), 2):
            real = ranking.order(one[0], two[0], ranking.NOISE)
            said = ranking.order(one[1], two[1], ranking.NOISE)
            pairs.append((real, said))
            if abs(one[0] - two[0]) > 0.1 * min(one[0], two[0]):
                far += 1
                reversed_far += real * said < 0
    return {
        "tau": ranking.tau(pairs),
        "pairs": len(pairs),
        "reversed_far": reversed_far,
        "far": far,
        "within": sum(error <= 10 for error in errors),
        "cells": len(errors),
        "largest": max(errors),
        "spread": max(spreads, default=None),
        "moving_alike": sum(moved),
        "moving": len(moved),
    }
