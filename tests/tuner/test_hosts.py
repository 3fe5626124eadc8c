# SPDX-License-Identifier: MIT
"""Studies on several hosts: whether a cluster lets this machine in, what is said when it does not,
and the commands of docs/hosts.md on two network namespaces that act as hosts."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from synthetic import request

from tuner.errors import UserError
from tuner.experiment.studies import OpenStudy
from tuner.report import remote
from tuner.run import admission, asking, cluster, local_ray, ray_pool
from tuner.run.cluster import Watch
from tuner.run.pool import SILENT_SECONDS

# --- Admission ------------------------------------------------------------------------------------


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address at which somebody listens, and a home without a token."""
    admission.check.cache_clear()
    for name in (cluster.MODE, cluster.TOKEN, cluster.TOKEN_PATH, admission.MATCH_LEVEL):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    admission.check.cache_clear()


def answers(monkeypatch: pytest.MonkeyPatch, *words: Any) -> list[str]:
    """Stands in for the process that asks the head; who was asked."""
    told = []

    def asked(ask: Any, address: str, *, seconds: float) -> Iterator[Any]:
        told.append(address)
        for word in words:
            if isinstance(word, Exception):
                raise word
            yield word

    monkeypatch.setattr(admission, "asked", asked)
    return told


def versions(**changes: str) -> tuple[str, dict[str, str]]:
    same = {"ray_version": metadata.version("ray"), "python_version": platform.python_version()}
    return "cluster", same | changes


def keep_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = "secret") -> Path:
    token = tmp_path / ".ray/auth_token"
    token.parent.mkdir()
    token.write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    return token


def test_a_cluster_that_lets_us_in_is_asked_once(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = answers(monkeypatch, versions())
    admission.check(head)
    admission.check(head)
    admission.check("auto")
    assert told == [head]


@pytest.mark.parametrize("told", [[("cluster", {})], []], ids=["empty", "another Ray"])
def test_what_a_head_does_not_say_is_for_ray_to_judge(
    head: str, monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    answers(monkeypatch, *told)
    admission.check(head)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (("refused", None), "asks for a token, and there is none here; copy that of the cluster's"),
        (versions(python_version="3.11.99"), "has Python 3.11.99, and this machine 3."),
        (versions(ray_version="2.1.0"), "has Ray 2.1.0, and this machine 2."),
        (asking.Silent("not done within 9 s"), "no Ray cluster answers at .*: not done within 9 s"),
    ],
)
def test_what_keeps_us_out_is_named(
    head: str, monkeypatch: pytest.MonkeyPatch, word: Any, said: str
) -> None:
    answers(monkeypatch, word)
    with pytest.raises(UserError, match=said):
        admission.check(head)


def test_another_patch_level_may_be_allowed(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(admission.MATCH_LEVEL, "minor")
    major, minor, _ = platform.python_version_tuple()
    answers(monkeypatch, versions(python_version=f"{major}.{minor}.99"))
    admission.check(head)


def test_a_wrong_token_is_named_with_its_place(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, ("refused", None))
    token = keep_token(tmp_path, monkeypatch)
    with pytest.raises(UserError, match=f"does not take the token of {token}; it must be"):
        admission.check(head)
    monkeypatch.setenv(cluster.TOKEN, "another")
    with pytest.raises(UserError, match="does not take the token of RAY_AUTH_TOKEN; it must be"):
        admission.check(head)
    monkeypatch.setenv(cluster.MODE, "disabled")
    with pytest.raises(UserError, match="asks for a token, but RAY_AUTH_MODE is disabled"):
        admission.check(head)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (None, "neither RAY_AUTH_TOKEN_PATH nor ~/.ray/auth_token; copy the token"),
        ("empty", "empty is empty"),
        ("none", "none: "),
    ],
)
def test_ray_is_not_asked_without_the_token_that_it_would_miss(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None, said: str
) -> None:
    """It would end its process."""
    (tmp_path / "empty").write_text("\n")
    told = answers(monkeypatch, versions())
    monkeypatch.setenv(cluster.MODE, "token")
    if path is not None:
        monkeypatch.setenv(cluster.TOKEN_PATH, str(tmp_path / path))
    with pytest.raises(UserError, match=f"no token for the Ray cluster at {head}: .*{said}"):
        admission.check(head)
    assert told == []


def test_a_token_that_is_there_is_shown(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (cluster.MODE, *local_ray.DEFAULTS):
        monkeypatch.setenv(name, "")  # restored at the end
        monkeypatch.delenv(name)
    cluster.prepare_environment()
    assert cluster.MODE not in os.environ
    keep_token(tmp_path, monkeypatch)
    cluster.prepare_environment()
    assert os.environ[cluster.MODE] == "token"


def test_a_study_that_no_cluster_runs_is_not_begun(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, ("refused", None))
    wanted = request(tmp_path).model_copy(update={"ray_address": head})
    with pytest.raises(UserError, match="asks for a token"):
        OpenStudy(wanted)
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_is_just_starting_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, knocks, opens = 0.0, 0, 3.0

    def knock(host: str, port: int) -> None:
        nonlocal knocks
        knocks += 1
        if now < opens:
            raise UserError(f"nobody listens at {host}:{port}")

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(admission, "knock", knock)
    admission._wait_for("head", 6379, admission.STARTING_SECONDS, pause)
    assert now == opens
    told = capsys.readouterr().err.splitlines()
    assert told == ["waiting for the Ray cluster: nobody listens at head:6379"]
    now, knocks, opens = 0.0, 0, 1000.0
    with pytest.raises(UserError, match="nobody listens"):
        admission._wait_for("head", 6379, admission.STARTING_SECONDS, pause)
    assert now >= admission.STARTING_SECONDS
    now, knocks = 0.0, 0
    with pytest.raises(UserError, match="nobody listens"):
        admission._wait_for("head", 6379, 0.0, pause)  # `tune doctor` asks how it is
    assert knocks == 1 and now == 0.0


# --- Hosts that do not answer ---------------------------------------------------------------------


def test_a_host_that_falls_silent_is_named_once() -> None:
    def node(name: str, port: int, cpus: float = 1) -> dict[str, Any]:
        place = {"NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port}
        return place | {"NodeID": name, "NodeManagerHostname": name, "Resources": {"CPU": cpus}}

    watch = Watch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        there, driver = node("a", port), node("driver", 1, cpus=0)
        assert watch.look([there, driver]) == []
    assert watch.look([there, driver]) == ["a"]
    assert watch.look([there, driver]) == []
    with socket.create_server(("127.0.0.1", port)):
        assert watch.look([there]) == []
    assert watch.look([there]) == ["a"]


def test_a_study_is_told_when_nothing_comes_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(ray_pool, "time", SimpleNamespace(monotonic=lambda: now))
    pool = object.__new__(ray_pool.RayPool)  # without Ray
    pool._address, pool._look = "head:6379", now + SILENT_SECONDS
    monkeypatch.setattr(pool, "_nodes", list, raising=False)
    pool._watch = SimpleNamespace(look=lambda nodes: ["b"])  # type: ignore[assignment]

    def said(heard: bool, after: float) -> int:
        nonlocal now
        now += after
        caplog.clear()
        pool._tell_silent(heard)
        return len([line for line in caplog.messages if "host b does not answer" in line])

    assert said(False, SILENT_SECONDS - 1) == 0
    assert said(True, 0.5) == 0  # a result: the time begins anew
    assert said(False, SILENT_SECONDS - 1) == 0
    assert said(False, 1) == 1
    assert said(False, 1) == 0
    pool._address = None  # of a local Ray there is no other host
    assert said(False, 2 * SILENT_SECONDS) == 0


# --- Recordings -----------------------------------------------------------------------------------

ACCESSES = "time,address,kind\n" + "".join(
    f"{n},{0x7F0000000000 + n % 500 * 4096:#x},load\n" for n in range(2000)
)


@pytest.fixture
def recording(run: Any, tmp_path: Path) -> Path:
    (tmp_path / "mine.csv").write_text(ACCESSES)
    words = ("--format", "csv", str(tmp_path / "mine.csv"), "-o", str(tmp_path / "mine.tts"))
    assert run("import", *words).code == 0
    return tmp_path / "mine.yaml"


def test_a_recording_is_looked_for_on_every_node(
    run: Any, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(_: Any, address: str, recordings: str, *, seconds: float) -> Iterator[Any]:
        asked.append(recordings)
        yield "nodes", []

    monkeypatch.setattr(asking, "asked", ask)
    words = ("doctor", "--json", "--ray-address", "auto", "--workload", str(recording))
    said = {each["name"]: each["found"] for each in run(*words).json["findings"]}
    assert said["workload"] == "mine: 1 recording"
    ((path, identity),) = json.loads(asked[0]).items()
    assert path == str(recording.with_suffix(".tts"))
    assert remote._lacking(path, identity) == ""
    assert remote._lacking(path, "another") == f"{path} is another recording than here"
    Path(path).write_bytes(b"cut short")
    assert path in remote._lacking(path, identity)
    Path(path).unlink()
    assert remote._lacking(path, identity) == f"no recording {path}"


# --- Two hosts ------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/hosts.md").read_text()
HEAD, OTHER = "10.0.0.1", "10.0.0.2"

BEGIN = """\
set -eu
mount --make-rprivate /
for place in "$@"; do mkdir -p /mnt/keep"$place"; mount --bind "$place" /mnt/keep"$place"; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
for place in "$@"; do mkdir -p "$place"; mount --bind /mnt/keep"$place" "$place"; done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir /tmp/home
hostname "$0"
ip link set lo up
echo ready
exec cat
"""
"""/tmp and what is in it are the host's own; the checkout and its Python stay where they are."""

UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]


def lacking() -> str:
    if os.geteuid():
        return "only root makes network namespaces"
    if missing := [name for name in ("unshare", "nsenter", "ip") if not shutil.which(name)]:
        return f"no {missing[0]}"
    done = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "t", "/mnt"], capture_output=True)
    return "" if done.returncode == 0 else f"no namespaces here: {done.stderr.decode().strip()}"


class Host:
    """Processes with a network, a home, a /tmp and a name of their own. All end with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        keep = dict.fromkeys([str(ROOT), sys.prefix])
        self._process = subprocess.Popen(
            [*UNSHARE, "--kill-child", "sh", "-c", BEGIN, name, *keep],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        pid = self._process.pid
        self.pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def start(self, command: str, **environment: str) -> subprocess.Popen[str]:
        path = f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        given = {"HOME": "/tmp/home", "PATH": path, "DOCKER_HOST": "unix:///none"} | environment
        variables = [f"{name}={value}" for name, value in given.items()]
        words = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--ipc", "--pid"]
        words += ["env", "-i", "--chdir=/tmp/home", *variables, "sh", "-c", command]
        return subprocess.Popen(
            words, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __call__(self, command: str, code: int = 0, **environment: str) -> str:
        process = self.start(command, **environment)
        said, _ = process.communicate()
        assert process.returncode == code, said
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def of_page(begin: str) -> str:
    """The one command of the page that begins so."""
    (found,) = re.findall(rf"^{re.escape(begin)}.*$", PAGE, re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    """The head and another, as docs/hosts.md makes them; each has one CPU for trials."""
    if reason := lacking():
        pytest.skip(reason)
    head = other = None
    try:
        head, other = Host("a"), Host("b")
        link = f"ip link add eth0 netns {head.pid} type veth peer name eth0 netns {other.pid}"
        subprocess.run(link.split(), check=True)
        for host, address in ((head, HEAD), (other, OTHER)):
            host(f"ip addr add {address}/24 dev eth0 && ip link set eth0 up")
        head(of_page("(umask 077 && ray get-auth-token"))
        head(of_page("RAY_AUTH_MODE=token ray start --head") + " --num-cpus=1")
        token = head("cat .ray/auth_token")
        other(f"mkdir -p -m 700 .ray && umask 077 && printf %s {token} >.ray/auth_token")
        other(of_page("RAY_AUTH_MODE=token ray start --address") + " --num-cpus=1")
        yield head, other
    finally:
        for made in (head, other):
            if made is not None:
                made.close()


STUDY = of_page("tune run --workload cachelib").replace(
    "cachelib --budget 100 --workers 4",
    "gups --input smoke --budget 6 --workers 2 --no-explain --rivals none",
)


@pytest.mark.slow
def test_a_newcomer_gets_a_study_on_two_hosts(hosts: tuple[Host, Host]) -> None:
    head, other = hosts
    listening = head("ss -Htln | awk '{print $4}' | grep -v 127.0.0.1")
    ports = {int(line.rpartition(":")[2]) for line in listening.split() if "*" in line}
    assert ports == {6379, 6380, 6381}, listening
    head(f"printf '{ACCESSES}' >mine.csv && tune import --format csv mine.csv -o mine.tts")
    asks = of_page("tune doctor --ray-address 10.0.0.1:6379 --workload")
    findings = json.loads(head(f"{asks} --json 2>/dev/null"))["findings"]
    said = {each["name"]: each for each in findings}
    assert said["Ray cluster"]["found"] == "10.0.0.1:6379: 2 nodes with 2 CPUs"
    assert said["node a"]["state"] == "ok"
    assert "; no recording /tmp/home/mine.tts: trials fail there" in said["node b"]["found"]
    assert "(6/6)" in head(f"{STUDY} --name two")
    told = re.findall(r'"host":"(\w+)"', head("cat results/two/trials.jsonl"))
    assert set(told) == {"a", "b"}
    # Each host makes its streams by itself.
    assert other("ls .cache/tiertune/*.tts").count(".tts") == 1


@pytest.mark.slow
def test_a_host_that_is_not_let_in_is_told_why(hosts: tuple[Host, Host]) -> None:
    _, other = hosts
    nothing = "test ! -e results"
    wrong = {"HOME": "/tmp/without", "TIERTUNE_CACHE": "/tmp/home/.cache/tiertune"}
    assert "asks for a token, and there is none here" in other(STUDY, 2, **wrong)
    said = other(STUDY, 2, RAY_AUTH_TOKEN="f" * 64)
    assert "does not take the token of RAY_AUTH_TOKEN" in said
    assert "no token for the Ray cluster" in other(STUDY, 2, **wrong, RAY_AUTH_MODE="token")
    said = other(STUDY.replace("6379", "6399"), 2)
    assert "nobody listens at 10.0.0.1:6399 (Connection refused)" in said
    other(nothing)


@pytest.mark.slow
@pytest.mark.long
def test_a_host_that_is_cut_off_is_named(hosts: tuple[Host, Host]) -> None:
    """Last: Ray gives it up."""
    head, _ = hosts
    command = STUDY.replace("--budget 6", "--budget 200")
    study = head.start(f"exec {command} --name cut")
    assert study.stdout is not None
    said = []
    for line in study.stdout:
        said.append(line)
        if "(2/200)" in line:
            head(f"ip route add unreachable {OTHER}")
        if "host b does not answer" in line:
            break
    else:
        pytest.fail("".join(said))
    asks = head.start("tune doctor --json --ray-address 10.0.0.1:6379 2>/dev/null")
    found = json.loads(asks.communicate()[0])["findings"]
    (node,) = (each for each in found if each["name"] == "node b")
    assert "nobody listens at 10.0.0.2:6380" in node["found"]
    assert "a firewall may close the ports" in node["found"]
    study.kill()  # what it has started goes with its host
    study.wait()
    study.stdout.close()
