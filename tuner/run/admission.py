# SPDX-License-Identifier: MIT
"""Whether a Ray cluster lets this machine in: asked before anything is begun that needs it. Ray
itself takes half a minute to give up, and does not say why.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.documents.reading import read_text
from tuner.errors import UserError
from tuner.run.asking import Silent, Tell, asked, host_and_port, knock
from tuner.run.cluster import MODE, TOKEN, TOKEN_PATH, prepare_environment, token_place
from tuner.terminal import say

SECONDS = 30.0
"""For the head to answer."""

STARTING_SECONDS = 15.0
"""For it to listen at all, where it may have been started a moment ago."""

PAUSE_SECONDS = 0.5
"""Between two looks whether it does."""

LARGEST_TOKEN = 100_000
"""Bytes of its file."""

MATCH_LEVEL = "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"
"""Ray's own variable: `minor` lets other patch levels in."""


@functools.cache
def check(address: str, *, starting: float = 0.0) -> None:
    """UserError if the cluster at HOST:PORT does not listen within so many seconds, does not
    answer, does not take our token, or has another Ray or Python. Addresses of another form, such
    as `auto`, are for Ray to judge."""
    place = host_and_port(address)
    if place is None:
        return
    _wait_for(*place, starting)
    _refuse_no_token(address)
    cluster: dict[str, str] = {}
    try:
        for kind, content in asked(ask_head, address, seconds=SECONDS):
            if kind == "refused":
                raise UserError(_refused(address))
            cluster = content
    except Silent as error:
        raise UserError(f"no Ray cluster answers at {address}: {error}") from error
    if wrong := differences(cluster):
        raise UserError(
            f"the Ray cluster at {address} has {wrong}: all hosts need the same, to the last number"
        )


def _wait_for(
    host: str, port: int, seconds: float, pause: Callable[[float], None] = time.sleep
) -> None:
    """UserError if nobody listens by then."""
    end, told = time.monotonic() + seconds, False
    while True:
        try:
            knock(host, port)
        except UserError as error:
            if time.monotonic() >= end:
                raise
            if not told:
                say(f"waiting for the Ray cluster: {error}")
            told = True
        else:
            return
        pause(PAUSE_SECONDS)


def _refuse_no_token(address: str) -> None:
    """Ray ends its process where there is none."""
    found = token_place()
    if os.environ.get(MODE) != "token" or found == TOKEN:
        return
    if found is None:
        raise UserError(
            f"no token for the Ray cluster at {address}: {MODE} is token, but there is neither "
            f"{TOKEN_PATH} nor ~/.ray/auth_token; copy the token of the cluster's head there"
        )
    try:
        text = read_text(Path(found), LARGEST_TOKEN)
    except UserError as error:
        raise UserError(f"no token for the Ray cluster at {address}: {error}") from error
    if not text.strip():
        raise UserError(f"no token for the Ray cluster at {address}: {found} is empty")


def _refused(address: str) -> str:
    found = token_place()
    if found is None:
        return (
            f"the Ray cluster at {address} asks for a token, and there is none here; copy that of "
            f"the cluster's head to ~/.ray/auth_token, or name its file in {TOKEN_PATH}"
        )
    if (mode := os.environ.get(MODE, "token")) != "token":
        return f"the Ray cluster at {address} asks for a token, but {MODE} is {mode}, not token"
    return (
        f"the Ray cluster at {address} does not take the token of {found}; it must be that of the "
        "cluster's head"
    )


def differences(cluster: dict[str, str]) -> str:
    """What of the cluster's versions differs from ours; empty if nothing does, or is not known."""
    ours = {"Python": platform.python_version(), "Ray": metadata.version("ray")}
    found = []
    for name, own in ours.items():
        theirs = cluster.get(f"{name.lower()}_version", own)
        parts = 2 if name == "Python" and os.environ.get(MATCH_LEVEL) == "minor" else None
        if theirs.split(".")[:parts] != own.split(".")[:parts]:
            found.append(f"{name} {theirs}, and this machine {own}")
    return "; ".join(found)


def ask_head(address: str, tell: Tell) -> None:
    """Tells what the `cluster` runs, or that it has `refused` our token."""
    prepare_environment()
    import ray

    try:
        # As a node asks that joins. A Ray that keeps it elsewhere tells nothing: it judges later.
        from ray._common.usage.usage_lib import get_cluster_metadata

        client: Any = ray._raylet.GcsClient
    except (ImportError, AttributeError):
        return
    try:
        tell("cluster", dict(get_cluster_metadata(client(address=address)) or {}))
    except ray.exceptions.RayError as error:
        if type(error).__name__ != "AuthenticationError":
            raise
        tell("refused", None)
