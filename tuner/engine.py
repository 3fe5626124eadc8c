# SPDX-License-Identifier: MIT
"""The engine's declarations, typed. Everything native is imported on first use, never before."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tuner.declarations import EstimateDecl, KernelDecl, KnobValue, PolicyDecl
from tuner.errors import UserError, unknown


@cache
def native() -> Any:
    """The native module. UserError when it was never built."""
    try:
        module = importlib.import_module("tuner._engine")
    except ModuleNotFoundError as missing:
        if missing.name != "tuner._engine":
            raise
        raise UserError(
            "the engine is not built: run `pip install .` (or `make run`) in the source tree"
        ) from missing
    except ImportError as error:  # two policies of one name
        raise UserError(f"the engine cannot be loaded: {error}") from error
    try:
        module.isa()
    except ValueError as error:  # TIERTUNE_ISA names what the processor does not run
        raise UserError(str(error)) from error
    return module


def version() -> str:
    return str(native().version())


def ids() -> dict[str, str]:
    """Hashes of the sources that the engine was built from, without their comments: of its
    `policies`, of its `simulator` with what Python is told through, of `live` (tierd without its
    policies), of the `emulated` machine, and of the `whole`."""
    return dict(native().ids())


def results_id() -> str:
    """`POLICIES-SIMULATOR`, in messages the engine build: with equal ones, equal trials of equal
    streams have equal results."""
    own = ids()
    return f"{own['policies']}-{own['simulator']}"


def show(build: str) -> str:
    """A `results_id` in words. Version 0.2.0 and older had one hash of everything."""
    policies, dash, simulator = build.partition("-")
    return f"policies {policies}, simulator {simulator}" if dash else f"engine build {build}"


def isa() -> str:
    """Instruction set of the hot loops: the best that the processor runs, or TIERTUNE_ISA's.
    Results do not depend on it."""
    return str(native().isa())


def supported_isas() -> list[str]:
    """Those that this processor runs, the portable one first."""
    return list(native().supported_isas())


def stream_id(kernel: str) -> str:
    """Hash of the sources that make a kernel's access streams: a stream outlives a changed policy,
    and another kernel's changes. ValueError when there is no such kernel."""
    return str(native().stream_id(kernel))


def patterns() -> dict[str, dict[str, float]]:
    """What is assumed of recorded accesses, random, sequential and dependent ones: misses in flight
    at a time (`mlp`), `prefetched`, `translation` (engine/trace/overlap.hpp)."""
    return {name: dict(pattern) for name, pattern in native().patterns().items()}


@cache
def estimates() -> dict[str, EstimateDecl]:
    """The machine's figures that are estimates, by name."""
    return {e["name"]: EstimateDecl.model_validate(e) for e in native().estimates()}


def machine_problems(machine: dict[str, Any]) -> list[tuple[str, str]]:
    """What the engine would refuse of a machine, as `simulate` takes it: the name of each figure
    that is outside its limits, such as tiering.hint_fault_us, and what it must be."""
    return [(str(name), str(wanted)) for name, wanted in native().machine_problems(machine)]


def stream_info(path: Path) -> dict[str, Any]:
    """Description of a stream, of its header and tables alone. UserError naming the file and what
    is wrong with it."""
    try:
        return dict(native().stream_info(str(path)))
    except RuntimeError as error:
        raise UserError(str(error)) from error


def characteristics(path: Path, *, rows: int = 0, columns: int = 0) -> dict[str, Any]:
    """How a stream uses its memory; with rows and columns also its sites and a heat map. UserError
    as `stream_info`."""
    try:
        return dict(native().characteristics(str(path), rows, columns))
    except RuntimeError as error:
        text = str(error)
        raise UserError(text if str(path) in text else f"{path}: {text}") from error


@cache
def policies() -> dict[str, PolicyDecl]:
    """Every policy with its knobs, by name, in the engine's order (family, name)."""
    return {p["name"]: PolicyDecl.model_validate(p) for p in native().policies()}


@cache
def kernels() -> dict[str, KernelDecl]:
    return {k["name"]: KernelDecl.model_validate(k) for k in native().kernels()}


def policy(name: str) -> PolicyDecl:
    """UserError naming the known ones."""
    known = policies()
    if name not in known:
        raise unknown("policy", name, known)
    return known[name]


def resolve(name: str, knobs: dict[str, KnobValue]) -> dict[str, KnobValue]:
    """All knobs of a policy: the given ones checked, the rest at their defaults."""
    policy(name)
    try:
        return dict(native().resolve(name, knobs))
    except ValueError as error:
        raise UserError(str(error)) from error


def is_kernels_own(policy: str) -> bool:
    """Whether Linux has the policy itself, so that `tierd apply` sets it up."""
    return bool(native().is_kernels_own(policy))


def kernel_plan(
    policy: str,
    knobs: dict[str, KnobValue],
    read: Callable[[str], str | None],
    folders: Callable[[str], list[str]],
) -> dict[str, Any]:
    """What `tierd apply` would write on a machine: `read` gives the text of a file there, or None,
    and `folders` the names of the folders in a folder. UserError for what cannot be had there."""
    try:
        return dict(native().kernel_plan(policy, knobs, read, folders))
    except (ValueError, RuntimeError) as error:
        raise UserError(str(error)) from error
