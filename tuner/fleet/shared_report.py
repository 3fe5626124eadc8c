# SPDX-License-Identifier: MIT
"""What one configuration for several workloads came to: best.yaml, together.json, together.html,
and the table of standard output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from tuner.errors import one_line
from tuner.files import write_files
from tuner.fleet.together import Part
from tuner.objective import OBJECTIVES
from tuner.pages import page
from tuner.report import contenders, svg
from tuner.report.conclusion import WIDTH
from tuner.report.svg import Picture
from tuner.study import best as best_file
from tuner.study.contender import Difference, Kind
from tuner.study.together import Together, verdict_of
from tuner.study.verdict import Verdict
from tuner.text import faster, percent, plural, quantity

PAGE = "together.html"
DATA = "together.json"
ALL_FAST = "all-fast"
COLUMNS = (
    *("workload", ">default", ">best", "best over default", "best over first-touch"),
    *(">of all-fast", "tuned alone over best"),
)


@dataclass(frozen=True)
class Shared:
    """A configuration for several workloads in the end; `folder` is the command's own."""

    folder: Path
    together: Together
    parts: list[Part]

    @property
    def policy(self) -> str:
        return self.parts[0].request.policy.name

    @property
    def verdict(self) -> Verdict:
        verdicts = [part.summary.verdict for part in self.parts]
        return verdict_of(self.together, verdicts, self.policy)

    @property
    def named(self) -> list[tuple[str, Part]]:
        return list(zip(self.together.workloads, self.parts, strict=True))


def write(found: Shared) -> list[Path]:
    """Writes the files; UserError if they cannot be written. best.yaml is there if a configuration
    was found that is not the default; its scenario and objective are those of the first workload.
    """
    first = Path(found.parts[0].request.out) / found.together.studies[0] / best_file.FILE
    written = {
        found.folder / DATA: json.dumps(content(found), indent=1) + "\n",
        found.folder / PAGE: _page(found),
    }
    if first.is_file():
        best = best_file.read(first).model_copy(update={"verdict": found.verdict})
        written[found.folder / best_file.FILE] = best_file.render(best)
    return write_files(written)


def _mean(part: Part, kind: Kind) -> float | None:
    """On the held-out seeds; of the configuration for all, the default's where that is it."""
    verdict = part.summary.verdict
    found = verdict.contender(kind, part.request.policy.name)
    if found is None and kind is Kind.tuned:
        found = verdict.contender(Kind.untuned, part.request.policy.name)
    return None if found is None else found.mean


def _of_all_fast(part: Part) -> float | None:
    """Performance over that of a machine with fast memory only, which ran on the study's seed."""
    bound, best = part.summary.verdict.references.get(ALL_FAST), _mean(part, Kind.tuned)
    if bound is None or best is None:
        return None
    objective = OBJECTIVES[part.request.scenario.objective]
    return objective.cost(bound) / objective.cost(best)


# --- As data --------------------------------------------------------------------------------------


def content(found: Shared) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "together": found.folder.name,
        "how": found.together.how,
        "policy": found.policy,
        "trials": verdict.trials,
        "verdict": verdict.model_dump(mode="json"),
        "workloads": [_workload(name, part) for name, part in found.named],
    }


def _workload(name: str, part: Part) -> dict[str, Any]:
    verdict = part.summary.verdict
    alone = None
    if part.alone is not None:
        alone = {"study": part.alone.study, "trials": part.alone.trials, "gain": _data(part.behind)}
    return {
        "workload": name,
        "study": part.request.study,
        "objective": verdict.objective,
        "default": _mean(part, Kind.untuned),
        "best": _mean(part, Kind.tuned),
        "gain": _data(verdict.gain),
        "over_first_touch": _data(verdict.over_first_touch),
        "of_all_fast": _of_all_fast(part),
        "tuned_alone": alone,
        "references": verdict.references,
        "advice": verdict.advice,
        "headline": verdict.headline,
        "best_config": part.summary.best_config,
    }


def _data(found: Difference | None) -> dict[str, Any] | None:
    return None if found is None else found.model_dump()


# --- As text --------------------------------------------------------------------------------------


def rows(found: Shared) -> list[tuple[str, ...]]:
    """A row for each workload: means over the held-out seeds, and gains."""
    cells = []
    for name, part in found.named:
        verdict, objective = part.summary.verdict, part.request.scenario.objective
        unit = OBJECTIVES[objective].unit
        means = (_mean(part, kind) for kind in (Kind.untuned, Kind.tuned))
        share = _of_all_fast(part)
        cells.append(
            (
                name,
                *("-" if mean is None else quantity(mean, unit) for mean in means),
                _told(verdict.gain, objective),
                _told(verdict.over_first_touch, objective),
                "-" if share is None else percent(share),
                _told(part.behind, objective) if part.alone else "not measured",
            )
        )
    return cells


def _told(found: Difference | None, objective: str) -> str:
    return "-" if found is None else faster(found.gain, found.half_width, objective)


def notes(found: Shared) -> list[str]:
    """What the figures are, and what was not measured, as sentences without a full stop."""
    verdict = found.verdict
    known = {part.alone.study: part.alone.trials for part in found.parts if part.alone}
    lacking = [name for name, part in found.named if part.alone is None]
    out = Path(found.parts[0].request.out)
    lines = [f"each workload has a study and a verdict of its own: {found.folder.name}.WORKLOAD"]
    if known:
        told = (f"{study} ({plural(trials, 'trial')})" for study, trials in known.items())
        lines.append(f"tuned alone, on the same held-out seeds: {', '.join(told)}")
    if lacking:
        lines.append(
            f"how far it is behind what is tuned for {', '.join(lacking)} alone was not measured: "
            f"{one_line(out)} has no such study that has ended, under the same conditions"
        )
    lines.append("other amounts of fast memory were not tried")
    if verdict.uncovered:
        lines.append(verdict.uncovered)
    return lines


def text(found: Shared) -> str:
    """What is printed after the table."""
    verdict = found.verdict
    objective = verdict.objective
    over = [(verdict.gain, "the default"), (verdict.over_first_touch, "first-touch")]
    told = [f"{_told(gain, objective)} than {whom}" for gain, whom in over if gain is not None]
    lines = [f"together: {', '.join(told)}, by {found.together.by}"] if told else []
    for note in notes(found):
        lines += wrap(note, WIDTH)
    return "\n".join([*lines, f"results  {one_line(found.folder)}"])


# --- As a page ------------------------------------------------------------------------------------


def _picture(found: Shared) -> Picture | None:
    verdict = found.verdict
    places = [
        (name, part.summary.verdict.gain, part.summary.verdict.over_first_touch)
        for name, part in found.named
    ]
    places.append((f"together ({found.together.how})", verdict.gain, verdict.over_first_touch))
    return contenders.gains(places, "workloads", "what one configuration gains on each workload")


def _page(found: Shared) -> str:
    verdict = found.verdict
    return page(
        PAGE,
        title=found.folder.name,
        headline=verdict.headline,
        trials=verdict.trials,
        policy=found.policy,
        seeds=len(verdict.seeds),
        picture=svg.drawn("workloads", lambda: _picture(found)),
        columns=(*COLUMNS, "alone it says", ""),
        rows=[
            {
                "study": part.request.study,
                "cells": (*cells, part.summary.verdict.headline),
            }
            for cells, part in zip(rows(found), found.parts, strict=True)
        ],
        notes=notes(found),
    )
