# SPDX-License-Identifier: MIT
"""spaces/POLICY.yaml: which knobs are tuned, in which range."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tuner.declarations import KnobValue
from tuner.model import Finite, Model, content_hash


def _choice(value: Any) -> Any:
    return str(value) if type(value) is int else value


Choice = Annotated[str, BeforeValidator(_choice)]
"""Name of a choice; `4` may be written without quotes."""


class KnobRange(Model):
    """Narrows a declared knob; empty means the declared limits."""

    min: Finite | None = None
    max: Finite | None = None
    choices: Annotated[list[Choice], Field(min_length=1)] | None = None


class SpaceSpec(Model):
    """spaces/POLICY.yaml: the knobs that are tuned. All others keep their default.

    `starts` are configurations that a search tries right after the default, because each is good
    for some workload: what a space of many knobs would not show in a few random ones. Knobs that
    one leaves out have their default.
    """

    policy: str
    summary: str
    knobs: Annotated[dict[str, KnobRange], Field(min_length=1)]
    starts: list[Annotated[dict[str, KnobValue], Field(min_length=1)]] = Field(default_factory=list)

    def fingerprint(self) -> str:
        return content_hash(self.model_dump(exclude={"summary"}))
