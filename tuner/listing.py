"""The commands that list what there is: policies, knobs, workloads, machines, cached streams."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TypeVar

from tuner import catalog, engine, streams
from tuner.catalog import Entry, Kind
from tuner.errors import UserError
from tuner.models import KnobDecl, KnobValue, SpaceSpec
from tuner.terminal import print_json, say, table

T = TypeVar("T")


def policies(args: Namespace) -> int:
    known = engine.policies().values()
    if args.json:
        print_json([policy.model_dump() for policy in known])
        return 0
    table(
        ("policy", "family", ">knobs", "summary", "published in"),
        [(p.name, p.family, str(len(p.knobs)), p.summary, p.citation) for p in known],
        prose=2,
    )
    return 0


def knobs(args: Namespace) -> int:
    """Every knob of a policy, and the range in which it is tuned."""
    policy = engine.policy(args.policy)
    space = _space_of(policy.name)
    tuned = {k.name: k for k in catalog.tuned_knobs(space, policy)} if space else {}
    if args.json:
        print_json(
            [
                knob.model_dump()
                | {
                    "tuned": None
                    if knob.name not in tuned
                    else tuned[knob.name].model_dump(include={"min", "max", "choices"})
                }
                for knob in policy.knobs
            ]
        )
        return 0
    table(
        ("knob", "type", ">default", "limits", "tuned in", "unit", "meaning", "source"),
        [
            (
                knob.name,
                knob.type,
                show(knob.default),
                limits(knob),
                limits(tuned[knob.name]) if knob.name in tuned else "-",
                knob.unit,
                knob.meaning + _condition(knob),
                knob.source,
            )
            for knob in policy.knobs
        ],
        prose=2,
    )
    return 0


def workloads(args: Namespace) -> int:
    entries, broken = _load_all(Kind.workload, catalog.workload)
    if args.json:
        print_json(
            [
                e.spec.model_dump() | {"path": str(e.path), "fingerprint": e.spec.fingerprint()}
                for e in entries
            ]
        )
        return broken
    table(
        ("workload", "input", ">GiB", ">scale", ">threads", "machine", "objectives", "summary"),
        [
            (
                w.name,
                name + (" (default)" if name == w.default_input else ""),
                f"{input.footprint_gib or w.footprint_gib:g}",
                f"{w.scale_of(name):g}",
                f"{w.threads:g}",
                w.machine,
                ", ".join([w.objective, *(o for o in w.objectives if o != w.objective)]),
                input.summary,
            )
            for w in (entry.spec for entry in entries)
            for name, input in w.inputs.items()
        ],
        prose=1,
    )
    return broken


def machines(args: Namespace) -> int:
    entries, broken = _load_all(Kind.machine, catalog.machine)
    if args.json:
        print_json(
            [
                e.spec.model_dump() | {"path": str(e.path), "fingerprint": e.spec.fingerprint()}
                for e in entries
            ]
        )
        return broken
    table(
        (
            "machine",
            ">cores",
            ">threads",
            ">fast ns",
            ">GB/s",
            ">slow ns",
            ">GB/s",
            ">write GB/s",
            ">slow GiB",
            "summary",
        ),
        [
            (
                m.name,
                str(m.cores),
                str(m.threads),
                f"{m.fast.latency_ns:g}",
                f"{m.fast.read_gbps:g}",
                f"{m.slow.latency_ns:g}",
                f"{m.slow.read_gbps:g}",
                f"{m.slow.write_gbps:g}",
                "any" if m.slow_gib is None else f"{m.slow_gib:g}",
                m.summary,
            )
            for m in (entry.spec for entry in entries)
        ],
        prose=1,
    )
    return broken


def cache(args: Namespace) -> int:
    if args.action == "clear":
        count, freed = streams.clear(only_stale=args.stale)
        if args.json:
            print_json({"folder": str(streams.folder()), "removed": count, "bytes": freed})
        else:
            print(f"removed {count} streams, {streams.human(freed)}, from {streams.folder()}")
        return 0
    if args.stale:
        raise UserError("--stale goes with `tune cache clear`")
    entries, total = streams.entries(), streams.size()
    if args.json:
        print_json(
            {
                "folder": str(streams.folder()),
                "bytes": total,
                "streams": [
                    {
                        "key": e.key,
                        "path": str(e.path),
                        "bytes": e.bytes,
                        "stale": e.stale,
                        **e.request.model_dump(),
                    }
                    for e in entries
                ],
            }
        )
        return 0
    if entries:
        table(
            ("key", "workload", "input", ">scale", ">seed", ">size", "engine"),
            [
                (
                    e.key,
                    e.request.workload,
                    e.request.input,
                    f"{e.request.scale:g}",
                    str(e.request.seed),
                    streams.human(e.bytes),
                    "another" if e.stale else "this one",
                )
                for e in entries
            ],
        )
    print(f"{len(entries)} streams, {streams.human(total)}, in {streams.folder()}")
    return 0


def show(value: KnobValue) -> str:
    """5, 0.25, 1048576, 1e+08, true, paper: nothing is rounded away."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 1e7 else f"{value:.12g}"


def limits(knob: KnobDecl) -> str:
    """1 .. 100 (log)"""
    if knob.type == "boolean":
        return "true, false"
    if knob.type == "choice":
        return ", ".join(knob.choices)
    assert knob.min is not None and knob.max is not None
    return f"{show(knob.min)} .. {show(knob.max)}" + (" (log)" if knob.log else "")


def _condition(knob: KnobDecl) -> str:
    if knob.condition is None:
        return ""
    values = " or ".join(show(value) for value in knob.condition.values)
    return f" [with {knob.condition.parent} = {values}]"


def _space_of(policy: str) -> SpaceSpec | None:
    return catalog.space(policy).spec if policy in catalog.names(Kind.space) else None


def _load_all(kind: Kind, load: Callable[[str], Entry[T]]) -> tuple[list[Entry[T]], int]:
    """All documents that are right, and the exit code: 2 when one is wrong (and has been told)."""
    entries, broken = [], 0
    for name in catalog.names(kind):
        try:
            entries.append(load(name))
        except UserError as error:
            say(f"tune: error: {error}")
            broken = 2
    return entries, broken
