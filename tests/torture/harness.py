# SPDX-License-Identifier: MIT
"""Cases in processes of their own, forked from one that has imported everything.

The preload (faults.c) is in this process from its start, see `prepare`; it does nothing before a
case arms it in its own process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

HERE = Path(__file__).parent
PRELOAD = "TIERTUNE_TORTURE_PRELOAD"
LIMIT_SECONDS = 300
"""Of wall clock for one case: what hangs is a failure, too."""

KINDS = (
    *("open", "create", "read", "write", "sync", "rename", "link", "unlink", "mkdir"),
    *("truncate", "map", "close", "list", "lock", "told"),
)
verbose = False
"""Whether all that cases print is shown."""

_RECORD = struct.Struct("7q")


@dataclass(frozen=True)
class Fault:
    """What becomes of a call: it fails with an errno, is SHORT, or is made and the last (KILL).
    `lasting`: so do all that follow. `kinds` of calls can have it (faults.c has the same)."""

    name: str
    action: int
    kinds: frozenset[str]
    lasting: bool = False


NEEDS_SPACE = frozenset({"create", "write", "sync", "rename", "link", "mkdir", "truncate"})
KILL = Fault("kill", -2, frozenset(KINDS))
FAULTS = (
    Fault("ENOSPC", errno.ENOSPC, NEEDS_SPACE, lasting=True),
    Fault("EIO", errno.EIO, frozenset(KINDS)),
    Fault("EMFILE", errno.EMFILE, frozenset({"open", "create", "list"})),
    Fault("short", -1, frozenset({"read", "write"})),
    KILL,
)


@dataclass(frozen=True)
class Call:
    """A call on a watched file, the `number`th. `file` is its inode."""

    number: int
    kind: str
    file: int
    offset: int
    name: str
    to: str
    data: bytes


@dataclass
class Outcome:
    """How a process ended: its exit code, or minus the signal; what it printed; its calls; and
    whether the fault came to pass."""

    code: int
    out: str
    err: str
    calls: list[Call] = field(default_factory=list)
    hit: bool = False


def prepare(folder: Path) -> None:
    """Builds the preload and starts this program again with it. Returns the second time."""
    if os.environ.get(PRELOAD):
        return
    library = folder / "faults.so"
    made = folder / f"faults.{os.getpid()}"  # another run may have the old one mapped
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", made, HERE / "faults.c", "-ldl"], check=True
    )
    made.replace(library)
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    own = {PRELOAD: str(library), "LD_PRELOAD": str(library), "PYTHONHASHSEED": "0"}
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | one | quiet | own)


def forked(
    work: Callable[[], int],
    watched: Path,
    fault: Fault | None = None,
    number: int = 0,
    *,
    trace: bool = False,
    data: bool = False,
) -> Outcome:
    """Runs `work` in a child, whose call `number` below `watched` has the fault. With `trace` the
    calls are kept, with `data` also what was written and printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with tempfile.TemporaryFile() as calls:
            child = os.fork()
            if child == 0:
                _child(
                    work, watched, fault, number, (out.fileno(), err.fileno()), calls.fileno(), data
                )
            code = _wait(child)
            made, hit = _read(calls, keep=trace or data)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if verbose:
        print(*texts, f"-> {code}", sep="\n", flush=True)
    return Outcome(code, texts[0], texts[1], made, hit)


def _child(
    work: Callable[[], int],
    watched: Path,
    fault: Fault | None,
    number: int,
    output: tuple[int, int],
    calls: int,
    data: bool,
) -> NoReturn:
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, file in zip((1, 2), output, strict=True):
            os.dup2(file, descriptor)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        ctypes.CDLL(os.environ[PRELOAD]).torture_arm(
            str(watched).encode(),
            ctypes.c_long(number),
            fault.action if fault else 0,
            bool(fault and fault.lasting),
            calls,
            data,
        )
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 1
        os._exit(code)


def _wait(child: int) -> int:
    def end(*_: object) -> None:
        os.killpg(child, signal.SIGABRT)

    signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT_SECONDS)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.alarm(0)


def _read(file: IO[bytes], *, keep: bool) -> tuple[list[Call], bool]:
    file.seek(0)
    content = file.read()
    calls, hit, at = [], False, 0
    while at < len(content):
        kind, inode, offset, number, *lengths = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        parts = []
        for length in lengths:
            parts.append(content[at : at + length])
            at += length
        if number < 0:
            hit = True
        elif keep:
            name, to = (part.decode() for part in parts[:2])
            calls.append(Call(number, KINDS[kind], inode, offset, name, to, parts[2]))
    return calls, hit
