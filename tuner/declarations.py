"""What the engine declares: policies with their knobs, and kernels with their parameters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tuner.model import Model

KnobValue = bool | int | float | str
ParameterValue = bool | int | float | str | list[float]


class KnobCondition(Model):
    """The knob acts only while `parent` has one of `values`."""

    parent: str
    values: list[KnobValue]


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


class PolicyDecl(Model):
    name: str
    family: str
    summary: str
    citation: str
    traits: dict[str, Any] = Field(default_factory=dict)
    knobs: list[KnobDecl]

    @property
    def page_bytes(self) -> int:
        """The managed page that the publication uses."""
        return int(self.traits["page_bytes"])

    @property
    def profiled(self) -> bool:
        """Whether it goes by a placement, which a profiling run makes."""
        return bool(self.traits.get("profiled", False))

    @property
    def seeded(self) -> bool:
        """Whether its results depend on a run's seed. Those of placements that watch nothing do
        not."""
        return self.traits.get("needs", "samples") not in ("", "accesses of the whole run")

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
