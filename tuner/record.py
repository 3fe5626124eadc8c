"""`tune record`: runs any program under a sampler and turns what it did to memory into a workload.

The program keeps the terminal, its standard streams, its signals and its exit status; we speak on
standard error, before it begins and after it has ended. What a sampler sees goes into spools beside
the output (one per process, safe against any death of the program) and becomes the stream when the
program has ended.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner import catalog, engine, recorded, samplers
from tuner.errors import UserError
from tuner.models import MachineSpec, Sampling
from tuner.samplers import Launch, Sampler
from tuner.streams import human
from tuner.terminal import print_json, progress, say, table

RESERVE_BYTES = 64 << 20
"""Kept free beside the spools, so that a disk that fills up while the program runs still has room
for the stream of what came before."""

FORWARDED = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
)


CHECK_SECONDS = 0.2


def record(args: Namespace) -> int:
    """The program's exit status (128 + N when signal N killed it); 1 when it has succeeded but left
    nothing to play."""
    command = _program(args.program)
    machine = catalog.machine(args.machine).spec
    sampler = samplers.find(args.sampler)(_options(args.set), machine)
    if reason := sampler.unavailable():
        raise UserError(f"sampler {sampler.name}: {reason}")
    trace = recorded.output(args.output, args.force)
    with _spools(trace) as spools:
        status = _run(sampler, command, spools, quiet=args.json)
        (spools / "reserve").unlink(missing_ok=True)
        try:
            summary = _assemble(sampler, command, spools, trace, machine, args)
        except UserError as error:
            say(f"tune: error: {error}")
            return status or 1
    if args.json:
        print_json(summary | {"exit_status": status})
    else:
        _tell(summary, sampler)
    return status


def listing(args: Namespace) -> int:
    """`tune samplers`."""
    known = [samplers.find(name) for name in samplers.names()]
    if args.json:
        print_json(
            [
                {
                    "name": sampler.name,
                    "summary": sampler.summary,
                    "unavailable": sampler.unavailable(),
                    "options": [vars(option) for option in sampler.options],
                }
                for sampler in known
            ]
        )
        return 0
    rows = []
    for sampler in known:
        rows.append((sampler.name, "", "", sampler.summary))
        if reason := sampler.unavailable():
            rows.append(("", "", "", f"not here: {reason}"))
        for option in sampler.options:
            default = "machine's" if option.default is None else f"{option.default:g}"
            limits = f"{option.min:g} to {option.max:g} {option.unit}".rstrip()
            rows.append((f"  {option.name}", default, limits, option.meaning))
    table(("sampler", ">default", "limits", "what it is"), rows, prose=1)
    return 0


# --- Before the program begins --------------------------------------------------------------------


def _program(words: Sequence[str]) -> list[str]:
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise UserError("which program? tune record -o trace.tts -- command args...")
    found = shutil.which(command[0])
    if found is None:
        raise UserError(f"no program '{command[0]}' that can be run")
    return [found, *command[1:]]


def _options(words: Sequence[str]) -> dict[str, float]:
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {word}: expected NAME=VALUE")
        try:
            given[name] = float(value)
        except ValueError as error:
            raise UserError(f"--set {word}: found '{value}'; must be a number") from error
    return given


@contextmanager
def _spools(trace: Path) -> Iterator[Path]:
    """The recording's folder, beside the trace: the disk that must have the room anyway."""
    try:
        folder = Path(
            tempfile.mkdtemp(prefix=f".{trace.stem}.", suffix=".spools", dir=trace.parent)
        )
    except OSError as error:
        raise UserError(f"{trace.parent}: {error.strerror}") from error
    try:
        with (folder / "reserve").open("wb") as reserve:
            try:
                os.posix_fallocate(reserve.fileno(), 0, RESERVE_BYTES)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                free = human(shutil.disk_usage(folder).free)
                raise UserError(f"the disk of {trace.parent} is full: {free} free") from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- While it runs --------------------------------------------------------------------------------


def _run(sampler: Sampler, command: Sequence[str], spools: Path, *, quiet: bool) -> int:
    """Starts the program, hands signals on, and waits. Returns its exit status as a shell would."""
    launch = sampler.launch(command, spools)
    environment = os.environ | dict(launch.environment)
    environment[samplers.FOLDER_VARIABLE] = str(spools)
    environment[samplers.START_VARIABLE] = str(time.monotonic_ns())
    waited = {signal.SIGCHLD, *FORWARDED}
    before: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, waited))
    try:
        pid, go, failed = _fork(launch, environment, before, quiet=quiet)
        try:
            sampler.attach(pid)
            os.write(go, b"\0")
        finally:
            os.close(go)  # without the byte the process leaves without having begun
            with os.fdopen(failed, "rb") as pipe:
                reason = pipe.read()
        status = _wait(pid, waited)
        if reason:
            raise UserError(f"{launch.command[0]}: {os.strerror(int(reason))}")
        return status if status >= 0 else 128 - status
    finally:
        sampler.detach()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fork(
    launch: Launch, environment: Mapping[str, str], mask: set[int], *, quiet: bool
) -> tuple[int, int, int]:
    """A process that begins the command when a byte is written to the first descriptor; the second
    yields the errno if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid != 0:
        os.close(go_read)
        os.close(failed_write)
        return pid, go_write, failed_read
    try:
        os.close(go_write)
        if not os.read(go_read, 1):
            os._exit(0)
        if quiet:  # standard output belongs to the final object
            os.dup2(2, 1)
        for name in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, a program must not
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execve(launch.command[0], list(launch.command), environment)
    except OSError as error:
        os.write(failed_write, str(error.errno).encode())
    finally:
        os._exit(127)


def _wait(pid: int, waited: set[signal.Signals]) -> int:
    """Hands signals on until the program has ended. What the terminal sent (SIGINT and its like)
    has reached the program too, which is in our process group: it must not come twice."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return os.waitstatus_to_exitcode(status)
        # Not for ever: the kernel may tell another thread of our process of the child's end.
        info = signal.sigtimedwait(waited, CHECK_SECONDS)
        if info is None or info.si_signo == signal.SIGCHLD:
            continue
        if info.si_code <= 0:  # of a process: SI_USER, SI_QUEUE, SI_TKILL
            os.kill(pid, info.si_signo)


# --- When it has ended ----------------------------------------------------------------------------


def _assemble(
    sampler: Sampler,
    command: Sequence[str],
    spools: Path,
    trace: Path,
    machine: MachineSpec,
    args: Namespace,
) -> dict[str, Any]:
    """Writes the trace and its workload document; returns the summary."""
    if not any(spools.glob("*.spool")):
        raise UserError(
            f"{shlex.join(command)}: nothing was recorded: the program ended before it began, or "
            f"cannot be looked into by the sampler {sampler.name}"
        )
    title = f"writing {trace.name}"
    with progress(title) as tell:

        def watch(done: float) -> bool:
            tell(done)
            return True

        try:
            info, seen = engine.native().assemble(
                str(spools),
                str(trace),
                workload=trace.stem,
                input=recorded.INPUT,
                parameters=json.dumps(
                    {
                        "command": list(command),
                        "sampler": sampler.name,
                        "options": sampler.values,
                        "set_up": args.set_up,
                    }
                ),
                classes=[(c.name, c.mlp, c.issue_ns, c.store_fill) for c in sampler.classes],
                wall_time=sampler.wall_time,
                block_ms=args.block_ms,
                nominal_latency_ns=machine.fast.latency_ns,
                set_up_s=args.set_up,
                progress=watch,
            )
        except (RuntimeError, OSError) as error:
            raise UserError(str(error)) from error
    text = shlex.join([Path(command[0]).name, *command[1:]])
    document, footprint = recorded.document(
        trace,
        summary=f"recorded: {text}",
        source=f"tune record --sampler {sampler.name} -- {text}",
        threads=seen["threads"],
        machine=machine,
        sampling=Sampling(
            sampler=sampler.name,
            probability=_probability(info, seen),
            samples=int(seen["sampled"]),
            error_share=seen["error_share"],
        ),
    )
    return {
        "trace": str(trace),
        "workload": str(document),
        "sampler": sampler.name,
        "command": list(command),
        "processes": seen["processes"],
        "threads": seen["threads"],
        "accesses": info["accesses"],
        "footprint_bytes": footprint,
        "objects": len(info["objects"]),
        "blocks": info["blocks"],
        "nominal_seconds": info["nominal_seconds"],
        "trace_bytes": trace.stat().st_size,
        "samples": seen["sampled"],
        "error_share": seen["error_share"],
        "dropped": seen["dropped"],
        "disk_full": seen["disk_full"],
        "cut_short": seen["cut_short"],
    }


def _probability(info: Mapping[str, Any], seen: Mapping[str, Any]) -> float:
    """The share of accesses that were seen."""
    if seen["error_share"] == 0:
        return 1.0
    return float(min(1.0, max(seen["sampled"], 1) / info["accesses"]))


def _tell(summary: Mapping[str, Any], sampler: Sampler) -> None:
    """The summary for people, on standard error."""
    error = summary["error_share"]
    uncertainty = (
        "none from sampling: every access was seen"
        if error == 0
        else f"{summary['samples']:,.0f} samples; a page's count is off by {error:.1%} "
        "(one standard error)"
    )
    say(
        f"tune: recorded {summary['accesses']:,} accesses to {human(summary['footprint_bytes'])} "
        f"in {_count(summary['objects'], 'object')}; {_count(summary['processes'], 'process')}, "
        f"{_count(summary['threads'], 'thread')} at a time\n"
        f"  trace        {summary['trace']} ({human(summary['trace_bytes'])}, "
        f"{summary['nominal_seconds']:.3g} s when replayed on fast memory)\n"
        f"  uncertainty  {uncertainty}"
    )
    if summary["dropped"]:
        say(f"  dropped      {summary['dropped']:,} observations could not be kept")
    if summary["disk_full"]:
        say("  disk full    the disk filled up: the trace holds what came before")
    if summary["cut_short"]:
        say("  cut short    a process did not end by itself: the trace holds what came before")
    for remark in sampler.remarks():
        say(f"  note         {remark}")
    say(recorded.next_step(Path(summary["workload"])))


def _count(number: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"
