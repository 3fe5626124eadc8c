# SPDX-License-Identifier: MIT
"""tune size: where the search ends, what is run and kept, and what is written."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import POLICIES, ROOT, FakeNative
from test_best import BEST
from test_compare import Inline

from tuner import cli, engine
from tuner.declarations import PolicyDecl
from tuner.report.pictures import png
from tuner.run import pool, pools, runner
from tuner.run.trial import Status, Trial, TrialResult
from tuner.size import plan
from tuner.size.search import RESOLUTION, SEARCH_SEED, Search
from tuner.study import best

# --- The search -----------------------------------------------------------------------------------

Curve = Callable[[int, int], float]
"""Slowdown by size and seed."""


def search(curve: Curve, *, seeds: tuple[int, ...] = (), empty: float = 1.0, least: int = 1,
           bound: float = 0.05) -> tuple[Search, int]:  # fmt: skip
    """A search to its end, and how many runs it took."""
    found = Search(least=least, whole=1000, bound=bound, empty=empty, seeds=seeds)
    runs = 0
    while wanted := found.wanted():
        for size, seed in wanted:
            assert seed not in found.runs.get(size, {}), "a run that was made before"
            found.take(size, seed, curve(size, seed))
            runs += 1
        assert runs < 200
    return found, runs


def falling(size: int, seed: int = 0) -> float:
    """Meets 5 % from 475 on."""
    return 0.1 * (1 - size / 950)


def test_the_least_size_is_found_to_a_twentieth() -> None:
    found, runs = search(falling)
    low, high = found.bounds
    assert found.answer == high
    assert high is not None
    assert low < 475 <= high
    assert high - low <= RESOLUTION * high
    assert runs <= len(found.grid) + 4
    assert (found.early, found.rises, found.least_meets) == ([], [], False)


def test_a_size_below_the_grid_is_found() -> None:
    found, _ = search(lambda size, seed: 0.0 if size >= 7 else 0.9)
    assert found.answer == 7
    assert found.bounds == (6, 7)


def test_the_least_that_can_be_run_is_the_end() -> None:
    found, _ = search(lambda size, seed: 0.0, least=5)
    assert found.answer == 5
    assert found.least_meets
    assert not search(falling, least=5)[0].least_meets
    assert min(found.runs) == 5


def test_no_fast_memory_may_be_needed() -> None:
    found, runs = search(falling, empty=0.04)
    assert found.answer == 0
    assert runs == len(found.grid)  # the curve is drawn all the same


def test_even_all_of_it_may_be_too_little() -> None:
    found, _ = search(lambda size, seed: 0.2, seeds=(0, 1))
    assert found.answer is None
    assert set(found.runs[1000]) == {SEARCH_SEED, 0, 1}
    assert all(set(runs) == {SEARCH_SEED} for size, runs in found.runs.items() if size != 1000)


def test_the_whole_footprint_may_be_needed() -> None:
    found, _ = search(lambda size, seed: 0.0 if size == 1000 else 0.2)
    assert found.answer == 1000


def bumpy(size: int, seed: int = 0) -> float:
    """Meets 5 % from 100 to 300, and from 600 on."""
    return 0.0 if 100 <= size < 300 or size >= 600 else 0.3


def test_the_answer_is_above_all_that_fail() -> None:
    """A bisection of the whole range would end at 100."""
    found, _ = search(bumpy)
    assert found.answer is not None
    assert 600 <= found.answer <= 600 / (1 - RESOLUTION)
    assert found.early == [125, 250]
    (rise,) = found.rises
    assert (rise.smaller, rise.larger, rise.before, rise.after) == (250, 375, 0.0, 0.3)


def test_noise_is_no_contradiction() -> None:
    found, _ = search(lambda size, seed: falling(size) + 0.005 * (size == 750))
    assert found.rises == []


def test_held_out_seeds_overrule_the_search() -> None:
    """The search's seed is lucky: it meets the bound from 475 on, the others from 570 on."""

    def lucky(size: int, seed: int) -> float:
        return falling(size) + (0 if seed == SEARCH_SEED else 0.01)

    found, _ = search(lucky, seeds=(0, 1, 2))
    assert found.answer is not None
    assert 570 <= found.answer <= 570 / (1 - RESOLUTION) + 1
    assert found.at(found.answer).half_width == pytest.approx(0)
    low, high = found.bounds
    assert low < 570 <= (high or 0)


def test_the_interval_ends_where_there_is_no_doubt() -> None:
    """Seeds differ by more than a step of the search: sizes near the edge are in doubt."""

    def uncertain(size: int, seed: int) -> float:
        return falling(size) + {SEARCH_SEED: 0.0, 0: -0.003, 1: 0.0, 2: 0.003}[seed]

    found, runs = search(uncertain, seeds=(0, 1, 2))
    low, high = found.bounds
    assert found.answer is not None
    assert high is not None
    assert low < found.answer < high
    assert found.at(low).low > 0.05
    assert found.at(high).high <= 0.05
    # The half width is 0.0075, which is 71 sizes: no more than twice that is left open.
    assert high - found.answer <= 142
    assert runs < 40


def test_without_certainty_there_is_no_upper_end() -> None:
    def wild(size: int, seed: int) -> float:
        return falling(size) + {SEARCH_SEED: 0.0, 0: -0.1, 1: 0.0, 2: 0.1}[seed]

    found, _ = search(wild, seeds=(0, 1, 2))
    assert found.bounds == (0, None)


def test_the_knee_is_farthest_below_the_line_between_the_ends() -> None:
    found, _ = search(lambda size, seed: max(0.0, 0.5 - size / 500) + 0.05 * (1 - size / 1000))
    assert found.knee == 250
    assert search(lambda size, seed: 1.0)[0].knee is None  # flat
    assert search(lambda size, seed: 1 - size / 1000)[0].knee is None  # straight


def test_the_least_fast_tier_is_the_engines() -> None:
    header = (ROOT / "engine/sim/scale.hpp").read_text()
    match = re.search(r"least_fast_pages = (\d+);", header)
    assert match
    assert int(match[1]) == plan.LEAST_FAST_PAGES


# --- The command ----------------------------------------------------------------------------------

FOOTPRINT_GIB = 8.0
OFF_NEEDS, TOY_NEEDS, TUNED_NEEDS = 6.0, 3.0, 2.0


class Native(FakeNative):
    """A workload of 8 GiB. Below what a policy needs, the slowdown falls on a line from 50 %; the
    toy's threshold of 10 needs less than its default of 5 does."""

    def simulate(self, path: str, **arguments: Any) -> dict[str, Any]:
        found = super().simulate(path, **arguments)
        fast = arguments["fast_bytes"] / 2**30
        toy = TUNED_NEEDS if arguments["knobs"].get("threshold") == 10 else TOY_NEEDS
        needs = {"first-touch": OFF_NEEDS, "all-fast": 0.0, "all-slow": math.inf}.get(
            arguments["policy"], toy
        )
        short = 1.0 if needs == math.inf else max(0.0, 1 - fast / needs) if needs else 0.0
        found["seconds"] = 10 * (1 + 0.5 * short)
        found["metrics"] |= {"fast_capacity_bytes": FOOTPRINT_GIB * 2**30}
        return found


@pytest.fixture
def native(fake: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    found = Native(tmp_path)
    monkeypatch.setattr(engine, "native", lambda: found)
    monkeypatch.setattr(pools, "open_pool", Inline)
    monkeypatch.setattr(Inline, "opened", 0)
    monkeypatch.setattr("tuner.commands.size.png", lambda figure: b"picture")  # which takes long
    bare = {"family": "test", "summary": "s", "citation": "c", "knobs": []}
    static = {"page_bytes": 4096, "needs": ""}
    declared = [
        *POLICIES,
        POLICIES[0] | {"name": "huge", "traits": {"page_bytes": 2 << 20}},
        *(bare | {"name": name, "traits": static} for name in ("first-touch", "all-fast")),
        bare | {"name": "all-slow", "traits": static},
    ]
    policies = {p["name"]: PolicyDecl.model_validate(p) for p in declared}
    monkeypatch.setattr(engine, "policies", lambda: policies)
    return found


SIZE = ("size", "-w", "walker", "--objective", "runtime", "--name", "x")


def content() -> Any:
    return json.loads(Path("results/size-x/size.json").read_text())


def rows() -> dict[str, Any]:
    return {row["configuration"]: row for row in content()["configurations"]}


def simulations(native: Native) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    native.on_simulate = seen.append
    return seen


def write_best(path: Path, **scenario: Any) -> None:
    knobs = {"threshold": 10, "period": 1.5, "mode": "paper", "aol.enabled": False, "aol.low": 40.0}
    own = replace(BEST.scenario, objective="runtime", **scenario)
    path.parent.mkdir(parents=True, exist_ok=True)
    best.write(BEST.model_copy(update={"scenario": own, "knobs": knobs}), path)


def test_sizes_are_of_the_workload_at_full_scale(
    native: Native, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 5 % slower a policy needs nine tenths of what it needs for no slowdown."""
    monkeypatch.setattr("tuner.commands.size.png", png)
    seen = simulations(native)
    done = run(*SIZE)
    assert done.code == 0
    folder = Path("results/size-x")
    assert {path.name for path in folder.iterdir()} == {"size.csv", "size.json", "size.png"}
    assert (folder / "size.png").read_bytes().startswith(b"\x89PNG")
    found = rows()
    for name, needs in {"first-touch": OFF_NEEDS, "toy": TOY_NEEDS}.items():
        least = found[name]["least_gib"]
        assert 0.9 * needs <= least <= 0.9 * needs / (1 - RESOLUTION)
        assert found[name]["fails_at_gib"] < 0.9 * needs <= found[name]["meets_at_gib"]
        assert found[name]["whole_gib"] == FOOTPRINT_GIB
    less = found["toy"]["less_than_first_touch_gib"]
    assert less == found["first-touch"]["least_gib"] - found["toy"]["least_gib"]
    pages = {arguments["fast_bytes"] / (64 * 4096) for arguments in seen}
    assert all(count == round(count) for count in pages)  # whole pages of the miniature
    assert "walker (big) on testbed, 8 GiB: least fast memory for at most 5 % slower" in done.out
    assert "everything in slow memory: 50.0 % slower\n" in done.out
    assert "saves nothing" not in done.out
    assert "held-out seeds 0, 1, 2" in done.out


def test_each_run_is_a_row(native: Native, run: Any) -> None:
    seen = simulations(native)
    assert run(*SIZE).code == 0
    with Path("results/size-x/size.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(seen) - 2  # all-fast and all-slow have no size
    assert {line["seed"] for line in lines if line["policy"] == "first-touch"} == {str(SEARCH_SEED)}
    assert {line["seed"] for line in lines if line["held_out"] == "True"} == {"0", "1", "2"}
    for line in lines:
        assert (float(line["slowdown"]) <= 0.05) == (line["meets"] == "True")
        assert float(line["share"]) == float(line["fast_gib"]) / FOOTPRINT_GIB


def test_nothing_runs_twice(native: Native, run: Any) -> None:
    count = 0

    def interrupt(_: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if count == 9:
            raise KeyboardInterrupt

    native.on_simulate = interrupt
    stopped = run(*SIZE)
    assert stopped.code == 130
    assert "all runs are kept; repeat the command to continue" in stopped.err
    seen = simulations(native)
    assert run(*SIZE).code == 0
    assert content()["runs"] == {"made": len(seen), "kept": 8}
    again = simulations(native)
    opened = Inline.opened
    assert run(*SIZE).code == 0
    assert (again, Inline.opened) == ([], opened)  # no workers for nothing
    assert run(*SIZE, "--max-slowdown", "8%").code == 0
    assert 0 < len(again) < len(seen)


def test_a_policy_that_needs_no_less_saves_nothing(
    native: Native, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TOY_NEEDS", OFF_NEEDS)
    done = run(*SIZE)
    assert done.code == 0
    assert rows()["toy"]["less_than_first_touch_gib"] == 0
    assert "toy: tiering saves nothing here: it needs no less fast memory than first-touch\n" in (
        done.out
    )


def test_everything_slow_may_do(native: Native, run: Any) -> None:
    done = run(*SIZE, "--max-slowdown", "50%", "--price-fast", "4", "--price-slow", "1")
    assert done.code == 0
    assert "50.0 % slower, which meets the bound: no fast memory is needed\n" in done.out
    assert {row["least_gib"] for row in rows().values()} == {0}
    assert rows()["toy"]["cost"] == {"memory": 8, "all_fast": 32}


def test_no_size_below_the_whole_may_do(native: Native, run: Any,
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Both need more than there is: with all of it they are still slower."""
    monkeypatch.setitem(globals(), "OFF_NEEDS", 8.0)
    monkeypatch.setitem(globals(), "TOY_NEEDS", 16.0)
    done = run(*SIZE, "--max-slowdown", "0%", "--json")
    assert done.code == 3
    assert done.json["configurations"] == content()["configurations"]
    found = rows()
    assert (found["first-touch"]["least_gib"], found["first-touch"]["below_whole"]) == (8.0, False)
    assert found["toy"]["least_gib"] is None
    said = run(*SIZE, "--max-slowdown", "0%").out
    assert "first-touch: no fast memory below the whole footprint meets the bound\n" in said
    assert (
        "toy: no size meets the bound: even with all 8 GiB in fast memory it is 25.0 % slower\n"
    ) in said


def test_prices_come_to_what_memory_costs(native: Native, run: Any) -> None:
    assert run(*SIZE, "--price-fast", "4", "--price-slow", "1").code == 0
    toy = rows()["toy"]
    least = toy["least_gib"]
    assert toy["cost"] == {"memory": pytest.approx(4 * least + 8 - least), "all_fast": 32}


def test_pages_of_each_size_are_compared_with_their_own(native: Native, run: Any) -> None:
    seen = simulations(native)
    assert run(*SIZE, "--policy", "toy,huge").code == 0
    names = ["first-touch", "first-touch, 2 MiB", "toy", "huge, 2 MiB"]
    assert list(rows()) == names
    sizes = {(a["policy"], a["page_bytes"]) for a in seen}
    assert {("all-fast", 4096), ("all-fast", 2 << 20), ("all-slow", 2 << 20)} <= sizes
    # 256 pages of 2 MiB at a scale of 64 are all that there is.
    assert rows()["huge, 2 MiB"]["least_gib"] == FOOTPRINT_GIB


# --- Tuned ----------------------------------------------------------------------------------------


def test_a_given_configuration_is_sized_beside_the_defaults(native: Native, run: Any) -> None:
    write_best(Path("b.yaml"), seed=1)
    done = run("size", "--config", "b.yaml", "--name", "x")
    assert done.code == 0
    found = rows()
    assert list(found) == ["first-touch", "toy", "toy, tuned"]
    assert found["toy, tuned"]["knobs"]["threshold"] == 10
    assert 0.9 * TUNED_NEEDS <= found["toy, tuned"]["least_gib"] < 0.9 * TOY_NEEDS
    assert content()["seeds"] == [0, 2, 3]  # 1 is what it was tuned on
    assert content()["objective"] == "runtime"  # as its study had it
    assert "toy, tuned: the knobs of b.yaml at all sizes" in done.out


def test_a_known_configuration_is_found_as_tune_best_does(native: Native, run: Any) -> None:
    write_best(Path("results/other/best.yaml"), ratio="1:4")
    done = run(*SIZE)
    assert list(rows()) == ["first-touch", "toy"]
    assert "toy is not sized tuned: it was tuned under other conditions, 1:4, " in done.err
    assert "`tune size --config results/other/best.yaml` sizes it under those" in done.err
    assert run(*SIZE, "--ratio", "1:4").code == 0
    assert rows()["toy, tuned"]["source"] == "results/other/best.yaml"
    write_best(Path("results/this/best.yaml"))
    assert run(*SIZE).code == 0
    assert rows()["toy, tuned"]["source"] == "results/this/best.yaml"


# --- What goes wrong ------------------------------------------------------------------------------


def test_a_refused_policy_leaves_the_others(native: Native, run: Any) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["policy"] == "toy" and arguments["fast_bytes"] < 1 << 30:
            raise ValueError("no such size\nmore")

    native.on_simulate = refuse
    done = run(*SIZE)
    assert done.code == 0
    assert rows()["toy"]["least_gib"] is None
    assert "toy: not judged, at 0.25 GiB: failed: no such size\n" in done.out
    assert rows()["first-touch"]["least_gib"] > 0


def test_a_crash_fails_the_command(
    native: Native, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(trial: Trial) -> TrialResult:
        if trial.scenario.policy == "toy":
            return pool.without_result(trial, Status.crashed, "its worker died", 1.0)
        return runner.run(trial)

    monkeypatch.setattr(pools, "open_pool", lambda _, **__: Inline(work))
    done = run(*SIZE)
    assert done.code == 1
    assert "tune: error: toy: at 0.25 GiB: crashed: its worker died\n" in done.err


def test_without_all_fast_nothing_can_be_judged(native: Native, run: Any) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["policy"] == "all-fast":
            raise ValueError("no")

    native.on_simulate = refuse
    done = run(*SIZE)
    assert done.code == 1
    assert "all-fast on walker: failed: no\n" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "toi"], "no policy 'toi'"),
        (["--policy", "toy,first-touch"], "--policy: first-touch is always a row; leave it out"),
        (["--policy", "all-fast"], "--policy: all-fast has no size of fast memory; leave it out"),
        (["--price-fast", "4"], "--price-fast and --price-slow: found one of them"),
        (["--config", "b.yaml", "--policy", "huge"], "scenario.policy: found toy; must be one of"),
        (["--config", "e.yaml"], "scenario.substrate: found emulated; must be simulated"),
        (["--config", "none.yaml"], "none.yaml"),
        (["--name", "a/b"], "--name: found 'a/b'"),
    ],
)
def test_bad_input_is_named(native: Native, run: Any, words: list[str], message: str) -> None:
    write_best(Path("b.yaml"))
    write_best(Path("e.yaml"), substrate="emulated")
    done = run(*SIZE, *words)
    assert done.code == 2
    assert message in done.err
    assert native.recorded() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-slowdown", "0.05"], "found 0.05; must end in %, such as 5%"),
        (["--max-slowdown=-1%"], "found -1%; must be from 0% to 1,000,000%"),
        (["--max-slowdown", "x%"], "invalid number value: 'x'"),
        (["--price-fast", "-4", "--price-slow", "1"], "found -4; must be from 0 to"),
        (["--seeds", "1"], "found 1; must be at least 2"),
        (["--on", "emulated"], "unrecognized arguments: --on emulated"),
    ],
)
def test_wrong_usage_is_named(
    native: Native, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([*SIZE, *words])
    assert message in capsys.readouterr().err


def test_there_must_be_a_workload(native: Native, run: Any) -> None:
    done = run("size")
    assert (done.code, native.recorded()) == (2, 0)
    assert "what to run? give --workload, --config, or both" in done.err


# --- The whole command ----------------------------------------------------------------------------


@pytest.mark.slow
def test_first_touch_needs_more_than_what_is_hot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """GUPS: 8 GiB of 64 are hot, spread over all of it, and move half-way. First-touch has a hot
    page in fast memory by luck alone."""
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ("size", "-w", "gups", "-i", "smoke", "--max-slowdown", "50%", "--workers", "1")
    done = run(*words, "--policy", "hemem", "--page-bytes", "4096", "--json")
    assert done.code == 0
    off, hemem = done.json["configurations"]
    assert off["whole_gib"] == pytest.approx(64, rel=0.02)
    assert off["curve"][-1]["mean"] == pytest.approx(0, abs=1e-6)  # all of it is fast
    assert 32 < off["least_gib"] < 64
    means = [point["mean"] for point in off["curve"]]
    assert means == sorted(means, reverse=True)
    for row in (off, hemem):
        assert row["fails_at_gib"] < row["least_gib"] <= row["meets_at_gib"]
    again = run(*words, "--policy", "hemem", "--page-bytes", "4096", "--json")
    assert again.json["configurations"] == done.json["configurations"]
    assert again.json["runs"]["made"] == 0
