# SPDX-License-Identifier: MIT
"""Trials a second on 1, 2 and 4 workers of each kind; writes results/throughput.json.

    python tests/bench/throughput.py [--trials 40] [--out results/throughput.json]

Kinds: processes of this machine, Docker containers, and the cluster of docker/compose.yaml with the
driver in a container. Needs the images of `make image`. What starts is not timed: each worker has
run trials before. The overhead of a trial is the time that a worker spent on it beyond what the
simulation took.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.emulate.trials import runner_in
from tuner.files import write_file
from tuner.run import settings, streams
from tuner.run.isolation import Isolation, default_image
from tuner.run.pool import Pool
from tuner.run.pools import open_pool
from tuner.run.trial import Status, Trial, TrialResult
from tuner.terminal import say

ROOT = Path(__file__).resolve().parents[2]
WORKERS = (1, 2, 4)
WORKLOAD, POLICY = "cachelib", "hybridtier"
WARM = 3
"""Trials that each worker has before."""

PROCESSES, CONTAINERS, CLUSTER = "processes", "containers", "cluster"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--out", type=Path, default=ROOT / "results/throughput.json")
    parser.add_argument("--ray-address", help=argparse.SUPPRESS)  # within the cluster
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ray_address:
        print(json.dumps(measured(args.workers, args.trials, ray_address=args.ray_address)))
        return 0
    rows = []
    for workers in WORKERS:
        isolation = Isolation(image=default_image())
        rows.append({"kind": PROCESSES} | measured(workers, args.trials))
        rows.append({"kind": CONTAINERS} | measured(workers, args.trials, isolation=isolation))
        rows.append({"kind": CLUSTER} | on_cluster(workers, args.trials))
        for row in rows[-3:]:
            say(json.dumps(row))
    content = {
        "engine_build": engine.ids()["whole"],
        "workload": WORKLOAD,
        "policy": POLICY,
        "trials": args.trials,
        "cpus": len(os.sched_getaffinity(0)),
        "rows": rows,
    }
    write_file(args.out, json.dumps(content, indent=1) + "\n")
    return 0


def measured(
    workers: int, trials: int, *, isolation: Isolation | None = None, ray_address: str | None = None
) -> dict[str, Any]:
    """Trials a second of so many workers, and seconds of a trial and beside it."""
    setting = settings.resolve(WORKLOAD, policy=engine.policy(POLICY), study="throughput")
    trial = setting.trial(0, {})
    streams.prepare(trial.stream)
    pool = open_pool(runner_in(isolation), workers=workers, ray_address=ray_address)
    try:
        through(pool, trial, WARM * workers)
        began = time.monotonic()
        results = through(pool, trial, trials)
        seconds = time.monotonic() - began
    finally:
        pool.close()
    inside = statistics.fmean(result.seconds for result in results)
    return {
        "workers": workers,
        "per_second": trials / seconds,
        "trial_seconds": inside,
        "overhead_seconds": seconds * workers / trials - inside,
    }


def through(pool: Pool, trial: Trial, count: int) -> list[TrialResult]:
    """The results of the trial, run so many times."""
    results: list[TrialResult] = []
    given = 0
    while len(results) < count:
        while given < count and given - len(results) < pool.workers:
            pool.submit(trial.model_copy(update={"number": given}))
            given += 1
        results += pool.wait(1.0)
    for result in results:
        if result.status is not Status.success:
            raise RuntimeError(result.error)
    return results


def on_cluster(workers: int, trials: int) -> dict[str, Any]:
    """The same with the driver and each worker in containers of docker/compose.yaml."""
    words = ["docker-compose", "--project-name", "tiertune-bench"]
    words += ["--file", "docker/compose.yaml"]
    folder = tempfile.mkdtemp()
    subprocess.run([ROOT / "docker/secrets", folder], check=True)
    environment = os.environ | {
        "TIERTUNE_IMAGE": default_image(),
        "TIERTUNE_SECRETS": folder,
        "MLFLOW_PORT": "0",
    }

    def compose(*more: str) -> str:
        command = [*words, *more]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout

    try:
        compose("up", "--detach", "--scale", f"worker={workers}", "head", "worker")
        run = ["run", "--rm", "-T", "--no-deps", "--entrypoint", "python3"]
        run += [
            "--volume",
            f"{Path(__file__).resolve()}:/src/tests/bench/throughput.py:ro",
            "driver",
        ]
        run += [
            "/src/tests/bench/throughput.py",
            "--ray-address",
            "head:6379",
            "--workers",
            str(workers),
        ]
        found: dict[str, Any] = json.loads(compose(*run, "--trials", str(trials)))
        return found
    finally:
        compose("down", "--volumes", "--timeout", "1")
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
