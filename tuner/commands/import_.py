# SPDX-License-Identifier: MIT
"""`tune import`: makes a workload of what another tool saw of a program.

The formats are read by the engine (`engine/record/import.hpp`); `tuner/record/importers.md` shows
how to get each. Nothing appears unless all of the input was understood.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from tuner import engine
from tuner.documents import catalog
from tuner.documents.machine import MachineSpec
from tuner.documents.workload import Sampling
from tuner.errors import UserError
from tuner.record import requests, stand_in
from tuner.record import workload as recorded
from tuner.record.samplers import CYCLES_PER_INSTRUCTION, numbers
from tuner.terminal import print_json, progress, say
from tuner.text import percent, plural, shell, size

GZIP_MAGIC = b"\x1f\x8b"
ZLIB_MAGIC = (b"x\x01", b"x\x9c", b"x\xda")  # damon.data
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BINARY = {
    b"PERFILE2": "a file of perf record: import what `perf script -i FILE` prints",
    b"\x17\x08Dtrac": "a file of trace-cmd: import what `trace-cmd report -i FILE` prints",
}
MOST_PERIOD = 1e12
REQUESTS = "requests"
READING = 0.5
"""Part of the work; the rest is the store's, about as long."""
Input = tuple[str, Callable[[int], bytes], Callable[[float], None]]
"""Its name, what reads from it, and what takes the fraction of all work that is done."""
TOLD = {
    "no_address": ("left out", "samples without a user-space address"),
    "cached": ("left out", "samples that a cache served"),
    "no_level": ("left out", "samples that are no access, or of which perf does not say the level"),
    "repeated": ("left out", "more events of Arm SPE about the same operations"),
    "skipped": ("left out", "lines about something else: other events, call chains, headings"),
    "lost": ("lost", "events, as the input says: they are missing"),
    "stood_for": ("left out", "observations of pages that others stand for (--scale)"),
    "unsure": ("not sure", "samples used that a cache further out may have served"),
    "late": ("out of order", "rows with a time before an earlier row's; that one's counts"),
}
"""What of an input was not used as it stands: a heading, and what the number counts."""


def run(args: Namespace) -> int:
    """`tune import`."""
    trace = recorded.output(args.output, args.force)
    machine = catalog.machine(args.machine).spec
    stand_in.check(args)
    if args.format == REQUESTS:
        return _requests(args, trace, machine)
    for option, given in (
        ("--columns", args.columns),
        ("--set", args.set),
        ("--store", args.store),
    ):
        if given:
            raise UserError(f"{option}: belongs to --format {REQUESTS}")
    period = _period(args)
    with _input(args.file) as (name, read, _):
        info, seen = _import(args, name, read, trace, machine, period)
    made = stand_in.enlarge(args, trace, _sampling(args, seen), seen["threads"], info, args.scale)
    sampling = made.sampling
    document, footprint = recorded.document(
        trace,
        summary=f"imported from {Path(name).name} ({args.format})",
        source=f"tune import --format {args.format} {made.words}{name}",
        threads=made.threads,
        machine=machine,
        sampling=sampling,
        scale=made.scale,
    )
    info = made.info
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "format": args.format,
        "footprint_bytes": footprint,
        "blocks": info["blocks"],
        "nominal_seconds": info["nominal_seconds"],
        **seen,
        **made.summary(),
    }
    if args.json:
        print_json(summary)
    else:
        _tell(summary, sampling, args, made.told())
    return 0


def _requests(args: Namespace, trace: Path, machine: MachineSpec) -> int:
    """Requests become what they do to a store."""
    for option in ("period", "probability"):
        if getattr(args, option) is not None:
            raise UserError(f"--{option}: a trace of requests has all of them; nothing to expand")
    store = requests.STORES[args.store or next(iter(requests.STORES))]
    values = requests.options(store, numbers(args.set))
    threads = args.threads or store.threads
    with _input(args.file, READING) as (name, read, update), _errors(name, trace):
        info, seen = requests.replay(
            read,
            name=name,
            trace=trace,
            columns=args.columns or "",
            store=store,
            scale=args.scale,
            threads=threads,
            block_ms=args.block_ms,
            machine=machine,
            llc_bytes=machine.llc_bytes / stand_in.factor(args),
            values=values,
            progress=lambda done: update(READING + (1 - READING) * done),
        )
    made = stand_in.enlarge(args, trace, requests.sampling(seen), threads, info, args.scale)
    info = made.info
    given = shell(
        (["--store", args.store] if args.store else [])
        + [word for item in args.set for word in ("--set", item)]
        + (["--columns", args.columns] if args.columns else [])
        + (["--scale", str(args.scale)] if args.scale > 1 else [])
    )
    document, footprint = recorded.document(
        trace,
        summary=f"requests of {Path(name).name}, answered by {store.meaning}",
        source=f"tune import --format {REQUESTS} {made.words}{given} {name}",
        threads=made.threads,
        machine=machine,
        sampling=made.sampling,
        scale=made.scale,
        operation=_operation(seen),
        window="steady",
    )
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "format": args.format,
        "footprint_bytes": footprint,
        "blocks": info["blocks"],
        "nominal_seconds": info["nominal_seconds"],
        "threads": made.threads,
        "options": values,
        **seen,
        **made.summary(),
    }
    if args.json:
        print_json(summary)
        return 0
    say(
        f"tune: read {plural(seen['requests'], 'request')} ({seen['layout']}); the store used "
        f"{size(footprint * args.scale / made.scale)}\n"
        f"  trace        {trace} ({size(trace.stat().st_size)}, "
        f"{info['nominal_seconds']:.3g} s when replayed on fast memory, {made.threads:g} threads)"
    )
    told = requests.told(seen, args.scale, info["nominal_seconds"])
    for heading, text in [*told, *made.told()]:
        say(f"  {heading:<12} {text}")
    say(recorded.next_step(document))
    return 0


def _operation(seen: Mapping[str, Any]) -> str:
    """The one whose latency counts, of those that there are."""
    if seen["gets"]:
        return "get"
    return "set" if seen["sets"] or seen["adds"] or seen["updates"] else "delete"


def _period(args: Namespace) -> float:
    """Accesses that one observation stands for; 0: what the file says, or 1."""
    if args.period is None and args.probability is None:
        return 0.0
    option = "--period" if args.period is not None else "--probability"
    if args.format == "lackey":
        raise UserError(f"{option}: lackey sees every access; there is nothing to expand")
    if args.format == "damon" and option == "--probability":
        raise UserError(
            "--probability: DAMON counts checks, not accesses; --period says how many accesses "
            "one successful check stands for"
        )
    if args.period is not None:
        if args.period < 1:
            raise UserError(f"--period: found {args.period:g}; must be at least 1")
        if args.period > MOST_PERIOD:
            raise UserError(f"--period: found {args.period:g}; must be at most {MOST_PERIOD:g}")
        return float(args.period)
    if not 0 < args.probability <= 1:
        raise UserError(f"--probability: found {args.probability:g}; must be above 0, at most 1")
    if args.probability < 1 / MOST_PERIOD:
        raise UserError(
            f"--probability: found {args.probability:g}; must be at least {1 / MOST_PERIOD:g}"
        )
    return 1 / float(args.probability)


@contextmanager
def _input(file: str, part: float = 1.0) -> Iterator[Input]:
    """An input (a file or standard input, gzipped or not), whose reading is that part of the
    work."""
    if file == "-":
        name = "standard input"
        yield name, _unpacked(name, cast(BufferedReader, sys.stdin.buffer)).read, lambda _: None
        return
    try:
        raw = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    with raw, progress(f"importing {file}") as update:
        size = os.fstat(raw.fileno()).st_size
        stream = _unpacked(file, raw)

        def read(count: int) -> bytes:
            got = stream.read(count)
            if size and len(got) == count:  # not all of it at once: worth reporting
                update(part * raw.tell() / size)
            return got

        yield file, read, update


class _Inflated:
    """Reads zlib-compressed data."""

    def __init__(self, raw: BufferedReader) -> None:
        self.raw = raw
        self.inflate = zlib.decompressobj()

    def read(self, count: int) -> bytes:
        """At most that many bytes; none at the end."""
        while not self.inflate.eof:
            packed = self.inflate.unconsumed_tail or self.raw.read(1 << 16)
            out = self.inflate.decompress(packed, count)
            if out:
                return out
            if not packed:
                raise EOFError("the file is cut off")
        return b""


def _unpacked(name: str, raw: BufferedReader) -> BinaryIO | _Inflated:
    begin = raw.peek(8)[:8]
    if begin.startswith(ZSTD_MAGIC):
        raise UserError(f"{name}: compressed by zstd: `zstd -dc FILE | tune import ... -` reads it")
    for magic, what in BINARY.items():
        if begin.startswith(magic):
            raise UserError(f"{name}: {what}")
    if begin[:2] in ZLIB_MAGIC:
        return _Inflated(raw)
    if begin[:2] == GZIP_MAGIC:
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    return raw


def _import(
    args: Namespace,
    name: str,
    read: Callable[[int], bytes],
    trace: Path,
    machine: MachineSpec,
    period: float,
) -> tuple[dict[str, Any], dict[str, Any]]:
    options = {
        "format": args.format,
        "period": period,
        "threads": float(args.threads or 0),
        "ns_per_instruction": CYCLES_PER_INSTRUCTION / machine.ghz,
        "llc_bytes": machine.llc_bytes / stand_in.factor(args),
        "block_ms": args.block_ms,
        "nominal_latency_ns": machine.fast.latency_ns,
        "scale": args.scale,
    }
    with _errors(name, trace):
        info, seen = engine.native().import_trace(
            read,
            name=name,
            path=str(trace),
            workload=trace.stem,
            input=recorded.INPUT,
            parameters=json.dumps(options),
            **options,
        )
    return dict(info), dict(seen)


@contextmanager
def _errors(name: str, trace: Path) -> Iterator[None]:
    """What goes wrong while the input is read or the stream written, as one line."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise UserError(f"{name}: damaged compressed data: {error}") from error
    except (RuntimeError, ValueError, OSError) as error:
        text = str(error)
        raise UserError(
            text if name in text or str(trace) in text else f"{name}: {text}"
        ) from error


def _whole(args: Namespace) -> bool:
    """Whether nothing says if there were accesses that the rows of a table do not show."""
    return bool(args.format == "csv" and args.period is None and args.probability is None)


def _sampling(args: Namespace, seen: Mapping[str, Any]) -> Sampling:
    # DAMON's checks are not accesses: there is no share of accesses that was sampled.
    known = args.format != "damon" and seen["period_known"] and not _whole(args)
    sampling = Sampling(
        sampler=args.format,
        probability=min(1.0, seen["observed"] / seen["accesses"]) if known else None,
        samples=seen["samples"],
        error_share=seen["error_share"],
    )
    if not seen["lost"]:
        return sampling
    share = seen["lost"] / (seen["lost"] + seen["samples"])
    return sampling.model_copy(update={"dropped": seen["lost"], "dropped_share": share})


def _tell(
    summary: Mapping[str, Any],
    sampling: Sampling,
    args: Namespace,
    more: Sequence[tuple[str, str]],
) -> None:
    trace = Path(summary["trace"])
    uncertainty = (
        f"a page's count is off by {percent(sampling.error_share)}, of the hottest pages (with "
        f"half of the accesses) by {percent(summary['hot_error_share'])} (one standard error)"
        if sampling.error_share
        else "none, if the rows are all accesses; if they are a sample, --period says of how many"
        if _whole(args)
        else "none from sampling: every access was seen"
    )
    say(
        f"tune: read {summary['lines']:,} lines: {summary['samples']:,} observations of "
        f"{summary['accesses']:,.0f} accesses to {size(summary['footprint_bytes'])}\n"
        f"  trace        {trace} ({size(trace.stat().st_size)}, "
        f"{summary['nominal_seconds']:.3g} s when replayed on fast memory)\n"
        f"  uncertainty  {uncertainty}"
    )
    if args.scale > 1:
        say(f"  miniature    one page in {args.scale}, which stands for them all")
    for heading, text in more:
        say(f"  {heading:<12} {text}")
    for key, (heading, what) in TOLD.items():
        if summary[key]:
            say(f"  {heading:<12} {summary[key]:,} {what}")
    if not summary["period_known"]:
        say(
            "  period       1 of each sample, as perf prints it that knows none: heat is relative; "
            "--period says how many accesses a sample stands for"
        )
    say(recorded.next_step(Path(summary["workload"])))
