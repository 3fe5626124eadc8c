# SPDX-License-Identifier: MIT
"""Declarations and documents that the tuner's tests share, and what holds for each of them.

The quick half (`-m "not slow"`) needs neither Ray nor MLflow, and a test of it that imports one of
them fails. No test writes anywhere but into temporary folders.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, engine
from tuner.declarations import KernelDecl, PolicyDecl
from tuner.scenario import Scenario

# A shell's background job ignores SIGINT, and what it starts inherits that; the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
SLOW_SECONDS = 600
HEAVY = ("ray", "mlflow")

# --- What holds for every test --------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        limit = item.get_closest_marker("timeout") or pytest.mark.timeout().mark
        if item.get_closest_marker("slow") and not limit.args:
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS, **limit.kwargs))


GENERATED = {
    *(".git", ".venv", "build", "dist"),
    *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
}


def files_of_the_repository() -> set[Path]:
    found = set()
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if name not in GENERATED]
        found |= {Path(folder, name) for name in (*below, *files)}
    return found


@pytest.fixture(scope="session", autouse=True)
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Home and the folder for temporary files are of the tests' own, and go with them.

    The path is short, unlike those of pytest: Ray makes sockets below it, and theirs may have no
    more than 107 bytes.
    """
    assert not set(HEAVY) & set(sys.modules), "a test module imports Ray or MLflow"
    before = files_of_the_repository()
    tmp_path_factory.getbasetemp()  # stays where pytest puts it: what failed can be looked at
    folder = Path(tempfile.mkdtemp(prefix="tt-"))
    (folder / "home").mkdir()
    (folder / "light").mkdir()
    for name in HEAVY:
        (folder / "light" / f"{name}.py").write_text(REFUSAL)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("TIERTUNE_", "MLFLOW_", "RAY_", "XDG_", "MPL")):
                patch.delenv(name)
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield folder
    shutil.rmtree(folder, ignore_errors=True)
    left = sorted(str(path.relative_to(ROOT)) for path in files_of_the_repository() - before)
    assert not left, f"the tests wrote into the repository: {', '.join(left)}"


class Refusal(MetaPathFinder):
    """Makes `import ray` fail, and remembers that somebody tried: the tuner goes on without MLflow,
    so that the test might pass."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def find_spec(self, name: str, *_: object) -> None:
        if name in HEAVY:
            self.refused.append(name)
            raise ModuleNotFoundError(f"a test that is not marked slow imports {name}", name=name)


# The same for the programs that a test starts.
REFUSAL = """\
import os
os.write(2, f"a test that is not marked slow starts a program that imports {__name__}\\n".encode())
os._exit(70)
"""


@pytest.fixture(autouse=True)
def light(
    request: pytest.FixtureRequest, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Keeps Ray and MLflow out of the quick half."""
    if request.node.get_closest_marker("slow"):
        yield
        return
    monkeypatch.setenv("PYTHONPATH", str(sandbox / "light"), prepend=os.pathsep)
    refusal = Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(refusal)
    assert not refusal.refused, f"imports {', '.join(refusal.refused)}: mark it slow"


def python_path(*folders: str | Path) -> str:
    """A PYTHONPATH with these folders behind those that it has."""
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*([before] if before else []), *map(str, folders)])


# --- Waiting without sleeping ---------------------------------------------------------------------


@contextmanager
def started(words: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A child process that does not outlive the test, however that ends."""
    process = subprocess.Popen(words, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, those that they have started, and so on."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for child in found:  # grows meanwhile
        found += children.get(child, [])
    return found


def comm(pid: int) -> str:
    """Name of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


class Hang:
    """A trial that hangs (`accident` of synthetic.py): its deadline passes as soon as it does.

    Stands in for the pool's clock, so that nobody has to wait for the deadline.
    """

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self.pipe = pipe
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def outlast_deadline(self) -> None:
        """Waits until the trial hangs, and lets an hour pass."""
        self.pipe.read_bytes()
        self._ahead += 3600


@pytest.fixture
def hang(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Hang:
    found = Hang(tmp_path_factory.mktemp("hang") / "pipe")
    monkeypatch.setenv("SYNTHETIC_HANGS", str(found.pipe))
    for name in ("pool", "process_pool", "ray_pool"):
        monkeypatch.setattr(f"tuner.run.{name}.time", found)
    return found


# --- Declarations and documents -------------------------------------------------------------------

KNOBS: list[dict[str, Any]] = [
    {
        "name": "threshold",
        "type": "integer",
        "default": 5,
        "min": 1,
        "max": 100,
        "log": True,
        "unit": "count_per_page",
        "meaning": "Accesses that make a page hot.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "period",
        "type": "real",
        "default": 1.5,
        "min": 0.5,
        "max": 10.0,
        "log": False,
        "unit": "milliseconds",
        "meaning": "Time between two passes.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "mode",
        "type": "choice",
        "default": "paper",
        "min": 0,
        "max": 0,
        "log": False,
        "unit": "none",
        "meaning": "Which rule.",
        "source": "test",
        "choices": ["paper", "artifact", "both"],
        "condition": None,
    },
    {
        "name": "aol.enabled",
        "type": "boolean",
        "default": False,
        "min": 0,
        "max": 0,
        "log": False,
        "unit": "none",
        "meaning": "Regulation by AOL.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "aol.low",
        "type": "real",
        "default": 40.0,
        "min": 1.0,
        "max": 400.0,
        "log": False,
        "unit": "cycles",
        "meaning": "Below it nothing is promoted.",
        "source": "test",
        "choices": [],
        "condition": {"parent": "aol.enabled", "values": [True]},
    },
]

POLICIES: list[dict[str, Any]] = [
    {
        "name": "toy",
        "family": "test",
        "summary": "A policy of the tests.",
        "citation": "nobody, 2026",
        "traits": {"page_bytes": 4096},
        "knobs": KNOBS,
    }
]

KERNELS: list[dict[str, Any]] = [
    {
        "name": "walk",
        "summary": "Walks.",
        "parameters": [
            {"name": "keys", "default": 1000, "unit": "", "meaning": "how many"},
            {"name": "skew", "default": 0.9, "unit": "", "meaning": "how skewed"},
            {"name": "shift", "default": False, "unit": "", "meaning": "whether it shifts"},
            {"name": "mix", "default": [0.5, 0.5], "unit": "", "meaning": "of what"},
            {"name": "order", "default": "random", "unit": "", "meaning": "in which order"},
        ],
    }
]

WORKLOAD = """\
# A workload of the tests.
name: walker
summary: walks
sources: [nobody]
kernel: walk
operation: step
objective: throughput
objectives: [throughput, p50, runtime]
footprint_gib: 8
scale: 64
threads: 16
machine: testbed
default_input: big
smoke_input: small
inputs:
  big:
    summary: the big one
    parameters: {keys: 5000, skew: 1, mix: [0.1, 0.9]}
  small:
    summary: the small one
    scale: 4096
    parameters:
      keys: 10
      order: linear
"""

MACHINE = """\
name: testbed
summary: a machine of the tests
sources: [nobody]
ghz: 2.5
cores: 16
threads: 16
llc_mib: 24
fast: {latency_ns: 80, read_gbps: 100, write_gbps: 100, total_gbps: 120, store_stall: 0.1,
       loaded: [[0, 1], [0.9, 1.5], [1, 4]]}
slow: {latency_ns: 200, read_gbps: 30, write_gbps: 20, store_stall: 0.2, loaded: [[0, 1], [1, 3]]}
tiering:
  migration_fixed_us: 2
  migration_copy_gbps: 5
  migration_shootdown_us: 1
  sample_assist_ns: 200
  sample_drain_ns: 100
  work_ns: {tracker_update: 20, tracker_lookup: 15, cooling_step: 5, scan_step: 30,
            threshold_pass: 1000}
  huge_page_gain: 0.1
  daemon_core_share: 0
  sample_queue: 65536
"""

SPACE = """\
policy: toy
summary: all of it
knobs:
  threshold: {max: 50}
  period: {}
  mode: {choices: [paper, both]}
  aol.enabled: {}
  aol.low: {}
"""


@pytest.fixture
def toy_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that declares one policy and one kernel and cannot run anything."""
    policies = {p["name"]: PolicyDecl.model_validate(p) for p in POLICIES}
    kernels = {k["name"]: KernelDecl.model_validate(k) for k in KERNELS}
    monkeypatch.setattr(engine, "policies", lambda: policies)
    monkeypatch.setattr(engine, "kernels", lambda: kernels)
    monkeypatch.setattr(Scenario, "policy", "toy")


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_engine: None) -> Path:
    """The current directory of a user with a workload, a machine and a space of their own."""
    for folder, name, text in (
        ("workloads", "walker", WORKLOAD),
        ("machines", "testbed", MACHINE),
        ("spaces", "toy", SPACE),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class FakeNative:
    """Stands in for the native module where a test must make it fail, or count its calls.

    A stream is a text of what it was made from; a `simulate` is arithmetic on the knobs.
    """

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.on_record: Callable[[Path], None] = lambda path: None
        self.on_simulate: Callable[[dict[str, Any]], None] = lambda arguments: None

    def version(self) -> str:
        return "1.2.3"

    def ids(self) -> dict[str, str]:
        return {"policies": "build", "simulator": "1", "whole": "all"}

    def stream_id(self, kernel: str) -> str:
        return "maker-1"

    def is_kernels_own(self, policy: str) -> bool:
        return False

    def estimates(self) -> list[dict[str, Any]]:
        """The engine's own: the machines that are shipped set them."""
        return list(importlib.import_module("tuner._engine").estimates())

    def machine_problems(self, machine: dict[str, Any]) -> list[tuple[str, str]]:
        return list(importlib.import_module("tuner._engine").machine_problems(machine))

    def overlap(self) -> dict[str, float]:
        return {"random": 4.0, "sequential": 8.0, "dependent": 1.0}

    def resolve(self, policy: str, knobs: dict[str, Any]) -> dict[str, Any]:
        declared = {k["name"]: k for k in KNOBS}
        for name, value in knobs.items():
            limits = declared[name]
            if limits["type"] in ("integer", "real") and not (
                limits["min"] <= value <= limits["max"]
            ):
                raise ValueError(f"knob {name}: found {value}, allowed {limits['min']} to ...")
        return {name: k["default"] for name, k in declared.items()} | knobs

    def record(self, kernel: str, *, path: str, progress: Any, **request: Any) -> dict[str, Any]:
        with self.calls.open("a") as calls:
            calls.write("record\n")
        partial = Path(f"{path}.abcdef.partial")
        partial.write_text("half")
        progress(0.5)
        self.on_record(partial)
        partial.write_text(f"stream {kernel} {sorted(request.items())}")
        partial.rename(path)
        progress(1.0)
        return {}

    def verify_stream(self, path: str) -> None:
        if not Path(path).read_text().startswith("stream "):
            raise RuntimeError(f"{path}: checksum of block 0 is wrong")

    def stream_info(self, path: str) -> dict[str, Any]:
        return {"identity": "c0ffee"}

    def simulate(self, path: str, **arguments: Any) -> dict[str, Any]:
        self.on_simulate(arguments)
        self.verify_stream(path)
        if arguments["progress"]:
            arguments["progress"](1.0)
        seconds = 10.0 / arguments["knobs"]["threshold"] + arguments["seed"] % 3
        return {
            "seconds": seconds,
            "total_seconds": seconds + 1,
            "operations": 1000.0,
            "latency": {
                "step": {
                    "operations": 10,
                    "mean": 600.0,
                    "p50": 500.0 + arguments["seed"],
                    "p90": 700.0,
                    "p99": 900.0,
                    "p999": 1000.0,
                }
            },
            "metrics": {"promotions": 3.0},
            "breakdown": {"compute": seconds / 2, "slow_stall": seconds / 2},
            "series": {"second": [0.0, 1.0], "hit_ratio": [0.5, 0.75]},
        }

    def recorded(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def fake(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    """A fake native module, an empty stream cache, and the user's folder."""
    native = FakeNative(user_folder)
    monkeypatch.setattr(engine, "native", lambda: native)
    monkeypatch.setenv("TIERTUNE_CACHE", str(user_folder / "cache"))
    return native


class Outcome:
    """What a command came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.main(arguments)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """A command in an empty folder, with an empty cache: its JSON, or its error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))

    def call(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert cli.main([*words, "--json"]) == code
        captured = capsys.readouterr()
        found = json.loads(captured.out)
        if code == 0:
            return found
        message = found["error"]["message"]
        assert captured.err.endswith(f"tune: error: {message}\n")
        return message

    return call
