# SPDX-License-Identifier: MIT
"""map.csv, map.json and map.md, and the tables of the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

from tuner import pages
from tuner.compare.cells import Row
from tuner.map.cells import NEVER, drift_text
from tuner.map.points import DERIVED, HELD_OUT, OTHER, PARTS, Found, Point, part_of
from tuner.map.rule import ALL, AVOID, HARM, LOSE, Case, Confusion, Rule, judge
from tuner.pages import Table
from tuner.run.trial import Status
from tuner.text import page_size, plural

MOST_MISTAKES = 12
"""That are named."""


def picture_name(row: Row) -> str:
    return f"map-{row.policy}.png"


# --- Tables ---------------------------------------------------------------------------------------


def summary(found: Found) -> Table:
    """Of each policy on each machine; moving and watching are of its harmful places."""
    rows = []
    for row in found.plan.policies:
        for machine in found.plan.axes.machines:
            points = [point for point in found.of(row) if point.machine == machine]
            means = [point.mean for point in points if point.mean]
            if not means:
                rows.append([row.name, machine, "0", *["-"] * 7])
                continue
            shown = [f"{f(means):.3f}" for f in (min, geometric_mean, max)]
            bad = [p for p in points if p.case and p.case.harmful]
            still = [p for p in bad if p.case and not p.case.promotes]
            costs = [
                f"{fmean(each):.1%}".replace("%", " %") if bad else "-" for each in _costs(bad)
            ]
            counts = map(str, (len(means), len(bad), len(still)))
            rows.append([row.name, machine, *counts, *shown, *costs])
    columns = [
        *("policy", "machine", ">places", ">harmful", ">without promoting"),
        *(">worst", ">geometric mean", ">best", ">moving", ">watching"),
    ]
    return columns, rows


def _costs(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.moving for point in points], [point.watching for point in points]


def confusions(found: Found) -> Table:
    """Every rule on every part."""
    columns = ["rule", "cases", *_CONFUSION]
    rows = []
    for what, rule in found.rules().items():
        for part in PARTS:
            if cases := found.cases(part):
                rows.append([what, part, *_confusion(judge(rule, cases))])
    return columns, rows


def by_policy(found: Found) -> Table:
    """The rule on each policy's held-out cases, beside one that has not seen the policy."""
    rows = []
    for row in found.plan.policies:
        if found.rule and (cases := found.cases(HELD_OUT, row)):
            rows.append([row.name, str(found.rule), *_confusion(judge(found.rule, cases))])
        rule, confusion = found.unseen(row)
        if rule and confusion and confusion.cases:
            rows.append([f"{row.name}, unseen", str(rule), *_confusion(confusion)])
    return ["policy", "rule", *_CONFUSION], rows


_CONFUSION = (
    *(">harmful, off", ">harmful, on", ">others, off", ">others, on"),
    *(">harm avoided", ">gain lost", "as asked"),
)


def _confusion(found: Confusion) -> list[str]:
    counts = found.harmful_off, found.harmful_on, found.good_off, found.good_on
    harmful = found.harmful_off + found.harmful_on
    return [
        *map(str, counts),
        _percent(found.avoided) if harmful else "-",
        _percent(found.lost_share) if found.gain > 0 else "-",
        "yes" if found.met else "no",
    ]


def _percent(share: float) -> str:
    """A share that rounds to nothing has no sign."""
    return f"{share:z.1%}".replace("%", " %")


# --- Notes ----------------------------------------------------------------------------------------


def notes(found: Found) -> list[str]:
    plan, comparison = found.plan, found.plan.comparison
    size = page_size(comparison.base.page_bytes)
    seeds = plural(comparison.seeds, "sampling seed")
    said = [
        f"performance over first-touch, higher is better; {size} pages; mean of {seeds}",
        f"{plan.memory_gib:g} GiB, of which a window of {plan.hot_gib:g} GiB is hot; "
        f"{plan.accesses_g:g} 10^9 accesses; a drift of 5 G: the window has been replaced by "
        f"another after 5 10^9 accesses; {NEVER}: it stays",
        f"harmful: slower than first-touch by more than {HARM:.0%}".replace("%", " %"),
        "of harmful places: how many promoted nothing, so that only watching made them slower, and "
        "the shares of their run time that moving pages takes, which promotion causes, and "
        "watching (samples, faults and the policy's work)",
    ]
    alike: dict[tuple[str, str], list[str]] = {}
    for point in found.points:
        if point.status is not Status.success:
            reason, *_ = point.reason.splitlines() or ["no reason is known"]
            outcome = "refused" if point.status is Status.failed else str(point.status)
            alike.setdefault((outcome, reason), []).append(point.name)
    for (outcome, reason), names in alike.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        said.append(f"{outcome}: {'; '.join(names[:3])}{more}: {reason}")
    return said


def rule_notes(found: Found) -> list[str]:
    """What the rule is, and how it was found."""
    asked = (
        f"asked: at least {AVOID:.0%} of the harmful cases turned off, at most {LOSE:.0%} of the "
        "gain of the others lost"
    ).replace("%", " %")
    said = [
        f"a rule sees what the run's own counters tell; {asked}",
        "off: tiering is turned off, and performs as first-touch from the start",
        "derived: found on these streams; held out: streams of other skews and drifts (the other "
        "squares of a chessboard) and of another seed",
    ]
    if found.plan.others:
        said.append(f"other workloads: {', '.join(found.plan.others)}")
    if found.rule is None:
        return [*said, "no case is harmful, so there is nothing to avoid"]
    said += [f"{what}: promotion off where {rule}" for what, rule in found.rules().items()]
    said.append("informed: it also knows the share of hits without promotion, measured beforehand")
    used = dict.fromkeys(c.feature for rule in found.rules().values() for c in rule.conditions)
    said += [f"{name}: {ALL[name].meaning}" for name in used]
    if not judge(found.rule, found.cases(DERIVED)).met:
        said.append("no rule of two thresholds does what is asked; found here is the closest")
    still = sum(not case.promotes for part in PARTS for case in found.cases(part))
    if still:
        said.append(f"{plural(still, 'case')} promoted nothing and do not count")
    return said


def mistakes(found: Found) -> list[str]:
    """Of the rule on what it was not derived from, the worst first."""
    rule = found.rule
    if rule is None:
        return []
    wrong: list[tuple[float, str]] = []
    for part in (HELD_OUT, OTHER):
        for point, case in found.pairs(part):
            off, change = rule.off(case), case.performance - 1
            if not case.promotes or off == case.harmful or (off and change <= 0):
                continue
            what = "turned off" if off else "left on"
            wrong.append((abs(change), f"{point.name}: {what} at {case.performance:.3f}"))
    wrong.sort(key=lambda each: (-each[0], each[1]))
    said = [line for _, line in wrong[:MOST_MISTAKES]]
    more = len(wrong) - MOST_MISTAKES
    return [*said, f"and {more} more, all smaller"] if more > 0 else said


# --- Files ----------------------------------------------------------------------------------------


def csv_text(found: Found) -> str:
    """A row for each place and policy."""
    file = io.StringIO()
    fixed = (
        *("policy", "workload", "machine", "ratio", "skew", "drift_g", "fast_over_hot", "part"),
        *("status", "performance", "harmful", "off", "fast_hit_ratio"),
        *("moving", "watching"),
    )
    writer = csv.DictWriter(file, (*fixed, *_SEEN), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_plain(found, point) for point in found.points)
    return file.getvalue()


_SEEN = tuple(name for name in ALL if name != "fast_hit_ratio")


def _plain(found: Found, point: Point) -> dict[str, Any]:
    """Of a point, what can be told in a row."""
    place, case = point.place, point.case
    features: Mapping[str, float] = case.features if case else {}
    row: dict[str, Any] = {
        "policy": point.row.policy,
        "workload": point.workload.partition(",")[0],
        "machine": point.machine,
        "ratio": point.ratio,
        "skew": place.skew if place else None,
        "drift_g": place.drift if place else None,
        "fast_over_hot": round(found.plan.fast_over_hot(point.ratio), 4) if place else None,
        "part": part_of(point),
        "status": "refused" if point.status is Status.failed else str(point.status),
        "performance": _rounded(point.mean),
        "harmful": case.harmful if case else None,
        "off": found.rule.off(case) if case and found.rule else None,
        "fast_hit_ratio": _rounded(point.hit_ratio),
        "moving": _rounded(point.moving) if point.performance else None,
        "watching": _rounded(point.watching) if point.performance else None,
    }
    return row | {name: _rounded(features.get(name)) for name in _SEEN}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def content(found: Found) -> dict[str, Any]:
    """What map.json holds. A drift of 0 is a window that stays."""
    plan, comparison = found.plan, found.plan.comparison
    return {
        "name": comparison.name,
        "engine_version": found.engine_version,
        "engine_build": found.engine_build,
        "axes": {name: list(values) for name, values in vars(plan.axes).items()},
        "memory_gib": plan.memory_gib,
        "hot_gib": plan.hot_gib,
        "accesses_g": plan.accesses_g,
        "seeds": comparison.seeds,
        "page_bytes": comparison.base.page_bytes,
        "notes": notes(found),
        "rules": [
            {"what": what, **rule.plain(), "judged": _judged(found, rule)}
            for what, rule in found.rules().items()
        ],
        "points": [
            _plain(found, point) | {"performances": [_rounded(p) for p in point.performance]}
            for point in found.points
        ],
    }


def _judged(found: Found, rule: Rule) -> dict[str, Any]:
    parts: dict[str, list[Case]] = {part: found.cases(part) for part in PARTS}
    return {part: judge(rule, cases).plain() for part, cases in parts.items() if cases}


def json_text(found: Found) -> str:
    """A line for each point."""
    head = content(found)
    points = ",\n  ".join(json.dumps(point) for point in head.pop("points"))
    text = json.dumps(head, indent=1).removesuffix("\n}")
    return f'{text},\n "points": [\n  {points}\n ]\n}}\n'


def markdown(found: Found) -> str:
    return pages.page(
        "map.md",
        name=found.plan.comparison.name,
        notes=notes(found),
        summary=summary(found),
        policies=[
            {"name": row.name, "extremes": _extremes(found, row), "picture": picture_name(row)}
            for row in found.plan.policies
        ],
        rule_notes=rule_notes(found),
        confusions=confusions(found) if found.rules() else None,
        by_policy=by_policy(found),
        mistakes=mistakes(found),
        version=found.engine_version,
        build=found.engine_build,
    )


def _extremes(found: Found, row: Row) -> str:
    points = [point for point in found.of(row) if point.mean]
    if not points:
        return "It did not run."
    worst, *_, best = sorted(points, key=lambda p: (p.mean or 0, p.workload, p.ratio))

    def told(point: Point) -> str:
        place = point.place
        assert place is not None
        where = f"{place.skew:g} hot, {drift_text(place.drift)}, {point.ratio}, {point.machine}"
        return f"{point.mean:.3f} ({where})"

    framed = "framed: the rule below turns promotion off" if found.rule else "no case is harmful"
    return f"Worst {told(worst)}, best {told(best)}; {framed}."
