# SPDX-License-Identifier: MIT
"""What comparisons of all systems say: the README's table, and the rivals of a search."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from sources import percent, results

from tuner.commands.run import tunable
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.rivals import nearest
from tuner.pages import Table
from tuner.scenario import Scenario

# Every system on every workload, at its defaults and tuned, by what the tuned ones come to.
SHOWN_SYSTEMS = 8
BOUNDS = ("offline-optimal", "all-fast")
LEVEL = 0.99  # of the best: within 1 %


def lines_of(entry: Mapping[str, Any]) -> dict[tuple[str, bool], Any]:
    """The lines of a ratio with base pages, by policy and whether they are tuned."""
    found = (line for line in entry["performance"] if line["page_bytes"] == 4096)
    return {(line["policy"], line["tuned"]): line for line in found}


def compared_ratios(name: str = "compare-tuned") -> dict[str, dict[tuple[str, bool], Any]]:
    """From little fast memory to much."""
    tables = {entry["ratio"]: entry for entry in results(f"{name}/compare.json")["tables"]}
    ordered = sorted(tables, key=lambda ratio: -int(ratio.partition(":")[2]))
    return {ratio: lines_of(tables[ratio]) for ratio in ordered}


def mean(line: Mapping[str, Any]) -> float:
    return float(line["geometric_mean"]["value"])


def tuned_systems(lines: Mapping[tuple[str, bool], Any]) -> list[str]:
    """From the best mean to the worst."""
    means = {name: mean(line) for (name, tuned), line in lines.items() if tuned}
    return sorted(means, key=lambda name: -means[name])


def systems() -> Table:
    ratios = compared_ratios()
    order = tuned_systems(ratios[results("compare-tuned/compare.json")["tuned"]["ratio"]])

    def cell(lines: Mapping[tuple[str, bool], Any], name: str) -> str:
        found = (lines.get((name, tuned)) for tuned in (False, True))
        return " → ".join(f"{mean(line):.3f}" for line in found if line)

    return (
        ("default → tuned", *ratios),
        [
            (f"`{name}`", *(cell(lines, name) for lines in ratios.values()))
            for name in (*order[:SHOWN_SYSTEMS], *BOUNDS)
        ],
    )


def systems_sentence() -> dict[str, Any]:
    """How `unified`, which is ours, does against the best of the others, one by one and place by
    place."""
    ahead, places, level = [], 0, 0
    bare = compared_ratios("compare-no-starts")
    unstarted = [f"{mean(lines['unified', True]):.3f}" for lines in bare.values()]
    for ratio, lines in compared_ratios().items():
        others = [name for name in tuned_systems(lines) if name != "unified"]
        ours, best = lines["unified", True], lines[others[0], True]
        change = mean(ours) / mean(best) - 1
        where = "ahead of" if change > 0 else "behind"
        ahead.append(f"{percent(abs(change))} {where} `{others[0]}` at {ratio}")
        for workload, figure in ours["workloads"].items():
            most = max(lines[name, True]["workloads"][workload]["value"] for name in others)
            places += 1
            level += figure["value"] >= LEVEL * most
    return {"ahead": ahead, "level": level, "places": places, "unstarted": unstarted}


RIVALS = "compare-tuned/compare.json"


def rivals() -> str:
    """What each policy's default, with its own pages, falls short of the best one, by workload and
    ratio (`tuner/documents/rivals.py`)."""
    comparison = results(RIVALS)
    pages = {policy.name: policy.traits["page_bytes"] for policy in tunable()}
    speeds: dict[str, dict[str, dict[str, float]]] = {}
    for cell in comparison["cells"]:
        policy = cell["policy"]
        if cell["tuned"] or cell["page_bytes"] != pages.get(policy):
            continue
        if cell["status"] == "success":
            value = statistics.mean(cell["objectives"])
            ratios = speeds.setdefault(cell["workload"], {})
            speed = 1 / value if cell["objective"] == "runtime" else value
            ratios.setdefault(cell["ratio"], {})[policy] = speed
    shortfalls = {
        workload: {
            ratio: {
                name: round(1 - speed / max(found.values()), 4)
                for name, speed in sorted(found.items())
            }
            for ratio, found in sorted(ratios.items())
        }
        for workload, ratios in sorted(speeds.items())
    }
    content = {
        "source": f"results/{RIVALS}",
        "engine_build": comparison["engine_build"],
        "shortfalls": shortfalls,
    }
    return json.dumps(content, indent=1) + "\n"


def rivals_sentence() -> dict[str, Any]:
    """What a choice by the other workloads loses on one that it has not seen."""
    found = json.loads(rivals())["shortfalls"]
    able = [policy.name for policy in tunable()]
    lost = []
    for workload, ratios in found.items():
        others = [p for name, by in found.items() if name != workload for p in by.values()]
        few = nearest(others, able)
        lost += [min(place.get(name, 1.0) for name in few) for place in ratios.values()]
    everywhere = [place for by in found.values() for place in by.values()]
    return {
        "nearest": nearest(everywhere, able),
        "lost": percent(statistics.mean(lost)),
        "most_lost": percent(max(lost)),
        "defaults": len(able),
    }


PORTFOLIO = "portfolio.json"


def reasons() -> dict[str, Any]:
    """Knobs of HeMem that matter, by workload, beside From Good to Great (2025), Table 5."""
    found = results("tuner.json")["reasons"]
    rows = []
    for case in found["cases"]:
        shares = sorted(case["shares"].items(), key=lambda item: -item[1])
        rows.append(
            [
                f"`{case['workload']}`",
                ", ".join(f"`{knob}`" for knob in case["published"]["knobs"]),
                case["published"]["why"],
                ", ".join(f"`{knob}` {percent(share)}" for knob, share in shares) or "none",
                "; ".join(case["mechanism"]) or "–",
                case["headline"],
            ]
        )
    head = [
        "workload",
        "knobs that matter, published",
        "why",
        "here, and their shares",
        "how, here",
    ]
    return {"table": ([*head, "verdict here"], rows), **found}


def recommendation() -> Table:
    """What ways to choose a configuration without a study are worth, on workloads that had no part
    in the choice: by ratio, the mean over first-touch, and how far the best known is ahead."""
    evidence = results(PORTFOLIO)["evidence"]
    sizes = list(next(iter(next(iter(evidence.values())).values()))["family"])
    trials = results(PORTFOLIO)["searches"]["trials"]
    default = Scenario.policy

    def rule(*path: str) -> Callable[[Mapping[str, Any]], float]:
        def value(row: Any) -> float:
            for key in path:
                row = row[key]
            return float(row)

        return value

    rules: list[tuple[str, str, Callable[[Mapping[str, Any]], float]]] = [
        ("`first-touch`", "0", lambda row: 1.0),
        (f"`{default}` at its defaults", "0", rule("default")),
        ("what was tuned for the workload most alike", "0", rule("nearest", "0")),
        *(
            (f"the best of {size} that were tuned for those most alike", size, value)
            for size in sizes[1:]
            for value in [rule("nearest", size)]
        ),
        *(
            (f"the portfolio's first {size}" if size != "1" else "the portfolio's first", size, v)
            for size in sizes
            for v in [rule("family", size)]
        ),
        (f"all {sizes[-1]}, relatives kept", sizes[-1], rule("workload", sizes[-1])),
        ("a search of the policy that the portfolio advises", str(trials), rule("search")),
        ("the best known", "", rule("known")),
    ]
    heads = [name for ratio in evidence for name in (ratio, "behind", "at worst")]
    rows = []
    for name, runs, of in rules:
        cells = []
        for found in evidence.values():
            values = {workload: of(row) for workload, row in found.items()}
            behind = [1 - values[each] / found[each]["known"] for each in found]
            cells += [
                f"{statistics.geometric_mean(values.values()):.3f}",
                percent(1 - statistics.geometric_mean(1 - each for each in behind)),
                percent(max(0.0, *behind)),
            ]
        rows.append((name, runs, *cells))
    return ("what is used", "runs", *heads), rows


def recommendation_sentence() -> dict[str, Any]:
    """Which configurations are in the portfolio, and on which workloads it was measured."""
    found = results(PORTFOLIO)
    evidence = found["evidence"]
    measured = [set(rows) for rows in evidence.values()]
    missing = sorted(set(catalog.names(Kind.workload)) - set.intersection(*measured))
    return {
        "members": [(each["policy"], each["workload"]) for each in found["portfolio"]],
        "candidates": found["candidates"],
        "ratios": list(evidence),
        "workloads": len(set.union(*measured)),
        "missing": missing,
        "build": found["engine_build"],
    }
