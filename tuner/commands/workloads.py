# SPDX-License-Identifier: MIT
"""`tune workloads`: lists the workloads and their inputs, with the figures of their streams."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.documents import catalog
from tuner.documents.catalog import Entry, Kind
from tuner.documents.workload import WorkloadSpec
from tuner.errors import as_object, unknown
from tuner.report import characteristics
from tuner.report.characteristics import Known
from tuner.terminal import print_json, progress, say, table
from tuner.text import percent, si


def run(args: Namespace) -> int:
    """The workloads on their default inputs, or every input of those that are named."""
    if args.measure:
        _measure(args.workload)
    errors: list[str] = []
    if args.workload:
        chosen = [_chosen(name) for name in args.workload]
    else:
        loaded, errors = catalog.load_all(Kind.workload, _with_figures)
        chosen = [(entry, known, [entry.spec.default_input]) for entry, known in loaded]
    for error in errors:
        say(f"tune: error: {error}")
    code = 2 if errors else 0
    if args.json:
        workloads = [_workload(entry, known) for entry, known, _ in chosen]
        print_json(
            {"workloads": workloads} | (as_object("\n".join(errors), code) if errors else {})
        )
        return code
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
        say("* of an older stream: `tune workloads --measure W` measures it again")
    if any(one.figures is None for one in shown):
        say("- is not known yet: `tune workloads --measure W` makes the stream and measures it")
    return code


def _chosen(name: str) -> tuple[Entry[WorkloadSpec], dict[str, Known], list[str]]:
    """The workload that `W` or `W:INPUT` names, and the inputs."""
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
        percent(found.store_share, 0),
        *(percent(found.hottest[share], 0) for share in HOTTEST),
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
            with progress(f"making the stream of {entry.spec.name} ({input})") as update:
                characteristics.measure(entry, input, update)
