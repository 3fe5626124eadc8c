# SPDX-License-Identifier: MIT
"""Hint faults: pages are unmapped for a moment, and the faults on them show how hot they are.

hint-fault.md beside this file describes why that is safe, its fidelity and its cost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.documents.machine import MachineSpec
from tuner.errors import UserError
from tuner.record.samplers import (
    RANDOM,
    SEQUENTIAL,
    Launch,
    Option,
    Sampler,
    interpreter,
    library,
    program_head,
)

LIBRARY = "libtiertune_hint_fault.so"
OPTIONS_VARIABLE = "TIERTUNE_HINT_FAULT"
INSTEAD = "; --sampler emulation needs neither"

_INTERPRETER = 3  # PT_INTERP


class HintFault(Sampler):
    name = "hint-fault"
    summary = "unmaps random pages for a moment and counts the faults; any machine, Linux"
    options = (
        Option("overhead", 5, 0.1, 50, "%", "of its processor time that the program may lose"),
        Option("llc_mib", None, 0.0625, 4096, "MiB", "last-level cache whose misses are estimated"),
    )
    # As the library counts them (engine/record/preload/estimate_writer.hpp).
    classes = (RANDOM, SEQUENTIAL)
    wall_time = False  # the library knows the program's processor time

    def __init__(self, given: Mapping[str, float], machine: MachineSpec) -> None:
        super().__init__(given, machine)
        self._latency_ns = machine.fast.latency_ns

    def from_machine(self, name: str, machine: MachineSpec) -> float:
        return {"llc_mib": machine.llc_mib}[name]

    @classmethod
    def unavailable(cls) -> str | None:
        error = ctypes.CDLL(str(library(LIBRARY))).tiertune_hint_fault_probe()
        if error == 0:
            return None
        if error == errno.EPERM:
            return (
                "needs the right to handle a program's page faults: run it as root or with "
                "CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE)" + INSTEAD
            )
        return (
            "needs userfaultfd with UFFDIO_MOVE: Linux 6.8 or newer with CONFIG_USERFAULTFD, this "
            f"is {platform.release()} ({os.strerror(error)})" + INSTEAD
        )

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        if not _loads_libraries(Path(command[0])):
            raise UserError(
                f"{command[0]}: statically linked: no library can be loaded into it; "
                "--sampler emulation can record it"
            )
        path = str(library(LIBRARY))
        if any(separator in path for separator in " :"):
            raise UserError(f"{path}: the loader takes no library with ' ' or ':' in its path")
        before = os.environ.get("LD_PRELOAD")
        values = (
            round(self.values["overhead"] * 1e4),  # per cent, in millionths
            round(self.values["llc_mib"] * 2**20),
            round(self._latency_ns * 1e3),
        )
        return Launch(
            command,
            {
                "LD_PRELOAD": f"{path}:{before}" if before else path,
                OPTIONS_VARIABLE: ",".join(map(str, values)),
            },
        )


def _loads_libraries(path: Path) -> bool:
    """Whether the loader has a part in starting the program: an ELF file that names one. Scripts
    depend on their interpreters."""
    head = program_head(path)
    if head.startswith(b"#!"):
        words = interpreter(head)
        return bool(words) and _loads_libraries(Path(words[0]))
    if not head.startswith(b"\x7fELF\x02") or len(head) < 64:
        raise UserError(f"{path}: not a 64-bit program of this machine")
    start, entry_bytes, entries = (
        *struct.unpack_from("<Q", head, 32),
        *struct.unpack_from("<HH", head, 54),
    )
    return any(
        struct.unpack_from("<I", head, at)[0] == _INTERPRETER
        for at in range(start, min(start + entry_bytes * entries, len(head) - 4), entry_bytes)
    )
