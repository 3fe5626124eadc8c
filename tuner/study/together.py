# SPDX-License-Identifier: MIT
"""One configuration for several workloads: what it costs over all of them, and what to do.

Each workload has a study of its own, with the same configurations under the same numbers. A cost
over all is made of the costs over that of the policy's defaults on the same workload, which have no
unit: so workloads of different length, and of different objectives, count alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tuner.limits import WORST
from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.study.contender import Contender, Difference, Kind, interval
from tuner.study.verdict import Advice, Verdict, decide
from tuner.text import faster

if TYPE_CHECKING:
    from tuner.study.log import StudyData
    from tuner.study.request import StudyRequest


class Together(Model):
    """The studies that share their configurations, with the workload of each (W or W:INPUT), and
    how one cost is made of theirs: the worst, or their geometric mean."""

    how: Literal["worst", "geomean"]
    studies: list[str]
    workloads: list[str]

    @property
    def by(self) -> str:
        """the worst of gups and silo"""
        *most, last = self.workloads
        names = " and ".join(filter(None, [", ".join(most), last]))
        return f"the worst of {names}" if self.how == WORST else f"the geometric mean over {names}"


def said(request: StudyRequest, verdict: Verdict) -> dict[str, str]:
    """What a study's own verdict has to add if its configuration was chosen for others, too."""
    if request.together is None:
        return {}
    return {"headline": f"{verdict.headline}; chosen by {request.together.by}"}


def combined(over: Sequence[float | None], how: str) -> float | None:
    """One figure of those of several workloads, costs over the default's; None if one is missing:
    a configuration that fails on a workload is none for all of them."""
    known = [each for each in over if each is not None]
    if not known or len(known) < len(over):
        return None
    if how == WORST:
        return max(known)
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def costs(
    studies: Sequence[StudyData], numbers: Sequence[int], how: str
) -> dict[int, float | None]:
    """By trial, of those that have ended everywhere: its cost over all workloads, 1 for the
    default's; None for what fails on one."""
    found: dict[int, float | None] = {}
    defaults = [study.default for study in studies]
    bases = [None if d is None or d.result is None else d.result.cost for d in defaults]
    for number in numbers:
        over: list[float | None] = []
        for study, base in zip(studies, bases, strict=True):
            trial = study.trial(number)
            cost = None if trial is None or trial.result is None else trial.result.cost
            over.append(None if cost is None or base is None else cost / base)
        found[number] = combined(over, how)
    return found


def best_of(studies: Sequence[StudyData], how: str) -> int | None:
    """The number of the trial that is best over all workloads, the earliest of equals."""
    known = costs(studies, range(min(study.asked for study in studies)), how)
    good = [(cost, number) for number, cost in known.items() if cost is not None]
    return min(good)[1] if good else None


def _over(verdict: Verdict, kind: Kind, base: Kind) -> list[float | None] | None:
    """By held-out seed, the costs of a contender over those of another; None if one did not run."""
    one, other = verdict.contender(kind), verdict.contender(base)
    if one is None or other is None:
        return None
    objective = OBJECTIVES[verdict.objective]
    return [
        None if a is None or b is None else objective.cost(a) / objective.cost(b)
        for a, b in zip(one.values, other.values, strict=True)
    ]


def _joint(
    verdicts: Sequence[Verdict], kind: Kind, base: Kind, how: str
) -> list[float | None] | None:
    """By held-out seed, over all workloads; None if a workload lacks a contender. Seeds are paired
    in their order: they are the same ones for all studies of one command, some of which go on where
    others end."""
    found = [_over(verdict, kind, base) for verdict in verdicts]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return [combined(seed, how) for seed in zip(*known, strict=False)]


def gain(verdicts: Sequence[Verdict], base: Kind, how: str) -> Difference | None:
    """Of the one configuration over the defaults or over no tiering, on all workloads: by the worst
    of them on each held-out seed, or by their geometric mean."""
    over = _joint(verdicts, Kind.tuned, base, how)
    gains = [1 / each - 1 for each in over or () if each is not None]
    if not gains:
        return None
    mean, half_width = interval(gains)
    return Difference(gain=mean, half_width=half_width, pairs=len(gains))


def verdict_of(together: Together, verdicts: Sequence[Verdict], policy: str) -> Verdict:
    """What to do with all workloads at once, from the verdicts on each: the choice is that of
    `decide`, on costs over the default's."""
    how, first = together.how, verdicts[0]
    fewest = min(verdicts, key=lambda verdict: len(verdict.seeds))
    contenders = []
    for kind in Kind:
        values = _joint(verdicts, kind, Kind.untuned, how)
        if values is None:
            continue
        runs = [v.contender(kind) for v in verdicts]
        moved = [each.moved for each in runs if each is not None and each.moved is not None]
        contenders.append(
            Contender(
                kind=kind,
                policy=policy if kind is not Kind.off else "first-touch",
                page_bytes=next(each.page_bytes for each in runs if each is not None),
                values=values,
                moved=sum(moved) if len(moved) == len(runs) else None,
            )
        )
    found = decide(
        contenders,
        objective=_words(verdicts),
        trials=first.trials,
        policy=policy,
        seeds=fewest.seeds,
        stream_seeds=fewest.stream_seeds,
        not_run=first.not_run,
        doubts=list(dict.fromkeys(doubt for verdict in verdicts for doubt in verdict.doubts)),
    )
    over_off = gain(verdicts, Kind.off, how)
    changed = {"over_first_touch": over_off, "headline": _headline(found, over_off, together)}
    return found.model_copy(update=changed)


def _words(verdicts: Sequence[Verdict]) -> str:
    """The objective as which costs over the default's are told: they are compared as run times are,
    unless all of them are of one kind of latency."""
    names = {verdict.objective for verdict in verdicts}
    name = next(iter(names))
    return "runtime" if len(names) > 1 or OBJECTIVES[name].higher_is_better else name


def _headline(found: Verdict, over_off: Difference | None, together: Together) -> str:
    if found.advice is Advice.leave_off and over_off is not None and over_off.gain < 0:
        behind = faster(over_off.gain, over_off.half_width, found.objective)
        who = f"the best of {found.trials} trials is {behind} than first-touch"
        return f"leave tiering off: {who}, by {together.by}"
    if found.advice is not Advice.use_best:
        return f"{found.headline}; by {together.by}"
    parts = [
        f"{faster(each.gain, each.half_width, found.objective)} than {whom}"
        for each, whom in ((found.gain, "the default"), (over_off, "first-touch"))
        if each is not None
    ]
    nothing = found.headline.partition("; it moves no page")
    return f"use best.yaml: {', '.join(parts)}, by {together.by}{''.join(nothing[1:])}"
