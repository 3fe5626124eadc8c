# SPDX-License-Identifier: MIT
"""What a person sees while a study runs, on standard error.

On a terminal: a table of the latest trials that stays in place. Anywhere else: one line per trial.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.objective import OBJECTIVES
from tuner.screen import printable
from tuner.study.constraint import Bounds, by_how_much, listed
from tuner.study.log import TrialRecord
from tuner.study.request import StudyRequest
from tuner.terminal import console, quiet, say
from tuner.text import change, clock, plural, quantity, short, with_unit

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS = 12  # latest trials in the table
MOST = 4  # changed knobs that are told there


class Progress:
    """Best so far, how it stands to the default, and the time left, from finished trials."""

    def __init__(self, request: StudyRequest) -> None:
        self.request = request
        self.objective = OBJECTIVES[request.scenario.objective]
        self.done = 0
        self.failed = 0
        self.default: float | None = None
        self.best: TrialRecord | None = None
        self.bounds: Bounds | None = None  # what the defaults measured has a say: once it is known
        self._undecided: list[TrialRecord] = []
        if not any(each.of_default for each in request.constraints):
            self.bounds = Bounds(request.constraints, request, None)
        self._run_start: float | None = None
        self._run_done = 0

    def start(self) -> None:
        """The workers are running: the pace counts from now."""
        self._run_start = time.monotonic()

    @property
    def best_objective(self) -> float | None:
        return None if self.best is None else self.best.objective

    def change(self, value: float) -> str:
        """Of an objective against the default's on the same seed: +12.3 %, -70.0 %."""
        return "" if self.default is None else change(value / self.default - 1)

    def add(self, trial: TrialRecord, *, replayed: bool = False) -> bool:
        """Counts a finished trial; whether there is another best one since. Of equals the earliest
        wins, whatever the order in which they finished."""
        self.done += 1
        self._run_done += not replayed
        if trial.number == 0 and self.bounds is None:
            self.bounds = Bounds(self.request.constraints, self.request, trial.result)
        if not trial.succeeded or trial.result is None or trial.result.objective is None:
            self.failed += 1
            return False
        if trial.number == 0:
            self.default = trial.result.objective
        self._undecided.append(trial)
        if self.bounds is None:
            return False
        found = [self._improves(each) for each in self.bounds.kept(self._undecided)]
        self._undecided = []
        return any(found)

    def _improves(self, trial: TrialRecord) -> bool:
        value, best = trial.objective, self.best_objective
        assert value is not None
        if self.best is not None and best is not None:
            if value == best and trial.number > self.best.number:
                return False
            if value != best and not self.objective.better(value, best):
                return False
        self.best = trial
        return True

    def seconds_left(self) -> float | None:
        """From the pace of this run; None before it has one, and where nobody knows the budget."""
        if self._run_start is None or not self._run_done or self.request.auto_seconds:
            return None
        pace = (time.monotonic() - self._run_start) / self._run_done
        return pace * (self.request.budget - self.done)

    def describe(self, trial: TrialRecord) -> str:
        """`throughput 1.24 M ops/s`, or what went wrong."""
        result = trial.result
        if result is None:
            return "running"
        if result.objective is None:
            first, *_ = result.error.splitlines() or [""]
            return f"{result.status}: {first}"
        told = quantity(result.objective, self.objective.unit)
        missed = self.bounds.missed(result) if self.bounds is not None else {}
        return f"{told}, breaks {by_how_much(missed)}" if missed else told

    def changed(self) -> list[str]:
        """What the best so far has changed: `period 100 -> 2000 s`."""
        if self.best is None:
            return []
        values = ((knob, self.best.knobs[knob.name]) for knob in self.request.tuned)
        return [
            f"{knob.name} {short(knob.default)} -> {with_unit(value, knob.unit)}"
            for knob, value in values
            if value != knob.default
        ]

    def standing(self) -> str:
        """`best 1.31 M ops/s (+5.6 %), 1:20 left`."""
        parts = []
        if self.best_objective is not None:
            gain = f" ({self.change(self.best_objective)})" if self.default is not None else ""
            parts.append(f"best {quantity(self.best_objective, self.objective.unit)}{gain}")
        elif self.bounds is not None and self.default is not None:
            parts.append(f"none meets {listed(self.request.constraints)} so far")
        left = self.seconds_left()
        if left is not None and self.done < self.request.budget:
            parts.append(f"{clock(left)} left")
        return ", ".join(parts)


class Live:
    """Shows a study's progress. Use as a context manager.

    Args:
        trials: all that have been asked for, to which others are added meanwhile.
    """

    def __init__(self, progress: Progress, trials: Sequence[TrialRecord] = ()) -> None:
        self._progress = progress
        self._trials = trials
        self._recent: list[tuple[TrialRecord, bool]] = []
        self._display = None
        if sys.stderr.isatty() and not quiet():
            from rich.live import Live as Display

            self._display = Display(
                console=console(sys.stderr), get_renderable=self._table, refresh_per_second=2
            )

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def finished(self, trial: TrialRecord, improved: bool) -> None:
        """After `Progress.add` of the same trial."""
        if self._display is not None:
            self._display.start()
            self._recent = [*self._recent, (trial, improved)][-ROWS:]
            return
        if quiet():
            return
        progress = self._progress
        budget = progress.request.budget
        width = len(str(budget))
        of = f"{progress.done}" if progress.request.auto_seconds else f"{progress.done}/{budget}"
        say(
            f"trial {trial.number:>{width}} ({of}) "
            f"{trial.origin}: {progress.describe(trial)}; {progress.standing()}"
        )

    def notice(self, message: str) -> None:
        """A message that stays on the screen."""
        if self._display is not None:
            self._display.console.print(printable(message), markup=False, highlight=False)
        else:
            say(message)

    def _caption(self) -> list[str]:
        """The best, what it changed, what runs, and the time left."""
        progress = self._progress
        lines = [progress.standing() or "waiting for the first trial"]
        if progress.failed:
            lines[0] += f"; {plural(progress.failed, 'trial')} failed"
        if progress.best is not None:
            changed = progress.changed()
            more = f" and {len(changed) - MOST} more" if len(changed) > MOST else ""
            what = ", ".join(changed[:MOST]) or "nothing: the defaults"
            lines.append(f"trial {progress.best.number} changes {what}{more}")
        running = [str(trial.number) for trial in self._trials if trial.result is None]
        if running:
            lines.append(f"running: {', '.join(running)}")
        return lines

    def _table(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        progress = self._progress
        budget = progress.request.budget
        most = "at most " if progress.request.auto_seconds else ""
        table = Table(
            title=f"{progress.request.study}: {progress.done} of {most}{budget} trials",
            caption=Text(printable("\n".join(self._caption()))),
            title_justify="left",
            caption_justify="left",
        )
        table.add_column("trial", justify="right")
        table.add_column("origin")
        table.add_column(progress.request.scenario.objective, justify="right")
        table.add_column("against default", justify="right")
        for trial, improved in self._recent:
            gain = "" if trial.objective is None else progress.change(trial.objective)
            style = "bold green" if improved else "" if trial.succeeded else "red"
            text = Text(printable(progress.describe(trial)), style=style)
            table.add_row(str(trial.number), Text(printable(trial.origin)), text, gain)
        return table
