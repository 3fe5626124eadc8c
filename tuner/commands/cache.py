# SPDX-License-Identifier: MIT
"""`tune cache`: lists or clears the cached access streams."""

from __future__ import annotations

from argparse import Namespace

from tuner.errors import UserError
from tuner.run import streams
from tuner.terminal import print_json, table
from tuner.text import size


def run(args: Namespace) -> int:
    if args.action == "clear":
        count, freed = streams.clear(only_stale=args.stale)
        if args.json:
            print_json({"folder": str(streams.folder()), "removed": count, "bytes": freed})
        else:
            print(f"removed {count} streams, {size(freed)}, from {streams.folder()}")
        return 0
    if args.stale:
        raise UserError("--stale belongs to `tune cache clear`")
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
                    size(e.bytes),
                    "another" if e.stale else "this one",
                )
                for e in entries
            ],
        )
    limit = size(streams.limit_bytes())
    print(f"{len(entries)} streams, {size(total)} of {limit}, in {streams.folder()}")
    return 0
