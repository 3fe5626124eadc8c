# SPDX-License-Identifier: MIT
"""tune compare: what is run and kept, and what is written."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import POLICIES, FakeNative

from tuner import cli, engine
from tuner.declarations import PolicyDecl
from tuner.experiment import jobs
from tuner.run import cache, pool, pools, runner, settings
from tuner.run.trial import Status, Trial, TrialResult

HUGE = 2 << 20


# --- What is run ----------------------------------------------------------------------------------

SECONDS = {"first-touch": 20.0, "all-fast": 2.0, "static-hot": 10.0, "offline-optimal": 4.0}


class Native(FakeNative):
    """Runs the references too. The toy's run time is 10 / threshold + seed % 3."""

    def simulate(self, path: str, **arguments: Any) -> dict[str, Any]:
        found = super().simulate(path, **arguments)
        found["seconds"] = SECONDS.get(arguments["policy"], found["seconds"])
        found["metrics"] |= {"fast_hit_ratio": 0.75, "migrated_bytes": float(3 << 30)}
        return found


class Inline:
    """A pool whose worker is this process, where the fake engine is."""

    workers = 1
    opened = 0

    def __init__(self, work: pool.Runner, **_: Any) -> None:
        type(self).opened += 1
        self.work = work
        self.trial: Trial | None = None

    def submit(self, trial: Trial) -> None:
        assert self.trial is None
        self.trial = trial

    def wait(self, timeout: float) -> list[TrialResult]:
        assert self.trial is not None
        result, self.trial = self.work(self.trial), None
        return [result]

    def close(self) -> None:
        pass


def declare(monkeypatch: pytest.MonkeyPatch, **traits: Any) -> None:
    """The toy and the references, and `huge` if there are traits: a toy with other pages."""
    bare = {"family": "test", "summary": "s", "citation": "c", "knobs": []}
    static: dict[str, Any] = {"page_bytes": 4096, "needs": ""}
    declared = [*POLICIES, *(bare | {"name": name, "traits": static} for name in SECONDS)]
    if traits:
        declared.append(POLICIES[0] | {"name": "huge", "traits": traits})
    policies = {p["name"]: PolicyDecl.model_validate(p) for p in declared}
    monkeypatch.setattr(engine, "policies", lambda: policies)


@pytest.fixture
def native(fake: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    found = Native(tmp_path)
    monkeypatch.setattr(engine, "native", lambda: found)
    monkeypatch.setattr(pools, "open_pool", Inline)
    monkeypatch.setattr(Inline, "opened", 0)
    monkeypatch.setattr("tuner.commands.compare.track", lambda *_, **__: None)
    declare(monkeypatch)
    return found


def simulations(native: Native) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    native.on_simulate = seen.append
    return seen


def compare(*words: str, workloads: str = "walker", ratios: str = "1:8") -> int:
    given = ["--workloads", workloads, "--ratios", ratios]
    return cli.main(["compare", *given, "--objective", "runtime", "--name", "x", *words])


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("results/compare-x/compare.json").read_text())
    return found


def performance(*, table: str = "performance", ratio: int = 0) -> dict[tuple[str, bool], Any]:
    """Mean performance by policy and whether it is tuned."""
    return {
        (row["policy"], row["tuned"]): row["geometric_mean"] and row["geometric_mean"]["value"]
        for row in content()["tables"][ratio][table]
    }


def test_a_comparison_writes_its_files(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    """The toy takes 2, 3 and 4 s."""
    assert compare(workloads="walker,walker:small", ratios="1:8,1:4") == 0
    out = capsys.readouterr().out
    folder = Path("results/compare-x")
    names = {"compare.csv", "compare.json", "compare.md", "compare.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    mean = (20 / 2 + 20 / 3 + 20 / 4) / 3
    assert performance() == pytest.approx(
        {
            ("all-fast", False): 10,
            ("static-hot", False): 2,
            ("offline-optimal", False): 5,
            ("toy", False): mean,
            ("first-touch", False): 1,
        }
    )
    assert f"{mean:.3f} ± " in out
    rows = list(csv.DictReader((folder / "compare.csv").open()))
    assert len(rows) == 2 * 2 * (3 + 4)
    toy = [row for row in rows if row["policy"] == "toy" and row["ratio"] == "1:4"]
    assert [row["seed"] for row in toy] == ["0", "1", "2"] * 2
    assert [row["input"] for row in toy] == ["big"] * 3 + ["small"] * 3
    assert float(toy[0]["performance"]) == 10
    assert {row["migrated_bytes"] for row in toy} == {str(float(3 << 30))}
    text = (folder / "compare.md").read_text()
    assert "| toy | walker | 0.750 |" in text
    assert "| geometric mean |" in text


def test_a_policy_can_have_pages_of_another_size(
    native: Native, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(monkeypatch, page_bytes=HUGE)
    assert compare("--policies", "toy,huge,huge@4096,toy@4096") == 0
    rows = [(row["policy"], row["page_bytes"]) for row in content()["tables"][0]["performance"]]
    assert [row for row in rows if row[0] in ("toy", "huge")] == [
        *(("toy", 4096), ("huge", HUGE), ("huge", 4096))
    ]
    assert compare("--policies", "huge@5000") == 2
    error = capsys.readouterr().err
    assert "--policies huge@5000: pages: found '5000'; must be 4096 or 2097152" in error


def test_json_prints_one_object(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found.pop("files")) == 4
    assert found == content()
    assert {cell["status"] for cell in found["cells"]} == {"success"}
    (toy,) = (cell for cell in found["cells"] if cell["policy"] == "toy")
    assert toy["objectives"] == [2, 3, 4]
    assert toy["metrics"]["fast_hit_ratio"] == [0.75] * 3
    assert toy["engine_build"] == found["engine_build"]


def test_a_second_command_runs_nothing(native: Native) -> None:
    seen = simulations(native)
    assert compare(ratios="1:8,1:4") == 0
    assert len(seen) == 2 * (3 + 4)  # references run once
    first = content()
    seen.clear()
    Inline.opened = 0
    assert compare(ratios="1:8,1:4") == 0
    assert (seen, Inline.opened) == ([], 0)
    assert content() == first
    assert compare("--seeds", "5") == 0  # two more seeds of the one policy that samples
    assert sorted(call["seed"] for call in seen) == [3, 4]


def test_a_comparison_is_added_to_on_another_machine(
    native: Native, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_another_machine(build: str) -> None:
        shutil.rmtree(cache.folder(engine.results_id()))
        found = content()
        for cell in found["cells"]:
            cell["engine_build"] = build
        Path("results/compare-x/compare.json").write_text(json.dumps(found))
        seen.clear()

    seen = simulations(native)
    assert compare("--update") == 0
    assert len(seen) == 3 + 4
    first = content()
    on_another_machine("older")
    assert compare("--update", workloads="walker:small") == 0
    assert "5 cells kept of 10" in capsys.readouterr().err
    assert len(seen) == 3 + 4
    second = content()
    assert second["workloads"] == ["walker", "walker:small"]
    builds = [(cell["workload"], cell["engine_build"]) for cell in second["cells"]]
    build = engine.results_id()
    assert builds == [("walker", "older")] * 5 + [("walker:small", build)] * 5
    for old, new in zip(first["cells"], second["cells"], strict=False):
        assert old | {"engine_build": "older"} == new
    page = Path("results/compare-x/compare.md").read_text()
    assert f"Engine builds: 5 cells by older, 5 cells by {build}." in page

    # Whatever a cell's figures depend on has to be the same.
    on_another_machine("older")
    assert compare("--update", "--window", "steady", workloads="walker") == 0
    assert len(seen) == 2 * (3 + 4)
    on_another_machine("older")
    assert compare("--update", "--window", "steady", "--seeds", "2") == 0
    assert len(seen) == 2 * (4 + 2)


def test_an_update_searches_what_is_new(native: Native) -> None:
    seen = simulations(native)
    assert compare("--update", "--tuned", "3") == 0
    first = content()
    shutil.rmtree(cache.folder(engine.results_id()))
    seen.clear()
    assert compare("--update", "--tuned", "3") == 0
    assert seen == []
    assert content() == first
    assert compare("--update", "--tuned", "4") == 0
    assert len(seen) == 4 + 3


def test_what_failed_is_run_again_by_an_update(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = simulations(native)
    assert compare("--update") == 0
    found = content()
    for cell in found["cells"]:
        if cell["policy"] == "toy":
            cell |= {"status": "timeout", "reason": "x", "seeds": [], "objectives": []}
            cell["metrics"] = {}
    Path("results/compare-x/compare.json").write_text(json.dumps(found))
    shutil.rmtree(cache.folder(engine.results_id()))
    seen.clear()
    assert compare("--update") == 0
    assert [call["policy"] for call in seen] == ["toy"] * 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "metrics",
            {"promotions": 1.5},
            "].metrics.promotions: found 1.5; must be a list",
        ),
        ("objectives", [1.0], "objectives must have one value for each seed"),
        ("objectives", [1.0, math.inf, 1.0], "].objectives[1]: found inf; must be a finite"),
        ("objectives", "fast", "].objectives: found the text 'fast'; must be a list"),
        ("knobs", [], "].knobs: found a list of 0 values; must be a mapping"),
        ("engine_build", None, "].engine_build: missing"),
    ],
)
def test_a_file_that_lacks_figures_is_refused(
    native: Native, name: str, value: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--update") == 0
    found = content()
    for cell in found["cells"]:
        if cell["policy"] == "toy":
            if value is None:
                del cell[name]
            else:
                cell[name] = value
    Path("results/compare-x/compare.json").write_text(json.dumps(found))
    assert compare("--update") == 2
    assert message in capsys.readouterr().err
    assert content() == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "--workloads", "walker", "--update"], "--update: needs --name"),
        (
            ["compare", "--workloads", "walker", "--update", "--name", "x"],
            "compare.json: not a compare.json: cells[0]: found 1; must be a mapping",
        ),
    ],
)
def test_what_cannot_be_added_to_is_refused(
    native: Native, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("results/compare-x/compare.json")
    file.parent.mkdir(parents=True)
    file.write_text('{"cells": [1]}')
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err
    assert file.read_text() == '{"cells": [1]}'


def test_another_objective_is_read_from_the_same_runs(native: Native) -> None:
    assert compare() == 0
    seen = simulations(native)
    assert compare("--objective", "p50") == 0  # 500 + seed, and 500 of the base
    assert seen == []
    assert performance()["toy", False] == pytest.approx((500 / 500 + 500 / 501 + 500 / 502) / 3)


def test_an_interrupted_command_goes_on(native: Native, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(arguments: dict[str, Any]) -> None:
        if arguments["policy"] == "toy" and arguments["seed"] == 1:
            raise KeyboardInterrupt

    native.on_simulate = interrupt
    assert compare() == 130
    assert "of 7 runs, which are kept" in capsys.readouterr().err
    done = len(list(Path("cache/runs/build-1").glob("*.json")))
    assert 0 < done < 7
    seen = simulations(native)
    assert compare() == 0
    assert len(seen) == 7 - done


def test_a_refused_cell_leaves_the_others(
    native: Native, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["policy"] == "toy" and arguments["fast_share"] == 0.2:
            raise ValueError("too coarse: 1 simulated page\nmore")

    native.on_simulate = refuse
    assert compare(ratios="1:8,1:4") == 0
    said = capsys.readouterr()
    assert "refused: toy on walker at 1:4: too coarse: 1 simulated page\n" in said.out
    assert performance()["toy", False] is not None
    assert performance(ratio=1)["toy", False] is None
    assert performance(ratio=1)["static-hot", False] == 2
    (cell,) = (c for c in content()["cells"] if c["status"] != "success")
    assert (cell["policy"], cell["ratio"], cell["status"]) == ("toy", "1:4", "refused")
    assert "refused" in Path("results/compare-x/compare.csv").read_text()


def test_a_stream_that_cannot_be_made_is_the_reason(
    native: Native, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path) -> None:
        if native.recorded() == 2:
            raise ValueError("too small for the kernel")

    native.on_record = fail
    assert compare(workloads="walker,walker:small") == 0
    out = capsys.readouterr().out
    assert "refused: all-fast; offline-optimal; " in out
    assert " on walker:small at 1:8: workload walker" in out
    assert "too small for the kernel" in out
    assert performance()["toy", False] is not None


@pytest.mark.parametrize("status", [Status.crashed, Status.timeout])
def test_a_crash_fails_the_command_but_not_the_rest(
    native: Native,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: Status,
) -> None:
    def work(trial: Trial) -> TrialResult:
        if trial.scenario.policy == "toy":
            return pool.without_result(trial, status, "its worker died", 1.0)
        return runner.run(trial)

    monkeypatch.setattr(pools, "open_pool", lambda _, **__: Inline(work))
    assert compare() == 1
    said = capsys.readouterr()
    assert f"toy on walker at 1:8: {status}: its worker died" in said.err
    assert f"{status}: toy on walker at 1:8: its worker died" in said.out
    assert performance()["static-hot", False] == 2


def test_nothing_that_runs_is_a_failure(native: Native) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        raise ValueError("no")

    native.on_simulate = refuse
    assert compare() == 1


def test_streams_are_made_once_for_each_size_of_pages(
    native: Native, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(monkeypatch, page_bytes=HUGE)
    order: list[str] = []
    native.on_record = lambda path: order.append("stream")
    native.on_simulate = lambda arguments: order.append("run")
    assert compare("--policies", "toy,huge", workloads="walker,walker:small", ratios="1:8,1:4") == 0
    assert order[:4] == ["stream"] * 4
    assert "stream" not in order[4:]
    assert "making the stream of walker (small)" in capsys.readouterr().err


def test_a_policy_keeps_its_pages_and_references_of_that_size_stand_beside_it(
    native: Native, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(monkeypatch, page_bytes=HUGE)
    seen = simulations(native)
    assert compare("--policies", "toy,huge") == 0
    sizes = {(call["policy"], call["page_bytes"]) for call in seen}
    assert sizes == {("toy", 4096), ("huge", HUGE)} | {
        (name, size) for name in SECONDS for size in (4096, HUGE)
    }
    assert content()["base"] == {"policy": "first-touch", "page_bytes": 4096, "tuned": False}
    assert "huge, 2 MiB: pages of 2 MiB, over the same base" in capsys.readouterr().out
    seen.clear()
    assert compare("--policies", "toy,huge", "--page-bytes", "4096") == 0
    assert {(call["policy"], call["page_bytes"]) for call in seen} == {("huge", 4096)}
    seen.clear()
    assert compare("--policies", "toy,huge", "--page-bytes", str(HUGE)) == 0
    assert {(call["policy"], call["page_bytes"]) for call in seen} == {("toy", HUGE)}
    assert content()["base"] == {"policy": "first-touch", "page_bytes": HUGE, "tuned": False}


def test_references_start_in_the_fast_tier(native: Native) -> None:
    seen = simulations(native)
    assert compare("--start", "slow", "--window", "steady") == 0
    assert {call["policy"] for call in seen if call["start_slow"]} == {"toy"}
    assert {call["score_after"] for call in seen} == {0.25}


def test_tuned_configurations_stand_beside_defaults(
    native: Native, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = simulations(native)
    words = ["--tuned", "6", "--tune-ratio", "1:4", "--ratios", "1:8,1:2"]
    assert compare(*words) == 0
    searched = [call for call in seen if call["seed"] == jobs.STUDY_SEED]
    assert len(searched) == 6
    assert {call["fast_share"] for call in searched} == {0.2}
    best = max(call["knobs"]["threshold"] for call in searched)
    runs = [call for call in seen if call["knobs"]["threshold"] == best and call not in searched]
    assert [(call["fast_share"], call["seed"]) for call in runs] == [
        (pytest.approx(share), seed) for share in (1 / 9, 1 / 3) for seed in (0, 1, 2)
    ]
    for ratio in (0, 1):
        default, other = (performance(ratio=ratio)["toy", tuned] for tuned in (False, True))
        assert other > default
        gain = performance(table="gain", ratio=ratio)["toy", True]
        paired = [(2 + seed) / (10 / best + seed) for seed in (0, 1, 2)]
        assert gain == pytest.approx(sum(paired) / 3)
    assert "tuned: the best of 6 trials" in capsys.readouterr().out
    (knobs, _) = (cell["knobs"] for cell in content()["cells"] if cell["tuned"])
    assert knobs["threshold"] == best
    seen.clear()
    assert compare(*words) == 0
    assert seen == []


def test_a_search_that_fails_refuses_what_would_follow(native: Native) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        if arguments["seed"] == jobs.STUDY_SEED:
            raise ValueError("too coarse at the ratio of the search")

    native.on_simulate = refuse
    assert compare("--tuned", "3") == 0
    assert performance()["toy", False] is not None
    (cell,) = (cell for cell in content()["cells"] if cell["tuned"])
    assert (cell["status"], cell["reason"]) == ("refused", "too coarse at the ratio of the search")


def test_a_pool_and_a_worker_find_the_same(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims search in a worker, comparisons beside a pool; each takes what the other kept."""
    setting = settings.resolve("walker", policy=engine.policy("toy"), objective="runtime")
    study = jobs.study(setting, {}, 5)
    found: list[jobs.Result] = []
    counted: list[None] = []
    jobs.run_on(
        Inline(runner.run),
        [study],
        lambda _, result: found.append(result),
        lambda: counted.append(None),
    )
    assert len(counted) == 5
    assert jobs.known(study) == found[0]
    monkeypatch.setenv("TIERTUNE_CACHE", "other")
    assert jobs.known(study) is None
    again = jobs.work(study)
    assert again.model_copy(update={"seconds": found[0].seconds}) == found[0]


def test_what_does_not_succeed_is_not_kept(native: Native) -> None:
    setting = settings.resolve("walker", policy=engine.policy("toy"))
    (trial,) = jobs.trials(setting, {}, 1)
    found: list[jobs.Result] = []

    def crash(trial: Trial) -> TrialResult:
        return pool.without_result(trial, Status.crashed, "died", 1.0)

    jobs.run_on(Inline(crash), [trial], lambda _, result: found.append(result))
    assert [result.status for result in found] == [Status.crashed]
    assert jobs.known(trial) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policies", "toi"], "no policy 'toi'; did you mean 'toy'?"),
        (["--ratios", "1:8,8"], "--ratios: found '8'; must be FAST:SLOW"),
        (["--tuned", "2", "--tune-ratio", "1:0"], "--tune-ratio: found '1:0'; must be"),
        (["--workloads", "walker:huge"], "no input of workload walker 'huge'"),
        (["--workloads", "wolker"], "no workload 'wolker'"),
        (["--workloads", "walker,walker:big"], "--workloads: 'walker' is given twice"),
        (["--set", "items=5"], "--set items: workload walker, input big: has no sizes"),
        (["--machine", "test"], "no machine 'test'"),
        (["--name", "a/b"], "--name: found 'a/b'"),
        (["--policies", "first-touch", "--tuned", "2"], "--tuned: none of the policies has knobs"),
    ],
)
def test_bad_input_is_named(
    native: Native, capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    assert compare(*words) == 2
    assert message in capsys.readouterr().err
    assert native.recorded() == 0


def test_a_name_tells_what_is_compared(native: Native) -> None:
    given = ["compare", "--workloads", "walker:small", "--ratios", "1:8,1:4"]
    assert cli.main(given) == 0
    assert cli.main([*given, "--tuned", "2", "--threads", "4"]) == 0
    plain, *rest = sorted(path.name for path in Path("results").glob("compare-*"))
    assert plain == "compare-walker.small-toy-1to8-1to4-3seeds"
    assert rest[0].startswith(f"{plain}-tuned2at1to8-")


def test_a_store_that_fails_is_no_failure(
    native: Native, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("database is locked")

    monkeypatch.setattr("tuner.commands.compare.track", fail)
    assert compare() == 0
    assert "does not take this comparison (RuntimeError: database is locked)" in (
        capsys.readouterr().err
    )


# --- The whole command ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_comparison_of_real_policies_is_in_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--workloads", "gups:smoke", "--policies", "freqtier,hemem"]
    words += ["--ratios", "1:8,1:4", "--workers", "1", "--name", "two", "--json"]
    outcome = run(*words)
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert {cell["status"] for cell in found["cells"]} == {"success"}
    assert "gups:smoke: smoke input, whose figures mean little" in found["notes"]
    for table in found["tables"]:
        speed = {
            (row["policy"], row["page_bytes"]): row["geometric_mean"]["value"]
            for row in table["performance"]
        }
        assert speed["first-touch", 4096] == 1
        assert speed["all-fast", 4096] == max(v for (_, size), v in speed.items() if size == 4096)
        assert speed["hemem", HUGE] > speed["first-touch", HUGE]

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'results' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiertune-compare")
    assert experiment is not None

    def stored() -> tuple[list[Any], list[Any]]:
        runs = client.search_runs([experiment.experiment_id])
        parents = [run for run in runs if "tiertune.comparison" in run.data.tags]
        return parents, [run for run in runs if "tiertune.cell" in run.data.tags]

    (parent,), children = stored()
    assert len(children) == len(found["cells"]) == 2 * (2 + 8)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}
    cell = next(cell for cell in found["cells"] if cell["policy"] == "hemem")
    child = next(
        run
        for run in children
        if run.data.params["policy"] == "hemem" and run.data.params["ratio"] == cell["ratio"]
    )
    hits = cell["metrics"]["fast_hit_ratio"]
    assert child.data.metrics["fast_hit_ratio"] == pytest.approx(sum(hits) / len(hits))
    history = client.get_metric_history(child.info.run_id, "objective")
    assert [point.value for point in sorted(history, key=lambda p: p.step)] == cell["objectives"]
    names = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert names == {"compare.csv", "compare.json", "compare.md", "compare.png"}

    client.delete_run(children[0].info.run_id)  # as if it had not been stored
    assert run(*words).json == found
    (again,), children_again = stored()
    assert again.info.run_id == parent.info.run_id
    assert len(children_again) == len(children)
