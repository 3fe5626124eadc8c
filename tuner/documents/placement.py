# SPDX-License-Identifier: MIT
"""Placement files: which objects of a program are worth fast memory, from a profiling run.

`tune profile` writes them, and a policy that goes by one (soar, unified) obeys them:
`--placement FILE`. An object is all that one site allocates. Sizes are at full scale, so that a
placement holds for any ratio and any miniature of the workload.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from tuner.documents import document
from tuner.documents.document import Document
from tuner.errors import UserError, brief
from tuner.model import Model, Name, NonNegative, content_hash

MOST_VALUES = 100_000
"""Of a file: `tune profile` writes nine for each object."""


class PlacedObject(Model):
    """`score` is per byte and decides the rank. Objects with the same `slot` are never there at the
    same time: they share the room of the largest."""

    site: str
    score: NonNegative
    bytes: NonNegative
    slot: Annotated[int, Field(ge=0, lt=1 << 32)]


class PlacementSpec(Model):
    """`profiled` says how it came about; results do not depend on it."""

    workload: Name
    policy: str
    objects: Annotated[list[PlacedObject], Field(min_length=1)]
    profiled: dict[str, str | float | int | bool] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_site_once(self) -> PlacementSpec:
        sites = [placed.site for placed in self.objects]
        if twice := sorted(site for site, times in Counter(sites).items() if times > 1):
            raise ValueError(f"objects: '{brief(twice[0])}' is given twice")
        return self

    def fingerprint(self) -> str:
        return content_hash(self.model_dump(exclude={"profiled"}))


def read(path: Path, *, workload: str, policy: str) -> PlacementSpec:
    """UserError naming file, line and key if it is none, or one of something else."""
    found = Document.read(path, most=MOST_VALUES)
    spec = found.parse(PlacementSpec)
    for key, value, wanted in (
        ("workload", spec.workload, workload),
        ("policy", spec.policy, policy),
    ):
        if value != wanted:
            raise UserError(
                found.complaint((key,), f"found the text '{brief(value)}'; must be {wanted}")
            )
    return spec


def render(spec: PlacementSpec) -> str:
    return document.render(spec.model_dump())
