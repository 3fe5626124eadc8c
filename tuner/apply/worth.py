# SPDX-License-Identifier: MIT
"""What it costs that a knob cannot be set, as far as the study has measured it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.apply.product import How, Row
from tuner.declarations import PolicyDecl
from tuner.errors import UserError
from tuner.experiment.recall import recall
from tuner.report.conclusion import Conclusion
from tuner.study import log
from tuner.text import percent

DEFAULT = "the configuration has its default"


def valued(rows: Sequence[Row], policy: PolicyDecl, best: Path) -> list[Row]:
    """The rows, those that are lost with what the study beside best.yaml knows of them."""
    defaults = {knob.name: knob.default for knob in policy.knobs}
    lost = [r.knob for r in rows if r.how is How.lost and r.value != defaults[r.knob]]
    known = _known(best.parent) if lost else None

    def worth(row: Row) -> str:
        if row.how is not How.lost:
            return ""
        return known(row.knob) if known and row.knob in lost else DEFAULT

    return [row.model_copy(update={"worth": worth(row)}) for row in rows]


def _known(folder: Path) -> Callable[[str], str]:
    """Of a study's knob whose best value is not its default."""
    if not log.exists(folder):
        return lambda knob: "what it is worth is not known: no study beside best.yaml"
    try:
        with log.StudyLog(folder) as study:
            found = recall(study)
    except UserError as error:
        unknown = f"what it is worth is not known: {error}"
        return lambda knob: unknown
    if found is None:
        return lambda knob: "what it is worth is not known: the study has not ended"
    return lambda knob: _worth(knob, found)


def _worth(knob: str, found: Conclusion) -> str:
    effects = found.explanation.effects if found.explanation else []
    effect = next((each for each in effects if each.knob == knob), None)
    if effect is None:
        score = percent(found.forest.scores.get(knob, 0.0))
        return f"not measured; importance {score}, {found.forest.reliability}"
    share = f"{percent(effect.share or 0.0)} of the gain"
    if effect.without is None:
        return share
    return f"{share}; without it {percent(effect.without)} of the gain is lost, by one run"
