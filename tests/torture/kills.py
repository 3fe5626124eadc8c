# SPDX-License-Identifier: MIT
"""Loop 3: whole studies are killed at random moments, those of Ray's and MLflow's start included.

A study in a folder of its own, with the real simulator and its real workers, is killed and resumed
again and again, and then resumed to its end. No record may be lost, the study is complete and
undamaged, MLflow has each trial once, and no process outlives the study.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import PRELOAD
from loops import Loop, Result, lost
from scenarios import tracked

from tuner.study import log

CASES, QUICK, KILLS = 150, 1, 8
BUDGET = 4
MARK = "TIERTUNE_TORTURE_CASE"
LIMIT_SECONDS = 600
ORPHAN_SECONDS = 60
NAME = "killed"


def loop(folder: Path) -> Loop:
    def run(case: int, seed: int) -> Result:
        rng = random.Random(f"{seed}/{case}")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        study = folder / "out" / NAME
        own = {
            MARK: str(folder),
            "TMPDIR": str(folder / "tmp"),
            "TIERTUNE_CACHE": str(folder.parent / "kills-cache"),
        }
        dropped = ("LD_PRELOAD", PRELOAD)
        environment = {k: v for k, v in os.environ.items() if k not in dropped} | own
        words = [
            *(sys.executable, "-m", "tuner", "run", "--workload", "gups", "--input", "smoke"),
            *("--budget", str(BUDGET), "--workers", str(rng.choice([1, 2])), "--no-explain"),
            *("--out", str(folder / "out"), "--name", NAME, "--resume"),
        ]
        problems, kills = [], 0
        before: list[str] = []
        for _ in range(KILLS):
            process = start(words, environment)
            try:
                process.wait(timeout=rng.uniform(0.5, usual[-1]))
            except subprocess.TimeoutExpired:
                kills += 1
                stop = os.kill if rng.random() < 0.5 else os.killpg
                stop(process.pid, signal.SIGKILL)
                process.wait()
            problems += survivors(folder)
            now = lines(study)
            problems += filter(None, [lost(before, now)])
            before = now
        began = time.monotonic()
        process = start(words, environment)
        _, err = process.communicate(timeout=LIMIT_SECONDS)
        usual.append(max(3.0, min(usual[0], time.monotonic() - began)))
        if process.returncode:
            problems.append(f"resumed, it ends with {process.returncode}: {err[-500:]!r}")
        problems += filter(None, [lost(before, lines(study))])
        problems += [*complete(study), *survivors(folder)]
        return Result({"kills": kills, "studies_killed": 1}, problems)

    usual = [60.0]
    """Seconds of whole studies, between which kills are spread."""
    return Loop("kills", CASES, QUICK, run)


def start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def lines(study: Path) -> list[str]:
    file = study / log.EVENTS
    return file.read_text(errors="replace").split("\n")[:-1] if file.exists() else []


def complete(study: Path) -> list[str]:
    """What is wrong with a study that was resumed to its end."""
    data = log.load(study)
    problems = list(data.damage)
    if len(data.done) != BUDGET or not all(trial.succeeded for trial in data.done):
        problems.append(f"{len(data.done)} of {BUDGET} trials are done")
    names = sorted(json.loads(run)[0] for run in tracked(study.parent / "mlflow.db"))
    trials = [name for name in names if name.startswith("trial ")]
    if trials != [f"trial {number}" for number in range(BUDGET)]:
        problems.append(f"MLflow has {names}")
    problems += [f"left over: {path}" for path in study.parent.rglob("*.partial")]
    return problems


def survivors(folder: Path) -> list[str]:
    """Processes of a study whose driver is gone."""
    mark = f"{MARK}={folder}".encode()
    end = time.monotonic() + ORPHAN_SECONDS
    while found := [
        path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if has(path, mark)
    ]:
        if not ends(int(found[0]), end - time.monotonic()):
            return [f"processes {', '.join(found)} outlive the study"]
    return []


def ends(process: int, seconds: float) -> bool:
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], max(seconds, 0))[0])
    finally:
        os.close(handle)


def has(environ: Path, mark: bytes) -> bool:
    try:
        return mark in environ.read_bytes().split(b"\0")
    except OSError:
        return False
