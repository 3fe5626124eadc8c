# SPDX-License-Identifier: MIT
"""The loops, in the order in which they run. Importing this imports all that cases need."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import faults
import flips
import harness
import inputs
import kills
import power
import scenarios
from loops import Loop

WARM = (
    *("mlflow.db", "mlflow.store.db_migrations", "mlflow.store.tracking.sqlalchemy_store"),
    *("matplotlib.pyplot", "sklearn.ensemble", "tuner.optimize.search", "tuner.report.pictures"),
    *(f"tuner.commands.{name}" for name in ("check", "import_", "record", "repair", "sim")),
)
"""What the commands import when they need it: in the first process, once for all cases."""


@dataclass(frozen=True)
class Unmade:
    """A loop's name, and what makes it, which takes an undisturbed run."""

    name: str
    make: Callable[[], Loop]


def loops(folder: Path, driver: Path) -> Iterator[Unmade]:
    """All of them, with their files below the folder. `driver`: of traces (tests/fuzz)."""
    for name in WARM:
        importlib.import_module(name)
    scenarios.stand_in()
    work, templates = folder / "work", folder / "templates"
    made = harness.forked(lambda: scenarios.make_templates(templates, work), work)
    if made.code:
        raise RuntimeError(f"no study to begin with: {made.err}")
    commands = {scenario.name: scenario for scenario in scenarios.scenarios(templates)}
    empty = scenarios.Scenario("nothing", [], lambda folder: {})
    for name, scenario in commands.items():
        yield Unmade(f"faults: {name}", partial(faults.loop, scenario, work))
    for name in ("study", "report", "stream", "import", "record", "first study"):
        yield Unmade(f"power: {name}", partial(power.loop, commands[name], work, empty))
    yield Unmade("flips: study", partial(flips.study_loop, commands["report"], work))
    yield Unmade("flips: stream", partial(flips.stream_loop, commands["stream"], work))
    yield Unmade("documents", partial(inputs.document_loop, folder / "documents"))
    yield Unmade("traces", partial(inputs.trace_loop, driver))
    yield Unmade("kills", partial(kills.loop, folder / "kills"))
