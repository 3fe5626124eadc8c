# SPDX-License-Identifier: MIT
"""What `tune doctor` finds, and what it would be stopped by."""

from __future__ import annotations

import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from conftest import python_path

from tuner import engine, tierd
from tuner.errors import UserError
from tuner.report import doctor, remote
from tuner.run import asking, contained, container, local_ray
from tuner.run.isolation import Isolation
from tuner.run.metric import Failed
from tuner.run.trial import Status


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
    expected |= {"tierd", "Ray", "MLflow store", "clock", "monotonic clock", *doctor.TOOLS}
    assert expected <= found.keys()
    ids = ", ".join(f"{name} {id}" for name, id in engine.ids().items())
    assert found["tune"] == [("ok", f"{engine.version()}, {ids}")]
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


def test_no_room_for_the_names_of_sockets_is_a_problem(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("n" * 100)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("n" * 100)))
    states = [state for state, _ in findings(run("doctor", "--json"))["temporary files"]]
    assert "problem" not in states  # Ray takes /tmp
    monkeypatch.setattr(local_ray, "SOCKET", "s" * 107)
    _, (state, found) = findings(run("doctor", "--json"))["temporary files"]
    assert state == "problem"
    assert "Ray needs a TMPDIR of at most 0 bytes" in found


def test_a_folder_that_others_may_change_is_no_place_for_sockets(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "open"))
    monkeypatch.setattr(local_ray, "SOCKET", "s")
    assert local_ray.place() == Path("/tmp")
    monkeypatch.setattr(local_ray, "OTHER", tmp_path / "open")
    _, (state, found) = findings(run("doctor", "--json"))["temporary files"]
    assert state == "problem"
    assert "open: other users may rename what is in it" in found
    (tmp_path / "open").chmod(0o1777)
    assert local_ray.place() == tmp_path / "open"


@pytest.mark.parametrize("path", ["", "lib:/usr/lib", "/usr/lib:", ":/usr/lib"])
def test_modules_of_the_current_folder_are_a_warning(
    run: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    found = [said for state, said in findings(run("doctor", "--json"))["Python"] if state != "ok"]
    assert len(found) == (1 if path else 0)
    assert not path or "PYTHONPATH has an entry that is empty or relative" in found[0]


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


PROBED = """\
#!/bin/sh
case $1 in
  version) echo "tierd 1.2.3, policies abc" ;;
  probe) echo '[{"subject": "memory tiers", "works": false, "found": "one", "cure": "--fast 0"},
    {"subject": "moving pages", "works": true, "found": "of our own", "cure": null},
    {"subject": "populated pages", "works": true, "found": "are told", "cure": null},
    {"subject": "hardware samples", "works": false, "found": "none", "cure": null},
    {"subject": "balancing", "works": null, "found": "is 1", "cure": "0"},
    {"subject": "demotion", "works": null, "found": "is 0", "cure": null}]'; exit 1 ;;
esac
"""


def test_what_tierd_misses_is_no_problem_of_a_study(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tierd"
    monkeypatch.setattr(tierd, "find", lambda: program if program.exists() else None)
    said = findings(run("doctor", "--json"))
    assert said["tierd"] == [("warning", "not found; it runs the policies on real memory")]
    assert "real memory" not in said
    program.write_text(PROBED)
    program.chmod(0o644)
    assert findings(run("doctor", "--json"))["tierd"] == [
        ("warning", f"{program}: Permission denied")
    ]
    program.chmod(0o755)
    said = findings(run("doctor", "--json"))
    assert said["tierd"] == [("ok", f"{program}: tierd 1.2.3, policies abc")]
    assert said["real memory"] == [
        ("ok", "moving pages, populated pages"),
        ("warning", "memory tiers: one; --fast 0"),
        ("warning", "hardware samples: none"),
        ("warning", "balancing: is 1; 0"),
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


# --- Containers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (None, "ok", "a container starts and answers"),
        ("older", "warning", "has engine build older, not "),
        (Failed(Status.timeout, "past its deadline"), "warning", "past its deadline"),
        (UserError("no Docker Engine answers at /nowhere"), "warning", "no Docker Engine answers"),
    ],
)
def test_a_container_is_started(
    run: Any, monkeypatch: pytest.MonkeyPatch, answer: Any, state: str, said: str
) -> None:
    def build_of(isolation: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer or engine.results_id()

    monkeypatch.setattr(container, "image_id", lambda name: "sha256:1")
    monkeypatch.setattr(contained, "build_of", build_of)
    ((found, text),) = findings(run("doctor", "--json"))["containers"]
    assert found == state
    assert said in text
    assert text.startswith("not for --runner container: ") == (state == "warning")


@pytest.mark.parametrize("hello", [b'{"engine_build": "b"}', b"{}", b"[]", b"Segmentation fault"])
def test_a_container_is_removed_whatever_it_says(
    monkeypatch: pytest.MonkeyPatch, hello: bytes
) -> None:
    class Fake:
        removed = 0

        def __init__(self, *_: object, mounts: object, **__: object) -> None:
            assert not mounts

        def receive(self, until: float) -> bytes:
            return hello

        def remove(self) -> None:
            Fake.removed += 1

    monkeypatch.setattr(contained, "Container", Fake)
    isolation = Isolation(image="any")
    if b'"b"' in hello:
        assert contained.build_of(isolation) == "b"
    else:
        with pytest.raises(Failed, match="its container answers '"):
            contained.build_of(isolation)
    assert Fake.removed == 1


# --- Other machines -------------------------------------------------------------------------------


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("option", "form", "name"),
    [("--ray-address", "{}", "Ray cluster"), ("--mlflow-uri", "http://{}/x", "MLflow")],
)
def test_what_nobody_listens_at_is_a_problem(run: Any, option: str, form: str, name: str) -> None:
    address = nobody()
    outcome = run("doctor", "--json", option, form.format(address))
    assert findings(outcome)[name] == [
        ("problem", f"nobody listens at {address} (Connection refused)")
    ]


@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        (("--ray-address", "127.0.0.1:99999"), "Ray cluster", "nobody listens at 127.0.0.1:99999"),
        (("--mlflow-uri", "http://127.0.0.1:99999"), "MLflow", "--mlflow-uri: found 'http://127"),
        (("--mlflow-uri", "http://[::1"), "MLflow", "--mlflow-uri: found 'http://[::1'; Invalid"),
    ],
)
def test_an_address_that_is_none_is_a_problem(
    run: Any, words: tuple[str, str], name: str, said: str
) -> None:
    ((state, text),) = findings(run("doctor", "--json", *words))[name]
    assert (state, said in text) == ("problem", True), text


def says(*words: Any) -> Any:
    """Stands in for the child process that asks."""

    def asked(ask: Any, *arguments: str, seconds: float) -> Any:
        for word in words:
            if isinstance(word, Exception):
                raise word
            yield word

    return asked


def facts(**changes: str) -> dict[str, str]:
    ours = {"build": engine.results_id(), "ray": metadata.version("ray"), "lacking": ""}
    return ours | {"python": platform.python_version(), "tune": engine.version()} | changes


def test_nodes_are_compared_with_this_machine(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told = says(
        ("nodes", [["a", 4.0], ["b", 2.0], ["c", 2.0], *([name, 1.0] for name in "defg")]),
        ("node", [1, facts(build="older"), None]),
        ("node", [0, facts(), None]),
        ("node", [2, None, "ModuleNotFoundError: No module named 'tuner'"]),
        ("node", [4, facts(ray="2.1.0"), None]),
        ("node", [5, facts(python="3.11.99"), None]),
        ("node", [6, facts(lacking="no recording /r.tts"), None]),
        asking.Silent("not done within 9 s"),
    )
    monkeypatch.setattr(asking, "asked", told)
    found = findings(run("doctor", "--json", "--ray-address", "auto"))
    assert found["Ray cluster"] == [("ok", "auto: 7 nodes with 12 CPUs; not done within 9 s")]
    ours, ray, python = engine.results_id(), metadata.version("ray"), platform.python_version()
    assert found["node a"] == [("ok", f"4 CPUs, engine build {ours}, Ray {ray}, Python {python}")]
    assert found["node b"][0][0] == "warning"
    versions = f"tune {engine.version()}; this machine has engine build {ours}, tune "
    assert versions in found["node b"][0][1]
    no_tune = "2 CPUs; cannot run a trial: ModuleNotFoundError: No module named 'tuner'"
    assert found["node c"] == [("warning", no_tune)]
    assert found["node d"] == [("warning", "1 CPUs; cannot run a trial: no answer")]
    assert found["node e"][0] == (
        "warning",
        f"1 CPUs, engine build {ours}, Ray 2.1.0, Python {python}; this machine has Ray {ray}",
    )
    assert found["node f"][0][0] == "warning"
    assert f"Python 3.11.99; this machine has Python {python}" in found["node f"][0][1]
    assert found["node g"][0][0] == "warning"
    assert "; no recording /r.tts: trials fail there" in found["node g"][0][1]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([("nodes", [])], "auto: 0 nodes with 0 CPUs, none of which could run a trial"),
        ([asking.Silent("not done within 9 s")], "auto: not done within 9 s: this machine did not"),
        ([UserError("RuntimeError: Version mismatch")], "auto: RuntimeError: Version mismatch"),
    ],
)
def test_a_cluster_that_cannot_run_trials_is_a_problem(
    run: Any, monkeypatch: pytest.MonkeyPatch, told: list[Any], said: str
) -> None:
    monkeypatch.setattr(asking, "asked", says(*told))
    ((state, text),) = findings(run("doctor", "--json", "--ray-address", "auto"))["Ray cluster"]
    assert (state, text.startswith(said)) == ("problem", True), text


@pytest.mark.parametrize(
    ("told", "state", "said"),
    [
        ([("answers", None), ("written", None)], "ok", "a run with a file can be written"),
        (
            [("answers", None), UserError("403 no")],
            "problem",
            "answers, but cannot be written: 403",
        ),
        ([UserError("API request failed, 401")], "problem", "login of MLFLOW_TRACKING_USERNAME"),
        ([asking.Silent("not done within 9 s")], "problem", "does not answer as it should"),
    ],
)
def test_a_server_is_judged(
    run: Any, monkeypatch: pytest.MonkeyPatch, told: list[Any], state: str, said: str
) -> None:
    monkeypatch.setattr(asking, "asked", says(*told))
    ((found, text),) = findings(run("doctor", "--json", "--mlflow-uri", "databricks"))["MLflow"]
    assert (found, said in text) == (state, True), text


def hangs(pipe: str, tell: asking.Tell) -> None:
    tell("here", os.getpid())
    Path(pipe).read_bytes()  # nobody writes


def breaks(text: str, tell: asking.Tell) -> None:
    raise ValueError(f"\n----\n{text}\nmore")


def exits(code: str, tell: asking.Tell) -> None:
    os._exit(int(code))


class Later:
    """A clock that is an hour ahead."""

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() + 3600


def test_who_does_not_answer_in_time_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    answers = asking.asked(hangs, str(tmp_path / "pipe"), seconds=100)
    kind, child = next(answers)
    assert kind == "here"
    monkeypatch.setattr(asking, "time", Later)
    with pytest.raises(asking.Silent, match="not done within 100 s"):
        next(answers)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_goes_wrong_in_the_child_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^ValueError: first$"):
        list(asking.asked(breaks, "first", seconds=60))
    with pytest.raises(UserError, match="has ended without an answer"):
        list(asking.asked(exits, "3", seconds=60))


@pytest.mark.slow
def test_a_cluster_answers(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", python_path(*sys.path))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    address = cluster.address
    try:
        found = findings(run("doctor", "--json", "--ray-address", address))
    finally:
        cluster.shutdown()
    assert found["Ray cluster"] == [("ok", f"{address}: 1 node with 2 CPUs")]
    ((state, said),) = (found[name][0] for name in found if name.startswith("node "))
    assert state == "ok"
    assert f"2 CPUs, engine build {engine.results_id()}, Ray {metadata.version('ray')}" in said


@pytest.mark.slow
def test_what_is_written_to_a_server_is_removed(tmp_path: Path) -> None:
    """A database stands in for the server: the calls are the same."""
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    uri = f"sqlite:///{tmp_path}/served.db"
    client = MlflowClient(tracking_uri=uri)
    client.search_experiments()
    for _ in range(2):
        heard = [kind for kind, _ in asking.asked(remote.ask_mlflow, uri, seconds=300)]
        assert heard == ["answers", "written"]
    assert [each.name for each in client.search_experiments()] == ["Default"]
    (left,) = client.search_experiments(view_type=ViewType.DELETED_ONLY)
    assert left.name == remote.EXPERIMENT
    assert client.search_runs([left.experiment_id], run_view_type=ViewType.ACTIVE_ONLY) == []
    assert not list(tmp_path.rglob("written.txt"))
