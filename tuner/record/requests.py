# SPDX-License-Identifier: MIT
"""Traces of caches: the requests that a cache's clients made, answered by CacheLib's store or by
Redis.

The engine reads the traces (`engine/record/requests.hpp`) and has the stores
(`workloads/kernels/requests.hpp`); `tuner/record/importers.md` shows how to use both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents.machine import MachineSpec
from tuner.documents.workload import Sampling
from tuner.errors import UserError, one_line
from tuner.limits import MOST_GIB
from tuner.record import workload as recorded
from tuner.record.samplers import Option, values_of
from tuner.text import percent, plural


@dataclass(frozen=True)
class Store:
    """What answers requests. `threads`: unless they are given; `options`: of --set."""

    name: str
    meaning: str
    threads: int
    options: tuple[Option, ...]


AS_THE_TRACE = -1.0

LOOK_ASIDE = Option(
    "look_aside",
    AS_THE_TRACE,
    AS_THE_TRACE,
    1,
    "",
    "1: what a look-up misses is inserted; -1: if the trace inserts nothing itself",
)

# Times are those that the kernel `cachelib` has for the social graph, and threads cachebench's in
# both papers that it follows.
CACHELIB = (
    Option("cache_gib", None, 1 / 1024, MOST_GIB, "GiB", "memory of the cache for items"),
    Option("op_ns", 400, 0, 1e9, "ns", "computation within an operation"),
    Option("client_ns", 1425, 0, 1e9, "ns", "computation of a thread between two operations"),
    Option("lru_refresh_s", 60, 0, 1e9, "s", "an item moves in its LRU list at most this often"),
    Option("touch_value", 1, 0, 1, "", "1: a look-up reads all of the value"),
    Option("populate", 1, 0, 1, "", "1: an insertion writes all of the value"),
    LOOK_ASIDE,
)
# As the kernel `redis` has them.
REDIS = (
    Option("op_ns", 1200, 0, 1e9, "ns", "computation within a command"),
    Option("client_ns", 3000, 0, 1e9, "ns", "of the event loop between two commands"),
    LOOK_ASIDE,
)
STORES = {
    store.name: store
    for store in (
        Store("cachelib", "CacheLib's store", 16, CACHELIB),
        Store("redis", "Redis, without a limit of memory", 8, REDIS),
    )
}
"""The default first."""

FLAGS = ("touch_value", "populate", "look_aside")


def options(store: Store, given: Mapping[str, float]) -> dict[str, float]:
    """UserError for what is unknown, missing or beyond its limits."""

    def missing(name: str) -> float:
        raise UserError(
            f"--format requests needs --set {name}=N: the memory of the cache whose requests these "
            "are, in GiB"
        )

    values = values_of(f"the store {store.name}", store.options, given, missing)
    for name in FLAGS:
        if name in values and values[name] != int(values[name]):
            raise UserError(f"--set {name}: found {values[name]:g}; must be a whole number")
    return values


def replay(
    read: Callable[[int], bytes],
    *,
    name: str,
    trace: Path,
    columns: str,
    store: Store,
    scale: int,
    threads: int,
    block_ms: float,
    machine: MachineSpec,
    llc_bytes: float,
    values: Mapping[str, float],
    progress: Callable[[float], None],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes the stream; returns its description and a summary. UserError names what is wrong."""

    def watch(done: float) -> bool:
        progress(done)
        return True

    look_aside = values["look_aside"]
    try:
        info, seen = engine.native().import_requests(
            read,
            name=name,
            path=str(trace),
            columns=columns,
            workload=trace.stem,
            input=recorded.INPUT,
            parameters=json.dumps(
                {
                    "format": "requests",
                    **({} if store.name == "cachelib" else {"store": store.name}),
                    "threads": threads,
                    **values,
                }
            ),
            scale=float(scale),
            threads=float(threads),
            llc_bytes=llc_bytes,
            block_ms=block_ms,
            nominal_latency_ns=machine.fast.latency_ns,
            store=store.name,
            cache_bytes=values.get("cache_gib", 0) * 2**30,
            lru_refresh_s=values.get("lru_refresh_s", 0),
            op_ns=values["op_ns"],
            client_ns=values["client_ns"],
            touch_value=bool(values.get("touch_value", True)),
            populate=bool(values.get("populate", True)),
            look_aside=None if look_aside == AS_THE_TRACE else bool(look_aside),
            progress=watch,
        )
    except ValueError as error:
        given = f"--set cache_gib={values['cache_gib']:g}, " if "cache_gib" in values else ""
        raise UserError(f"{name}: {error} ({given}--scale {scale})") from error
    return dict(info), dict(seen)


def sampling(seen: Mapping[str, Any]) -> Sampling:
    found = Sampling(sampler="requests", samples=seen["requests"], error_share=0)
    if not seen["unknown"]:
        return found
    share = seen["unknown"] / (seen["unknown"] + seen["requests"])
    return found.model_copy(update={"dropped": seen["unknown"], "dropped_share": share})


COUNTED = {
    "empty": ("left out", "rows with a count of 0"),
    "too_large": ("not stored", "objects above 1 MiB"),
    "no_room": ("not stored", "objects of a size class that got none of the cache's memory"),
    "unsized": ("not stored", "objects whose size no request says"),
    "sized": ("sizes", "look-ups without one, which other requests for their keys have"),
    "late": ("out of order", "rows with a time before an earlier row's; that one's counts"),
}
"""What was not taken as it stands: a heading, and what the number counts."""


def told(seen: Mapping[str, Any], scale: int, nominal_seconds: float) -> list[tuple[str, str]]:
    """What became of the requests, and what the trace does not say: headings and sentences."""
    lines = []
    if scale > 1:
        kept = f"{plural(seen['replayed'], 'request')} for {plural(seen['keys'], 'key')}"
        lines.append(("miniature", f"one key in {scale}, which stands for them all: {kept}"))
    operations = [f"{seen['gets']:,} look-ups"]
    if seen["gets"]:
        operations[0] += f" ({percent(seen['hits'] / seen['gets'])} hit)"
    operations += [f"{seen[name]:,} {name}" for name in ("sets", "adds", "updates") if seen[name]]
    if seen["deletes"]:
        operations.append(f"{seen['deletes']:,} deletes ({seen['deleted']:,} of a key there)")
    missed = "inserted" if seen["look_aside"] else "not inserted (--set look_aside)"
    lines += [
        ("operations", ", ".join(operations)),
        (
            "store",
            f"{seen['inserted']:,} insertions, {seen['evicted']:,} evictions; what a look-up "
            f"misses is {missed}",
        ),
    ]
    if seen["with_ttl"]:
        expired = (
            f"{seen['expired']:,} objects were found expired"
            if seen["times"]
            else "it has no effect, as the trace has no times"
        )
        had = plural(seen["with_ttl"], "request")
        lines.append(("expiry", f"{had} with a time to live; {expired}"))
    if seen["unknown"]:
        example = one_line(seen["unknown_name"])
        lines.append(
            (
                "left out",
                f"{seen['unknown']:,} rows with an operation that the store has not, such as "
                f"'{example}'",
            )
        )
    lines += [
        (heading, f"{seen[name]:,} {what}")
        for name, (heading, what) in COUNTED.items()
        if seen[name]
    ]
    if seen["unused"]:
        lines.append(("not used", f"columns {', '.join(map(one_line, seen['unused']))}"))
    if not seen["operations"]:
        lines.append(("assumed", "every request is a look-up: the trace names no operations"))
    if not seen["key_sizes"]:
        length = "8 bytes long" if seen["layout"] == "oracleGeneral" else "as long as their text"
        lines.append(("assumed", f"keys are {length}: the trace does not say"))
    spans = f"{seen['seconds']:,} s of the trace" if seen["times"] else "a trace without times"
    lines.append(
        (
            "time",
            f"{spans} in {nominal_seconds:.3g} s: threads ask as fast as they are answered, and "
            "what changes over the trace changes so much faster",
        )
    )
    return lines
