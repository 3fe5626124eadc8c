# SPDX-License-Identifier: MIT
"""One search for several studies: each has the same configurations under the same numbers, and what
is learned of one is known once all of them have run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.optimize.optimizer import Optimizer, Origin, Proposal
from tuner.study.log import StudyData


class Shared:
    """An optimizer that studies share; its `costs` say what a trial costs over all of them. When
    they were stopped, one may have been asked for a trial that another had yet to be asked for:
    what a log lacks is in another one's."""

    def __init__(self, optimizer: Optimizer, studies: Sequence[StudyData]) -> None:
        self._optimizer = optimizer
        self._studies = len(studies)
        self._logged = {
            trial.number: Proposal(trial.number, dict(trial.knobs), cast(Origin, trial.origin))
            for study in studies
            for trial in study.trials
        }
        self._proposals: list[Proposal] = []
        self._told: dict[int, list[float | None]] = {}

    def ready(self, number: int) -> bool:
        known = number < len(self._proposals) or number in self._logged
        return known or self._optimizer.ready()

    def proposal(self, number: int, *, again: bool = False) -> Proposal:
        if number == len(self._proposals):
            found = self._logged.get(number)
            if found is None:
                found = self._optimizer.ask(again=again)
            else:
                self._optimizer.replay(number, found.knobs)
            self._proposals.append(found)
        return self._proposals[number]

    def tell(self, number: int, cost: float | None) -> None:
        told = self._told.setdefault(number, [])
        told.append(cost)
        if len(told) == self._studies:
            known = [each for each in told if each is not None]
            # Whether it failed anywhere; what it costs over all is for `costs` to say.
            self._optimizer.tell(number, max(known) if len(known) == len(told) else None)


class View:
    """What one of the studies has of it, in the place of an optimizer of its own."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.asked = 0

    def ready(self) -> bool:
        return self._shared.ready(self.asked)

    def ask(self, *, again: bool = False) -> Proposal:
        found = self._shared.proposal(self.asked, again=again)
        self.asked += 1
        return found

    def replay(self, number: int, knobs: Mapping[str, KnobValue]) -> None:
        """UserError if another study has another configuration under this number."""
        if self.ask(again=True).knobs != dict(knobs):
            raise UserError(
                f"trial {number} is not the same configuration in all studies of the command, so "
                "their logs are not of one search; start another one with --name"
            )

    def tell(self, number: int, cost: float | None) -> None:
        self._shared.tell(number, cost)
