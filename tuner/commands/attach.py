# SPDX-License-Identifier: MIT
"""`tune record --pid P` and `--cgroup C`: what processes do that run already."""

from __future__ import annotations

import json
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.documents.workload import Sampling
from tuner.errors import UserError
from tuner.record import damon, samplers
from tuner.record import workload as recorded
from tuner.record.process import spools_beside
from tuner.record.samplers.damon import Damon
from tuner.terminal import print_json, progress, say
from tuner.text import percent, plural, size

CGROUPS = Path("/sys/fs/cgroup")
SAMPLER = "damon"


def run(args: Namespace) -> int:
    """0; 1 when nothing was seen."""
    if args.program:
        raise UserError("--pid and --cgroup watch processes that run: no command goes with them")
    if args.seconds is None:
        raise UserError("--pid and --cgroup need --for S: how long to watch")
    if args.set_up:
        raise UserError("--set-up: belongs to a command; --after S begins later")
    machine = catalog.machine(args.machine).spec
    name = args.sampler or SAMPLER
    sampler = samplers.find(name)(samplers.numbers(args.set), machine)
    if not isinstance(sampler, Damon):
        raise UserError(f"sampler {name}: records only a program that it starts; --sampler damon")
    monitoring = sampler.monitoring
    if reason := sampler.unavailable():
        raise UserError(f"sampler {name}: {reason}")
    trace = recorded.output(args.output, args.force)
    members = _members(args)
    _processes(args, members)  # before any waiting
    with spools_beside(trace) as folder, _interrupted() as asked:
        if args.after:
            _wait(args.after, asked)
        pids = _processes(args, members)
        text = folder / "regions"
        with progress(f"watching {plural(len(pids), 'process')}") as update:

            def told(done: float) -> bool:
                update(done)
                return not asked()

            with closing(damon.Lines(text)) as out:
                watched = damon.watch(
                    pids, args.seconds, monitoring, out, members=members, told=told
                )
        (folder / "reserve").unlink(missing_ok=True)
        threads = max(1, round(watched.processor / max(watched.seconds, 1e-9)))
        with text.open("rb") as regions:
            try:
                info, seen = engine.native().import_trace(
                    regions.read,
                    name="what DAMON said",
                    path=str(trace),
                    format="damon",
                    workload=trace.stem,
                    input=recorded.INPUT,
                    parameters=json.dumps({"sampler": name, "options": sampler.values}),
                    period=0.0,
                    threads=float(threads),
                    ns_per_instruction=0.0,
                    llc_bytes=0.0,
                    block_ms=args.block_ms,
                    nominal_latency_ns=machine.fast.latency_ns,
                    scale=1,
                )
            except (RuntimeError, ValueError, OSError) as error:
                raise UserError(str(error)) from error
        blur = _blur(text)
    whom = f"--cgroup {args.cgroup}" if args.cgroup else _pids(args.pid)
    sampling = Sampling(
        sampler=name,
        samples=seen["samples"],
        error_share=seen["error_share"],
        dropped=seen["lost"],
        dropped_share=seen["lost"] / max(1, seen["lost"] + seen["samples"]),
        disk_full=watched.disk_full,
        cut_short=len(watched.ended),
        unseen=watched.unseen,
    )
    document, footprint = recorded.document(
        trace,
        summary=f"watched for {watched.seconds:.3g} s by DAMON, in regions of {size(blur)} and "
        f"more for half of it, stores taken for loads: {damon.names(pids)}",
        source=f"tune record --sampler {name} {whom} --for {args.seconds:g}",
        threads=threads,
        machine=machine,
        sampling=sampling,
    )
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "sampler": name,
        "pids": pids,
        "seconds": watched.seconds,
        "processor_seconds": watched.processor,
        "kernel_processor_seconds": watched.kernel_processor,
        "threads": threads,
        "accesses": info["accesses"],
        "footprint_bytes": footprint,
        "objects": len(info["objects"]),
        "region_bytes": blur,
        "error_share": seen["error_share"],
        "complete": not sampling.missing,
        **{name: getattr(sampling, name) for name in sampling.MISSING},
    }
    if args.json:
        print_json(summary)
    else:
        _tell(summary, sampling, sampler)
    return 0


def _tell(summary: dict[str, Any], sampling: Sampling, sampler: Damon) -> None:
    share = summary["kernel_processor_seconds"] / max(summary["seconds"], 1e-9)
    say(
        f"tune: watched {plural(len(summary['pids']), 'process')} for {summary['seconds']:.3g} s: "
        f"{summary['accesses']:,} times a page was found accessed, in "
        f"{size(summary['footprint_bytes'])} and {plural(summary['objects'], 'object')}\n"
        f"  trace        {summary['trace']}\n"
        f"  resolution   {size(summary['region_bytes'])}: half of what was found accessed lies in "
        "regions at least so large, within which all pages count the same\n"
        f"  counts       at most one per page and {sampler.values['sample_ms']:g} ms, loads and "
        "stores alike: how often a hot page is accessed, and what is written to, was not seen\n"
        f"  cost         {percent(share)} of a processor, in the kernel's thread"
    )
    for text in sampling.missing:
        say(f"  missing      {text}")
    say(recorded.next_step(Path(summary["workload"])))


def _blur(text: Path) -> int:
    """Bytes: half of what was found accessed lies in regions at least so large."""
    weights: dict[int, int] = {}
    with text.open("r") as lines:
        for line in lines:
            _, found, rest = line.partition("damon_aggregated: ")
            if not found:
                continue
            words = rest.split()
            start, _, end = words[2].rstrip(":").partition("-")
            length = int(end) - int(start)
            weights[length] = weights.get(length, 0) + length * int(words[3])
    half, above = sum(weights.values()) / 2, 0
    for length in sorted(weights, reverse=True):
        above += weights[length]
        if above >= half:
            return length
    return 0


def _members(args: Namespace) -> Callable[[], set[int]]:
    """Those of the control group, now; none without one."""
    if args.cgroup is None:
        return set
    given = Path(args.cgroup)
    folder = given if given.is_dir() else CGROUPS / args.cgroup.lstrip("/")
    if not (folder / "cgroup.procs").is_file():
        raise UserError(f"--cgroup {args.cgroup}: no control group (no {folder}/cgroup.procs)")
    return lambda: damon.members(folder)


def _processes(args: Namespace, members: Callable[[], set[int]]) -> list[int]:
    found = sorted(members()) if args.cgroup else list(dict.fromkeys(args.pid))
    if not found:
        raise UserError(f"--cgroup {args.cgroup}: there are no processes in it")
    for pid in found:
        if not Path(f"/proc/{pid}").exists():
            raise UserError(f"--pid {pid}: there is no such process")
        if pid == os.getpid():
            raise UserError(f"process {pid} is this command itself: it cannot watch itself")
    return found


def _pids(pids: list[int]) -> str:
    return " ".join(f"--pid {pid}" for pid in pids)


@contextmanager
def _interrupted() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came: what was seen until then is written."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _wait(seconds: float, asked: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    say(f"tune: beginning in {seconds:g} s")
    while not asked() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))
    if asked():
        raise UserError("interrupted before anything was watched")
