# SPDX-License-Identifier: MIT
"""tests/bench/search.py: what is compared is comparable, and figures are what they say."""

from __future__ import annotations

import argparse
import importlib.util
import math
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic import KNOBS

from tuner import engine
from tuner.declarations import KnobValue
from tuner.documents import catalog
from tuner.optimize.space import Space

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    sys.path.insert(0, str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_search", BENCH / "search.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCH))


def case_of() -> Any:
    """A valley on the knobs of synthetic studies; one mode fails."""
    space = Space(KNOBS)
    start = space.default() | {"period": 17}

    def cost(knobs: dict[str, KnobValue]) -> float | None:
        if knobs["mode"] == "lazy":
            return None
        return 1 + abs(math.log(float(knobs["period"]) / 40)) + float(knobs["share"])

    return SimpleNamespace(tuned=KNOBS, fixed=[], starts=[start], space=space, cost=cost)


@pytest.mark.parametrize(
    "name", ["ours", "no-starts", "random", "tpe", "smac", "forest", "workers-4", "W-model"]
)
def test_a_contender_tries_the_default_first_and_legal_values_only(bench: Any, name: str) -> None:
    if name == "tpe":
        pytest.importorskip("optuna")
    case = case_of()
    found = bench.searched(case, bench.CONTENDERS[name](case, 3, 16), 16)
    tried = found["knobs"]
    assert tried[0] == case.space.default()
    assert (tried[1] == case.starts[0]) == (name in ("ours", "forest", "workers-4", "W-model"))
    for knobs in tried:
        configuration = case.space.configuration(knobs)
        assert configuration is not None and case.space.knobs(configuration) == knobs
    assert found["costs"] == [case.cost(knobs) for knobs in tried]
    assert len({tuple(knobs.items()) for knobs in tried}) > 12
    again = bench.searched(case, bench.CONTENDERS[name](case, 3, 16), 16)
    assert again["knobs"] == tried


def test_the_forest_alone_differs_where_the_process_is_to_propose(bench: Any) -> None:
    case = case_of()
    run = {n: bench.searched(case, bench.CONTENDERS[n](case, 3, 8), 8) for n in ("ours", "forest")}
    initial = 2  # of a budget of 8
    first = next(n for n in range(8) if run["ours"]["knobs"][n] != run["forest"]["knobs"][n])
    assert first >= initial and first % 2 == 0


def test_pending_trials_are_assumed_as_the_contender_says(bench: Any) -> None:
    case = case_of()

    def assumed(kind: Any) -> dict[int, float]:
        optimizer = kind(KNOBS, seed=1, initial=9, lag=4)
        for number in range(9):
            cost = case.cost(optimizer.ask().knobs) or 9.0
            optimizer.tell(number, cost)
        known = {n: optimizer._costs[n] for n in range(6)}
        found: dict[int, float] = optimizer._assumed([6, 7, 8], known, 5)
        costs.update(known)
        return found

    costs: dict[int, float] = {}
    least, mean, model = (assumed(kind) for kind in (bench.Least, bench.Mean, bench.Believer))
    assert least == dict.fromkeys([6, 7, 8], min(costs.values()))
    assert mean[6] == pytest.approx(math.prod(costs.values()) ** (1 / 6))
    assert set(model) == {6, 7, 8} and len(set(model.values())) > 1
    assert all(min(costs.values()) <= cost <= max(costs.values()) for cost in model.values())


def test_narrow_ranges_have_the_default_and_are_narrower(bench: Any) -> None:
    for policy, knobs in bench.NARROW.items():
        declared = engine.policy(policy)
        tuned = {k.name: k for k in catalog.tuned_knobs(catalog.space(policy).spec, declared)}
        for name, limits in knobs.items():
            knob = tuned[name]
            for end, value in limits.items():
                outer = getattr(knob, end)
                low = end == "min"
                assert outer < value <= knob.default if low else knob.default <= value < outer


def test_edges_are_counted_against_chance(bench: Any) -> None:
    edges = runpy.run_path(str(BENCH / "edges.py"))
    space = Space(KNOBS)
    default = space.default()
    found = [default | {"period": period} for period in (1, 9_999, 100, 90)]  # 100: the default
    counts = edges["counted"](space, found)
    assert counts["period"] == {"all": 3, "low": 1, "high": 1}
    assert "aol.low" not in counts  # it does not act
    counts = edges["counted"](space, [default | {"aol": True, "aol.low": 99.0}])
    assert counts["aol.low"] == {"all": 1, "low": 0, "high": 1}


def test_what_a_knob_explains_is_found_on_trials_not_seen(bench: Any) -> None:
    edges = runpy.run_path(str(BENCH / "edges.py"))
    space, rng = Space(KNOBS), np.random.default_rng(3)
    drawn = [space.sample(rng) for _ in range(80)]
    parts = edges["explained"](space, [(knobs, float(knobs["share"])) for knobs in drawn])
    assert parts["share"] > 1
    assert all(abs(part) < edges["LEAST"] * 4 for name, part in parts.items() if name != "share")


def run(least: list[float]) -> dict[str, Any]:
    return {"least": least, "ask_seconds": 0.1}


def test_regret_is_over_the_best_of_all_runs_of_the_case(bench: Any) -> None:
    def case(workload: str, seed: int, ours: float, tpe: float) -> dict[str, Any]:
        start = 7.0 if workload == "v" else 3.0
        found = {"ours": run([start, ours]), "tpe": run([start, tpe])}
        return {"workload": workload, "policy": "p", "seed": seed, "found": found}

    found = [case("w", 0, 2.0, 2.5), case("w", 1, 1.9, 1.9), case("v", 0, 6.5, 6.0)]
    rows = bench.regrets(found, [1, 2])
    assert [row["regret"] for row in rows] == [
        {"ours": [1.1, 0.1], "tpe": [1.1, 0.6]},
        {"ours": [1.1, 0.0], "tpe": [1.1, 0.0]},
        {"ours": [1.0, 0.5], "tpe": [1.0, 0.0]},
    ]
    figures = bench.summary(rows, [1, 2])
    assert figures["ours"]["regret"][1] == pytest.approx(0.2)
    assert figures["ours"]["within"] == [0, pytest.approx(1 / 3)]
    against = figures["tpe"]["against_ours"]
    assert (against["better"], against["worse"]) == (1, 1)
    assert against["regrets"] == pytest.approx([0.2, 0.2]) and against["p_signs"] == 1.0
    del rows[0]["regret"]["tpe"]  # that was not run
    figures = bench.summary(rows, [1, 2])
    assert (figures["ours"]["runs"], figures["tpe"]["runs"]) == (3, 2)
    assert figures["tpe"]["against_ours"]["regrets"] == pytest.approx([0.0, 0.25])


def test_tests_of_pairs_tell_a_difference_from_none(bench: Any) -> None:
    def rows(apart: list[float]) -> list[dict[str, Any]]:
        return [{"regret": {"a": [0.5 + each], "b": [0.5]}} for each in apart]

    clear = bench.paired(rows([-0.1 - 0.01 * n for n in range(10)]), "a", "b")
    assert (clear["better"], clear["worse"]) == (10, 0)
    assert clear["p"] == pytest.approx(2 / 2**10) and clear["p_signs"] == pytest.approx(2 / 2**10)
    even = bench.paired(rows([0.1, -0.1, 0.2, -0.2]), "a", "b")
    assert even["p"] == 1.0 and even["regrets"] == pytest.approx([0.5, 0.5])
    assert bench.paired(rows([0.0, 0.0]), "a", "b")["p"] == 1.0


def test_workers_cost_their_regret_over_that_of_one(bench: Any) -> None:
    rows = [{"regret": {"ours": [0.1 * n], "workers-4": [0.12 * n]}} for n in range(1, 9)]
    found = bench.on_workers(rows, "workers-4")
    assert found["over_one"] == pytest.approx(1.2)
    assert found["interval"] == [pytest.approx(1.2), pytest.approx(1.2)]
    assert found["against_one"]["worse"] == 8


def test_kept_values_are_there_again(bench: Any, tmp_path: Path) -> None:
    args = argparse.Namespace(work=tmp_path, input="default", page_bytes=4096)
    unit = (args, "w", "p", 3)
    kept = bench.Kept(unit)
    assert "a" not in kept
    kept.keep("a", None)
    kept.keep("b", [1])
    kept.keep("b", [2])
    again = bench.Kept(unit)
    assert "a" in again and again.get("a") is None and again.get("b") == [2]
    assert "a" not in bench.Kept((args, "w", "p", 4))


def test_published_reasons_are_compared_by_shares_of_the_gain() -> None:
    reasons = runpy.run_path(str(BENCH / "reasons.py"))
    hemem = {knob.name for knob in engine.policy("hemem").knobs}
    for _, knobs in reasons["PUBLISHED"].values():
        assert set(knobs) <= hemem
    published = {"why": "", "knobs": ["sampling_period", "cooling_pages"]}
    cases = [
        {"shares": {"sampling_period": 0.6, "read_hot_threshold": 0.4}, "published": published},
        {
            "shares": {"read_hot_threshold": 0.75, "cooling_pages": 0.25, "sampling_period": -0.1},
            "published": published,
        },
        {"shares": {}, "published": published},
    ]
    found = reasons["figures"](cases)
    assert (found["explained"], found["first_is_published"]) == (2, 1)
    assert (found["both"], found["published"]) == (2, 4)
