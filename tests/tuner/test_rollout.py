# SPDX-License-Identifier: MIT
"""`tune apply` for many servers: manifests of Kubernetes and a role of Ansible, read and run."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from conftest import ROOT
from test_best import BEST
from test_production import best, held, machine, planned, put

from tuner import engine
from tuner.apply.ansible import ROLE
from tuner.study import best as best_file

KUBERNETES = ("1.29", "1.31", "1.34")
HOSTILE = 'it\'s "q"\n---\n: {{ 7 * 7 }} {% if %} $(id) `id` #'
PLAY = "tiertune.yml"
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[[str], Path]:
    """A best.yaml whose names hold what YAML, Jinja and shells would take for their own."""

    def write(policy: str) -> Path:
        path = tmp_path / "best.yaml"
        scenario = replace(BEST.scenario, workload=f"/x/{HOSTILE}.yaml", policy=policy)
        made = BEST.provenance.model_copy(update={"study": HOSTILE})
        knobs = engine.resolve(policy, {})
        best_file.write(
            BEST.model_copy(update={"scenario": scenario, "knobs": knobs, "provenance": made}), path
        )
        return path

    return write


# --- Kubernetes -----------------------------------------------------------------------------------


@pytest.fixture
def manifest(run: Any, tmp_path: Path) -> Callable[[Path, str], Path]:
    def write(path: Path, pods: str = "app=redis") -> Path:
        words = ["--for", "kubernetes", "--pods", pods, "-o", str(tmp_path / "k8s"), "--json"]
        done = run("apply", str(path), *words)
        assert done.code == 0, done.err
        (file,) = done.json["files"]
        return Path(file)

    return write


def documents(file: Path) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(file.read_text())}


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("policy", ["freqtier", "hybridtier"])
def test_kubernetes_takes_every_document(
    manifest: Any, tmp_path: Path, policy: str, version: str
) -> None:
    found = documents(manifest(best(tmp_path, policy)))
    assert set(found) == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "DaemonSet"}
    for document in found.values():
        kubernetes_validate.validate(document, version, strict=True)
    found["DaemonSet"]["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found["DaemonSet"], version, strict=True)


def test_the_parts_of_a_manifest_go_together(manifest: Any, tmp_path: Path) -> None:
    path = best(tmp_path, "freqtier")
    found = documents(manifest(path, "app=redis,team/x=1"))
    names = {each["metadata"]["name"] for each in found.values()}
    assert names == {"tierd-freqtier"}
    pod = found["DaemonSet"]["spec"]["template"]
    labels = found["DaemonSet"]["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
    data = found["ConfigMap"]["data"]
    assert data["best.yaml"] == path.read_text()
    assert data["tierd_pods.py"] == (ROOT / "docker/kubernetes/tierd_pods.py").read_text()
    assert [Path(word).name for word in container["command"][2:]] == ["tierd_pods.py", "best.yaml"]
    (pods,) = (each["value"] for each in container["env"] if each["name"] == "PODS")
    assert pods == "app=redis,team/x=1"
    assert found["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]


def test_another_configuration_starts_the_pods_anew(manifest: Any, tmp_path: Path) -> None:
    def note(policy: str, **scenario: Any) -> str:
        file = manifest(best(tmp_path, policy, **scenario))
        pod = documents(file)["DaemonSet"]["spec"]["template"]
        file.unlink()
        return str(pod["metadata"]["annotations"]["tiertune/content"])

    assert note("freqtier") == note("freqtier") != note("freqtier", ratio="1:4")


def test_names_stay_text_in_a_manifest(manifest: Any, hostile: Any) -> None:
    path = hostile("freqtier")
    found = documents(manifest(path))
    assert set(found) == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "DaemonSet"}
    assert found["ConfigMap"]["data"]["best.yaml"] == path.read_text()


@pytest.mark.parametrize(
    "pods", ["", "app", "app=a b", "app=a,", "app=a,,b=c", "a=b;id", "=x", "app=" + "x" * 64, "a='"]
)
def test_labels_that_kubernetes_would_refuse(run: Any, tmp_path: Path, pods: str) -> None:
    path = str(best(tmp_path, "freqtier"))
    done = run("apply", path, "--for", "kubernetes", "--pods", pods, "--dry-run")
    assert done.code == 2
    assert "--pods: found" in done.err and "must be labels such as app=redis" in done.err


@pytest.mark.parametrize(
    ("policy", "words", "message"),
    [
        ("freqtier", ["--for", "kubernetes"], "which pods? --pods app=NAME"),
        ("freqtier", ["--for", "tierd", "--pods", "a=b"], "--pods: belongs to --for kubernetes"),
        ("nbt", ["--for", "kubernetes", "--pods", "a=b"], "nbt does not run there; it fits linux"),
        (
            "freqtier",
            ["--for", "kubernetes", "--pods", "a=b", "--undo"],
            "--undo: --for kubernetes",
        ),
        ("nbt", ["--for", "ansible", "--script"], "--script: --for ansible has no script"),
        (
            "nbt",
            ["--for", "ansible", "--fast", "0", "--slow", "1"],
            "by the kernel's own memory",
        ),
        ("nomad", ["--for", "ansible"], "no other target fits"),
    ],
)
def test_what_does_not_fit_is_said(
    run: Any, tmp_path: Path, policy: str, words: list[str], message: str
) -> None:
    done = run("apply", str(best(tmp_path, policy)), *words)
    assert (done.code, message in done.err) == (2, True), done.err


# --- The program in the DaemonSet -----------------------------------------------------------------


@pytest.fixture(scope="module")
def agent() -> Any:
    spec = importlib.util.spec_from_file_location(
        "tierd_pods", ROOT / "docker/kubernetes/tierd_pods.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_asks_for_the_pods_of_its_node(
    agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("namespace", "shop\n"), ("token", "secret\n"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    asked = []

    def answer(request: Any, **_: Any) -> io.BytesIO:
        asked.append(request)
        items = [
            {"metadata": {"uid": uid, "name": f"redis-{uid}", "creationTimestamp": when}}
            for uid, when in (("b", "2026-02-01"), ("a", "2026-03-01"), ("c", "2026-01-01"))
        ]
        return io.BytesIO(json.dumps({"items": items}).encode())

    monkeypatch.setattr(agent.urllib.request, "urlopen", answer)
    monkeypatch.setattr(agent.ssl, "create_default_context", lambda cafile: cafile)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = agent.ask("app=redis,x=y z", "node-1", tmp_path)
    assert list(found.items()) == [("c", "redis-c"), ("b", "redis-b"), ("a", "redis-a")]
    (request,) = asked
    assert request.full_url == (
        "https://[fd00::1]:443/api/v1/namespaces/shop/pods?labelSelector=app%3Dredis%2Cx%3Dy+z&"
        "fieldSelector=spec.nodeName%3Dnode-1%2Cstatus.phase%3DRunning"
    )
    assert request.get_header("Authorization") == "Bearer secret"


@pytest.mark.parametrize(
    "folder",
    [
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2_3.slice",
        "kubepods.slice/kubepods-pod1_2_3.slice",
        "kubepods/besteffort/pod1-2-3",
        "kubelet/kubepods/pod1-2-3",
    ],
)
def test_it_finds_the_cgroup_of_a_pod(agent: Any, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder / "container").mkdir(parents=True)
    (tmp_path / "system.slice/pod1-2-3").mkdir(parents=True)
    assert agent.cgroup("1-2-3", tmp_path) == tmp_path / folder
    assert agent.cgroup("1-2", tmp_path) is None


FAKE = """\
#!/bin/sh
echo "$*" > "$SAYS"
exec cat "$HOLDS"
"""


def test_it_keeps_a_tierd_beside_each_pod(
    agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SAYS", "HOLDS"):
        os.mkfifo(tmp_path / name)
        monkeypatch.setenv(name, str(tmp_path / name))
    tierd = tmp_path / "tierd"
    tierd.write_text(FAKE)
    tierd.chmod(0o755)
    for uid in ("a", "b"):
        (tmp_path / f"cgroup/kubepods/pod{uid}").mkdir(parents=True)
    pods = {"a": "redis-0", "b": "redis-1", "c": "redis-2"}
    engines = agent.Engines([str(tierd)], "best.yaml", ["--fast-limit", "16G"])
    try:
        engines.follow({"a": "redis-0"}, tmp_path / "cgroup")
        started = (tmp_path / "SAYS").read_text().split()
        assert started == [
            *("attach", "--cgroup", str(tmp_path / "cgroup/kubepods/poda")),
            *("--config", "best.yaml", "--fast-limit", "16G"),
        ]
        engines.follow(pods, tmp_path / "cgroup")
        assert "podb" in (tmp_path / "SAYS").read_text()
        engines.follow(pods, tmp_path / "cgroup")  # nothing more is to be done
        assert set(engines.running) == {"a", "b"}
        assert capsys.readouterr().out.count("pod redis-2: no cgroup of it") == 1
        engines.running["a"].kill()
        engines.running["a"].wait()
        engines.follow({"b": "redis-1"}, tmp_path / "cgroup")
        assert set(engines.running) == {"b"}
        assert "the tierd of a has ended with -9" in capsys.readouterr().out
    finally:
        processes = list(engines.running.values())
        engines.stop()
    assert all(process.returncode is not None for process in processes)


def test_pods_of_a_node_do_not_get_the_fast_tier_twice(
    agent: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for uid in ("a", "b"):
        (tmp_path / f"kubepods/pod{uid}").mkdir(parents=True)
    engines = agent.Engines(["true"], "best.yaml", [])
    engines.follow({"a": "redis-0", "b": "redis-1"}, tmp_path)
    engines.stop()
    assert "pod redis-1: left alone; several pods of a node need --fast-limit" in (
        capsys.readouterr().out
    )


# --- Ansible --------------------------------------------------------------------------------------


class Role:
    """A role for a policy, and copies of a server's files that it runs on."""

    def __init__(self, run: Any, folder: Path, path: Path, policy: str) -> None:
        self.folder, self.root, self._run = folder / "ansible", folder / "root", run
        self.write(path)
        put(self.root, "/proc/sys/kernel/osrelease", "6.16.3-1-amd64")
        put(self.root, "/proc/sys/kernel/numa_balancing", "1")
        for below in ("usr/local/bin", "etc/systemd/system"):
            (self.root / below).mkdir(parents=True)
        if policy == "nbt":
            machine(self.root, planned(policy))

    def write(self, path: Path) -> None:
        done = self._run(
            "apply", str(path), "--for", "ansible", "-o", str(self.folder), "--force", "--json"
        )
        assert done.code == 0, done.err
        binary = self.folder / ROLE / "files/tierd"
        binary.write_text("#!/bin/sh\n")

    def __call__(self, *words: str, **variables: str) -> str:
        """What the play says."""
        code, told = self._play(words, variables)
        assert code == 0, told
        return told

    def refused(self, *words: str, **variables: str) -> str:
        """What a play says that fails."""
        code, told = self._play(words, variables)
        assert code != 0, told
        return told

    def _play(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        given = {
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
            "tiertune_root": str(self.root),
            **variables,
        }
        done = subprocess.run(
            [PLAYBOOK, *("-i", "localhost,", "-c", "local"), *words, "-e", json.dumps(given), PLAY],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def changed(told: str) -> int:
    return int(told.rpartition("changed=")[2].split()[0])


@pytest.mark.parametrize("policy", ["freqtier", "nbt", "hmsdk"])
def test_ansible_reads_the_role(run: Any, tmp_path: Path, policy: str, hostile: Any) -> None:
    role = Role(run, tmp_path, hostile(policy), policy)
    assert "playbook: tiertune.yml" in role("--syntax-check")
    tasks = role.folder / ROLE / "tasks/main.yml"
    tasks.write_text(tasks.read_text().replace("ansible.builtin.assert", "ansible.builtin.claim"))
    role.refused("--syntax-check")


@pytest.mark.parametrize("policy", ["freqtier", "nbt"])
def test_every_file_of_a_role_is_plain_yaml(run: Any, tmp_path: Path, policy: str) -> None:
    role = Role(run, tmp_path, best(tmp_path, policy), policy)
    files = sorted(role.folder.rglob("*.yml"))
    assert len(files) == (7 if policy == "freqtier" else 6)
    variables: set[str] = set()
    for file in files:
        found = yaml.safe_load(file.read_text())
        if file.parent.name in ("defaults", "vars"):
            variables |= set(found)
    assert all(name.startswith("tiertune_") for name in variables)
    text = "".join(file.read_text() for file in files)
    assert all(text.count(name) > 1 for name in variables), "a variable that nothing uses"


@pytest.mark.slow
def test_the_role_applies_once_and_undoes(run: Any, tmp_path: Path, hostile: Any) -> None:
    """Of a service, on copies of a server's files."""
    path = hostile("freqtier")
    role = Role(run, tmp_path, path, "freqtier")
    own = {"tiertune_service": "redis-server", "tiertune_options": "'--fast-limit 16G'"}
    assert changed(role(**own)) > 0
    config = role.root / "etc/tierd/redis-server.yaml"
    assert config.read_text() == path.read_text()
    assert held(role.root, "/etc/tierd/redis-server.env") == "TIERD_OPTIONS='--fast-limit 16G'"
    assert held(role.root, "/proc/sys/kernel/numa_balancing") == "0"
    assert changed(role(**own)) == 0
    role(**own | {"tiertune_options": ""})
    assert held(role.root, "/etc/tierd/redis-server.env") == "TIERD_OPTIONS="
    told = role.refused(tiertune_service="other")
    assert "it is applied for another service than other; end that first" in told
    told = role.refused(tiertune_service="../x")
    assert "must be the name of a service" in told
    role.write(best(tmp_path, "freqtier", ratio="1:4"))  # another configuration
    role(tiertune_service="redis-server")
    assert "1:4" in config.read_text()
    put(role.root, "/etc/tierd/redis-server.env", "TIERD_OPTIONS=--mine")
    role(tiertune_service="redis-server", tiertune_state="absent")
    assert not config.exists()
    assert held(role.root, "/etc/tierd/redis-server.env") == "TIERD_OPTIONS=--mine"  # not ours
    assert held(role.root, "/proc/sys/kernel/numa_balancing") == "1"
    assert not list((role.root / "usr/local/sbin").iterdir())


@pytest.mark.slow
def test_the_role_for_linux_itself(run: Any, tmp_path: Path) -> None:
    role = Role(run, tmp_path, best(tmp_path, "nbt"), "nbt")
    writes = [write for write in planned("nbt").writes if "damon" not in write.file]
    before = {write.file: held(role.root, write.file) for write in writes}
    assert changed(role()) > 0
    assert {write.file: held(role.root, write.file) for write in writes} == {
        write.file: write.value for write in writes
    }
    unit = role.root / "etc/systemd/system/tiertune-nbt.service"
    assert unit.read_text() == (role.folder / ROLE / "files/tiertune-nbt.service").read_text()
    assert changed(role()) == 0
    role(tiertune_state="absent")
    assert {write.file: held(role.root, write.file) for write in writes} == before
    assert not unit.exists()


@pytest.mark.slow
def test_a_server_without_what_it_takes_is_left_as_it_is(run: Any, tmp_path: Path) -> None:
    role = Role(run, tmp_path, best(tmp_path, "nbt"), "nbt")
    put(role.root, "/proc/sys/kernel/osrelease", "5.4.0")
    told = role.refused()
    assert "this is Linux 5.4.0; it takes" in told
    assert not (role.root / "run/tiertune/tiertune-nbt").exists()
    role(tiertune_any_kernel="yes")
    assert (role.root / "run/tiertune/tiertune-nbt").exists()
