# SPDX-License-Identifier: MIT
"""docker/kubernetes: what Kubernetes and KubeRay would refuse, and what the parts assume of each
other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from conftest import ROOT
from jsonschema import Draft202012Validator

KUBERNETES = "1.31"

FILE = ROOT / "docker/kubernetes/tiertune.yaml"


def any_of(*names: str) -> dict[str, Any]:
    fields: dict[str, Any] = {name: {} for name in names}
    return {"type": "object", "properties": fields, "additionalProperties": False}


TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

# Fields of ray.io/v1 in KubeRay's API reference
# (https://ray-project.github.io/kuberay/reference/api/), those that all of 1.1 to 1.6 have.
HEAD = any_of("enableIngress", "headService", "serviceType") | {"required": ["template"]}
HEAD["properties"] |= {"rayStartParams": TEXTS, "template": {"type": "object"}}
WORKERS = any_of("scaleStrategy", "numOfHosts") | {
    "required": ["groupName", "maxReplicas", "minReplicas", "template"]
}
WORKERS["properties"] |= {
    "groupName": {"type": "string"},
    "rayStartParams": TEXTS,
    "template": {"type": "object"},
    **{name: {"type": "integer"} for name in ("replicas", "minReplicas", "maxReplicas")},
}
CLUSTER = any_of(
    "suspend",
    "autoscalerOptions",
    "headServiceAnnotations",
    "enableInTreeAutoscaling",
    "rayVersion",
) | {"required": ["headGroupSpec"]}
CLUSTER["properties"] |= {
    "headGroupSpec": HEAD,
    "workerGroupSpecs": {"type": "array", "items": WORKERS},
}


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of its pods."""
    spec = document.get("spec", {})
    if document["kind"] == "RayCluster":
        return [group["template"] for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]]
    return [spec["template"]] if "template" in spec else []


def pods() -> list[dict[str, Any]]:
    return [template for document in documents() for template in templates(document)]


def containers() -> list[dict[str, Any]]:
    return [container for pod in pods() for container in pod["spec"]["containers"]]


@pytest.mark.parametrize("number", range(len(documents())))
def test_a_document_is_what_its_schema_says(number: int) -> None:
    document = documents()[number]
    if document["kind"] != "RayCluster":
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        return
    assert document["apiVersion"] == "ray.io/v1"
    Draft202012Validator(CLUSTER).validate(document["spec"])
    for template in templates(document):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {"name": "pod", **template["metadata"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_a_wrong_document_would_be_noticed() -> None:
    (job,) = (document for document in documents() if document["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_no_pod_may_do_more_than_it_needs() -> None:
    for pod in pods():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["metadata"]["labels"]["part-of"] == "tiertune", "no network policy covers it"
    for container in containers():
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert {"memory"} <= container["resources"]["limits"].keys()


USES = {
    "head": {"ray"},
    "worker": {"ray"},
    "driver": {"ray", "login"},
    "mlflow": {"database", "mlflow", "flask"},
    "postgresql": {"database"},
}
"""Which secrets a container needs."""


def test_every_container_has_its_own_secrets_alone() -> None:
    named = re.compile("PASSWORD|TOKEN$|SECRET")
    found = {}
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert not [v for v in container.get("env", ()) if named.search(v["name"])]
        volumes = [v["secret"] for v in pod["spec"]["volumes"] if "secret" in v]
        assert {each["secretName"] for each in volumes} == {"tiertune"}
        found[container["name"]] = {item["key"] for each in volumes for item in each["items"]}
    assert found == USES


def test_compose_gives_its_services_the_same_secrets() -> None:
    composed = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    found = {
        name: {each if isinstance(each, str) else each["source"] for each in service["secrets"]}
        for name, service in composed["services"].items()
        if "secrets" in service
    }
    assert found == {"database" if n == "postgresql" else n: uses for n, uses in USES.items()}
    assert composed["secrets"].keys() == set().union(*USES.values())


def test_secrets_are_made_once_and_differ(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    for _ in range(2):
        subprocess.run([ROOT / "docker/secrets", folder], check=True)
        made = {path.name: path.read_text() for path in folder.iterdir()}
        assert made.keys() == set().union(*USES.values())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert made["login"].splitlines()[-1] == f"mlflow_tracking_password = {made['mlflow']}"
    words = {text for name, text in made.items() if name != "login"}
    assert len(words) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", word) for word in words)
    before = made
    (folder / "flask").unlink()
    subprocess.run([ROOT / "docker/secrets", folder], check=True)
    changed = {n for n, text in before.items() if (folder / n).read_text() != text}
    assert changed == {"flask"}


def test_users_have_the_numbers_of_the_images() -> None:
    users = {
        c["image"]: p["spec"]["securityContext"]["runAsUser"]
        for p in pods()
        for c in p["spec"]["containers"]
    }
    for image, dockerfile in (
        ("tiertune:BUILD", "docker/Dockerfile"),
        ("tiertune-database", "docker/database/Dockerfile"),
    ):
        (number,) = re.findall(r"useradd.* --uid (\d+)", (ROOT / dockerfile).read_text())
        assert users[image] == int(number)


def test_it_says_what_compose_says() -> None:
    """The same commands and settings, as far as both have them."""
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    (mlflow,) = (c for c in containers() if c["name"] == "mlflow")
    composed = [word.replace("$$", "$") for word in services["mlflow"]["entrypoint"]]
    assert mlflow["command"] == composed
    assert mlflow["args"] == services["mlflow"]["command"]
    variables = {v["name"] for v in mlflow["env"]}
    assert variables == services["mlflow"]["environment"].keys()
    (configuration,) = (d for d in documents() if d["kind"] == "ConfigMap")
    plain = (ROOT / "docker/mlflow-auth.ini").read_text().splitlines()
    wanted = [line for line in plain if line and not line.startswith(";")]
    assert configuration["data"]["auth.ini"].split("\n")[:-1] == wanted
    (head,) = (c for c in containers() if c["name"] == "head")
    node = services["head"]["environment"]
    assert {v["name"] for v in head["env"]} == node.keys()
