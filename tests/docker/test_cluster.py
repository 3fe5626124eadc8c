# SPDX-License-Identifier: MIT
"""The cluster of docker/compose.yaml: a study on it is the study that one machine would have made,
whatever happens to its parts."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tuner.run.isolation import default_image
from tuner.run.trial import Status
from tuner.study import log
from tuner.study.log import StudyData

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
DATABASE = "tiertune-database"

STUDY = [
    *("run", "--workload", "cachelib", "--input", "smoke", "--no-explain"),
    *("--workers", str(WORKERS)),
]
RUN = ["run", "--rm", "-T", "--no-deps"]
ON_CLUSTER = ["--ray-address", "head:6379", "--mlflow-uri", "http://mlflow:5000"]


def compose() -> list[str]:
    """Of either kind; empty if there is none."""
    if shutil.which("docker") is None:
        return []
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = ["docker", "compose"]
    return plugin if succeeds(*plugin, "version") else []


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def lacking() -> str | None:
    if not COMPOSE:
        return "neither docker compose nor docker-compose"
    if not succeeds("docker", "version"):
        return "no Docker Engine answers"
    if not succeeds("docker", "image", "inspect", DATABASE):
        return f"no image {DATABASE}: `make image` builds it"
    return None


LABEL = "com.docker.compose"
NUMBER = f"{LABEL}.container-number"
COMPOSE = compose()
pytestmark = pytest.mark.skipif(bool(reason := lacking()), reason=str(reason))


class Cluster:
    """A project of docker-compose on the file that ships."""

    def __init__(self, name: str, client: Any) -> None:
        self.name, self.client = name, client
        self.folder = Path(tempfile.mkdtemp(prefix="tt-"))
        self.secrets = self.folder / "secrets"
        subprocess.run([ROOT / "docker/secrets", self.secrets], check=True)
        self.environment = os.environ | {
            "TIERTUNE_IMAGE": default_image(),
            "TIERTUNE_SECRETS": str(self.secrets),
            "TIERTUNE_PROJECT": name,
            "MLFLOW_PORT": "0",  # any
        }
        self.words = [*COMPOSE, "--project-name", name, "--file", "docker/compose.yaml"]

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.words, *words],
            env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def driver(self, *words: str, volume: str | None = None) -> Driver:
        return Driver(self, words, volume)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.words, *words],
            env=self.environment, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def containers(self, **labels: str) -> list[Any]:
        """By Compose's labels: its versions name containers differently."""
        wanted = [
            f"{LABEL}.{name}={value}" for name, value in ({"project": self.name} | labels).items()
        ]
        found = self.client.containers.list(all=True, filters={"label": wanted})
        return sorted(found, key=lambda c: int(c.labels.get(NUMBER, 0)))

    def service(self, name: str) -> list[Any]:
        return self.containers(service=name, oneoff="False")

    @property
    def network(self) -> str:
        (worker, *_) = self.service("worker")
        (name,) = worker.attrs["NetworkSettings"]["Networks"]
        return str(name)

    def odd_worker(self, name: str, **changes: Any) -> None:
        """A worker with something about it, beside those of the file."""
        worker = self.service("worker")[0]
        config = worker.attrs["Config"]
        environment = dict(each.split("=", 1) for each in config["Env"])
        binds = {
            mount["Source"]: {"bind": mount["Destination"], "mode": "ro"}
            for mount in worker.attrs["Mounts"]
            if mount["Type"] == "bind"
        }
        self.client.containers.run(
            config["Image"],
            name=f"{self.name}_odd_{name}",
            entrypoint=config["Entrypoint"],
            command=config["Cmd"],
            environment=environment | changes.pop("environment", {}),
            network=self.network,
            labels={f"{LABEL}.project": self.name, f"{LABEL}.service": "odd"},
            init=True,
            volumes=binds | changes.pop("volumes", {}),
            shm_size=worker.attrs["HostConfig"]["ShmSize"],
            restart_policy={"Name": "always"},
            detach=True,
            **changes,
        )


class Driver:
    """`tune run` in a container, whose lines can be waited for."""

    def __init__(self, cluster: Cluster, words: Sequence[str], volume: str | None) -> None:
        self.name = f"{cluster.name}_drive_{secrets.token_hex(4)}"
        options = [*RUN, "--name", self.name, *(["--volume", volume] if volume else [])]
        self._process = cluster.start(*options, "driver", *words)
        self.said: list[str] = []

    def wait_for(self, text: str) -> None:
        for line in self._lines():
            if text in line:
                return
        raise AssertionError("".join(self.said))

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(line, end="")  # shown with a failure
            self.said.append(line)
            yield line

    def wait(self) -> int:
        for _ in self._lines():
            pass
        return self._process.wait()


@pytest.fixture(scope="module")
def cluster(engine_client: Any) -> Iterator[Cluster]:
    started = Cluster(f"tiertune-test-{os.getpid()}", engine_client)
    try:
        started("up", "--detach", "--no-build", "--scale", f"worker={WORKERS}")
        yield started
    finally:
        for odd in started.containers(service="odd") + started.containers(service="driver"):
            odd.remove(force=True)
        started("down", "--volumes", "--timeout", "1", check=False)
        shutil.rmtree(started.folder)


def test_nothing_listens_beyond_the_host_and_all_networks_but_one_are_closed(
    cluster: Cluster,
) -> None:
    every = cluster.containers()
    assert len(every) == 4 + WORKERS
    for each in every:
        networks = each.attrs["NetworkSettings"]["Networks"]
        ports = [
            p for found in each.attrs["NetworkSettings"]["Ports"].values() for p in found or ()
        ]
        assert each.attrs["HostConfig"]["CapDrop"] == ["ALL"]
        if each.labels[f"{LABEL}.service"] == "ui":
            assert {port["HostIp"] for port in ports} == {"127.0.0.1"}
            continue
        assert not ports
        for network in networks:
            assert cluster.client.networks.get(network).attrs["Internal"]


def test_no_container_shows_a_secret(cluster: Cluster) -> None:
    words = {path.name: path.read_text() for path in cluster.secrets.iterdir()}
    assert len(set(words.values())) == 5
    for each in cluster.containers():
        shown = json.dumps(each.attrs)
        assert not [name for name, word in words.items() if word in shown]
    (worker, *_) = cluster.service("worker")
    assert worker.exec_run(["ls", "/run/secrets"]).output.split() == [b"ray"]


def test_the_ui_is_reached_from_the_host_alone(cluster: Cluster) -> None:
    (ui,) = cluster.service("ui")
    ui.reload()
    (port,) = ui.attrs["NetworkSettings"]["Ports"]["5000/tcp"]
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port['HostPort']}/", timeout=10)
        except urllib.error.HTTPError as error:
            assert error.code == 401
            return
        except OSError:  # MLflow is not up yet
            assert time.monotonic() < until
            threading.Event().wait(0.5)


def test_without_the_secret_nobody_gets_in(cluster: Cluster) -> None:
    words = [*RUN, "-e", "RAY_AUTH_TOKEN=another", "driver", *STUDY]
    done = cluster(*words, "--budget", "1", *ON_CLUSTER, "--name", "refused", check=False)
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert "the Ray cluster at head:6379 does not take the token of RAY_AUTH_TOKEN" in said
    listed = cluster(*RUN, "--entrypoint", "ls", "driver", "results").stdout
    assert "refused" not in listed
    (mlflow,) = cluster.service("mlflow")
    ask = (
        "import urllib.request as r, threading\n"
        "for _ in range(600):\n"
        "    try: r.urlopen('http://mlflow:5000/')\n"
        "    except r.HTTPError as e: print(e.code); break\n"
        "    except OSError: threading.Event().wait(0.1)\n"
    )
    assert mlflow.exec_run(["python3", "-c", ask]).output.strip() == b"401"


def cut(cluster: Cluster, worker: Any, seconds: float) -> Callable[[], None]:
    """Takes a worker off the network for a while; returns what waits for its return."""
    network = cluster.client.networks.get(cluster.network)
    network.disconnect(worker)
    timer = threading.Timer(seconds, network.connect, [worker])
    timer.start()
    return timer.join


def fetch(cluster: Cluster, study: str, to: Path) -> StudyData:
    """The study out of the cluster's volume."""
    done = subprocess.run(
        [*cluster.words, *RUN, "--entrypoint", "tar", "driver", "-C", "results", "-c", study],
        env=cluster.environment, cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(to)
    return log.load(to / study)


def test_studies_that_are_copied_out_belong_to_who_copies(cluster: Cluster, tmp_path: Path) -> None:
    touch = "mkdir -p results/mine && touch results/mine/file && chmod 700 results"
    cluster(*RUN, "--entrypoint", "sh", "driver", "-c", touch)
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    subprocess.run([ROOT / "docker/fetch", out], env=cluster.environment, check=True)
    assert (out / "mine/file").exists()
    assert {path.stat().st_uid for path in [out, *out.rglob("*")]} == {os.getuid()}
    assert out.stat().st_mode & 0o777 == 0o755


def trials(data: StudyData) -> list[tuple[int, str, float | None]]:
    assert not data.damage
    return [(t.number, str(t.knobs), t.objective) for t in data.done]


def undisturbed(budget: int, out: Path) -> subprocess.Popen[bytes]:
    """The same study on this machine alone, which has begun."""
    words = [*STUDY, "--budget", str(budget), "--out", str(out), "--name", "study"]
    return subprocess.Popen([sys.executable, "-m", "tuner", *words], stderr=subprocess.DEVNULL)


def tracked(cluster: Cluster, study: str) -> list[str]:
    """Names of the study's trials that the MLflow server has."""
    ask = (
        "from mlflow import MlflowClient\n"
        "c = MlflowClient('http://localhost:5000')\n"
        "e = [c.get_experiment_by_name('tiertune-cachelib').experiment_id]\n"
        f"[p] = c.search_runs(e, 'attributes.run_name = \"{study}\"')\n"
        "trials = f'tags.`mlflow.parentRunId` = \"{p.info.run_id}\"'\n"
        "for run in c.search_runs(e, trials, max_results=1000): print(run.info.run_name)\n"
    )
    password = (cluster.secrets / "mlflow").read_text()
    login = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": password}
    (mlflow,) = cluster.service("mlflow")
    found = mlflow.exec_run(["python3", "-c", ask], environment=login, demux=True)
    assert found.exit_code == 0, found.output
    return sorted(found.output[0].decode().split("\n")[:-1])


def test_hosts_with_a_fault_of_their_own_cost_no_trial(cluster: Cluster, tmp_path: Path) -> None:
    """One has no room for a stream, the clock of another is ahead by an hour."""
    library = tmp_path / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", library, source], check=True)
    alone = undisturbed(12, tmp_path)
    cluster.odd_worker(
        "ahead",
        environment={"LD_PRELOAD": "/clock.so"},
        volumes={str(library): {"bind": "/clock.so", "mode": "ro"}},
    )
    cluster.odd_worker("full", tmpfs={"/home/tiertune/.cache": "size=4k,uid=10001"})
    spared = cluster.service("worker")[1:]
    for worker in spared:
        worker.stop(timeout=0)
    try:
        driver = cluster.driver(*STUDY, "--budget", "12", "--name", "odd", *ON_CLUSTER)
        assert driver.wait() == 0, driver.said
    finally:
        for odd in cluster.containers(service="odd"):
            odd.remove(force=True)
        for worker in spared:
            worker.start()
    found = fetch(cluster, "odd", tmp_path)
    assert alone.wait() == 0
    assert sorted(trials(found)) == sorted(trials(log.load(tmp_path / "study")))
    said = "".join(driver.said)
    assert "is full: 4.0 KiB free" in said and "started again" in said, said
    hosts = {trial.result.host for trial in found.done if trial.result}
    assert len(hosts) == 2, "one of the two that can has had no trial"


def test_two_drivers_share_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    alone = undisturbed(6, tmp_path)
    names = ("one", "other")
    drivers = [cluster.driver(*STUDY, "--budget", "6", "--name", n, *ON_CLUSTER) for n in names]
    assert [driver.wait() for driver in drivers] == [0, 0]
    assert alone.wait() == 0
    wanted = sorted(trials(log.load(tmp_path / "study")))
    assert [sorted(trials(fetch(cluster, name, tmp_path))) for name in names] == [wanted, wanted]


def test_a_fleet_is_the_same_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "small.yaml"
    plan.write_text("workloads: [gups:smoke, drift:smoke]\npolicies: [hybridtier]\nbudget: 12\n")
    options = ["--workers", str(WORKERS)]
    driver = cluster.driver(
        *("fleet", plan.name, *options, *ON_CLUSTER), volume=f"{plan}:/home/tiertune/{plan.name}:ro"
    )
    words = ["fleet", str(plan), *options, "--out", str(tmp_path / "alone")]
    alone = subprocess.run([sys.executable, "-m", "tuner", *words], check=False)
    assert driver.wait() == alone.returncode, driver.said
    studies = [path.parent.name for path in (tmp_path / "alone/small").glob(f"*/{log.HEADER}")]
    assert len(studies) == 2
    for study in studies:
        there = fetch(cluster, f"small/{study}", tmp_path / "there")
        assert sorted(trials(there)) == sorted(trials(log.load(tmp_path / "alone/small" / study)))


def test_the_doctor_asks_the_cluster(cluster: Cluster) -> None:
    done = cluster(*RUN, "driver", "doctor", "--json", *ON_CLUSTER, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    said = {each["name"]: (each["state"], each["found"]) for each in found["findings"]}
    nodes = f"head:6379: {WORKERS} nodes with {WORKERS} CPUs"
    assert said["Ray cluster"] == ("ok", nodes)
    assert [state for name, (state, _) in said.items() if name.startswith("node ")] == ["ok"] * 3
    assert said["MLflow"][0] == "ok"


def test_a_study_survives_the_faults_of_every_part(cluster: Cluster, tmp_path: Path) -> None:
    budget = 100
    alone = undisturbed(budget, tmp_path)
    words = [*STUDY, "--budget", str(budget), "--name", "faults", *ON_CLUSTER]
    first, second, slow = cluster.service("worker")
    (head,), (database,) = cluster.service("head"), cluster.service("database")
    slow.update(cpu_period=100_000, cpu_quota=50_000)
    driver = cluster.driver(*words)
    driver.wait_for("(5/100)")
    first.kill()
    driver.wait_for("(15/100)")
    back = cut(cluster, second, seconds=40)
    first.start()
    driver.wait_for("(30/100)")
    head.restart(timeout=0)
    driver.wait_for("(45/100)")
    database.stop(timeout=1)
    returned = threading.Timer(60, database.start)
    returned.start()
    driver.wait_for("(60/100)")
    cluster.client.containers.get(driver.name).kill()
    assert driver.wait() == 137
    returned.join()
    # Resumed elsewhere: with the study's folder, which is in another place now.
    elsewhere = tmp_path / "elsewhere"
    before = fetch(cluster, "faults", elsewhere)
    for path in [elsewhere, *elsewhere.rglob("*")]:
        os.chown(path, 10001, 10001)
    for above in tmp_path.parents[:2]:  # what is above them is everybody's
        above.chmod(0o755)
    there = f"{elsewhere}:/home/tiertune/elsewhere"
    again = cluster.driver(*words, "--out", "elsewhere", "--resume", volume=there)
    assert again.wait() == 0, again.said
    back()

    found = log.load(elsewhere / "faults")
    assert alone.wait() == 0
    assert {t.status for t in (trial.result for trial in found.done) if t} == {Status.success}
    assert sorted(number for number, *_ in trials(found)) == list(range(budget))
    assert sorted(trials(found)) == sorted(trials(log.load(tmp_path / "study")))
    assert trials(found)[: len(before.done)] == trials(before)
    assert tracked(cluster, "faults") == sorted(f"trial {number}" for number in range(budget))
