# SPDX-License-Identifier: MIT
"""What a loop is: numbered cases, each of which says what it did and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Outcome
from scenarios import Scenario


@dataclass
class Result:
    """Of a case: counts by name, and what went wrong."""

    counts: Mapping[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """`run(case, seed)` for each case below `cases`; `quick`: how many of them are a sample."""

    name: str
    cases: int
    quick: int
    run: Callable[[int, int], Result]


def ended_badly(outcome: Outcome) -> str | None:
    """What is wrong with how a command ended: one that fails says why in one line."""
    if outcome.code < 0:
        return f"killed by signal {-outcome.code}"
    shown = outcome.err + outcome.out
    if "Traceback (most recent call last)" in shown:
        return "a traceback: " + next(
            (line for line in reversed(shown.splitlines()) if re.match(r"[\w.]+(: |$)", line)), ""
        )
    if outcome.code not in (0, 1, 2):
        return f"exit code {outcome.code}"
    errors = [line for line in outcome.err.splitlines() if line.startswith("tune: error:")]
    if outcome.code and len(errors) != 1:
        return f"exit code {outcome.code} with {len(errors)} lines of error: {outcome.err[-300:]!r}"
    return None


def lost(before: list[str], after: list[str]) -> str | None:
    """What of the log was acknowledged and is not there, or not as it was."""
    if after[: len(before)] == before:
        return None
    return f"of {len(before)} acknowledged records {len(set(before) - set(after))} are gone"


def differs(scenario: Scenario, folder: Path, wanted: dict[str, Any], but: str = "") -> str | None:
    """How the result is not as without a disturbance, apart from the entry `but`."""
    try:
        found = scenario.result(folder)
    except Exception as error:
        return f"the result cannot be read: {type(error).__name__}: {error}"
    keys = sorted(key for key in wanted.keys() | found.keys() if key != but)
    other = [_difference(key, found.get(key), wanted.get(key)) for key in keys]
    shown = "; ".join(filter(None, other))
    return f"not as undisturbed: {shown}" if shown else None


def _difference(key: str, found: Any, wanted: Any) -> str | None:
    if found == wanted:
        return None
    if isinstance(found, list) and isinstance(wanted, list):
        extra = [str(item)[:200] for item in found if item not in wanted][:1]
        missing = [str(item)[:200] for item in wanted if item not in found][:1]
        return f"{key}: {len(found)} instead of {len(wanted)}, has {extra}, lacks {missing}"
    return f"{key}: {'missing' if found is None else 'another content'}"
