# SPDX-License-Identifier: MIT
"""Every policy that is declared has a space, and runs on every workload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import python_path

from tuner import engine
from tuner.documents import catalog
from tuner.documents.catalog import Kind

ROOT = Path(__file__).resolve().parents[2]


def test_every_policy_with_knobs_has_a_space() -> None:
    assert {p.name for p in engine.policies().values() if p.knobs} == set(catalog.names(Kind.space))


@pytest.mark.slow
@pytest.mark.long  # as `make smoke` does
def test_smoke_runs_every_policy_on_every_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "smoke", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failed"] == 0
    assert found["errors"] == []
    tuned = len(catalog.names(Kind.space))
    plain = len(engine.policies()) - tuned
    assert found["trials"] == (3 * tuned + plain) * len(catalog.names(Kind.workload))
