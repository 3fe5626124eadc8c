# SPDX-License-Identifier: MIT
"""What was measured of studies, workloads, scales and speed."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sources import ROOT, better, percent, results

from tuner.documents import transfer as documents_transfer
from tuner.pages import Table
from tuner.text import change as gain
from tuner.text import si


def objective(value: float, name: str) -> str:
    """`runtime` in seconds, `throughput` in operations a second."""
    return f"{value:.4g} s" if name == "runtime" else f"{si(value, 4)}/s"


def first_result() -> dict[str, Any]:
    measured = results("pristine.json")
    seconds = measured["seconds"]
    return {
        "first": seconds["clone to first trial"],
        "end": seconds["clone to end of make run"],
        "cores": measured["cores"],
        "mbit": measured["mbit"],
    }


def study() -> dict[str, Any]:
    found = results("study.json")
    name, best, references = found["objective"], found["best"], found["references"]
    return {
        "command": found["command"],
        "output": found["output"],
        "trials": len(found["trials"]),
        "over_default": 1 + better(best, found["default"], name),
        "over_first_touch": 1 + better(best, references["first-touch"], name),
        "of_all_fast": 1 + better(best, references["all-fast"], name),
    }


def fidelity() -> dict[str, Any]:
    claims = results("claims.json")
    verdicts = Counter(claim["verdict"] for claim in claims["claims"])
    judged = [claim for claim in claims["claims"] if claim["verdict"] != "not evaluable"]
    return {**claims, "verdicts": verdicts, "builds": len({claim["build"] for claim in judged})}


TUNED = {"hybridtier": "HybridTier", "hemem": "HeMem"}
REFERENCES = {
    "first-touch": "never moves a page",
    "static-hot": "places the hottest pages of the whole run once",
    "all-fast": "has fast memory for everything",
}


def measured_references() -> list[str]:
    """The references that every row has: older files have none."""
    rows = results("workloads.json")["workloads"].values()
    return [name for name in REFERENCES if all(name in row.get("references", {}) for row in rows)]


def tuned_workloads() -> Table:
    rows = []
    for workload, row in results("workloads.json")["workloads"].items():
        name = row["objective"]
        cells = [f"`{workload}`", f"`{row['machine']}`"]
        for policy in TUNED:
            default, tuned = row[policy]["default"], row[policy]["tuned"]
            huge = "²" if row[policy].get("page_bytes") == 1 << 21 else ""
            cells.append(f"{objective(default, name)} → {objective(tuned, name)}{huge}")
            cells.append(gain(row[policy]["gain"]))
        cells += [objective(row["references"][other], name) for other in measured_references()]
        rows.append(cells)
    head = ["workload", "machine"]
    for label in TUNED.values():
        head += [f"{label}: default → tuned", "gain"]
    return [*head, *measured_references()], rows


def streams() -> Table:
    return (
        ("workload", "input", "GiB", "accesses", "R", "s to make", "s a trial: HybridTier / HeMem"),
        [
            (
                f"`{workload}`",
                f"`{row['input']}`",
                f"{row['footprint_gib']:.3g}",
                si(row["accesses"]),
                f"{row['scale']:g}",
                f"{row['make_cpu_seconds']:.0f}",
                " / ".join(f"{row[policy]['trial_seconds']:.1f}" for policy in TUNED),
            )
            for workload, row in results("workloads.json")["workloads"].items()
        ],
    )


def tuned_with() -> dict[str, Any]:
    rows = results("workloads.json")["workloads"].values()
    return {
        "budgets": sorted({row["budget"] for row in rows}),
        "builds": sorted({row["engine_build"] for row in rows}),
        "references": {name: REFERENCES[name] for name in measured_references()},
    }


STRIKING = 0.03
"""A difference between scales that is set in bold."""


def scales() -> Table:
    """Results at other scales, relative to that at R; those at R/2 if there are any."""

    def change(sizes: Mapping[str, Any], policy: str, factor: str) -> str:
        usual = sizes["1"]["policies"][policy]
        found = sizes.get(factor, {"policies": {}})["policies"].get(policy)
        if found is None:
            return "–"
        if "objective" not in found or "objective" not in usual:
            return "failed"
        share = found["objective"] / usual["objective"] - 1
        few = "" if found["fast_pages"] >= 256 else " (coarse)"
        return (gain(share) if abs(share) <= STRIKING else f"**{gain(share)}**") + few

    rows = [
        (workload, policy, int(page_bytes), factors)
        for workload, sizes in sorted(results("scale.json")["workloads"].items())
        for page_bytes, factors in sizes.items()
        for policy in factors.get("1", {"policies": {}})["policies"]
    ]
    names = {"0.5": "R/2", "2": "2R", "4": "4R"}
    if not any("0.5" in factors for *_, factors in rows):
        del names["0.5"]
    return (
        ("workload", "policy", "pages", "R", *names.values()),
        [
            (
                f"`{workload}`",
                f"`{policy}`",
                "4 KiB" if page_bytes == 4096 else "2 MiB",
                f"{factors['1']['scale']:g}",
                *(change(factors, policy, factor) for factor in names),
            )
            for workload, policy, page_bytes, factors in sorted(rows, key=lambda row: row[:3])
        ],
    )


def scales_within() -> dict[str, Any]:
    """How many of the figures at other scales are within the bound."""
    within, policies = [], set()
    for sizes in results("scale.json")["workloads"].values():
        for factors in sizes.values():
            usual = factors.get("1", {"policies": {}})["policies"]
            for factor, row in factors.items():
                for policy, found in row["policies"].items():
                    if factor == "1" or "objective" not in found or policy not in usual:
                        continue
                    policies.add(policy)
                    share = found["objective"] / usual[policy]["objective"] - 1
                    within.append(abs(share) <= STRIKING)
    return {
        "workloads": len(results("scale.json")["workloads"]),
        "policies": len(policies),
        "within": sum(within),
        "results": len(within),
        "bound": STRIKING,
    }


def benchmarks() -> dict[str, Any]:
    bench = runpy.run_path(str(ROOT / "tests/bench/run.py"))
    return {"table": bench["table"](results("bench.json"))}


def parallelism() -> dict[str, Any]:
    found = results("parallelism.json")
    alone = found["workers"][0]
    rows = [
        [
            str(row["workers"]),
            gain(row["gain"]),
            f"{alone['seconds'] / row['seconds']:.1f}",
            f"{alone['seconds_long'] / row['seconds_long']:.1f}",
        ]
        for row in found["workers"]
    ]
    head = (
        "workers",
        "best over default",
        f"times as fast, trials of {1000 * alone['trial_seconds']:.0f} ms",
        f"times as fast, trials of {found['long_seconds']:.0f} s",
    )
    workloads = [name.removesuffix(":smoke") for name in found["workloads"]]
    return {
        **found,
        "table": (head, rows),
        "workloads": workloads,
        "ask_seconds": alone["ask_seconds"],
    }


def explanations() -> dict[str, Any]:
    return dict(results("explanations.json"))


def throughput() -> dict[str, Any]:
    found = results("throughput.json")
    rows = [
        [
            row["kind"],
            str(row["workers"]),
            f"{row['per_second']:.2f}",
            f"{row['trial_seconds']:.2f} s",
            f"{1000 * row['overhead_seconds']:.0f} ms",
        ]
        for row in sorted(found["rows"], key=lambda row: row["workers"])
    ]
    head = ("workers are", "workers", "trials a second", "simulation", "and beside it")
    return {**found, "table": (head, rows)}


RULES = {
    "seed": "the best on the seed (`--robust none`)",
    "near": "of the best 4 within 2 % the best at three sizes, on a fresh seed (the default)",
    "near-2": "the same of 2",
    "lean": "the same of 4, on the seed of the search",
    "near-11": "the same of 11 within 5 %",
    "pool": "of 11 within 5 %, as unlike as can be",
    "pool-7": "of 7 such",
    "pool-close": "of 11 within 2 %, as unlike as can be",
    "halved": "of 14 within 5 %, of which 3 run on a fresh seed",
    "race": "of trials that ran at all sizes during the search, since they came near the best",
    "mean": "the best of a search whose trials all run at three sizes",
}
RULE_SETS = ("development", "held-out")


def robust() -> dict[str, Any]:
    """The comparison of rules, and what each costs and keeps."""
    found = results("tuner.json")["robust"]
    rows = []
    for name in RULE_SETS:
        for rule, row in found.get(name, {"rules": {}})["rules"].items():
            ahead = row["over_near"]
            rows.append(
                [
                    name,
                    RULES[rule],
                    *(f"{100 * value:+.1f}" for value in row["gain"].values()),
                    f"{100 * row['mean_gain']:+.2f}",
                    f"{ahead['better']}–{ahead['worse']}" if rule != "near" else "",
                    *(
                        percent(row[part]) if row[part] is not None else "–"
                        for part in ("lost_little", "kept_enough", "attained_enough", "harmful")
                    ),
                ]
            )
    head = ["cases", "chosen is", "1:8", "1:16", "1:4", "other streams", "mean"]
    head += ["better–worse", "lost at most 2 % at 1:8", "kept 85 %", "of the most", "harm"]
    return {
        "table": (head, rows),
        "studies": {name: found[name]["studies"] for name in RULE_SETS if name in found},
        "runs": {found[name]["runs"] for name in RULE_SETS if name in found},
        "tests": {found[name]["tests"] for name in RULE_SETS if name in found},
    }


CARRIED = {
    "none": "the defaults and a search",
    "top-1": "the simulated study's best first",
    "top-3": "its best 3",
    "top-7": "its best 7",
    "apart-3": "3 within 5 % of its best, as unlike as can be",
    "apart-7": "7 such",
    "prior-1": "its best first, and a model that knows its trials (`--from`)",
    "prior-3": "the 3 unlike ones, and such a model",
}


def carried() -> dict[str, Any]:
    """The comparison of what few trials make of a simulated study."""
    found = results("tuner.json")["carried"]
    sets = [name for name in RULE_SETS if name in found]
    parts = ("regret", "worst", "within")
    rows = [
        [name, CARRIED[rule], *(f"{100 * row[part]:.1f} %" for part in parts)]
        for name in sets
        for rule, row in found[name]["rules"].items()
    ]
    head = ["cases", "tried", "behind the best known, mean", "at worst", "within 2 % of it"]
    return {
        "table": (head, rows),
        "studies": {name: found[name]["studies"] for name in sets},
        **{key: found[sets[0]][key] for key in ("runs", "trials", "there")},
    }


def transfer() -> dict[str, Any]:
    """What configurations gain where they were not searched."""
    found = documents_transfer.published()
    rows = [
        [
            documents_transfer.WHERE[kind],
            str(cost.cases),
            f"{100 * cost.home:.1f} %",
            f"{100 * cost.there:.1f} %",
            str(cost.harmed),
            f"{100 * cost.worst:.1f} %",
        ]
        for kind in documents_transfer.Differs
        if (cost := found.differences.get(kind)) is not None
    ]
    head = ["used", "cases", "gain at home", "there", "slower there", "at worst"]
    ran = {
        name: ", ".join(f"`{each}`" for each in getattr(found, name))
        for name in ("workloads", "policies")
    }
    return {"table": (head, rows), **ran}


CONTENDERS = {
    "ours": "a study's",
    "no-starts": "the same without the space's starts",
    "forest": "the same by the forest alone",
    "smac": "SMAC as it comes",
    "tpe": "Optuna (TPE) as it comes",
    "random": "random",
}
WORKERS = {
    "workers-4": "pending trials at the median cost (a study's)",
    "W-least": "at the least",
    "W-mean": "at the mean",
    "W-model": "at what the model says",
}


def searches() -> dict[str, Any]:
    """The search beside others."""
    found = results("tuner.json")["search"]
    sets = {name: found[name] for name in RULE_SETS if name in found}
    rows = []
    beyond_chance: list[str] = []
    for name, one in sets.items():
        for contender in (each for each in CONTENDERS if each in one["contenders"]):
            row = one["contenders"][contender]
            against = row.get("against_ours")
            if contender == "no-starts" and not against["better"] + against["worse"]:
                continue  # they make no difference
            beyond_chance += [CONTENDERS[contender]] if against and against["p"] < 0.05 else []
            rows.append(
                [
                    name,
                    CONTENDERS[contender],
                    str(row["runs"]),
                    *(f"{100 * regret:.1f} %" for regret in row["regret"]),
                    *(percent(part) for part in row["within"]),
                    *_against(against),
                    f"{1000 * row['ask_seconds']:.0f} ms",
                ]
            )
    trials = next(iter(sets.values()))["trials"]
    head = ["cases", "search", "runs", *(f"regret at {n}" for n in trials)]
    head += [*(f"within 2 % at {n}" for n in trials), "better–worse", "p", "a proposal takes"]
    return {
        "table": (head, rows),
        "cases": {
            name: [f"`{case}`" for case in _cases(one["cases"])] for name, one in sets.items()
        },
        "budgets": {one["budget"] for one in sets.values()},
        "beyond_chance": beyond_chance,
        "not_run": {
            name: [
                said for contender, said in CONTENDERS.items() if contender not in one["contenders"]
            ]
            for name, one in sets.items()
        },
        "versions": next(iter(sets.values()))["versions"],
    }


def search_workers() -> dict[str, Any]:
    """What four workers cost a search."""
    found = results("tuner.json")["workers"]
    sets = {name: found[name] for name in RULE_SETS if name in found}
    rows = [
        [
            name,
            WORKERS[contender],
            str(row["runs"]),
            f"{row['over_one']:.2f}",
            # Resamples of very few pairs tell nothing.
            " to ".join(f"{e:.2f}" for e in row["interval"]) if row["runs"] >= 5 else "–",
            *_against(row["against_one"]),
        ]
        for name, one in sets.items()
        for contender, row in one["contenders"].items()
    ]
    head = ["cases", "assumed", "runs", "regret over one worker's", "95 %", "better–worse", "p"]
    one = next(iter(sets.values()))
    shown = [
        row["runs"] >= 5 and row["interval"][1] <= one["target"]
        for name, row in sets.get("held-out", one)["contenders"].items()
        if name == "workers-4"
    ]
    return {
        "table": (head, rows),
        "workers": one["workers"],
        "target": one["target"],
        "met": all(shown),
    }


def _against(pair: Mapping[str, Any] | None) -> list[str]:
    return [f"{pair['better']}–{pair['worse']}", f"{pair['p']:.2g}"] if pair else ["", ""]


def _cases(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(f"{row['workload']}:{row['policy']}" for row in rows))


def edges() -> dict[str, Any]:
    """Knobs whose best is on an edge of their range, and those without effect."""
    found = results("tuner.json")["edges"]["published"]
    widened = results("tuner.json")["search"]["widened"]
    rows = [
        [
            f"`{row['policy']}`",
            f"`{row['knob']}`",
            row["end"],
            f"{row['on_edge']} of {row['best']}",
            percent(row["chance"]),
            f"{row['adjusted']:.2g}",
            " to ".join(f"{limit:g}" for limit in row["range"]),
            " to ".join(f"{limit:g}" for limit in row["legal"]),
        ]
        for row in found["cases"]
    ]
    head = ["policy", "knob", "edge", "on it", "by chance", "p", "range", "limits"]
    return {
        "table": (head, rows),
        "edge": found["edge"],
        "least": found["least"],
        "idle": {
            policy: one | {"knobs": [f"`{name}`" for name in one["knobs"]]}
            for policy, one in found["idle"].items()
        },
        "wider": widened["contenders"]["ours"],
        "narrow": widened["contenders"]["narrow"],
        "widened": [f"`{case}`" for case in _cases(widened["cases"])],
    }


def stands_for() -> Table:
    """Servers and small copies that stand for them: what each says to use, and its gain."""

    def said(side: Mapping[str, Any]) -> str:
        chosen = str(side["chosen"])
        return f"`{chosen}`" if chosen == "first-touch" else f"`{chosen}` {gain(side['gain'])}"

    rows = []
    for row in results("stands-for.json")["cases"]:
        known = row["resized"]["stands_for"]
        rows.append(
            [
                f"`{row['case']}`",
                row["ratio"],
                f"{known['recorded_gib']:.3g} GiB, {known['recorded_seconds']:.3g} s",
                f"{known['passes']} times" if known["passes"] > 1 else "once",
                said(row["server"]),
                said(row["copy"]),
                f"{100 * row['apart']:.1f}",
                f"{100 * row['loss']:.1f}",
                f"{100 * _farthest(row):.1f}",
                "yes" if row["agree"] else "no",
            ]
        )
    head = ("server", "ratio", "copy", "steady phase comes", "server says", "copy says")
    return (*head, "gains apart", "loss", "any policy apart", "agree"), rows


def _apart(row: Mapping[str, Any]) -> list[float]:
    """By how much each policy's gain over first-touch differs between server and copy."""
    server, copy = row["server"]["gains"], row["copy"]["gains"]
    return [abs(copy[policy] - server[policy]) for policy in server]


def _farthest(row: Mapping[str, Any]) -> float:
    return max(_apart(row))


def stands_for_sentences() -> dict[str, Any]:
    found = results("stands-for.json")
    cases = found["cases"]
    rounds = {}
    for once in (True, False):
        rows = [r for r in cases if (r["resized"]["stands_for"]["passes"] == 1) == once]
        apart = [value for row in rows for value in _apart(row)]
        rounds[once] = {
            "within": sum(value <= found["points"] for value in apart),
            "all": len(apart),
        }
    return {
        "agree": found["agree"],
        "all": len(cases),
        "same": sum(row["same_choice"] for row in cases),
        "points": f"{100 * found['points']:g}",
        "policies": len(found["policies"]),
        "seeds": found["seeds"],
        "once": rounds[True],
        "repeated": rounds[False],
    }


def recorded_studies() -> Table:
    rows = []
    for row in results("recorded/figures.json")["studies"]:
        rows.append(
            (
                row["program"],
                f"{row['mib']:g}",
                si(row["accesses"]),
                f"{row['all_fast']:g}",
                row["policy"],
                f"{row['default']:g}",
                f"{row['best']:g}",
                gain(row["default"] / row["best"] - 1),
                f"{row['default_hits']:.0%} → {row['best_hits']:.0%}".replace("%", " %"),
                f"{row['trial_seconds']:.2f}",
                f"`{row['matters']}`",
            )
        )
    head = ("program", "MiB", "accesses", "all fast, s", "policy", "default, s", "best, s", "gain")
    return (*head, "fast hits", "s per trial", "matters most"), rows


def recorded_curves() -> Table:
    return (
        ("native kernel", "recorded", "cache : footprint, native", "recorded", "apart", "at"),
        [
            (
                row["kernel"],
                row["recorded"],
                row.get("cache_native", ""),
                row.get("cache_recorded", ""),
                f"{row['points']} points",
                f"the hottest {row['at']}",
            )
            for row in results("recorded/figures.json")["curves"]
        ],
    )


def recorded_programs() -> Table:
    rows = []
    for name, program in results("recorded/programs.json")["programs"].items():
        for run in program["runs"]:
            if "failed" in run:
                rows.append((name, program["does"], run["sampler"], *[""] * 8, run["failed"]))
                continue
            rows.append(
                (
                    name,
                    program["does"],
                    run["sampler"],
                    f"{run['mib']:.0f}",
                    f"{run['processes']}, {run['threads']}",
                    si(run["accesses"]),
                    percent(run["hottest"]["1%"]),
                    percent(run["hottest"]["10%"]),
                    percent(run["store_share"]),
                    f"{program['cpu_seconds']:.2f}",
                    f"{run['cpu_seconds'] / program['cpu_seconds']:.0f}×",
                    ", ".join(f"{value} {key}" for key, value in run["lacks"].items()) or "nothing",
                )
            )
    head = ("program", "does", "sampler", "MiB", "processes, threads at a time", "accesses")
    return (*head, "hottest 1 %", "hottest 10 %", "stores", "CPU, s", "slower", "lacks"), rows


def recorded_emulator() -> Table:
    rows = []
    for name, program in results("recorded/emulator.json")["programs"].items():
        native, emulated, recorded = (
            program["cpu_seconds"][way] for way in ("native", "emulated", "recorded")
        )
        times = (f"{seconds:.2f} s" for seconds in (native, emulated, recorded))
        slower = (f"{recorded / native:.0f}×", f"{recorded / emulated:.1f}×")
        rows.append((name, program["does"], *times, *slower))
    head = ("program", "does", "native", "emulator alone", "recorded")
    return (*head, "recorded : native", "recorded : emulator alone"), rows


def recorded_verdicts() -> Table:
    rows = []
    for name, program in results("recorded/programs.json")["programs"].items():
        found = next((run["verdict"] for run in program["runs"] if "verdict" in run), None)
        if found is None:
            rows.append((name, "none yet", "", ""))
            continue
        over = ""
        if found["gain"] is not None:
            over = f"{100 * found['gain']:+.1f} ± {100 * (found['half_width'] or 0):.1f} %"
        said = [re.split(r"[:;]", doubt)[0] for doubt in found["doubts"]]
        failed = [found["failed"].partition(". ")[0]] if found["advice"] == "no-result" else []
        rows.append((name, found["headline"], over, "; ".join(said + failed) or "none"))
    return ("program", "verdict", "best trial over first-touch", "warnings"), rows


def recorded_hint_fault() -> Table:
    rows = []
    for name, program in results("recorded/hint-fault.json")["programs"].items():
        exact = next(run for run in program["runs"] if run["sampler"] == "emulation")
        run = next(run for run in program["runs"] if run["sampler"] == "hint-fault")
        if "failed" in run or "failed" in exact:
            rows.append((name, *[""] * 3, run.get("failed", "no emulation to compare with")))
            continue
        top = run["hottest"]["10%"] - exact["hottest"]["10%"]
        stores = run["store_share"] - exact["store_share"]
        lacks = ", ".join(f"{value} {key}" for key, value in run["lacks"].items()) or "nothing"
        ratio = f"{run['accesses'] / exact['accesses']:.2g}×"
        rows.append((name, ratio, f"{100 * top:+.0f}", f"{100 * stores:+.0f}", f"lacks {lacks}"))
    head = ("program", "accesses", "hottest 10 %, points", "stores, points", "it said")
    return head, rows
