# SPDX-License-Identifier: MIT
"""Loop 4: one bit of a file flips. What is read then is refused, told of, or as it was."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

from harness import forked
from loops import Loop, Result, ended_badly
from scenarios import STUDY, Scenario

from tuner.errors import UserError
from tuner.study import best, log

CASES, STREAM_CASES = 20_000, 1_000
QUICK, STREAM_QUICK = 400, 4
WALL_SECONDS = re.compile(r"\(in [\d.]+ s\)")


def flip(path: Path, rng: random.Random) -> None:
    """As a disk does: the file's time stays."""
    was, content = path.stat(), bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def study_loop(finished: Scenario, folder: Path) -> Loop:
    """Of the log, its header, best.yaml or the series of a trial."""
    finished.enter(folder)
    study = folder / STUDY
    was = log.load(study)
    series = {trial.number: was.series(trial.number) for trial in was.trials}
    configuration = best.read(study / best.FILE)
    content = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}

    def of_log() -> str | None:
        found = log.load(study)
        altered = [t.number for t in found.done if t != was.trial(t.number)]
        if altered or any(check not in was.checks for check in found.checks):
            return f"trials {altered} or checks are altered"
        missing = len(found.done) < len(was.done) or len(found.checks) < len(was.checks)
        return "records are missing without a word" if missing and not found.damage else None

    def of_best() -> str | None:
        found = best.read(study / best.FILE)
        same = (found.scenario, found.knobs, found.objective.value) == (
            configuration.scenario,
            configuration.knobs,
            configuration.objective.value,
        )
        told = forked(lambda: finished_check(study), folder)
        return (
            None if same or told.code == 1 else "another configuration, and `tune check` is happy"
        )

    def of_series() -> str | None:
        found = log.load(study)
        wrong = [n for n, values in series.items() if found.series(n) not in ({}, values)]
        return f"series of {wrong} are altered" if wrong else None

    readers: list[tuple[str, Callable[[], str | None]]] = [
        (log.EVENTS, of_log),
        (log.HEADER, of_log),
        (best.FILE, of_best),
        (f"{log.SERIES}/0001.json", of_series),
    ]

    def run(case: int, seed: int) -> Result:
        name, read = readers[case % len(readers)]
        flip(study / name, random.Random(f"{seed}/{case}"))
        try:
            problem = read()
        except UserError as error:
            problem = None if str(study) in str(error) else f"refused without its name: {error}"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        (study / name).write_bytes(content[study / name])
        return Result({"bit_flips": 1}, [f"{name}: {problem}"] if problem else [])

    return Loop("flips: study", CASES, QUICK, run)


def finished_check(study: Path) -> int:
    from tuner import cli

    return cli.main(["check", str(study)])


def stream_loop(simulated: Scenario, folder: Path) -> Loop:
    """Of a cached stream or its note; what is printed by a simulation is as before."""
    simulated.enter(folder)
    wanted = forked(lambda: simulated.run(folder), folder)
    if wanted.code:
        raise RuntimeError(f"the undisturbed simulation fails: {wanted.err}")
    shown = WALL_SECONDS.sub("", wanted.out)
    files = {
        p: (p.read_bytes(), p.stat()) for p in (folder / "cache").iterdir() if p.stat().st_size
    }

    def run(case: int, seed: int) -> Result:
        rng = random.Random(f"{seed}/{case}")
        for path, (content, stat) in files.items():
            path.write_bytes(content)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        victim = rng.choices(
            sorted(files), [9 if p.suffix == ".tts" else 1 for p in sorted(files)]
        )[0]
        flip(victim, rng)
        outcome = forked(lambda: simulated.run(folder), folder)
        problem = ended_badly(outcome)
        if outcome.code == 0 and WALL_SECONDS.sub("", outcome.out) != shown:
            problem = "another result without a word"
        return Result({"bit_flips": 1}, [f"{victim.suffix}: {problem}"] if problem else [])

    return Loop("flips: stream", STREAM_CASES, STREAM_QUICK, run)
