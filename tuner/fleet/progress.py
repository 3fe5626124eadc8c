# SPDX-License-Identifier: MIT
"""What a person sees while a fleet runs, on standard error: the latest trials on a terminal, one
line for each elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tuner.experiment.studies import OpenStudy
from tuner.report.progress import ROWS
from tuner.screen import printable
from tuner.study.log import TrialRecord
from tuner.terminal import console, quiet, say
from tuner.text import clock

if TYPE_CHECKING:
    from rich.console import RenderableType


class FleetLive:
    """`total` trials are planned, of which `done` had ended before. Use as a context manager."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self._name, self._total, self._done = name, total, done
        self._before = done
        self._start: float | None = None
        self._recent: list[tuple[OpenStudy, TrialRecord, bool]] = []
        self._display = None
        if sys.stderr.isatty() and not quiet():
            from rich.live import Live as Display

            self._display = Display(
                console=console(sys.stderr), get_renderable=self._table, refresh_per_second=2
            )

    def __enter__(self) -> FleetLive:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def start(self) -> None:
        """Trials run: the pace counts from the first time."""
        self._start = self._start or time.monotonic()

    def finished(self, study: OpenStudy, trial: TrialRecord, improved: bool) -> None:
        self._done += 1
        if self._display is not None:
            self._display.start()
            self._recent = [*self._recent, (study, trial, improved)][-ROWS:]
            return
        if quiet():
            return
        standing = study.standing
        parts = [f"{trial.origin}: {standing.describe(trial)}", standing.standing(), self._left()]
        say(
            f"trial {self._done}/{self._total}: {study.request.study} {trial.number} "
            + "; ".join(part for part in parts if part)
        )

    def notice(self, message: str) -> None:
        """A message that stays on the screen."""
        if self._display is not None:
            self._display.console.print(printable(message), markup=False, highlight=False)
        else:
            say(message)

    def _left(self) -> str:
        """The time left, from the pace of this run."""
        ran = self._done - self._before
        if self._start is None or not ran or self._done >= self._total:
            return ""
        pace = (time.monotonic() - self._start) / ran
        return f"{clock(pace * (self._total - self._done))} left"

    def _table(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=f"{self._name}: {self._done} of {self._total} trials",
            caption=self._left() or "waiting for the first trial",
            title_justify="left",
            caption_justify="left",
        )
        for column in ("study", "trial", "objective", "against default"):
            table.add_column(column, justify="left" if column == "study" else "right")
        for study, trial, improved in self._recent:
            standing = study.standing
            gain = "" if trial.objective is None else standing.change(trial.objective)
            style = "bold green" if improved else "" if trial.succeeded else "red"
            table.add_row(
                study.request.study,
                str(trial.number),
                Text(printable(standing.describe(trial)), style=style),
                gain,
            )
        return table
