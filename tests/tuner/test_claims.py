# SPDX-License-Identifier: MIT
"""tune claims: documents, runs that are shared and kept, tables, and the page."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative

from tuner import cli, engine, ranking, text
from tuner.claims import document, page, runs, verdict
from tuner.claims.document import Claim
from tuner.claims.runs import Plan
from tuner.claims.verdict import Outcome
from tuner.errors import UserError
from tuner.experiment import jobs
from tuner.experiment.jobs import Job, Result
from tuner.run import cache
from tuner.run.trial import Trial

CLAIMS = """\
paper: A paper (2026)
identified:
  - {parameter: op_ns, source: Table 1}
shared: {workload: walker, input: small, policy: toy, objective: runtime}
claims:
  - id: gain
    source: Fig. 1
    what: a threshold of 10 against one of 5
    quick: true
    runs:
      high: {knobs: {threshold: 10}}
      low: {}
    value: perf(high) / perf(low)
    published: 2
    tolerance: 0
    why: it is arithmetic
  - id: table
    source: Table 2
    what: three systems
    runs:
      fast: {knobs: {threshold: 50}}
      good: {knobs: {threshold: 40}}
      bad: {knobs: {threshold: 10}}
    table:
      setup: known
      reference: fast
      systems: {good: [83], bad: [18]}
    tolerance: 5
    why: half of ten
"""

FIGURES = (
    "regret",
    "worst_regret",
    "regret_by_chance",
    "reversed_far",
    "right_far",
    "ordering_tau",
    "tau_ceiling",
    "points_within_10",
    "mean_error_points",
)


@pytest.fixture
def folder(user_folder: Path) -> Path:
    """A folder of claims in the user's folder."""
    path = user_folder / "claims"
    path.mkdir()
    (path / "paper.yaml").write_text(CLAIMS)
    return path


def written(folder: Path, *changes: tuple[str, str]) -> list[Claim]:
    text = CLAIMS
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    (folder / "paper.yaml").write_text(text)
    return document.load(folder)


def only(claims: Sequence[Claim], id: str) -> Claim:
    return next(claim for claim in claims if claim.id == id)


# --- Documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("objective: runtime}", "objektive: runtime}", "4: shared.objektive: unknown key"),
        ("objective: runtime}", "objective: speed}", "4: shared.objective: found the text 'speed'"),
        ("objective: runtime}", 'ratio: "8"}', "4: shared.ratio: found the text '8'"),
        ("objective: runtime}", "seeds: 0}", "4: shared.seeds: found 0"),
        ("objective: runtime}", "seed: 1}", "4: shared.seed: unknown key"),
        ("objective: runtime}", "threads: 0.5}", "4: shared.threads: found 0.5"),
        ("threshold: 10}}\n      low", "threshold: {}}}\n      low", "knobs.threshold: found"),
        ("    tolerance: 0\n", "", "claims[0].tolerance: missing"),
        ("tolerance: 0\n", "tolerance: -1\n", "claims[0].tolerance: found -1"),
        ("    published: 2\n", "", "published belongs to a value"),
        ("value: perf(high) / perf(low)", "value: perf(hi)", "value: perf: no run 'hi'"),
        ("value: perf(high) / perf(low)", "value: perf(high, ratio='1:8')", "does not vary by"),
        ("value: perf(high) / perf(low)", "value: perf(high) /", "not an expression"),
        ("value: perf(high) / perf(low)", "value: open('x')", "must be numbers"),
        ("value: perf(high) / perf(low)", "value: " + "-" * 1900 + "1", "must be simpler"),
        ("value: perf(high) / perf(low)", "value: x" + "9" * 900, "must be numbers"),
        ("value: perf(high) / perf(low)", "value: 1 + " + "9" * 900, "smaller numbers"),
        ("value: perf(high) / perf(low)", "value: x" + "9" * 3000, "must be at most 2,000"),
        ("objective: runtime}", "seeds: 1001}", "4: shared.seeds: found 1001"),
        ("objective: runtime}", "tune: 100001}", "4: shared.tune: found 100001"),
        (
            "      low: {}",
            f"      low: {{threads: {[1] * 101}, scale: {[2] * 100}}}",
            "claims[0].runs.low: found more than 10,000 points; must be fewer",
        ),
        ("      low: {}", "      low: {best_of: high}", "runs.low.best_of: no run 'high'"),
        ("setup: known", "setup: guessed", "claims[1].table.setup: found the text 'guessed'"),
        (
            "paper: A paper (2026)\n",
            "paper: A\nown: [ours]\n",
            "2: own[0]: no run has the policy 'ours'",
        ),
        ("reference: fast", "reference: fastest", "claims[1].table.reference: no run"),
        ("good: [83]", "well: [83]", "claims[1].table.systems.well: no run 'well'"),
        ("good: [83]", "good: [83, 84]", "found 2 figures; its run has 1 points"),
        ("id: table", "id: gain", "claims[1].id: 'gain' is also in"),
    ],
)
def test_an_error_names_file_line_and_key(
    folder: Path, before: str, after: str, message: str
) -> None:
    with pytest.raises(UserError) as error:
        written(folder, (before, after))
    assert re.search(r"paper\.yaml:\d+: ", str(error.value))
    assert message in str(error.value)
    assert len(str(error.value)) < 1000


def test_a_list_makes_a_family_of_all_combinations(folder: Path) -> None:
    claims = written(
        folder,
        (
            "      low: {}",
            '      low: {ratio: ["1:4", "1:8"], knobs: {threshold: [1, 2], period: 2}}',
        ),
    )
    family = only(claims, "gain").families["low"]
    assert [point.label for point in family] == ["1:4, 1", "1:4, 2", "1:8, 1", "1:8, 2"]
    assert family[1].knobs == {"threshold": 2, "period": 2}
    assert family[1].scenario["ratio"] == "1:4"
    assert family[1].scenario["policy"] == "toy"


def test_fields_that_vary_together(folder: Path) -> None:
    claims = written(
        folder,
        (
            "      low: {}",
            '      low: {each: [{input: big, knobs: {threshold: 1}}, {ratio: "1:4"}]}',
        ),
    )
    family = only(claims, "gain").families["low"]
    assert [point.label for point in family] == ["big 1", "1:4"]
    assert [point.scenario["input"] for point in family] == ["big", "small"]
    assert [dict(point.knobs) for point in family] == [{"threshold": 1}, {}]


def test_an_unknown_id_names_the_known_ones(folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'gain'"):
        document.select(document.load(folder), ["gian"], quick=False)


def test_a_folder_without_claims_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no claims in"):
        document.load(tmp_path)


# --- Runs -----------------------------------------------------------------------------------------


@pytest.fixture
def ran(fake: FakeNative, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs done here, where the fake engine is."""
    done_jobs: list[Job] = []

    def inline(wanted: Sequence[Job], workers: int, done: Callable[[Job, Result], None]) -> None:
        for job in wanted:
            done_jobs.append(job)
            done(job, jobs.work(job))

    monkeypatch.setattr("tuner.commands.claims.execute", inline)
    return done_jobs


def tune(*words: str) -> int:
    return cli.main(["claims", "--claims", "claims", *words])


def simulations(fake: FakeNative) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    fake.on_simulate = seen.append
    return seen


def test_claims_share_runs_and_a_second_command_runs_nothing(
    folder: Path, fake: FakeNative, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = simulations(fake)
    assert tune() == 0
    first = json.loads(Path("results/claims.json").read_text())
    assert sorted(call["knobs"]["threshold"] for call in seen) == [5, 10, 40, 50]
    seen.clear()
    assert tune() == 0
    assert seen == []
    assert json.loads(Path("results/claims.json").read_text()) == first
    assert len(ran) == 4


def test_an_interrupted_command_resumes(folder: Path, fake: FakeNative, ran: list[Job]) -> None:
    calls = 0

    def interrupt(arguments: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    fake.on_simulate = interrupt
    assert tune() == 130
    seen = simulations(fake)
    assert tune() == 0
    assert len(seen) == 2


def test_cached_runs_nothing(
    folder: Path, fake: FakeNative, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    tune("gain")
    ran.clear()
    capsys.readouterr()
    assert tune("--cached", "--json", "--output", "out") == 0
    gain, *table = json.loads(capsys.readouterr().out)["claims"]
    assert ran == []
    assert gain["verdict"] == "pass"
    assert {row["verdict"] for row in table} == {"not evaluable"}
    assert "did not run" in table[0]["reason"]


@pytest.mark.parametrize(
    "change",
    [
        ("threshold: 10}}\n      low", "threshold: 11}}\n      low"),
        ("      high: {knobs", '      high: {ratio: "1:4", knobs'),
    ],
)
def test_another_knob_or_field_runs_again(
    folder: Path, fake: FakeNative, ran: list[Job], change: tuple[str, str]
) -> None:
    tune("gain")
    written(folder, change)
    seen = simulations(fake)
    tune("gain")
    assert len(seen) == 1


def test_another_engine_runs_again(
    folder: Path, fake: FakeNative, ran: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("gain")
    monkeypatch.setattr(fake, "ids", lambda: {"policies": "build", "simulator": "2"})
    seen = simulations(fake)
    tune("gain")
    assert len(seen) == 2


def test_results_of_old_builds_are_removed(fake: FakeNative) -> None:
    for number in range(cache.KEPT_BUILDS + 3):
        cache.prune(f"build-{number}")
        for other in cache.folder("x").parent.iterdir():
            other.touch()  # no clock: whoever is touched last is newest
        cache.folder(f"build-{number}").touch()
    assert len(list(cache.folder("x").parent.iterdir())) == cache.KEPT_BUILDS
    assert cache.folder(f"build-{cache.KEPT_BUILDS + 2}").is_dir()


def test_seeds_are_averaged(folder: Path, fake: FakeNative, ran: list[Job]) -> None:
    """The fake's run time is 10 / threshold + seed % 3: means 2 and 3."""
    claims = written(
        folder,
        ("objective: runtime}", "objective: runtime, seeds: 3}"),
        ("value: perf(high) / perf(low)", "value: '[objective(high), objective(low)]'"),
        ("published: 2\n", "published: [2, 3]\n"),
    )
    seen = simulations(fake)
    assert only(claims, "gain").families["high"][0].seeds == 3
    assert tune("gain") == 0
    assert sorted(call["seed"] for call in seen) == [0, 0, 1, 1, 2, 2]
    assert ours("gain") == [2.0, 3.0]


def ours(id: str, *words: str) -> Any:
    tune(id, "--output", "out", *words)
    rows = json.loads(Path("out/claims.json").read_text())["claims"]
    return next(row["ours"] for row in rows if row["id"] == id)


def test_a_study_finds_knobs_and_its_best_is_run_with_fresh_seeds(
    folder: Path, fake: FakeNative, ran: list[Job]
) -> None:
    written(
        folder,
        ("      low: {}", "      low: {}\n      tuned: {tune: 6}\n      taken: {best_of: tuned}"),
        (
            "value: perf(high) / perf(low)",
            'value: \'[perf(tuned) / perf(low), knob(tuned, "threshold")'
            ' / knob(taken, "threshold")]\'',
        ),
    )
    seen = simulations(fake)
    gain, same = ours("gain")
    assert gain > 1
    assert same == 1
    searched = [call for call in seen if call["seed"] == jobs.STUDY_SEED]
    assert len(searched) == 6
    assert searched[0]["knobs"]["threshold"] == 5
    best = max(call["knobs"]["threshold"] for call in searched)
    final = [call for call in seen if call["seed"] == 0 and call["knobs"]["threshold"] == best]
    assert len(final) == 1
    seen.clear()
    assert ours("gain") == [gain, same]
    assert seen == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("policy: tpp", "no policy 'tpp'"),
        ("input: huge", "no input of workload walker 'huge'"),
        ("knobs: {threshold: 3000}", "knob threshold: found 3000"),
    ],
)
def test_what_a_claim_lacks_is_its_reason(
    folder: Path, ran: list[Job], capsys: pytest.CaptureFixture[str], change: str, reason: str
) -> None:
    written(folder, ("      low: {}", f"      low: {{{change}}}"))
    assert tune("gain", "--json") == 0
    row = json.loads(capsys.readouterr().out)["claims"][0]
    assert row["verdict"] == "not evaluable"
    assert reason in row["reason"]
    assert row["ours"] is None


def test_a_run_that_is_refused_is_no_failure(
    folder: Path, fake: FakeNative, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        raise ValueError("too few fast pages; use a smaller --scale")

    fake.on_simulate = refuse
    assert tune("gain", "--json") == 0
    row = json.loads(capsys.readouterr().out)["claims"][0]
    assert row["verdict"] == "not evaluable"
    assert "too few fast pages" in row["reason"]


def pool(monkeypatch: pytest.MonkeyPatch, dead: Callable[[Job], bool] = lambda job: False) -> None:
    """Workers as threads, of which those of some jobs die."""

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, context: object) -> None:
            super().__init__(workers)

        def submit(self, function: Any, job: Any) -> Any:  # type: ignore[override]
            if dead(job):
                raise BrokenProcessPool
            return super().submit(function, job)

    monkeypatch.setattr(runs, "ProcessPoolExecutor", Pool)


def test_workers_make_each_stream_once(
    folder: Path, fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool(monkeypatch)
    written(folder, ("      low: {}", "      low: {input: big}"))
    assert tune() == 0
    assert fake.recorded() == 2
    assert len(json.loads(Path("results/claims.json").read_text())["claims"]) == 3


def test_a_dead_worker_fails_the_command(
    folder: Path,
    fake: FakeNative,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool(monkeypatch, lambda job: isinstance(job, Trial) and job.knobs["threshold"] == 10)
    assert tune("gain") == 1
    said = capsys.readouterr()
    assert "a worker process died" in said.err
    assert "not evaluable" in said.out


# --- Tables ---------------------------------------------------------------------------------------


def test_a_table_gives_its_figures_and_its_order(
    folder: Path, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("table", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [*FIGURES, "claims"]
    figures, order = found["claims"]
    assert figures["ours"] == {"good": [80.0], "bad": [20.0]}
    assert figures["verdict"] == "pass"
    assert (order["id"], order["verdict"]) == ("table-order", "pass")
    assert order["ours"] == {"": "good > bad"}
    assert found["ordering_tau"] == 1
    assert (found["regret"], found["regret_by_chance"]) == (0, pytest.approx((1 - 18 / 83) / 2))
    assert (found["reversed_far"], found["right_far"]) == (0, 1)
    for key in ("id", "source", "published", "ours", "tolerance", "verdict", "note"):
        assert key in figures


def test_a_table_that_is_off(folder: Path, ran: list[Job]) -> None:
    claims = written(
        folder, ("systems: {good: [83], bad: [18]}", "systems: {good: [50], bad: [60]}")
    )
    plan = planned(claims)
    figures, order = verdict.judge(only(claims, "table"), plan)
    assert (figures.verdict, order.verdict) == (Outcome.failed, Outcome.failed)
    assert ranking.tau(pair.orders for pair in order.pairs) == -1
    assert [cell["ours"] - cell["published"] for cell in figures.cells] == [30, -40]


def test_regret_is_what_following_our_order_costs(folder: Path, ran: list[Job]) -> None:
    claims = written(
        folder, ("systems: {good: [83], bad: [18]}", "systems: {good: [50], bad: [60]}")
    )
    rows = verdict.judge(only(claims, "table"), planned(claims))
    (cell,) = rows[0].regrets
    assert (cell.chosen, cell.best) == ("good", "bad")
    assert cell.loss == pytest.approx(1 / 6)
    assert cell.by_chance == pytest.approx(1 / 12)
    summary = verdict.summarize(rows)
    assert summary.worst_regret == pytest.approx(1 / 6)
    assert summary.choices == 1
    assert (summary.reversed_far, summary.right_far, summary.far_pairs) == (1, 0, 1)
    text = page.markdown(claims, rows, summary)
    assert "| [table](#table) | known | 16.7 % | 8.3 % | 16.7 %: , good instead of bad |" in text


def test_without_a_published_performance_there_is_no_regret() -> None:
    ours = {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    (found,) = verdict.regrets(["zero", "one"], {"a": [0.0, 4.0], "b": [0.0, 3.0]}, ours)
    assert (found.cell, found.chosen, found.best, found.loss) == ("one", "b", "a", 0.25)


def test_a_papers_own_systems_are_no_choice(folder: Path, ran: list[Job]) -> None:
    claims = written(folder, ("paper: A paper (2026)", "paper: A paper (2026)\nown: [toy]"))
    rows = verdict.judge(only(claims, "table"), planned(claims))
    assert rows[0].regrets == []
    summary = verdict.summarize(rows)
    assert (summary.regret, summary.worst_regret, summary.choices) == (None, None, 0)
    assert summary.pairs == 1


def test_the_best_tau_is_that_of_tables_measured_again(folder: Path, ran: list[Job]) -> None:
    far = verdict.judge(only(document.load(folder), "table"), planned(document.load(folder)))
    assert verdict.ceiling(far) == 1  # 65 points apart
    claims = written(folder, ("good: [83], bad: [18]", "good: [83], bad: [80]"))
    near = verdict.judge(only(claims, "table"), planned(claims))
    found = verdict.ceiling(near)
    assert found is not None
    assert 0.1 < found < 0.9
    assert found == verdict.ceiling(near)
    assert verdict.ceiling([]) is None


def planned(claims: Sequence[Claim]) -> Plan:
    """A plan whose jobs are done."""
    plan = Plan([verdict.families(claim) for claim in claims])
    for job in plan.jobs():
        plan.take(job, jobs.work(job))
    return plan


def test_only_tables_against_all_fast_count_as_slowdown(folder: Path, ran: list[Job]) -> None:
    claims = document.load(folder)
    rows = verdict.judge(only(claims, "table"), planned(claims))
    assert verdict.summarize(rows).mean_error_points is None
    rows[0].errors = [3.0, -12.0]
    assert verdict.summarize(rows).mean_error_points == 7.5
    assert verdict.summarize(rows).points_within_10 == 0.5


def test_a_reference_has_the_pages_of_the_system(folder: Path, fake: FakeNative) -> None:
    claims = written(
        folder,
        ("bad: {knobs: {threshold: 10}}", "bad: {page_bytes: 2097152, knobs: {threshold: 10}}"),
    )
    seen = simulations(fake)
    planned([only(claims, "table")])
    sizes = {(call["knobs"]["threshold"], call["page_bytes"]) for call in seen}
    assert sizes == {(50, 4096), (50, 2 << 20), (40, 4096), (10, 2 << 20)}


def test_a_figure_that_was_not_published_is_left_out(folder: Path, ran: list[Job]) -> None:
    claims = written(folder, ("good: [83]", "good: [null]"))
    rows = verdict.judge(only(claims, "table"), planned(claims))
    assert [cell["system"] for cell in rows[0].cells] == ["bad"]
    assert len(rows) == 1


def test_needs_makes_it_not_evaluable_without_runs(folder: Path, ran: list[Job]) -> None:
    written(folder, ("    quick: true\n", "    quick: true\n    needs: a kernel of Linux\n"))
    assert tune("gain") == 0
    assert ran == []


# --- The page -------------------------------------------------------------------------------------


def test_the_page_lists_what_was_identified(folder: Path, ran: list[Job]) -> None:
    assert tune() == 0
    text = Path("results/claims.md").read_text()
    assert "| op_ns | A paper (2026), Table 1 |" in text
    assert "| good | 83 | 80.0 | -3.0 |" in text
    assert text.index("Ordering fidelity") < text.index("| claim |")


def test_a_part_of_the_claims_writes_nothing_unless_asked(folder: Path, ran: list[Job]) -> None:
    assert tune("gain") == 0
    ran.clear()
    assert tune("--quick") == 0
    assert ran == []  # the quick one is gain
    assert not Path("results").exists()
    assert tune("gain", "--output", "here") == 0
    assert Path("here/claims.json").exists()


def test_an_update_runs_what_the_file_lacks(
    folder: Path, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    def on_another_machine() -> None:
        shutil.rmtree(cache.folder(engine.results_id()))
        ran.clear()

    assert tune("gain", "--output", "results") == 0
    on_another_machine()
    assert tune("--update") == 0
    assert "1 claim to run, 1 kept" in capsys.readouterr().err
    assert len(ran) == 3  # the table's
    first = json.loads(Path("results/claims.json").read_text())
    assert [row["id"] for row in first["claims"]] == ["gain", "table", "table-order"]

    on_another_machine()
    assert tune("--update") == 0
    assert ran == []
    assert json.loads(Path("results/claims.json").read_text()) == first

    # Words and tolerances need no run; what is asked does.
    written(folder, ("published: 2\n", "published: 3\n"), ("tolerance: 5", "tolerance: 0"))
    assert tune("--update") == 0
    assert ran == []
    rows = json.loads(Path("results/claims.json").read_text())["claims"]
    assert [row["verdict"] for row in rows] == ["fail", "fail", "pass"]
    written(folder, ("threshold: 10}}\n      low", "threshold: 11}}\n      low"))
    assert tune("--update") == 0
    assert len(ran) == 2  # the gain's
    on_another_machine()
    content = json.loads(Path("results/claims.json").read_text())
    for row in content["claims"]:
        assert row["build"] == engine.results_id()
        row["build"] = "older"
    Path("results/claims.json").write_text(json.dumps(content))
    assert tune("--update", "table") == 0
    assert len(ran) == 3
    rows = json.loads(Path("results/claims.json").read_text())["claims"]
    assert [row["build"] for row in rows] == ["older", engine.results_id(), engine.results_id()]
    page = Path("results/claims.md").read_text()
    assert f"1 verdict by older, 2 verdicts by {engine.results_id()}" in page


def test_builds_that_are_not_known_are_earlier_ones() -> None:
    assert text.engine_builds("cell", []) == "Engine builds: none."
    assert (
        text.engine_builds("cell", ["1a", "", "1a"])
        == "Engine builds: 2 cells by 1a, 1 cell by an earlier one."
    )


def test_the_list_runs_nothing(
    folder: Path, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--list", "--json") == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["claims"]] == ["gain", "table"]
    assert ran == []


def test_against_an_earlier_file(
    folder: Path, ran: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    tune("--output", "before")
    capsys.readouterr()
    assert tune("--against", "before/claims.json") == 0
    assert "no claim has changed" in capsys.readouterr().err
    written(folder, ("threshold: 10}}\n      low", "threshold: 11}}\n      low"))
    assert tune("gain", "--against", "before/claims.json") == 1
    assert "gain: pass -> fail: 2 -> 2.2" in capsys.readouterr().err
    tune("--output", "after")
    written(folder)
    assert tune("gain", "--against", "after/claims.json") == 0
    assert "gain: fail -> pass: 2.2 -> 2" in capsys.readouterr().err


def test_a_file_that_is_no_claims_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_text('{"claims": [{"verdict": "maybe"}]}')
    assert tune("--against", "x.json") == 2
    assert "not a claims.json" in capsys.readouterr().err
