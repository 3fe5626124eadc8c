# SPDX-License-Identifier: MIT
"""Where the documents' figures come from: files of results/, and what the tuner lists."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@cache
def results(name: str) -> Any:
    """A file of results/."""
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@cache
def tune(*words: str) -> Any:
    """What a listing command of the installed tuner prints as JSON."""
    command = [sys.executable, "-m", "tuner", *words, "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def better(value: float, reference: float, name: str) -> float:
    """The gain of a value over a reference, as the tuner counts it: above 0 is better."""
    return reference / value - 1 if name == "runtime" else value / reference - 1


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
