# SPDX-License-Identifier: MIT
"""best.yaml reads back exactly as it was written, and a damaged one is named with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.scenario import Scenario
from tuner.study import best
from tuner.study.best import BestConfiguration, BestObjective, Minimal, Provenance
from tuner.study.contender import Contender, Kind
from tuner.study.request import Fingerprints
from tuner.study.verdict import decide

BEST = BestConfiguration(
    scenario=Scenario(
        workload="walker",
        input="big",
        policy="toy",
        machine="testbed",
        objective="throughput",
        threads=16.0,
        scale=64.0,
        page_bytes=4096,
    ),
    knobs={"a": 1, "b": 1.0, "c": True, "d": "1e5", "e": 1e-7, "f": 1 / 3, "g": 1e22, "h": "on"},
    objective=BestObjective(value=1e6 / 3, default_value=2e5),
    provenance=Provenance(
        study="s",
        trial=3,
        date="2026-01-02T00:00:00+00:00",
        engine_version="0.1.0",
        engine_build="0123456789012345",
        fingerprints=Fingerprints(workload="12e4567890123456", space="b", machine="c"),
        git_commit=None,
        host="here",
    ),
)


def test_what_is_written_is_read_back_exactly(tmp_path: Path) -> None:
    best.write(BEST, tmp_path / "best.yaml")
    again = best.read(tmp_path / "best.yaml")
    assert again == BEST
    assert {k: type(v) for k, v in again.knobs.items()} == {
        k: type(v) for k, v in BEST.knobs.items()
    }
    assert [p.name for p in tmp_path.iterdir()] == ["best.yaml"]


def test_verdict_and_minimal_set_are_kept_and_open_the_file(tmp_path: Path) -> None:
    contenders = [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[1.0, None]),
        Contender(kind=Kind.untuned, policy="toy", page_bytes=4096, values=[0.9, 0.9]),
    ]
    verdict = decide(contenders, objective="throughput", trials=5, policy="toy", seeds=[1, 2])
    judged = BEST.model_copy(update={"verdict": verdict})
    best.write(judged, tmp_path / best.FILE)
    assert best.read(tmp_path / best.FILE) == judged
    first, *_ = (tmp_path / best.FILE).read_text().splitlines()
    assert first == f"# toy for walker (big): {verdict.headline}."
    minimal = judged.model_copy(update={"minimal": Minimal(changes=["a", "b"], kept=0.968)})
    best.write(minimal, tmp_path / best.MINIMAL)
    assert best.read(tmp_path / best.MINIMAL) == minimal
    _, second, third, *_ = (tmp_path / best.MINIMAL).read_text().splitlines()
    trial = judged.provenance.trial
    expected = f"# The fewest changes found, which have 97 % of the gain of trial {trial}: a, b."
    assert second == expected
    assert third.endswith("--config best-minimal.yaml")


def test_the_ids_that_it_was_found_with_are_named(tmp_path: Path) -> None:
    assert "# Found with engine build 0123456789012345.\n" in best.render(BEST)
    named = BEST.provenance.model_copy(update={"engine_build": "1a2b-3c4d", "stream_maker": "5e"})
    path = tmp_path / best.FILE
    best.write(BEST.model_copy(update={"provenance": named}), path)
    assert "# Found with policies 1a2b, simulator 3c4d.\n" in path.read_text()
    assert best.read(path).provenance == named


def test_a_file_of_version_0_2_0_is_read(tmp_path: Path) -> None:
    path = tmp_path / best.FILE
    path.write_text(best.render(BEST).replace("default_value:", "gain: 0.5\n  default_value:"))
    assert best.read(path) == BEST


def test_a_damaged_file_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "best.yaml"
    path.write_text(best.render(BEST).replace("ratio: '1:8'", "ratio: '8'").replace("1:8", "8"))
    with pytest.raises(
        UserError, match=r"best.yaml:\d+: scenario.ratio: found .*; must be FAST:SLOW"
    ):
        best.read(path)


OF_0_1 = """\
policy: toy
knobs: {a: 1, b: 2.5}
workload: walker
workload_file: /home/me/walker.yaml
input: big
machine: testbed
ratio: '1:8'
threads: 16.0
scale: 64.0
page_bytes: 0
seed: 3
stream_seed: 0
repeats: 1
objective: {name: throughput, value: 12.5, default_value: 10.0, gain: 0.25}
provenance:
  study: s
  trial: 3
  date: '2026-01-02T00:00:00+00:00'
  engine_version: 0.1.0
  engine_build: '0123456789012345'
  fingerprints: {workload: a, space: b, machine: c}
  host: here
"""


@pytest.mark.usefixtures("toy_engine")
def test_a_file_of_version_0_1_0_is_read(tmp_path: Path) -> None:
    path = tmp_path / "best.yaml"
    path.write_text(OF_0_1)
    found = best.read(path)
    expected = replace(BEST.scenario, workload="/home/me/walker.yaml", seed=3)
    assert found.scenario == expected
    assert found.knobs == {"a": 1, "b": 2.5}
    assert found.objective == BestObjective(value=12.5, default_value=10.0)
    path.write_text(OF_0_1.replace("threads: 16.0", "threads: none"))
    with pytest.raises(UserError, match=r"best.yaml:\d+: scenario.threads: found the text 'none'"):
        best.read(path)
    path.write_text(OF_0_1.replace("policy: toy", "policy: gone"))
    with pytest.raises(UserError, match="no policy 'gone'"):
        best.read(path)


def test_what_a_command_has_measured_no_simulation_reproduces() -> None:
    fingerprints = BEST.provenance.fingerprints.model_copy(update={"command": "d"})
    provenance = BEST.provenance.model_copy(update={"fingerprints": fingerprints})
    measured = BEST.model_copy(update={"provenance": provenance})
    (more,) = set(best.changes_since(measured)) - set(best.changes_since(BEST))
    assert more == "it was measured by a command in a container, this is a simulation"


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines",
        "a: b #c",
        "- 'x' \"y\" {z}",
        "tab\there",
        "%TAG !",
        "🙂",
        "\u2028\u202e",
        "-dash",
    ],
)
def test_any_name_of_a_workload_is_kept(tmp_path: Path, name: str) -> None:
    """It comes from a path, and stands in a comment too."""
    scenario = replace(BEST.scenario, workload=f"/home/me/{name}/walker.yaml")
    best.write(BEST.model_copy(update={"scenario": scenario}), tmp_path / best.FILE)
    text = (tmp_path / best.FILE).read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert len(head) == 3 and all(line.isprintable() for line in head)
    assert best.read(tmp_path / best.FILE).scenario.workload == scenario.workload
