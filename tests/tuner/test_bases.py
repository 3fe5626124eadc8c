# SPDX-License-Identifier: MIT
"""Machines that say on which other machine they are based, and what they differ in."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic import request

from tuner import cli
from tuner.documents import catalog
from tuner.documents.catalog import MOST_BASES, Kind
from tuner.errors import UserError
from tuner.experiment.studies import _depends_on, _differences
from tuner.report import archive
from tuner.study.request import StudyRequest

MINE = """\
name: mine
summary: the testbed with slower memory
base: testbed
slow:
  latency_ns: 300
tiering: {work_ns: {scan_step: 40}, hint_fault_us: 2}
"""


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def based(name: str, base: str, more: str = "") -> str:
    return f"name: {name}\nsummary: x\nbase: {base}\n{more}"


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        catalog.machine(name)
    return str(caught.value)


def test_what_it_states_wins_and_the_rest_is_its_bases(user_folder: Path) -> None:
    write(user_folder / "machines", "mine", MINE)
    base, mine = (catalog.machine(name).spec.model_dump() for name in ("testbed", "mine"))
    assert (mine["name"], mine["summary"]) == ("mine", "the testbed with slower memory")
    assert mine["sources"] == []  # the base's are not about these figures
    base["slow"]["latency_ns"] = 300
    base["tiering"]["work_ns"]["scan_step"] = 40
    base["tiering"]["hint_fault_us"] = 2
    for key in ("ghz", "cores", "threads", "llc_mib", "slow_gib", "fast", "slow", "tiering"):
        assert mine[key] == base[key]


def test_lists_replace_and_null_takes_away(user_folder: Path) -> None:
    folder = user_folder / "machines"
    write(folder, "sized", based("sized", "testbed", "slow_gib: 64\n"))
    write(folder, "mine", based("mine", "sized", "slow_gib:\nslow: {loaded: [[0, 1], [1, 2]]}\n"))
    assert catalog.machine("sized").spec.slow_gib == 64
    mine = catalog.machine("mine").spec
    assert mine.slow_gib is None
    assert mine.slow.loaded == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("first", "then"),
    [("loaded: [[0, 1], [1, 2]]", "curves: grace"), ("curves: grace", "loaded: [[0, 1], [1, 2]]")],
)
def test_either_form_of_the_loaded_latency_replaces_the_other(
    user_folder: Path, first: str, then: str
) -> None:
    folder = user_folder / "machines"
    write(folder, "lower", based("lower", "testbed", f"fast: {{{first}}}\n"))
    write(folder, "mine", based("mine", "lower", f"fast: {{{then}}}\n"))
    fast = catalog.machine("mine").spec.fast
    assert (fast.loaded is None) == then.startswith("curves")
    write(folder, "both", based("both", "lower", f"fast: {{{first}, {then}}}\n"))
    assert "both.yaml:4: fast: must have either loaded or curves" in refusal("both")


def test_a_base_is_beside_the_file_or_ships(
    user_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever folder the command runs in."""
    elsewhere = tmp_path / "elsewhere"
    path = write(elsewhere, "mine", based("mine", "testbed"))
    assert "no machine 'testbed'" in refusal(str(path))  # that of ./machines is not beside it
    write(elsewhere, "testbed", (user_folder / "machines" / "testbed.yaml").read_text())
    here = catalog.machine(str(path)).spec.fingerprint()
    monkeypatch.chdir("/")
    assert catalog.machine(str(path)).spec.fingerprint() == here
    path = write(elsewhere, "other", based("other", "skx", "ghz: 3\n"))
    assert catalog.machine(str(path)).spec.cores == catalog.machine("skx").spec.cores


def test_a_users_machine_is_no_base_of_those_that_ship(user_folder: Path) -> None:
    """But may have the name of one, and be based on it."""
    before = {name: catalog.machine(name).spec for name in ("skx", "spr-cxl")}
    write(user_folder / "machines", "skx", based("skx", "skx", "tiering: {huge_page_gain: 0.5}\n"))
    mine = catalog.machine("skx")
    assert not mine.packaged
    assert mine.spec.tiering.huge_page_gain == 0.5
    assert mine.spec.cores == before["skx"].cores
    assert catalog.machine("spr-cxl").spec == before["spr-cxl"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (based("mine", "testbad"), "mine.yaml:3: base: no machine 'testbad'; did you mean 'testbe"),
        (based("mine", "../testbed"), "mine.yaml:3: base: found the text '../testbed'; must consi"),
        (based("mine", "/etc/passwd"), "mine.yaml:3: base: found the text '/etc/passwd'; must con"),
        (based("mine", "[testbed]"), "mine.yaml:3: base: found a list of 1 values; must be a text"),
        (based("mine", "mine"), "mine.yaml:3: base: machines are based in a circle: "),
        (based("mine", "testbed", "fast: 3\n"), "mine.yaml:4: fast: found 3; must be a mapping"),
        (
            based("mine", "testbed", "ghz: -1\n"),
            "mine.yaml:4: ghz: found -1.0; must be from 0.001 to",
        ),
        (based("mine", "testbed", "gzh: 1\n"), "mine.yaml:4: gzh: unknown key; did you mean 'ghz'"),
        (based("mine", "testbed", "slow: {latency_ns: }\n"), "mine.yaml:4: slow.latency_ns: found"),
        ("summary: x\nbase: testbed\n", "mine.yaml:1: name: missing"),
        ("name: mine\nbase: testbed\n", "mine.yaml:1: summary: missing"),
        ("name: mine\nsummary: x\nbaes: testbed\n", "baes: unknown key; did you mean 'base'?"),
    ],
)
def test_mistakes(user_folder: Path, text: str, expected: str) -> None:
    write(user_folder / "machines", "mine", text)
    assert expected in refusal("mine")


def test_what_is_wrong_with_a_base_is_said_of_its_file(user_folder: Path) -> None:
    folder = user_folder / "machines"
    write(folder, "mine", based("mine", "lower", "ghz: 3\n"))
    write(folder, "lower", based("lower", "testbed", "ghz: 0\n"))
    assert f"{folder / 'lower.yaml'}:4: ghz: found 0.0; must be from 0.001 to" in refusal("mine")
    write(folder, "lower", based("upper", "testbed"))
    assert f"{folder / 'lower.yaml'}:1: name: found 'upper'; must be the file's" in refusal("mine")
    write(folder, "lower", "")
    assert f"{folder / 'lower.yaml'}:1: the file is empty" in refusal("mine")
    (folder / "lower.yaml").unlink()
    os.mkfifo(folder / "lower.yaml")
    assert f"{folder / 'mine.yaml'}:3: base: no machine 'lower'" in refusal("mine")


def test_circles_and_endless_chains(user_folder: Path) -> None:
    folder = user_folder / "machines"
    for name, base in (("a", "b"), ("b", "c"), ("c", "b")):
        write(folder, name, based(name, base))
    circle = f"{folder}/a.yaml -> {folder}/b.yaml -> {folder}/c.yaml -> {folder}/b.yaml"
    message = f"{folder}/c.yaml:3: base: machines are based in a circle: {circle}"
    assert refusal("a") == message
    for i in range(MOST_BASES + 1):
        write(folder, f"m{i}", based(f"m{i}", f"m{i - 1}" if i else "testbed", f"ghz: {i + 1}\n"))
    assert catalog.machine(f"m{MOST_BASES - 1}").spec.ghz == MOST_BASES
    assert f"m0.yaml:3: base: found more than {MOST_BASES} bases from" in refusal(f"m{MOST_BASES}")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["machines", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["mine", *catalog.names(Kind.machine)])
def test_what_is_printed_loads_as_the_same_machine(
    user_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(user_folder / "machines", "mine", MINE + "notes: |\n  two lines:\n  '#' and \"\n")
    text = printed(capsys, name)
    copy = write(tmp_path / "elsewhere", name, text)
    assert catalog.machine(str(copy)).spec == catalog.machine(name).spec
    # The same to any other YAML reader.
    assert yaml.safe_load(text) == catalog.machine_document(str(copy))[0].data
    assert "base" not in yaml.safe_load(text)


def test_each_value_is_printed_with_its_place(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = write(user_folder / "machines", "mine", MINE)
    base = user_folder / "machines" / "testbed.yaml"
    lines = [line.split("  # ") for line in printed(capsys, "mine").splitlines()]
    places: dict[str, Any] = {line[0].rstrip(): line[-1] for line in lines}
    assert places["  latency_ns: 300"] == f"{mine}:5"
    assert places["  latency_ns: 80"] == f"{base}:8"
    assert places["    scan_step: 40"] == f"{mine}:6"
    assert places["    tracker_update: 20"] == f"{base}:17"
    assert places["ghz: 2.5"] == f"{base}:4"
    found = json.loads(printed(capsys, "mine", "--json"))
    assert found["written"]["tiering.work_ns.scan_step"] == f"{mine}:6"
    assert found["written"]["slow.loaded"] == f"{base}:10"
    assert found["machine"]["fingerprint"] == catalog.machine("mine").spec.fingerprint()


def test_an_unknown_machine_is_not_printed(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["machines", "mien"]) == 2
    assert "no machine 'mien'" in capsys.readouterr().err


def test_a_study_goes_on_elsewhere_with_the_printed_machine(
    user_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its log holds the machine without a base, so that all that counts is what the file says."""
    write(user_folder / "machines", "mine", MINE)
    scenario = replace(request(tmp_path).scenario, machine="mine")
    before = request(tmp_path, scenario=scenario, machine=catalog.machine("mine").spec)
    logged = StudyRequest.model_validate_json(before.model_dump_json())
    assert logged == before
    assert "machine mine" in archive.not_included(logged)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere / "machines", "mine", printed(capsys, "mine"))
    monkeypatch.chdir(elsewhere)
    now = logged.model_copy(update={"machine": catalog.machine("mine").spec})
    assert now.fingerprints == before.fingerprints
    assert list(_differences(_depends_on(before), _depends_on(now))) == []
