# SPDX-License-Identifier: MIT
"""Writes the tables and pictures of the documents from the files in results/ and the engine.

    python docs/tables.py            which files are out of date (exit code 1 if any is)
    python docs/tables.py --write    write them anew

In a Markdown file a generated part stands between `<!-- made: NAME -->` and `<!-- end -->`; its
text is what `PARTS[NAME]` returns. `tests/tuner/test_docs.py` fails when a part differs from its
source. What a results file holds, and which command measures it, is in results/README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import runpy
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import picture

from tuner import ranking
from tuner.study.verified import COLUMNS, Verified, sentences
from tuner.study.verified import rows as rows_of

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- made: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# --- Sources --------------------------------------------------------------------------------------


@cache
def results(name: str) -> Any:
    """A file of results/."""
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@cache
def tune(*words: str) -> Any:
    """What a listing command of the installed tuner prints as JSON."""
    command = [sys.executable, "-m", "tuner", *words, "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


# --- Text -----------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def si(value: float, digits: int = 3) -> str:
    """1234567 as 1.23 M"""
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 999.5:
            return f"{value:.{digits}g}{unit}"
        value /= 1000
    return f"{value:.{digits}g} P"


def objective(value: float, name: str) -> str:
    """`runtime` in seconds, `throughput` in operations a second."""
    return f"{value:.4g} s" if name == "runtime" else f"{si(value, 4)}/s"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def gain(value: float) -> str:
    return f"{100 * value:+.1f} %"


def better(value: float, reference: float, name: str) -> float:
    """The gain of a value over a reference, as the tuner counts it: above 0 is better."""
    return reference / value - 1 if name == "runtime" else value / reference - 1


# --- README ---------------------------------------------------------------------------------------


def first_result() -> str:
    measured = results("pristine.json")
    seconds = measured["seconds"]
    first, end = seconds["clone to first trial"], seconds["clone to end of make run"]
    return (
        f"From `git clone` to the first trial takes {first:.0f} s, to the end of `make run` "
        f"{end:.0f} s\n(new Debian, {measured['cores']} cores, {measured['mbit']:g} Mbit/s)."
    )


def study_command() -> str:
    return f"```sh\n{results('study.json')['command']}\n```"


def study_output() -> str:
    return "```text\n" + "\n".join(results("study.json")["output"]) + "\n```"


def study_sentence() -> str:
    study = results("study.json")
    name, references = study["objective"], study["references"]
    over_default = 1 + better(study["best"], study["default"], name)
    over_first_touch = 1 + better(study["best"], references["first-touch"], name)
    fast = 1 + better(study["best"], references["all-fast"], name)
    return (
        f"{len(study['trials'])} trials: {over_default:.2g} times the speed of the default knobs, "
        f"{over_first_touch:.2g} times that of never moving\na page (`first-touch`), and "
        f"{100 * fast:.0f} % of that of a machine with fast memory only (`all-fast`)."
    )


def fidelity() -> str:
    claims = results("claims.json")
    verdicts = [claim["verdict"] for claim in claims["claims"]]
    judged = [claim for claim in claims["claims"] if claim["verdict"] != "not evaluable"]
    builds = len({claim["build"] for claim in judged})
    mixed = "\nThese are figures of several builds of the engine: `results/claims.md` names them."
    return (
        f"Of {len(verdicts)} claims of four papers {verdicts.count('pass')} come out, "
        f"{verdicts.count('fail')} do not, and {verdicts.count('not evaluable')} cannot be "
        f"judged yet. Who takes the\nsystem that is best in the simulator loses "
        f"{percent(claims['regret'])} of the best published performance on average and "
        f"{percent(claims['worst_regret'])} at worst,\nwhere a choice at random loses "
        f"{percent(claims['regret_by_chance'])}. Of pairs of systems that are published as more "
        f"than a tenth apart,\n{percent(claims['reversed_far'])} come out the other way round. "
        f"Kendall's τ between published and simulated orders is {claims['ordering_tau']:.2f}, "
        f"of\n{claims['tau_ceiling']:.2f} that tables measured again would have; slowdowns are "
        f"{claims['mean_error_points']:.1f} points of % of all-fast off on average,"
        f"\n{percent(claims['points_within_10'])} of them within ten points."
        f"{mixed if builds > 1 else ''}"
    )


# --- docs/tuning-results.md -----------------------------------------------------------------------

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


def tuned_workloads() -> str:
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
    return table([*head, *measured_references()], rows)


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


def systems() -> str:
    ratios = compared_ratios()
    order = tuned_systems(ratios[results("compare-tuned/compare.json")["tuned"]["ratio"]])

    def cell(lines: Mapping[tuple[str, bool], Any], name: str) -> str:
        found = (lines.get((name, tuned)) for tuned in (False, True))
        return " → ".join(f"{mean(line):.3f}" for line in found if line)

    return table(
        ("default → tuned", *ratios),
        [
            (f"`{name}`", *(cell(lines, name) for lines in ratios.values()))
            for name in (*order[:SHOWN_SYSTEMS], *BOUNDS)
        ],
    )


def systems_sentence() -> str:
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
    return (
        f"`unified` is ours. Tuned, it is {', '.join(ahead)}, the best other systems there.\n"
        f"On {level} of {places} pairs of workload and ratio it is ahead of the best of all "
        "others, or within 1 % of it.\nIts searches alone start from configurations that were "
        f"chosen over these workloads; without them they come to {', '.join(unstarted)}."
    )


def streams() -> str:
    return table(
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


def tuned_with() -> str:
    rows = results("workloads.json")["workloads"].values()
    budgets = " or ".join(str(n) for n in sorted({row["budget"] for row in rows}))
    builds = ", ".join(f"`{b}`" for b in sorted({row["engine_build"] for row in rows}))
    parts = [f"`{name}` {REFERENCES[name]}" for name in measured_references()]
    beside = f" Without knobs: {', '.join(parts)}." if parts else ""
    return f"Budget: {budgets} trials. Engine build: {builds}.{beside}"


# --- docs/workloads.md, machines.md, policies.md --------------------------------------------------


def inputs() -> str:
    """Figures are the shipped ones: the listing also knows those of streams in the cache."""
    measured = json.loads((ROOT / "workloads/characteristics.json").read_text(encoding="utf-8"))
    rows = []
    for workload in tune("workloads")["workloads"]:
        for name, given in workload["inputs"].items():
            figures = measured.get(workload["name"], {}).get(name)
            gib = (figures or given)["footprint_gib"]
            default = " (default)" if name == workload["default_input"] else ""
            rows.append(
                (
                    f"`{workload['name']}`",
                    f"`{name}`{default}",
                    f"{gib:.3g}" if gib else "not measured",
                    si(figures["accesses"] * figures["scale"]) if figures else "not measured",
                    f"{given['scale'] or workload['scale']:g}",
                    f"`{workload['machine']}`",
                    given["summary"],
                )
            )
    return table(("workload", "input", "GiB", "accesses", "R", "machine", "summary"), rows)


def machines() -> str:
    head = ("machine", "threads", "fast: ns", "GB/s", "slow: ns", "read GB/s", "write GB/s")
    return table(
        (*head, "summary"),
        [
            (
                f"[`{m['name']}`](../engine/machines/{m['name']}.yaml)",
                f"{m['threads']:g}",
                f"{m['fast']['latency_ns']:g}",
                f"{m['fast']['read_gbps']:g}",
                f"{m['slow']['latency_ns']:g}",
                f"{m['slow']['read_gbps']:g}",
                f"{m['slow']['write_gbps']:g}",
                m["summary"],
            )
            for m in tune("machines")["machines"]
        ],
    )


def cited(policy: Mapping[str, Any]) -> str:
    """The citation, with a link to each place where something of it stands."""
    links = [f"[{urlsplit(url).netloc}]({url})" for url in policy["addresses"]]
    return "; ".join([policy["citation"], *links])


def policies() -> str:
    return table(
        ("policy", "family", "knobs", "claims passed", "failed", "what it is", "published in"),
        [
            (
                f"`{p['name']}`",
                p["family"],
                str(len(p["knobs"])),
                *(str(p["claims"].get(v, 0)) if p["claims"] else "" for v in ("pass", "fail")),
                p["summary"],
                cited(p),
            )
            for p in tune("policies")["policies"]
        ],
    )


def value(knob: Mapping[str, Any], key: str) -> str:
    found = knob[key]
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if isinstance(found, str) else f"{found:g}"


def tuned_in(knob: Mapping[str, Any]) -> str:
    tuned = knob["tuned"]
    if tuned is None:
        return "not tuned"
    if knob["type"] == "boolean":
        return "true, false"
    if knob["type"] == "choice":
        return ", ".join(tuned["choices"])
    return f"{tuned['min']:g} to {tuned['max']:g}" + (", log" if knob["log"] else "")


def knobs() -> str:
    """A section per policy. What several policies declare alike (AOL's) is listed once, last."""
    policies = tune("policies")["policies"]
    declared = {p["name"]: tune("knobs", p["name"])["knobs"] for p in policies if p["knobs"]}
    sections = [
        (f"`{name}`", [k for k in listed if not k["name"].startswith("aol.")])
        for name, listed in declared.items()
    ]
    regulated = max(declared.values(), key=lambda listed: len([k for k in listed if k["tuned"]]))
    aol = [k for k in regulated if k["name"].startswith("aol.")]
    sections.append(("Regulation by amortised offcore latency", aol))
    return "\n\n".join(
        f"### {title}\n\n"
        + table(
            ("knob", "default", "tuned in", "unit", "meaning", "source"),
            [
                (
                    f"`{k['name']}`",
                    value(k, "default"),
                    tuned_in(k),
                    k["unit"].replace("_", " "),
                    k["meaning"].replace("|", "\\|"),
                    k["source"].replace("|", "\\|"),
                )
                for k in listed
            ],
        )
        for title, listed in sections
        if listed
    )


# --- docs/accuracy.md, benchmarks.md --------------------------------------------------------------


STRIKING = 0.03
"""A difference between scales that is set in bold."""


def scales() -> str:
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
    return table(
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


def scales_within() -> str:
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
    return (
        f"{len(results('scale.json')['workloads'])} workloads, {len(policies)} policies: "
        f"{sum(within)} of {len(within)} results at other scales are within 3 % of that at R."
    )


def benchmarks() -> str:
    bench = runpy.run_path(str(ROOT / "tests/bench/run.py"))
    return f"```text\n{bench['table'](results('bench.json'))}\n```"


# --- results/recorded/README.md -------------------------------------------------------------------


def parallelism() -> str:
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
    names = ", ".join(name.removesuffix(":smoke") for name in found["workloads"])
    head = (
        "workers",
        "best over default",
        f"times as fast, trials of {1000 * alone['trial_seconds']:.0f} ms",
        f"times as fast, trials of {found['long_seconds']:.0f} s",
    )
    return (
        f"{table(head, rows)}\n\n{found['budget']} trials of {found['policy']} on the smoke inputs "
        f"of {names}, geometric mean over these and {found['seeds']} seeds, on a seed that no "
        "search has seen; computed from measured processor times: "
        f"{1000 * alone['ask_seconds']:.0f} ms for a proposal."
    )


def fleets() -> str:
    found = results("fleet.json")
    rows = [
        [str(row["trials"]), gain(row["equal"]), gain(row["adaptive"]), spread(row["granted"])]
        for row in found["rows"]
    ]
    head = ("trials a study", "equal parts", "where studies still gain", "which gives a study")
    runs = "" if found["seeds"] == 1 else f" and {found['seeds']} seeds"
    return (
        f"{table(head, rows)}\n\nBest over default, geometric mean over {found['studies']} studies"
        f"{runs}: the smoke inputs of all workloads under {' and '.join(found['policies'])}, on a "
        "seed that no search has seen."
    )


def spread(granted: Sequence[Sequence[int]]) -> str:
    """Least, median and most trials of a study."""
    counts = sorted(count for each in granted for count in each)
    return f"{counts[0]} to {counts[-1]}, median {statistics.median(counts):g}"


def throughput() -> str:
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
    return (
        f"{table(head, rows)}\n\n{found['trials']} trials of {found['policy']} on "
        f"{found['workload']}, on {found['cpus']} CPUs, the driver included; means of a trial."
    )


def recorded_studies() -> str:
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
    return table((*head, "fast hits", "s per trial", "matters most"), rows)


def recorded_curves() -> str:
    return table(
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


def service() -> str:
    """The systemd unit, without its licence."""
    text = (ROOT / "engine/tierd/tierd@.service").read_text(encoding="utf-8")
    return f"```ini\n{text.split(chr(10), 1)[1].rstrip()}\n```"


def emulated_cells() -> dict[tuple[str, str], dict[str, list[dict[str, Any]]]]:
    """Cells by workload and ratio, then by policy, `first-touch` first: one for each layout."""
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for cell in results("emulated.json")["cells"]:
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


def emulated() -> str:
    def means(cells: Sequence[dict[str, Any]], what: str) -> list[str]:
        pairs = [cell["figures"][what] for cell in cells]
        return [
            "-" if None in figures else f"{statistics.fmean(figures):,.0f}"
            for figures in zip(*pairs, strict=True)
        ]

    rows = []
    for (workload, ratio), cells in emulated_cells().items():
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
    return table(
        (*head, "simulated", "fast hits, %", "simulated", "pages moved", "simulated"), rows
    )


def verifications() -> Iterator[tuple[str, Verified]]:
    for path in sorted((ROOT / "results/verified").glob("*.json")):
        yield path.stem, Verified.model_validate_json(path.read_text())


def verified() -> str:
    head = ("study", *(name.lstrip(">") for name in COLUMNS))
    rows = [(f"`{name}`", *row) for name, found in verifications() for row in rows_of(found)]
    return table(head, rows)


def verified_sentences() -> str:
    lines = []
    for name, found in verifications():
        first, second, *others = sentences(found)
        tau = next((line for line in others if line.startswith("Kendall")), "")
        lines.append(f"- `{name}`: {first[0].lower()}{first[1:]} {second} {tau}".rstrip())
    return "\n".join(lines)


def emulated_costs() -> str:
    def shown(figure: float | None, unit: str) -> str:
        return "" if figure is None else f"{figure:.3g} {unit}"

    return table(
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


def emulated_sentence() -> str:
    """The two figures that lead, the order of policies and errors of run time, beside what layouts
    change in the machine itself."""
    pairs, errors, spreads, reversed_far, far = [], [], [], 0, 0
    for cells in emulated_cells().values():
        times = {
            policy: (statistics.fmean(real), said)
            for policy, (real, said) in relative_times(cells).items()
        }
        errors += [abs(a - b) * 100 for name, (a, b) in times.items() if name != "first-touch"]
        spreads += [
            (max(real) - min(real)) * 100
            for real, _ in relative_times(cells).values()
            if len(real) > 1
        ]
        for one, two in itertools.combinations(times.values(), 2):
            real = ranking.order(one[0], two[0], ranking.NOISE)
            said = ranking.order(one[1], two[1], ranking.NOISE)
            pairs.append((real, said))
            if abs(one[0] - two[0]) > 0.1 * min(one[0], two[0]):
                far += 1
                reversed_far += real * said < 0
    found = ranking.tau(pairs)
    within = sum(error <= 10 for error in errors)
    counted = f"{reversed_far} of {far} pairs" if far else "no pair is that far apart"
    sentences = [
        f"Kendall's tau of the order of policies is {found:.2f} over {len(pairs)} pairs, and "
        f"reversals where the machine's run times differ by more than 10 %: {counted}.",
        f"Run time relative to first-touch is within 10 points in {within} of {len(errors)} cells; "
        f"the largest error is {max(errors):,.0f} points.",
    ]
    if spreads:
        most = f"{max(spreads):,.0f}"
        sentences.append(f"Layouts of memory change one by up to {most} points in the machine.")
    return " ".join(sentences)


PARTS: dict[str, Callable[[], str]] = {
    "first-result": first_result,
    "study-command": study_command,
    "study-output": study_output,
    "study-sentence": study_sentence,
    "fidelity": fidelity,
    "tuned-workloads": tuned_workloads,
    "tuned-with": tuned_with,
    "systems": systems,
    "systems-sentence": systems_sentence,
    "streams": streams,
    "inputs": inputs,
    "machines": machines,
    "policies": policies,
    "knobs": knobs,
    "scales": scales,
    "scales-within": scales_within,
    "benchmarks": benchmarks,
    "parallelism": parallelism,
    "throughput": throughput,
    "fleets": fleets,
    "recorded-studies": recorded_studies,
    "recorded-curves": recorded_curves,
    "service": service,
    "emulated": emulated,
    "verified": verified,
    "verified-sentences": verified_sentences,
    "emulated-costs": emulated_costs,
    "emulated-sentence": emulated_sentence,
}


# --- Files ----------------------------------------------------------------------------------------


def documents() -> Iterator[Path]:
    """The Markdown files that may have generated parts."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))
    yield ROOT / "results/recorded/README.md"


def rewritten(text: str) -> str:
    """The text with its generated parts made anew. KeyError for a part that nothing makes."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n\n{found[3]}", text)


def pictures() -> dict[Path, str]:
    """Generated pictures and their content."""
    return {ROOT / "docs/study.svg": picture.study(results("study.json"))}


def changed() -> dict[Path, str]:
    """Files that are not what their sources make, and what they ought to be."""
    wanted = {path: rewritten(path.read_text(encoding="utf-8")) for path in documents()}
    return {
        path: text
        for path, text in (wanted | pictures()).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write what differs")
    args = parser.parse_args()
    found = changed()
    for path, text in found.items():
        if args.write:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'written' if args.write else 'out of date'}")
    return 1 if found and not args.write else 0


if __name__ == "__main__":
    sys.exit(main())
