# SPDX-License-Identifier: MIT
"""What the emulated machine says beside what others say: the simulator of a run, and published
figures of what memory and the kernel cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tuner.documents import catalog
from tuner.documents.machine import MachineSpec
from tuner.documents.reading import read_bytes
from tuner.emulate import guest
from tuner.emulate.guest import Failed, Timing
from tuner.emulate.machine import GUEST, PLUGIN, Machine, built_file
from tuner.emulate.plan import Emulated, How, Request, how, json_lines, timing
from tuner.run.trial import Status, TrialResult
from tuner.scenario import EMULATED


class Compared(NamedTuple):
    """A row: texts for people, and the figures."""

    what: str
    emulated: str
    simulated: str
    ratio: str
    figures: tuple[float | None, float | None]


def _row(what: str, emulated: float | None, simulated: float | None, form: str) -> Compared:
    def text(value: float | None) -> str:
        return "-" if value is None else format(value, form)

    ratio = simulated / emulated if emulated and simulated is not None else None
    return Compared(what, text(emulated), text(simulated), ratio_text(ratio), (emulated, simulated))


def ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def counted(request: Request, found: Emulated) -> dict[str, float | None]:
    """What a run has counted, by the names that the simulator's metrics have where they mean the
    same; None for what nobody counts. The kernel counts the moves of its own policies only.
    `owed_seconds` is work of other processors that the clock still owed at the end, and
    `kernel_threads_seconds` what the kernel's threads did while it stood."""
    stat = found.vmstat
    misses = [sum(found.machine[key][tier] for key in ("misses", "prefetched")) for tier in (0, 1)]
    own = how(request.policy) is not How.tierd
    demoted = [stat[name] for name in stat if name.startswith("pgdemote_")]
    return {
        "seconds": found.seconds,
        "total_seconds": found.seconds + found.set_up_seconds,
        "operations": float(sum(found.operations.values())),
        "fast_hit_ratio": misses[0] / sum(misses) if sum(misses) else None,
        "promotions": stat.get("pgpromote_success") if own else None,
        "demotions": sum(demoted) if own and demoted else None,
        "migrated_pages": stat.get("pgmigrate_success"),
        "hint_faults": stat.get("numa_hint_faults"),
        "pages_protected": stat.get("numa_pte_updates"),
        "resident_fast_pages": found.resident[0],
        "samples_lost": found.machine.get("samples_lost"),
        "owed_seconds": found.machine["owed_ns"] / 1e9,
        "kernel_threads_seconds": found.machine["threads_busy_ns"] / 1e9,
    }


def compared(request: Request, found: Emulated, simulated: TrialResult) -> list[Compared]:
    """Figures of both, with the ratio of the simulator's to the machine's. What one of them does
    not know is None."""
    ok = simulated.status is Status.success
    metrics = simulated.metrics if ok else {}

    def sums(*names: str) -> float | None:
        return sum(metrics[name] for name in names) if metrics else None

    set_up = metrics["total_seconds"] - metrics["seconds"] if metrics else None
    told = counted(request, found)
    operations = told["operations"]
    return [
        _row("run time, s", found.seconds, sums("seconds"), ".3f"),
        _row("set-up, s", found.set_up_seconds, set_up, ".3f"),
        _row(
            "ns an operation",
            found.seconds / operations * 1e9 if operations else None,
            (metrics["seconds"] / metrics["operations"] * 1e9)
            if metrics.get("operations")
            else None,
            ".1f",
        ),
        _row(
            "misses served by the fast tier, %",
            _percent(told["fast_hit_ratio"]),
            _percent(metrics.get("fast_hit_ratio")),
            ".1f",
        ),
        _row("promoted pages", told["promotions"], sums("promotions"), ",.0f"),
        _row("demoted pages", told["demotions"], sums("demotions"), ",.0f"),
        _row(
            "migrated pages in all",
            told["migrated_pages"],
            sums("promotions", "demotions"),
            ",.0f",
        ),
        _row("hinting faults", told["hint_faults"], metrics.get("hint_faults"), ",.0f"),
        _row("entries armed", told["pages_protected"], metrics.get("pages_protected"), ",.0f"),
        _row("of the program in the fast tier at the end, pages", found.resident[0], None, ",.0f"),
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


class Measured(NamedTuple):
    what: str
    value: float
    expected: float | None
    unit: str
    source: str

    @property
    def shown(self) -> str:
        return f"{self.value:.3g} {self.unit}"

    @property
    def wanted(self) -> str:
        return "-" if self.expected is None else f"{self.expected:.3g} {self.unit}"

    @property
    def ratio(self) -> str:
        return ratio_text(self.value / self.expected if self.expected else None)


class _Figure(NamedTuple):
    what: str
    unit: str
    expected: float | None
    source: str


CONFIGURED = "the machine's file"
MOVED = "Soar/Alto (OSDI'25) 5.1: a page that the kernel moves"
BUFFERS = 10
"""Lines that a core has in flight (engine/emulate/memory_model.hpp)."""


def figures(machine: MachineSpec) -> dict[tuple[str, int], _Figure]:
    """What `tiertune_guest measure` tells, by name and node."""
    found = {
        ("first_touch", 1): _Figure("the first touch of a page, slow", "us", None, ""),
        ("move", 0): _Figure("a page up, 512 a call", "us", None, ""),
        ("move", 1): _Figure("a page down, 512 a call", "us", None, ""),
        ("move_alone", 0): _Figure("a page up, alone", "us", 12.0, MOVED),
        ("move_alone", 1): _Figure("a page down, alone", "us", 12.0, MOVED),
        ("hint_fault", 1): _Figure(
            "a hinting fault", "us", 1.0, "a minor fault with its entry and exit, 0.5 to 1.5 us"
        ),
        ("promoted", 1): _Figure("a hinting fault that brings its page up", "us", None, ""),
        ("scan_entry", 1): _Figure(
            "an entry that a NUMA scan arms", "ns", 40.0, "a page-table entry in order, 30 to 50 ns"
        ),
    }
    for node, (name, tier) in enumerate((("fast", machine.fast), ("slow", machine.slow))):
        ns = tier.latency_ns
        found |= {
            ("chase", node): _Figure(f"a step of a pointer chase, {name}", "ns", ns, CONFIGURED),
            ("stream", node): _Figure(
                f"a line of a sequential read, {name}", "ns", ns / BUFFERS, CONFIGURED
            ),
            ("random", node): _Figure(f"an independent random load, {name}", "ns", None, ""),
        }
    return found


def measure(machine: Machine) -> list[Measured]:
    """Measures the machine with the file `emulated`."""
    configured = catalog.machine(EMULATED).spec
    options = timing(configured)
    files = {f"/{GUEST}": read_bytes(built_file(GUEST), guest.LARGEST)}
    symbols = guest.offsets(machine.tools, files[f"/{GUEST}"])
    ran = guest.boot(
        machine.tools,
        f"sleep 5 && /{GUEST} measure memory && /{GUEST} measure kernel\n",
        files,
        timing=Timing(built_file(PLUGIN), options | symbols),
    )
    if ran.status != 0:
        raise Failed(f"the guest ended with {ran.status}:\n{ran.output[-1000:]}")
    return list(_measured(figures(configured), json_lines(ran.output)))


def _measured(
    known: Mapping[tuple[str, int], _Figure], lines: Iterable[dict[str, object]]
) -> Iterable[Measured]:
    for line in lines:
        if "measured" not in line:
            continue
        name, node, value = str(line["measured"]), int(str(line["node"])), float(str(line["value"]))
        figure = known.get((name, node))
        if figure is not None:
            yield Measured(figure.what, value, figure.expected, figure.unit, figure.source)
