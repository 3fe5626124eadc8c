# SPDX-License-Identifier: MIT
"""What a sizing runs: configurations of policies, and first-touch, each on any size of fast memory,
beside all-fast and all-slow with the same pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner import engine
from tuner.compare.cells import Row
from tuner.declarations import KnobValue, PolicyDecl
from tuner.errors import UserError
from tuner.experiment import jobs
from tuner.experiment.checks import OFF
from tuner.limits import MOST_GIB
from tuner.model import content_hash
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.run.trial import Trial
from tuner.scenario import Scenario, defaults
from tuner.size.search import SEARCH_SEED
from tuner.study import replay
from tuner.study.best import BestConfiguration

FAST, SLOW = "all-fast", "all-slow"

LEAST_FAST_PAGES = 256
"""Simulated pages of a fast tier, or mappings of huge ones, below which the engine refuses a run as
too coarse (engine/sim/scale.hpp)."""

HUGE_PAGE_BYTES = 2 << 20

VARIED = ("ratio", "fast_gib", "placement", "repeats", "seed")
"""Fields of a configuration's scenario that are no conditions here."""


@dataclass(frozen=True)
class Prices:
    """Of a GiB, in any currency."""

    fast: float
    slow: float

    def of(self, fast_gib: float, whole_gib: float) -> float:
        """What so much fast memory costs, and slow memory for the rest."""
        return fast_gib * self.fast + (whole_gib - fast_gib) * self.slow


@dataclass(frozen=True)
class Configuration:
    """A policy at its defaults or tuned; `source` is the file of the tuned knobs."""

    row: Row
    setting: Setting
    knobs: Mapping[str, KnobValue]
    source: str | None = None

    @property
    def unit_gib(self) -> float:
        """Full-scale size of what fast memory is counted in: a simulated page, or what a huge one
        maps where pages are mixed."""
        scenario = self.setting.scenario
        mixed = scenario.pages == "mixed"
        return (HUGE_PAGE_BYTES if mixed else scenario.page_bytes) * scenario.scale / 2**30

    @property
    def least(self) -> int:
        """Units that a run needs at least."""
        coarse = self.setting.workload.inputs[self.setting.scenario.input].coarse
        return 1 if coarse else LEAST_FAST_PAGES

    def trial(self, size: int, seed: int) -> Trial:
        return _trial(self.setting, self.knobs, size * self.unit_gib, seed)


@dataclass(frozen=True)
class Plan:
    """`references` are all-fast and all-slow by the size of their pages; `seeds` are held out."""

    name: str
    bound: float
    seeds: Sequence[int]
    configurations: Sequence[Configuration]
    references: Mapping[int, tuple[Setting, Setting]]
    prices: Prices | None = None

    @property
    def setting(self) -> Setting:
        """Conditions that all share."""
        return self.configurations[0].setting

    def reference(self, page_bytes: int) -> tuple[Trial, Trial]:
        """Both with more fast memory than there can be, of which the one uses all that it needs and
        the other none: neither is ever too coarse."""
        fast, slow = self.references[page_bytes]
        return (
            _trial(fast, {}, float(MOST_GIB), SEARCH_SEED),
            _trial(slow, {}, float(MOST_GIB), SEARCH_SEED),
        )


def _trial(setting: Setting, knobs: Mapping[str, KnobValue], gib: float, seed: int) -> Trial:
    """With the workload's objective, so that whoever asks for another shares the run."""
    scenario = replace(setting.scenario, ratio=Scenario.ratio, fast_gib=gib)
    own = engine.resolve(setting.policy.name, dict(knobs))
    sized = setting.model_copy(update={"scenario": scenario})
    return jobs.seeded(sized, own, seed, setting.workload.objective)


def plan(
    workload: str,
    policies: Sequence[PolicyDecl],
    tuned: Mapping[str, tuple[str, BestConfiguration]],
    *,
    bound: float,
    seeds: int,
    deadline: float,
    name: str | None,
    prices: Prices | None,
    given: Mapping[str, Any],
) -> Plan:
    """UserError for what does not exist or does not fit. `tuned` has files and what they say, by
    policy. Seeds that a tuned configuration's study has used are not held out."""
    for policy in policies:
        if policy.name in (FAST, SLOW, OFF):
            why = "is always a row" if policy.name == OFF else "has no size of fast memory"
            raise UserError(f"--policy: {policy.name} {why}; leave it out")
    shared: dict[str, Any] = {"study": "size", "deadline_seconds": deadline} | dict(given)

    def resolved(policy: PolicyDecl, **own: Any) -> Setting:
        return settings.resolve(workload, policy=policy, **shared | own)

    found: list[Configuration] = []
    for policy in policies:
        setting = resolved(policy)
        row = Row(policy=policy.name, page_bytes=setting.scenario.page_bytes)
        found.append(Configuration(row, setting, {}))
        if policy.name in tuned:
            source, best = tuned[policy.name]
            placed = resolved(policy, placement=best.scenario.placement)
            knobs = replay.knobs_of(source, best)
            row = row.model_copy(update={"tuned": True})
            found.append(Configuration(row, placed, knobs, source))
    references: dict[int, tuple[Setting, Setting]] = {}
    off: list[Configuration] = []
    for size in dict.fromkeys(each.row.page_bytes for each in found):
        own = {"page_bytes": size, "start": "fast"}
        references[size] = (
            resolved(engine.policy(FAST), **own),
            resolved(engine.policy(SLOW), **own),
        )
        row = Row(policy=OFF, page_bytes=size)
        off.append(Configuration(row, resolved(engine.policy(OFF), **own), {}))
    return Plan(
        name=settings.checked_name(name or _name(found, off, bound, [seeds, dict(given)])),
        bound=bound,
        seeds=_held_out(seeds, [best for _, best in tuned.values()]),
        configurations=[*off, *found],
        references=references,
        prices=prices,
    )


def _held_out(count: int, tuned: Sequence[BestConfiguration]) -> list[int]:
    """The first seeds that no study of the tuned configurations has searched on."""
    used = {
        best.scenario.seed + repeat for best in tuned for repeat in range(best.scenario.repeats)
    }
    return [seed for seed in range(count + len(used)) if seed not in used][:count]


def conditions(best: BestConfiguration, setting: Setting) -> dict[str, Any]:
    """The fields of a configuration's scenario that are conditions and no defaults. `setting` is
    that scenario's."""
    scenario = best.scenario
    own = defaults(setting.workload, setting.policy, scenario.input)
    return {
        name: value
        for name, value in scenario.plain().items()
        if name not in (*VARIED, "workload", "policy") and value != own[name]
    }


def _name(
    found: Sequence[Configuration], off: Sequence[Configuration], bound: float, rest: Any
) -> str:
    """Made from what is asked; what has no place in it counts by its hash."""
    scenario, workload = off[0].setting.scenario, off[0].setting.workload
    input = [] if scenario.input == workload.default_input else [scenario.input]
    policies = list(dict.fromkeys(each.row.policy for each in found))
    shown = policies if len(policies) <= 4 else [f"{len(policies)}policies"]
    tuned = sorted(f"{each.row.name}: {content_hash(each.knobs)}" for each in found if each.source)
    mark = content_hash([policies, tuned, off[0].setting.machine.name, rest])[:6]
    return "-".join([workload.name, *input, *shown, f"{100 * bound:g}percent", mark])
