# SPDX-License-Identifier: MIT
"""`tune ui` opens MLflow's pages on the studies' store."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative
from synthetic import request, smooth

from tuner.experiment.loop import run_study


@pytest.fixture
def port() -> str:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_ui_needs_a_store(run: Any, fake: FakeNative) -> None:
    outcome = run("ui")
    assert outcome.code == 2
    assert "no studies are tracked in" in outcome.err


def test_ui_names_the_repair_of_a_store_that_is_gone(run: Any, fake: FakeNative) -> None:
    (fake.calls.parent / "out" / "study").mkdir(parents=True)
    (fake.calls.parent / "out" / "study" / "study.json").touch()
    outcome = run("ui", "--out", "out")
    assert outcome.code == 2
    assert (
        f"`tune repair --out {fake.calls.parent / 'out'}` makes it from their logs" in outcome.err
    )


def test_ui_refuses_a_port_that_is_taken(run: Any, fake: FakeNative) -> None:
    Path("results").mkdir()
    Path("results", "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("ui", "--port", str(port))
    assert outcome.code == 2
    assert outcome.err == (
        f"tune: error: cannot listen on --host 127.0.0.1 --port {port}: Address already in use; "
        "choose another --port, or another --host\n"
    )


@pytest.mark.parametrize("port", ["0", "99999", "-1"])
def test_ui_refuses_what_is_no_port(
    run: Any, fake: FakeNative, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("ui", "--port", port)
    assert end.value.code == 2
    assert f"argument --port: found {port}; must be at" in capsys.readouterr().err


@pytest.mark.slow
def test_ui_names_the_repair_of_a_broken_store(run: Any, port: str, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not at all a database\n" * 100)
    outcome = run("ui", "--port", port, "--out", str(tmp_path))
    assert outcome.code == 2
    assert "MLflow's database is broken (file is not a database)" in outcome.err
    assert f"`tune repair --out {tmp_path}`" in outcome.err
    assert (tmp_path / "mlflow.db").read_text().startswith("not at all")


@pytest.mark.slow
def test_ui_tells_of_a_disk_that_fails_in_one_line(
    run: Any, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    run_study(request(tmp_path, budget=1), runner=smooth)
    monkeypatch.setattr(sqlite3, "connect", fail)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setattr("tuner.report.store._database", lambda path: contextlib.nullcontext())
    outcome = run("ui", "--port", port, "--out", str(tmp_path))
    assert outcome.code == 2
    assert outcome.err == f"tune: error: no MLflow store answers at {uri}: disk I/O error\n"


@pytest.mark.slow
def test_ui_becomes_mlflow_and_links_the_runs(
    run: Any, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.chdir(tmp_path)  # and back at the end
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)

    def execv(program: str, arguments: list[str]) -> None:
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
        called.append([str(Path.cwd()), *arguments])

    monkeypatch.setattr(os, "execv", execv)
    run_study(request(tmp_path, budget=1), runner=smooth)
    outcome = run("ui", "--port", port, "--out", ".", "--mlflow-uri", "sqlite:///mlflow.db")
    assert called[0] == [
        *("/", sys.executable, "-P", "-m", "mlflow", "ui"),
        *("--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}"),
        *("--artifacts-destination", f"{tmp_path / 'mlartifacts'}"),
        *("--host", "127.0.0.1", "--port", port),
    ]
    first = next(word for word in outcome.err.split() if word.startswith("http"))
    assert "/runs?" in first  # and not MLflow's own first page
    links = [line for line in outcome.err.splitlines() if line.startswith("  ")]
    assert links == [
        "  tiertune-synthetic: "
        f"http://127.0.0.1:{port}/#/experiments/1/runs?workflowType=machine_learning"
        "&viewStateShareKey=studies"
    ]
