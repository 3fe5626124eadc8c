# SPDX-License-Identifier: MIT
"""Chooses the portfolio of `tune recommend` and measures what its advice is worth.

    python tests/bench/recommend.py [--workloads W,...] [--ratios 1:8,1:4]

Candidates are published tuned configurations (results/compare-tuned): of each workload those of the
`BEST` policies that are furthest ahead of first-touch there, and the defaults of these policies.
All of them run on all workloads at 1:8. The portfolio is chosen greedily: the next configuration is
the one that raises the geometric mean of the best of those kept most, over all workloads; where
none does, those that are left begin again. (That they do was decided after a look at eleven of the
workloads. All else was decided before the first run.)

What it is worth on a workload that it was not chosen on is measured by leaving workloads out: the
configurations that were tuned for them, and their part in the choice. That is done for one workload
at a time, and, since some workloads are relatives (six are of one benchmark suite), for a family at
a time. The best of the portfolio is chosen on one seed; the gains that are written are of another.

It is compared with the best configuration that is known of each workload (of all candidates, those
tuned for it included); with what a search of the recommended policy found there; with the
configurations of the workloads that are most alike by figures of their streams; and with defaults.

Writes results/portfolio.json. Runs are cached: the same command goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import starts

from tuner import engine
from tuner.compare import earlier
from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.errors import UserError
from tuner.experiment import jobs
from tuner.experiment.checks import OFF
from tuner.files import write_file
from tuner.objective import OBJECTIVES
from tuner.report import characteristics
from tuner.run import settings, streams
from tuner.run.trial import Trial, TrialResult
from tuner.scenario import Scenario
from tuner.terminal import say

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "results/compare-tuned/compare.json"
OUT = ROOT / "results/portfolio.json"

CHOSEN_AT = "1:8"
BEST = 2
LEAST = 0.01
"""A candidate's published gain over first-touch on its own workload."""
LEAST_ADDED = 1.001
SIZES = (1, 3, 5, 10)
KEPT = max(SIZES)
CHOICE_SEED = jobs.STUDY_SEED + 2
FRESH_SEED = CHOICE_SEED + 1
FAMILIES = (
    ("bc", "bfs", "cc", "graph500", "pr", "sssp", "tc"),  # graphs
    ("drift", "gups", "microbench"),  # synthetic
    ("cachelib", "redis"),  # caches
    ("btree", "silo"),  # indexes
    ("bwaves", "roms"),  # SPEC
)


@dataclass(frozen=True)
class Candidate:
    """`workload`: for which it was tuned; None: its policy's default."""

    policy: str
    workload: str | None
    knobs: tuple[tuple[str, KnobValue], ...]

    @property
    def name(self) -> str:
        return f"{self.policy} {'at its defaults' if not self.workload else f'of {self.workload}'}"


NOTHING = Candidate(OFF, None, ())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", help="that take part (default: all)")
    parser.add_argument("--ratios", default=CHOSEN_AT, help="of fast memory (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="default: results/portfolio.json")
    parser.add_argument("--only-run", action="store_true", help="run candidates, write nothing")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    names = args.workloads.split(",") if args.workloads else catalog.names(Kind.workload)
    content = earlier.read(ROOT / SOURCE)
    published = tuned(content)
    pool = candidates(content, published, catalog.names(Kind.workload))
    say(f"{len(pool)} candidates, of {len({c.policy for c in pool})} policies")
    bench = Bench(names, args.workers)
    for name in bench.names:
        bench.run([(each, name, CHOSEN_AT, CHOICE_SEED) for each in pool])
    if args.only_run:
        return 0
    evidence = {ratio: judged(bench, pool, published, ratio) for ratio in args.ratios.split(",")}
    gains = gains_of(bench, pool, names, CHOSEN_AT)
    kept = greedy(gains, names, range(len(pool)), KEPT)
    for k in SIZES:
        print(f"{k}: {mean([best(gains[name], kept[:k]) for name in names]):.3f}")
    found = {
        "source": SOURCE,
        "engine_build": engine.results_id(),
        "searches": content["tuned"],
        "candidates": len(pool),
        "portfolio": [shown(pool[i]) for i in kept],
        "evidence": evidence,
        "tuned": {
            policy: [
                shown(each)
                for each in unlike([c for c in published.values() if c.policy == policy])
            ]
            for policy in sorted({each.policy for each in published.values()})
        },
    }
    write_file(args.out, json.dumps(found, indent=1) + "\n")
    return 0


def shown(one: Candidate) -> dict[str, Any]:
    return {"policy": one.policy, "workload": one.workload, "knobs": dict(one.knobs)}


# --- What was published ---------------------------------------------------------------------------


def tuned(content: Mapping[str, Any]) -> dict[tuple[str, str], Candidate]:
    """Tuned configurations by workload and policy, as far as today's engine takes them."""
    found = {}
    for cell in content["cells"]:
        if (
            not cell["tuned"]
            or cell["page_bytes"] != BASE_PAGE_BYTES
            or cell["status"] != "success"
        ):
            continue
        if cell["ratio"] != CHOSEN_AT:  # the configuration is the same at all
            continue
        policy = engine.policy(cell["policy"])
        try:
            whole = engine.resolve(policy.name, cell["knobs"])
        except UserError as error:
            say(f"{policy.name} of {cell['workload']} is left out: {error}")
            continue
        usual = {knob.name: knob.default for knob in policy.knobs}
        knobs = {name: value for name, value in whole.items() if value != usual[name]}
        found[cell["workload"], policy.name] = Candidate(
            policy.name, cell["workload"], tuple(sorted(knobs.items()))
        )
    return found


def candidates(
    content: Mapping[str, Any],
    published: Mapping[tuple[str, str], Candidate],
    names: Sequence[str],
) -> list[Candidate]:
    """The published best of each workload, and the defaults of their policies: each once."""
    cells = {
        (cell["workload"], cell["policy"]): cell
        for cell in content["cells"]
        if cell["ratio"] == CHOSEN_AT
        and cell["page_bytes"] == BASE_PAGE_BYTES
        and cell["status"] == "success"
        and (cell["tuned"] or cell["policy"] == OFF)
    }

    def gain(name: str, policy: str) -> float:
        here, off = (statistics.fmean(cells[name, p]["objectives"]) for p in (policy, OFF))
        return OBJECTIVES[cells[name, policy]["objective"]].gain(here, off)

    found: list[Candidate] = []
    for name in names:
        able = [policy for workload, policy in published if workload == name]
        able.sort(key=lambda policy: -gain(name, policy))
        found += (published[name, p] for p in able[:BEST] if gain(name, p) >= LEAST)
    defaults = [Candidate(policy, None, ()) for policy in sorted({each.policy for each in found})]
    return [*defaults, *(each for each in unlike(found) if each.knobs)]


def unlike(found: Sequence[Candidate]) -> list[Candidate]:
    """The first of each configuration."""
    return list({(each.policy, each.knobs): each for each in reversed(found)}.values())[::-1]


# --- Runs -----------------------------------------------------------------------------------------

Run = tuple[Candidate, str, str, int]
"""What, on which workload, at which ratio, with which seed."""


class Bench:
    def __init__(self, names: Sequence[str], workers: int) -> None:
        self.names = list(names)
        self._workers = workers
        self._costs: dict[Run, float] = {}

    def run(self, wanted: Sequence[Run]) -> None:
        missing = [each for each in dict.fromkeys(wanted) if each not in self._costs]
        trials = {each: self._trial(*each) for each in missing}
        for stream in {trial.stream.key: trial.stream for trial in trials.values()}.values():
            streams.prepare(stream)
        done = starts.done(list(trials.values()), self._workers, f"{len(trials)} runs")
        for each, trial in trials.items():
            result = done[jobs.key_of(trial)]
            assert isinstance(result, TrialResult)
            if result.cost is None:
                say(f"{each[0].name} on {each[1]} at {each[2]}: {result.error}")
            self._costs[each] = math.inf if result.cost is None else result.cost

    def performance(self, one: Candidate, name: str, ratio: str, seed: int) -> float:
        """Over first-touch, which samples nothing."""
        self.run([(one, name, ratio, seed), (NOTHING, name, ratio, CHOICE_SEED)])
        off = self._costs[NOTHING, name, ratio, CHOICE_SEED]
        return off / self._costs[one, name, ratio, seed]

    def _trial(self, one: Candidate, name: str, ratio: str, seed: int) -> Trial:
        setting = settings.resolve(
            name,
            policy=engine.policy(one.policy),
            study="recommend",
            deadline_seconds=1800.0,
            ratio=ratio,
            page_bytes=BASE_PAGE_BYTES,
            **({"start": "fast"} if one is NOTHING else {}),
        )
        scenario = replace(setting.scenario, seed=seed)
        knobs = engine.resolve(one.policy, dict(one.knobs))
        return setting.model_copy(update={"scenario": scenario}).trial(0, knobs)


# --- The choice -----------------------------------------------------------------------------------

Gains = Mapping[str, Sequence[float]]
"""By workload: the performance of each candidate over first-touch."""


def gains_of(bench: Bench, pool: Sequence[Candidate], names: Sequence[str], ratio: str) -> Gains:
    bench.run([(each, name, ratio, CHOICE_SEED) for each in pool for name in names])
    return {
        name: [bench.performance(each, name, ratio, CHOICE_SEED) for each in pool] for name in names
    }


def greedy(gains: Gains, names: Sequence[str], able: Sequence[int], count: int) -> list[int]:
    """The next is the one with which the mean over the workloads is greatest. When none adds
    `LEAST_ADDED`, those that are left begin again, as if nothing were kept: second bests stand in
    on workloads of which these know nothing."""
    kept: list[int] = []
    layer: list[int] = []
    while len(kept) < min(count, len(able)):
        left = [i for i in able if i not in kept]

        def worth(more: Sequence[int], layer: Sequence[int] = tuple(layer)) -> float:
            return mean([best(gains[name], [*layer, *more]) for name in names])

        following = max(left, key=lambda i: worth([i]))
        if layer and worth([following]) < worth([]) * LEAST_ADDED:
            layer = []
            continue
        layer.append(following)
        kept.append(following)
    return kept


def best(row: Sequence[float], kept: Sequence[int]) -> float:
    """Never moving a page is always among what can be advised."""
    return max([1.0, *(row[i] for i in kept)])


def mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


# --- What the choice is worth ---------------------------------------------------------------------


def judged(
    bench: Bench,
    pool: Sequence[Candidate],
    published: Mapping[tuple[str, str], Candidate],
    ratio: str,
) -> dict[str, dict[str, Any]]:
    """By workload: performance over first-touch, on a fresh seed, of what each rule chooses."""
    names, home = bench.names, gains_of(bench, pool, bench.names, CHOSEN_AT)
    likeness = features(names)
    parts = {"workload": lambda name: {name}, "family": family}
    kept: dict[tuple[str, str], list[int]] = {}
    for part, apart in parts.items():
        for name in names:
            out = apart(name)
            able = [i for i, each in enumerate(pool) if each.workload not in out]
            kept[part, name] = greedy(home, [n for n in names if n not in out], able, KEPT)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        own = [i for i, each in enumerate(pool) if each.workload == name]
        near = nearest(likeness, pool, name, family(name))
        searched = searches(published, name, [pool[i].policy for i in kept["family", name]])
        wanted = {*own, *near, *(i for part in parts for i in kept[part, name])}
        if ratio == CHOSEN_AT:
            wanted |= set(range(len(pool)))
        tried = (NOTHING, *(pool[i] for i in sorted(wanted)), *searched.values())
        bench.run([(each, name, ratio, CHOICE_SEED) for each in tried])

        def on_choice(one: Candidate, name: str = name) -> float:
            return bench.performance(one, name, ratio, CHOICE_SEED)

        def choice(among: Sequence[int]) -> Candidate:
            return max((NOTHING, *(pool[i] for i in among)), key=on_choice)

        # A study is of the policy that is advised, or came nearest to it.
        policy = max((pool[i] for i in kept["family", name]), key=on_choice).policy
        advised: dict[str, dict[Any, Candidate]] = {
            **{part: {k: choice(kept[part, name][:k]) for k in SIZES} for part in parts},
            "nearest": {0: pool[near[0]] if near else NOTHING}
            | {k: choice(near[:k]) for k in SIZES},
            "of": {
                "known": choice(sorted(wanted)),
                "default": Candidate(Scenario.policy, None, ()),
                "search": max((NOTHING, searched[policy]), key=on_choice),
            },
        }
        every = {each for row in advised.values() for each in row.values()}
        bench.run([(each, name, ratio, FRESH_SEED) for each in every if each is not NOTHING])

        def fresh(one: Candidate, name: str = name) -> float:
            seed = CHOICE_SEED if one is NOTHING else FRESH_SEED
            return bench.performance(one, name, ratio, seed)

        found[name] = {
            **{what: fresh(one) for what, one in advised["of"].items()},
            "known_is": advised["of"]["known"].name,
            "search_is": policy,
            **{
                rule: {str(k): fresh(one) for k, one in advised[rule].items()}
                for rule in (*parts, "nearest")
            },
            **{f"{part}_is": advised[part][KEPT].name for part in parts},
        }
    return found


def searches(
    published: Mapping[tuple[str, str], Candidate], name: str, policies: Collection[str]
) -> dict[str, Candidate]:
    """What those of the policies found on a workload."""
    return {policy: published[name, policy] for policy in policies}


def family(name: str) -> set[str]:
    return set(next((each for each in FAMILIES if name in each), (name,)))


def features(names: Sequence[str]) -> dict[str, list[float]]:
    """Of the streams, each figure in standard deviations: how hot the hottest pages are, the share
    of stores, accesses of a page, and the footprint."""
    rows = {}
    for name in names:
        entry = catalog.workload(name)
        figures = characteristics.known(entry)[entry.spec.default_input].figures
        assert figures is not None
        rows[name] = [
            *figures.hottest.values(),
            figures.store_share,
            math.log(figures.accesses / figures.timed_pages),
            math.log(figures.footprint_gib),
        ]
    columns = list(zip(*rows.values(), strict=True))
    scales = [(statistics.fmean(each), statistics.pstdev(each) or 1.0) for each in columns]
    return {
        name: [(v - m) / s for v, (m, s) in zip(row, scales, strict=True)]
        for name, row in rows.items()
    }


def nearest(
    likeness: Mapping[str, Sequence[float]], pool: Sequence[Candidate], name: str, out: set[str]
) -> list[int]:
    """The best candidate of each other workload that has one, most alike first."""
    first = {each.workload: i for i, each in reversed(list(enumerate(pool))) if each.workload}
    able = sorted(
        (other for other in likeness if other in first and other not in out),
        key=lambda other: math.dist(likeness[name], likeness[other]),
    )
    return [first[workload] for workload in able]


if __name__ == "__main__":
    sys.exit(main())
