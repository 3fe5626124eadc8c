"""`tune ui` opens MLflow's pages on the studies' store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative


def test_ui_needs_a_store(run: Any, fake: FakeNative) -> None:
    outcome = run("ui")
    assert outcome.code == 2
    assert "no studies are tracked in" in outcome.err


def test_ui_becomes_mlflow(run: Any, fake: FakeNative, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: called.append(arguments))
    Path("results").mkdir()
    Path("results/mlflow.db").write_text("")
    run("ui", "--port", "5001")
    uri = f"sqlite:///{Path('results/mlflow.db').absolute()}"
    assert called[0][1:] == [
        *("-m", "mlflow", "ui", "--backend-store-uri", uri),
        *("--host", "127.0.0.1", "--port", "5001"),
    ]
