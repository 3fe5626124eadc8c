# SPDX-License-Identifier: MIT
"""What a user should do after a study: one declaration, from which the terminal, the report,
best.yaml, MLflow and --json derive.

Contenders are what the user can choose between: leaving tiering off (`first-touch`), a policy at
its defaults, and what the search found. Each runs on the same held-out seeds, which the search has
not seen, so that differences are paired and the choice of the best trial does not flatter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from tuner.model import Model
from tuner.objective import OBJECTIVES
from tuner.study.contender import Contender, Difference, Kind, difference
from tuner.study.front import Front
from tuner.text import faster, page_size

HELD_OUT = 6
"""Held-out seeds per contender: half an interval is about the standard deviation of one run."""

WAY = 0.01
"""Static-hot must be this much better than first-touch, or the way between them means nothing."""


class Advice(StrEnum):
    leave_off = "leave-tiering-off"
    keep_default = "keep-default"
    use_best = "use-best"
    use_untuned = "use-untuned"  # another policy's default
    nothing = "no-result"


class Constraints(Model):
    """What the search of a policy says of its constraints: how many trials meet all of them, which
    the default breaks on the study's seed, by what factors; and where no trial meets them, the
    number of the one that comes nearest, and the factors by which it misses some."""

    policy: str
    constraints: list[str]
    met_by: int
    default_breaks: dict[str, float] = Field(default_factory=dict)
    nearest: int | None = None
    missed: dict[str, float] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return " and ".join(self.constraints)


class Elsewhere(Model):
    """What the best configuration is worth with another amount of fast memory, over the policy's
    defaults and over never moving a page there; None for what did not run."""

    where: str
    gain: Difference | None = None
    over_first_touch: Difference | None = None


class Verdict(Model):
    """`references` and `untuned` are objectives on the study's own seed, by policy. `gain` is that
    of the best configuration over the policy's defaults, `over_first_touch` over never moving a
    page, `over_untuned` over the best of the other policies' defaults, named by `best_untuned`.

    `way` is the best configuration's gain over first-touch as a part of static-hot's, in the
    objective's own unit; None where static-hot is not at least `WAY` better. `not_run` are the
    other policies that the study did not run, so that the advice says nothing of them, and `doubts`
    what speaks against a verdict from its recording, as sentences without a full stop. `elsewhere`
    is what the best configuration is worth with half and twice the fast memory, `front` that of a
    study with several objectives.
    """

    advice: Annotated[Advice, Field(strict=False)]
    headline: str
    objective: str
    trials: int
    seeds: list[int] = Field(default_factory=list)
    stream_seeds: list[int] = Field(default_factory=list)
    gain: Difference | None = None
    over_first_touch: Difference | None = None
    over_untuned: Difference | None = None
    best_untuned: str | None = None
    way: float | None = None
    references: dict[str, float] = Field(default_factory=dict)
    untuned: dict[str, float] = Field(default_factory=dict)
    not_run: list[str] = Field(default_factory=list)
    doubts: list[str] = Field(default_factory=list)
    elsewhere: list[Elsewhere] = Field(default_factory=list)
    constraints: Constraints | None = None
    front: Front | None = None
    contenders: list[Contender] = Field(default_factory=list)

    def contender(self, kind: Kind, policy: str | None = None) -> Contender | None:
        """The first of its kind."""
        return _find(self.contenders, kind, policy)

    @property
    def chosen(self) -> Contender | None:
        """What is advised; None if there is no result."""
        able = [contender for contender in self.contenders if contender.usable]
        if self.advice is Advice.nothing or not able:
            return None
        return _choose(able, self.objective)

    @property
    def uncovered(self) -> str | None:
        """What the advice does not cover, and what speaks against it, as sentences without the last
        full stop; None if there is nothing."""
        found = [f"in doubt: {doubt}" for doubt in self.doubts]
        if self.not_run:
            count = len(self.not_run)
            who = "1 other policy was" if count == 1 else f"{count} other policies were"
            found.append(f"{who} not run, so the advice does not cover {', '.join(self.not_run)}")
        return ". ".join(found) or None


def way(objective: str, value: float | None, low: float | None, high: float | None) -> float | None:
    """Which part of the way from `low` to `high` the value is; None if that is hardly a way."""
    if value is None or low is None or high is None:
        return None
    if OBJECTIVES[objective].gain(high, low) < WAY:
        return None
    return (value - low) / (high - low)


def decide(
    contenders: Sequence[Contender],
    *,
    objective: str,
    trials: int,
    policy: str,
    static_hot: Contender | None = None,
    seeds: Sequence[int] = (),
    stream_seeds: Sequence[int] = (),
    references: dict[str, float] | None = None,
    untuned: dict[str, float] | None = None,
    not_run: Sequence[str] = (),
    doubts: Sequence[str] = (),
    constraints: Constraints | None = None,
) -> Verdict:
    """What to do. Of the contenders that break no constraint, the simplest one wins that the
    fastest one does not beat beyond chance, if it beats those simpler than itself beyond chance.
    The search's best has to be as fast on the mean as another policy's defaults, which are no more
    complicated.

    Args:
        contenders: simplest first; those that never succeeded do not take part.
        policy: whose best configuration the verdict is about.
        static_hot: the reference, on the same seeds.
        references, untuned, not_run, doubts, constraints: passed on, as the seeds are.
    """
    known: dict[str, Any] = {
        "objective": objective,
        "trials": trials,
        "seeds": list(seeds),
        "stream_seeds": list(stream_seeds),
        "references": references or {},
        "untuned": untuned or {},
        "not_run": list(not_run),
        "doubts": list(doubts),
        "constraints": constraints,
        "contenders": list(contenders),
    }
    able = [contender for contender in contenders if contender.mean is not None]
    own = [c for c in able if c.policy == policy]
    default, best = _find(own, Kind.untuned), _find(own, Kind.tuned)
    off = _find(able, Kind.off)
    top = best or default
    if top is None:
        return Verdict(
            advice=Advice.nothing, headline=f"no result: {policy} did not run to its end", **known
        )
    others = [c for c in able if c.kind is Kind.untuned and c.policy != policy]
    other = _best(others, objective) if others else None

    def over(contender: Contender | None) -> Difference | None:
        return None if contender is None else difference(top, contender, objective)

    first_touch, standing = over(off), None
    if off is not None and static_hot is not None:
        standing = way(objective, top.mean, off.mean, static_hot.mean)
    usable = [contender for contender in able if contender.usable]
    chosen = _choose(usable, objective) if usable else None
    gain = over(default) if best is not None else None
    if chosen is None:
        headline = f"no result: {_unusable(able, policy, trials, constraints)}"
    elif chosen.kind is not Kind.tuned and _excluded(own, constraints):
        headline = f"{_simply(chosen, policy)}: {_unusable(own, policy, trials, constraints)}"
    else:
        headline = _headline(chosen, able, policy, objective, trials, standing)
        if constraints is not None and chosen.kind is Kind.tuned:
            headline += f"; it meets {constraints.text}"
    return Verdict(
        advice=Advice.nothing if chosen is None else _advice(chosen, policy),
        headline=headline,
        gain=gain,
        over_first_touch=first_touch,
        over_untuned=over(other),
        best_untuned=None if other is None else other.policy,
        way=standing,
        **known,
    )


def chosen(verdict: Verdict) -> Contender | None:
    """The contender that the advice is about; None if nothing ran."""
    able = [contender for contender in verdict.contenders if contender.usable]
    return _choose(able, verdict.objective) if able else None


def merge(verdicts: Sequence[tuple[str, Verdict]]) -> Verdict:
    """One verdict on several policies' studies of the same seeds, by policy in the order of asking:
    contenders are everything that one of them ran."""
    found: dict[tuple[Kind, str, int], Contender] = {}
    for kind in Kind:
        for _, verdict in verdicts:
            for contender in verdict.contenders:
                if contender.kind is kind:
                    key = (kind, contender.policy, contender.page_bytes)
                    found.setdefault(key, contender)
    contenders = list(found.values())
    first, *_ = verdicts
    most = max((v for _, v in verdicts), key=lambda v: len(v.seeds))
    tuned = [c for c in contenders if c.kind is Kind.tuned and c.mean is not None]
    objective = first[1].objective
    untuned: dict[str, float] = {}
    for _, verdict in reversed(verdicts):
        untuned |= verdict.untuned
    usable = [contender for contender in tuned if contender.usable] or tuned
    policy = _best(usable, objective).policy if usable else first[0]
    bounded = [v.constraints for _, v in verdicts if v.constraints is not None]
    ran = {contender.policy for contender in contenders} | set(untuned)
    verdict = decide(
        contenders,
        objective=objective,
        trials=sum(v.trials for _, v in verdicts),
        policy=policy,
        seeds=most.seeds,
        stream_seeds=most.stream_seeds,
        untuned=untuned,
        not_run=[name for name in first[1].not_run if name not in ran],
        doubts=list(dict.fromkeys(doubt for _, v in verdicts for doubt in v.doubts)),
        constraints=Constraints(
            policy=policy,
            constraints=bounded[0].constraints,
            met_by=sum(each.met_by for each in bounded),
        )
        if bounded
        else None,
    )
    same = next(v for name, v in verdicts if name == policy)
    return verdict.model_copy(update={"way": same.way, "references": same.references})


# --- The choice -----------------------------------------------------------------------------------


def _find(
    contenders: Sequence[Contender], kind: Kind, policy: str | None = None
) -> Contender | None:
    return next(
        (c for c in contenders if c.kind is kind and policy in (None, c.policy)),
        None,
    )


def _best(contenders: Sequence[Contender], objective: str) -> Contender:
    def cost(contender: Contender) -> float:
        assert contender.mean is not None
        return OBJECTIVES[objective].cost(contender.mean)

    return min(contenders, key=cost)


def _choose(able: Sequence[Contender], objective: str) -> Contender:
    fastest = _best(able, objective)
    simpler: list[Contender] = []
    for contender in able:
        gain = difference(fastest, contender, objective)
        if contender is fastest or gain is None:
            return contender
        # Of the search's best and another policy's defaults neither is simpler.
        as_simple = contender.kind is Kind.tuned and fastest.kind is not Kind.tuned
        behind = gain.certain or (as_simple and gain.left_to_chance)
        if not behind and all(_certain(contender, one, objective) for one in simpler):
            return contender
        simpler.append(contender)
    return fastest


def _certain(better: Contender, worse: Contender, objective: str) -> bool:
    gain = difference(better, worse, objective)
    return gain is not None and gain.certain


def left_to_chance(verdict: Verdict) -> bool:
    """Whether more seeds may change the advice: how far the fastest contender is ahead of a simpler
    one, or of the one that is advised, is left to chance."""
    chosen, objective = verdict.chosen, verdict.objective
    if chosen is None:
        return False
    able = [contender for contender in verdict.contenders if contender.usable]
    fastest = _best(able, objective)
    others = [each for each in able[: able.index(chosen) + 1] if each is not fastest]
    gains = [difference(fastest, each, objective) for each in others]
    return any(gain and gain.left_to_chance for gain in gains)


def _advice(chosen: Contender, policy: str) -> Advice:
    if chosen.kind is Kind.off:
        return Advice.leave_off
    if chosen.kind is Kind.tuned:
        return Advice.use_best
    return Advice.keep_default if chosen.policy == policy else Advice.use_untuned


def _excluded(own: Sequence[Contender], constraints: Constraints | None) -> bool:
    """Whether a constraint, and not the objective alone, keeps the search's best from being
    advised: no trial meets it, or the best does not on other seeds."""
    found = [c for c in own if c.kind is Kind.tuned] or own
    return (constraints is not None and not constraints.met_by) or any(c.broken for c in found)


def _simply(chosen: Contender, policy: str) -> str:
    if chosen.kind is Kind.off:
        return "leave tiering off"
    if chosen.policy == policy:
        return f"keep the defaults of {policy}"
    return f"use {chosen.policy} with its default knobs (--policy {chosen.policy})"


def _unusable(
    contenders: Sequence[Contender], policy: str, trials: int, constraints: Constraints | None
) -> str:
    """Why the search has nothing to use."""
    if constraints is not None and not constraints.met_by:
        return f"none of {trials} trials meets {constraints.text}"
    tuned = _find([c for c in contenders if c.policy == policy], Kind.tuned)
    broken = tuned or _find(contenders, Kind.untuned, policy)
    if broken is None or not broken.broken:
        return f"nothing that ran meets {constraints.text if constraints else ''}"
    which = " and ".join(f"{each.constraint}: {each}" for each in broken.broken)
    who = f"the best of {trials} trials" if tuned else "the best trial, the default,"
    return f"{who} breaks on held-out seeds {which}"


def _headline(
    chosen: Contender,
    able: Sequence[Contender],
    policy: str,
    objective: str,
    trials: int,
    standing: float | None,
) -> str:
    tuned = [c for c in able if c.kind is Kind.tuned]
    rivals = tuned or [c for c in able if c.kind is Kind.untuned and c.policy == policy]
    rival = _best(rivals, objective)
    search = f"the best of {trials} trials"
    who, whom = _named(chosen, rival)
    if len(tuned) < 2 and chosen.page_bytes == rival.page_bytes:
        whom = search
    if chosen.kind is Kind.off:
        return f"leave tiering off: {_against(chosen, rival, objective, who, whom)}"
    if chosen.kind is Kind.tuned:
        reasons = _reasons(chosen, able, objective, standing)
        what = f"{chosen.study}/best.yaml ({who})" if len(tuned) > 1 else "best.yaml"
        nothing = "; it moves no page: it turns tiering off" if chosen.moved == 0 else ""
        return f"use {what}: {', '.join(reasons)}{nothing}"
    if not tuned and chosen.policy == policy:
        return f"keep the defaults of {policy}: none of {trials} trials was better"
    if chosen.policy == policy:
        text = _against(chosen, rival, objective, "the default", whom)
        return f"keep the defaults of {chosen.policy}: {text}"
    gain = difference(chosen, rival, objective)
    _, whom = _named(chosen, rival)
    text = f"use {_untuned(chosen, rival)}"
    text += f": {_faster(gain, objective)} than {whom}" if gain else ""
    off = _find(able, Kind.off)
    loss = off and difference(off, rival, objective)
    if off and loss and loss.certain:
        text += f", which {off.name} beats too ({_faster(loss, objective)})"
    return text


def _reasons(
    chosen: Contender, able: Sequence[Contender], objective: str, standing: float | None
) -> list[str]:
    """Over which other choices a tuned one is how much better."""
    others = [c for c in able if c.kind is Kind.tuned and c is not chosen]
    over = []
    if others:
        second = _best(others, objective)
        over.append((second, _named(chosen, second)[1]))
    if default := _find(able, Kind.untuned, chosen.policy):
        over.append((default, "its default" if others else "the default"))
    off = _find(able, Kind.off)
    if off is not None and standing is None:
        over.append((off, _named(chosen, off)[1]))
    found = [(difference(chosen, other, objective), name) for other, name in over]
    reasons = [f"{_faster(gain, objective)} than {name}" for gain, name in found if gain]
    if standing is not None:
        part = f"{standing:.1f} times" if standing > 1 else f"{100 * standing:.0f} % of"
        reasons.append(f"{part} static-hot's gain over first-touch")
    return reasons


def _named(one: Contender, other: Contender) -> tuple[str, str]:
    """Their names, with their pages if those differ."""
    if one.page_bytes == other.page_bytes:
        return one.name, other.name
    first, second = (f"{c.name} with {page_size(c.page_bytes)} pages" for c in (one, other))
    return first, second


def _untuned(chosen: Contender, rival: Contender) -> str:
    """Which policy as it comes, and the options that say so: there is no file to use."""
    pages, options = "", f"--policy {chosen.policy}"
    if chosen.page_bytes != rival.page_bytes:
        pages = f" and {page_size(chosen.page_bytes)} pages"
        options += f" --page-bytes {chosen.page_bytes}"
    return f"{chosen.policy} with its default knobs{pages} ({options})"


def _against(chosen: Contender, rival: Contender, objective: str, who: str, whom: str) -> str:
    """What is to be said when the simpler one is chosen: that it is better, or at least not worse
    beyond chance."""
    gain = difference(chosen, rival, objective)
    if gain is not None and gain.certain:
        return f"{who} is {_faster(gain, objective)} than {whom}"
    back = difference(rival, chosen, objective)
    if back is None:
        return f"nothing shows that {whom} is better than {who}"
    return f"{whom} is not measurably better than {who} ({_faster(back, objective)})"


def _faster(gain: Difference, objective: str) -> str:
    return faster(gain.gain, gain.half_width, objective)
