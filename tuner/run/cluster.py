# SPDX-License-Identifier: MIT
"""A cluster's Ray as this process uses it: Ray lets a driver in on machines that are nodes of the
cluster, so a machine that is none becomes one for as long as the driver runs, without a CPU."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tuner import foreign
from tuner.errors import UserError, brief
from tuner.run.local_ray import DEFAULTS, OBJECT_STORE, place, private

START_SECONDS = 60.0
STOP_SECONDS = 10.0
ANSWER_SECONDS = 1.0
"""For a host to take a connection."""
PR_SET_PDEATHSIG = 1

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's own variables."""

RAY = "from ray.scripts.scripts import main; main()"


def prepare_environment() -> None:
    """What of it the user's environment does not set, before Ray is imported. A token that is there
    is shown: Ray's default is to keep it back, also from a cluster that asks for one."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if token_place() is not None:
        os.environ.setdefault(MODE, "token")


def token_place() -> str | None:
    """Where Ray finds this user's token: a variable or a file; None if there is none."""
    if os.environ.get(TOKEN):
        return TOKEN
    if path := os.environ.get(TOKEN_PATH):
        return path
    home = foreign.home()
    usual = home / ".ray" / "auth_token" if home else None
    return str(usual) if usual and usual.is_file() else None


def is_node(address: str) -> bool:
    """Whether a node of the cluster at HOST:PORT runs here. Other addresses, such as `auto`, are
    for Ray to understand."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return True
    wanted = {f"--gcs-address={each}:{port}" for each in {host, _resolved(host)}}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == "raylet":
                words = (entry / "cmdline").read_text().split("\0")
                if wanted & set(words):
                    return True
        except OSError:  # it has ended, or is another user's
            continue
    return False


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


class Watch:
    """Notices hosts that do not answer. Ray says nothing for most of a minute, and then gives the
    host up."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def look(self, nodes: Iterable[Mapping[str, Any]]) -> list[str]:
        """Names of hosts, of Ray's live nodes with CPUs, that did answer when asked before."""
        found = []
        for node in nodes:
            if node["Resources"].get("CPU", 0) < 1:
                continue
            name, place = node["NodeID"], (node["NodeManagerAddress"], node["NodeManagerPort"])
            try:
                socket.create_connection(place, ANSWER_SECONDS).close()
                self._silent.discard(name)
            except OSError:
                if name not in self._silent:
                    self._silent.add(name)
                    found.append(node["NodeManagerHostname"])
        return found


class Node:
    """This machine as a node of the cluster at HOST:PORT, on which nothing runs but the driver. It
    ends with this process. UserError if the cluster does not take it."""

    def __init__(self, address: str) -> None:
        words = ["start", f"--address={address}", "--num-cpus=0", "--block"]
        words += [f"--object-store-memory={OBJECT_STORE}", "--disable-usage-stats"]
        # Ray that does not know this option for nodes takes the head's folder.
        self._folder, self._lock = private(place())
        words += [f"--temp-dir={self._folder / 'r'}"]
        self._output = os.fdopen(os.memfd_create("ray start"), "w+")
        self._process = subprocess.Popen(
            # Unbuffered: what it says last is last.
            [sys.executable, "-P", "-u", "-c", RAY, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the terminal is for the study
            # Bound here: after a fork nothing may be loaded.
            preexec_fn=partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        until = time.monotonic() + START_SECONDS
        while not is_node(address):
            try:
                self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                if time.monotonic() < until:
                    continue
            said = self._said()
            self.close()
            raise UserError(f"no Ray cluster lets this machine join at {address}: {said}")

    def _said(self) -> str:
        """Its last line that is no decoration."""
        self._output.seek(0)
        lines = [line.strip() for line in self._output if any(map(str.isalpha, line))]
        return brief(lines[-1], 200) if lines else "no answer"

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)
