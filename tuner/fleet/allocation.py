# SPDX-License-Identifier: MIT
"""Which study gets how many trials: equal parts of the budget. A study that cannot use its part
leaves the rest to the others.

What is granted follows from the studies' logs alone: a fleet that was killed takes the same
decisions again, and they do not depend on which trial was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a study has come: its finished trials from the first on, whether the first of them,
    the default, has failed, and whether there can be no more, whatever is granted."""

    trials: int
    default_failed: bool = False
    ended: bool = False

    @property
    def over(self) -> bool:
        return self.default_failed or self.ended


def allocate(studies: Sequence[Progress], budget: int) -> list[int]:
    """Trials of each study, those that it has had included. Before its default has succeeded a
    study has no more than that one."""
    able = [number for number, study in enumerate(studies) if not study.over]
    granted = [study.trials for study in studies]
    left = budget - sum(study.trials for study in studies if study.over)
    for number, part in zip(able, equal_parts(left, len(able)), strict=True):
        granted[number] = part if studies[number].trials else min(part, 1)
    return granted


def equal_parts(budget: int, count: int) -> list[int]:
    """As equal as whole trials can be, larger ones first."""
    return [budget // count + (place < budget % count) for place in range(count)]
