# SPDX-License-Identifier: MIT
"""`tune record`: records any program as a workload.

Only standard error is written to, before the program begins and after it has ended. Then its spools
become the stream.
"""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.documents.machine import MachineSpec
from tuner.documents.workload import Sampling
from tuner.errors import UserError, as_object, brief, one_line
from tuner.record import process, samplers, stand_in
from tuner.record import workload as recorded
from tuner.record.process import Ended
from tuner.record.samplers import Sampler
from tuner.record.stand_in import Made
from tuner.scenario import flag
from tuner.terminal import print_json, progress, say
from tuner.text import percent, plural, shell, size

HEADER = Path(recorded.__file__).with_name("tiertune.h")
"""By which a program marks its operations."""


def run(args: Namespace) -> int:
    """The program's exit status (128 + N when signal N killed it); 1 when it has succeeded, but
    nothing was recorded."""
    if args.header:
        print(HEADER.read_text("utf-8"), end="")
        return 0
    if args.pid or args.cgroup is not None:
        _need_operations(args, "damon", sees=False)
        from tuner.commands import attach

        return attach.run(args)
    if args.after is not None:
        raise UserError("--after: belongs to --pid and --cgroup")
    command = _program(args.program)
    machine = catalog.machine(args.machine).spec
    stand_in.check(args)
    kind = samplers.find(args.sampler or samplers.names()[0])
    given = stand_in.options(args, kind.options, machine) | samplers.numbers(args.set)
    _need_operations(args, kind.name, sees=kind.operations)
    sampler = kind(given, machine)
    sampler.usdt = args.operation_usdt
    if reason := sampler.unavailable():
        raise UserError(f"sampler {sampler.name}: {reason}")
    trace = recorded.output(args.output, args.force)
    written: list[tuple[dict[str, Any], Made]] = []
    errors: list[UserError] = []
    with process.spools_beside(trace) as spools:

        def write(ended: Ended | None) -> None:
            """The program's end, or None: it goes on."""
            (spools / "reserve").unlink(missing_ok=True)
            try:
                found = _assemble(sampler, command, ended, spools, trace, machine, args)
            except UserError as error:
                errors.append(error)
                say(f"tune: error: {error}")
                return
            found[0]["slowdown"] = meanwhile.slowdown
            written.append(found)
            if not args.json:
                _tell(*found, sampler, args.offered_load)

        meanwhile = process.Meanwhile(
            sampler, spools, args.seconds, over=lambda: write(None), slowed=partial(_slow, args)
        )
        ended = process.run(sampler, command, spools, meanwhile, quiet=args.json)
        if not meanwhile.ended:
            write(ended)
    status = ended.status or (1 if errors else 0)
    if args.json:
        print_json(
            as_object(str(errors[0]), status) if errors else written[0][0] | {"exit_status": status}
        )
    return status


def _slow(args: Namespace, slowdown: float) -> None:
    """Where somebody watches: what it will take, and what would be quicker."""
    if not sys.stderr.isatty():
        return
    if args.seconds is None:
        quicker = ["--for 60s ends the recording then, and the program goes on"]
    else:
        quicker = [f"--for {args.seconds:g} records about {args.seconds / slowdown:.2g} s of it"]
    if samplers.find("pebs").unavailable() is None:
        quicker.append("--sampler pebs hardly slows it")
    quicker.append("--pid P watches it at full speed")
    quicker.append("a smaller input may stand for this one (--stands-for)")
    say(
        f"tune: recorded, the program is about {slowdown:.2g} times as slow as by itself: a minute "
        f"of it takes {slowdown:.2g} minutes. {'; '.join(quicker)}"
    )


def _need_operations(args: Namespace, sampler: str, *, sees: bool) -> None:
    """UserError for options of operations where the sampler cannot see any."""
    for option in ("operation_usdt", "offered_load"):
        if not sees and getattr(args, option) is not None:
            raise UserError(
                f"{flag(option)}: sampler {sampler} sees no operations; --sampler emulation does"
            )


def _program(words: Sequence[str]) -> list[str]:
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise UserError("which program? tune record -o trace.tts -- command args...")
    found = shutil.which(command[0])
    if found is None:
        raise UserError(f"no program '{brief(command[0], 300)}' that can be run")
    return [found, *command[1:]]


def _assemble(
    sampler: Sampler,
    command: Sequence[str],
    ended: Ended | None,
    spools: Path,
    trace: Path,
    machine: MachineSpec,
    args: Namespace,
) -> tuple[dict[str, Any], Made]:
    """Writes the trace and its workload document; returns the summary. `ended` None: the recording
    has ended, and the program goes on."""
    if not any(spools.glob("*.spool")):
        raise UserError(
            f"{shell(command)}: nothing was recorded: the program ended too early, or "
            f"cannot be observed by the sampler {sampler.name}"
        )
    title = f"writing {trace.name}"
    with progress(title) as update:

        def watch(done: float) -> bool:
            update(done)
            return True

        try:
            info, seen = engine.native().assemble(
                str(spools),
                str(trace),
                workload=trace.stem,
                input=recorded.INPUT,
                parameters=json.dumps(
                    {
                        "command": [one_line(word) for word in command],
                        "sampler": sampler.name,
                        "options": sampler.values,
                        "set_up": args.set_up,
                        **_of_operations(args),
                    }
                ),
                classes=[astuple(c) for c in sampler.classes],
                wall_time=sampler.wall_time,
                block_ms=args.block_ms,
                nominal_latency_ns=machine.fast.latency_ns,
                set_up_s=args.set_up,
                offered_per_s=args.offered_load or 0.0,
                progress=watch,
            )
        except (RuntimeError, OSError) as error:
            raise UserError(str(error)) from error
    text = shell([Path(command[0]).name, *command[1:]])
    sampling = Sampling(
        sampler=sampler.name,
        probability=_probability(info, seen),
        samples=int(seen["sampled"]),
        error_share=seen["error_share"],
        dropped=seen["dropped"],
        dropped_share=seen["dropped"] / max(1, seen["dropped"] + seen["records"]),
        disk_full=seen["disk_full"],
        cut_short=sum(ended is not None or not Path(f"/proc/{p}").exists() for p in seen["open"]),
        unseen=process.unseen(spools),
        outlived=ended.outlived if ended else 0,
        signal=ended.signal if ended else None,
        **({} if ended else {"ended_after": args.seconds}),
    )
    if args.offered_load is not None and args.stands_for is None:
        info = stand_in.cut(trace)
    made = stand_in.enlarge(args, trace, sampling, seen["threads"], info)
    document, footprint = recorded.document(
        trace,
        summary=f"recorded: {text}",
        source=f"tune record --sampler {sampler.name} {made.words}-- {text}",
        threads=made.threads,
        machine=machine,
        sampling=made.sampling,
        scale=made.scale,
        operation=info["op_kinds"][0] if info["operations"] else None,
    )
    stands_for = made.sampling.stands_for
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "sampler": sampler.name,
        "command": list(command),
        "processes": seen["processes"],
        "threads": seen["threads"],
        "accesses": info["accesses"],
        "recorded_bytes": round(footprint / (stands_for.factor if stands_for else 1)),
        "footprint_bytes": footprint,
        "objects": len(info["objects"]),
        "operations": made.info["operations"],
        "operations_abandoned": seen["abandoned"],
        "operations_unbegun": seen["unbegun"],
        "usdt_probes": seen["probes"],
        "blocks": made.info["blocks"],
        "nominal_seconds": made.info["nominal_seconds"],
        "trace_bytes": trace.stat().st_size,
        "samples": seen["sampled"],
        "error_share": seen["error_share"],
        "ended_after": sampling.ended_after,
        "complete": not sampling.missing,
        **{name: getattr(sampling, name) for name in sampling.MISSING},
        **made.summary(),
    }
    return summary, made


def _probability(info: Mapping[str, Any], seen: Mapping[str, Any]) -> float:
    """The share of accesses that were seen."""
    if seen["error_share"] == 0:
        return 1.0
    return float(min(1.0, max(seen["sampled"], 1) / info["accesses"]))


def _of_operations(args: Namespace) -> dict[str, Any]:
    """What was asked of operations; part of the stream's description."""
    given = {name: getattr(args, name) for name in ("operation_usdt", "offered_load")}
    return {name: value for name, value in given.items() if value is not None}


def _operations(
    summary: Mapping[str, Any], made: Made, sampler: Sampler, offered: float | None
) -> Iterator[str]:
    """What is known of the program's operations, and what is not."""
    if count := summary["operations"]:
        rate = count * made.scale / summary["nominal_seconds"]
        yield (
            f"{count:,} from the first to the last, {rate:,.4g} per second on fast memory; what "
            "came before and after is not timed"
        )
        if offered is not None and rate < 0.99 * offered:
            yield f"the {offered:,.4g} per second of --offered-load are more than it can answer"
    elif sampler.usdt or offered is not None:
        why = "the program marks none (--header)"
        if sampler.usdt:
            found = summary["usdt_probes"]
            why = f"{plural(found, 'place')} of {sampler.usdt} in the files that it mapped"
            why += ", and it came by none from the first to the last" if found else ""
        yield f"none: {why}; run time is the only objective"
    if lost := summary["operations_abandoned"]:
        yield f"{lost:,} more had not ended when their thread began another, or ended: not counted"
    if lost := summary["operations_unbegun"]:
        yield f"{lost:,} ended that their thread had not begun: not counted"


def _tell(summary: Mapping[str, Any], made: Made, sampler: Sampler, offered: float | None) -> None:
    """The summary for people, on standard error."""
    sampling = made.sampling
    error = summary["error_share"]
    uncertainty = (
        f"none from sampling: {'not all was kept' if sampling.missing else 'every access was seen'}"
        if error == 0
        else f"{summary['samples']:,.0f} samples; a page's count is off by {percent(error)} "
        "(one standard error)"
    )
    say(
        f"tune: recorded {summary['accesses']:,} accesses to {size(summary['recorded_bytes'])} "
        f"in {plural(summary['objects'], 'object')}; {plural(summary['processes'], 'process')}, "
        f"{plural(summary['threads'], 'thread')} at a time\n"
        f"  trace        {summary['trace']} ({size(summary['trace_bytes'])}, "
        f"{summary['nominal_seconds']:.3g} s when replayed on fast memory)\n"
        f"  uncertainty  {uncertainty}"
    )
    if (slowdown := summary["slowdown"]) is not None:
        say(f"  cost         about {slowdown:.2g} times as slow as the program by itself")
    if sampling.ended_after is not None:
        say(f"  ended        after {sampling.ended_after:g} s; the program goes on, not recorded")
    for text in _operations(summary, made, sampler, offered):
        say(f"  operations   {text}")
    for heading, text in made.told():
        say(f"  {heading:<12} {text}")
    for text in sampling.missing:
        say(f"  missing      {text}")
    for remark in sampler.remarks():
        say(f"  note         {remark}")
    if sampling.missing:
        say("tune: warning: the recording is not whole: the workload's file says so, too")
    say(recorded.next_step(Path(summary["workload"])))
