# SPDX-License-Identifier: MIT
"""A scenario's field is declared once: everything that lists the fields has all of them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.experiment.loop import resume_command
from tuner.run import settings
from tuner.run.trial import StreamRequest
from tuner.scenario import Scenario, declared_defaults, defaults, flag, label, options
from tuner.study.request import StudyRequest

BASE = Scenario(
    workload="walker",
    input="big",
    policy="toy",
    machine="testbed",
    objective="throughput",
    threads=16.0,
    scale=64.0,
    page_bytes=4096,
)
OTHER: dict[str, Any] = {
    "workload": "runner",
    "input": "small",
    "sizes": "items=7000",
    "policy": "other",
    "machine": "desk",
    "substrate": "emulated",
    "ratio": "1:4",
    "fast_gib": 1.5,
    "objective": "p50",
    "threads": 8.0,
    "scale": 128.0,
    "page_bytes": 2 << 20,
    "pages": "mixed",
    "start": "slow",
    "window": "steady",
    "placement": "/tmp/placed.yaml",
    "repeats": 3,
    "stream_seed": 4,
    "seed": 5,
}
DEFAULTS = BASE.plain()


def request_of(*arguments: str) -> StudyRequest:
    words = ["run", "--workload", "walker", "--policy", "toy", *arguments]
    return study_request(cli.parser_for(words).parse_args(words))


def test_every_field_has_another_value_here() -> None:
    assert OTHER.keys() == options().keys()
    assert all(OTHER[name] != value for name, value in BASE.plain().items())


@pytest.mark.parametrize("name", OTHER)
def test_another_value_is_another_study(name: str) -> None:
    other = replace(BASE, **{name: OTHER[name]})
    assert other.study_name(DEFAULTS) != BASE.study_name(DEFAULTS)


@pytest.mark.parametrize("name", OTHER)
def test_results_are_compared_only_under_the_same_conditions(name: str) -> None:
    other = replace(BASE, **{name: OTHER[name]})
    free = {
        "policy",
        "placement",
        "repeats",
        "seed",
    }  # what is compared, and how often it was measured
    assert (other.comparable() == BASE.comparable()) == (name in free)


def test_a_document_is_compared_by_name() -> None:
    elsewhere = replace(BASE, workload="/home/me/walker.yaml", machine="/tmp/testbed.yml")
    assert elsewhere.comparable() == BASE.comparable()
    assert elsewhere.study_name(DEFAULTS) == BASE.study_name(DEFAULTS)
    assert [label(name) for name in ("a", "b/a.yaml", "./a.yml", "a.b")] == ["a", "a", "a", "a.b"]


@pytest.mark.parametrize("command", ["run", "sim"])
def test_every_field_is_an_option(command: str) -> None:
    text = cli.parser_for([command]).parse_args([command, "--workload", "w"])
    assert options().keys() <= vars(text).keys()


def test_comparable_fields_are_options_of_best() -> None:
    words = ["best", "--workload", "w"]
    assert BASE.comparable().keys() <= vars(cli.parser_for(words).parse_args(words)).keys()


def test_its_command_line_has_what_is_not_declared_as_default() -> None:
    assert replace(BASE, machine="v1.0", seed=7).command_line() == [
        *("--workload", "walker", "--input", "big", "--policy", "toy", "--machine", "v1.0"),
        *("--objective", "throughput", "--threads", "16", "--scale", "64"),
        *("--page-bytes", "4096", "--window", "all", "--seed", "7"),
    ]


def test_what_has_no_declared_default_has_one_from_the_documents() -> None:
    required = options().keys() - declared_defaults().keys() - {"workload"}
    assert required == {name for name, option in options().items() if option.default}


def test_the_resume_command_asks_for_the_same_study(fake: FakeNative) -> None:
    # test_placement.py, test_emulated_trials.py, test_sizes.py
    elsewhere = {"placement", "substrate", "sizes"}
    words = [
        word
        for name, value in OTHER.items()
        if name not in {"workload", "policy", "machine"} | elsewhere
        for word in (flag(name), str(value))
    ]
    for arguments in (
        [],
        [*words, "--machine", "machines/testbed.yaml", "--space", "spaces/toy.yaml"],
        ["--no-explain", "--held-out-streams"],
        ["--name", "mine", "--importance", "impurity", "--mlflow-uri", "sqlite:///my file.db"],
    ):
        request = request_of("--workers", "2", *arguments)
        program, *again = shlex.split(resume_command(request))
        assert program == "tune"
        resumed = study_request(cli.parser_for(again).parse_args(again))
        assert resumed == request.model_copy(update={"resume": True})


def test_the_resolved_scenario_has_the_documents_defaults(fake: FakeNative) -> None:
    request = request_of("--input", "small")
    assert request.scenario.plain() == {
        "workload": "walker",
        "policy": "toy",
        **defaults(request.workload, request.policy, "small"),
        "input": "small",
    } | {"policy": "toy"}
    assert request.scenario.scale == 4096


def test_an_unknown_field_is_refused(fake: FakeNative) -> None:
    request = request_of()
    text = request.model_dump_json()
    assert StudyRequest.model_validate_json(text) == request
    with pytest.raises(ValueError, match="colour"):
        StudyRequest.model_validate_json(text.replace('"ratio":', '"colour":"red","ratio":', 1))


def page_bytes_of(setting: settings.Setting) -> int:
    stream = setting.stream()
    assert isinstance(stream, StreamRequest)
    return stream.page_bytes


def test_runs_with_huge_pages_have_a_scale_and_a_stream_of_their_own(
    fake: FakeNative, tmp_path: Path
) -> None:
    source = (tmp_path / "workloads/walker.yaml").read_text()
    huge = source.replace("  big:\n", "  big:\n    huge_scale: 7\n    coarse: true\n")
    (tmp_path / "workloads/walker.yaml").write_text(huge)
    toy = engine.policy("toy")
    base = settings.resolve("walker", policy=toy)
    assert (base.scenario.scale, page_bytes_of(base)) == (64, 4096)
    huge_pages = settings.resolve("walker", policy=toy, page_bytes=2 << 20)
    assert huge_pages.scenario.scale == 7
    assert page_bytes_of(huge_pages) == 2 << 20
    assert huge_pages.trial(0, {}).coarse
    assert "scale" not in huge_pages.study_name  # it is the default of such runs
    other = settings.resolve("walker", policy=toy, page_bytes=2 << 20, scale=9.0)
    assert other.scenario.scale == 9
    # A policy of huge pages beside one of base pages, with its own pages and with the other's.
    tall = toy.model_copy(update={"traits": toy.traits | {"page_bytes": 2 << 20}})
    study = settings.resolve("walker", policy=tall)
    assert (study.scenario.scale, study.scenario.page_bytes) == (7, 2 << 20)
    own, same = study.under(toy), study.under(toy, page_bytes=2 << 20)
    assert (own.scenario.scale, own.scenario.page_bytes) == (64, 4096)
    assert (same.scenario.scale, same.scenario.page_bytes) == (7, 2 << 20)
    given = settings.resolve("walker", policy=tall, scale=9.0).under(toy, page_bytes=2 << 20)
    assert given.scenario.scale == 9
    # Another input has no scale for huge pages, and is not declared as coarse.
    small = settings.resolve("walker", policy=toy, page_bytes=2 << 20, input="small")
    assert small.scenario.scale == 4096
    assert not small.trial(0, {}).coarse
