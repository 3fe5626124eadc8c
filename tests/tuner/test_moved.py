# SPDX-License-Identifier: MIT
"""A folder of studies that was moved or copied: everything goes on where it is now, and nothing
comes into being where it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from conftest import python_path
from synthetic import MACHINE, request, smooth

from tuner.documents import document
from tuner.documents.placement import PlacementSpec
from tuner.experiment.loop import run_study
from tuner.experiment.studies import _depends_on
from tuner.report.store import client_of, default_store, flaw
from tuner.study import best, log

HERE = Path(__file__).parent
NAME = "synthetic-study"
OBJECT = {"site": "a", "score": 1.0, "bytes": 4096.0, "slot": 0}
PLACEMENT = {"workload": "synthetic", "policy": "paper", "objects": [OBJECT]}


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: MLflow keeps databases open, by their names."""
    environment = os.environ | {"PYTHONPATH": python_path(HERE, *sys.path)}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )


def study(out: Path, *changes: str) -> str:
    done = python(str(HERE / "synthetic.py"), "smooth", str(out), *changes)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return done.stderr


def places(out: Path) -> dict[str, set[str]]:
    """All places of artifacts that the database has for our experiments, by table."""
    ours = "experiment_id IN (SELECT experiment_id FROM experiments WHERE name LIKE 'tiertune-%')"
    columns = {"experiments": "artifact_location", "runs": "artifact_uri"}
    with closing(sqlite3.connect(out / "mlflow.db")) as file:
        return {
            table: {
                unquote(urlparse(place).path)
                for (place,) in file.execute(f"SELECT {column} FROM {table} WHERE {ours}")
            }
            for table, column in columns.items()
        }


def belongs(out: Path) -> bool:
    """Whether all of these places are in this folder."""
    here = str(out / "mlartifacts")
    found = places(out)
    runs = found["runs"]
    return found["experiments"] == {here} and all(run.startswith(f"{here}/") for run in runs)


def artifacts(out: Path) -> set[str]:
    return {path.name for path in (out / "mlartifacts").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow makes it, which takes a while."""
    folder = tmp_path_factory.mktemp("template")
    client_of(default_store(folder), folder, print)
    return folder / "mlflow.db"


@pytest.fixture(autouse=True)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.node.get_closest_marker("slow"):
        return
    template = request.getfixturevalue("template")
    for name in ("old", "out"):
        (tmp_path / name).mkdir()
        shutil.copy(template, tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("artifacts_left", [True, False])
def test_a_moved_folder_goes_on_where_it_is(tmp_path: Path, artifacts_left: bool) -> None:
    old, new = (tmp_path / name / "results" for name in ("old_ö & co", "new_ü & co"))
    (tmp_path / "old").rename(old.parent)
    new.parent.mkdir()
    old.mkdir()
    (old.parent / "mlflow.db").rename(old / "mlflow.db")
    study(old, "budget=2", "explain=false")
    old.rename(new)
    old.parent.rmdir()
    if not artifacts_left:
        shutil.rmtree(new / "mlartifacts")
    study(new, "budget=3", "explain=false", "resume=true")
    assert not old.parent.exists()
    assert belongs(new)
    assert {"study.json", "best.yaml", "report.html"} <= artifacts(new)
    for words in (["check", str(new)], ["check", str(new / NAME)], ["repair", "--out", str(new)]):
        done = python("-m", "tuner", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not old.parent.exists()


@pytest.mark.slow
def test_a_copy_and_its_original_are_independent(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    study(old, "budget=2", "explain=false")
    shutil.copytree(old, new)
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    study(new, "budget=3", "explain=false", "resume=true")
    study(new, "budget=1", "explain=false", 'study="second"')
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    assert belongs(old) and belongs(new)
    study(old, "budget=4", "explain=false", "resume=true")
    assert belongs(old) and belongs(new)
    assert len(log.load(new / NAME).done) == 3


@pytest.mark.slow
def test_the_ui_of_a_moved_folder_shows_what_is_there(tmp_path: Path) -> None:
    from tuner.report.store import experiments

    run_study(request(tmp_path / "old", budget=1), runner=smooth)
    (tmp_path / "old").rename(tmp_path / "new")
    new = tmp_path / "new"
    found = flaw(new / "mlflow.db", verify=False)
    assert found is None, "it is no damage"
    done = python("-m", "tuner", "check", str(new))
    assert done.returncode == 0
    assert (
        f"note: --repair would let the store look for artifacts in {new}/mlartifacts, no longer "
        f"in {tmp_path}/old/mlartifacts" in done.stderr
    )
    assert places(new)["experiments"] == {f"{tmp_path}/old/mlartifacts"}
    assert [name for name, *_ in experiments(default_store(new), new)] == ["tiertune-synthetic"]
    assert belongs(new)
    assert "--repair" not in python("-m", "tuner", "check", str(new)).stderr


@pytest.mark.slow
def test_places_that_are_a_users_own_stay(tmp_path: Path) -> None:
    """Experiments of others, places of another form, and another folder's artifacts."""
    out, other = tmp_path / "out", tmp_path / "other"
    client = client_of(default_store(out), out, print)
    run_study(request(other, budget=1, mlflow_uri=default_store(out)), runner=smooth)
    own = {
        "mine": f"file://{tmp_path}/gone/mlartifacts",
        "tiertune-a": "s3://bucket/mlartifacts",
        "tiertune-b": f"file://{tmp_path}/gone/artifacts",
    }
    for name, place in own.items():
        client.create_experiment(name, artifact_location=place)
    run_study(request(out, budget=1, study="second"), runner=smooth)
    own["tiertune-synthetic"] = f"file://{other}/mlartifacts"
    found = {name: client.get_experiment_by_name(name).artifact_location for name in own}
    assert found == own


@pytest.mark.slow
def test_places_are_rewritten_together_or_not_at_all(tmp_path: Path) -> None:
    study(tmp_path / "old", "budget=1")
    (tmp_path / "old").rename(tmp_path / "new")
    new = tmp_path / "new"
    before = places(new)
    with closing(sqlite3.connect(new / "mlflow.db")) as file, file:
        file.execute(
            "CREATE TRIGGER t BEFORE UPDATE OF artifact_uri ON runs "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(sqlite3.IntegrityError):
        client_of(default_store(new), new, print)
    assert places(new) == before


# --- Paths in a study's own files -----------------------------------------------------------------


def with_machine(out: Path, **changes: object) -> None:
    """A study whose machine is a file in the folder of studies."""
    file = out / "mine.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(document.render(MACHINE.model_dump(mode="json", exclude_none=True)))
    wanted = request(out, **changes)
    scenario = replace(wanted.scenario, machine=str(file))
    run_study(wanted.model_copy(update={"scenario": scenario}), runner=smooth)


@pytest.mark.slow
def test_documents_in_the_folder_follow_it(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with_machine(old, budget=2)
    old.rename(new)
    data = log.load(new / NAME)
    assert data.header.request.out == str(new)
    assert data.header.request.scenario.machine == str(new / "mine.yaml")
    assert best.read(new / NAME / best.FILE).scenario.machine == str(new / "mine.yaml")
    checks = len(data.checks)
    with_machine(new, budget=2, resume=True)
    assert len(log.load(new / NAME).checks) == checks, "none of them ran again"
    done = python("-m", "tuner", "check", str(new / NAME))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_documents_that_stayed_behind_keep_their_place(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with_machine(old, budget=1)
    new.mkdir()
    (old / NAME).rename(new / NAME)
    assert log.load(new / NAME).header.request.scenario.machine == str(old / "mine.yaml")
    assert best.read(new / NAME / best.FILE).scenario.machine == str(old / "mine.yaml")


def test_a_placement_counts_by_its_content(tmp_path: Path) -> None:
    placed = PlacementSpec.model_validate(PLACEMENT | {"profiled": {"seconds": 1.0}})
    wanted = request(tmp_path, placement="/old/placement.yaml")
    before = wanted.model_copy(update={"placement": placed})
    again = placed.model_copy(update={"profiled": {"seconds": 2.0}})
    after = request(tmp_path, placement="/new/placement.yaml")
    assert _depends_on(before) == _depends_on(after.model_copy(update={"placement": again}))
    other = PlacementSpec.model_validate(PLACEMENT | {"objects": [OBJECT | {"site": "b"}]})
    assert _depends_on(before) != _depends_on(wanted.model_copy(update={"placement": other}))
