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
from functools import partial
from pathlib import Path

from tuner.errors import UserError, brief
from tuner.run.local_ray import OBJECT_STORE, place, private

START_SECONDS = 60.0
STOP_SECONDS = 10.0
PR_SET_PDEATHSIG = 1

RAY = "from ray.scripts.scripts import main; main()"


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
            [sys.executable, "-P", "-c", RAY, *words],
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
