# SPDX-License-Identifier: MIT
"""The claims that ship: every run of them resolves, and results/ has their verdicts."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from conftest import ROOT

from tuner import engine
from tuner.claims import document
from tuner.claims.document import Claim
from tuner.claims.runs import Plan
from tuner.claims.standing import standing
from tuner.experiment.jobs import study


@pytest.fixture(scope="module")
def shipped() -> list[Claim]:
    return document.load(ROOT / "tests" / "claims")


def test_the_shipped_claims_are_the_default(shipped: list[Claim]) -> None:
    assert document.default_folder() == ROOT / "tests" / "claims"
    assert len(shipped) >= 25


def test_every_run_of_the_shipped_claims_resolves(shipped: list[Claim]) -> None:
    plan = Plan([])
    for claim in shipped:
        for family in claim.families.values():
            for point in family:
                setting = plan.setting(point)
                engine.resolve(setting.policy.name, dict(point.knobs))
                if point.tune:
                    assert study(setting, point.knobs, point.tune).knobs


def test_every_shipped_claim_says_why_its_tolerance(shipped: list[Claim]) -> None:
    for claim in shipped:
        assert len(claim.spec.why) > 10, claim.id
        assert claim.spec.runs or claim.spec.needs, claim.id


def test_the_published_file_has_the_shipped_claims(shipped: list[Claim]) -> None:
    found = json.loads((ROOT / "results" / "claims.json").read_text())
    expected = set()
    for claim in shipped:
        expected.add(claim.id)
        if claim.spec.table and len(claim.spec.table.systems) > 1:
            expected.add(f"{claim.id}-order")
    assert {row["id"] for row in found["claims"]} == expected
    assert 0 <= found["regret"] <= found["worst_regret"] <= 1
    assert 0 < found["ordering_tau"] < found["tau_ceiling"] < 1
    own = {name for claim in shipped for name in claim.file.own}
    assert own == {"freqtier", "soar"}


def test_each_policy_stands_by_the_claims_that_run_it(shipped: list[Claim]) -> None:
    found = standing()
    rows = json.loads((ROOT / "results" / "claims.json").read_text())["claims"]
    verdicts = {row["id"]: row["verdict"] for row in rows}
    about = {
        claim.id
        for claim in shipped
        for family in claim.families.values()
        if any(point.scenario["policy"] == "freqtier" for point in family)
    }
    expected = Counter(
        verdict for claim, verdict in verdicts.items() if claim.removesuffix("-order") in about
    )
    assert found["freqtier"] == expected
    assert expected["pass"] > 0
    assert "nobody" not in found
