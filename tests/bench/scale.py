# SPDX-License-Identifier: MIT
"""Measures how far results depend on the scale of the miniature; writes results/scale.json.

    python tests/bench/scale.py [--workloads pr gups ...] [--policies hemem ...]
                                [--factors 0.5 1 2 4] [--workers 2] [--out results/scale.json]

The default input of every workload, under every policy with default knobs, at once, twice and four
times the scale R of that input, and what the streams hold at full scale. All policies run with
4 KiB pages. Those that manage 2 MiB pages also run with these, where the input declares an R for
them (`huge_scale`), at that and at twice it; with more, too few pages are left to tell anything. A
run that is refused for its few simulated fast pages is made all the same: that is what the refusal
is about.

A stream at R is the one that every other command uses, from the cache; the others are made in a
temporary folder and removed. Those at R/2 (`--factors 0.5 1 2 4`) take longer than all others
together. What came out is written after every stream. The next run makes only what is missing: of
another engine everything, and what a changed document makes different.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any
from unittest import mock

from tuner import engine
from tuner.documents import catalog
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.files import write_atomically
from tuner.run import cache, runner, settings, streams
from tuner.run.trial import Status, Trial

ROOT = Path(__file__).resolve().parents[2]
FACTORS = (1.0, 2.0, 4.0)
MOST_HUGE = 2.0
"""The largest factor for runs with 2 MiB pages."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One stream, and the policies to run on it."""

    workload: str
    page_bytes: int
    factor: float
    trials: Mapping[str, Trial]

    def __str__(self) -> str:
        return f"{self.workload}, pages of {self.page_bytes >> 10} KiB, {self.factor:g} R"


def load(path: Path) -> Figures:
    """What an earlier run of this engine has written; nothing of another engine's."""
    empty: Figures = {"engine": engine.ids()["whole"], "workloads": {}}
    try:
        found: Figures = json.loads(path.read_text())
    except FileNotFoundError:
        return empty
    return found if found["engine"] == empty["engine"] else empty


def had(results: Figures, work: Work) -> Figures:
    """The figures of its policies, by name."""
    sizes = results["workloads"].get(work.workload, {})
    found = sizes.get(str(work.page_bytes), {}).get(f"{work.factor:g}", {})
    policies: Figures = found.get("policies", {})
    return policies


def put(results: Figures, work: Work, found: Figures) -> None:
    found = found | {"policies": had(results, work) | found["policies"]}
    sizes = results["workloads"].setdefault(work.workload, {})
    sizes.setdefault(str(work.page_bytes), {})[f"{work.factor:g}"] = found


def all_work(
    workloads: Sequence[str], policies: Sequence[str], factors: Sequence[float]
) -> Iterator[Work]:
    """What could be done, the cheapest stream of each workload first."""
    for workload in workloads:
        spec = catalog.workload(workload).spec
        huge = spec.inputs[spec.default_input].huge_scale is not None
        for factor in sorted(factors, reverse=True):
            sizes: dict[int, dict[str, Trial]] = {}
            for name in policies:
                own = engine.policy(name).page_bytes
                wanted = {BASE_PAGE_BYTES} | ({own} if huge and factor <= MOST_HUGE else set())
                for size in wanted:
                    sizes.setdefault(size, {})[name] = trial(workload, name, size, factor)
            for size, trials in sorted(sizes.items()):
                yield Work(workload, size, factor, trials)


def trial(workload: str, policy: str, page_bytes: int, factor: float) -> Trial:
    given: dict[str, Any] = {"policy": engine.policy(policy), "page_bytes": page_bytes}
    usual = settings.resolve(workload, **given).scenario.scale
    setting = settings.resolve(workload, **given, scale=usual * factor)
    return setting.trial(0, {}).model_copy(update={"coarse": True})


@contextmanager
def stream_cache(factor: float, folder: Path) -> Iterator[None]:
    """The usual one, or one for the time being: nobody else wants streams at other scales."""
    if factor == 1:
        yield
        return
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        mock.patch.dict(os.environ, TIERTUNE_CACHE=own),
    ):
        yield


def measure(work: Work, folder: Path) -> Figures:
    """Runs in a worker. `folder` is for what the caller removes, should the worker be ended."""
    with stream_cache(work.factor, folder):
        stream = next(iter(work.trials.values())).stream
        info = engine.stream_info(streams.ensure(stream))
        scale = info["scale"]
        policies = {name: run(trial, scale) for name, trial in work.trials.items()}
    return {
        "scale": scale,
        "accesses": info["accesses"] * scale,
        "operations": info["operations"] * scale,
        "nominal_seconds": info["nominal_seconds"],
        "policies": policies,
    }


def run(trial: Trial, scale: float) -> Figures:
    result = runner.run(trial)
    found: Figures = {"key": cache.key(trial)}
    if result.status is not Status.success:
        return found | {"error": result.error}
    fast = result.metrics["fast_capacity_bytes"] / scale / trial.scenario.page_bytes
    return found | {"objective": result.objective, "fast_pages": round(fast)}


def execute(
    waiting: Sequence[Work], workers: int, done: Callable[[Work, Figures], None]
) -> list[str]:
    """Does all of it; `done` is called with the figures of each. What went wrong."""
    errors: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(workers, get_context("spawn")) as pool,
    ):
        try:
            running = {pool.submit(measure, work, Path(folder)): work for work in waiting}
            for future in as_completed(running):
                if error := future.exception():
                    errors.append(f"{running[future]}: {error!r}")
                else:
                    done(running[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # else a stream under way is waited for
                worker.terminate()
            raise
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    workloads = sorted(catalog.names(catalog.Kind.workload))
    policies = sorted(engine.policies())
    parser.add_argument("--workloads", nargs="+", default=workloads)
    parser.add_argument("--policies", nargs="+", default=policies, choices=policies)
    parser.add_argument("--factors", nargs="+", type=float, default=FACTORS)
    parser.add_argument("--workers", type=int, default=1, help="streams at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=ROOT / "results/scale.json")
    args = parser.parse_args()
    results = load(args.out)

    def done(work: Work, found: Figures) -> None:
        put(results, work, found)
        write_atomically(args.out, json.dumps(results, indent=1, sort_keys=True) + "\n")
        print(f"{work}: {', '.join(work.trials)}", file=sys.stderr, flush=True)

    waiting = []
    for work in all_work(args.workloads, args.policies, args.factors):
        known = had(results, work)
        left = {
            name: trial
            for name, trial in work.trials.items()
            if known.get(name, {}).get("key") != cache.key(trial)
        }
        if left:
            waiting.append(replace(work, trials=left))
    sys.exit("\n".join(execute(waiting, args.workers, done)) or 0)


if __name__ == "__main__":
    main()
