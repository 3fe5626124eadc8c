# SPDX-License-Identifier: MIT
"""From results to verdicts, and to the figures that stand for all tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from tuner import engine, ranking
from tuner.claims import expression
from tuner.claims.document import Claim, Interval, Point
from tuner.claims.runs import NotEvaluable, Plan

NOISE = 0.03
"""Two systems whose performance differs by less (of the better one) are tied: of repeated runs of
one policy on real hardware, nine in ten differ by less than this."""

FAR = 0.1
"""A published difference, as a share of the better one, that matters to whoever has to choose."""

POINTS_NOISE, CEILING_DRAWS = 3.0, 200
"""Points of the reference by which repeated measurements differ, for the best tau that a simulator
can have; and how often such tables are drawn."""

WITHIN = 10.0
"""Points of % of all-fast within which a figure counts as reproduced."""


class Outcome(StrEnum):
    passed = "pass"
    failed = "fail"
    unknown = "not evaluable"


@dataclass(frozen=True)
class Pair:
    """Two systems in one cell: which is ahead as published and here (1, -1, 0: tied), and by how
    much as published, as a share of the better one."""

    cell: str
    systems: tuple[str, str]
    published: int
    ours: int
    gap: float

    @property
    def right(self) -> bool:
        """Whether the published order comes out. What is tied there may come out either way."""
        return self.published in (0, self.ours)

    @property
    def reversed(self) -> bool:
        return self.published * self.ours < 0

    @property
    def orders(self) -> tuple[int, int]:
        return self.published, self.ours


@dataclass(frozen=True)
class Regret:
    """A cell of a table: what a user loses who takes the system that is best here, as a share of
    the best published performance, and who takes any of them. The publication's own are left out,
    and so are references and oracles, which nobody can choose."""

    cell: str
    chosen: str
    best: str
    loss: float
    by_chance: float


@dataclass
class Verdict:
    """A row of the page. `cells` has the single figures of a table, `runs` stands for what ran."""

    id: str
    source: str
    what: str
    published: Any
    ours: Any
    tolerance: float
    unit: str
    verdict: Outcome
    reason: str
    note: str
    why: str
    runs: str  # what was asked for
    build: str = ""  # the engine that ran it; empty: none has, or it is not known
    cells: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)  # points of all-fast
    setup: str = ""  # of a table
    regrets: list[Regret] = field(default_factory=list)


def judge(claim: Claim, plan: Plan) -> list[Verdict]:
    """One verdict, or two for a table of several systems: its figures, and their order."""
    spec = claim.spec
    try:
        if spec.needs:
            raise NotEvaluable(f"needs {spec.needs}")
        found = _table(claim, plan) if spec.table else [_value(claim, plan)]
        return [replace(row, build=engine.results_id()) for row in found]
    except NotEvaluable as missing:
        reason = str(missing)
    names = [spec.id]
    if spec.table and len(spec.table.systems) > 1:
        names.append(f"{spec.id}-order")
    return [_row(claim, name, None, Outcome.unknown, reason) for name in names]


def recall(claim: Claim, rows: Mapping[str, Mapping[str, Any]]) -> list[Verdict] | None:
    """The verdicts by the figures of an earlier claims.json, whose rows these are by id. None if it
    lacks them: the claim is new, or asks for other runs by now."""
    spec, row = claim.spec, rows.get(claim.id)
    if row is None or row.get("runs", claim.asked) != claim.asked:
        return None
    if spec.needs or row["verdict"] == Outcome.unknown or row["ours"] is None:
        return None
    if spec.table is None:
        found = [_judged(claim, row["ours"])]
    elif set(row["ours"]) != set(spec.table.systems):
        return None
    else:
        order = rows.get(f"{claim.id}-order")
        labels = list(order["ours"] if order else dict.fromkeys(c["cell"] for c in row["cells"]))
        found = _judged_table(claim, row["ours"], labels)
    return [replace(one, build=str(row.get("build", ""))) for one in found]


def _row(
    claim: Claim, name: str, ours: Any, verdict: Outcome, reason: str = "", **more: Any
) -> Verdict:
    spec = claim.spec
    published: Any = spec.published
    if isinstance(published, Interval):
        published = published.model_dump(exclude_none=True)
    row: dict[str, Any] = {
        "published": spec.table.systems if spec.table else published,
        "tolerance": spec.tolerance,
        "unit": spec.unit,
        "why": spec.why,
        "runs": claim.asked,
    }
    return Verdict(
        id=name, source=claim.source, what=spec.what, ours=ours, verdict=verdict, reason=reason,
        note=spec.note, **row | more,
    )  # fmt: skip


# --- Values ---------------------------------------------------------------------------------------


def _value(claim: Claim, plan: Plan) -> Verdict:
    spec = claim.spec
    assert spec.value is not None
    measured = {name: plan.measured(claim.families, name) for name in claim.families}
    return _judged(claim, expression.evaluate(spec.value, measured))


def _judged(claim: Claim, ours: Any) -> Verdict:
    spec = claim.spec
    assert spec.published is not None
    right = holds(spec.published, ours, spec.tolerance, relative=spec.relative)
    return _row(claim, spec.id, ours, Outcome.passed if right else Outcome.failed)


def holds(
    published: float | list[float] | Interval,
    ours: float | list[float],
    tolerance: float,
    *,
    relative: bool,
) -> bool:
    """Whether each figure is the published one, or in the published range, within the tolerance."""
    found = ours if isinstance(ours, list) else [ours]
    wanted: Sequence[float | Interval]
    wanted = published if isinstance(published, list) else [published] * len(found)
    if len(wanted) != len(found):
        raise NotEvaluable(f"{len(wanted)} published figures, {len(found)} of ours")
    return all(_near(w, f, tolerance, relative) for w, f in zip(wanted, found, strict=True))


def _near(wanted: float | Interval, found: float, tolerance: float, relative: bool) -> bool:
    if not math.isfinite(found):
        return False
    if isinstance(wanted, Interval):
        low = -math.inf if wanted.at_least is None else wanted.at_least
        high = math.inf if wanted.at_most is None else wanted.at_most
        wanted = min(max(found, low), high)
    return abs(found - wanted) <= tolerance * (abs(wanted) if relative else 1) * (1 + 1e-12)


# --- Tables ---------------------------------------------------------------------------------------


def families(claim: Claim) -> dict[str, list[Point]]:
    """The runs that a claim needs: its own, and its table's reference in each page size."""
    table = claim.spec.table
    if table is None:
        return dict(claim.families)
    found = {name: claim.families[name] for name in table.systems}
    for name in table.systems:
        found[_reference(name)] = _with_pages_of(claim.families[table.reference], found[name][0])
    return found


def _reference(system: str) -> str:
    return f"reference of {system}"


def _with_pages_of(reference: Sequence[Point], system: Point) -> list[Point]:
    policy = engine.policies().get(system.scenario["policy"])
    if policy is None:  # the system itself cannot run
        return list(reference)
    size = system.scenario.get("page_bytes", policy.page_bytes)
    return [
        replace(point, scenario={"page_bytes": size} | dict(point.scenario)) for point in reference
    ]


def _table(claim: Claim, plan: Plan) -> list[Verdict]:
    spec = claim.spec
    assert spec.table is not None
    needed = families(claim)
    ours: dict[str, list[float]] = {}
    labels: list[str] = []
    for name in spec.table.systems:
        measured = plan.measured(needed, name)
        reference = plan.measured(needed, _reference(name)).performance()
        ours[name] = [float(x) for x in 100 * measured.performance() / reference]
        labels = measured.labels
    return _judged_table(claim, ours, labels)


def _judged_table(
    claim: Claim, ours: Mapping[str, Sequence[float]], labels: Sequence[str]
) -> list[Verdict]:
    spec = claim.spec
    assert spec.table is not None
    cells: list[dict[str, Any]] = [
        {"cell": label, "system": name, "published": figure, "ours": here}
        for name, published in spec.table.systems.items()
        for label, figure, here in zip(labels, published, ours[name], strict=True)
        if figure is not None
    ]
    differences = [cell["ours"] - cell["published"] for cell in cells]
    good = all(abs(difference) <= spec.tolerance for difference in differences)
    others = {
        name: figures for name, figures in spec.table.systems.items() if _can_be_chosen(claim, name)
    }
    all_fast = claim.families[spec.table.reference][0].scenario["policy"] == "all-fast"
    rows = [
        _row(
            claim, spec.id, ours, Outcome.passed if good else Outcome.failed,
            cells=cells, errors=differences if all_fast else [], setup=spec.table.setup,
            regrets=list(regrets(labels, others, ours)),
        )
    ]  # fmt: skip
    pairs = list(ranked(labels, spec.table.systems, ours))
    if pairs:
        right = all(pair.right for pair in pairs)
        rows.append(
            _row(
                claim, f"{spec.id}-order",
                {label: _order(ours, i) for i, label in enumerate(labels)},
                Outcome.passed if right else Outcome.failed,
                published={
                    label: _order(spec.table.systems, i) for i, label in enumerate(labels)
                },
                unit="", tolerance=NOISE, pairs=pairs,
                why="what repeated runs of one policy differ by on hardware",
            )
        )  # fmt: skip
    return rows


def _can_be_chosen(claim: Claim, system: str) -> bool:
    policy = claim.families[system][0].scenario["policy"]
    return policy not in claim.file.own and engine.policy(policy).family not in (
        "reference",
        "oracle",
    )


def ranked(
    labels: Sequence[str],
    published: Mapping[str, Sequence[float | None]],
    ours: Mapping[str, Sequence[float]],
    band: float = NOISE,
) -> Iterable[Pair]:
    """All pairs of systems with published figures, cell by cell."""
    for i, label in enumerate(labels):
        for a, b in itertools.combinations(published, 2):
            pa, pb = published[a][i], published[b][i]
            if pa is not None and pb is not None:
                orders = (ranking.order(pa, pb, band), ranking.order(ours[a][i], ours[b][i], band))
                yield Pair(label, (a, b), *orders, gap=abs(pa - pb) / max(abs(pa), abs(pb), 1e-300))


def regrets(
    labels: Sequence[str],
    published: Mapping[str, Sequence[float | None]],
    ours: Mapping[str, Sequence[float]],
) -> Iterable[Regret]:
    """Of each cell with several published figures, the best of them above 0."""
    for i, label in enumerate(labels):
        known = {name: f for name, figures in published.items() if (f := figures[i]) is not None}
        if len(known) < 2 or max(known.values()) <= 0:
            continue
        chosen = max(known, key=lambda name: ours[name][i])
        best = max(known, key=lambda name: known[name])
        losses = {name: 1 - figure / known[best] for name, figure in known.items()}
        yield Regret(label, chosen, best, losses[chosen], float(np.mean(list(losses.values()))))


def _order(table: Mapping[str, Sequence[float | None]], cell: int) -> str:
    """freqtier > hemem; a system within the noise band of the one before is joined by =."""
    figures = {name: f for name, values in table.items() if (f := values[cell]) is not None}
    names = sorted(figures, key=lambda name: -figures[name])
    text = names[0] if names else "-"
    for before, name in itertools.pairwise(names):
        tied = ranking.order(figures[before], figures[name], NOISE) == 0
        text += f" {'=' if tied else '>'} {name}"
    return text


# --- All of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The figures over all tables, and how many pairs and cells they rest on. Shares are of 1."""

    regret: float | None
    worst_regret: float | None
    regret_by_chance: float | None
    choices: int
    reversed_far: float | None
    right_far: float | None
    far_pairs: int
    ordering_tau: float | None
    tau_ceiling: float | None
    points_within_10: float | None
    mean_error_points: float | None
    pairs: int
    right: int
    cells: int


def summarize(verdicts: Sequence[Verdict]) -> Summary:
    pairs = [pair for verdict in verdicts for pair in verdict.pairs]
    far = [pair for pair in pairs if pair.gap > FAR]
    risks = [regret for verdict in verdicts for regret in verdict.regrets]
    errors = np.abs([error for verdict in verdicts for error in verdict.errors])

    def mean(values: Iterable[float]) -> float | None:
        found = list(values)
        return float(np.mean(found)) if found else None

    return Summary(
        regret=mean(regret.loss for regret in risks),
        worst_regret=max((regret.loss for regret in risks), default=None),
        regret_by_chance=mean(regret.by_chance for regret in risks),
        choices=len(risks),
        reversed_far=mean(pair.reversed for pair in far),
        right_far=mean(pair.right for pair in far),
        far_pairs=len(far),
        ordering_tau=ranking.tau(pair.orders for pair in pairs),
        tau_ceiling=ceiling(verdicts),
        points_within_10=mean(errors <= WITHIN),
        mean_error_points=mean(errors),
        pairs=len(pairs),
        right=sum(pair.right for pair in pairs),
        cells=len(errors),
    )


def ceiling(verdicts: Sequence[Verdict]) -> float | None:
    """Kendall's tau between the published tables and the same ones measured again, with errors of
    POINTS_NOISE: the mean of many draws. None without a pair of systems."""
    tables = [
        [cell["published"] for cell in group]
        for verdict in verdicts
        if verdict.setup
        for _, cells in itertools.groupby(
            sorted(verdict.cells, key=lambda cell: str(cell["cell"])), key=lambda cell: cell["cell"]
        )
        if len(group := list(cells)) > 1
    ]
    if not tables:
        return None
    random = np.random.default_rng(0)
    found = []
    for _ in range(CEILING_DRAWS):
        orders: list[tuple[int, int]] = []
        for table in tables:
            again = table + random.normal(0, POINTS_NOISE, len(table))
            orders += [
                (ranking.order(table[a], table[b], NOISE), ranking.order(again[a], again[b], NOISE))
                for a, b in itertools.combinations(range(len(table)), 2)
            ]
        found.append(ranking.tau(orders) or 0.0)
    return float(np.mean(found))
