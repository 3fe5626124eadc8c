# SPDX-License-Identifier: MIT
"""What a configuration still gains at another ratio than it was searched at, where that was
measured: in `results/compare-tuned`, which a checkout has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.compare import earlier
from tuner.files import shipped
from tuner.scenario import Scenario, declared_defaults
from tuner.study.best import BestConfiguration
from tuner.study.verdict import Contender, Difference, Kind, difference
from tuner.text import faster

FILE = "compare-tuned/compare.json"


def sentence(here: Scenario, recorded: BestConfiguration) -> str:
    """What such a transfer has cost in a comparison; that it is not known, where none has it."""
    there = recorded.scenario
    unknown = "What the transfer costs is not known; `tune check FILE` measures what it gains here"
    path = shipped(f"results/{FILE}", FILE)
    only = replace(here, ratio=there.ratio).comparable() == there.comparable()
    if here.ratio == there.ratio or not only or not path.is_file():
        return unknown
    gains = measured(earlier.read(path), there, here.ratio)
    if gains is None:
        return unknown
    at_home, away = (faster(g.gain, g.half_width, there.objective) for g in gains)
    return (
        f"Measured with another configuration of {there.policy}, searched at {there.ratio} on this "
        f"workload: {at_home} than the default there, {away} at {here.ratio} (results/{FILE})"
    )


def measured(
    content: Mapping[str, Any], there: Scenario, ratio: str
) -> tuple[Difference, Difference] | None:
    """The gains of a configuration that was searched in `there` over the default, in it and at
    another ratio. None if the comparison (a compare.json) has no such search, or lacks a gain."""
    if not content["tuned"] or content["tuned"].get("ratio") != there.ratio:
        return None
    at_home, away = (_gain(content, replace(there, ratio=each)) for each in (there.ratio, ratio))
    return (at_home, away) if at_home and away else None


def _gain(content: Mapping[str, Any], scenario: Scenario) -> Difference | None:
    wanted, usual = earlier.conditions(scenario), declared_defaults()
    name = scenario.named()["workload"]
    names = (name, f"{name}:{scenario.input}")
    found: dict[bool, Contender] = {}
    for cell in content["cells"]:
        if cell["workload"] in names and all(
            cell.get(k, usual.get(k)) == v for k, v in wanted.items()
        ):
            kind = Kind.tuned if cell["tuned"] else Kind.untuned
            found[cell["tuned"]] = Contender(
                kind=kind,
                policy=scenario.policy,
                page_bytes=scenario.page_bytes,
                values=cell["objectives"],
            )
    if set(found) != {False, True} or len(found[True].values) != len(found[False].values):
        return None
    return difference(found[True], found[False], scenario.objective)
