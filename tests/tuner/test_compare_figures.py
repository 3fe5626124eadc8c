# SPDX-License-Identifier: MIT
"""The figures and tables of `tune compare`, from given results."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.patches import Rectangle

from tuner import engine
from tuner.compare import page, picture, tables
from tuner.compare.cells import Comparison, Row
from tuner.compare.figures import Figure, Figures, Measured, figure, over
from tuner.declarations import PolicyDecl
from tuner.run.trial import Status
from tuner.scenario import Scenario

BASE = Row(policy="first-touch", page_bytes=4096)
FAST = Row(policy="all-fast", page_bytes=4096)
HOT = Row(policy="static-hot", page_bytes=4096)
BEST = Row(policy="offline-optimal", page_bytes=4096)
ONE, TWO, THREE = (Row(policy=name, page_bytes=4096) for name in ("one", "two", "three"))


def measured(
    workload: str, row: Row, *objectives: float, objective: str = "runtime", reason: str = ""
) -> Measured:
    scenario = Scenario(
        workload=workload, input="i", policy=row.policy, machine="m", objective=objective,
        threads=1.0, scale=1.0, page_bytes=row.page_bytes,
    )  # fmt: skip
    return Measured(
        workload,
        row,
        scenario,
        Status.success if objectives else Status.failed,
        reason,
        seeds=range(len(objectives)),
        objectives=objectives,
        metrics=[{"fast_hit_ratio": 0.5}] * len(objectives),
    )


def figures(*found: Measured, seeds: int = 3, budget: int = 0) -> Figures:
    comparison = Comparison(
        name="given",
        workloads=list(dict.fromkeys(m.workload for m in found)),
        ratios=["1:8"],
        rows=list(dict.fromkeys(m.row for m in found)),
        base=BASE,
        seeds=seeds,
        budget=budget,
        tune_ratio="1:8",
        cells=[],
    )
    return Figures(comparison, found)


def lines(found: Figures) -> dict[Row, Any]:
    return {line.row: line for line in found.table("1:8")}


def test_performance_is_over_the_base_and_higher_is_better() -> None:
    found = figures(
        measured("time", BASE, 10.0),
        measured("time", ONE, 5.0, 5.0, 5.0),
        measured("rate", BASE, 10.0, objective="throughput"),
        measured("rate", ONE, 80.0, 80.0, 80.0, objective="throughput"),
    )
    line = lines(found)[ONE]
    assert line.figures["time"] == Figure(2.0, 0.0)
    assert line.figures["rate"] == Figure(8.0, 0.0)
    assert line.mean.value == pytest.approx(4.0)
    assert line.mean.workloads == 2
    assert lines(found)[BASE].figures["time"] == Figure(1.0, None)


def test_all_fast_is_called_an_upper_bound_only_where_it_is_one() -> None:
    def said(fast: float, *others: tuple[str, Row, float]) -> str:
        rows = [measured(name, row, value) for name, row, value in others]
        bases = [measured(name, BASE, 10.0) for name in ("a", "b")]
        bounds = [measured("a", FAST, fast), measured("b", FAST, 1.0)]
        (note,) = page._all_fast(figures(*bases, *bounds, *rows))
        return note

    bound = "all-fast has everything in fast memory, an upper bound: nothing is ahead of it"
    assert said(5.0, ("a", ONE, 6.0), ("b", ONE, 1.0)) == bound
    assert said(9.99, ("a", ONE, 10.0), ("b", ONE, 1.0)) == bound  # no more than noise
    no = "all-fast has everything in fast memory and is no upper bound here; ahead of it: "
    assert said(11.0, ("a", ONE, 12.0), ("b", ONE, 9.0)) == no + "first-touch on a at 1:8"
    assert said(11.0, ("a", ONE, 9.0), ("b", ONE, 0.5), ("a", TWO, 5.0), ("b", TWO, 5.0)) == (
        no + "first-touch on a at 1:8; one on a at 1:8; one on b at 1:8 and 1 more"
    )


def test_the_interval_is_over_seeds_and_paired() -> None:
    """Half of a 95 % t interval of 1, 2, 3 is 4.3027 / sqrt(3)."""
    alone = figure([[1.0, 2.0, 3.0]])
    assert alone is not None
    assert alone.value == 2
    assert alone.half_width == pytest.approx(4.302652729911275 / 3**0.5)
    # What one workload gains in a seed, the other loses.
    both = figure([[1.0, 2.0, 4.0], [4.0, 2.0, 1.0]])
    assert both is not None and both.workloads == 2
    assert (both.value, both.half_width) == pytest.approx((2.0, 0.0))
    assert over([2.0, 4.0, 6.0], [2.0]) == [1.0, 2.0, 3.0]
    assert over([6.0], [1.0, 2.0, 3.0]) == [6.0, 3.0, 2.0]
    assert figure([]) is None


def test_what_did_not_run_has_a_line_for_each_reason() -> None:
    def coarse(workload: str, pages: int, row: Row) -> Measured:
        reason = f"too coarse: {pages} pages of 2 MiB. What helps: --scale {pages} or less\nmore"
        return measured(workload, row, reason=reason)

    found = figures(
        *(measured(name, BASE, 10.0) for name in ("a", "b", "c")),
        *(coarse(name, pages, row) for name, pages in (("a", 9), ("b", 128)) for row in (ONE, TWO)),
        measured("c", ONE, 5.0, 5.0),
        coarse("c", 64, TWO),
        coarse("c", 16, THREE),
        measured("a", THREE, reason="needs tier counters"),
    )
    assert list(page._missing(found))[:-1] == [
        "refused: one on a, b at 1:8; two on a, b, c at 1:8; three on c at 1:8: "
        "too coarse: 9 to 128 pages of 2 MiB",
        "refused: three on a at 1:8: needs tier counters",
    ]
    both = [replace(m, scenario=replace(m.scenario, ratio=r)) for m in found.measured[3:7]
            for r in ("1:8", "1:4")]  # fmt: skip
    assert page._places(both) == "one; two on a, b at 1:8, 1:4"
    assert page._places(both[:-1]) == "one on a, b at 1:8, 1:4; two on a, b at 1:8 and a at 1:4"


def test_a_table_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page asks for it in dozens of places."""
    found = figures(measured("a", BASE, 10.0), measured("a", ONE, 5.0, 6.0))
    page.markdown(found, "x.png")
    monkeypatch.setattr(Figures, "_line", None)
    assert [line.row for line in found.table("1:8")] == [BASE, ONE]


def test_a_mean_of_some_workloads_is_marked_and_has_no_place_in_the_order() -> None:
    reason = "too coarse: 1 page"
    found = figures(
        *(measured(name, BASE, 10.0) for name in ("a", "b")),
        *(measured(name, ONE, 5.0, 5.0) for name in ("a", "b")),
        measured("a", TWO, 1.0, 1.0),
        measured("b", TWO, reason=reason),
    )
    line = lines(found)[TWO]
    assert line.figures["b"] is None
    assert (line.mean.value, line.mean.workloads, line.full_mean) == (10, 1, None)
    assert found.ranked("1:8", tuned=False) == [ONE]
    columns, rows = tables.speeds(found, "1:8")
    assert columns == ["1:8", ">a", ">b", ">geometric mean"]
    assert rows[2] == ["two", "10.00 ± 0.00", "refused", "10.00 ± 0.00 (of 1)"]
    notes = page._missing(found)
    assert next(notes) == f"refused: two on b at 1:8: {reason}"
    assert "(of N)" in next(notes)


def test_without_its_base_a_workload_has_no_figures() -> None:
    found = figures(measured("a", BASE, reason="full disk"), measured("a", ONE, 5.0))
    assert tables.speeds(found, "1:8")[1] == [["first-touch", "refused"], ["one", "-"]]
    (first, second) = csv.DictReader(page.csv_text(found).splitlines())
    assert (first["status"], first["reason"]) == ("refused", "full disk")
    assert (second["objective"], second["performance"]) == ("5.0", "")


def test_many_workloads_are_rows() -> None:
    names = [f"w{i}" for i in range(tables.MOST_ACROSS + 1)]
    found = figures(
        *(measured(name, BASE, 10.0) for name in names),
        *(measured(name, ONE, 5.0) for name in names),
    )
    columns, rows = tables.speeds(found, "1:8")
    assert columns == ["1:8", ">first-touch", ">one"]
    assert [row[0] for row in rows] == [*names, tables.MEAN]
    assert {tuple(row[1:]) for row in rows} == {("1.000", "2.000")}


def tuned(row: Row) -> Row:
    return row.model_copy(update={"tuned": True})


def test_the_order_of_policies_and_what_tuning_makes_of_it() -> None:
    def at(row: Row, seconds: float) -> Measured:
        return measured("a", row, seconds, seconds)

    found = figures(
        *(measured("a", row, seconds) for row, seconds in ((FAST, 1.0), (HOT, 2.0), (BASE, 10.0))),
        *(at(ONE, 8.0), at(tuned(ONE), 4.0)),
        *(at(TWO, 4.0), at(tuned(TWO), 4.01)),
        *(at(THREE, 5.0), at(tuned(THREE), 3.0)),
        budget=9,
    )
    assert found.order("1:8") == "two > three > one"
    notes = list(page._reading(found))
    assert "order at 1:8: two > three > one (=: within 0.6 %)" in notes
    assert found.order("1:8", tuned=True) == "three > one = two"
    # One pair of three as before, one reversed, one tied.
    assert found.tau("1:8") == pytest.approx((1 - 1) / 6**0.5)
    assert [row[2:] for row in tables.gains(found, "1:8")[1]] == [
        ["1.250 ± 0.000", "2.500 ± 0.000", "+100.0 ± 0.0 %"],
        ["2.500 ± 0.000", "2.494 ± 0.000", "-0.2 ± 0.0 %"],
        ["2.000 ± 0.000", "3.333 ± 0.000", "+66.7 ± 0.0 %"],
    ]


def test_the_picture_has_a_bar_for_each_figure() -> None:
    found = figures(
        *(measured(name, row, 1.0) for name in ("a", "b") for row in (FAST, BEST, HOT)),
        *(measured(name, BASE, 10.0) for name in ("a", "b")),
        *(measured(name, ONE, 4.0, 5.0) for name in ("a", "b")),
        measured("a", TWO, 20.0, 20.0),
        measured("b", TWO, reason="too coarse"),
    )
    (axes,) = picture.draw(found).axes
    bars = [bar.get_y() + bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    # By workload: one and two of a, one of b, and the mean of one, which alone has both.
    assert bars == pytest.approx([2.25, 0.5, 2.25, 2.25])
    assert [text.get_text().strip() for text in axes.texts] == ["refused"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", tables.MEAN]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert low < 0.5 and high > 10


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 1.6, [0.8, 1.0, 1.2, 1.5]),
        (0.05, 5.9, [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]),
        (0.9, 3.1, [1.0, 1.2, 1.5, 2.0, 2.5, 3.0]),
    ],
)
def test_a_logarithmic_axis_has_figures_to_read(
    low: float, high: float, ticks: list[float]
) -> None:
    rows = ((FAST, 10.0 / high), (BEST, 10.0), (HOT, 10.0), (BASE, 10.0), (ONE, 10.0 / low))
    (axes,) = picture.draw(figures(*(measured("a", row, s) for row, s in rows))).axes
    assert axes.get_yscale() == "log"
    drawn = [float(tick) for tick in axes.yaxis.get_major_locator()()]
    assert drawn == pytest.approx(ticks)


def test_a_bound_far_above_leaves_the_bars_their_room() -> None:
    rows = ((FAST, 0.1), (BEST, 9.0), (HOT, 9.5), (BASE, 10.0), (ONE, 8.0))
    (axes,) = picture.draw(figures(*(measured("a", row, s) for row, s in rows))).axes
    assert axes.get_ylim()[1] < 2
    assert [text.get_text() for text in axes.texts] == ["\N{UPWARDS ARROW} all-fast 100"]


def test_figures_that_are_close_have_a_linear_axis() -> None:
    rows = ((FAST, 9.0), (BEST, 9.2), (HOT, 9.5), (BASE, 10.0), (ONE, 9.8))
    (axes,) = picture.draw(figures(*(measured("a", row, s) for row, s in rows))).axes
    assert axes.get_yscale() == "linear"


@pytest.mark.parametrize(
    ("needs", "seeded"),
    [
        *((None, True), ("samples", True), ("", False), ("hint faults", True)),
        *(("placement of first touches", False), ("samples, placement of first touches", True)),
    ],
)
def test_only_what_watches_depends_on_the_seed(needs: str | None, seeded: bool) -> None:
    traits = {} if needs is None else {"needs": needs}
    one = PolicyDecl(name="p", family="f", summary="s", citation="c", traits=traits, knobs=[])
    assert one.seeded == seeded


def test_the_references_run_once() -> None:
    assert [name for name, p in engine.policies().items() if not p.seeded] == [
        *("offline-optimal", "static-hot", "all-fast", "all-slow", "first-touch")
    ]


def many_workloads(budget: int = 0) -> Figures:
    """One takes twice as long as two on the last workload, and half as long on the others."""
    names = [f"w{i}" for i in range(tables.MOST_ACROSS + 1)]
    policies = (ONE, TWO, *([tuned(ONE)] if budget else []))
    seconds = {ONE: 2.0, TWO: 4.0, tuned(ONE): 2.5}
    found = []
    for name in names:
        last = name == names[-1]
        found += [measured(name, row, 1.0) for row in (FAST, BEST, HOT)]
        found += [measured(name, BASE, 10.0)]
        for row in policies:
            factor = 4 if last and row.policy == "one" else 1
            found.append(measured(name, row, seconds[row] * factor, seconds[row] * factor))
    return figures(*found, budget=budget)


def test_a_summary_says_how_far_policies_are_behind_the_best() -> None:
    found = many_workloads()
    count = len(found.comparison.workloads)
    assert {name: line.row for name, line in found.best("1:8").items()} == {
        name: TWO if name == f"w{count - 1}" else ONE for name in found.comparison.workloads
    }
    assert found.shares("1:8")[ONE]["w0"] == 1
    assert found.shares("1:8")[ONE][f"w{count - 1}"] == 0.5
    columns, rows = tables.summary(found, "1:8")
    assert columns == ["1:8", ">default", ">of the best, default", ">worst, default"]
    share = f"{100 * 0.5 ** (1 / count):.1f} %"
    assert rows[0] == ["one", f"{5 / 4 ** (1 / count):.3f} ± 0.000", share, "1.250 (w5)"]
    assert [row[0] for row in rows] == ["one", "two"]
    columns, rows = tables.bests(found, "1:8")
    assert columns == ["1:8", "best default", ">all-fast", ">offline-optimal", ">static-hot"]
    assert rows[0] == ["w0", "one: 5.000", "10.00", "10.00", "10.00"]
    assert rows[-1][1] == "two: 2.500"


def test_a_page_of_many_workloads_has_means_and_what_tuning_changed_where_it_was_best() -> None:
    found = many_workloads(budget=9)
    columns, rows = tables.summary(found, "1:8")
    assert [len(row) for row in rows] == [len(columns)] * 2
    assert rows[1][0] == "two" and rows[1][-1] == "-"
    assert [row[1] for row in tables.costs(found, "1:8")[1]] == ["mean of 6"] * 4
    text = page.markdown(found, "p.png")
    assert "| best tuned |" in text and "Default and tuned" not in text


def test_many_figures_are_a_heat_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "MOST_BARS", 10)
    panels = picture.draw(many_workloads(budget=9)).axes
    default, best, _scale = panels
    assert [label.get_text() for label in default.get_yticklabels()] == [
        *("all-fast", "offline-optimal", "static-hot", "one", "two")
    ]
    assert [label.get_text() for label in best.get_yticklabels()][3:] == ["one"]
    assert [text.get_text() for text in default.texts[-7:]] == ["2.50"] * 7
    assert default.get_title(loc="left") == "1:8, default"


def test_hours_are_of_all_runs() -> None:
    rows = [measured("a", BASE, 10.0), measured("a", ONE, 5.0, 5.0)]
    found = figures(*(replace(row, run_seconds=3600.0) for row in rows))
    assert "all runs, one after the other, took 2.0 h" in page.notes(found)
    assert json.loads(page.json_text(found))["cells"][1]["run_seconds"] == 3600
