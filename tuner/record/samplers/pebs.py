# SPDX-License-Identifier: MIT
"""PEBS and IBS: memory samples that the processor takes, read from the kernel's ring buffers.

pebs.md beside this file describes their fidelity and cost.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tuner import engine
from tuner.errors import UserError
from tuner.record.samplers import RANDOM, SEQUENTIAL, Launch, Option, Sampler

DEVICES = Path("/sys/bus/event_source/devices")
INSTEAD = "; --sampler emulation needs neither such hardware nor privileges"


@dataclass(frozen=True)
class Event:
    """As perf_event_open takes it (engine/record/perf_decoder.hpp)."""

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    leader: int = 0
    period: int = 1
    precise: int = 0
    filter: str = "loads"


class Pebs(Sampler):
    name = "pebs"
    summary = "memory samples of the processor (Intel PEBS, AMD IBS); hardly slows the program"
    options = (
        Option("period", 2000, 100, 1e8, "accesses", "between two samples of a kind"),
        Option("latency", 3, 3, 1000, "cycles", "loads that took at least this long (Intel)"),
    )
    classes = (RANDOM, replace(SEQUENTIAL, prefetched=0))  # what was prefetched was not sampled
    wall_time = True

    devices: ClassVar[Path] = DEVICES

    @classmethod
    def unavailable(cls) -> str | None:
        if cls._intel() is not None or (cls.devices / "ibs_op" / "type").is_file():
            return None
        found = sorted(path.name for path in cls.devices.iterdir()) if cls.devices.is_dir() else []
        return (
            "this machine has no memory samples: tried Intel's mem-loads and mem-stores "
            f"({cls.devices}/cpu/events, cpu_core/events) and AMD's {cls.devices}/ibs_op; the "
            f"kernel ({platform.release()}) offers {', '.join(found) or 'nothing'} (virtual "
            "machines usually hide them)" + INSTEAD
        )

    @classmethod
    def _intel(cls) -> Path | None:
        for name in ("cpu", "cpu_core"):
            if (cls.devices / name / "events" / "mem-loads").is_file():
                return cls.devices / name
        return None

    def events(self) -> list[Event]:
        """The events of this machine."""
        period = round(self.values["period"])
        if (device := self._intel()) is None:
            ibs = self.devices / "ibs_op"
            # IBS counts operations in units of 16.
            return [
                Event(
                    "ibs_op",
                    _number(ibs / "type"),
                    0,
                    period=max(16, period // 16 * 16),
                    filter="operations",
                )
            ]
        kind = _number(device / "type")
        loads = _terms(device, "mem-loads") | {"ldlat": round(self.values["latency"])}
        # Since Sapphire Rapids loads are sampled only in a group that this one leads.
        helper = device / "events" / "mem-loads-aux"
        leader = _words(device, _terms(device, helper.name))[0] if helper.is_file() else 0
        events = [
            Event("mem-loads", kind, *_words(device, loads), leader, period, precise=2),
        ]
        if (device / "events" / "mem-stores").is_file():
            stores = _words(device, _terms(device, "mem-stores"))
            events.append(
                Event("mem-stores", kind, *stores, period=period, precise=2, filter="stores")
            )
        return events

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        self._folder = folder
        self._begin_ns = time.monotonic_ns()
        self._recorder: Any = None
        self._counts: dict[str, int] = {}
        return Launch(command)

    def attach(self, pid: int) -> None:
        try:
            self._recorder = engine.native().PerfRecorder(
                pid,
                [asdict(event) for event in self.events()],
                str(self._folder),
                self.name,
                self._begin_ns,
            )
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"sampler {self.name}: {error} (as root, or with /proc/sys/kernel/"
                f"perf_event_paranoid at most 2)" + INSTEAD
            ) from error

    def detach(self) -> None:
        recorder, self._recorder = getattr(self, "_recorder", None), None
        if recorder is not None:
            try:
                self._counts = recorder.stop()
            except (RuntimeError, OSError) as error:
                raise UserError(f"sampler {self.name}: {error}") from error

    def remarks(self) -> list[str]:
        counts = self._counts
        out = [
            f"{counts['samples']:,} samples, {counts['filtered']:,} of them served by a cache "
            "or without an address"
        ]
        if counts["lost"]:
            out.append(
                f"{counts['lost']:,} samples were lost because the ring buffers were full: "
                "a larger period helps"
            )
        return out


def _number(path: Path) -> int:
    return int(path.read_text().strip(), 0)


def _terms(device: Path, name: str) -> dict[str, int]:
    """An event of sysfs: "event=0xcd,umask=0x1,ldlat=3"."""
    terms = {}
    for term in (device / "events" / name).read_text().strip().split(","):
        key, _, value = term.partition("=")
        terms[key] = int(value, 0) if value else 1
    return terms


def _words(device: Path, terms: dict[str, int]) -> tuple[int, int, int]:
    """config, config1 and config2 with each term where sysfs says that it belongs: "config:0-7",
    "config1:0-15,32"."""
    words = {"config": 0, "config1": 0, "config2": 0}
    for key, value in terms.items():
        word, _, ranges = (device / "format" / key).read_text().strip().partition(":")
        used = 0
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            for bit in range(int(low), int(high or low) + 1):
                words[word] |= (value >> used & 1) << bit
                used += 1
    return words["config"], words["config1"], words["config2"]
