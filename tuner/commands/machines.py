"""`tune machines`: lists the machine profiles."""

from __future__ import annotations

from argparse import Namespace

from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.errors import as_object
from tuner.terminal import print_json, say, table


def run(args: Namespace) -> int:
    entries, errors = catalog.load_all(Kind.machine, catalog.machine)
    for error in errors:
        say(f"tune: error: {error}")
    code = 2 if errors else 0
    if args.json:
        machines = [
            e.spec.model_dump() | {"path": str(e.path), "fingerprint": e.spec.fingerprint()}
            for e in entries
        ]
        print_json({"machines": machines} | (as_object("\n".join(errors), code) if errors else {}))
        return code
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
    return code
