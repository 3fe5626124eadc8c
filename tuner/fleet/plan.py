# SPDX-License-Identifier: MIT
"""FLEET.yaml: which studies a fleet has, and how many trials they share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from tuner.documents.document import Document
from tuner.documents.loader import Key
from tuner.errors import UserError
from tuner.limits import MOST_BUDGET
from tuner.model import Model, Positive
from tuner.scenario import options

MOST_STUDIES = 10_000
LEAST = 2
"""Trials of a study: its default, and one to compare it with."""

Text = Annotated[str, Field(min_length=1)]
Ratio = Annotated[str, options()["ratio"]]
Trials = Annotated[int, Field(ge=1, le=MOST_BUDGET)]


class StudyEntry(Model):
    """A single study. Workloads are W or W:INPUT; what is left out is as in `tune run`."""

    workload: Text
    policy: Text
    machine: Text | None = None
    ratio: Ratio | None = None


class FleetSpec(Model):
    """Each workload on each machine at each ratio under each policy, and the single `studies`."""

    summary: str = ""
    workloads: Annotated[list[Text], Field(min_length=1)] = Field(default_factory=list)
    machines: Annotated[list[Text], Field(min_length=1)] = Field(default_factory=list)
    ratios: Annotated[list[Ratio], Field(min_length=1)] = Field(default_factory=list)
    policies: Annotated[list[Text], Field(min_length=1)] = Field(default_factory=list)
    studies: Annotated[list[StudyEntry], Field(min_length=1)] = Field(default_factory=list)
    budget: Trials
    seed: Annotated[int, options()["seed"]] = 0
    objective: Annotated[str, options()["objective"]] | None = None
    deadline: Positive = 600.0
    explain: bool = False

    @model_validator(mode="after")
    def _has_studies(self) -> FleetSpec:
        if bool(self.workloads) != bool(self.policies):
            have, lack = ("workloads", "policies")[:: 1 if self.workloads else -1]
            raise ValueError(f"{lack}: missing; {have} are combined with it")
        if (self.machines or self.ratios) and not self.workloads:
            what = "machines" if self.machines else "ratios"
            raise ValueError(f"{what}: found without workloads; must come with some")
        if not (self.workloads or self.studies):
            raise ValueError("workloads and policies, or studies: missing")
        return self


@dataclass(frozen=True)
class Cell:
    """What a study is made from; `keys` are the places in the document of what it names."""

    workload: str
    policy: str
    machine: str | None
    ratio: str | None
    keys: Mapping[str, Key]


@dataclass(frozen=True)
class Plan:
    document: Document
    spec: FleetSpec
    cells: list[Cell]

    def complain(self, key: Key, message: str) -> UserError:
        return UserError(self.document.complaint(key, message))


def read(path: Path) -> Plan:
    """UserError naming file, line and key if it is no plan of a fleet."""
    document = Document.read(path)
    spec = document.parse(FleetSpec)
    plan = Plan(document, spec, _cells(spec))
    count = len(plan.cells)
    if count > MOST_STUDIES:
        wrong = f"found {count:,} studies; must be at most {MOST_STUDIES:,}"
        raise plan.complain(("workloads",), wrong)
    if spec.budget < count * LEAST:
        raise plan.complain(
            ("budget",),
            f"found {spec.budget}; must be at least {count * LEAST}: {LEAST} trials for each of "
            f"{count} studies",
        )
    return plan


def _cells(spec: FleetSpec) -> list[Cell]:
    named: dict[str, tuple[str, Sequence[Any]]] = {
        "workload": ("workloads", spec.workloads),
        "machine": ("machines", spec.machines or [None]),
        "ratio": ("ratios", spec.ratios or [None]),
        "policy": ("policies", spec.policies),
    }
    lists: dict[str, list[tuple[Any, Key]]] = {
        name: [(value, (place, index)) for index, value in enumerate(values)]
        for name, (place, values) in named.items()
    }
    found = [
        Cell(
            **{name: value for name, (value, _) in zip(lists, chosen, strict=True)},
            keys={name: key for name, (_, key) in zip(lists, chosen, strict=True)},
        )
        for chosen in itertools.product(*lists.values())
    ]
    for index, entry in enumerate(spec.studies):
        keys = {name: ("studies", index, name) for name in StudyEntry.model_fields}
        found.append(Cell(**entry.model_dump(), keys=keys))
    return found
