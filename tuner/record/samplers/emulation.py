# SPDX-License-Identifier: MIT
"""Emulation: every load and store, seen by a plugin in QEMU's user-mode emulator.

emulation.md beside this file describes its fidelity and its cost.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.documents.machine import MachineSpec
from tuner.errors import UserError
from tuner.record.samplers import (
    CLOCK,
    CYCLES_PER_INSTRUCTION,
    DEPENDENT,
    RANDOM,
    RESIDENT,
    SEQUENTIAL,
    Launch,
    Option,
    Sampler,
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
            CYCLES_PER_INSTRUCTION,
            0.05,
            10,
            "cycles",
            "cycles per instruction while nothing waits for memory",
        ),
        Option("latency_ns", None, 1, 10_000, "ns", "of a miss, for the recording's clock"),
        Option("interval_ms", 5, 0.1, 1000, "ms", "time over which misses of a page are counted"),
    )
    # In the order of the observer's patterns.
    classes = (RANDOM, SEQUENTIAL, DEPENDENT, RESIDENT)
    wall_time = False
    operations = True
    settles = 0.5

    def from_machine(self, name: str, machine: MachineSpec) -> float:
        return {
            "llc_mib": machine.llc_mib,
            "ghz": machine.ghz,
            "latency_ns": machine.fast.latency_ns,
        }[name]

    @classmethod
    def unavailable(cls) -> str | None:
        if platform.machine() != "x86_64":
            return f"is for x86-64, this machine is {platform.machine()}"
        if shutil.which(EMULATOR) is None:
            return f"needs {EMULATOR}: install it (Debian, Ubuntu: apt install qemu-user)"
        return None

    def slowdown(self, folder: Path, seconds: float) -> float | None:
        """By the recording's clock: instructions and misses as the machine would take them."""
        done_ns = int.from_bytes((folder / CLOCK).read_bytes()[8:16], sys.byteorder)
        return seconds / (done_ns * 1e-9) if done_ns else None

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        emulator = shutil.which(EMULATOR) or EMULATOR
        options: dict[str, object] = {"folder": folder, **self.values}
        options |= {c.name: c.mlp for c in self.classes if c.store_fill > 0}
        if self.usdt:
            options["usdt"] = self.usdt.replace(",", ":")  # commas are between options
        if self.until_ns is not None:
            options["until_ns"] = self.until_ns
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
