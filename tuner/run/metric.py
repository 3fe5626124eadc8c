# SPDX-License-Identifier: MIT
"""A trial that is a command of the user's: what it is told, and how its objective is found in what
it says."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from tuner import engine
from tuner.errors import brief
from tuner.objective import OBJECTIVES
from tuner.run.trial import Status, Trial, TrialResult
from tuner.text import exact, size

MATCH_SECONDS = 10.0
"""In which a metric has to be found: some expressions would take hours on some texts."""

MATCH = """
import json, re, sys
text = sys.stdin.buffer.read().decode(errors="replace")
found = re.finditer(sys.argv[1], text, re.MULTILINE)
print(json.dumps([[match[1], match.groupdict()] for match in found]))
"""
"""A program of its own, since nothing else ends a search that takes too long."""

Match = tuple[str | None, dict[str, str | None]]
"""First group and named groups."""


class Failed(Exception):
    """Why a command has no result."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def environment(trial: Trial) -> dict[str, str]:
    """What a command finds in its environment: TUNE_TRIAL, JSON with number, seed, policy, knobs
    and the scenario; TUNE_POLICY; TUNE_SEED; and TUNE_KNOB_name for each knob, with `_` for `.`."""
    content: dict[str, Any] = {
        "number": trial.number,
        **trial.scenario.plain(),
        "knobs": trial.knobs,
    }
    knobs = {name.replace(".", "_"): exact(value) for name, value in trial.knobs.items()}
    return {
        "TUNE_TRIAL": json.dumps(content),
        "TUNE_POLICY": trial.scenario.policy,
        "TUNE_SEED": str(trial.scenario.seed),
        **{f"TUNE_KNOB_{name}": value for name, value in knobs.items()},
    }


def matches(metric: str, printed: bytes) -> list[Match]:
    """All of them. Failed if they take too long to be found."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", MATCH, metric],
            input=printed,
            stdout=subprocess.PIPE,
            timeout=MATCH_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(
            Status.timeout,
            f"the metric {metric} was not found in {size(len(printed))} of output within "
            f"{MATCH_SECONDS:g} s; an expression that begins with ^ or a word is quicker",
        ) from error
    return [(first, groups) for first, groups in json.loads(done.stdout)]


def values(found: Match) -> tuple[float, dict[str, float]]:
    """Of the first group, and of the named ones. Failed if one is no finite number."""
    first, groups = found
    return number(first), {name: number(text) for name, text in groups.items() if text is not None}


def number(found: str | None) -> float:
    """What a group of the metric has found. Failed if it is no finite number."""
    try:
        value = float((found or "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Failed(Status.failed, f"the metric is '{brief(found or '')}', not a number")
    return value


def positive(value: float) -> float:
    """Failed if it is not: an objective is."""
    if value <= 0:
        raise Failed(Status.failed, f"the metric is {value:g}, not a positive number")
    return value


def result(trial: Trial, value: float, metrics: Mapping[str, float], started: float) -> TrialResult:
    """Of a command that has come to its objective."""
    return TrialResult(
        study=trial.study,
        number=trial.number,
        status=Status.success,
        objective=value,
        cost=OBJECTIVES[trial.scenario.objective].cost(value),
        metrics=dict(metrics),
        seconds=time.monotonic() - started,
        engine_version=engine.version(),
        engine_build=engine.results_id(),
        host=socket.gethostname(),
    )
