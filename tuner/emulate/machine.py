# SPDX-License-Identifier: MIT
"""Runs of the emulated machine: each is made once, and kept by all that it depends on."""

from __future__ import annotations

import hashlib
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner import engine, tierd
from tuner.documents.reading import parse_json, read_bytes
from tuner.emulate import guest
from tuner.emulate.guest import Failed, Timing, Tools
from tuner.emulate.plan import Built, Emulated, How, Request, how, json_lines, suitable
from tuner.errors import UserError
from tuner.model import Model, content_hash
from tuner.run import cache, streams
from tuner.run.trial import Trial

PLUGIN = "libtiertune_machine.so"
GUEST = "tiertune_guest"
WORKLOAD = "tiertune_workload"
SECONDS = 6 * 3600.0
"""Of the host, after which a run is given up."""
FREE_BYTES, FREE_SHARE = 1 << 20, 0.02
"""By which the free memory of the fast node may differ at the start, the larger of both: Linux
takes and gives back some of it by itself."""
PADDING = 1 << 20
"""Bytes by which the initial file system is longer with each layout: what is behind it moves."""
ROOM = 256 << 10
"""Bytes of which a program takes a multiple in it, so that what is behind it stays where it is when
a program has become a little longer."""


def built_file(name: str) -> Path:
    """A file that was built with the engine, in `lib` beside it. UserError if it is not there."""
    package = Path(engine.native().__file__).resolve().parent
    source = Path(__file__).resolve().parents[2]
    places = [package / "lib" / name]
    if (source / "pyproject.toml").is_file():
        places.insert(0, source / "build/engine" / name)
    for path in places:
        if path.is_file():
            return path
    raise UserError(
        f"{places[-1]} is missing: it is built on x86-64 where there are static libraries of C and "
        "C++; install the package again (`pip install .`)"
    )


class NotSettable(Model):
    """As `Machine.not_settable` keeps it."""

    reasons: dict[str, str]


@dataclass
class Machine:
    """The emulated machine with one kernel. `note` is told what takes long."""

    kernel: str = guest.KERNEL
    note: Callable[[str], None] = field(default=lambda _: None)

    @cached_property
    def tools(self) -> Tools:
        return Tools.find(self.kernel, timed=True, note=self.note)

    @cached_property
    def programs(self) -> dict[str, bytes]:
        """By their paths in the guest."""
        paths = {
            f"/{GUEST}": built_file(GUEST),
            f"/{WORKLOAD}": built_file(WORKLOAD),
            f"/{tierd.NAME}": tierd.program(),
        }
        contents = {name: read_bytes(path, guest.LARGEST) for name, path in paths.items()}
        return {
            name: content.ljust(-(-len(content) // ROOM) * ROOM, b"\0")
            for name, content in contents.items()
        }

    @cached_property
    def built(self) -> Built:
        contents = self.programs | {PLUGIN: read_bytes(built_file(PLUGIN), guest.LARGEST)}
        return Built(
            kernel=self.tools.kernel_version,
            qemu=self.tools.qemu.version,
            programs={
                name.strip("/"): hashlib.sha256(content).hexdigest()[:16]
                for name, content in contents.items()
            },
        )

    @property
    def name(self) -> str:
        """What results depend on beside their request: the kernel's package, QEMU, and a hash of
        our programs."""
        own = content_hash(dict(self.built.programs))[:12]
        return f"{self.built.kernel}, QEMU {self.built.qemu}, programs {own}"

    def not_settable(self, policy: str) -> dict[str, str]:
        """Knobs of a policy of the kernel's for which this kernel has no setting, and why. A boot
        tells; it is kept."""
        key = content_hash({"machine": self.name, "policy": policy})
        if found := cache.get(cache.EMULATED, key, NotSettable):
            return found.reasons
        self.note(f"asking Linux {self.kernel} which knobs of {policy} it has")
        job = f"/{tierd.NAME} apply --policy {policy} --dry-run --json\n"
        ran = guest.boot(self.tools, job, {f"/{tierd.NAME}": self.programs[f"/{tierd.NAME}"]})
        plan = re.search(r"^\{.*\}$", ran.output, re.MULTILINE | re.DOTALL)
        if ran.status != 0 or plan is None:
            raise Failed(f"{policy}:\n{ran.output[-guest.LAST_CHARACTERS :]}")
        reasons = tierd.not_settable(parse_json(plan[0]), engine.policy(policy))
        cache.put(cache.EMULATED, key, NotSettable(reasons=reasons))
        return reasons

    def request(self, trial: Trial, **more: Any) -> Request:
        """The run that is the trial's counterpart. Its stream is made if it is missing: what a
        program does for a time goes by it."""
        suitable(trial)
        streams.prepare(trial.stream)
        path = streams.path_of(trial.stream)
        return Request.of(
            trial,
            engine.stream_info(path),
            engine.characteristics(path),
            built=self.built,
            **more,
        )

    def kept(self, request: Request) -> Emulated | None:
        return cache.get(cache.EMULATED, request.key, Emulated)

    def run(
        self,
        request: Request,
        told: Callable[[str], None] = lambda _: None,
        seconds: float | None = None,
    ) -> Emulated:
        """Failed with what the guest has said last if the program did not end well; Slow if it did
        not in so many seconds of the host."""
        if found := self.kept(request):
            return found
        result = self.boot(request, told, seconds)
        cache.put(cache.EMULATED, request.key, result)
        return result

    def boot(
        self,
        request: Request,
        told: Callable[[str], None] = lambda _: None,
        seconds: float | None = None,
    ) -> Emulated:
        """As `run`, whether it is kept or not."""
        symbols = guest.offsets(self.tools, self.programs[f"/{GUEST}"])
        way = how(request.policy)
        timing = Timing(
            built_file(PLUGIN),
            request.timing() | symbols,
            sampled=way is How.tierd and request.source == "emulated",
        )
        files = dict(self.programs)
        if request.layout:
            files["/layout"] = bytes(request.layout * PADDING)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = guest.boot(
            self.tools,
            request.script(),
            files,
            nodes_mib=request.nodes_mib,
            seconds=SECONDS if seconds is None else seconds,
            timing=timing,
            told=lambda line: told(_checked(request, line)),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ran.status != 0:
            raise Failed(
                f"{request.workload}, {request.policy}: the guest ended with {ran.status}:\n"
                f"{ran.output[-guest.LAST_CHARACTERS :]}"
            )
        host = sum(
            getattr(after, part) - getattr(before, part) for part in ("ru_utime", "ru_stime")
        )
        return _result(request, ran, host)


def _checked(request: Request, line: str) -> str:
    """A line of the console. Failed, at once, if by it the run would be of another ratio."""
    for said in json_lines(line):
        free, wanted = said.get("free_bytes"), request.free_mib << 20
        if free is not None and abs(free - wanted) > max(FREE_BYTES, FREE_SHARE * wanted):
            raise Failed(
                f"the fast node has {free / 2**20:.1f} MiB free at the start; "
                f"{request.free_mib} are wanted"
            )
    return line


def _result(request: Request, ran: guest.Ran, host_seconds: float) -> Emulated:
    said = json_lines(ran.output)
    begin = next((line for line in said if line.get("begin")), {})
    end = next((line for line in reversed(said) if line.get("end")), None)
    counted = next((report for report in ran.reports if report["when"] == "end"), None)
    if end is None or counted is None or not {"marks", "set_up_seconds"} <= begin.keys():
        raise Failed(
            f"the program did not tell its begin and end:\n{ran.output[-guest.LAST_CHARACTERS :]}"
        )
    return Emulated(
        request=request.key,
        seconds=end["seconds"],
        set_up_seconds=begin["set_up_seconds"],
        operations=end["operations"],
        resident=end["resident"],
        marks=begin["marks"],
        vmstat=end["vmstat"],
        faults=end["faults"],
        machine={name: value for name, value in counted.items() if name != "when"},
        series=[line for line in said if line.get("report")],
        console="\n".join(line for line in ran.output.splitlines() if line.startswith("tierd")),
        host_seconds=host_seconds,
    )
