# SPDX-License-Identifier: MIT
"""What a study needs of other machines, and whether it is there: a Ray cluster, an MLflow server.
Both are asked in a process of their own (`run/asking.py`)."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from urllib.parse import urlsplit

from tuner import engine
from tuner.errors import UserError, brief
from tuner.report.store import no_telemetry
from tuner.run.asking import Tell, knock, one_line
from tuner.run.cluster import Node, is_node, prepare_environment

SECONDS = 120.0
"""For all that one check does. To join a cluster takes up to a minute."""
NODE_SECONDS = 40.0
"""For a node to start a worker and answer."""

FIREWALL = "a firewall may close the ports that its `ray start` was given"
UNREACHED = f"its worker process ended, or is not reached: {FIREWALL}"

EXPERIMENT = "tune doctor"
"""No name of a study's experiment. MLflow keeps what is deleted for a while: it is used again."""

Recordings = dict[str, str]
"""The identity of what is recorded, by the path of its file."""

# --- A cluster ------------------------------------------------------------------------------------


def facts(recordings: Recordings) -> dict[str, str]:
    """Of the process that a node runs trials in; `lacking` is what is wrong with recordings."""
    import ray

    wrong = [said for path, identity in recordings.items() if (said := _lacking(path, identity))]
    return {
        "tune": engine.version(),
        "build": engine.results_id(),
        "ray": str(ray.__version__),
        "python": platform.python_version(),
        "lacking": "; ".join(wrong),
    }


def _lacking(path: str, identity: str) -> str:
    if not Path(path).is_file():
        return f"no recording {path}"
    try:
        found = engine.stream_info(Path(path))["identity"]
    except UserError as error:
        return str(error)
    return "" if found == identity else f"{path} is another recording than here"


def ask_cluster(address: str, recordings: str, tell: Tell) -> None:
    """Tells of `nodes` with CPUs, a name and a number of CPUs for each, and then of each `node` its
    place in that list and its facts, or why it has none.

    Args:
        recordings: that each node should have, as JSON.
    """
    prepare_environment()
    import ray

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
        asked = {}
        for number, node in enumerate(nodes):
            try:
                for port in ("NodeManagerPort", "ObjectManagerPort"):
                    knock(node["NodeManagerAddress"], node[port])
            except UserError as error:
                tell("node", [number, None, f"{error}; {FIREWALL}"])
                continue
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = remote.options(scheduling_strategy=there).remote(json.loads(recordings))
            asked[reference] = number
        waiting, until = list(asked), time.monotonic() + NODE_SECONDS
        while waiting and (left := until - time.monotonic()) > 0:
            ready, waiting = ray.wait(waiting, timeout=left)
            for reference in ready:
                try:
                    tell("node", [asked[reference], ray.get(reference), None])
                except ray.exceptions.WorkerCrashedError:  # also when nobody reaches it
                    tell("node", [asked[reference], None, UNREACHED])
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
    no_telemetry()
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
