# SPDX-License-Identifier: MIT
"""What a map runs: every policy, and first-touch, at each place of a grid over fast tier, skew,
drift and machine. Streams are the kernel drift's, of which parameters are set here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner import engine
from tuner.compare import cells
from tuner.compare.cells import Cell, Comparison, Row
from tuner.declarations import PolicyDecl
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.errors import UserError, brief
from tuner.experiment.checks import OFF
from tuner.limits import fast_share
from tuner.model import content_hash
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.scenario import options

WORKLOAD = "drift"

MOST_DRIFT = 1e6
"""In 10^9 accesses: far more than a run has."""
NEVER = "never"
"""A drift of 0: the window stays."""


@dataclass(frozen=True)
class Axes:
    """Values of the four axes; a drift is the 10^9 accesses in which the hot window has gone."""

    ratios: Sequence[str]
    skews: Sequence[float]
    drifts: Sequence[float]
    machines: Sequence[str]


@dataclass(frozen=True)
class Place:
    """A place of the grid without its ratio. Places of one stream are derived from together, or
    held out together."""

    machine: str
    skew: float
    drift: float
    held_out: bool

    @property
    def label(self) -> str:
        return f"{WORKLOAD}, {self.skew:g} hot, {drift_text(self.drift)}, {self.machine}"


@dataclass(frozen=True)
class Plan:
    """A map: its comparison has a workload for each place, and others that are only judged."""

    axes: Axes
    hot_gib: float
    memory_gib: float
    accesses_g: float
    places: Mapping[str, Place]  # by the comparison's workload
    comparison: Comparison
    others: Sequence[str] = field(default_factory=list)

    @property
    def policies(self) -> list[Row]:
        return [row for row in self.comparison.rows if not row.reference]

    def fast_over_hot(self, ratio: str) -> float:
        """Size of the fast tier in hot windows."""
        return fast_share(ratio) * self.memory_gib / self.hot_gib if self.hot_gib else math.inf


def drift_text(drift: float) -> str:
    return f"{drift:g} G" if drift else NEVER


# --- Values of the axes ---------------------------------------------------------------------------


def axes(ratios: str, skews: str, drifts: str, machines: str) -> Axes:
    """From words with commas. UserError for what does not fit."""
    return Axes(
        ratios=[_ratio(word) for word in _words("--ratios", ratios)],
        skews=_numbers("--skews", skews, most=1.0),
        drifts=_numbers("--drifts", drifts, most=MOST_DRIFT, names={NEVER: 0.0}),
        machines=_words("--machines", machines),
    )


def _words(option: str, text: str) -> list[str]:
    found = list(dict.fromkeys(text.split(",")))
    if "" in found:
        raise UserError(
            f"{option}: found '{brief(text)}'; must be a list with commas, without spaces"
        )
    return found


def _ratio(word: str) -> str:
    try:
        return str(options()["ratio"].check(word))
    except ValueError as error:
        raise UserError(f"--ratios: found '{brief(word)}'; {error}") from error


def _numbers(
    option: str, text: str, *, most: float, names: Mapping[str, float] | None = None
) -> list[float]:
    """In ascending order, 0 (never) after all others."""
    found = []
    for word in _words(option, text):
        try:
            value = (names or {}).get(word)
            value = float(word) if value is None else value
        except ValueError:
            value = math.nan
        if not 0 <= value <= most:
            also = "".join(f", or {name}" for name in names or {})
            raise UserError(
                f"{option}: found '{brief(word)}'; must be between 0 and {most:g}{also}"
            )
        found.append(value)
    return sorted(dict.fromkeys(found), key=lambda value: (bool(names) and not value, value))


# --- The plan -------------------------------------------------------------------------------------


def plan(
    policies: Sequence[PolicyDecl],
    axes: Axes,
    *,
    input: str | None,
    others: Sequence[tuple[str, str | None]],
    seeds: int,
    deadline: float,
    name: str | None,
    given: Mapping[str, Any],
) -> Plan:
    """UserError for what does not exist or does not fit.

    All policies manage pages of one size, 4 KiB unless `given` says otherwise: the map is about
    what promotion does, not about pages. Half of the streams are held out, in the pattern of a
    chessboard over skew and drift, and have another seed.
    """
    given = {"page_bytes": BASE_PAGE_BYTES} | dict(given)
    rows = [Row(policy=each.name, page_bytes=given["page_bytes"]) for each in policies]
    base = Row(policy=OFF, page_bytes=given["page_bytes"])
    if base in rows:
        raise UserError(f"--policies: {OFF} is what all others are compared with; leave it out")
    declared = {each.name: each for each in policies} | {OFF: engine.policy(OFF)}
    shared: dict[str, Any] = {"study": "map", "deadline_seconds": deadline, "input": input}
    places: dict[str, Place] = {}
    found: list[Cell] = []
    parameters: Mapping[str, Any] = {}
    for machine in axes.machines:
        for row in (*rows, base):
            start = {"start": "fast"} if row == base else {}
            own = dict(given) | start | {"machine": machine}
            setting = settings.resolve(WORKLOAD, policy=declared[row.policy], **shared, **own)
            parameters = setting.workload.inputs[setting.scenario.input].parameters
            for i, skew in enumerate(axes.skews):
                for j, drift in enumerate(axes.drifts):
                    held_out = (i + j) % 2 == 1
                    place = Place(setting.machine.name, skew, drift, held_out)
                    places[place.label] = place
                    at = _at(setting, place)
                    found += (Cell(place.label, row, _sized(at, ratio)) for ratio in axes.ratios)
    beside = _others(others, policies, axes.ratios, deadline, given, {*rows, base})
    comparison = Comparison(
        name=settings.checked_name(name or _name(policies, axes, [input, others, seeds, given])),
        workloads=[*places, *dict.fromkeys(cell.workload for cell in beside)],
        ratios=list(axes.ratios),
        rows=[*rows, base],
        base=base,
        seeds=seeds,
        budget=0,
        tune_ratio=axes.ratios[0],
        cells=[*found, *beside],
    )
    return Plan(
        axes=replace(axes, machines=list(dict.fromkeys(p.machine for p in places.values()))),
        hot_gib=_number(parameters, "hot_gib"),
        memory_gib=_number(parameters, "memory_gib"),
        accesses_g=_number(parameters, "accesses_g"),
        places=places,
        comparison=comparison,
        others=list(dict.fromkeys(cell.workload for cell in beside)),
    )


def _at(setting: Setting, place: Place) -> Setting:
    """The setting with an input of its own, which differs in two parameters and the seed."""
    scenario, workload = setting.scenario, setting.workload
    name = f"{scenario.input}-{place.skew:g}-{drift_text(place.drift).replace(' ', '')}"
    input = workload.inputs[scenario.input]
    own = dict(input.parameters) | {"hot_share": place.skew, "turnover_g": place.drift}
    inputs = {name: input.model_copy(update={"parameters": own})}
    seed = (scenario.stream_seed + place.held_out) % 2**63
    return setting.model_copy(
        update={
            "workload": workload.model_copy(update={"inputs": inputs}),
            "scenario": replace(scenario, input=name, stream_seed=seed),
        }
    )


def _sized(setting: Setting, ratio: str) -> Setting:
    """A ratio is of the memory in use, also on machines whose slow tier has a size of its own."""
    input = setting.workload.inputs[setting.scenario.input]
    gib = _number(input.parameters, "memory_gib") * fast_share(ratio)
    scenario = replace(setting.scenario, ratio=ratio, fast_gib=gib)
    return setting.model_copy(update={"scenario": scenario})


def _number(parameters: Mapping[str, Any], name: str) -> float:
    """A parameter, or what the kernel has in its place."""
    if name in parameters:
        return float(parameters[name])
    declared = {each.name: each for each in engine.kernels()[WORKLOAD].parameters}
    found = declared[name].default
    assert isinstance(found, int | float)
    return float(found)


def _others(
    workloads: Sequence[tuple[str, str | None]],
    policies: Sequence[PolicyDecl],
    ratios: Sequence[str],
    deadline: float,
    given: Mapping[str, Any],
    rows: set[Row],
) -> list[Cell]:
    """Cells of other workloads, on their own machines."""
    if not workloads:
        return []
    found = cells.plan(
        workloads,
        [(policy, policy.page_bytes) for policy in policies],
        ratios,
        references={name: engine.policy(name) for name in cells.REFERENCES},
        seeds=1,
        budget=0,
        tune_ratio=ratios[0],
        deadline=deadline,
        name=None,
        given=given,
    )
    return [cell for cell in found.cells if cell.row in rows]


def _name(policies: Sequence[PolicyDecl], axes: Axes, rest: Any) -> str:
    return "-".join([*(each.name for each in policies), content_hash([vars(axes), rest])[:6]])
