# SPDX-License-Identifier: MIT
"""What the engine declares: policies with their knobs, and kernels with their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from tuner.model import Model

KnobValue = bool | int | float | str
ParameterValue = bool | int | float | str | list[float]


class KnobCondition(Model):
    """The knob acts only while `parent` has one of `values`."""

    parent: str
    values: list[KnobValue]

    def __str__(self) -> str:
        """As the command line sets it: placement=profile."""
        return f"{self.parent}={' or '.join(map(str, self.values))}"


class KnobDecl(Model):
    """A knob as its policy declares it (limits are inclusive), or narrowed by a space."""

    name: str
    type: Literal["integer", "real", "boolean", "choice"]
    default: KnobValue
    min: float | None = None
    max: float | None = None
    log: bool = False
    unit: str = ""
    meaning: str = ""
    source: str = ""
    choices: list[str] = Field(default_factory=list)
    condition: KnobCondition | None = None

    @property
    def values(self) -> list[KnobValue]:
        """All that a flag or a choice can be."""
        return [False, True] if self.type == "boolean" else list(self.choices)


class PolicyDecl(Model):
    name: str
    family: str
    summary: str
    citation: str
    addresses: list[str] = Field(default_factory=list)  # of what is cited: DOIs, or pages
    traits: dict[str, Any] = Field(default_factory=dict)
    knobs: list[KnobDecl]

    @property
    def page_bytes(self) -> int:
        """The managed page that the publication uses."""
        return int(self.traits["page_bytes"])

    @property
    def profiled(self) -> bool:
        """Whether it goes by a placement, which a profiling run makes, with some knobs at least."""
        return bool(self.traits.get("profiled", False))

    @property
    def profiled_when(self) -> KnobCondition | None:
        """What knobs it takes; None if any."""
        found = self.traits.get("profiled_when")
        return KnobCondition.model_validate(found) if found else None

    def goes_by_placement(self, knobs: Mapping[str, KnobValue]) -> bool:
        """Whether it does with these, which are all of its knobs."""
        return self.profiled and self.unmet(self.profiled_when, knobs) is None

    def unmet(
        self, condition: KnobCondition | None, knobs: Mapping[str, KnobValue]
    ) -> KnobCondition | None:
        """What does not hold of a condition and those of the knobs that it names, the outermost
        first; None if all of it holds."""
        if condition is None:
            return None
        parent = self.knob(condition.parent)
        assert parent is not None
        if outer := self.unmet(parent.condition, knobs):
            return outer
        return None if knobs[parent.name] in condition.values else condition

    def never_met(
        self, condition: KnobCondition | None, tuned: Sequence[KnobDecl]
    ) -> KnobCondition | None:
        """As `unmet`, where these knobs take any of their values, and the others their default."""
        if condition is None:
            return None
        parent = self.knob(condition.parent)
        assert parent is not None
        if outer := self.never_met(parent.condition, tuned):
            return outer
        taken = next((knob.values for knob in tuned if knob.name == parent.name), [parent.default])
        return None if set(taken) & set(condition.values) else condition

    def others(
        self, tuned: Sequence[KnobDecl], knobs: Mapping[str, KnobValue] | None = None
    ) -> list[KnobDecl]:
        """The knobs that are not tuned; with these values, where there are any, for defaults."""
        names = {knob.name for knob in tuned}
        return [
            knob.model_copy(update={"default": (knobs or {}).get(knob.name, knob.default)})
            for knob in self.knobs
            if knob.name not in names
        ]

    @property
    def seeded(self) -> bool:
        """Whether its results depend on a run's seed. Those of placements that watch nothing do
        not."""
        watched = set(str(self.traits.get("needs", "samples")).split(", "))
        return bool(watched - {"", "accesses of the whole run", "placement of first touches"})

    def knob(self, name: str) -> KnobDecl | None:
        return next((knob for knob in self.knobs if knob.name == name), None)


class EstimateDecl(Model):
    """A figure of the machine that nobody measured, and the range in which it plausibly lies.

    `name` is its place in a machine's document, such as tiering.hint_fault_us. A document may leave
    it out if the engine has a default. `relative`: the range is in multiples of the machine's own
    value.
    """

    name: str
    default: float | None
    low: float
    high: float
    relative: bool
    source: str


class ParameterDecl(Model):
    name: str
    default: ParameterValue
    unit: str = ""
    meaning: str = ""


class KernelDecl(Model):
    name: str
    summary: str
    parameters: list[ParameterDecl]
