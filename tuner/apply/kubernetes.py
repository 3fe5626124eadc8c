# SPDX-License-Identifier: MIT
"""tierd on the nodes of a Kubernetes cluster: a DaemonSet that attaches to pods by their labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.apply import daemon
from tuner.apply.product import Product
from tuner.declarations import KnobValue
from tuner.documents.document import render
from tuner.documents.loader import Block
from tuner.documents.reading import read_text
from tuner.errors import UserError, brief, one_line
from tuner.files import shipped
from tuner.model import content_hash

IMAGE = "tiertune:BUILD"
AGENT = "tierd_pods.py"
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
LABEL = re.compile(rf"(?:{_DOMAIN}/)?{_WORD}=(?:{_WORD})?")


def labels(text: str) -> str:
    """Those of --pods, as a selector. UserError if Kubernetes would not take them."""
    for part in text.split(","):
        if not LABEL.fullmatch(part):
            raise UserError(
                f"--pods: found '{brief(part)}'; must be labels such as app=redis, with commas "
                "between them"
            )
    return text


def agent() -> str:
    """The program that finds the pods, which is part of the manifest."""
    return read_text(shipped(f"docker/kubernetes/{AGENT}", f"kubernetes/{AGENT}"))


def product(
    policy: str,
    knobs: dict[str, KnobValue],
    best: Path,
    about: Sequence[str],
    pods: str,
) -> Product:
    """`pods`: their labels."""
    under = daemon.product(policy, knobs, best, about, "apply")
    name, config = f"tierd-{policy}", read_text(best)
    content = {"best.yaml": Block(config), AGENT: Block(agent())}
    head = "\n".join(f"# {one_line(line)}" for line in about)
    documents = _documents(name, content, labels(pods))
    file = f"{name}.yaml"
    return Product(
        target="kubernetes",
        policy=policy,
        needs=[
            "the rights to create a DaemonSet, a Role and a ConfigMap in the namespace of the pods",
            f"an image of `make image` in your registry, in place of {IMAGE}; it has Python and "
            "tierd",
            "pods of the DaemonSet are privileged, and see all processes of their node (hostPID) "
            "and its /sys: what moves another process's pages could do all that root can; the "
            "namespace has to allow that (pod-security.kubernetes.io/enforce: privileged)",
            "cgroup v2, and a source of samples on each node: its processor's, or DAMON",
        ],
        rows=[each.model_copy(update={"to": [_place(p) for p in each.to]}) for each in under.rows],
        files={file: head + "\n---\n" + "---\n".join(render(each) for each in documents)},
        use=[
            f"kubectl -n NAMESPACE apply -f {file}, in the namespace of the pods {pods}",
            f"kubectl -n NAMESPACE set env daemonset/{name} TIERD_OPTIONS='--fast-limit 16G', for "
            "nodes with several such pods: of each of them",
            f"kubectl -n NAMESPACE patch daemonset {name} -p "
            """'{"spec": {"template": {"spec": {"nodeSelector": {"LABEL": "VALUE"}}}}}', """
            "for some nodes alone",
        ],
        undo=[
            f"kubectl -n NAMESPACE delete -f {file}: tierd puts the kernel's settings of each node "
            "back as it ends; pages stay where they are, and the workload goes on"
        ],
        proof=[
            f"kubectl -n NAMESPACE logs daemonset/{name} names the pods that it follows",
            f"kubectl -n NAMESPACE exec daemonset/{name} -- tierd status: moved_bytes_total of the "
            "fast tier has to grow, and then its part of accesses_total",
        ],
        notes=[
            "it acts on the pods with these labels in its own namespace, and all processes of them",
            "the configuration is in the ConfigMap; when a newer manifest is applied, its own pods "
            "start anew",
        ],
    )


def _place(where: str) -> str:
    return where.replace("/etc/tierd/NAME.yaml", "ConfigMap, best.yaml")


def _documents(name: str, content: dict[str, Block], pods: str) -> list[dict[str, Any]]:
    part = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "tiertune"}
    meta: dict[str, Any] = {"name": name, "labels": part}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": content},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
                "template": {
                    "metadata": {
                        "labels": part,
                        "annotations": {"tiertune/content": content_hash(content)},
                    },
                    "spec": _pod(name, pods),
                },
            },
        },
    ]


def _pod(name: str, pods: str) -> dict[str, Any]:
    """Privileged and with the node's own processes, because tierd moves pages of other pods, reads
    hardware counters of all processors, and turns the kernel's balancing off and on again."""
    return {
        "serviceAccountName": name,
        "hostPID": True,
        "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        "terminationGracePeriodSeconds": 60,
        "containers": [
            {
                "name": "tierd",
                "image": IMAGE,
                "command": ["python3", "-I", f"/etc/tierd/{AGENT}", "/etc/tierd/best.yaml"],
                "env": [
                    {"name": "PODS", "value": pods},
                    {"name": "TIERD_OPTIONS", "value": ""},
                    {
                        "name": "NODE_NAME",
                        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                    },
                ],
                "securityContext": {
                    "privileged": True,
                    "runAsUser": 0,
                    "readOnlyRootFilesystem": True,
                },
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [
                    {"name": "config", "mountPath": "/etc/tierd", "readOnly": True},
                    {"name": "sys", "mountPath": "/sys"},
                    {"name": "notes", "mountPath": "/run/tierd"},
                ],
            }
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}},
            {"name": "notes", "hostPath": {"path": "/run/tierd", "type": "DirectoryOrCreate"}},
        ],
    }
