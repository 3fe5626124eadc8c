# SPDX-License-Identifier: MIT
"""`tune knobs`: lists the knobs of a policy, and the range in which each is tuned."""

from __future__ import annotations

from argparse import Namespace

from tuner import engine
from tuner.declarations import KnobDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.space import SpaceSpec
from tuner.terminal import print_json, table
from tuner.text import exact


def run(args: Namespace) -> int:
    policy = engine.policy(args.policy)
    space = _space_of(policy.name)
    tuned = {k.name: k for k in catalog.tuned_knobs(space, policy)} if space else {}
    if args.json:
        knobs = [
            knob.model_dump()
            | {
                "tuned": None
                if knob.name not in tuned
                else tuned[knob.name].model_dump(include={"min", "max", "choices"})
            }
            for knob in policy.knobs
        ]
        print_json({"policy": policy.name, "knobs": knobs})
        return 0
    table(
        ("knob", "type", ">default", "limits", "tuned in", "unit", "meaning", "source"),
        [
            (
                knob.name,
                knob.type,
                exact(knob.default),
                _limits(knob),
                _limits(tuned[knob.name]) if knob.name in tuned else "-",
                knob.unit,
                knob.meaning + _condition(knob),
                knob.source,
            )
            for knob in policy.knobs
        ],
        prose=2,
    )
    return 0


def _limits(knob: KnobDecl) -> str:
    """1 .. 100 (log)"""
    if knob.type == "boolean":
        return "true, false"
    if knob.type == "choice":
        return ", ".join(knob.choices)
    assert knob.min is not None and knob.max is not None
    return f"{exact(knob.min)} .. {exact(knob.max)}" + (" (log)" if knob.log else "")


def _condition(knob: KnobDecl) -> str:
    if knob.condition is None:
        return ""
    values = " or ".join(exact(value) for value in knob.condition.values)
    return f" [with {knob.condition.parent} = {values}]"


def _space_of(policy: str) -> SpaceSpec | None:
    return catalog.space(policy).spec if policy in catalog.names(Kind.space) else None
