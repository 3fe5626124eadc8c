"""`tune ui` opens MLflow's pages on the studies' store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative
from synthetic import request, smooth

from tuner.optimize.loop import run_study


def test_ui_needs_a_store(run: Any, fake: FakeNative) -> None:
    outcome = run("ui")
    assert outcome.code == 2
    assert "no studies are tracked in" in outcome.err


@pytest.mark.slow
def test_ui_becomes_mlflow_and_links_the_runs(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: called.append(arguments))
    run_study(request(tmp_path, budget=1), runner=smooth)
    outcome = run("ui", "--port", "5001", "--out", str(tmp_path))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert called[0][1:] == [
        *("-m", "mlflow", "ui", "--backend-store-uri", uri),
        *("--host", "127.0.0.1", "--port", "5001"),
    ]
    links = [line for line in outcome.err.splitlines() if line.startswith("  ")]
    assert links == [
        "  tiertune-synthetic: "
        "http://127.0.0.1:5001/#/experiments/1/runs?workflowType=machine_learning"
    ]
