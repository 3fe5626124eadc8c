"""compare.csv, compare.json and compare.md, and the tables of the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tuner import engine, ranking, text
from tuner.compare.earlier import conditions
from tuner.compare.figures import METRICS, Figure, Figures, Line, Measured
from tuner.objective import OBJECTIVES
from tuner.optimize.checks import BOUND
from tuner.optimize.loop import everything_fits
from tuner.run.trial import Status
from tuner.text import change, page_size

MEAN = "geometric mean"

MOST_ACROSS = 5
"""Workloads that a table has as columns."""

Table = tuple[list[str], list[list[str]]]
"""Columns, where '>' sets one to the right, and rows."""


# --- Tables ---------------------------------------------------------------------------------------


def speeds(figures: Figures, ratio: str) -> Table:
    """Performance over the base: workloads across, or down where they are many."""
    workloads, lines = figures.comparison.workloads, figures.table(ratio)
    groups: list[str | None] = [*workloads, *([None] if len(workloads) > 1 else [])]
    names = [group or MEAN for group in groups]
    cells = [[_shown(figures, ratio, group, line) for group in groups] for line in lines]
    rows = [line.row.name for line in lines]
    if len(workloads) > MOST_ACROSS:
        names, rows = rows, names
        cells = [list(column) for column in zip(*cells, strict=True)]
    columns = [ratio, *(f">{name}" for name in names)]
    return columns, [[name, *line] for name, line in zip(rows, cells, strict=True)]


def gains(figures: Figures, ratio: str) -> Table:
    """Default and tuned side by side, on equal budgets."""
    workloads = figures.comparison.workloads
    table = {line.row: line for line in figures.table(ratio)}
    rows = []
    for gain in figures.gains(ratio):
        both = table[gain.row.untuned], table[gain.row]
        for group in [*workloads, *([None] if len(workloads) > 1 else [])]:
            shown = [_shown(figures, ratio, group, line) for line in both]
            found = gain.mean if group is None else gain.figures[group]
            last = "-" if found is None else _gain(found)
            rows.append([gain.row.untuned.name, group or MEAN, *shown, last])
    return [ratio, "workload", ">default", ">tuned", ">tuned over default"], rows


def costs(figures: Figures, ratio: str) -> Table:
    """What tiering does and takes: of the policies, and of the base for comparison."""
    columns = [
        *(ratio, "workload", ">fast hits", ">demand hits", ">moved, GiB", ">metadata, MiB"),
        *(">tiering CPU, s", ">moving CPU, s", ">CPUs for tiering"),
    ]
    forms = {
        "fast_hit_ratio": (1.0, ".3f"),
        "demand_hit_ratio": (1.0, ".3f"),
        "migrated_bytes": (1 << 30, ",.4g"),
        "peak_metadata_bytes": (1 << 20, ",.4g"),
        "tiering_cpu_seconds": (1.0, ",.4g"),
        "mover_cpu_seconds": (1.0, ",.4g"),
        "policy_cpu_share": (1.0, ".3g"),
    }

    def cell(found: Measured, metric: str) -> str:
        unit, form = forms[metric]
        value = found.mean(metric)
        return "-" if value is None else format(value / unit, form)

    rows = []
    shown = [r for r in figures.comparison.rows if not r.reference or r == figures.comparison.base]
    for row in shown:
        for workload in figures.comparison.workloads:
            found = figures.at(ratio, workload, row)
            if found.status is Status.success:
                rows.append([row.name, workload, *(cell(found, metric) for metric in forms)])
    return columns, rows


def _shown(figures: Figures, ratio: str, workload: str | None, line: Line) -> str:
    """The figure, or what became of the runs. Without a workload the mean, marked if it is not of
    all of them."""
    if workload is None:
        if line.mean is None:
            return "-"
        return _speed(line.mean) + ("" if line.full_mean else f" (of {line.mean.workloads})")
    if found := line.figures[workload]:
        return _speed(found)
    measured = figures.at(ratio, workload, line.row)
    return "-" if measured.status is Status.success else measured.outcome


def _speed(figure: Figure) -> str:
    """1.234 ± 0.005; fewer digits of larger ones."""
    places = 3 if figure.value < 10 else 2 if figure.value < 100 else 1
    spread = "" if figure.half_width is None else f" ± {figure.half_width:.{places}f}"
    return f"{figure.value:.{places}f}{spread}"


def _gain(figure: Figure) -> str:
    """+12.3 ± 0.4 %"""
    if figure.half_width is None:
        return change(figure.value - 1)
    return f"{100 * (figure.value - 1):+.1f} ± {100 * figure.half_width:.1f} %"


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
    if comparison.seeds == 1:
        yield "one run each, so that nothing tells how far chance in sampling reaches"
    else:
        yield (
            f"means over {comparison.seeds} sampling seeds; ± is half of a 95 % interval, about "
            "chance in sampling alone; references sample nothing and run once"
        )
    yield (
        f"all-fast is the upper bound; offline-optimal and {BOUND} are oracles: the one plays the "
        "best schedule of moves that it finds, the other places the hottest pages of the whole run "
        "once, which a policy that follows changes may beat"
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


def _warnings(figures: Figures) -> Iterator[str]:
    settings = {cell.workload: cell.setting for cell in figures.comparison.cells}
    specs = {name: one.workload.inputs[one.scenario.input] for name, one in settings.items()}
    if coarse := [name for name, spec in specs.items() if spec.coarse]:
        yield f"{', '.join(coarse)}: smoke input, whose figures mean little"
    for name, spec in specs.items():
        if spec.sampling:
            yield f"{name} was {spec.sampling.describe()}"
    fits = [everything_fits(cell.setting) for cell in figures.comparison.cells]
    yield from dict.fromkeys(advice.removeprefix("note: ") for advice in fits if advice)


def _missing(figures: Figures) -> Iterator[str]:
    """What did not run. Cells of a workload that fail alike are named together."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for found in figures.measured:
        if found.status is not Status.success:
            reason, *_ = found.reason.splitlines() or ["no reason is known"]
            names = alike.setdefault((found.outcome, found.workload, reason), [])
            names.append(f"{found.row.name} at {found.ratio}")
    for (outcome, workload, reason), names in alike.items():
        yield f"{outcome} on {workload}: {'; '.join(names)}: {reason}"
    workloads = figures.comparison.workloads
    if alike and len(workloads) > 1:
        yield (
            f"a mean '(of N)' leaves out the workloads on which the row did not run: it is not to "
            f"be compared with those of all {len(workloads)}, and has no place in the order"
        )


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
        "engine_build": engine.build_id(),
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
        "engine_build": found.build,
    }


def json_text(figures: Figures) -> str:
    return json.dumps(content(figures), indent=1) + "\n"


def markdown(figures: Figures, picture: str) -> str:
    comparison = figures.comparison
    lines = [f"# {comparison.name}", "", *(f"- {note}" for note in notes(figures)), ""]
    lines += [f"![Performance of all policies]({picture})"]
    for ratio in comparison.ratios:
        lines += ["", f"## {ratio}", "", *markdown_table(speeds(figures, ratio))]
        if comparison.budget:
            lines += ["", f"### Default and tuned, {ratio}", ""]
            lines += markdown_table(gains(figures, ratio))
        lines += ["", f"### What tiering does and takes, {ratio}", ""]
        lines += markdown_table(costs(figures, ratio))
    changed = [found for found in figures.measured if found.knobs]
    if changed:
        lines += ["", "## What tuning changed", "", *_changes(changed)]
    lines += ["", text.engine_builds("cell", (found.build for found in figures.measured))]
    return "\n".join(lines) + "\n"


def _changes(changed: Sequence[Measured]) -> list[str]:
    """A search is of one ratio, and its knobs are those of every ratio."""
    said: dict[str, str] = {}
    for found in changed:
        knobs = ", ".join(f"`{name}` {value}" for name, value in (found.knobs or {}).items())
        said.setdefault(f"{found.row.untuned.name} on {found.workload}", knobs)
    return [f"- {where}: {knobs}" for where, knobs in said.items()]


def markdown_table(table: Table) -> list[str]:
    """As lines of Markdown."""
    columns, rows = table
    names = [column.removeprefix(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in (names, rule, *rows)]
