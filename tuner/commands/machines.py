# SPDX-License-Identifier: MIT
"""`tune machines`: lists the machines, or prints one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from tuner.documents import catalog
from tuner.documents.catalog import Entry, Kind
from tuner.documents.document import Document, dotted, render_value
from tuner.documents.loader import Key
from tuner.documents.machine import MachineSpec
from tuner.errors import as_object, brief
from tuner.terminal import print_json, say, table


def run(args: Namespace) -> int:
    if args.machine:
        _show(args.machine, args.json)
        return 0
    entries, errors = catalog.load_all(Kind.machine, catalog.machine)
    for error in errors:
        say(f"tune: error: {error}")
    code = 2 if errors else 0
    if args.json:
        machines = [_plain(entry) for entry in entries]
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


def _plain(entry: Entry[MachineSpec]) -> dict[str, Any]:
    spec = entry.spec
    return spec.model_dump() | {"path": str(entry.path), "fingerprint": spec.fingerprint()}


def _show(name: str, as_json: bool) -> None:
    """The machine as a file without a base. Each value has the place where it is written, and its
    source beside it."""
    document, entry = catalog.machine_document(name)
    if as_json:
        places = {dotted(key): _place(document, key) for key, _ in _values(document.data)}
        print_json({"machine": _plain(entry), "written": places})
        return
    print("# Each value, and where it is written; its source is there, too.")
    open_keys: Key = ()
    for key, value in _values(document.data):
        for depth in range(len(key) - 1):
            if key[: depth + 1] != open_keys[: depth + 1]:
                print(f"{'  ' * depth}{key[depth]}:")
        open_keys = key[:-1]
        line = f"{'  ' * len(open_keys)}{key[-1]}: {render_value(value)}"
        print(f"{line:<50}  # {_place(document, key)}")


def _values(data: dict[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """What is no mapping, with its key."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _values(value, (*above, name))
        else:
            yield (*above, name), value


def _place(document: Document, key: Key) -> str:
    path, line = document.place(key)
    return f"{brief(str(path), 300)}:{line}"
