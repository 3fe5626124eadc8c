"""The commands that list what there is: policies, knobs, workloads, machines, cached streams."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tuner import catalog, characteristics, engine, streams
from tuner.catalog import Entry, Kind
from tuner.characteristics import Known
from tuner.errors import UserError, unknown
from tuner.models import KnobDecl, KnobValue, SpaceSpec, WorkloadSpec
from tuner.terminal import print_json, progress, say, table

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
    """The workloads on their default inputs, or every input of those that are named, with what
    their streams are like."""
    if args.measure:
        _measure(args.workload)
    if args.workload:
        chosen, broken = [_chosen(name) for name in args.workload], 0
    else:
        loaded, broken = _load_all(Kind.workload, _with_figures)
        chosen = [(entry, known, [entry.spec.default_input]) for entry, known in loaded]
    if args.json:
        print_json([_workload(entry, known) for entry, known, _ in chosen])
        return broken
    table(
        (
            "workload",
            "input",
            ">GiB",
            ">accesses",
            ">minutes",
            ">stores",
            *(f">hottest {share}" if i == 0 else f">{share}" for i, share in enumerate(HOTTEST)),
            ">scale",
            "machine",
            *(("summary",) if args.workload else ("summary", "inputs")),
        ),
        [
            (
                w.name,
                name + (" (default)" if args.workload and name == w.default_input else ""),
                *_figures(known[name], w.footprint_of(name)),
                f"{w.scale_of(name):g}",
                w.machine,
                *(
                    (w.inputs[name].summary,)
                    if args.workload
                    else (w.summary, f"inputs: {', '.join(w.inputs)}")
                ),
            )
            for w, known, names in ((entry.spec, known, names) for entry, known, names in chosen)
            for name in names
        ],
        prose=1 if args.workload else 2,
    )
    print(
        "\nGiB in use, accesses and minutes are full-scale; hottest: share of accesses that the "
        "hottest\n1, 10, 20 and 50 % of the pages get. `tune workloads W` lists all inputs of W, "
        "`tune workload\nshow W` draws it."
    )
    shown = [known[name] for _, known, names in chosen for name in names]
    if any(one.stale for one in shown):
        say("* of a stream that was made otherwise: `tune workloads --measure W` measures it again")
    if any(one.figures is None for one in shown):
        say("- is not known yet: `tune workloads --measure W` makes the stream and tells")
    return broken


def _chosen(name: str) -> tuple[Entry[WorkloadSpec], dict[str, Known], list[str]]:
    """A workload as it was named, and its inputs that are meant."""
    workload, input = characteristics.split(name)
    entry, known = _with_figures(workload)
    if input is not None and input not in known:
        raise unknown(f"input of workload {entry.spec.name}", input, known)
    return entry, known, list(known) if input is None else [input]


def _with_figures(name: str) -> tuple[Entry[WorkloadSpec], dict[str, Known]]:
    entry = catalog.workload(name)
    return entry, characteristics.known(entry)


HOTTEST = ("1%", "10%", "20%", "50%")


def _figures(known: Known, declared_gib: float) -> tuple[str, ...]:
    found = known.figures
    if found is None:
        return (f"{declared_gib:g}", *("-" for _ in range(3 + len(HOTTEST))))
    cells = (
        f"{found.footprint_gib:.3g}",
        si(found.full_accesses),
        f"{found.seconds / 60:.3g}",
        f"{found.store_share:.0%}",
        *(f"{found.hottest[share]:.0%}" for share in HOTTEST),
    )
    return tuple(f"{cell}*" for cell in cells) if known.stale else cells


def _workload(entry: Entry[WorkloadSpec], known: Mapping[str, Known]) -> dict[str, Any]:
    out = entry.spec.model_dump()
    for name, input in out["inputs"].items():
        figures = known[name].figures
        input["characteristics"] = figures and figures.model_dump()
        input["characteristics_stale"] = known[name].stale
    return out | {"path": str(entry.path), "fingerprint": entry.spec.fingerprint()}


def _measure(names: Sequence[str]) -> None:
    """What is about to be listed: all inputs of those named, or the default inputs of all."""
    for name in names or catalog.names(Kind.workload):
        entry, _, inputs = _chosen(name)
        for input in inputs if names else [entry.spec.default_input]:
            with progress(f"recording {entry.spec.name} ({input})") as tell:
                characteristics.measure(entry, input, tell)


def si(value: float) -> str:
    """1234567 as 1.23 M"""
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} P"


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
                "limit_bytes": streams.limit_bytes(),
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
    limit = streams.human(streams.limit_bytes())
    print(f"{len(entries)} streams, {streams.human(total)} of {limit}, in {streams.folder()}")
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


def _load_all(kind: Kind, load: Callable[[str], T]) -> tuple[list[T], int]:
    """All documents that are right, and the exit code: 2 when one is wrong (and has been told)."""
    entries: list[T] = []
    told: set[str] = set()
    for name in catalog.names(kind):
        try:
            entries.append(load(name))
        except UserError as error:
            if str(error) not in told:
                say(f"tune: error: {error}")
            told.add(str(error))
    return entries, 2 if told else 0
