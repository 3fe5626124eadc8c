# SPDX-License-Identifier: MIT
"""What a study needs of the machine, and whether it is there: `tune doctor`.

Each function below `CHECKS` looks at one part, and yields findings. A problem is what would stop a
study; a warning is what makes it slower, worse or incomplete, or stops some other command.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from tuner import engine, foreign, tierd
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.report import remote, store
from tuner.report.remote import Recordings
from tuner.run import admission, asking, local_ray, streams
from tuner.run.isolation import Isolation, default_image
from tuner.run.local_ray import ENVIRONMENT, OBJECT_STORE
from tuner.text import clock, plural, size

State = Literal["ok", "warning", "problem"]

MIB, GIB = 1 << 20, 1 << 30

# Below the first a study of two workers fails, below the second a larger one may. Sizes of disk and
# memory are estimates.
DISK = (100 * MIB, 2 * GIB)
MEMORY = (GIB // 2, 2 * GIB)
FILES = (64, 256)  # two workers need between 48 and 64
FILE_SIZE = (200 * MIB, 16 * GIB)  # Ray's object store is a file: 100 MiB are too few

SHARED_MEMORY = Path("/dev/shm")

TOOLS = {
    "perf": "records what `tune import --format perf-script` reads",
    "qemu-x86_64": "runs the programs of `tune record --sampler emulation`",
    "g++": "builds tune from its sources",
}

PYTHON_BELOW = (3, 14)
"""The first version without tests."""


@dataclass(frozen=True)
class Finding:
    name: str
    state: State
    found: str


def examine(
    out: Path,
    *,
    ray_address: str | None = None,
    mlflow_uri: str | None = None,
    workload: str | None = None,
) -> Iterator[Finding]:
    """All findings; `out` is the folder of studies. A cluster and a store elsewhere are asked if
    they are given, the cluster also for the recordings of the workload."""
    checks = dict(CHECKS)
    recordings: Recordings = {}
    if workload is not None:
        checks["workload"] = lambda _: _workload(workload, recordings)
    if ray_address is not None:
        checks["Ray cluster"] = lambda _: _cluster(ray_address, recordings)
    if mlflow_uri is not None:
        checks["MLflow"] = lambda _: _tracking(mlflow_uri)
    for name, check in checks.items():
        try:
            yield from check(out)
        except (OSError, UserError) as error:
            yield Finding(name, "problem", str(error))


def _judged(value: float, bounds: tuple[float, float]) -> State:
    problem, warning = bounds
    return "problem" if value < problem else "warning" if value < warning else "ok"


# --- Versions -------------------------------------------------------------------------------------


def _engine(_: Path) -> Iterator[Finding]:
    ids = ", ".join(f"{name} {id}" for name, id in engine.ids().items())
    yield Finding("tune", "ok", f"{engine.version()}, {ids}")
    best = engine.supported_isas()[-1]
    forced = f" (TIERTUNE_ISA; {best} is faster)" if engine.isa() != best else ""
    state: State = "warning" if forced else "ok"
    yield Finding("loops", state, f"{engine.isa()}{forced} on {platform.machine()}")


def _python(_: Path) -> Iterator[Finding]:
    tested = platform.python_version_tuple()[:2]
    state: State = "ok" if tuple(map(int, tested)) < PYTHON_BELOW else "warning"
    untested = "" if state == "ok" else ", with which tune is not tested"
    yield Finding("Python", state, f"{platform.python_version()}{untested}")
    if foreign.relative_entries():
        said = (
            "PYTHONPATH has an entry that is empty or relative: where it starts, Python runs a "
            "sitecustomize.py of the current folder, whoever made that"
        )
        yield Finding("Python", "warning", said)


def _libraries(_: Path) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        wanted = metadata.requires("tiertune") or []
    except metadata.PackageNotFoundError:
        yield Finding("libraries", "warning", "not known: the package tiertune is not installed")
        return
    for text in wanted:
        need = Requirement(text)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue  # of an extra
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield Finding(need.name, "problem", f"not installed; needs {need.specifier}")
            continue
        fits = need.specifier.contains(version, prereleases=True)
        other = "" if fits else f", but tune is tested with {need.specifier}"
        yield Finding(need.name, "ok" if fits else "warning", f"{version}{other}")


# --- Places ---------------------------------------------------------------------------------------


def _cache(_: Path) -> Iterator[Finding]:
    streams.limit_bytes()
    yield _place("cache", streams.folder())


def _results(out: Path) -> Iterator[Finding]:
    yield _place("results", out.absolute())


def _temporary(_: Path) -> Iterator[Finding]:
    folder = tempfile.gettempdir()
    yield _place("temporary files", Path(folder))
    try:
        local_ray.place()
    except UserError as error:
        yield Finding("temporary files", "problem", str(error))


def _place(name: str, folder: Path) -> Finding:
    """Whether files can be written there, and how much."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return Finding(name, "problem", f"{folder}: cannot be written: {error.strerror}")
    free = shutil.disk_usage(there).free
    return Finding(name, _judged(free, DISK), f"{folder}: {size(free)} free")


def _shared_memory(_: Path) -> Iterator[Finding]:
    if SHARED_MEMORY.is_dir():
        free = shutil.disk_usage(SHARED_MEMORY).free
        state: State = "ok" if free >= OBJECT_STORE else "warning"
        yield Finding("shared memory", state, f"{SHARED_MEMORY}: {size(free)} free")
    else:
        yield Finding("shared memory", "warning", f"no {SHARED_MEMORY}: Ray takes the disk")


# --- Limits ---------------------------------------------------------------------------------------


def _limits(_: Path) -> Iterator[Finding]:
    files = _limit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if files is None else f"{files:,}"
    yield Finding("open files", "ok" if files is None else _judged(files, FILES), shown)
    largest = _limit(resource.RLIMIT_FSIZE)
    if largest is not None:
        state = _judged(largest, FILE_SIZE)
        yield Finding("size of a file", state, f"{size(largest)} (`ulimit -f`)")
    else:
        yield Finding("size of a file", "ok", "unlimited")
    if (space := _limit(resource.RLIMIT_AS)) is not None:
        said = f"{size(space)} (`ulimit -v`); Ray maps far more than it uses"
        yield Finding("address space", "warning", said)
    if (seconds := _limit(resource.RLIMIT_CPU)) is not None:
        said = f"{clock(seconds)} (`ulimit -t`), after which a process is killed"
        yield Finding("processor time", "warning", said)


def _limit(which: int) -> int | None:
    """The one in force; None if there is none."""
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _memory(_: Path) -> Iterator[Finding]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    limit = cgroup_memory(Path("/"))
    shown = f"{size(free)} available"
    if limit is not None:
        shown += f", {size(limit)} allowed by the control group"
    yield Finding("memory", _judged(min(free, limit or free), MEMORY), shown)
    yield Finding("CPUs", "ok", str(len(os.sched_getaffinity(0))))


def cgroup_memory(root: Path) -> int | None:
    """Bytes that the control group of this process allows, of either version; None if it has no
    limit. A container may see its group at the top, so all the way up is looked at."""
    found = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        elif not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            file = folder / name
            if file.is_file() and (text := file.read_text().strip()).isdecimal():
                found.append(int(text))
            if folder == top:
                break
    return min((limit for limit in found if limit < 1 << 60), default=None)


# --- Others ---------------------------------------------------------------------------------------


def _tools(_: Path) -> Iterator[Finding]:
    for name, purpose in TOOLS.items():
        path = shutil.which(name)
        yield Finding(name, "ok" if path else "warning", path or f"not found; it {purpose}")


def _real_memory(_: Path) -> Iterator[Finding]:
    """What is missing stops no study."""
    program = tierd.find()
    if program is None:
        yield Finding("tierd", "warning", "not found; it runs the policies on real memory")
        return
    try:
        version, told = tierd.version(program), tierd.probe(program)
    except UserError as error:
        yield Finding("tierd", "warning", str(error))
        return
    yield Finding("tierd", "ok", f"{program}: {version}")
    if works := [each.subject for each in told if each.works]:
        yield Finding("real memory", "ok", ", ".join(works))
    for each in told:
        if each.works is False or (each.works is None and each.cure):
            cure = f"; {each.cure}" if each.cure else ""
            yield Finding("real memory", "warning", f"{each.subject}: {each.found}{cure}")


def _containers(_: Path) -> Iterator[Finding]:
    from tuner.run.container import image_id
    from tuner.run.metric import Failed

    try:
        image_id(name := default_image())
        from tuner.run.contained import build_of

        build = build_of(Isolation(image=name))
    except (UserError, Failed) as error:
        yield Finding("containers", "warning", f"not for --runner container: {error}")
        return
    if build == engine.results_id():
        yield Finding("containers", "ok", f"image {name}: a container starts and answers")
    else:
        said = f"image {name} has engine build {build}, not {engine.results_id()}; `make image`"
        yield Finding("containers", "warning", f"not for --runner container: {said}")


def _ray(_: Path) -> Iterator[Finding]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address, timeout=2):
            yield Finding("Ray", "ok", "connections on the loopback interface are possible")
    for name, value in ENVIRONMENT.items():
        if (found := os.environ.get(name, value)) != value:
            said = f"{name} is {found}, not {value}: Ray may be open to others"
            yield Finding("Ray", "warning", said)


def _workload(name: str, recordings: Recordings) -> Iterator[Finding]:
    """Adds its `recordings`."""
    spec = catalog.workload(name).spec
    for input in spec.inputs.values():
        if input.trace is not None and input.content is not None:
            recordings[input.trace] = input.content
    said = plural(len(recordings), "recording") if recordings else "its streams are made anywhere"
    yield Finding("workload", "ok", f"{spec.name}: {said}")


def _cluster(address: str, recordings: Recordings) -> Iterator[Finding]:
    """A node whose engine is another, or that lacks a recording, fails trials, which others then
    run."""
    admission.check(address)
    nodes: list[tuple[str, float]] = []
    told: dict[int, tuple[dict[str, str] | None, str | None]] = {}
    late = ""
    try:
        words = address, json.dumps(recordings)
        for kind, content in asking.asked(remote.ask_cluster, *words, seconds=remote.SECONDS):
            if kind == "nodes":
                nodes = [(host, cpus) for host, cpus in content]
            else:
                told[content[0]] = content[1], content[2]
    except asking.Silent as error:
        if not nodes:
            raise UserError(f"{address}: {error}: this machine did not get in") from error
        late = f"; {error}"
    except UserError as error:
        raise UserError(f"{address}: {error}") from error
    findings = [
        _node(host, cpus, *told.get(number, (None, "no answer")))
        for number, (host, cpus) in enumerate(nodes)
    ]
    fit = sum(cpus for (_, cpus), found in zip(nodes, findings, strict=True) if found.state == "ok")
    cpus = sum(cpus for _, cpus in nodes)
    said = f"{address}: {plural(len(nodes), 'node')} with {cpus:g} CPUs"
    if not fit:
        said += ", none of which could run a trial"
    yield Finding("Ray cluster", "ok" if fit else "problem", said + late)
    yield from findings


def _node(host: str, cpus: float, facts: dict[str, str] | None, error: str | None) -> Finding:
    name = f"node {host}"
    if facts is None:
        return Finding(name, "warning", f"{cpus:g} CPUs; cannot run a trial: {error}")
    said = f"{cpus:g} CPUs, engine build {facts['build']}, Ray {facts['ray']}"
    said += f", Python {facts['python']}"
    if facts["build"] != engine.results_id():
        said += f", tune {facts['tune']}; this machine has engine build {engine.results_id()}, "
        said += f"tune {engine.version()}: trials fail there"
        return Finding(name, "warning", said)
    if facts["lacking"]:
        return Finding(name, "warning", f"{said}; {facts['lacking']}: trials fail there")
    for what, ours in (("Ray", metadata.version("ray")), ("Python", platform.python_version())):
        if facts[what.lower()] != ours:
            return Finding(name, "warning", f"{said}; this machine has {what} {ours}")
    return Finding(name, "ok", said)


def _tracking(uri: str) -> Iterator[Finding]:
    if path := store.database_of(uri):
        yield from _database(path, path.parent)
        return
    if place := remote.server_of(uri):
        asking.knock(*place)
    answers = False
    try:
        for kind, _ in asking.asked(remote.ask_mlflow, uri, seconds=remote.SECONDS):
            answers = answers or kind == "answers"
    except UserError as error:
        what = "answers, but cannot be written" if answers else "does not answer as it should"
        raise UserError(f"{uri} {what}: {error}{_login(str(error))}") from error
    yield Finding("MLflow", "ok", f"{uri}: answers, and a run with a file can be written")


def _login(error: str) -> str:
    """What to do about a login that is not taken."""
    refused = any(word in error for word in ("401", "403", "PERMISSION_DENIED", "UNAUTHENTICATED"))
    if not refused:
        return ""
    names = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    return f"; it takes the login of {names}"


def _store(out: Path) -> Iterator[Finding]:
    yield from _database(store.local(out), out)


def _database(path: Path, out: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("MLflow store", "ok", f"{path}: none yet; the first study makes it")
        return
    try:
        flaw = store.flaw(path, verify=False)
    except UserError as error:  # studies go on without it
        yield Finding("MLflow store", "warning", str(error))
        return
    if flaw:
        command = store.repair_command(store.uri_of(path), out)
        yield Finding("MLflow store", "warning", f"{flaw[0]}; `{command}` would {flaw[1]}")
    else:
        yield Finding("MLflow store", "ok", f"{path}: its schema is the installed MLflow's")


def _clocks(_: Path) -> Iterator[Finding]:
    behind = Path(__file__).stat().st_mtime - time.time()
    if behind > 0:
        said = f"before tune was installed ({clock(behind)} behind): logs get wrong times"
        yield Finding("clock", "warning", said)
    else:
        yield Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %z"))
    resolution = time.get_clock_info("monotonic").resolution
    state: State = "ok" if resolution <= 1e-3 else "warning"
    yield Finding("monotonic clock", state, f"in steps of {resolution * 1e9:g} ns")


CHECKS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "engine": _engine,
    "Python": _python,
    "libraries": _libraries,
    "cache": _cache,
    "results": _results,
    "temporary files": _temporary,
    "shared memory": _shared_memory,
    "limits": _limits,
    "memory": _memory,
    "tools": _tools,
    "real memory": _real_memory,
    "containers": _containers,
    "Ray": _ray,
    "MLflow store": _store,
    "clocks": _clocks,
}
"""By the name of the finding if one raises an error."""
