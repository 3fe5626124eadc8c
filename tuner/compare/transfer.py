# SPDX-License-Identifier: MIT
"""What configurations gain where they were not searched, as far as that is published.

`results/transfer.json` has it for each kind of difference: published configurations, at home and
elsewhere. `results/compare-tuned`, which a checkout has, tells of another ratio what it was for the
same policy on the same workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.compare import earlier
from tuner.documents.transfer import Differs, costs, published
from tuner.files import shipped
from tuner.run.settings import Setting
from tuner.scenario import Scenario, declared_defaults, flag
from tuner.study.best import BestConfiguration
from tuner.study.contender import Contender, Difference, Kind, difference
from tuner.text import faster

RATIOS = "compare-tuned/compare.json"
ASK = "`tune check FILE` measures what it gains here"


def kinds(here: Setting, recorded: BestConfiguration) -> list[Differs]:
    """What differs of that for which something is published."""
    then, prints = recorded.provenance, recorded.provenance.fingerprints
    now, before = here.scenario.comparable(), recorded.scenario.comparable()

    def other(*names: str) -> bool:
        return any(now.get(name) != before.get(name) for name in names)

    found = {
        Differs.ratio: other("ratio", "fast_gib"),
        Differs.machine: other("machine") or here.machine.fingerprint() != prints.machine,
        Differs.workload: other("workload", "input", "sizes", "stream_seed")
        or here.workload.fingerprint() != prints.workload
        or then.stream_maker not in (None, here.stream_maker),
        Differs.kernel: here.scenario.substrate != recorded.scenario.substrate
        or prints.command is not None,
        Differs.build: then.engine_build != here.engine_build,
    }
    return [kind for kind, differs in found.items() if differs]


def sentence(here: Setting, recorded: BestConfiguration, ask: str = ASK) -> str:
    """What such a transfer has cost others, and of which differences nothing is published."""
    found = kinds(here, recorded)
    parts = [costs(found)]
    if Differs.ratio in found:
        parts += _at_that_ratio(here.scenario, recorded.scenario)
    unknown = [str(kind) for kind in found if kind not in published().differences]
    if unknown := [*unknown, *_others(here.scenario, recorded.scenario)]:
        parts.append(f"What another {' and '.join(unknown)} costs is not published")
    return ". ".join(filter(None, [*parts, ask]))


KNOWN = ("workload", "input", "sizes", "stream_seed", "machine", "ratio", "fast_gib", "substrate")


def _others(here: Scenario, there: Scenario) -> list[str]:
    now, before = here.comparable(), there.comparable()
    return [flag(name) for name in before if name not in KNOWN and now.get(name) != before[name]]


def _at_that_ratio(here: Scenario, there: Scenario) -> list[str]:
    """What it was on this workload, under these conditions."""
    path = shipped(f"results/{RATIOS}", RATIOS)
    if replace(here, ratio=there.ratio).comparable() != there.comparable() or not path.is_file():
        return []
    if (gains := measured(earlier.read(path), there, here.ratio)) is None:
        return []
    at_home, away = (faster(g.gain, g.half_width, there.objective) for g in gains)
    return [
        f"Another configuration of {there.policy}, searched at {there.ratio} on this workload: "
        f"{at_home} than the default there, {away} at {here.ratio} (results/{RATIOS})"
    ]


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
