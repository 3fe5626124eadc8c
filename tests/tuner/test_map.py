# SPDX-License-Identifier: MIT
"""tune map: which streams it makes, what is run and kept, and what is written."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, POLICIES, WORKLOAD, FakeNative
from matplotlib.patches import Rectangle
from test_compare import Inline

from tuner import cli, engine
from tuner.compare.cells import Row, Runs
from tuner.declarations import KernelDecl, PolicyDecl
from tuner.map import cells, page, picture
from tuner.map.cells import Plan
from tuner.map.points import DERIVED, HELD_OUT, OTHER, Found, measure
from tuner.map.rule import judge
from tuner.run import pool, pools, runner
from tuner.run.trial import Status, StreamRequest, Trial, TrialResult

DRIFT = """\
name: drift
summary: drifts
sources: [nobody]
kernel: drift
operation: access
objective: runtime
objectives: [runtime, throughput]
footprint_gib: 16
scale: 64
threads: 16
machine: testbed
default_input: default
smoke_input: default
inputs:
  default:
    summary: the only one
    parameters: {memory_gib: 12, hot_gib: 3, hot_share: 0.9, turnover_g: 10}
"""

PARAMETERS = ("memory_gib", "hot_gib", "hot_share", "turnover_g")

OFF_SECONDS = 20.0


def seconds(skew: float, drift: float) -> float:
    """Of the toy: it is faster than first-touch where a promotion gains more than 16 hits."""
    worth = 25 * skew * (drift or 10)
    return OFF_SECONDS / (1 + 0.3 * math.log2(worth / 16))


class Native(FakeNative):
    """The toy's speed follows from the stream's parameters; it promotes the more the quicker the
    window drifts, and gains 25 hits a promotion for each unit of skew and drift."""

    def simulate(self, path: str, **arguments: Any) -> dict[str, Any]:
        found = super().simulate(path, **arguments)
        text = Path(path).read_text()

        def parameter(name: str) -> float:
            match = re.search(rf"'{name}': ([\d.]+)", text)
            return float(match[1]) if match else 1.0

        drift = parameter("turnover_g")
        off = arguments["policy"] == "first-touch"
        took = OFF_SECONDS if off else seconds(parameter("hot_share"), drift)
        promotions = 0.0 if off else 1000.0 * (10 / drift if drift else 1.0)
        hits = 0.25 if off else 0.25 + parameter("hot_share") / 4
        return found | {
            "seconds": took,
            "metrics": {
                **{"loads_fast": 1e6 * hits, "loads_slow": 1e6 * (1 - hits)},
                **{"stores_fast": 0.0, "stores_slow": 0.0, "fast_hit_ratio": hits},
                **{"promotions": promotions, "demotions": promotions, "ping_pongs": 0.0},
                "migrated_bytes": 2 * 4096 * promotions,
                **{"fast_capacity_bytes": 2.0**30, "footprint_bytes": 2.0**32},
            },
            "breakdown": {
                **{"compute": took / 2, "fast_stall": took / 8, "slow_stall": took / 4},
                **{"bandwidth": 0.0, "migration": took / 8, "sampling": 0.0, "policy": 0.0},
            },
        }


@pytest.fixture
def native(fake: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    found = Native(tmp_path)
    monkeypatch.setattr(engine, "native", lambda: found)
    monkeypatch.setattr(pools, "open_pool", Inline)
    bare = {"family": "test", "summary": "s", "citation": "c", "knobs": []}
    static = {"page_bytes": 4096, "needs": ""}
    references = ("first-touch", "all-fast", "static-hot", "offline-optimal")
    declared = [
        *POLICIES,
        POLICIES[0] | {"name": "huge", "traits": {"page_bytes": 2 << 20}},
        *(bare | {"name": name, "traits": static} for name in references),
    ]
    policies = {p["name"]: PolicyDecl.model_validate(p) for p in declared}
    monkeypatch.setattr(engine, "policies", lambda: policies)
    unit = {"unit": "", "meaning": "some"}
    parameters = [{"name": name, "default": 1.0} | unit for name in (*PARAMETERS, "accesses_g")]
    drift = {"name": "drift", "summary": "d", "parameters": parameters}
    kernels = {k["name"]: KernelDecl.model_validate(k) for k in (*KERNELS, drift)}
    monkeypatch.setattr(engine, "kernels", lambda: kernels)
    Path("workloads/drift.yaml").write_text(DRIFT)
    return found


MAP = [
    *("map", "--policies", "toy", "--machines", "testbed", "--ratios", "1:5,1:2", "--name", "x"),
    *("--skews", "0.5,0.9,0.7,0.1", "--drifts", "never,1,4,2"),
]
SKEWS, DRIFTS = (0.1, 0.5, 0.7, 0.9), (1.0, 2.0, 4.0, 0.0)


def run(*words: str) -> int:
    return cli.main([*MAP, *words])


def content() -> Any:
    return json.loads(Path("results/map-x/map.json").read_text())


def simulations(native: Native) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    native.on_simulate = seen.append
    return seen


def plan(*, others: Sequence[tuple[str, str | None]] = (), **given: Any) -> Plan:
    return cells.plan(
        [engine.policy("toy")],
        cells.axes("1:5", "0.5,0.9,0.7,0.1", "never,1,4,2", "testbed"),
        input=None,
        others=others,
        seeds=1,
        deadline=10.0,
        name="x",
        given=given,
    )


def found(native: Native, **given: Any) -> Found:
    """A map with its results."""
    made = plan(**given)
    runs = Runs(made.comparison)
    from tuner.experiment.jobs import work
    from tuner.run import streams

    for job in runs.jobs():
        streams.ensure(job.stream)
        runs.take(job, work(job))
    return Found(made, measure(made, runs))


# --- The grid -------------------------------------------------------------------------------------


def test_axes_are_sorted_with_never_last(native: Native) -> None:
    made = cells.axes("1:8,1:4", "0.9,0.5,0.9", "never,20,0.5", "a,b")
    assert made.ratios == ["1:8", "1:4"]
    assert made.skews == [0.5, 0.9]
    assert made.drifts == [0.5, 20, 0]
    assert made.machines == ["a", "b"]


def test_each_place_has_its_stream_and_its_fast_tier(native: Native) -> None:
    made = plan()
    assert len(made.places) == 16
    assert len(made.comparison.cells) == 2 * 16
    for cell in made.comparison.cells:
        place, scenario = made.places[cell.workload], cell.setting.scenario
        stream = cell.setting.stream()
        assert isinstance(stream, StreamRequest)
        assert stream.parameters == {
            "memory_gib": 12,
            "hot_gib": 3,
            "hot_share": place.skew,
            "turnover_g": place.drift,
        }
        assert scenario.fast_gib == pytest.approx(12 / 6)
        assert scenario.stream_seed == stream.seed == place.held_out
    assert made.fast_over_hot("1:5") == pytest.approx(12 / 6 / 3)
    keys = {cell.setting.stream().key for cell in made.comparison.cells}
    assert len(keys) == 16


def test_every_other_square_is_held_out(native: Native) -> None:
    held_out = {(p.skew, p.drift) for p in plan().places.values() if p.held_out}
    squares = {
        (skew, drift)
        for i, skew in enumerate(SKEWS)
        for j, drift in enumerate(DRIFTS)
        if (i + j) % 2
    }
    assert held_out == squares
    assert len(held_out) == 8


def test_all_policies_manage_pages_of_one_size(native: Native) -> None:
    seen = simulations(native)
    assert run("--policies", "toy,huge") == 0
    assert {call["page_bytes"] for call in seen} == {4096}
    seen.clear()
    assert run("--policies", "toy,huge", "--page-bytes", str(2 << 20)) == 0
    assert {call["page_bytes"] for call in seen} == {2 << 20}


# --- What is run ----------------------------------------------------------------------------------


def test_a_map_writes_its_files(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    folder = Path("results/map-x")
    names = {"map.csv", "map.json", "map.md", "map-toy.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "map-toy.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((folder / "map.csv").open()))
    assert len(rows) == 2 * 16
    for row in rows:
        expected = OFF_SECONDS / seconds(float(row["skew"]), float(row["drift_g"]))
        assert float(row["performance"]) == pytest.approx(expected, rel=1e-5)
        assert row["harmful"] == str(expected < 0.99)
    assert {row["fast_over_hot"] for row in rows} == {"0.6667", "1.3333"}
    assert {(row["ratio"], row["machine"]) for row in rows} == {
        ("1:5", "testbed"),
        ("1:2", "testbed"),
    }
    assert "![toy over first-touch](map-toy.png)" in (folder / "map.md").read_text()
    harmful = sum(row["harmful"] == "True" for row in rows)
    assert re.search(rf"^toy +testbed +32 +{harmful} +0 .* 12.5 % +0.0 %$", out, re.MULTILINE)


def test_json_prints_one_object(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed.pop("files")) == 4
    assert printed == content()
    assert printed["axes"]["drifts"] == list(DRIFTS)
    assert printed["memory_gib"] == 12


def test_a_second_command_runs_nothing_and_a_larger_one_what_is_new(native: Native) -> None:
    seen = simulations(native)
    assert run() == 0
    assert len(seen) == 2 * 2 * 16
    assert native.recorded() == 16
    first = content()
    seen.clear()
    assert run() == 0
    assert seen == []
    assert content() == first
    assert run("--seeds", "2") == 0  # of the toy alone: first-touch samples nothing
    assert [call["seed"] for call in seen] == [1] * 2 * 16
    seen.clear()
    assert run("--ratios", "1:5,1:2,1:1") == 0
    assert len(seen) == 2 * 16
    assert native.recorded() == 16


def test_an_interrupted_command_goes_on(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []

    def interrupt(arguments: dict[str, Any]) -> None:
        calls.append(arguments)
        if len(calls) == 10:
            raise KeyboardInterrupt

    native.on_simulate = interrupt
    assert run() == 130
    assert "of 64 runs, which are kept" in capsys.readouterr().err
    seen = simulations(native)
    assert run() == 0
    assert len(seen) == 64 - 9


def test_a_refused_cell_leaves_the_others(native: Native) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["fast_bytes"] < 3 << 30:
            raise ValueError("too coarse: 1 simulated page\nmore")

    native.on_simulate = refuse
    assert run() == 0
    points = content()["points"]
    assert {p["status"] for p in points if p["ratio"] == "1:5"} == {"refused"}
    assert {p["status"] for p in points if p["ratio"] == "1:2"} == {"success"}
    text = Path("results/map-x/map.md").read_text()
    assert re.search(r"refused: toy on drift.* and 13 more: .*too coarse: 1 simulated page\n", text)


def test_a_crash_fails_the_command(
    native: Native, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(trial: Trial) -> TrialResult:
        if trial.scenario.policy == "toy" and trial.scenario.ratio == "1:5":
            return pool.without_result(trial, Status.crashed, "its worker died", 1.0)
        return runner.run(trial)

    monkeypatch.setattr(pools, "open_pool", lambda _, **__: Inline(work))
    assert run() == 1
    assert "at 1:5: crashed: its worker died" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policies", "toi"], "no policy 'toi'"),
        (["--policies", "toy,first-touch"], "--policies: first-touch is what all others are"),
        (["--ratios", "1:8,8"], "--ratios: found '8'; must be FAST:SLOW"),
        (["--skews", "0.5,1.5"], "--skews: found '1.5'; must be between 0 and 1"),
        (["--skews", "never"], "--skews: found 'never'; must be between 0 and 1"),
        (["--drifts", "-1"], "--drifts: found '-1'; must be between 0 and 1e+06, or never"),
        (["--drifts", "soon"], "--drifts: found 'soon'; must be between 0 and 1e+06, or never"),
        (["--drifts", "inf"], "--drifts: found 'inf'; must be between 0 and 1e+06, or never"),
        (["--skews", "0.5,,1"], "--skews: found '0.5,,1'; must be a list with commas"),
        (["--machines", "test"], "no machine 'test'"),
        (["--input", "large"], "no input of workload drift 'large'"),
        (["--also", "wolker"], "no workload 'wolker'"),
        (["--name", "a/b"], "--name: found 'a/b'"),
    ],
)
def test_bad_input_is_named(
    native: Native, capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err
    assert native.recorded() == 0


def test_names_tell_maps_apart(native: Native) -> None:
    words = [word for word in MAP if word not in ("--name", "x")]
    assert cli.main(words) == 0
    assert cli.main([*words, "--skews", "0.5"]) == 0
    names = sorted(path.name for path in Path("results").glob("map-*"))
    assert len(names) == 2
    assert all(re.fullmatch(r"map-toy-[0-9a-f]{6}", name) for name in names)


# --- The rule -------------------------------------------------------------------------------------


def test_the_rule_is_derived_from_one_half_and_judged_on_the_other(native: Native) -> None:
    assert run() == 0
    rules = {rule["what"]: rule for rule in content()["rules"]}
    mine = rules["found here"]
    for part in (DERIVED, HELD_OUT):
        judged = mine["judged"][part]
        counts = ("harmful_off", "harmful_on", "good_off", "good_on")
        assert sum(judged[count] for count in counts) == 16
    assert mine["judged"][DERIVED]["met"]
    for point in content()["points"]:
        assert point["part"] == (HELD_OUT if _held_out(point) else DERIVED)
    assert [c["feature"] for c in rules["informed"]["conditions"]] == ["hits_raised"]
    # The toy's demotions equal its promotions everywhere.
    equal = rules["rates are equal"]["judged"][HELD_OUT]
    assert (equal["harmful_on"], equal["good_on"]) == (0, 0)
    assert equal["lost_share"] == 1


def _held_out(point: dict[str, Any]) -> bool:
    return (SKEWS.index(point["skew"]) + DRIFTS.index(point["drift_g"])) % 2 == 1


def test_held_out_cases_do_not_reach_the_rule(native: Native) -> None:
    """With other results on the held-out half, the rule is the same."""
    before = found(native).rule
    assert before is not None

    def spoil(arguments: dict[str, Any]) -> None:
        raise AssertionError

    native.on_simulate = spoil  # everything is in the cache
    spoiled = found(native)
    object.__setattr__(
        spoiled,
        "points",
        [
            type(p)(**vars(p) | {"performance": [0.1]}) if p.place and p.place.held_out else p
            for p in spoiled.points
        ],
    )
    assert spoiled.rule == before
    assert judge(before, spoiled.cases(HELD_OUT)).harmful_on > 0


def test_other_workloads_are_judged_and_not_derived_from(native: Native) -> None:
    Path("workloads/walker.yaml").write_text(WORKLOAD)
    assert run("--also", "walker:small") == 0
    points = content()["points"]
    others = [point for point in points if point["part"] == OTHER]
    assert [point["workload"] for point in others] == ["walker:small"] * 2
    assert others[0]["skew"] is None
    judged = content()["rules"][0]["judged"]
    assert {part: sum(j[c] for c in ("harmful_off", "good_off", "harmful_on", "good_on"))
            for part, j in judged.items()} == {DERIVED: 16, HELD_OUT: 16, OTHER: 2}  # fmt: skip
    assert "| found here | other workloads |" in Path("results/map-x/map.md").read_text()


def test_mistakes_are_named_the_worst_first(native: Native) -> None:
    made = found(native)
    assert made.rule is not None
    points = []
    for point in made.points:
        off = bool(point.case and made.rule.off(point.case))
        if point.place and point.place.held_out and point.place.skew == 0.1:
            point = type(point)(**vars(point) | {"performance": [3.0 if off else 0.5]})
        points.append(point)
    wrong = Found(made.plan, points)
    said = page.mistakes(wrong)
    assert "drift, 0.1 hot" in said[0]
    assert "turned off at 3.000" in said[0]
    changes = [abs(float(line.rpartition(" ")[2]) - 1) for line in said]
    assert changes == sorted(changes, reverse=True)
    # The toy's own results have two: the rule looks at hits alone.
    assert page.mistakes(made) == [
        "toy on drift, 0.1 hot, never, testbed at 1:5: turned off at 1.193",
        "toy on drift, 0.5 hot, 1 G, testbed at 1:5: left on at 0.893",
    ]


# --- Pictures -------------------------------------------------------------------------------------


def test_the_picture_has_a_square_for_each_place(native: Native) -> None:
    made = found(native)
    row = Row(policy="toy", page_bytes=4096)
    panel, _ = picture.draw(made, row).axes  # and the bar of colours
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1 G", "2 G", "4 G", "never"]
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["0.1", "0.5", "0.7", "0.9"]
    assert panel.get_title(loc="left") == "testbed, 1:5 (fast = 0.67 windows)"
    (image,) = panel.images
    assert np.asarray(image.get_array()).shape == (4, 4)
    low, high = image.get_clim()
    assert low == -high  # first-touch is in the middle of the colours
    shown = {text.get_position(): text.get_text() for text in panel.texts}
    for y, skew in enumerate(SKEWS):
        for x, drift in enumerate(DRIFTS):
            assert shown[x, y] == f"{OFF_SECONDS / seconds(skew, drift):.2f}"
    framed = [p for p in panel.patches if isinstance(p, Rectangle)]
    assert made.rule is not None
    off = [p for p in made.points if (case := p.case) and made.rule.off(case)]
    assert 0 < len(framed) == len(off) < 16


def test_a_square_without_a_run_says_why(native: Native) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["policy"] == "toy":
            raise ValueError("no")

    native.on_simulate = refuse
    made = found(native)
    assert made.rule is None
    panel, _ = picture.draw(made, Row(policy="toy", page_bytes=4096)).axes
    assert {text.get_text() for text in panel.texts} == {"failed"}


# --- The whole command ----------------------------------------------------------------------------


@pytest.mark.slow
def test_promotion_helps_where_the_window_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ["map", "--policies", "freqtier", "--input", "smoke", "--ratios", "1:4"]
    words += ["--skews", "0.1,0.9", "--drifts", "0.2,never", "--workers", "1", "--json"]
    assert cli.main(words) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert len(points) == 2 * 2 * 2
    speed = {(p["machine"], p["skew"], p["drift_g"]): p["performance"] for p in points}
    for machine in ("memtis-cxl", "memtis-nvm"):
        assert speed[machine, 0.9, 0] > 1.1
        assert speed[machine, 0.9, 0] > speed[machine, 0.9, 0.2]
        assert speed[machine, 0.1, 0.2] < 1
