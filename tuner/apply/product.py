# SPDX-License-Identifier: MIT
"""What a target gets: files, and what there is to know of each knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field

from tuner.declarations import KnobValue, PolicyDecl
from tuner.model import Model
from tuner.text import exact


class How(StrEnum):
    exact = "exact"
    converted = "converted"
    same = "as it is anyway"
    lost = "not settable"


class Row(Model):
    """What becomes of a knob: `written` is what stands at the places `to`; `note` is the reason
    where there is none. `worth` is what the study knows of a knob that is lost."""

    knob: str
    value: KnobValue
    how: How
    to: list[str] = Field(default_factory=list)
    written: list[str] = Field(default_factory=list)
    note: str = ""
    worth: str = ""


@dataclass(frozen=True)
class Product:
    """`files` by name, the script first. `needs`, `notes`, `undo` and `proof` are sentences."""

    target: str
    policy: str
    needs: list[str]
    rows: list[Row]
    files: dict[str, str]
    use: list[str]
    undo: list[str]
    proof: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def script(self) -> str:
        return next(iter(self.files))


def active(policy: PolicyDecl, knobs: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """The knobs that do something with these values, which are all of the policy's."""
    return {
        knob.name: knobs[knob.name]
        for knob in policy.knobs
        if policy.unmet(knob.condition, knobs) is None
    }


def same_number(written: str, value: KnobValue) -> bool:
    """Whether it stands there as the knob has it, without a unit of another size."""
    if isinstance(value, str | bool):
        return written == exact(value)
    try:
        return float(written) == float(value)
    except ValueError:
        return False


def row(
    knob: str, value: KnobValue, to: Sequence[str], written: Sequence[str], note: str = ""
) -> Row:
    """Of a knob that is set."""
    alike = all(same_number(text, value) for text in written)
    how = How.exact if alike else How.converted
    return Row(knob=knob, value=value, how=how, to=list(to), written=list(written), note=note)


def show(value: KnobValue, unit: str) -> str:
    """`64 GiB/s`."""
    return f"{exact(value)} {unit}".rstrip()
