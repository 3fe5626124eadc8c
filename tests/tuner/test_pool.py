# SPDX-License-Identifier: MIT
"""Pools: every trial ends in exactly one result, whatever its process does."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import synthetic
from conftest import Hang, comm, descendants, python_path, started
from synthetic import accident, request, smooth

from tuner.errors import UserError
from tuner.run import streams
from tuner.run.gateway import ClusterPool
from tuner.run.local_ray import ENVIRONMENT, PREFIX, SUFFIX
from tuner.run.pool import Pool, PoolLost, Runner, hard_limit
from tuner.run.pools import open_pool
from tuner.run.process_pool import ProcessPool
from tuner.run.ray_pool import RayPool
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study.request import StudyRequest

EXPECTED = {
    0: Status.success,
    1: Status.failed,
    2: Status.crashed,
    3: Status.timeout,
    4: Status.failed,
    5: Status.timeout,
    6: Status.crashed,
    7: Status.success,
    8: Status.success,
}


HANGING = 3


def run_all(
    pool: Pool, study: StudyRequest, numbers: list[int], hang: Hang | None = None
) -> list[TrialResult]:
    """Runs the trials with every worker busy, and returns the results as they came."""
    results: list[TrialResult] = []
    waiting = list(numbers)
    running: set[int] = set()
    while waiting or running:
        while waiting and len(running) < pool.workers:
            number = waiting.pop(0)
            pool.submit(study.trial(number, {}))
            running.add(number)
        if hang and running == {HANGING}:  # alone: the deadlines of others are not to pass
            hang.outlast_deadline()
        done = pool.wait(0.5)
        running -= {result.number for result in done}
        results += done
    return results


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import the runner by name, as they import the real one from the installed package."""
    monkeypatch.setenv("PYTHONPATH", python_path(Path(__file__).parent))


@pytest.fixture(params=["process", pytest.param("ray", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, importable: None) -> Iterator[Callable[[Runner], Pool]]:
    pools: list[Pool] = []

    def open_it(runner: Runner) -> Pool:
        pools.append(
            ProcessPool(runner) if request.param == "process" else RayPool(runner, workers=2)
        )
        return pools[-1]

    yield open_it
    for pool in pools:
        pool.close()


def test_every_trial_ends_in_one_result(
    hang: Hang, make: Callable[[Runner], Pool], tmp_path: Path
) -> None:
    pool = make(accident)
    study = request(tmp_path, deadline_seconds=1.0)
    results = run_all(pool, study, list(EXPECTED), hang)
    assert sorted(r.number for r in results) == list(EXPECTED)
    assert {r.number: r.status for r in results} == EXPECTED
    by_number = {r.number: r for r in results}
    assert by_number[0] == synthetic.answer(study.trial(0, {}))
    assert by_number[1].error == "ValueError: no such operation"
    assert "died" in by_number[2].error or "SIGKILL" in by_number[2].error
    assert by_number[2].error.endswith(", twice")
    assert "killed" in by_number[3].error
    assert "not a positive number" in by_number[4].error
    assert by_number[5].error == "TimeoutError: deadline of 2 s passed"
    assert all(by_number[n].objective is None for n in (1, 2, 3, 4, 5, 6))
    assert all(r.study == study.study for r in results)


def test_a_trial_whose_process_died_is_repeated_on_a_stream_that_is_verified(
    make: Callable[[Runner], Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path))
    pool = make(synthetic.dies_until_verified)
    study = request(tmp_path)
    note = streams.path_of(study.trial(0, {}).stream).with_suffix(".json")
    note.write_text("{}")
    assert [r.status for r in run_all(pool, study, [0])] == [Status.success]
    assert not note.exists()


def test_wait_without_trials_returns_at_once(make: Callable[[Runner], Pool]) -> None:
    assert make(smooth).wait(3600) == []


def test_wait_gives_up_after_its_time(make: Callable[[Runner], Pool], tmp_path: Path) -> None:
    pool = make(accident)
    pool.submit(request(tmp_path).trial(3, {}))
    assert pool.wait(0.01) == []


def test_workers_are_no_nicer_than_the_study(
    make: Callable[[Runner], Pool], tmp_path: Path
) -> None:
    (result,) = run_all(make(niceness), request(tmp_path), [0])
    assert result.metrics["niceness"] == os.getpriority(os.PRIO_PROCESS, 0)


def niceness(trial: Trial) -> TrialResult:
    found = float(os.getpriority(os.PRIO_PROCESS, 0))
    return synthetic.answer(trial).model_copy(update={"metrics": {"niceness": found}})


def test_one_worker_without_cluster_needs_no_ray(tmp_path: Path) -> None:
    pool = open_pool(smooth, workers=1)
    try:
        assert isinstance(pool, ProcessPool)
        result = run_all(pool, request(tmp_path), [0])[0]
        assert result.status is Status.success
    finally:
        pool.close()


def test_worker_that_died_while_idle_costs_no_trial(tmp_path: Path) -> None:
    pool = ProcessPool(smooth)
    try:
        study = request(tmp_path)
        assert run_all(pool, study, [0])[0].status is Status.success
        pool._process.kill()
        pool._process.join()
        assert run_all(pool, study, [1])[0].status is Status.success
    finally:
        pool.close()


@pytest.mark.slow
def test_trial_of_a_lost_host_is_started_again(hang: Hang, tmp_path: Path) -> None:
    """A cluster whose one worker host vanishes in mid-trial; another joins."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        host = cluster.add_node(num_cpus=1)
        pool = open_pool(synthetic.second_time_lucky, workers=1, ray_address=cluster.address)
        try:
            pool.submit(request(tmp_path).trial(0, {}))
            hang.pipe.read_bytes()
            assert pool.wait(0.05) == []
            cluster.remove_node(host)
            cluster.add_node(num_cpus=1)
            results: list[TrialResult] = []
            while not results:
                results = pool.wait(1.0)
            assert [(r.number, r.status) for r in results] == [(0, Status.success)]
        finally:
            pool.close()
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_a_runner_may_ask_for_hosts_of_its_own(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    runner = synthetic.OnOwnHosts()
    try:
        with pytest.raises(UserError, match=r"no node .* has own: start Ray with `--resources '"):
            open_pool(runner, workers=2, ray_address=cluster.address)
        host = cluster.add_node(num_cpus=2, resources={"own": 1})
        pool = open_pool(runner, workers=2, ray_address=cluster.address)
        try:
            results = run_all(pool, request(tmp_path), [0, 1])
        finally:
            pool.close()
        assert [(r.status, r.host) for r in results] == [(Status.success, host.node_id)] * 2
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_a_cluster_that_is_gone_for_a_while_costs_no_trial(
    hang: Hang, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process that Ray would end is killed in mid-trial."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        head_node_args={"num_cpus": 1, "include_dashboard": False}, initialize_head=True
    )
    try:
        pool = ClusterPool(synthetic.second_time_lucky, workers=1, address=cluster.address)
        try:
            pool.submit(request(tmp_path).trial(0, {}))
            hang.pipe.read_bytes()
            pool._process.kill()
            assert pool.wait(0.0) == []
            results: list[TrialResult] = []
            while not results:
                results = pool.wait(1.0)
            assert [(r.number, r.status) for r in results] == [(0, Status.success)]
            told = [record.message for record in caplog.records if "cluster" in record.message]
            assert told == [
                f"the cluster at {cluster.address} is gone; "
                "what ran there starts again when it is back",
                f"the cluster at {cluster.address} is back",
            ]
        finally:
            pool.close()
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_a_cluster_that_stays_away_ends_the_study(hang: Hang, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        head_node_args={"num_cpus": 1, "include_dashboard": False}, initialize_head=True
    )
    pool = None
    try:
        pool = ClusterPool(accident, workers=1, address=cluster.address, patience=0.1)
        pool.submit(request(tmp_path).trial(3, {}))
        hang.pipe.read_bytes()
    finally:
        cluster.shutdown()
    with pytest.raises(PoolLost, match=r"has been gone for .*repeat the command to continue"):
        while True:
            assert pool.wait(1.0) == []
    pool.close()


JOIN = """
import os, sys
from conftest import comm, descendants
from tuner.run import cluster
def raylets(_=None):
    return [pid for pid in descendants(os.getpid()) if comm(pid) == "raylet"]
cluster.is_node = raylets  # the head's own does not count
node = cluster.Node(sys.argv[1])
print(raylets()[0], flush=True)  # others are its forks, until they are agents
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_node_ends_with_the_driver_that_was_killed() -> None:
    """Of a cluster that is not in this process, whose Ray may keep to the loopback address."""
    names = os.environ.keys() - ENVIRONMENT.keys()
    options: dict[str, Any] = {
        "env": {name: os.environ[name] for name in names} | {"PYTHONPATH": python_path(*sys.path)},
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
    }
    with started([sys.executable, "-c", HEAD], **options) as head:
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        with started([sys.executable, "-c", JOIN, address], **options) as driver:
            assert driver.stdout is not None
            raylet = os.pidfd_open(int(driver.stdout.readline()))
            driver.kill()
            assert select.select([raylet], [], [], 60)[0]
            os.close(raylet)
        head.communicate()


HEAD = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def fail(**_: Any) -> None:
        raise OSError("AF_UNIX path length cannot exceed 107 bytes: '/long'\nand more")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    said = r"exceed 107 bytes: '/long'; .* TMPDIR .*--workers 1"
    with pytest.raises(UserError, match=said) as told:
        RayPool(smooth, workers=2)
    assert "\n" not in str(told.value)


def test_close_ends_a_running_trial_and_its_children(hang: Hang, tmp_path: Path) -> None:
    pool = ProcessPool(parent_of_one_that_hangs)
    pool.submit(request(tmp_path).trial(0, {}))
    child = int(hang.pipe.read_text())
    end = os.pidfd_open(child)  # can be read once the process has ended
    try:
        pool.close()
        assert select.select([end], [], [], 30)[0]
        assert not alive(child)
    finally:
        os.close(end)


def parent_of_one_that_hangs(trial: Any) -> Any:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(os.environ["SYNTHETIC_HANGS"]).write_text(str(child.pid))
    child.wait()


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_local_ray_cannot_be_reached_from_outside(tmp_path: Path) -> None:
    """In a process of its own: where Ray binds is decided when it is imported."""
    (tmp_path / "home").mkdir()
    told = subprocess.run(
        [sys.executable, "-c", LISTENS, str(tmp_path)],
        env=os.environ | {"HOME": str(tmp_path / "home"), "PYTHONPATH": python_path(*sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    names = {name for name, _, _ in found["listening"]}
    assert {"raylet", "gcs_server"} <= names, names
    outside = [
        socket
        for socket in found["listening"]
        if not ip_address(socket[1].removeprefix("::ffff:")).is_loopback
    ]
    assert not outside
    assert found["mode"] == "token"
    assert not list((tmp_path / "home").iterdir()), "a token that others might read"


LISTENS = """
import json, os, sys
from pathlib import Path
from synthetic import request, smooth
from test_pool import listening, run_all
from tuner.run.ray_pool import RayPool

if __name__ == "__main__":
    pool = RayPool(smooth, workers=2)
    run_all(pool, request(Path(sys.argv[1])), [0, 1, 2])
    print(json.dumps({"listening": listening(), "mode": os.environ["RAY_AUTH_MODE"]}))
    pool.close()
"""


def listening() -> list[tuple[str, str, int]]:
    """Process, address and port of every TCP socket that this process, or one that it has started,
    listens on."""
    owners = {}
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                owners[str(descriptor.readlink())] = comm(pid)
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            (
                _,
                local,
                _,
                state,
                *_,
            ) = words = line.split()
            owner = owners.get(f"socket:[{words[9]}]")
            if owner is not None and state == LISTEN:
                address, port = local.split(":")
                words32 = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
                packed = struct.pack(f"={len(words32)}I", *words32)
                found.append((owner, socket.inet_ntop(family, packed), int(port, 16)))
    return found


LISTEN = "0A"


def killed_with(driver: subprocess.Popen[Any]) -> int:
    """Kills it, and sees that its descendants end as well; returns how many those were."""
    ends = [os.pidfd_open(pid) for pid in descendants(driver.pid)]
    driver.kill()
    driver.wait()
    for end in ends:
        assert select.select([end], [], [], 30)[0]
        os.close(end)
    return len(ends)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_process_outlives_a_driver_that_was_killed(hang: Hang, workers: int) -> None:
    words = [sys.executable, "-c", DRIVES, str(hang.pipe.parent), str(workers)]
    env = os.environ | {"PYTHONPATH": python_path(*sys.path)}
    with started(words, env=env) as driver:
        hang.pipe.read_bytes()
        assert killed_with(driver) >= workers
    if workers > 1:
        assert ray_folders()
        RayPool(smooth, workers=2).close()
    assert not ray_folders()


def ray_folders() -> set[Path]:
    return set(Path(os.environ["TMPDIR"]).glob(f"{PREFIX}*{SUFFIX}"))


DRIVES = """
import sys
from pathlib import Path
from synthetic import accident, request
from tuner.run.pools import open_pool

if __name__ == "__main__":
    pool = open_pool(accident, workers=int(sys.argv[2]))
    pool.submit(request(Path(sys.argv[1])).trial(3, {}))
    while True:
        pool.wait(60)
"""


@pytest.mark.slow
def test_no_process_outlives_a_driver_that_was_killed_while_ray_starts(tmp_path: Path) -> None:
    words = [sys.executable, "-c", DRIVES, str(tmp_path), "2"]
    env = os.environ | {"PYTHONPATH": python_path(*sys.path)}
    with started(words, env=env) as driver:
        end = os.pidfd_open(driver.pid)
        agents: list[int] = []
        while len(agents) < AGENTS:  # Ray goes on when they tell their ports
            assert not select.select([end], [], [], 0.01)[0]
            agents = [
                agent
                for server in descendants(driver.pid)
                if comm(server) == "raylet"
                for agent in descendants(server)
            ]
        killed_with(driver)
        os.close(end)
    assert len(ray_folders()) == 1
    RayPool(smooth, workers=2).close()
    assert not ray_folders()


AGENTS = 2
"""That a raylet starts."""


def test_hard_limit_leaves_room_for_the_runners_own_deadline(tmp_path: Path) -> None:
    study = request(tmp_path, deadline_seconds=60.0)
    assert hard_limit(study.trial(0, {})) > 60.0
    assert hard_limit(request(tmp_path).trial(0, {})) == float("inf")
