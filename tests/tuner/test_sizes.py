# SPDX-License-Identifier: MIT
"""Workloads of another size, by --set, and the objectives that a workload has."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.commands.sim import divided
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.sizes import ENOUGH, MOST_FINER
from tuner.documents.workload import BASE_PAGE_BYTES, LATENCIES, WorkloadSpec
from tuner.errors import UserError
from tuner.report import characteristics
from tuner.run import settings, streams
from tuner.run.settings import Setting
from tuner.scenario import SIZES, Scenario, size_text, sizes_of
from tuner.study import best as best_file

SERVERS = ("redis", "cachelib", "silo", "btree")
GIB = 1 << 30


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def empty_folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERTUNE_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def setting(workload: str, sizes: str = "", input: str | None = None, **given: Any) -> Setting:
    return settings.resolve(
        workload, policy=engine.policy("first-touch"), input=input, sizes=sizes or None, **given
    )


def pages(spec: WorkloadSpec, input: str) -> float:
    return spec.footprint_of(input) * GIB / BASE_PAGE_BYTES / spec.scale_of(input)


def refusal(workload: str, sizes: str, input: str | None = None, **given: Any) -> str:
    with pytest.raises(UserError) as caught:
        setting(workload, sizes, input, **given)
    return str(caught.value)


def parameters(found: Setting) -> dict[str, object]:
    return dict(found.workload.inputs[found.scenario.input].parameters)


# --- What a size makes of a workload --------------------------------------------------------------


@pytest.mark.parametrize("workload", SERVERS)
@pytest.mark.parametrize("sizes", ["footprint_gib=400", "footprint_gib=30", "items=120000000"])
def test_the_miniature_is_as_large_as_was_asked_for(workload: str, sizes: str) -> None:
    """Measured on the stream, beside what the input itself has."""
    input = catalog.workload(workload).spec.smoke_input
    shipped, found = setting(workload, input=input), setting(workload, sizes, input)
    shares = []
    for each in (shipped, found):
        streams.ensure(each.stream())
        used = characteristics.of_stream(each.stream()).footprint_gib
        shares.append(used / each.workload.footprint_of(input))
    assert shares[1] == pytest.approx(shares[0], rel=0.05)
    assert pages(found.workload, input) == pytest.approx(pages(shipped.workload, input))
    if wanted := sizes_of(sizes).get("footprint_gib"):
        assert found.workload.footprint_of(input) == wanted


@pytest.mark.parametrize("workload", SERVERS)
def test_a_larger_one_has_as_many_simulated_pages_and_a_smaller_one_enough(workload: str) -> None:
    spec = catalog.workload(workload).spec
    input, before = spec.default_input, spec.footprint_of(spec.default_input)
    for factor in (1.5, 10, 100):
        found = setting(workload, size_text({"footprint_gib": before * factor}))
        assert found.scenario.scale == pytest.approx(spec.scale_of(input) * factor)
        assert pages(found.workload, input) == pytest.approx(pages(spec, input))
    least = before * min(1.0, ENOUGH / pages(spec, input)) / MOST_FINER
    for gib in (least, least * 2, before / 2):
        found = setting(workload, size_text({"footprint_gib": gib}))
        assert spec.scale_of(input) / MOST_FINER <= found.scenario.scale <= spec.scale_of(input)
        assert pages(found.workload, input) >= min(ENOUGH, pages(spec, input)) * 0.999
    assert "must be at least" in refusal(workload, size_text({"footprint_gib": least * 0.99}))


def test_of_memory_items_and_bytes_of_a_value_one_follows_from_two() -> None:
    spec = catalog.workload("redis").spec
    beside = spec.footprint_of("ycsb-b") * GIB / 16e6 - 1000
    found = setting("redis", "items=32000000,value_bytes=2000")
    assert found.workload.footprint_of("ycsb-b") * GIB == pytest.approx(32e6 * (2000 + beside))
    found = setting("redis", "footprint_gib=200,value_bytes=4096")
    items = parameters(found)["records_m"]
    assert items == pytest.approx(200 * GIB / (4096 + beside) / 1e6)
    found = setting("redis", "footprint_gib=200,items=100000000")
    assert parameters(found)["value_bytes"] == round(200 * GIB / 1e8 - beside)
    assert "one follows from two" in refusal(
        "redis", "footprint_gib=200,items=1000000,value_bytes=9"
    )
    told = refusal("redis", "footprint_gib=10,items=1000000000")
    assert f"too little for so many items; each takes {beside:.0f} bytes beside its value" in told


def test_a_configured_limit_of_memory_grows_with_all_that_depends_on_it() -> None:
    found = setting("cachelib", "footprint_gib=346")
    spec = catalog.workload("cachelib").spec
    before, now = spec.inputs["cdn"].parameters, parameters(found)
    for name in ("cache_mb", "keys_m", "popularity_sigma_m"):
        assert now[name] == pytest.approx(2 * float(str(before[name])))
    assert now["bucket_power"] == 25  # a power of two
    assert now["value_mean" if "value_mean" in now else "keys_m"]
    found = setting("cachelib", "items=40000000,value_bytes=330")
    now = parameters(found)
    assert now["value_mean"] == pytest.approx(330)
    assert now["value_bytes"] == pytest.approx([1, 1.59, 133, 776, 2740, 41800])
    assert now["cache_mb"] == pytest.approx(2000)
    assert found.workload.footprint_of("cdn") == pytest.approx(1.73)


def test_threads_are_those_of_the_scenario_and_of_what_has_one_for_each() -> None:
    found = setting("redis", "threads=4")
    assert (found.scenario.threads, parameters(found)["instances"]) == (4, 4)
    assert setting("redis", "threads=4", threads=4.0).scenario.threads == 4
    assert refusal("redis", "threads=4", threads=8.0) == (
        "--set threads: found 4, and --threads 8; give one"
    )


def test_an_input_may_have_sizes_of_its_own() -> None:
    found = setting("silo", "footprint_gib=151.4", "tpcc")
    assert parameters(found)["grow_gib"] == pytest.approx(151.4)
    assert parameters(found)["warehouses"] == pytest.approx(24)
    assert "keys_m" not in parameters(found)
    assert "input tpcc: has no such size; it has footprint_gib" in refusal(
        "silo", "items=1000000", "tpcc"
    )


def test_what_was_changed_is_said() -> None:
    assert setting("redis").resized() is None
    assert setting("redis", "footprint_gib=33,threads=4").resized() == (
        "redis (ycsb-b) with footprint_gib=33,threads=4: memory 16.5 -> 33 GiB, threads 8 -> 4, "
        "records_m 16 -> 32, instances 8 -> 4, a simulated page stands for 128 real ones (64 "
        "before)"
    )


def test_memory_that_is_not_what_was_asked_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for sizes, said in (("footprint_gib=400", False), ("items=100000000,value_bytes=64", True)):
        found = setting("cachelib", sizes, "smoke")
        found.prepare(found.stream())
        assert ("memory in use is" in capsys.readouterr().err) is said


# --- --set ----------------------------------------------------------------------------------------


def test_no_knob_has_the_name_of_a_size() -> None:
    knobs = {knob.name for policy in engine.policies().values() for knob in policy.knobs}
    assert not knobs & set(SIZES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["items=0"], "--set items=0: must have items above 0"),
        (["items=-1"], "--set items=-1: must have items above 0"),
        (["items=nan"], "--set items=nan: must have items above 0"),
        (["items=1e300"], "--set items=1e300: must have items above 0, at most 1e+15"),
        (["items=" + "9" * 5000], "--set items=999"),
        (["items"], "--set items: must have items above 0"),
        (["items=1", "items=2"], "--set items=1,items=2: must have one value of items"),
        (["size=1"], "--set size=1: must be NAME=VALUE, with a name of footprint_gib, items"),
        (["frequency_hot_threshold=3"], "--set frequency_hot_threshold: is a knob, and not the si"),
        (["footprint_gib=1"], "input smoke: found 1; must be at least 2.06"),
        (["footprint_gib=1e7"], "input smoke: found 1e+07; must be at most 26,210"),
        (["items=10"], "--set items: workload redis, input smoke: found footprint_gib 1.031e-05;"),
        (["threads=2.5"], "--set threads: workload redis, input smoke: found 2.5; must be a whole"),
        (["threads=100000"], "--set threads: workload redis, input smoke: found 100,000; must be"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [part for word in words for part in ("--set", word)]
    assert cli.main(["run", "-w", "redis", "-i", "smoke", *options]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "making" not in told


@pytest.mark.parametrize("workload", ["gups", "bfs"])
def test_a_workload_without_sizes_says_so(workload: str) -> None:
    assert "has no sizes that --set changes" in refusal(workload, "footprint_gib=200")


def test_what_only_the_kernel_can_judge_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["sim", "-w", "silo", "-i", "smoke", "--policy", "first-touch"]
    assert cli.main([*words, "--set", "value_bytes=9000"]) == 2
    assert (
        "parameter value_bytes: found 9000, allowed 0 to 4096 (with --set value_bytes=9000)"
        in capsys.readouterr().err
    )


def test_knobs_and_sizes_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["momentum_hot_threshold=4,footprint_gib=20", "variant=artifact"]
    knobs, rest = divided(Namespace(sizes=words))
    assert knobs == ["momentum_hot_threshold=4", "variant=artifact"]
    assert rest.sizes == ["footprint_gib=20"]
    assert cli.main(["sim", "-w", "redis", "-i", "smoke", "--json", "--set", ",".join(words)]) == 0
    found = capsys.readouterr()
    assert '"sizes": "footprint_gib=20"' in found.out
    assert '"momentum_hot_threshold": 4' in found.out
    assert "memory 16.5 -> 20 GiB" in found.err


def test_a_text_of_sizes_is_canonical() -> None:
    sizes = {"value_bytes": 512.5, "footprint_gib": 200.0}
    text = size_text(sizes)
    assert text == "footprint_gib=200,value_bytes=512.5"
    assert sizes_of(text) == sizes
    assert sizes_of("") == {}
    found = setting("redis", "items=20000000").scenario
    assert found.command_line()[4:6] == ["--set", "items=20000000"]
    assert "written as footprint_gib=1" in refusal("redis", "footprint_gib=1.0")


def test_a_study_keeps_its_sizes(empty_folder: Path) -> None:
    words = ["-w", "redis", "-i", "smoke", "--policy", "freqtier", "--budget", "1"]
    request = study_request(
        cli.arguments_of(["run", *words, "--set", "threads=2", "--set", "footprint_gib=40"])
    )
    assert request.study.startswith("redis-smoke-footprint_gib40-threads2-freqtier-")
    again = study_request(cli.arguments_of(["run", *request.scenario.command_line()]))
    assert again.scenario == request.scenario
    assert again.fingerprints == request.fingerprints
    other = study_request(cli.arguments_of(["run", *words]))
    assert other.fingerprints.workload != request.fingerprints.workload
    assert "sizes" in {
        name
        for name, value in request.scenario.comparable().items()
        if other.scenario.comparable()[name] != value
    }


@pytest.mark.slow
def test_a_study_of_another_size_is_replayed_and_checked(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "-w", "redis", "-i", "smoke", "--policy", "freqtier", "--budget", "2"]
    words += ["--workers", "1", "--rivals", "none", "--robust", "none", "--no-explain"]
    assert cli.main([*words, "--set", "footprint_gib=40", "--name", "x"]) == 0
    best = empty_folder / "results" / "x" / "best.yaml"
    assert yaml.safe_load(best.read_text())["scenario"]["sizes"] == "footprint_gib=40"
    capsys.readouterr()
    assert best_file.changes_since(best_file.read(best)) == []
    assert cli.main(["sim", "--config", str(best)]) == 0
    assert "reproduced exactly" in capsys.readouterr().out
    assert cli.main(["sim", "--config", str(best), "--set", "footprint_gib=80"]) == 0
    assert "stands for 3200 real ones" in capsys.readouterr().err
    assert cli.main(["check", str(best), "--against", "none"]) in (0, 3)
    assert "another content" not in capsys.readouterr().out


def test_a_document_that_lists_what_is_no_parameter(empty_folder: Path) -> None:
    text = yaml.safe_load(catalog.find(Kind.workload, "redis").read_text())
    text["sizes"] = {"items": ["records"], "threads": ["distribution"], "value_bytes": ["values"]}
    (empty_folder / "redis.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(UserError) as caught:
        catalog.workload("./redis.yaml")
    told = str(caught.value)
    assert "redis.yaml" in told
    assert "sizes.items[0]: kernel redis has no parameter 'records'; did you mean" in told
    assert "sizes.threads[0]: parameter 'distribution' is no number" in told


def test_sizes_are_no_part_of_a_fingerprint_but_what_they_make_is() -> None:
    spec = catalog.workload("redis").spec
    assert spec.model_copy(update={"sizes": None}).fingerprint() == spec.fingerprint()
    assert setting("redis", "items=20000000").workload.fingerprint() != spec.fingerprint()


# --- Objectives -----------------------------------------------------------------------------------


def test_every_latency_is_an_objective_where_there_are_operations() -> None:
    for name in catalog.names(Kind.workload):
        spec = catalog.workload(name).spec
        for input in spec.inputs:
            able = set(spec.objectives_of(input)) & set(LATENCIES)
            assert able == (set(LATENCIES) if spec.operation_of(input) else set())
    assert setting("redis", objective="p999").scenario.objective == "p999"
    with pytest.raises(UserError, match=r"no objective of workload bfs 'p99' \(known: runtime"):
        setting("bfs", objective="p99")


@pytest.mark.parametrize("name", catalog.names(Kind.workload))
def test_a_smoke_input_has_the_operation_that_its_workload_names(name: str) -> None:
    spec = catalog.workload(name).spec
    if spec.operation_of(spec.smoke_input) is None:
        return
    found = setting(name, input=spec.smoke_input, objective="p90")
    found.prepare(found.stream())


def test_an_operation_that_no_stream_has_is_refused_before_anything_runs(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TPC-C's are others than YCSB's."""
    assert setting("silo", input="tpcc").trial(0, {}).operation == "new_order"
    text = catalog.find(Kind.workload, "redis").read_text()
    (empty_folder / "redis.yaml").write_text(text.replace("operation: get", "operation: gte"))
    words = ["-w", "./redis.yaml", "-i", "smoke", "--objective", "p99", "--policy", "first-touch"]
    assert cli.main(["sim", *words]) == 2
    told = capsys.readouterr().err
    assert (
        "redis.yaml:9: operation: found 'gte'; p99 needs one that input smoke has: get or" in told
    )
    assert "simulating" not in told


def test_scenarios_from_before_there_were_sizes_have_none() -> None:
    found = setting("redis").scenario.plain()
    del found["sizes"]
    assert Scenario(**found).sizes == ""
