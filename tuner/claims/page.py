# SPDX-License-Identifier: MIT
"""results/claims.json and results/claims.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner import pages, text
from tuner.claims.document import Claim
from tuner.claims.verdict import (
    FAR,
    NOISE,
    POINTS_NOISE,
    WITHIN,
    Outcome,
    Regret,
    Summary,
    Verdict,
)
from tuner.documents.reading import read_json
from tuner.errors import UserError
from tuner.files import write_files
from tuner.pages import Table

RANK = {Outcome.unknown: 0, Outcome.failed: 1, Outcome.passed: 2}


def content(verdicts: Sequence[Verdict], summary: Summary) -> dict[str, Any]:
    """What claims.json holds."""
    return {
        **{
            name: _rounded(getattr(summary, name))
            for name in (
                "regret",
                "worst_regret",
                "regret_by_chance",
                "reversed_far",
                "right_far",
                "ordering_tau",
                "tau_ceiling",
                "points_within_10",
                "mean_error_points",
            )
        },
        "claims": [
            {
                "id": verdict.id,
                "source": verdict.source,
                "published": verdict.published,
                "ours": _rounded(verdict.ours),
                "tolerance": verdict.tolerance,
                "verdict": str(verdict.verdict),
                "note": verdict.note,
                "unit": verdict.unit,
                "reason": verdict.reason,
                "cells": _rounded(verdict.cells),
                "runs": verdict.runs,
                "build": verdict.build,
            }
            for verdict in verdicts
        ],
    }


def write(
    folder: Path, claims: Sequence[Claim], verdicts: Sequence[Verdict], summary: Summary
) -> list[Path]:
    """Writes both files; returns their paths."""
    return write_files(
        {
            folder / "claims.json": json.dumps(content(verdicts, summary), indent=1) + "\n",
            folder / "claims.md": markdown(claims, verdicts, summary),
        }
    )


def read(path: Path) -> dict[str, Any]:
    """A claims.json. UserError if it is none."""
    found: dict[str, Any] = read_json(path)
    try:
        for row in found["claims"]:
            Outcome(row["verdict"])
            _ = row["id"], row["ours"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a claims.json: {error}") from error
    return found


def markdown(claims: Sequence[Claim], verdicts: Sequence[Verdict], summary: Summary) -> str:
    measured = [verdict for verdict in verdicts if verdict.verdict is not Outcome.unknown]
    return pages.page(
        "claims.md",
        headline=headline(verdicts, summary),
        noise=f"{100 * NOISE:g} %",
        claims=_overview(verdicts),
        regrets=_regrets(verdicts),
        identified=_identified(claims),
        verdicts=[
            {
                "id": verdict.id,
                "source": verdict.source,
                "what": verdict.what,
                "outcome": verdict.verdict,
                "reason": verdict.reason,
                "tolerance": f"{verdict.tolerance:g} {verdict.unit}".strip(),
                "why": verdict.why,
                "cells": _cells(verdict),
                "note": verdict.note,
            }
            for verdict in verdicts
        ],
        builds=text.engine_builds("verdict", (verdict.build for verdict in measured)),
    )


def _overview(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        [
            *(f"[{verdict.id}](#{verdict.id})", short(verdict.published), short(verdict.ours)),
            "" if verdict.verdict is Outcome.unknown else f"{verdict.tolerance:g}",
            str(verdict.verdict),
        ]
        for verdict in verdicts
    ]
    return ("claim", "published", "ours", "tolerance", "verdict"), rows


def _identified(claims: Sequence[Claim]) -> Table | None:
    rows = {
        (item.parameter, f"{claim.file.paper}, {item.source}"): None
        for claim in claims
        for item in claim.file.identified
    }
    return (("parameter", "identified from"), list(rows)) if rows else None


def headline(verdicts: Sequence[Verdict], summary: Summary) -> list[str]:
    """The figures over all tables, and how many verdicts of each kind there are."""
    counts = {o: sum(verdict.verdict is o for verdict in verdicts) for o in Outcome}
    return [
        f"Regret: who follows the simulator's choice of a system loses {_share(summary.regret)} of "
        f"the best published performance on average, {_share(summary.worst_regret)} at worst, and "
        f"{_share(summary.regret_by_chance)} by choosing at random ({summary.choices} cells; a "
        "paper's own systems left out)",
        f"Reversals: of {summary.far_pairs} pairs of systems that are published as more than "
        f"{_share(FAR)} apart, {_share(summary.reversed_far)} come out the other way round and "
        f"{_share(summary.right_far)} as published",
        f"Ordering fidelity: Kendall's tau {_figure(summary.ordering_tau, '.2f')} between "
        f"published and simulated orders ({summary.right} of {summary.pairs} pairs of systems as "
        f"published; within {100 * NOISE:g} % is a tie), of "
        f"{_figure(summary.tau_ceiling, '.2f')} that the same tables would have if they were "
        f"measured again with errors of {POINTS_NOISE:g} points",
        f"Error: {_figure(summary.mean_error_points, '.1f')} points of % of all-fast on average; "
        f"{_figure(summary.points_within_10, '.0%').replace('%', ' %')} of {summary.cells} figures "
        f"within {WITHIN:g} points",
        ", ".join(f"{count} {outcome}" for outcome, count in counts.items()),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _regrets(verdicts: Sequence[Verdict]) -> Table | None:
    """Each table with its set-up, and what following the simulator costs there."""
    rows = []
    for verdict in verdicts:
        if not verdict.setup:
            continue
        found = ["-", "-", "-"]
        if verdict.regrets:
            worst = max(verdict.regrets, key=lambda regret: regret.loss)
            losses = [regret.loss for regret in verdict.regrets]
            chance = [regret.by_chance for regret in verdict.regrets]
            found = [_share(fmean(losses)), _share(fmean(chance)), _cell(worst)]
        rows.append([f"[{verdict.id}](#{verdict.id})", verdict.setup, *found])
    return (("table", "set-up", "regret", "by chance", "worst cell"), rows) if rows else None


def _cell(regret: Regret) -> str:
    if regret.loss == 0:
        return "-"
    instead = f"{regret.chosen} instead of {regret.best}"
    return f"{_share(regret.loss)}: {regret.cell}, {instead}"


def _cells(verdict: Verdict) -> Table | None:
    rows = [
        [
            *(cell["cell"], cell["system"], f"{cell['published']:g}", f"{cell['ours']:.1f}"),
            f"{cell['ours'] - cell['published']:+.1f}",
        ]
        for cell in verdict.cells or ()
    ]
    return (("cell", "system", "published", "ours", "difference"), rows) if rows else None


def compare(
    before: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]
) -> tuple[list[str], bool]:
    """A line per claim that changed, and whether a verdict got worse."""
    old = {claim["id"]: claim for claim in before}
    lines, worse = [], False
    for verdict in verdicts:
        then = old.get(verdict.id)
        if then is None:
            lines.append(f"{verdict.id}: new, {verdict.verdict}")
            continue
        was = Outcome(then["verdict"])
        ours = _rounded(verdict.ours)
        if was is verdict.verdict and then["ours"] == ours:
            continue
        worse |= RANK[verdict.verdict] < RANK[was]
        change = str(was) if was is verdict.verdict else f"{was} -> {verdict.verdict}"
        lines.append(f"{verdict.id}: {change}: {short(then['ours'])} -> {short(ours)}")
    return lines, worse


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def short(value: Any) -> str:
    """A figure, figures, or a table in one line."""
    match value:
        case None:
            return "-"
        case bool() | str():
            return str(value)
        case int() | float():
            return f"{value:.4g}"
        case list():
            return ", ".join(map(short, value))
        case {"at_least": low, "at_most": high}:
            return f"{low:g} to {high:g}"
        case {"at_least": low}:
            return f"at least {low:g}"
        case {"at_most": high}:
            return f"at most {high:g}"
    if any(isinstance(item, str) for item in value.values()):  # orders: cells with the same one
        cells: dict[str, list[str]] = {}
        for name, item in value.items():
            cells.setdefault(item, []).append(name)
        if len(cells) == 1:
            return next(iter(cells))
        return "; ".join(f"{item} ({', '.join(names)})" for item, names in cells.items())
    return "; ".join(f"{name} {short(item)}" for name, item in value.items())


def _rounded(value: Any) -> Any:
    """Six significant digits: what is compared is not noise, and files stay readable."""
    match value:
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else None
        case list():
            return [_rounded(item) for item in value]
        case dict():
            return {name: _rounded(item) for name, item in value.items()}
    return value
