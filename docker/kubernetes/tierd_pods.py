# SPDX-License-Identifier: MIT
"""tierd for the pods of a node: what `tune apply --for kubernetes` runs in its DaemonSet.

Asks Kubernetes which pods with the labels of $PODS run on this node, finds the cgroup of each by
its uid, and keeps a `tierd attach` beside each. Standard library alone: it is text of a ConfigMap.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CGROUPS = Path("/sys/fs/cgroup")
SECONDS = 5.0
"""Between two looks."""


def say(text: str) -> None:
    print(f"tiertune: {text}", flush=True)


def ask(labels: str, node: str, account: Path = ACCOUNT) -> dict[str, str]:
    """Names of the pods that run on the node, by uid, the oldest first. OSError or ValueError if
    nobody answers."""
    namespace = (account / "namespace").read_text().strip()
    fields = f"spec.nodeName={node},status.phase=Running"
    query = urllib.parse.urlencode({"labelSelector": labels, "fieldSelector": fields})
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    place = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(
        f"https://{place}:{port}/api/v1/namespaces/{namespace}/pods?{query}",
        headers={"Authorization": f"Bearer {(account / 'token').read_text().strip()}"},
    )
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
        pods = [each["metadata"] for each in json.load(answer)["items"]]
    pods.sort(key=lambda each: (each["creationTimestamp"], each["uid"]))
    return {each["uid"]: each["name"] for each in pods}


def cgroup(uid: str, root: Path = CGROUPS) -> Path | None:
    """The folder of a pod, by either of the kubelet's drivers: podUID, or a slice of systemd."""
    below_kubepods = ("", "-burstable", "-besteffort")
    slices = (f"kubepods{part}-pod{uid.replace('-', '_')}.slice" for part in below_kubepods)
    names = {f"pod{uid}", *slices}
    for folder, below, _ in os.walk(root):
        for name in below:
            if name in names:
                return Path(folder, name)
        if folder == str(root):
            below[:] = [name for name in below if name.startswith("kube")]
    return None


class Engines:
    """A tierd for each pod that is there."""

    def __init__(self, tierd: list[str], config: str, options: list[str]) -> None:
        self.tierd, self.config, self.options = tierd, config, options
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()

    def follow(self, pods: dict[str, str], root: Path = CGROUPS) -> None:
        """Starts what is missing. A tierd ends by itself with the processes of its pod."""
        for uid, process in list(self.running.items()):
            if (code := process.poll()) is not None:
                say(f"the tierd of {uid} has ended with {code}")
                del self.running[uid]
        for uid, name in pods.items():
            if uid in self.running:
                continue
            if self.running and "--fast-limit" not in " ".join(self.options):
                self._once(
                    uid,
                    f"pod {name}: left alone; several pods of a node need --fast-limit SIZE, "
                    "of each, in TIERD_OPTIONS",
                )
                continue
            folder = cgroup(uid, root)
            if folder is None:
                self._once(uid, f"pod {name}: no cgroup of it below {root}")
                continue
            words = [*self.tierd, "attach", "--cgroup", str(folder), "--config", self.config]
            say(f"pod {name}: {shlex.join([*words, *self.options])}")
            self.running[uid] = subprocess.Popen([*words, *self.options])

    def stop(self) -> None:
        """Ends all of them, and waits: each puts back what it has changed."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()

    def _once(self, uid: str, text: str) -> None:
        if uid not in self._told:
            self._told.add(uid)
            say(text)


def main() -> int:
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    labels, node = os.environ["PODS"], os.environ["NODE_NAME"]
    tierd = [os.environ.get("TIERD", "tierd")]
    engines = Engines(tierd, sys.argv[1], shlex.split(os.environ.get("TIERD_OPTIONS", "")))
    # What a tierd that was killed has left. There is nothing to restore at first.
    subprocess.run([*tierd, "restore"], check=False)
    while not end.is_set():
        try:
            engines.follow(ask(labels, node))
        except (OSError, ValueError, KeyError) as error:
            say(f"Kubernetes does not say which pods there are: {type(error).__name__}: {error}")
        end.wait(SECONDS)
    engines.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
