# SPDX-License-Identifier: MIT
"""The command line on the real engine, in its own process, from a folder with nothing in it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import python_path, started

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.experiment.checks import REFERENCES
from tuner.report import charts
from tuner.run import runner
from tuner.run.trial import Status
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stream cache for all tests here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def empty_folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERTUNE_CACHE", str(cache))
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def tune_json(*arguments: str) -> Any:
    return json.loads(tune(*arguments, "--json").stdout)


def test_every_packaged_document_is_right() -> None:
    assert catalog.names(Kind.machine)
    for name in catalog.names(Kind.machine):
        assert catalog.machine(name).packaged
    assert {"gups", "microbench"} <= set(catalog.names(Kind.workload))
    for name in catalog.names(Kind.workload):
        workload = catalog.workload(name).spec
        assert catalog.machine(workload.machine)
    for name in catalog.names(Kind.space):
        space = catalog.space(name).spec
        assert space.policy == name
        assert len(catalog.tuned_knobs(space, engine.policy(name))) == len(space.knobs)


def test_listings_name_what_the_engine_declares() -> None:
    policies = {policy["name"]: policy for policy in tune_json("policies")["policies"]}
    assert {"hybridtier", "first-touch", "all-fast", "all-slow", "static-hot"} <= set(policies)
    knobs = tune_json("knobs", "hybridtier")["knobs"]
    assert [knob["name"] for knob in knobs] == [k["name"] for k in policies["hybridtier"]["knobs"]]
    assert all(knob["meaning"] and knob["source"] for knob in knobs)
    text = tune("knobs", "hybridtier").stdout
    assert all(knob["name"] in text for knob in knobs)
    assert "gups" in {workload["name"] for workload in tune_json("workloads")["workloads"]}
    assert "skx" in {machine["name"] for machine in tune_json("machines")["machines"]}
    assert tune("--version").stdout.startswith(f"tune {engine.version()} ")


def test_an_instruction_set_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tune_json("--version")
    assert facts["engine_build"] == f"{facts['policies']}-{facts['simulator']}"
    assert engine.ids().items() <= facts.items()
    assert facts["isas"][0] == "portable"
    for isa in facts["isas"]:
        monkeypatch.setenv("TIERTUNE_ISA", isa)
        assert tune_json("--version")["isa"] == isa
    monkeypatch.setenv("TIERTUNE_ISA", "avx9")
    error = tune("--version", code=2).stderr
    assert "TIERTUNE_ISA: found 'avx9'" in error
    assert ", ".join(facts["isas"]) in error


def test_json_before_a_command_is_refused_rather_than_ignored() -> None:
    assert "--json belongs after the command" in tune("--json", "machines", code=2).stderr


def test_a_result_does_not_depend_on_the_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream and simulation both made under each of them."""
    results = []
    for isa in engine.supported_isas():
        monkeypatch.setenv("TIERTUNE_ISA", isa)
        monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / isa))
        result = tune_json("sim", *SMOKE)
        assert result.pop("seconds") > 0
        results.append(result)
    assert all(result == results[0] for result in results)


SMOKE = ("--workload", "gups", "--input", "smoke")


def test_a_simulation_is_the_same_every_time() -> None:
    first = tune_json("sim", *SMOKE)
    again = tune_json("sim", *SMOKE)
    for wall in (first, again):
        assert wall.pop("seconds") > 0
    assert first == again
    assert sum(first["breakdown"].values()) == pytest.approx(first["metrics"]["seconds"], rel=1e-6)
    assert tune_json("sim", *SMOKE, "--policy", "all-fast")["objective"] < first["objective"]


def test_the_fast_tier_may_have_a_capacity_of_its_own() -> None:
    none = tune_json("sim", *SMOKE, "--policy", "all-slow")["objective"]
    few, many = (
        tune_json("sim", *SMOKE, "--policy", "first-touch", "--fast-gib", gib)
        for gib in ("0.5", "64")
    )
    assert none > few["objective"] > many["objective"]
    assert (few["fast_gib"], few["ratio"]) == (0.5, "1:8")
    text = tune("sim", *SMOKE, "--policy", "first-touch", "--fast-gib", "0.5").stdout
    assert "1:8, 0.5 GiB fast, " in text


def test_a_users_workload_wins() -> None:
    packaged = catalog.find(Kind.workload, "gups").read_text()
    Path("workloads").mkdir()
    mine = packaged.replace("updates_g: 5,", "updates_g: 10,")
    assert mine != packaged
    before = tune_json("sim", *SMOKE)["metrics"]["operations"]
    Path("workloads/gups.yaml").write_text(mine)
    assert tune_json("sim", *SMOKE)["metrics"]["operations"] == pytest.approx(2 * before, rel=0.01)
    Path("workloads/gups.yaml").write_text(packaged.replace("hot_gib: 8", "hot_gib: lots"))
    failed = tune("sim", *SMOKE, "--json", code=2)
    assert failed.stderr == f"tune: error: {json.loads(failed.stdout)['error']['message']}\n"
    line = 1 + packaged[: packaged.index("hot_gib: 8")].count("\n")
    assert failed.stderr == (
        f"tune: error: {Path.cwd()}/workloads/gups.yaml:{line}: inputs.default.parameters.hot_gib: "
        "found 'lots'; must be a number\n"
    )


def test_a_best_configuration_replays_exactly() -> None:
    Path("own.yaml").write_text(
        "policy: hybridtier\nsummary: one\nknobs: {frequency_hot_threshold: {}}\n"
    )
    words = [
        *("run", *SMOKE, "--ratio", "1:4", "--seed", "7", "--repeats", "2"),
        *("--space", "own.yaml"),
    ]
    request = study_request(cli.parser_for(words).parse_args(words))
    trial = request.trial(1, {"frequency_hot_threshold": 2, "sampling_frequency": 12345.678})
    result = runner.run(trial)
    assert result.status is Status.success, result.error
    best = BestConfiguration.of(
        request,
        trial,
        result,
        default_value=None,
        date=datetime.now(UTC),
        git_commit=None,
    )
    best_file.write(best, Path("best.yaml"))
    done = tune("sim", "--workload", "gups", "--config", "best.yaml")
    assert f"reproduced exactly: runtime {result.objective!r} s" in done.stdout
    found = tune_json("sim", "--config", "best.yaml")
    assert (found["objective"], found["reproduced"]) == (result.objective, True)


@pytest.mark.parametrize("policy", REFERENCES)
def test_a_reference_does_not_depend_on_the_seed(policy: str) -> None:
    """So that a verdict needs one run of it for all held-out seeds."""
    for workload in (SMOKE, ("--workload", "cachelib", "--input", "smoke")):
        command = ("sim", *workload, "--policy", policy)
        first, other = (tune_json(*command, "--seed", seed)["objective"] for seed in ("0", "7"))
        assert first == other


def test_a_deadline_ends_a_simulation() -> None:
    failed = tune("sim", *SMOKE, "--deadline", "1e-9", "--json", code=1)
    assert json.loads(failed.stdout)["status"] == "timeout"


def test_a_corrupt_stream_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "own"))
    before = tune_json("sim", *SMOKE, "--seed", "1")["objective"]
    (entry,) = tune_json("cache")["streams"]
    path = Path(entry["path"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    done = tune("sim", *SMOKE, "--seed", "1", "--json")
    assert str(path) in done.stderr
    assert "making it again" in done.stderr
    assert json.loads(done.stdout)["objective"] == before


def test_a_killed_recording_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "own"))
    command = [sys.executable, "-m", "tuner", "sim", "--workload", "gups", "--policy", "all-fast"]
    with started(command, stderr=subprocess.PIPE, text=True) as maker:
        assert maker.stderr is not None
        assert maker.stderr.readline() == "making the stream of gups (default) ...\n"
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert [p.suffix for p in sorted((tmp_path / "own").iterdir())] == [".lock", ".partial"]
    assert tune("cache", "clear").stdout.startswith("removed 0 streams")
    assert list((tmp_path / "own").iterdir()) == []


def test_an_interrupt_leaves_no_half_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "own"))
    command = [sys.executable, "-m", "tuner", "sim", "--workload", "gups", "--policy", "all-fast"]
    with started(command, stderr=subprocess.PIPE, text=True) as maker:
        assert maker.stderr is not None
        assert maker.stderr.readline() == "making the stream of gups (default) ...\n"
        maker.send_signal(signal.SIGINT)
        errors = maker.stderr.read()
        maker.wait()
    assert maker.returncode == 130
    assert errors.splitlines()[-1] == "tune: interrupted"
    assert "Traceback" not in errors
    assert [p.suffix for p in (tmp_path / "own").iterdir()] == [".lock"]


def test_the_report_draws_series_that_the_engine_has() -> None:
    result = tune_json("sim", "--workload", "cachelib", "--input", "smoke", "--json")
    assert set(charts.SERIES) <= set(result["series"])
