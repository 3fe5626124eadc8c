# SPDX-License-Identifier: MIT
"""compare.csv, compare.json and compare.md."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tuner import engine, pages, ranking, text
from tuner.compare.cells import FASTEST
from tuner.compare.earlier import conditions
from tuner.compare.figures import METRICS, Figure, Figures, Line, Measured
from tuner.compare.tables import bests, costs, gains, many, speeds, summary
from tuner.experiment.checks import BOUND
from tuner.experiment.loop import everything_fits
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status
from tuner.scenario import EMULATED
from tuner.text import page_size

T = TypeVar("T")

# --- Notes ----------------------------------------------------------------------------------------


def notes(figures: Figures) -> list[str]:
    """How to read the figures, and what is missing."""
    return [*_reading(figures), *_warnings(figures), *_missing(figures)]


def _reading(figures: Figures) -> Iterator[str]:
    comparison = figures.comparison
    objectives = sorted({m.scenario.objective for m in figures.measured})
    yield (
        f"performance ({', '.join(objectives)}) over {comparison.base.policy} with "
        f"{page_size(comparison.base.page_bytes)} pages; higher is better"
    )
    emulated = any(cell.setting.scenario.substrate == EMULATED for cell in comparison.cells)
    seeds, chance = ("layouts of memory", "layout") if emulated else ("sampling seeds", "sampling")
    if emulated:
        yield "measured on the emulated machine, whose kernel is Linux: docs/emulated.md"
    if comparison.seeds == 1:
        yield f"one run each, so that nothing tells how far chance in {chance} reaches"
    else:
        yield (
            f"means over {comparison.seeds} {seeds}; ± is half of a 95 % interval, about "
            f"chance in {chance} alone; references sample nothing and run once"
        )
    yield from _all_fast(figures)
    if any(row.policy == BOUND for row in comparison.bounds):
        yield (
            f"offline-optimal and {BOUND} are oracles: the first plays the best schedule of moves "
            "that it finds, the second places the hottest pages of the whole run once, which a "
            "policy that follows changes may beat"
        )
    sizes = {row.page_bytes for row in comparison.rows} - {comparison.base.page_bytes}
    for size in sorted(sizes):
        names = [
            row.name for row in comparison.rows if row.page_bytes == size and not row.reference
        ]
        yield (
            f"{'; '.join(names)}: pages of {page_size(size)}, over the same base; the references "
            f"with {page_size(size)} pages stand below it"
        )
    if comparison.budget:
        yield (
            f"tuned: the best of {comparison.budget} trials for each policy and workload at "
            f"{comparison.tune_ratio}, searched on a seed that is not among the {comparison.seeds}"
        )
    if many(figures):
        yield (
            "of the best: geometric mean of performance over that of the best policy of each "
            "workload, default or tuned; worst: the least performance over the base, and where"
        )
    hours = sum(found.run_seconds for found in figures.measured) / 3600
    if hours >= 0.1:
        yield f"all runs, one after the other, took {hours:.1f} h"
    if any(m.scenario.start != "fast" for m in figures.measured):
        yield "policies start with all pages in the slow tier, references in the fast one"
    tie = f"=: within {100 * ranking.NOISE:g} %"
    for ratio in comparison.ratios:
        for tuned in (False, True):
            if len(figures.ranked(ratio, tuned=tuned)) > 1:
                order = figures.order(ratio, tuned=tuned)
                yield f"order at {ratio}{', tuned' if tuned else ''}: {order} ({tie})"
        if (tau := figures.tau(ratio)) is not None:
            yield f"order at {ratio}, defaults against tuned: Kendall's tau {tau:.2f}"


MOST_PLACES = 3
"""That are named of a longer list."""


def _all_fast(figures: Figures) -> Iterator[str]:
    """Whether it is an upper bound: both tiers together have more bandwidth than the fast one."""
    ahead: list[str] = []
    for ratio in figures.comparison.ratios:
        lines = figures.table(ratio)
        bounds = {line.row.page_bytes: line.figures for line in lines if line.row.policy == FASTEST}
        if not bounds:
            return
        ahead += [
            f"{line.row.name} on {workload} at {ratio}"
            for line in lines
            for workload, bound in bounds.get(line.row.page_bytes, {}).items()
            if bound
            and (found := line.figures[workload])
            and ranking.order(found.value, bound.value, ranking.NOISE) > 0
        ]
    if not ahead:
        yield f"{FASTEST} has everything in fast memory, an upper bound: nothing is ahead of it"
        return
    more = f" and {len(ahead) - MOST_PLACES} more" if len(ahead) > MOST_PLACES else ""
    yield (
        f"{FASTEST} has everything in fast memory and is no upper bound here; ahead of it: "
        f"{'; '.join(ahead[:MOST_PLACES])}{more}"
    )


def _warnings(figures: Figures) -> Iterator[str]:
    settings = {cell.workload: cell.setting for cell in figures.comparison.cells}
    specs = {name: one.workload.inputs[one.scenario.input] for name, one in settings.items()}
    if coarse := [name for name, spec in specs.items() if spec.coarse]:
        yield f"{', '.join(coarse)}: smoke input, whose figures mean little"
    for name, spec in specs.items():
        if spec.sampling:
            yield f"{name} was {spec.sampling.describe()}"
    fits = [everything_fits(cell.setting) for cell in figures.comparison.cells]
    yield from dict.fromkeys(advice for advice in fits if advice)


def _missing(figures: Figures) -> Iterator[str]:
    """What did not run, in one line for each reason."""
    alike: dict[tuple[str, str], list[Measured]] = {}
    for found in figures.measured:
        if found.status is not Status.success:
            kind = NUMBER.sub("#", _reason(found))
            alike.setdefault((found.outcome, kind), []).append(found)
    for (outcome, _), cells in alike.items():
        yield f"{outcome}: {_places(cells)}: {_common([_reason(cell) for cell in cells])}"
    workloads = figures.comparison.workloads
    if alike and len(workloads) > 1:
        yield (
            f"a mean '(of N)' leaves out the workloads on which the row did not run: it is not to "
            f"be compared with those of all {len(workloads)}, and has no place in the order"
        )


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _reason(found: Measured) -> str:
    """Without advice, which is for one run."""
    first, *_ = found.reason.splitlines() or ["no reason is known"]
    return first.partition(". ")[0]


def _common(reasons: Sequence[str]) -> str:
    """Reasons that differ in nothing but numbers as one, with the range of each number."""
    numbers = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    ranges = []
    for found in numbers:
        least, most = min(found, key=float), max(found, key=float)
        ranges.append(least if least == most else f"{least} to {most}")
    return NUMBER.sub(lambda _: ranges.pop(0), reasons[0])


def _places(cells: Sequence[Measured]) -> str:
    """`arms; hemem on bfs, tc at 1:4, 1:8 and on drift at 1:4`"""
    parts = []
    rows = _together((cell.row.name, (cell.workload, cell.ratio)) for cell in cells)
    for places, names in rows.items():
        workloads = _together((ratio, workload) for workload, ratio in places)
        where = (f"{', '.join(these)} at {', '.join(at)}" for these, at in workloads.items())
        parts.append(f"{'; '.join(names)} on {' and '.join(where)}")
    return "; ".join(parts)


def _together(pairs: Iterable[tuple[str, T]]) -> dict[tuple[T, ...], list[str]]:
    """The keys that have the same values, by these."""
    values: dict[str, list[T]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    keys: dict[tuple[T, ...], list[str]] = {}
    for key, found in values.items():
        keys.setdefault(tuple(found), []).append(key)
    return keys


# --- Files ----------------------------------------------------------------------------------------


def csv_text(figures: Figures) -> str:
    """One row for each run; one for a cell that has none."""
    file = io.StringIO()
    fixed = (
        *("workload", "input", "machine", "ratio", "policy", "page_bytes", "tuned", "scale"),
        *("window", "start", "status", "reason", "seed"),
        *("objective_name", "unit", "objective", "performance"),
    )
    writer = csv.DictWriter(file, (*fixed, *METRICS), lineterminator="\n")
    writer.writeheader()
    for found in figures.measured:
        scenario = found.scenario
        cell = {name: getattr(scenario, name) for name in ("input", "machine", "ratio", "scale")}
        cell |= {name: getattr(scenario, name) for name in ("window", "start", "page_bytes")}
        cell |= {
            "workload": found.workload.partition(":")[0],
            "policy": found.row.policy,
            "tuned": str(found.row.tuned).lower(),
            "status": found.outcome,
            "reason": " ".join(found.reason.split()),
            "objective_name": scenario.objective,
            "unit": OBJECTIVES[scenario.objective].unit,
        }
        relative = figures.relative(found)
        for number, seed in enumerate(found.seeds):
            writer.writerow(
                cell
                | {"seed": seed, "objective": found.objectives[number]}
                | {"performance": relative[number] if relative else ""}
                | dict(found.metrics[number])
            )
        if not found.seeds:
            writer.writerow(cell)
    return file.getvalue()


def content(figures: Figures) -> dict[str, Any]:
    """What compare.json holds."""
    comparison = figures.comparison
    return {
        "name": comparison.name,
        "engine_version": engine.version(),
        "engine_build": engine.results_id(),
        "workloads": comparison.workloads,
        "ratios": comparison.ratios,
        "seeds": comparison.seeds,
        "base": comparison.base.model_dump(),
        "tuned": comparison.searches,
        "notes": notes(figures),
        "tables": [
            {
                "ratio": ratio,
                "order": [row.model_dump() for row in figures.ranked(ratio, tuned=False)],
                "performance": [_line(line) for line in figures.table(ratio)],
                "gain": [_line(line) for line in figures.gains(ratio)],
                "best": {
                    kind: {name: line.row.model_dump() for name, line in found.items()}
                    for kind, found in (
                        ("default", figures.best(ratio, tuned=False)),
                        ("tuned", figures.best(ratio, tuned=True)),
                    )
                },
            }
            for ratio in comparison.ratios
        ],
        "cells": [_cell(found) for found in figures.measured],
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        **line.row.model_dump(),
        "workloads": {name: _figure(found) for name, found in line.figures.items()},
        "geometric_mean": _figure(line.mean),
    }


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    found = {"value": figure.value, "half_width": figure.half_width}
    return found | {"workloads": figure.workloads}


def _cell(found: Measured) -> dict[str, Any]:
    names = found.metrics[0] if found.metrics else {}
    return {
        **conditions(found.scenario),
        "workload": found.workload,
        "tuned": found.row.tuned,
        "status": found.outcome,
        "reason": found.reason,
        "seeds": list(found.seeds),
        "objectives": list(found.objectives),
        "metrics": {name: [run[name] for run in found.metrics] for name in names},
        "knobs": dict(found.knobs or {}),
        "run_seconds": round(found.run_seconds, 2),
        "engine_build": found.build,
    }


def json_text(figures: Figures) -> str:
    """One line for each cell, so that an update changes few."""
    found = content(figures)
    cells = ",\n".join(f"  {json.dumps(cell)}" for cell in found.pop("cells"))
    return f'{json.dumps(found, indent=1)[:-2]},\n "cells": [\n{cells}\n ]\n}}\n'


def markdown(figures: Figures, picture: str) -> str:
    comparison, wide = figures.comparison, many(figures)
    both = bool(comparison.budget) and not wide
    return pages.page(
        "compare.md",
        name=comparison.name,
        notes=notes(figures),
        picture=picture,
        many=wide,
        base=comparison.base.policy,
        ratios=[
            {
                "ratio": ratio,
                "summary": summary(figures, ratio) if wide else None,
                "bests": bests(figures, ratio) if wide else None,
                "speeds": speeds(figures, ratio),
                "gains": gains(figures, ratio) if both else None,
                "costs": costs(figures, ratio),
            }
            for ratio in comparison.ratios
        ],
        changes=_changes(figures),
        builds=text.engine_builds("cell", (found.build for found in figures.measured)),
    )


def _changes(figures: Figures) -> dict[str, str]:
    """What tuning changed, by policy and workload; of many workloads where it was the best. A
    search is of one ratio, and its knobs are those of every ratio."""
    changed = [found for found in figures.measured if found.knobs]
    if many(figures):
        best = [figures.best(ratio, tuned=True) for ratio in figures.comparison.ratios]
        rows = {(name, line.row) for found in best for name, line in found.items()}
        changed = [found for found in changed if (found.workload, found.row) in rows]
    said: dict[str, str] = {}
    for found in changed:
        knobs = ", ".join(f"`{name}` {value}" for name, value in (found.knobs or {}).items())
        said.setdefault(f"{found.row.untuned.name} on {found.workload}", knobs)
    return said
