"""`tune import`: makes a workload of what another tool saw of a program.

The formats are read by the engine (`engine/record/import.hpp`); `importers.md` tells how to get
each. Nothing appears unless all of the input was understood.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from tuner import catalog, engine
from tuner.documents import render
from tuner.errors import UserError
from tuner.models import NAME, MachineSpec, Sampling
from tuner.streams import human
from tuner.terminal import print_json, progress, say

CYCLES_PER_INSTRUCTION = 0.5
"""While nothing waits for memory: lackey's clock. As `tune record` takes it."""

GZIP_MAGIC = b"\x1f\x8b"


def run(args: Namespace) -> int:
    """`tune import`."""
    trace = _output(args.output, args.force)
    machine = catalog.machine(args.machine).spec
    period = _period(args)
    with _input(args.file) as (name, read):
        info, seen = _import(args, name, read, trace, machine, period)
    sampling = _sampling(args.format, period, seen)
    document = trace.with_suffix(".yaml")
    document.write_text(_workload(args, name, trace, machine, info, seen, sampling))
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "format": args.format,
        "pages": info["pages"],
        "blocks": info["blocks"],
        "accesses": info["accesses"],
        "nominal_seconds": info["nominal_seconds"],
        **seen,
    }
    if args.json:
        print_json(summary)
    else:
        _tell(summary, sampling)
    return 0


def _output(text: str, force: bool) -> Path:
    trace = Path(text).absolute()
    if trace.suffix != ".tts" or not re.fullmatch(NAME, trace.stem):
        raise UserError(
            f"-o {text}: must be NAME.tts, where NAME consists of letters, digits, '.', '_', '-': "
            "it names the workload"
        )
    if not trace.parent.is_dir():
        raise UserError(f"-o {text}: there is no folder {trace.parent}")
    for file in (trace, trace.with_suffix(".yaml")):
        if file.exists() and not force:
            raise UserError(f"{file} exists; --force replaces it")
    return trace


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
        return float(args.period)
    if not 0 < args.probability <= 1:
        raise UserError(f"--probability: found {args.probability:g}; must be above 0, at most 1")
    return 1 / float(args.probability)


@contextmanager
def _input(file: str) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """The input's name, and a function that reads on: a file or standard input, gzipped or not."""
    if file == "-":
        yield "standard input", _unpacked(cast(BufferedReader, sys.stdin.buffer)).read
        return
    try:
        raw = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    with raw, progress(f"reading {file}") as tell:
        size = os.fstat(raw.fileno()).st_size
        stream = _unpacked(raw)

        def read(count: int) -> bytes:
            got = stream.read(count)
            if size and len(got) == count:  # not the first and last piece at once: worth telling
                tell(raw.tell() / size)
            return got

        yield file, read


def _unpacked(raw: BufferedReader) -> BinaryIO:
    packed = raw.peek(2)[:2] == GZIP_MAGIC
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw) if packed else raw)


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
        "llc_bytes": float(machine.llc_bytes),
        "block_ms": args.block_ms,
        "nominal_latency_ns": machine.fast.latency_ns,
    }
    try:
        info, seen = engine.native().import_trace(
            read,
            name=name,
            path=str(trace),
            workload=trace.stem,
            input="imported",
            parameters=json.dumps(options),
            **options,
        )
    except (EOFError, zlib.error) as error:
        raise UserError(f"{name}: damaged gzip data: {error}") from error
    except (RuntimeError, ValueError, OSError) as error:
        text = str(error)
        raise UserError(
            text if name in text or str(trace) in text else f"{name}: {text}"
        ) from error
    return dict(info), dict(seen)


def _sampling(format: str, period: float, seen: Mapping[str, Any]) -> Sampling | None:
    """What the workload's document says about the uncertainty; None where every access was seen."""
    if seen["error_share"] == 0:
        return None
    # DAMON's checks are not accesses: there is no share of accesses that was sampled.
    sampled = None if format == "damon" else min(1.0, seen["samples"] / seen["accesses"])
    return Sampling(
        sampler=format,
        probability=sampled,
        samples=seen["samples"],
        error_share=seen["error_share"],
    )


def _workload(
    args: Namespace,
    name: str,
    trace: Path,
    machine: MachineSpec,
    info: Mapping[str, Any],
    seen: Mapping[str, Any],
    sampling: Sampling | None,
) -> str:
    """The document with which `tune run --workload ./NAME.yaml` plays the trace."""
    imported: dict[str, Any] = {"summary": "as it ran", "trace": trace.name}
    if sampling:
        imported["sampling"] = sampling.model_dump(exclude_none=True)
    return render(
        {
            "name": trace.stem,
            "summary": f"imported from {Path(name).name} ({args.format})",
            "sources": [f"tune import --format {args.format} {name}"],
            "objective": "runtime",
            "objectives": ["runtime"],
            "footprint_gib": info["pages"] * 4096 / 2**30,
            "scale": 1.0,
            "threads": float(seen["threads"]),
            "machine": machine.name,
            "default_input": "imported",
            "smoke_input": "imported",
            "inputs": {"imported": imported},
        }
    )


def _tell(summary: Mapping[str, Any], sampling: Sampling | None) -> None:
    say(
        f"tune: read {summary['lines']:,} lines: {summary['samples']:,} observations of "
        f"{summary['accesses']:,} accesses to {human(summary['pages'] * 4096)}\n"
        f"  trace        {summary['trace']} ({human(Path(summary['trace']).stat().st_size)}, "
        f"{summary['nominal_seconds']:.3g} s when replayed on fast memory)\n"
        "  uncertainty  "
        + (
            "none from sampling: every access was seen"
            if sampling is None
            else f"a page's count is off by {summary['error_share']:.1%}, of the hottest pages "
            f"(with half of the accesses) by {summary['hot_error_share']:.1%} (one standard error)"
        )
    )
    if summary["no_address"]:
        say(f"  left out     {summary['no_address']:,} samples without a user-space address")
    if summary["cached"]:
        say(f"  left out     {summary['cached']:,} samples that a cache served")
    say(f"next: tune run --workload {summary['workload']}")
