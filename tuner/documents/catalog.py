# SPDX-License-Identifier: MIT
"""Finds, reads and checks the YAML documents: workloads, machines and configuration spaces.

A name is looked up in the user's folder (`./workloads`, `./machines`, `./spaces`) and then among
those that ship with the package; a path (anything with a slash or ending in .yaml) is itself.
A machine's base is looked up beside its file and then among those that ship, so that what a file
means does not depend on the folder that a command runs in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from tuner import engine
from tuner.declarations import (
    KernelDecl,
    KnobDecl,
    KnobValue,
    ParameterDecl,
    ParameterValue,
    PolicyDecl,
)
from tuner.documents.document import Document
from tuner.documents.loader import Key
from tuner.documents.machine import Based, CurvesSpec, MachineSpec, TierSpec, over
from tuner.documents.reading import is_file, read_text
from tuner.documents.sizes import Sized, sized
from tuner.documents.sizes import problems as size_problems
from tuner.documents.space import KnobRange, SpaceSpec
from tuner.documents.space import problems as space_problems
from tuner.documents.workload import InputSpec, WorkloadSpec
from tuner.errors import UserError, brief, nearest, one_line, unknown
from tuner.files import shipped
from tuner.scenario import sizes_of

T = TypeVar("T")


MOST_BASES = 8
"""Machines that one is based on, one on the other."""


class Kind(Enum):
    """A kind of document: the folder it lives in, and that folder's place in the source tree."""

    workload = ("workloads", "workloads")
    machine = ("machines", "engine/machines")
    space = ("spaces", "spaces")
    curves = ("curves", "engine/curves")

    def __init__(self, folder: str, in_source: str) -> None:
        self.folder = folder
        self.in_source = in_source


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A checked document and where it came from."""

    spec: T
    path: Path
    packaged: bool


def packaged_folder(kind: Kind) -> Path:
    """The shipped documents."""
    return shipped(kind.in_source, kind.folder)


def folders(kind: Kind) -> list[Path]:
    """Where a name is looked up, first match wins."""
    return [Path.cwd() / kind.folder, packaged_folder(kind)]


def names(kind: Kind) -> list[str]:
    """All names that `find` finds, sorted."""
    return sorted({path.stem for folder in folders(kind) for path in folder.glob("*.yaml")})


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml"))


def absolute(name: str) -> str | None:
    """The absolute path of a document that is given by path; None for a name."""
    return str(Path(name).absolute()) if _is_path(name) else None


def find(kind: Kind, name: str) -> Path:
    """Path of a document by name or path. UserError naming the known ones."""
    if _is_path(name):
        path = Path(name)
        if not is_file(path):
            raise UserError(f"no {kind.name} file '{brief(name, 300)}'")
        return path
    for folder in folders(kind):
        path = folder / f"{name}.yaml"
        if is_file(path):
            return path
    raise unknown(kind.name, name, names(kind))


def workload(name: str, input: str | None = None, sizes: str = "") -> Entry[WorkloadSpec]:
    """A workload, checked against the kernel that runs it or the recordings that it names. `sizes`:
    what --set makes of an input (`Scenario.sizes`)."""
    document, entry = _load(Kind.workload, name, WorkloadSpec)
    _raise(document, _check_workload(entry.spec, engine.kernels()))
    if entry.spec.kernel is None:
        entry = replace(entry, spec=_with_recordings(document, entry))
    if sizes:
        entry = replace(entry, spec=resized(entry.spec, input, sizes).spec)
    return entry


def resized(spec: WorkloadSpec, input: str | None, text: str) -> Sized:
    """A workload with what --set makes of an input. UserError for a size that it does not have."""
    input = input or spec.default_input
    if input not in spec.inputs:
        raise unknown(f"input of workload {spec.name}", input, spec.inputs)
    try:
        wanted = sizes_of(text)
    except ValueError as error:
        raise UserError(f"--set: found '{brief(text)}'; {error}") from error
    return sized(spec, input, wanted, engine.kernels().get(spec.kernel or ""))


def place(kind: Kind, name: str, key: Key) -> str:
    """FILE:LINE of a key, or of the longest part of it that is written. UserError as of `find`."""
    path, line = Document.read(find(kind, name)).place(key)
    return f"{one_line(path)}:{line}"


def machine(name: str) -> Entry[MachineSpec]:
    """A machine, with what its base says and the curves that its tiers name."""
    return machine_document(name)[1]


def machine_document(name: str) -> tuple[Document, Entry[MachineSpec]]:
    """A machine also as it would be written without a base."""
    document, entry = _load(Kind.machine, name, MachineSpec)
    tiers: dict[str, TierSpec] = {}
    for role in ("fast", "slow"):
        tier: TierSpec = getattr(entry.spec, role)
        if not isinstance(tier.curves, str):
            continue
        try:
            measured = curves(tier.curves).spec.curves
        except UserError as error:
            raise UserError(document.complaint((role, "curves"), str(error))) from error
        tiers[role] = tier.model_copy(update={"curves": measured})
    spec = entry.spec.model_copy(update=tiers)
    _raise(document, ((key, wanted) for key, _, wanted in spec.problems()))
    return document, replace(entry, spec=spec)


def curves(name: str) -> Entry[CurvesSpec]:
    """Loaded latency as it was measured, for mixes of reads and writes."""
    return _load(Kind.curves, name, CurvesSpec)[1]


def space(name: str) -> Entry[SpaceSpec]:
    """A policy's space, checked against the policy's declarations."""
    document, entry = _load(Kind.space, name, SpaceSpec)
    _raise(document, space_problems(entry.spec, engine.policies()))
    return entry


def load_all(kind: Kind, load: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """All documents of a kind that are right, and what is wrong with the others."""
    entries: list[T] = []
    errors: dict[str, None] = {}
    for name in names(kind):
        try:
            entries.append(load(name))
        except UserError as error:
            errors[str(error)] = None
    return entries, list(errors)


def tuned_knobs(space: SpaceSpec, policy: PolicyDecl) -> list[KnobDecl]:
    """The declarations of the tuned knobs with the space's ranges, in the space's order."""
    tuned = []
    for name, limits in space.knobs.items():
        if limits.pin is not None:
            continue
        declared = policy.knob(name)
        if declared is None:
            raise UserError(f"space of {space.policy}: no knob '{name}'")
        changes = limits.model_dump(exclude_none=True)
        tuned.append(declared.model_copy(update=changes))
    return tuned


def pinned(space: SpaceSpec, policy: PolicyDecl) -> PolicyDecl:
    """The policy with the values that the space pins for its defaults, and of a range that leaves
    out the declared one the nearest value."""
    ranges = {name: limits for name, limits in space.knobs.items() if policy.knob(name)}
    knobs = [_default_in(k, ranges[k.name]) if k.name in ranges else k for k in policy.knobs]
    return policy.model_copy(update={"knobs": knobs})


def _default_in(knob: KnobDecl, limits: KnobRange) -> KnobDecl:
    value = limits.pin
    if value is None:
        value = knob.default
        if limits.choices is not None and value not in limits.choices:
            value = limits.choices[0]
        elif not isinstance(value, str):
            low = -math.inf if limits.min is None else limits.min
            high = math.inf if limits.max is None else limits.max
            value = value if low <= value <= high else min(max(value, low), high)
    return knob.model_copy(update={"default": _typed(knob, value)})


def starts(space: SpaceSpec, policy: PolicyDecl) -> list[dict[str, KnobValue]]:
    """The configurations that a search starts from, with values for all tuned knobs."""
    tuned = {knob.name: knob for knob in tuned_knobs(space, pinned(space, policy))}
    defaults = {name: knob.default for name, knob in tuned.items()}
    return [
        defaults | {name: _typed(tuned[name], value) for name, value in start.items()}
        for start in space.starts
    ]


def _typed(knob: KnobDecl, value: KnobValue) -> KnobValue:
    if knob.type == "integer":
        return int(value)
    return float(value) if knob.type == "real" else value


def _load(kind: Kind, name: str, model: type[T]) -> tuple[Document, Entry[T]]:
    path = find(kind, name)
    document = _parsed(path, read_text(path))
    if kind is Kind.machine:
        document = _with_base(document)
    spec = _checked(kind, document, model)
    packaged = path.resolve().parent == packaged_folder(kind)
    return document, Entry(spec, path, packaged)


def _checked(kind: Kind, document: Document, model: type[T]) -> T:
    spec = document.parse(model)  # type: ignore[type-var]
    own_name = spec.policy if isinstance(spec, SpaceSpec) else spec.name  # type: ignore[attr-defined]
    path = document.path
    if own_name != path.stem and kind is not Kind.space:
        raise UserError(
            document.complaint(
                ("name",), f"found '{brief(own_name)}'; must be the file's: '{path.stem}'"
            )
        )
    return spec


def _with_base(document: Document, above: tuple[Path, ...] = ()) -> Document:
    """A machine's document with what its base says, which must be right by itself. `above`: the
    files of the machines that are based on this one."""
    base = document.parse(Based).base
    if base is None:
        return document
    path, chain = _base(document, base), (*above, document.path)
    if path.resolve() in (other.resolve() for other in chain):
        circle = " -> ".join(str(file) for file in (*chain, path))
        raise UserError(document.complaint(("base",), f"machines are based in a circle: {circle}"))
    if len(chain) > MOST_BASES:
        raise UserError(
            document.complaint(
                ("base",), f"found more than {MOST_BASES} bases from {chain[0]} on; must be fewer"
            )
        )
    below = _with_base(_parsed(path, read_text(path)), chain)
    _checked(Kind.machine, below, MachineSpec)
    return document.over(below, over(below.data, document.data))


def _base(document: Document, name: str) -> Path:
    """The file of a base. A machine that has the name of its own base means the one that ships."""
    places = (document.path.parent, packaged_folder(Kind.machine))
    files = [folder / f"{name}.yaml" for folder in places]
    found = [path for path in files if is_file(path)]
    if not found:
        known = sorted({path.stem for folder in places for path in folder.glob("*.yaml")})
        raise UserError(document.complaint(("base",), str(unknown("machine", name, known))))
    others = [path for path in found if path.resolve() != document.path.resolve()]
    return (others or found)[0]


@lru_cache(maxsize=256)
def _parsed(path: Path, text: str) -> Document:
    """A comparison looks up the same few documents for thousands of cells, and PyYAML takes some
    10 milliseconds for each."""
    return Document(path, text)


def _raise(document: Document, complaints: Iterator[tuple[Key, str]]) -> None:
    lines = [document.complaint(key, message) for key, message in complaints]
    if lines:
        raise UserError("\n".join(lines))


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_workload(
    spec: WorkloadSpec, kernels: Mapping[str, KernelDecl]
) -> Iterator[tuple[Key, str]]:
    for role in ("default_input", "smoke_input"):
        name = getattr(spec, role)
        if name not in spec.inputs:
            yield (
                (role,),
                f"no input '{brief(name)}'{nearest(name, spec.inputs)} "
                f"(inputs: {_listed(spec.inputs)})",
            )
    if spec.objective not in spec.objectives:
        yield ("objective",), f"found '{spec.objective}'; must be one of the objectives listed"
    for i, name in enumerate(spec.objectives):
        if name.startswith("p") and spec.operation is None:
            yield ("objectives", i), f"{name} needs an operation; add the key 'operation'"
    if spec.kernel is None:
        yield from _check_recorded(spec)
        return
    for input_name, input in spec.inputs.items():
        for of_recording in ("trace", "content", "sampling"):
            if getattr(input, of_recording) is not None:
                yield (
                    ("inputs", input_name, of_recording),
                    f"belongs to a recording, but kernel {spec.kernel} makes this workload's "
                    "streams; drop one of the two",
                )
    kernel = kernels.get(spec.kernel)
    if kernel is None:
        yield (
            ("kernel",),
            f"no kernel '{brief(spec.kernel)}'{nearest(spec.kernel, kernels)} "
            f"(known: {_listed(kernels)})",
        )
        return
    declared = {p.name: p for p in kernel.parameters}
    for input_name, input in spec.inputs.items():
        for name, value in input.parameters.items():
            key: Key = ("inputs", input_name, "parameters", name)
            if name not in declared:
                yield (
                    key,
                    f"kernel {kernel.name} has no parameter '{name}'{nearest(name, declared)} "
                    f"(known: {_listed(declared)})",
                )
            elif wanted := _wrong_type(declared[name], value):
                yield key, f"found {brief(repr(value))}; must be {wanted}"
    yield from size_problems(spec, kernel)


def _check_recorded(spec: WorkloadSpec) -> Iterator[tuple[Key, str]]:
    if all(input.trace is None for input in spec.inputs.values()):
        yield ("kernel",), "missing; a workload has a kernel, or inputs with a trace"
        return
    for name, input in spec.inputs.items():
        if input.trace is None:
            yield ("inputs", name, "trace"), "missing; without a kernel every input is a recording"
        if input.parameters:
            yield (
                ("inputs", name, "parameters"),
                "belongs to a kernel, but this workload has none; a recording has no parameters",
            )


def _with_recordings(document: Document, entry: Entry[WorkloadSpec]) -> WorkloadSpec:
    """The workload with the absolute path and the identity of each recording."""
    spec, folder = entry.spec, entry.path.absolute().parent
    inputs: dict[str, InputSpec] = {}
    complaints: list[tuple[Key, str]] = []
    for name, input in spec.inputs.items():
        assert input.trace is not None
        path = folder / input.trace
        try:
            if not is_file(path):
                raise UserError(f"{brief(str(path), 300)}: no such file")
            path = path.resolve()
            stream = engine.stream_info(path)
        except UserError as error:
            complaints.append((("inputs", name, "trace"), str(error)))
            continue
        inputs[name] = input.model_copy(update={"trace": str(path), "content": stream["identity"]})
        complaints += [
            (key, f"{message} ({path})") for key, message in _check_recording(spec, name, stream)
        ]
    _raise(document, iter(complaints))
    return spec.model_copy(update={"inputs": inputs})


def _check_recording(
    spec: WorkloadSpec, name: str, stream: Mapping[str, Any]
) -> Iterator[tuple[Key, str]]:
    """Whether the document fits the stream."""
    input, at = spec.inputs[name], ("inputs", name)
    if input.content not in (None, stream["identity"]):
        yield (
            (*at, "content"),
            f"found {input.content}; the file is another: {stream['identity']}",
        )
    if spec.scale_of(name) != stream["scale"]:
        key: Key = ("scale",) if input.scale is None else (*at, "scale")
        yield key, f"found {spec.scale_of(name):g}; the stream's is {stream['scale']:g}"
    if spec.operation is not None and spec.operation not in stream["op_kinds"]:
        known = ", ".join(stream["op_kinds"]) or "none"
        yield (*at, "trace"), f"the stream has no operation '{spec.operation}' (it has: {known})"
    if "throughput" in spec.objectives and not stream["operations"]:
        yield (*at, "trace"), "the stream has no operations, so it has no throughput"


_KINDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    list: "a list of numbers",
}


def _wrong_type(declared: ParameterDecl, value: ParameterValue) -> str | None:
    """What the parameter must be, if the value is something else."""
    kind = type(declared.default)
    if type(value) is kind or (kind is float and type(value) is int):
        return None
    return _KINDS[kind]
