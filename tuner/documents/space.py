# SPDX-License-Identifier: MIT
"""spaces/POLICY.yaml: which knobs are tuned, in which range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tuner.declarations import KnobDecl, KnobValue, PolicyDecl
from tuner.documents.loader import Key
from tuner.errors import brief, nearest
from tuner.model import Finite, Model, content_hash


def _choice(value: Any) -> Any:
    return str(value) if type(value) is int else value


Choice = Annotated[str, BeforeValidator(_choice)]
"""Name of a choice; `4` may be written without quotes."""


class KnobRange(Model):
    """The range in which a declared knob is searched; empty means the declared limits. With a
    value, or a range of one, it is pinned: not searched, and that is its default. Where a range
    leaves out the declared default, the nearest value in it is the default."""

    min: Finite | None = None
    max: Finite | None = None
    choices: Annotated[list[Choice], Field(min_length=1)] | None = None
    value: KnobValue | None = None

    @property
    def pin(self) -> KnobValue | None:
        """The one value that the knob can have; None if it is searched."""
        if self.value is not None:
            return self.value
        if self.min is not None and self.min == self.max:
            return self.min
        return self.choices[0] if self.choices is not None and len(self.choices) == 1 else None


class SpaceSpec(Model):
    """spaces/POLICY.yaml: the knobs that are tuned or pinned. All others keep their default.

    `starts` are configurations that a search tries right after the default, because each is good
    for some workload: what a space of many knobs would not show in a few random ones. Knobs that
    one leaves out have their default.
    """

    policy: str
    summary: str
    knobs: Annotated[dict[str, KnobRange], Field(min_length=1)]
    starts: list[Annotated[dict[str, KnobValue], Field(min_length=1)]] = Field(default_factory=list)

    def fingerprint(self) -> str:
        content = self.model_dump(exclude={"summary"})
        for limits in content["knobs"].values():
            if limits["value"] is None:  # as before there were values
                del limits["value"]
        return content_hash(content)


def problems(spec: SpaceSpec, policies: Mapping[str, PolicyDecl]) -> Iterator[tuple[Key, str]]:
    """What does not fit the policy's declarations, with its place."""
    policy = policies.get(spec.policy)
    if policy is None:
        yield (
            ("policy",),
            f"no policy '{brief(spec.policy)}'{nearest(spec.policy, policies)} "
            f"(known: {', '.join(sorted(policies))})",
        )
        return
    declared = {knob.name: knob for knob in policy.knobs}
    for name, limits in spec.knobs.items():
        if name not in declared:
            yield (
                ("knobs", name),
                f"policy {policy.name} has no knob '{name}'{nearest(name, declared)} "
                f"(known: {', '.join(sorted(declared))})",
            )
            continue
        knob = declared[name]
        yield from _check_range(knob, limits)
        condition = knob.condition
        parent = spec.knobs.get(condition.parent) if condition else None
        if condition and limits.pin is None and (parent is None or parent.pin is not None):
            fixed = declared[condition.parent].default if parent is None else parent.pin
            if fixed not in condition.values:
                yield (
                    ("knobs", name),
                    f"acts only while {condition.parent} is one of {condition.values}, but that is "
                    f"not tuned and stays {fixed!r}; tune it too, or drop this knob",
                )

    for number, start in enumerate(spec.starts):
        for name, value in start.items():
            at: Key = ("starts", number, name)
            if name not in spec.knobs or spec.knobs[name].pin is not None:
                yield at, f"'{name}' is not tuned{nearest(name, spec.knobs)}"
            elif name in declared:
                narrowed = spec.knobs[name].model_dump(exclude_none=True)
                problem = _illegal(declared[name].model_copy(update=narrowed), value)
                if problem:
                    yield at, f"found {brief(repr(value))}; {problem}"


def _illegal(knob: KnobDecl, value: KnobValue) -> str | None:
    """Why the knob cannot have the value."""
    if knob.type == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if knob.type == "choice":
        return None if value in knob.choices else f"must be one of {', '.join(knob.choices)}"
    assert knob.min is not None and knob.max is not None
    kinds = (int,) if knob.type == "integer" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return f"must be {'an integer' if knob.type == 'integer' else 'a number'}"
    low, high = knob.min, knob.max
    return None if low <= value <= high else f"must be from {low:g} to {high:g}"


def _check_range(knob: KnobDecl, limits: KnobRange) -> Iterator[tuple[Key, str]]:
    at: Key = ("knobs", knob.name)
    if limits.value is not None:
        if limits != KnobRange(value=limits.value):
            yield at, "has a value and a range; a pinned knob has a value alone"
        elif problem := _illegal(knob, limits.value):
            yield (*at, "value"), f"found {brief(repr(limits.value))}; {problem}"
        return
    if knob.type in ("integer", "real"):
        if limits.choices is not None:
            yield (*at, "choices"), f"{knob.name} is a number; use min and max"
        assert knob.min is not None and knob.max is not None
        low = knob.min if limits.min is None else limits.min
        high = knob.max if limits.max is None else limits.max
        allowed = f"{knob.min:g} to {knob.max:g}"
        for side, value in (("min", limits.min), ("max", limits.max)):
            if value is None:
                continue
            if not knob.min <= value <= knob.max:
                yield (*at, side), f"found {value:g}; outside the declared limits {allowed}"
            elif knob.type == "integer" and value != int(value):
                yield (*at, side), f"found {value:g}; must be an integer"
        if low > high:
            yield at, f"the range {low:g} to {high:g} is empty; drop the knob to keep its default"
        return
    for side in ("min", "max"):
        if getattr(limits, side) is not None:
            yield (*at, side), f"{knob.name} is a {knob.type}; it has no {side}"
    if limits.choices is None:
        return
    if knob.type == "boolean":
        yield (*at, "choices"), f"{knob.name} is true or false; it has no choices"
        return
    for choice in limits.choices:
        if choice not in knob.choices:
            yield (
                (*at, "choices"),
                f"no choice '{brief(choice)}'{nearest(choice, knob.choices)} "
                f"(declared: {', '.join(knob.choices)})",
            )
