"""Emulation: every load and store, seen by a plugin in QEMU's user-mode emulator.

emulation.md beside this file describes its fidelity and its cost.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from tuner.documents.machine import MachineSpec
from tuner.errors import UserError
from tuner.record.samplers import (
    Launch,
    Option,
    Sampler,
    StreamClass,
    interpreter,
    library,
    program_head,
)

EMULATOR = "qemu-x86_64"
PLUGIN = "libtiertune_emulation.so"


class Emulation(Sampler):
    name = "emulation"
    summary = "every load and store, in QEMU's user-mode emulator; exact, and slow"
    options = (
        Option("llc_mib", None, 0.0625, 4096, "MiB", "last-level cache whose misses are recorded"),
        Option("ghz", None, 0.1, 10, "GHz", "clock of the simulated processor"),
        Option(
            "cpi",
            0.5,
            0.05,
            10,
            "cycles",
            "cycles per instruction while nothing waits for memory",
        ),
        Option("latency_ns", None, 1, 10_000, "ns", "of a miss, for the recording's clock"),
        Option("interval_ms", 5, 0.1, 1000, "ms", "time over which misses of a page are counted"),
    )
    # In the order of the observer's patterns. Estimates: out-of-order execution finds about four
    # independent misses in its window, prefetchers keep eight lines in flight, and a pointer
    # that has not arrived cannot be followed. Resident: stores to lines that were in the cache.
    classes = (
        StreamClass("random", mlp=4),
        StreamClass("sequential", mlp=8),
        StreamClass("dependent", mlp=1),
        StreamClass("resident", mlp=4, store_fill=0),
    )
    wall_time = False

    def from_machine(self, name: str, machine: MachineSpec) -> float:
        return {
            "llc_mib": machine.llc_mib,
            "ghz": machine.ghz,
            "latency_ns": machine.fast.latency_ns,
        }[name]

    @classmethod
    def unavailable(cls) -> str | None:
        if platform.machine() != "x86_64":
            return f"is for x86-64, this machine is {platform.machine()}: use --sampler hint-fault"
        if shutil.which(EMULATOR) is None:
            return f"needs {EMULATOR}: install it (Debian, Ubuntu: apt install qemu-user)"
        return None

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        emulator = shutil.which(EMULATOR) or EMULATOR
        options: dict[str, object] = {"folder": folder, **self.values}
        options |= {c.name: c.mlp for c in self.classes if c.store_fill > 0}
        plugin = ",".join([str(library(PLUGIN)), *(f"{name}={options[name]}" for name in options)])
        return Launch([emulator, "-cpu", "max", "-plugin", plugin, *_interpreted(command)])


def _interpreted(command: Sequence[str]) -> list[str]:
    """The emulator runs programs only: a script becomes an argument of its interpreter."""
    path = Path(command[0])
    head = program_head(path)
    if words := interpreter(head):
        return _interpreted([*words, *command])
    if not head.startswith(b"\x7fELF"):
        raise UserError(f"{path}: not a program of this machine (no ELF header)")
    return list(command)
