# SPDX-License-Identifier: MIT
"""The tables of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean

from tuner.compare.figures import Figure, Figures, Line, Measured
from tuner.pages import Table
from tuner.run.trial import Status
from tuner.text import change

MEAN = "geometric mean"

MOST_ACROSS = 5
"""Workloads of a table that has every figure. Those of more have means, and leave out intervals."""


def many(figures: Figures) -> bool:
    return len(figures.comparison.workloads) > MOST_ACROSS


def summary(figures: Figures, ratio: str) -> Table:
    """Policies by their mean, and how far they are behind the best one of each workload."""
    lines = {line.row: line for line in figures.table(ratio)}
    shares = figures.shares(ratio)
    rows = []
    for row in lines:
        if row.reference or row.tuned:
            continue
        both = [row, row.model_copy(update={"tuned": True})]
        found = [lines[one] for one in both if one in lines]
        means = [_shown(figures, ratio, None, one) for one in found]
        behind = [_share(shares[one.row].values()) for one in found]
        worst = [_worst(one) for one in found]
        order = max((one.mean.value for one in found if one.mean), default=0.0)
        rows.append((order, [row.name, *means, *behind, *worst]))
    names = ["default", "tuned"] if figures.comparison.budget else ["default"]
    columns = [
        *(ratio, *(f">{name}" for name in names)),
        *(f">of the best, {name}" for name in names),
        *(f">worst, {name}" for name in names),
    ]
    table = [cells for _, cells in sorted(rows, key=lambda pair: -pair[0])]
    return columns, [cells + ["-"] * (len(columns) - len(cells)) for cells in table]


def _share(shares: Iterable[float]) -> str:
    given = list(shares)
    return f"{100 * geometric_mean(given):.1f} %" if given else "-"


def _worst(line: Line) -> str:
    found = {name: one.value for name, one in line.figures.items() if one}
    if not found:
        return "-"
    name = min(found, key=found.__getitem__)
    return f"{found[name]:.3f} ({name})"


def bests(figures: Figures, ratio: str) -> Table:
    """The best policy on each workload, beside the bounds."""
    lines = {line.row: line for line in figures.table(ratio)}
    bounds = [lines[row] for row in figures.comparison.bounds]
    kinds = [False, True] if figures.comparison.budget else [False]
    found = [figures.best(ratio, tuned=tuned) for tuned in kinds]

    def best(lines: Mapping[str, Line], workload: str) -> str:
        line = lines.get(workload)
        return f"{line.row.untuned.name}: {_shown(figures, ratio, workload, line)}" if line else "-"

    rows = [
        [
            *(workload, *(best(each, workload) for each in found)),
            *(_shown(figures, ratio, workload, line) for line in bounds),
        ]
        for workload in figures.comparison.workloads
    ]
    names = ["best tuned" if tuned else "best default" for tuned in kinds]
    return [ratio, *names, *(f">{line.row.policy}" for line in bounds)], rows


def speeds(figures: Figures, ratio: str) -> Table:
    """Performance over the base: the longer of workloads and policies go down."""
    workloads, lines = figures.comparison.workloads, figures.table(ratio)
    groups: list[str | None] = [*workloads, *([None] if len(workloads) > 1 else [])]
    names = [group or MEAN for group in groups]
    cells = [[_shown(figures, ratio, group, line) for group in groups] for line in lines]
    rows = [line.row.name for line in lines]
    if many(figures) and len(workloads) > len(lines):
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
    """What tiering does and takes: of the policies, and of the base for comparison. Of many
    workloads the mean over those on which the policy ran."""
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

    def cell(found: Sequence[Measured], metric: str) -> str:
        unit, form = forms[metric]
        values = [value for one in found if (value := one.mean(metric)) is not None]
        return format(fmean(values) / unit, form) if values else "-"

    rows = []
    shown = [r for r in figures.comparison.rows if not r.reference or r == figures.comparison.base]
    for row in shown:
        each = [figures.at(ratio, name, row) for name in figures.comparison.workloads]
        ran = [found for found in each if found.status is Status.success]
        groups = (
            [(f"mean of {len(ran)}", ran)] if many(figures) else [(m.workload, [m]) for m in ran]
        )
        for group, found in groups:
            if found:
                rows.append([row.name, group, *(cell(found, metric) for metric in forms)])
    return columns, rows


def _shown(figures: Figures, ratio: str, workload: str | None, line: Line) -> str:
    """The figure, or what became of the runs. Without a workload the mean, marked if it is not of
    all of them."""
    if workload is None:
        if line.mean is None:
            return "-"
        return _speed(line.mean) + ("" if line.full_mean else f" (of {line.mean.workloads})")
    if found := line.figures[workload]:
        return _speed(replace(found, half_width=None) if many(figures) else found)
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
