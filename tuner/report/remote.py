# SPDX-License-Identifier: MIT
"""What a study needs of other machines, and whether it is there: a Ray cluster, an MLflow server.

Whoever is asked may not answer, or answer in part, and the libraries that ask wait for minutes and
may end their process. A child process therefore asks, tells what it finds as it finds it, and is
killed when its time is over.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from tuner import engine
from tuner.errors import UserError, brief
from tuner.run.pool import die_with_parent

SECONDS = 120.0
"""For all that one check does. To join a cluster takes up to a minute."""
KNOCK_SECONDS = 5.0
NODE_SECONDS = 40.0
"""For a node to start a worker and answer."""

EXPERIMENT = "tune doctor"
"""No name of a study's experiment. MLflow keeps what is deleted for a while: it is used again."""

Tell = Callable[[str, Any], None]


class Silent(UserError):
    """Nobody answers in time."""


def asked(ask: Callable[..., None], *arguments: str, seconds: float) -> Iterator[tuple[str, Any]]:
    """What `ask(*arguments, tell)` tells in a child process. UserError if it raises an exception;
    Silent if it is not done in time."""
    until = time.monotonic() + seconds
    # spawn: the parent may have threads, which fork does not survive.
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(ask, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while pipe.poll(max(0.0, until - time.monotonic())):
            try:
                kind, content = json.loads(pipe.recv_bytes())
            except EOFError:
                raise UserError("the process that asked has ended without an answer") from None
            if kind == "done":
                return
            if kind == "failed":
                raise UserError(content)
            yield kind, content
        raise Silent(f"not done within {seconds:g} s")
    finally:
        process.kill()
        process.join()
        pipe.close()


def _child(ask: Callable[..., None], arguments: tuple[str, ...], pipe: Connection) -> None:
    os.setsid()  # Ctrl-C at the terminal is for the parent
    die_with_parent()
    # When Ray ends this process, it says at length why.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)

    def tell(kind: str, content: Any) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            pipe.send_bytes(json.dumps([kind, content]).encode())

    try:
        ask(*arguments, tell)
    except Exception as error:  # of libraries that raise anything
        tell("failed", one_line(error))
    else:
        tell("done", None)


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))]
    said = brief(lines[0], 300) if lines else ""
    if isinstance(error, UserError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def knock(host: str, port: int) -> None:
    """UserError if nobody listens there."""
    try:
        socket.create_connection((host.strip("[]"), port), KNOCK_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"nobody listens at {host}:{port} ({why})") from error


def host_and_port(address: str) -> tuple[str, int] | None:
    """Of HOST:PORT; None for addresses of another form, which Ray may know."""
    host, colon, port = address.rpartition(":")
    return (host, int(port)) if colon and host and port.isdecimal() and "/" not in host else None


# --- A cluster ------------------------------------------------------------------------------------


def facts() -> dict[str, str]:
    """Of the process that a node runs trials in."""
    import ray

    return {
        "build": engine.results_id(),
        "ray": str(ray.__version__),
        "python": platform.python_version(),
    }


def ask_cluster(address: str, tell: Tell) -> None:
    """Tells of `nodes` with CPUs, a name and a number of CPUs for each, and then of each `node` its
    place in that list and its facts, or why it has none."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    from tuner.run.cluster import Node, is_node
    from tuner.run.local_ray import job_config

    own = None if is_node(address) else Node(address)
    try:
        ray.init(
            address=address, job_config=job_config(), log_to_driver=False, logging_level="ERROR"
        )
        nodes = [
            node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]
        tell("nodes", [[node["NodeManagerHostname"], node["Resources"]["CPU"]] for node in nodes])
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Without a CPU: a node whose CPUs are busy answers as well.
        remote = ray.remote(num_cpus=0, max_retries=0)(facts)
        asked = {
            remote.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(): number
            for number, node in enumerate(nodes)
        }
        waiting, until = list(asked), time.monotonic() + NODE_SECONDS
        while waiting and (left := until - time.monotonic()) > 0:
            ready, waiting = ray.wait(waiting, timeout=left)
            for reference in ready:
                try:
                    tell("node", [asked[reference], ray.get(reference), None])
                except Exception as error:  # Ray's, with what went wrong there
                    tell("node", [asked[reference], None, one_line(_cause(error))])
        ray.shutdown()
    finally:
        if own is not None:
            own.close()


def _cause(error: BaseException) -> BaseException:
    within = getattr(error, "cause", None) or error.__cause__
    return _cause(within) if isinstance(within, BaseException) else error


# --- An MLflow server -----------------------------------------------------------------------------


def ask_mlflow(uri: str, tell: Tell) -> None:
    """Tells that it `answers`, and that it can be `written`: a run with a metric and a file, which
    is removed again."""
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "20"
    from mlflow import MlflowClient
    from mlflow.entities import ViewType
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    client = MlflowClient(tracking_uri=uri)
    client.search_experiments(view_type=ViewType.ALL, max_results=1)
    tell("answers", None)
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        experiment = str(client.create_experiment(EXPERIMENT))
    else:
        experiment = str(found.experiment_id)
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(experiment)
    try:
        run = client.create_run(experiment, run_name=EXPERIMENT)
        try:
            client.log_metric(run.info.run_id, "written", 1.0)
            client.log_text(run.info.run_id, "written by `tune doctor`\n", "written.txt")
            get_artifact_repository(run.info.artifact_uri, tracking_uri=uri).delete_artifacts()
        finally:
            client.delete_run(run.info.run_id)
    finally:
        client.delete_experiment(experiment)
    tell("written", None)


def server_of(uri: str) -> tuple[str, int] | None:
    """Host and port of a server's URI; None for a database or a folder. UserError if it is none."""
    try:
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise UserError(f"--mlflow-uri: found '{brief(uri)}'; {error}") from error
