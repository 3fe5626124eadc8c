"""What `tune doctor` finds, and what it would be stopped by."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.errors import UserError
from tuner.report import doctor


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def findings(outcome: Any) -> dict[str, list[tuple[str, str]]]:
    """State and text by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in outcome.json["findings"]:
        found.setdefault(one["name"], []).append((one["state"], one["found"]))
    problems = sum(state == "problem" for states in found.values() for state, _ in states)
    assert outcome.json["problems"] == problems
    assert outcome.code == (1 if problems else 0)
    return found


def test_every_part_is_looked_at_and_nothing_is_left_behind(run: Any, tmp_path: Path) -> None:
    outcome = run("doctor", "--json")
    found = findings(outcome)
    expected = {"tune", "loops", "Python", "smac", "ray", "mlflow", "cache", "results", "memory"}
    expected |= {"temporary files", "shared memory", "open files", "size of a file", "CPUs"}
    expected |= {"Ray", "MLflow store", "clock", "monotonic clock", *doctor.TOOLS}
    assert expected <= found.keys()
    assert found["tune"] == [("ok", f"{engine.version()}, engine build {engine.build_id()}")]
    assert found["loops"][0][1].startswith(engine.isa())
    assert found["ray"] == [("ok", metadata.version("ray"))]
    assert found["results"][0][1].startswith(f"{tmp_path / 'results'}: ")
    assert list(tmp_path.iterdir()) == []
    table = run("doctor")
    assert table.code == outcome.code
    assert table.out.splitlines()[0].split() == ["state", "what", "found"]


@pytest.mark.parametrize(("place", "below"), [("cache", "TIERTUNE_CACHE"), ("results", "--out")])
def test_a_folder_that_cannot_be_written_is_a_problem(
    run: Any, monkeypatch: pytest.MonkeyPatch, place: str, below: str
) -> None:
    words = ["--out", "/dev/null/below"]
    if place == "cache":
        monkeypatch.setenv(below, words.pop())
        words = []
    (found,) = findings(run("doctor", "--json", *words))[place]
    assert found == ("problem", "/dev/null/below: cannot be written: Not a directory")


def test_a_long_folder_for_temporary_files_is_a_problem(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("n" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("n" * 100)))
    _, (state, found) = findings(run("doctor", "--json"))["temporary files"]
    assert state == "problem"
    assert f"Ray needs a TMPDIR of at most {107 - len(doctor.SOCKET)} bytes" in found


@pytest.mark.parametrize(
    ("limit", "value", "name", "state", "said"),
    [
        (resource.RLIMIT_NOFILE, 48, "open files", "problem", "48"),
        (resource.RLIMIT_NOFILE, 64, "open files", "warning", "64"),
        (resource.RLIMIT_NOFILE, 1024, "open files", "ok", "1,024"),
        (resource.RLIMIT_NOFILE, resource.RLIM_INFINITY, "open files", "ok", "unlimited"),
        (resource.RLIMIT_FSIZE, 1 << 20, "size of a file", "problem", "1.0 MiB (`ulimit -f`)"),
        (resource.RLIMIT_FSIZE, 1 << 32, "size of a file", "warning", "4.0 GiB (`ulimit -f`)"),
        (resource.RLIMIT_AS, 1 << 34, "address space", "warning", "16.0 GiB (`ulimit -v`)"),
        (resource.RLIMIT_CPU, 60, "processor time", "warning", "1:00 (`ulimit -t`)"),
    ],
)
def test_limits_are_judged(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    value: int,
    name: str,
    state: str,
    said: str,
) -> None:
    real = resource.getrlimit
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (value, value) if which == limit else real(which)
    )
    (found,) = findings(run("doctor", "--json"))[name]
    assert found[0] == state
    assert found[1].startswith(said)


def test_libraries_are_compared_with_what_tune_needs(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_an_extra = 'never-needed>=1; extra == "server"'
    wanted = ["not-there>=1,<2", "pydantic<1", "rich>=1", of_an_extra]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    found = findings(run("doctor", "--json"))
    assert found["not-there"] == [("problem", "not installed; needs <2,>=1")]
    version = metadata.version("pydantic")
    assert found["pydantic"] == [("warning", f"{version}, but tune is tested with <1")]
    assert found["rich"] == [("ok", metadata.version("rich"))]
    assert "never-needed" not in found


def test_tools_are_optional(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = findings(run("doctor", "--json"))
    assert [found[name][0][0] for name in doctor.TOOLS] == ["warning"] * 3
    assert found["perf"] == [
        ("warning", "not found; it records what `tune import --format perf-script` reads")
    ]


def test_an_open_ray_is_a_warning(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    loopback, token = findings(run("doctor", "--json"))["Ray"]
    assert loopback == ("ok", "connections on the loopback interface are possible")
    assert token == ("warning", "RAY_AUTH_MODE is disabled, not token: Ray may be open to others")


def test_an_engine_that_does_not_run_is_a_problem(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UserError("the engine is not built")

    monkeypatch.setattr(engine, "native", fail)
    found = findings(run("doctor", "--json"))
    assert found["engine"] == [("problem", "the engine is not built")]
    assert "cache" in found, "the other parts are looked at all the same"
    assert run("doctor").out.splitlines()[-1] == "1 problem: a study would not run here"


def test_a_clock_before_the_installation_is_a_warning(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(doctor.__file__).stat().st_mtime
    monkeypatch.setattr(time, "time", lambda: installed - 3600)
    ((state, said),) = findings(run("doctor", "--json"))["clock"]
    assert (state, said) == (
        "warning",
        "before tune was installed (1:00:00 behind): logs get wrong times",
    )


@pytest.mark.parametrize(
    ("line", "files", "limit"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "3000"}, 3000),
        ("0::/a/b", {"a/b/memory.max": "2000", "a/memory.max": "3000"}, 2000),
        ("0::/not/seen/here", {"memory.max": "1000"}, 1000),
        ("0::/a", {"a/memory.max": "max"}, None),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "5000"}, 5000),
        ("4:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        ("3:cpu:/a", {"memory/a/memory.limit_in_bytes": "5000"}, None),
    ],
)
def test_the_limit_of_the_control_group_is_found(
    tmp_path: Path, line: str, files: dict[str, str], limit: int | None
) -> None:
    texts = {"proc/self/cgroup": line} | {f"sys/fs/cgroup/{name}": t for name, t in files.items()}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert doctor.cgroup_memory(tmp_path) == limit


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from tuner import cli; cli.main(['doctor'])\n"
        "print(sorted({'ray', 'mlflow', 'smac', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
