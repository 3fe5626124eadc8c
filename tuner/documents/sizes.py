# SPDX-License-Identifier: MIT
"""Workloads of another size: what `--set footprint_gib=200` makes of an input.

Virtual time and what an operation touches stay as they are. The parameters that the document lists
(`SizesSpec`) grow, and with the memory in use also R, the real pages for which a simulated one
stands: the miniature keeps its number of pages, and with it its precision. In a smaller workload
as many operations fall on fewer pages, and a smaller R would make all streams longer by as much. So
R stays as long as ENOUGH pages are left; then it falls, at most to a part of MOST_FINER.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.declarations import KernelDecl, ParameterDecl, ParameterValue
from tuner.documents.loader import Key
from tuner.documents.workload import BASE_PAGE_BYTES, SizesSpec, WorkloadSpec
from tuner.errors import UserError, nearest
from tuner.limits import MOST_GIB, MOST_SCALE, MOST_THREADS
from tuner.scenario import SIZES
from tuner.text import short

GIB = 1 << 30
ENOUGH = 16_384
"""Simulated pages; at 1:8 seven times the fast ones that a run needs (engine/sim/README.md)."""
MOST_FINER = 8.0
UNITS = {"10^6": 1e6, "10^9": 1e9}
"""Of parameters that are counts; any other is the count itself."""
LOGARITHM = "log2"
"""Unit of a parameter whose power of two grows."""


@dataclass(frozen=True)
class Sized:
    """A workload with an input of another size, and what has changed in it: name, before, after."""

    spec: WorkloadSpec
    changes: list[tuple[str, ParameterValue, ParameterValue]]


def sized(
    spec: WorkloadSpec, input: str, sizes: Mapping[str, float], kernel: KernelDecl | None
) -> Sized:
    """The workload with these `sizes` of the input, by the names of `--set`. UserError naming the
    one that it does not have, or that is out of range."""
    declared = spec.sizes_of(input) if spec.kernel else None
    known = declared.names if declared else []
    for name in sizes:
        if name not in known:
            raise UserError(_no_size(spec, input, name, known))
    assert declared is not None and kernel is not None  # of what has sizes
    own = {p.name: p.default for p in kernel.parameters} | spec.inputs[input].parameters
    kinds = {p.name: p for p in kernel.parameters}
    now = _Now(spec, input, declared, own, kinds)
    factors = now.factors(sizes)
    parameters: dict[str, ParameterValue] = {}
    for name, factor in factors.items():
        for parameter in getattr(declared, name):
            if factor != 1:
                parameters[parameter] = _times(kinds[parameter], own[parameter], factor)
    memory = factors["footprint_gib"]
    huge = spec.inputs[input].huge_scale
    changes = {
        "parameters": spec.inputs[input].parameters | parameters,
        "footprint_gib": sizes.get("footprint_gib", spec.footprint_of(input) * memory),
        "scale": _scale(spec, input, memory),
        "huge_scale": huge and min(max(1.0, huge * memory), float(MOST_SCALE)),
    }
    inputs = spec.inputs | {input: spec.inputs[input].model_copy(update=changes)}
    threads = {"threads": sizes["threads"]} if "threads" in sizes else {}
    return Sized(
        spec.model_copy(update={"inputs": inputs} | threads),
        [(name, own[name], value) for name, value in parameters.items() if value != own[name]],
    )


@dataclass(frozen=True)
class _Now:
    """An input as its document has it."""

    spec: WorkloadSpec
    input: str
    sizes: SizesSpec
    own: Mapping[str, ParameterValue]
    kinds: Mapping[str, ParameterDecl]

    def number(self, name: str) -> float:
        """Items, or bytes of a value."""
        listed: list[str] = getattr(self.sizes, name)
        value: Any = self.own[listed[0]]
        return float(value) * UNITS.get(self.kinds[listed[0]].unit, 1.0)

    def factors(self, sizes: Mapping[str, float]) -> dict[str, float]:
        """By which each of SIZES grows. Of memory, items and bytes of a value one follows from the
        other two, and what is not given stays, memory last."""
        gib = self.spec.footprint_of(self.input)
        before = {name: self.number(name) for name in ("items", "value_bytes") if self._has(name)}
        before |= {"footprint_gib": gib, "threads": self.spec.threads}
        for name, value in sizes.items():
            self._check(name, value)
        found = {name: sizes[name] / before[name] if name in sizes else 1.0 for name in SIZES}
        if not self.sizes.items:
            return found
        if {"footprint_gib", "items", "value_bytes"} <= set(sizes):
            raise self._refusal("footprint_gib", "with items and value_bytes; one follows from two")
        if "footprint_gib" not in sizes:
            each = self._bytes(before, found["value_bytes"])
            found["footprint_gib"] = found["items"] * each
            which = "items" if "items" in sizes else "value_bytes"
            if which in sizes:
                self._check("footprint_gib", gib * found["footprint_gib"], which)
        elif "items" not in sizes:
            each = self._bytes(before, found["value_bytes"])
            found["items"] = found["footprint_gib"] / each
        else:
            found["value_bytes"] = self._value(before, found["footprint_gib"] / found["items"])
        return found

    def _has(self, name: str) -> bool:
        return bool(getattr(self.sizes, name))

    def _beside(self, before: Mapping[str, float]) -> float:
        """Bytes of an item that are not its value, as a multiple of the value."""
        if self.sizes.footprint_gib:
            return 0.0
        each = before["footprint_gib"] * GIB / before["items"]
        return max(0.0, each / before["value_bytes"] - 1)

    def _bytes(self, before: Mapping[str, float], value: float) -> float:
        """How much more an item takes whose value grows by a factor."""
        if not self._has("value_bytes"):
            return 1.0
        beside = self._beside(before)
        return (value + beside) / (1 + beside)

    def _value(self, before: Mapping[str, float], each: float) -> float:
        """By how much the value grows of an item that takes so many times the memory."""
        if not self._has("value_bytes"):
            if not math.isclose(each, 1):
                raise self._refusal("items", "with footprint_gib; one follows from the other here")
            return 1.0
        beside = self._beside(before)
        value = each * (1 + beside) - beside
        least = GIB * before["footprint_gib"] / before["items"] * beside / (1 + beside)
        if value <= 0:
            raise self._refusal(
                "footprint_gib",
                f"too little for so many items; each takes {least:.0f} bytes beside its value",
            )
        return value

    def _check(self, name: str, value: float, by: str | None = None) -> None:
        """UserError for a value that is out of range. `by`: what it follows from."""
        ends = {"footprint_gib": self._gib(), "threads": (1.0, float(MOST_THREADS))}
        least, most = ends.get(name, (0.0, math.inf))
        if not least <= value <= most:
            wrong = f"at least {short(least)}" if value < least else f"at most {short(most)}"
            what = f"{name} {short(value)}" if by else short(value)
            raise self._refusal(by or name, f"{what}; must be {wrong}")
        if name == "threads" and value != round(value):
            raise self._refusal(name, f"{value:g}; must be a whole number")

    def _gib(self) -> tuple[float, float]:
        """The least and the most for which there is an R."""
        gib, scale = self.spec.footprint_of(self.input), self.spec.scale_of(self.input)
        left = min(1.0, ENOUGH / _pages(self.spec, self.input))
        return gib * left / MOST_FINER, min(float(MOST_GIB), gib * MOST_SCALE / scale)

    def _refusal(self, name: str, found: str) -> UserError:
        return UserError(
            f"--set {name}: workload {self.spec.name}, input {self.input}: found {found}"
        )


def _scale(spec: WorkloadSpec, input: str, factor: float) -> float:
    """Of base pages. Below 1 there is no miniature, and fewer pages are left."""
    spare = 1.0 if factor >= 1 else max(1.0, _pages(spec, input) / ENOUGH)
    wanted = factor if factor >= 1 else min(1.0, factor * spare)
    return min(max(1.0, spec.scale_of(input) * wanted), float(MOST_SCALE))


def _pages(spec: WorkloadSpec, input: str) -> float:
    """Simulated ones of an input as its document has it."""
    return spec.footprint_of(input) * GIB / BASE_PAGE_BYTES / spec.scale_of(input)


def _times(kind: ParameterDecl, value: Any, factor: float) -> ParameterValue:
    """In the type that the kernel takes."""
    if isinstance(value, list):
        return [max(1.0, each * factor) for each in value]
    if kind.unit == LOGARITHM:
        return float(round(value + math.log2(factor)))
    if isinstance(kind.default, int):
        return max(1, round(float(value) * factor))
    return float(value) * factor


def _no_size(spec: WorkloadSpec, input: str, name: str, known: list[str]) -> str:
    told = f"--set {name}: workload {spec.name}, input {input}"
    if spec.kernel is None:
        return f"{told}: it is a recording, whose size is what was recorded"
    if known:
        return f"{told}: has no such size; it has {', '.join(known)}"
    return (
        f"{told}: has no sizes that --set changes; its document states parameters of kernel "
        f"{spec.kernel}, which a file of your own can change"
    )


def problems(spec: WorkloadSpec, kernel: KernelDecl) -> Iterator[tuple[Key, str]]:
    """What is wrong with the declared sizes, with its place."""
    declared = {p.name: p for p in kernel.parameters}
    places: list[tuple[Key, SizesSpec | None]] = [(("sizes",), spec.sizes)]
    places += [(("inputs", name, "sizes"), each.sizes) for name, each in spec.inputs.items()]
    for place, sizes in places:
        if sizes is None:
            continue
        seen: set[str] = set()
        for name in SIZES:
            for index, parameter in enumerate(getattr(sizes, name)):
                key: Key = (*place, name, index)
                if parameter not in declared:
                    yield (
                        key,
                        f"kernel {kernel.name} has no parameter '{parameter}'"
                        f"{nearest(parameter, declared)}",
                    )
                elif isinstance(declared[parameter].default, bool | str):
                    yield key, f"parameter '{parameter}' is no number; must be one"
                elif parameter in seen:
                    yield key, f"parameter '{parameter}' is listed twice; must be listed once"
                seen.add(parameter)
        for name in ("items", "value_bytes"):
            listed = getattr(sizes, name)
            if listed and listed[0] in declared and isinstance(declared[listed[0]].default, list):
                yield (*place, name, 0), f"'{listed[0]}' is a list; the first must be one number"
