# SPDX-License-Identifier: MIT
"""verified.json: what a real kernel says of a simulated study's best configurations."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from tuner import ranking
from tuner.declarations import KnobValue
from tuner.documents.document import first_of
from tuner.documents.reading import parse_model, read_bytes
from tuner.errors import UserError, brief
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.study import best as best_file
from tuner.study.contender import Contender, Difference, Kind, difference, half_width
from tuner.study.log import StudyData
from tuner.study.verdict import Verdict
from tuner.text import faster, percent, plural, quantity

FILE = "verified.json"
BEST = "best-verified.yaml"
PICTURE = "verified.png"
FILES = (FILE, BEST, PICTURE)
LARGEST = 16_000_000
PAGE = 4096
"""Bytes, in the machine."""


class Candidate(Model):
    """A configuration, and what both say of it. `trial` is its number in the study, None of no
    tiering. `simulated` is the objective there; `values` are those of the machine by layout of its
    memory, None where a run failed, which `errors` tells. `sessions` has the place among those of
    the verification for each of the values, if there are several."""

    name: str
    kind: Annotated[Kind, Field(strict=False)]
    policy: str
    trial: int | None
    knobs: dict[str, KnobValue]
    simulated: float | None
    values: list[float | None] = Field(default_factory=list)
    errors: list[str] = Field(default_factory=list)
    sessions: list[int] = Field(default_factory=list)

    @property
    def contender(self) -> Contender:
        return Contender(kind=self.kind, policy=self.policy, page_bytes=PAGE, values=self.values)

    @property
    def mean(self) -> float | None:
        return self.contender.mean


class Session(Model):
    """Live runs without an interruption: when the first began and the last ended (ISO 8601)."""

    began: str
    ended: str
    runs: int


class Verified(Model):
    """What a verification has found.

    `unset` are knobs for which the machine has no setting, with the reason: all candidates have
    their defaults. `verdict` is on the study's best against its defaults and no tiering in the
    machine, `simulated` on the same three in the simulation; None if the study has no verdict.
    `winner` is the trial to use, if there is one. `tau` is Kendall's, of the candidates' order in
    the simulation and in the machine, over `pairs`. `sessions` are those of live runs, in order.
    """

    study: str
    emulated: str
    objective: str
    candidates: list[Candidate]
    unset: dict[str, str]
    verdict: Verdict
    simulated: Verdict | None
    winner: int | None
    tau: float | None
    pairs: int
    sessions: list[Session] = Field(default_factory=list)

    @property
    def holds(self) -> bool | None:
        """Whether the machine advises what the simulation does; None if that does not advise."""
        return None if self.simulated is None else self.verdict.advice is self.simulated.advice

    @property
    def chosen(self) -> Candidate | None:
        """The winner."""
        tuned = (each for each in self.candidates if each.kind is Kind.tuned)
        return next((each for each in tuned if each.trial == self.winner), None)

    def over(self, candidate: Candidate, kind: Kind) -> Difference | None:
        """How much better it is in the machine than no tiering, or than the defaults."""
        other = next(each for each in self.candidates if each.kind is kind)
        if other is candidate:
            return None
        return difference(candidate.contender, other.contender, self.objective)

    def simulated_over(self, candidate: Candidate, kind: Kind) -> float | None:
        other = next(each for each in self.candidates if each.kind is kind)
        if other is candidate or candidate.simulated is None or other.simulated is None:
            return None
        return OBJECTIVES[self.objective].gain(candidate.simulated, other.simulated)


def read(directory: Path) -> Verified | None:
    """Of a study's folder; None if there is none. UserError naming the file if it is damaged."""
    path = directory / FILE
    try:
        return parse_model(read_bytes(path, LARGEST, follow=False), Verified)
    except FileNotFoundError:
        return None
    except (ValidationError, ValueError) as error:
        reason = first_of(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path}: {reason}; `tune verify` makes it again") from error


def current(study: StudyData) -> Verified | None:
    """As `read`; None, too, if the study has had more trials since."""
    found = read(study.directory)
    return found if found is not None and found.verdict.trials == len(study.done) else None


def contradiction(directory: Path, study: str) -> str | None:
    """What speaks against the files of a folder being what `tune verify` made of that study, for
    one that somebody else has sent; None if nothing does."""
    path = directory / BEST
    try:
        found = read(directory)
        configuration = best_file.read(path) if os.path.lexists(path) else None
    except UserError as error:
        return str(error).replace(f"{directory}/", "")
    if found is not None and found.study != study:
        return f"{FILE}: found study {brief(found.study)}; must be {study}"
    if configuration is None:
        return None
    chosen = found and found.chosen
    if not chosen or (chosen.trial, chosen.knobs) != (
        configuration.provenance.trial,
        configuration.knobs,
    ):
        return f"{BEST} has other knobs than the winner of {FILE}"
    return None


def agreement(candidates: Sequence[Candidate]) -> tuple[float | None, int]:
    """Kendall's tau of the simulated and the measured order, and of how many pairs."""
    both = [
        (each.simulated, mean)
        for each in candidates
        if each.simulated is not None and (mean := each.mean) is not None
    ]
    orders = [
        (ranking.order(a[0], b[0], ranking.NOISE), ranking.order(a[1], b[1], ranking.NOISE))
        for a, b in itertools.combinations(both, 2)
    ]
    return ranking.tau(orders), len(orders)


def rows(found: Verified) -> list[tuple[str, str, str, str, str, str]]:
    """For a table: name, simulated and measured objective, and gains over no tiering (simulated,
    measured) and over the defaults (measured)."""
    unit = OBJECTIVES[found.objective].unit

    def value(number: float | None) -> str:
        return "failed" if number is None else quantity(number, unit)

    def gain(of: Difference | None) -> str:
        return "-" if of is None else faster(of.gain, of.half_width, found.objective)

    shown = []
    for each in found.candidates:
        simulated = found.simulated_over(each, Kind.off)
        shown.append(
            (
                each.name,
                "-" if each.simulated is None else value(each.simulated),
                value(each.mean),
                "-" if simulated is None else faster(simulated, None, found.objective),
                gain(found.over(each, Kind.off)),
                gain(found.over(each, Kind.untuned)),
            )
        )
    return shown


def figures(found: Verified) -> dict[str, float]:
    """For MLflow: gains of the study's best on the real kernel, and how both orders agree."""
    verdict = found.verdict
    gains = {"gain": verdict.gain, "over_first_touch": verdict.over_first_touch}
    known = {name: gain.gain for name, gain in gains.items() if gain is not None}
    if found.tau is not None:
        known["tau"] = found.tau
    if found.holds is not None:
        known["holds"] = float(found.holds)
    return known


COLUMNS = (
    "",
    ">simulated",
    ">measured",
    ">over no tiering: simulated",
    ">measured",
    ">over the defaults: measured",
)


def sentences(found: Verified) -> list[str]:
    """What it comes to, for people."""
    lines = [f"On the real kernel: {found.verdict.headline}."]
    if found.simulated is None:
        lines.append("The study has no verdict of its own to compare that with.")
    elif found.holds:
        lines.append("The simulation advises the same.")
    else:
        lines.append(f"The simulation advises something else: {found.simulated.headline}.")
    best = next(each for each in found.candidates if each.kind is Kind.tuned)
    if found.winner is not None and found.winner != best.trial:
        lines.append(
            f"Of the study's best trials number {found.winner} is better there than number "
            f"{best.trial}, the best one in the simulation."
        )
    if found.winner is not None:
        lines.append(f"{BEST} has the knobs to use.")
    if found.tau is not None:
        lines.append(
            f"Kendall's tau of both orders is {found.tau:.2f} over {found.pairs} pairs of "
            f"configurations; those within {percent(ranking.NOISE)} are ties."
        )
    for reason in dict.fromkeys(found.unset.values()):
        names = ", ".join(name for name, why in found.unset.items() if why == reason)
        lines.append(f"Kept at their defaults: {names} ({reason}).")
    lines += over_sessions(found)
    for each in found.candidates:
        if each.kind is Kind.tuned and each.simulated is None:
            lines.append(f"{each.name}: not simulated as the machine runs it.")
        lines += [f"{each.name}: {error}" for error in dict.fromkeys(each.errors)]
    return lines


# --- Sessions -------------------------------------------------------------------------------------


def over_sessions(found: Verified) -> list[str]:
    """What an interruption does to the comparison; nothing if there was none."""
    if len(found.sessions) < 2:
        return []
    parts = [f"{plural(each.runs, 'run')} from {span(each)}" for each in found.sessions]
    lines = [f"Measured in {len(parts)} sessions: {'; '.join(parts)} (UTC)."]
    rounds = zip(*(each.sessions for each in found.candidates), strict=True)
    shared = [str(number) for number, one in enumerate(rounds, start=1) if len(set(one)) > 1]
    if shared:
        lines.append(
            f"Round {', '.join(shared)}: not all of it is of one session, so what the machine did "
            "otherwise then is in its differences."
        )
    for later in range(1, len(found.sessions)):
        lines.append(steady(found.candidates, found.sessions, found.objective, later))
    return lines


def span(session: Session) -> str:
    began, ended = (
        datetime.fromisoformat(moment).astimezone(UTC) for moment in (session.began, session.ended)
    )
    day = "" if began.date() == ended.date() else "%Y-%m-%d "
    return f"{began:%Y-%m-%d %H:%M} to {ended:{day}%H:%M}"


def steady(
    candidates: Sequence[Candidate], sessions: Sequence[Session], objective: str, later: int
) -> str:
    """Whether the defaults ran in a session as in those before it, as far as the runs of each
    configuration within a session tell what chance does."""
    default = next(each for each in candidates if each.kind is Kind.untuned)
    before = _runs(default, range(later))
    now = _runs(default, [later])
    since = f"The session of {span(sessions[later])}"
    if not before or not now:
        where = "in it" if before else "before it"
        return (
            f"{since}: no run of the defaults {where}, so whether the machine was as fast as "
            "before is not known."
        )
    gain = OBJECTIVES[objective].gain(statistics.fmean(now), statistics.fmean(before))
    said = f"{since}: the defaults ran {faster(gain, None, objective)} than before"
    groups = [_runs(each, [session]) for each in candidates for session in range(len(sessions))]
    spread = [v / statistics.fmean(group) - 1 for group in groups for v in group]
    free = len(spread) - sum(map(bool, groups))
    if not free:
        return f"{said}; no configuration ran twice in a session, so chance may be why."
    error = math.sqrt(sum(each**2 for each in spread) / free * (1 / len(before) + 1 / len(now)))
    chance = half_width(error, free)
    if abs(gain) <= chance:
        return f"{said}, within what chance does ({percent(chance)})."
    return (
        f"{said}, and chance does no more than {percent(chance)}: the machine or its load has "
        "changed. If that matters, measure all again in one session."
    )


def _runs(candidate: Candidate, sessions: Sequence[int]) -> list[float]:
    both = zip(candidate.values, candidate.sessions, strict=True)
    return [value for value, session in both if value is not None and session in sessions]
