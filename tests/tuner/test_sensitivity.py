# SPDX-License-Identifier: MIT
"""`tune sim --sensitivity`, and the estimates that it varies."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from pydantic import ValidationError

from tuner import cli, engine
from tuner.commands import sensitivity
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.machine import MachineSpec

SKX = catalog.machine("skx").spec


def changed(**tiering: Any) -> MachineSpec:
    document = SKX.model_dump(exclude_none=True)
    document["tiering"] |= tiering
    return MachineSpec.model_validate(document)


def test_every_estimate_has_a_value_in_every_machine() -> None:
    for name in catalog.names(Kind.machine):
        machine = catalog.machine(name).spec
        for estimate in engine.estimates().values():
            assert sensitivity.value_of(estimate, machine) >= 0
            for case in sensitivity._range(estimate, machine):
                assert sensitivity.value_of(estimate, case.machine) == case.value


def test_a_machine_may_set_what_the_engine_estimates() -> None:
    shown = engine.estimates()["tiering.prefetch_shown"]
    assert sensitivity.value_of(shown, SKX) == shown.default
    machine = changed(prefetch_shown=0.5)
    assert sensitivity.value_of(shown, machine) == 0.5
    assert machine.document()["tiering"]["prefetch_shown"] == 0.5
    assert machine.fingerprint() != SKX.fingerprint()


@pytest.mark.parametrize(
    ("wrong", "place", "kind"),
    [
        ({"prefetch_showed": 0.5}, "prefetch_showed", "extra_forbidden"),
        ({"migration_latency": 1.0}, "migration_latency", "extra_forbidden"),
        ({"pte_ns": -1.0}, "pte_ns", "limit"),
        ({"pte_ns": "fast"}, "pte_ns", "float_type"),
    ],
)
def test_what_it_does_not_estimate_is_refused_by_name(
    wrong: dict[str, Any], place: str, kind: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        changed(**wrong)
    (detail,) = caught.value.errors()
    assert detail["loc"] == ("tiering", place)
    assert detail["type"] == kind


def test_an_order_that_nothing_tells_apart_survives() -> None:
    before = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    assert sensitivity._tau(before, {"a": 1.0, "b": 1.001, "c": 3.0, "d": 4.0}) == pytest.approx(
        5 / 30**0.5
    )
    same = dict.fromkeys("abcd", 1.0)
    assert sensitivity._tau(same, same) == 1
    assert sensitivity._tau(before, same) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-w", "gups", "--sensitivity", "tiering.prefetch"], "no estimate of the machine"),
        (["-w", "gups", "--sensitivity", "tiering.pte_ns=x"], "tiering.pte_ns=x: invalid number"),
        (["-w", "gups", "--sensitivity", "fast.store_stall=2"], "found 2.0; must be from 0 to 1"),
        (["-w", "gups", "--sensitivity", "--set", "a=1"], "leave out --set"),
        (["--sensitivity"], "give --workload"),
    ],
)
def test_what_cannot_be_varied_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sim", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_every_policy_at_every_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = ["sim", "-w", "gups", "-i", "smoke", "--workers", "1"]
    vary = ["--sensitivity", "tiering.sample_interrupt_ns=2000,200000", "tiering.pte_ns=20,20000"]
    assert cli.main([*run, *vary, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["default"]) == set(engine.policies())
    same, slow, *pages = found["estimates"]
    assert (same["value"], same["tau"], same["change"]) == (2000, 1, 0)
    assert same["objectives"] == found["default"]
    # An interrupt of 0.2 ms per sample slows down who asks for a frequency, and does nothing to who
    # asks for a period, which unified does as soon as it knows the rate of loads.
    ratios = {name: cost / found["default"][name] for name, cost in slow["objectives"].items()}
    assert min(ratios["hybridtier"], ratios["freqtier"]) > 1.01
    assert slow["mover"] == max(ratios, key=lambda name: abs(math.log(ratios[name])))
    assert slow["change"] == pytest.approx(ratios[slow["mover"]] - 1)
    changed = {name for name, ratio in ratios.items() if ratio != 1}
    assert changed == {"arc", "freqtier", "hybridtier", "twoq", "unified"}
    # A page-table entry's price concerns who protects pages, and nobody else.
    assert [one["value"] for one in pages] == [20, 20000]
    needs = {name: str(policy.traits["needs"]) for name, policy in engine.policies().items()}
    dearer = pages[1]["objectives"]
    changed = {name for name in needs if dearer[name] != found["default"][name]}
    assert changed == {name for name in needs if "hint faults" in needs[name]}
    assert found["survives"] == (not any(one["reversed"] for one in found["estimates"]))

    # Whoever goes by hint faults is ahead of others or behind, as a fault is cheap or dear.
    for estimate, sentence in [
        ("tiering.sample_interrupt_ns", "the order of the policies survives"),
        ("tiering.hint_fault_us", "the order depends on tiering.hint_fault_us"),
    ]:
        assert cli.main([*run, "--sensitivity", estimate]) == 0
        *table, last = capsys.readouterr().out.splitlines()
        assert last == sentence
        rows = [line for line in table if line.startswith(estimate)]
        assert len(rows) == 2
        assert all(row.endswith("  -") for row in rows) == ("survives" in sentence)


def test_the_page_of_all_estimates_has_the_worst_of_each() -> None:
    def case(name: str, value: float, tau: float, change: float, *pairs: str) -> dict[str, Any]:
        found = {"name": name, "value": value, "tau": tau, "change": change, "mover": "hemem"}
        return found | {"reversed": [pair.split(" > ") for pair in pairs]}

    pte, shown = "tiering.pte_ns", "tiering.prefetch_shown"
    gups = [case(shown, 0.05, 0.5, 0.2, "a > b"), case(shown, 1, 0.75, -0.5, "a > b", "a > c")]
    pr = [case(shown, 0.05, 0.25, 0.1, "a > b"), case(pte, 20, 1, 0.0004)]
    silo = [case(shown, 0.05, 1, 0.0), case(pte, 20, 1, 0.0004)]
    found = {
        "gups": {"survives": False, "estimates": gups},
        "pr": {"survives": False, "estimates": pr},
        "silo": {"survives": True, "estimates": silo},
    }
    bench = runpy.run_path(str(ROOT / "tests/bench/sensitivity.py"))
    lines = bench["estimates_page"](found).splitlines()
    assert (
        f"| `{shown}` | 0.05 to 1 | 0.25, pr | 2 | a > b (gups, pr); a > c (gups) "
        "| -50.0%, hemem (gups) |"
    ) in lines
    assert f"| `{pte}` | 20 to 30 | 1.00 | 0 | none | none |" in lines
    assert "| `tiering.sample_queue` | 0.25 to 4 times | – | – | – | – |" in lines
    assert lines[-3:] == [
        f"| gups | no | 0.50 | `{shown}` |",
        f"| pr | no | 0.25 | `{shown}` |",
        "| silo | yes | 1.00 | none |",
    ]


def test_what_another_engine_measured_does_not_count(tmp_path: Path) -> None:
    bench = runpy.run_path(str(ROOT / "tests/bench/sensitivity.py"))
    report = bench["Report"](tmp_path / "found.json", [], lambda found: " ".join(found))
    rows = {"a": {"engine_build": "another"}, "b": {"engine_build": engine.ids()["whole"]}}
    report.file.write_text(json.dumps(rows))
    assert list(report.load()) == ["b"]
    report.add("c", {"engine_build": engine.results_id()})
    assert list(report.load()) == ["b", "c"]
    assert (tmp_path / "found.md").read_text() == "b c"
