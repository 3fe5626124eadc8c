# SPDX-License-Identifier: MIT
"""The database of a folder of studies: made whole or not at all, and made again from the logs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import python_path, started
from synthetic import request, smooth

from tuner.experiment.loop import run_study
from tuner.report import tracking
from tuner.report.store import client_of, database_of, default_store, repair_command
from tuner.study import log
from tuner.study.log import StudyLog

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent

DIES = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from tuner.report.store import client_of, default_store

@event.listens_for(Engine, "after_cursor_execute")
def die(connection, cursor, statement, *rest):
    if "CREATE TABLE traces" in statement or "CREATE TABLE trace_info" in statement:
        os.kill(os.getpid(), signal.SIGKILL)

client_of(default_store(Path(sys.argv[1])), Path(sys.argv[1]), print)
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": python_path(HERE, *sys.path)}


def tune(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: MLflow keeps databases open that are replaced here."""
    command = [sys.executable, "-m", "tuner", *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def database(out: Path) -> Path:
    return out / "mlflow.db"


def left(out: Path) -> set[str]:
    """Files beside the database that are of no study."""
    return {path.name for path in out.iterdir() if path.is_file()}


def tracked(out: Path, *, copy: str) -> dict[str, Any]:
    """Everything that the store has of studies, without what MLflow chooses itself. An experiment
    that somebody has renamed is theirs."""
    from mlflow import MlflowClient

    shutil.copy(database(out), out / copy)
    client = MlflowClient(tracking_uri=f"sqlite:///{out / copy}")
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "mine"]
    found: dict[str, Any] = {}
    for run in client.search_runs(experiments, max_results=1000):
        tags = {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"}
        name = tags.get("tiertune.study") or f"{tags['mlflow.runName']} {run.info.start_time}"
        histories = {
            metric: sorted(
                (point.step, point.timestamp, point.value)
                for point in client.get_metric_history(run.info.run_id, metric)
            )
            for metric in run.data.metrics
        }
        artifacts = sorted(item.path for item in client.list_artifacts(run.info.run_id))
        assert name not in found
        found[name] = (run.info.status, run.data.params, tags, histories, artifacts)
    (out / copy).unlink()
    return found


def test_a_kill_in_mid_migration_leaves_nothing_that_matters(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], env=environment())
    assert died.returncode == -signal.SIGKILL
    assert not database(tmp_path).exists()
    assert any(name.endswith(".partial") for name in left(tmp_path))
    told: list[str] = []
    run_study(request(tmp_path, budget=2), runner=smooth)
    client_of(default_store(tmp_path), tmp_path, told.append)
    assert not told
    assert left(tmp_path) == {"mlflow.db", "mlflow.db.lock"}
    assert len(tracked(tmp_path, copy="read.db")) == 3


REPORTS = """
import sys
from pathlib import Path
from tuner.report.store import client_of, default_store
out = Path(sys.argv[1])
client_of(default_store(out), out, print).create_experiment("mine")
from mlflow.telemetry.client import get_telemetry_client
print(get_telemetry_client() is not None)
"""


def test_mlflow_reports_nothing(tmp_path: Path) -> None:
    """By itself it is silent only where it takes the process for a test's or a CI's."""
    told = {name: os.environ[name] for name in ("PATH", "HOME")}
    told["PYTHONPATH"] = environment()["PYTHONPATH"]
    words = [sys.executable, "-c", REPORTS, str(tmp_path)]
    done = subprocess.run(words, env=told, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("name", ["off by 50%41", "gups?", "a#b", "ä ö"])
def test_a_name_that_a_uri_has_to_quote(
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "PATIENT_SECONDS", 600.0)  # of a busy machine nothing is said
    out = tmp_path / name
    run_study(request(out, budget=2), runner=smooth)
    assert "MLflow" not in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    shutil.copy(database(out), database(tmp_path))
    assert len(tracked(tmp_path, copy="read.db")) == 3
    assert database_of(default_store(out)) == database(out)
    (artifact,) = out.glob("mlartifacts/*/artifacts/study.json")
    assert artifact.stat().st_size > 0


def half_made(out: Path, template: Path) -> None:
    """What a kill leaves in a database that is migrated in place: steps of which its version does
    not tell."""
    shutil.copy(template, database(out))
    with closing(sqlite3.connect(database(out))) as file, file:
        file.execute("UPDATE alembic_version SET version_num = ?", (revisions()[-12],))


def revisions() -> list[str]:
    """Versions of MLflow's schema, the oldest first."""
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    scripts = ScriptDirectory(str(Path(db_migrations.__file__).parent))
    return [script.revision for script in scripts.walk_revisions()][::-1]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow makes it."""
    folder = tmp_path_factory.mktemp("template")
    client_of(default_store(folder), folder, print)
    return database(folder)


@pytest.mark.parametrize("fault", ["half made", "no database"])
def test_a_broken_database_is_set_aside(
    tmp_path: Path, template: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if fault == "half made":
        half_made(tmp_path, template)
    else:
        database(tmp_path).write_text("not at all a database\n" * 100)
    before = database(tmp_path).read_bytes()
    run_study(request(tmp_path, budget=2), runner=smooth)
    told = capsys.readouterr().err
    assert f"{database(tmp_path)}: MLflow's database is broken (" in told
    assert f"`tune repair --out {tmp_path}` adds the studies that were in it" in told
    assert "does not take this study" not in told
    assert left(tmp_path) == {"mlflow.db", "mlflow.db.broken-1", "mlflow.db.lock"}
    assert (tmp_path / "mlflow.db.broken-1").read_bytes() == before
    assert len(tracked(tmp_path, copy="read.db")) == 3


OLD_EXPERIMENT = """
INSERT INTO experiments (experiment_id, name, lifecycle_stage) VALUES (7, 'of old', 'active')
"""


def test_a_database_of_an_older_mlflow_is_brought_up_to_date(tmp_path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from mlflow.store import db_migrations
    from mlflow.store.tracking.dbmodels.initial_models import Base
    from sqlalchemy import create_engine

    engine = create_engine(default_store(tmp_path))
    Base.metadata.create_all(engine)
    config = Config()
    config.set_main_option("script_location", str(Path(db_migrations.__file__).parent))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revisions()[-12])
    engine.dispose()
    with closing(sqlite3.connect(database(tmp_path))) as file, file:
        file.execute(OLD_EXPERIMENT)
    told: list[str] = []
    client = client_of(default_store(tmp_path), tmp_path, told.append)
    assert not told
    assert client.get_experiment("7").name == "of old"
    assert left(tmp_path) == {"mlflow.db", "mlflow.db.lock"}


def test_a_database_of_a_newer_mlflow_is_left_alone(
    tmp_path: Path, template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(template, database(tmp_path))
    with closing(sqlite3.connect(database(tmp_path))) as file, file:
        file.execute("UPDATE alembic_version SET version_num = 'of tomorrow'")
    before = database(tmp_path).read_bytes()
    run_study(request(tmp_path, budget=1), runner=smooth)
    assert "written by a newer MLflow (its schema is of tomorrow)" in capsys.readouterr().err
    assert database(tmp_path).read_bytes() == before
    assert "mlflow.db.broken-1" not in left(tmp_path)


def test_a_disk_that_fails_for_a_moment_breaks_nothing(tmp_path: Path, template: Path) -> None:
    shutil.copy(template, database(tmp_path))
    with closing(sqlite3.connect(database(tmp_path))) as file:
        file.execute("BEGIN EXCLUSIVE")
        held = subprocess.run(
            [sys.executable, "-c", LOCKED, str(tmp_path)],
            env=environment(), capture_output=True, text=True,
        )  # fmt: skip
    assert held.stdout == "OperationalError: database is locked\n", held.stderr
    assert left(tmp_path) == {"mlflow.db", "mlflow.db.lock"}


LOCKED = """
import functools, sqlite3, sys
from pathlib import Path
from tuner.report import store

sqlite3.connect = functools.partial(sqlite3.connect, timeout=0)
try:
    store.client_of(store.default_store(Path(sys.argv[1])), Path(sys.argv[1]), print)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_two_first_studies_at_once(tmp_path: Path) -> None:
    program = [sys.executable, str(HERE / "synthetic.py"), "smooth", str(tmp_path), "budget=1"]
    options: dict[str, Any] = {"env": environment(), "stderr": subprocess.PIPE, "text": True}
    options["stdout"] = subprocess.DEVNULL
    with (
        started([*program, 'study="one"'], **options) as one,
        started([*program, 'study="two"'], **options) as two,
    ):
        for process in (one, two):
            told = process.stderr.read() if process.stderr else ""
            assert process.wait() == 0, told
            assert "warning" not in told
    studies = [
        name for name in tracked(tmp_path, copy="read.db") if name.startswith(("one", "two"))
    ]
    assert len(studies) == 2


def test_repair_makes_the_same_store_from_the_logs(tmp_path: Path, template: Path) -> None:
    shutil.copy(template, database(tmp_path))
    for name in ("one", "two"):
        run_study(request(tmp_path, budget=4, study=name), runner=smooth)
    before = tracked(tmp_path, copy="before.db")
    database(tmp_path).unlink()
    shutil.rmtree(tmp_path / "mlartifacts")
    done = tune("repair", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "one: 4 trials, 4 of them added; complete" in done.stderr
    assert tracked(tmp_path, copy="after.db") == before
    again = tune("repair", "--out", str(tmp_path), "--json")
    assert "two: 4 trials, 0 of them added; complete" in again.stderr
    assert tracked(tmp_path, copy="again.db") == before
    assert json.loads(again.stdout) == {
        "studies": [
            {"study": name, "trials": 4, "added": 0, "complete": True} for name in ("one", "two")
        ]
    }


def test_repair_tells_of_studies_that_it_cannot_conclude(tmp_path: Path, template: Path) -> None:
    shutil.copy(template, database(tmp_path))
    for name in ("stopped", "busy", "whole"):
        run_study(request(tmp_path, budget=4, study=name), runner=smooth)
    events = tmp_path / "stopped" / log.EVENTS
    events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:9]))
    database(tmp_path).write_text("damaged")
    with StudyLog(tmp_path / "busy"):
        done = tune("repair", "--out", str(tmp_path), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [study["study"] for study in found["studies"]] == ["stopped", "whole"]
    assert [study["complete"] for study in found["studies"]] == [False, True]
    assert "is working on the study in" in found["error"]["message"]
    assert found["error"]["exit"] == 1
    assert "Traceback" not in done.stderr
    assert "it is kept as mlflow.db.broken-1" in done.stderr
    assert "is working on the study in" in done.stderr
    assert "stopped: 2 trials, 2 of them added; was stopped before its end" in done.stderr
    assert "whole: 4 trials, 4 of them added; complete" in done.stderr
    runs = tracked(tmp_path, copy="read.db")
    states = {name.rsplit("-", 1)[0]: run[0] for name, run in runs.items() if " " not in name}
    assert states == {"stopped": "KILLED", "whole": "FINISHED"}


def test_repair_finds_damage_that_a_run_does_not_look_for(tmp_path: Path, template: Path) -> None:
    shutil.copy(template, database(tmp_path))
    run_study(request(tmp_path, budget=4), runner=smooth)
    content = database(tmp_path).read_bytes()
    half = len(content) // 2 // 4096 * 4096
    database(tmp_path).write_bytes(content[:half] + b"\xff" * 40960 + content[half + 40960 :])
    done = tune("repair", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "MLflow's database is broken (" in done.stderr
    assert len(tracked(tmp_path, copy="read.db")) == 5


def test_check_tells_what_a_store_lacks_and_repair_adds_it(tmp_path: Path, template: Path) -> None:
    shutil.copy(template, database(tmp_path))
    for name in ("one", "two"):
        run_study(request(tmp_path, budget=2, study=name), runner=smooth)
    whole = tracked(tmp_path, copy="whole.db")
    done = tune("check", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}: nothing wrong; it has 2 studies\n"
    with closing(sqlite3.connect(database(tmp_path))) as file, file:
        trial = "SELECT run_uuid FROM tags WHERE key = 'tiertune.trial' AND value = '1' LIMIT 1"
        file.execute(f"UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ({trial})")
    for path in (tmp_path, database(tmp_path)):
        done = tune("check", str(path), "--json")
        found = json.loads(done.stdout)
        (problem,), (remedy,) = found["problems"], found["remedies"]
        assert (done.returncode, found["store"], found["studies"]) == (1, str(path), 2)
        assert problem.startswith(f"{database(tmp_path)}: lacks 1 of 2 trials of the study ")
        assert remedy.startswith("add 1 of 2 trials of the study ")
    done = tune("check", str(tmp_path), "--repair", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"], found["mended"]) == (0, [], [remedy]), done.stderr
    assert tracked(tmp_path, copy="mended.db") == whole


@pytest.mark.parametrize("what", ["experiment", "run", "name", "content", "file"])
def test_what_was_deleted_in_mlflow_comes_back(tmp_path: Path, template: Path, what: str) -> None:
    """By hand, in its UI for example: an experiment that is deleted keeps its name."""
    from mlflow import MlflowClient

    shutil.copy(template, database(tmp_path))
    run_study(request(tmp_path, budget=2), runner=smooth)
    whole = tracked(tmp_path, copy="whole.db")
    shutil.copy(database(tmp_path), tmp_path / "copy.db")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'copy.db'}")
    experiment = client.get_experiment_by_name("tiertune-synthetic").experiment_id
    parents = client.search_runs([experiment], "tags.`tiertune.study` LIKE 'synthetic-study-%'")
    (parent,) = (run.info.run_id for run in parents)
    said = ""
    if what == "experiment":
        client.delete_experiment(experiment)
        said = "note: the experiment tiertune-synthetic had been deleted in MLflow; it is restored"
    elif what == "run":
        client.delete_run(parent)
        said = "note: the run synthetic-study had been deleted in MLflow; it is restored"
    elif what == "name":
        client.rename_experiment(experiment, "mine")
    (tmp_path / "copy.db").replace(database(tmp_path))
    if what == "content":
        database(tmp_path).write_bytes(b"")
    elif what == "file":
        shutil.copy(template, database(tmp_path))
    assert tune("check", str(tmp_path)).returncode == 1
    done = tune("check", str(tmp_path), "--repair")
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert tracked(tmp_path, copy="again.db") == whole
    if what == "name":  # theirs keeps what it had
        shutil.copy(database(tmp_path), tmp_path / "theirs.db")
        client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'theirs.db'}")
        assert client.get_run(parent).info.experiment_id == experiment
        assert client.get_experiment(experiment).name == "mine"
    done = tune("repair", "--out", str(tmp_path))
    assert (done.returncode, "0 of them added" in done.stderr) == (0, True), done.stderr


def test_check_of_a_broken_store_changes_nothing(tmp_path: Path, template: Path) -> None:
    half_made(tmp_path, template)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / log.HEADER).touch()
    before = database(tmp_path).read_bytes()
    done = tune("check", str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, database(tmp_path).read_bytes()) == (1, before)
    assert found["remedies"] == ["bring it up to date or make it anew, from the logs of 1 study"]
    database(tmp_path).write_text("not at all a database\n" * 100)
    before = database(tmp_path).read_bytes()
    done = tune("check", str(database(tmp_path)), "--json")
    found = json.loads(done.stdout)
    assert found["remedies"] == [
        "keep it under another name and make it anew, from the logs of 1 study"
    ]
    assert "MLflow's database is broken (" in found["problems"][0]
    done = tune("doctor", "--out", str(tmp_path), "--json")
    assert done.returncode == 0
    (store,) = (f for f in json.loads(done.stdout)["findings"] if f["name"] == "MLflow store")
    assert store["state"] == "warning"
    assert "MLflow's database is broken (" in store["found"]
    assert f"`tune repair --out {tmp_path}` would keep it under another name" in store["found"]
    assert database(tmp_path).read_bytes() == before


def test_repair_needs_studies(tmp_path: Path) -> None:
    done = tune("repair", "--out", str(tmp_path))
    assert done.returncode == 2
    assert f"no studies in {tmp_path}" in done.stderr


def test_the_command_that_is_told_is_the_one_that_helps(tmp_path: Path) -> None:
    assert repair_command(default_store(tmp_path), tmp_path) == f"tune repair --out {tmp_path}"
    other = repair_command("http://there:5000", tmp_path)
    assert other == f"tune repair --out {tmp_path} --mlflow-uri http://there:5000"
