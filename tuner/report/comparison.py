# SPDX-License-Identifier: MIT
"""Several policies' studies of one scenario, compared: one verdict and one page over all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from textwrap import wrap

from tuner.files import write_files
from tuner.objective import OBJECTIVES
from tuner.pages import page
from tuner.report import charts, contenders, svg
from tuner.report.conclusion import WIDTH
from tuner.study import log
from tuner.study.contender import Kind
from tuner.study.log import StudyData
from tuner.study.request import StudySummary
from tuner.study.verdict import Verdict, merge
from tuner.text import faster, quantity

PAGE = "comparison.html"
DATA = "comparison.json"


def name_of(studies: Sequence[str]) -> str:
    """What the studies' names share, with `compared` where they name the policy."""
    words = [name.split("-") for name in studies]
    start = _shared(words)
    end = _shared([word[len(start) :][::-1] for word in words])[::-1]
    return "-".join([*start, "compared", *end])


def _shared(words: Sequence[Sequence[str]]) -> list[str]:
    """What they have in common at the start."""
    same = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    return [column[0] for column in same]


def write(directory: Path, summaries: Sequence[StudySummary]) -> Verdict:
    """Writes the page and its data; returns the verdict over all studies. UserError if they cannot
    be written."""
    verdict = merge([(summary.scenario.policy, summary.verdict) for summary in summaries])
    write_files(
        {
            directory / DATA: verdict.model_dump_json(indent=1) + "\n",
            directory / PAGE: _page(directory, verdict, summaries),
        }
    )
    return verdict


def text(verdict: Verdict, summaries: Sequence[StudySummary], directory: Path) -> str:
    table = [("policy", "default", "best", "best over default"), *_rows(summaries)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    lines += wrap(verdict.uncovered, WIDTH) if verdict.uncovered else []
    return "\n".join([verdict.headline, *lines, f"results  {directory}"])


def _rows(summaries: Sequence[StudySummary]) -> list[tuple[str, str, str, str]]:
    """By policy: means over the held-out seeds, and the gain."""
    found = []
    for summary in summaries:
        policy, objective = summary.scenario.policy, summary.verdict.objective
        cells = []
        for kind in (Kind.untuned, Kind.tuned):
            contender = summary.verdict.contender(kind, policy)
            mean = None if contender is None else contender.mean
            cells.append("-" if mean is None else quantity(mean, OBJECTIVES[objective].unit))
        gain = summary.verdict.gain
        words = "-" if gain is None else faster(gain.gain, gain.half_width, objective)
        found.append((policy, cells[0], cells[1], words))
    return found


COLUMNS = ("policy", "default", "best", "best over default", "alone it says", "")


def _page(directory: Path, verdict: Verdict, summaries: Sequence[StudySummary]) -> str:
    unit = OBJECTIVES[verdict.objective].unit
    references = verdict.references.items()
    counts = sorted({len(contender.values) for contender in verdict.contenders})
    return page(
        PAGE,
        title=directory.name,
        headline=verdict.headline,
        objective=verdict.objective,
        seeds=" to ".join(map(str, counts)),  # some may have run on more, for want of a decision
        bounds=", ".join(f"{name} {quantity(value, unit)}" for name, value in references),
        uncovered=verdict.uncovered,
        columns=COLUMNS,
        standing=svg.drawn("policies", lambda: contenders.policies(verdict)),
        searches=svg.drawn("searches", lambda: charts.searches(_logs(directory, summaries))),
        studies=[
            {"name": summary.study, "cells": (*cells, summary.verdict.headline)}
            for cells, summary in zip(_rows(summaries), summaries, strict=True)
        ],
    )


def _logs(directory: Path, summaries: Sequence[StudySummary]) -> dict[str, StudyData]:
    """By policy, of the studies beside the page."""
    folders = {each.scenario.policy: directory.parent / each.study for each in summaries}
    return {policy: log.load(at) for policy, at in folders.items() if log.exists(at)}
