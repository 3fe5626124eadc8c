# SPDX-License-Identifier: MIT
"""What a fleet came to: fleet.json, fleet.md and the tables of standard output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.fleet.loop import Member
from tuner.objective import OBJECTIVES
from tuner.pages import page
from tuner.scenario import label
from tuner.study import best as best_file
from tuner.study.contender import Difference, Kind
from tuner.study.verdict import Advice, Verdict, merge
from tuner.text import faster, plural, quantity

WORDS = {
    Advice.use_best: "use best.yaml",
    Advice.keep_default: "keep the default",
    Advice.leave_off: "leave tiering off",
    Advice.use_untuned: "use another policy",
    Advice.nothing: "no result",
}

PLACE = ("workload", "machine", "ratio")


@dataclass(frozen=True)
class Fleet:
    """A fleet in the end."""

    name: str
    budget: int
    members: list[Member]

    @property
    def trials(self) -> int:
        return sum(member.trials for member in self.members)

    @property
    def winners(self) -> list[tuple[tuple[str, ...], Verdict]]:
        """One verdict over the policies of each place that has results, in the plan's order."""
        found: dict[tuple[str, ...], list[tuple[str, Verdict]]] = {}
        for member in self.members:
            if (verdict := _verdict(member)) and verdict.advice is not Advice.nothing:
                policy = member.request.scenario.policy
                found.setdefault(place(member), []).append((policy, verdict))
        return [(where, merge(verdicts)) for where, verdicts in found.items()]

    @property
    def recommends(self) -> bool:
        """Whether a best configuration is worth using anywhere."""
        return any(verdict.advice is Advice.use_best for _, verdict in self.winners)


def place(member: Member) -> tuple[str, ...]:
    """Workload, machine and ratio; the input only if it is not the workload's default."""
    scenario, workload = member.request.scenario, member.request.workload
    name = workload.name
    if scenario.input != workload.default_input:
        name += f":{scenario.input}"
    ratio = f"{scenario.fast_gib:g} GiB" if scenario.fast_gib else scenario.ratio
    return name, label(scenario.machine), ratio


def member_name(member: Member) -> str:
    """silo:smoke on skx at 1:8, memtis"""
    workload, machine, ratio = place(member)
    return f"{workload} on {machine} at {ratio}, {member.request.scenario.policy}"


def _verdict(member: Member) -> Verdict | None:
    return None if member.summary is None else member.summary.verdict


def _mean(member: Member, kind: Kind) -> float | None:
    """On the held-out seeds."""
    verdict = _verdict(member)
    found = verdict and verdict.contender(kind, member.request.scenario.policy)
    return found.mean if found else None


def gain_of(member: Member) -> Difference | None:
    verdict = _verdict(member)
    return None if verdict is None else verdict.gain


# --- As data --------------------------------------------------------------------------------------


def content(fleet: Fleet) -> dict[str, Any]:
    return {
        "fleet": fleet.name,
        "engine_build": fleet.members[0].request.engine_build,
        "budget": fleet.budget,
        "trials": fleet.trials,
        "recommends": fleet.recommends,
        "places": [
            dict(zip(PLACE, where, strict=True)) | _winner(verdict)
            for where, verdict in fleet.winners
        ],
        "studies": [_study(member) for member in fleet.members],
    }


def _winner(verdict: Verdict) -> dict[str, Any]:
    """`best` is the mean of what is advised, on the held-out seeds."""
    chosen = verdict.chosen
    return {
        "advice": verdict.advice,
        "headline": verdict.headline,
        "best_policy": chosen and chosen.policy,
        "best": chosen and chosen.mean,
    }


def _study(member: Member) -> dict[str, Any]:
    request, summary, gain = member.request, member.summary, gain_of(member)
    return {
        "study": request.study,
        **dict(zip(PLACE, place(member), strict=True)),
        "policy": request.scenario.policy,
        "objective": request.scenario.objective,
        "seed": request.scenario.seed,
        "trials": member.trials,
        "failed": sum(value is None for value in member.objectives),
        "default": _mean(member, Kind.untuned),
        "best": _mean(member, Kind.tuned),
        "gain": None if gain is None else gain.model_dump(),
        "advice": Advice.nothing if summary is None else summary.verdict.advice,
        "best_config": None if summary is None else summary.best_config,
        "error": member.error,
        "objectives": member.objectives,
    }


# --- As text --------------------------------------------------------------------------------------


COLUMNS = (*PLACE, "policy", ">trials", ">default", ">best", "best over default", "advice")


def rows(members: Sequence[Member]) -> list[tuple[str, ...]]:
    """By study: means over the held-out seeds, the gain, and what to do."""
    found = []
    for member in members:
        objective, gain = member.request.scenario.objective, gain_of(member)
        unit = OBJECTIVES[objective].unit
        means = [_mean(member, kind) for kind in (Kind.untuned, Kind.tuned)]
        cells = ["-" if mean is None else quantity(mean, unit) for mean in means]
        over = "-" if gain is None else faster(gain.gain, gain.half_width, objective)
        verdict = _verdict(member)
        advice = WORDS[verdict.advice] if verdict else WORDS[Advice.nothing]
        scenario = member.request.scenario
        found.append((*place(member), scenario.policy, str(member.trials), *cells, over, advice))
    return found


def headlines(fleet: Fleet) -> list[str]:
    """What to do at each place, and what went wrong."""
    lines = [
        f"{workload} on {machine} at {ratio}: {verdict.headline}"
        for (workload, machine, ratio), verdict in fleet.winners
    ]
    failed = [member for member in fleet.members if member.error]
    return lines + [f"{member_name(member)}: {member.error}" for member in failed]


def spent(fleet: Fleet) -> str:
    count = plural(len(fleet.members), "study")
    return f"{fleet.trials} of {plural(fleet.budget, 'trial')} by {count}"


def markdown(fleet: Fleet, picture: str) -> str:
    members = fleet.members
    seeds = next((v.seeds for _, v in fleet.winners), [])
    return page(
        "fleet.md",
        name=fleet.name,
        spent=spent(fleet),
        seeds=len(seeds),
        verdicts=((*PLACE, "choice", "verdict"), _verdict_rows(fleet)),
        studies=((*COLUMNS, "configuration"), _linked_rows(members)),
        picture=picture,
        failures=[
            f"{member_name(member)}: {' '.join(member.error.split())}"
            for member in members
            if member.error
        ],
    )


def _verdict_rows(fleet: Fleet) -> list[tuple[str, ...]]:
    found = []
    for where, verdict in fleet.winners:
        chosen = verdict.chosen
        found.append((*where, chosen.name if chosen else "-", verdict.headline))
    return found


def _linked_rows(members: Sequence[Member]) -> list[tuple[str, ...]]:
    found = []
    for member, cells in zip(members, rows(members), strict=True):
        study = member.request.study
        there = member.summary is not None and member.summary.best_config is not None
        path = f"{study}/{best_file.FILE}"
        found.append((*cells, f"[{path}]({path})" if there else "-"))
    return found
