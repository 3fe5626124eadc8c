# SPDX-License-Identifier: MIT
"""Which other policies a study runs at their defaults: a verdict that tells to use one of them, or
not to, covers those alone.

`few` goes by the published comparison, in which every policy ran on every workload: those of which
the best one comes nearest to the best default there. For a workload that it has these are the ones
on this workload, and the first of those on all; for any other, those on all. results/rivals.json,
made of results/compare-tuned by `make docs`, has how far each default falls short of the best. It
is the same on every machine, and so is the choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

from pydantic import Field

from tuner.documents.reading import read_json
from tuner.files import shipped
from tuner.limits import ALL, NONE
from tuner.model import Model

MOST_FEW = 4
WORTH = 0.001
"""Of performance: a rival costs runs, and one with other pages often another stream."""

Shortfalls = Mapping[str, float]
"""By policy: which part of the best default's performance its own default lacks. A policy that did
not run there is not in it."""


class Published(Model):
    """results/rivals.json: shortfalls by workload and ratio, and which engine measured them."""

    source: str
    engine_build: str
    shortfalls: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)


@cache
def published() -> Published:
    return Published.model_validate(read_json(shipped("results/rivals.json", "rivals.json")))


def chosen(asked: str, able: Sequence[str], workload: str) -> list[str]:
    """Of the policies that could be used, in the order in which they are to run."""
    if asked == NONE:
        return []
    if asked == ALL:
        return list(able)
    found = published().shortfalls
    everywhere = [places for ratios in found.values() for places in ratios.values()]
    own = list(found.get(workload, {}).values())
    general = nearest(everywhere, able)
    return list(dict.fromkeys([*nearest(own, able), *general[:1]])) if own else general


def nearest(places: Sequence[Shortfalls], able: Collection[str]) -> list[str]:
    """At most `MOST_FEW` policies of which the best one falls short least, on average over the
    places. Greedy: the next is the one with which the average falls most, if it is `WORTH` a run.
    """
    taken: list[str] = []
    left = [1.0] * len(places)
    while len(taken) < MOST_FEW:
        with_one = {
            name: [min(old, place.get(name, 1.0)) for old, place in zip(left, places, strict=True)]
            for name in able
            if name not in taken
        }
        name = min(with_one, key=lambda name: (sum(with_one[name]), name), default=None)
        if name is None or sum(left) - sum(with_one[name]) <= WORTH * len(places):
            break
        taken.append(name)
        left = with_one[name]
    return taken
