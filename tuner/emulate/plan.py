# SPDX-License-Identifier: MIT
"""What is run in the emulated machine, and what it says: the plan of a run, as a script of its
guest, and the lines of its console."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from tuner import engine, tierd
from tuner.declarations import KnobValue, ParameterValue, PolicyDecl
from tuner.documents.machine import MachineSpec
from tuner.documents.reading import parse_json
from tuner.errors import UserError, brief
from tuner.limits import fast_share
from tuner.model import Model, NonNegative, content_hash
from tuner.run import settings
from tuner.run.trial import StreamRequest, Trial
from tuner.scenario import EMULATED, Scenario, substrate_defaults

PAGE = 4096
MIB = 1 << 20
KERNELS_OWN = ("autonuma", "damon-goal", "hmsdk", "nbt", "tpp")
"""Policies that `tierd apply` sets up."""
NOTHING = ("first-touch",)
BOUND = {"all-fast": 0, "all-slow": 1}
"""Policies by which all pages come from one node."""
VMSTAT = (
    "numa_pte_updates",
    "numa_hint_faults",
    "pgpromote_candidate",
    "pgpromote_success",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgdemote_proactive",
    "pgmigrate_success",
    "pgmigrate_fail",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "pageoutrun",
)
"""Counters of /proc/vmstat whose difference over the timed part is told. Those that a kernel lacks
are left out."""
SETTLE_SECONDS = 5
"""Of the guest, before anything is run: what the kernel does in the background after it has booted
is done then, and idle time costs nothing."""
KERNEL_MIB = 256
"""Of the fast node beside what the workload may have: kernel, programs, and what is kept free."""
SPARE_MIB = 192
"""Of the slow node beside the whole footprint."""
KEPT_MIB = 10
"""Free memory of the fast node that the workload does not get: below its low watermark Linux places
new pages elsewhere; and the program's own pages and page tables."""
TIERD_SPARE = 0.01
"""Share of a node that tierd leaves to others (Mover::Options)."""
LOW_MIB = 1
"""What a node's low watermark has at least: first touches leave that free by themselves."""
MOST_MIB = 2816
"""Of both nodes: above it the machine's memory is no longer in one piece."""
KERNEL_PS, USER_PS = 500, 250
"""Of an instruction of the kernel and of programs: 0.9 and 1.8 in a cycle at 2.2 GHz. What the
kernel's work then costs is in docs/emulated.md."""
SAMPLE_INTERRUPT_PS = 2_000_000
"""Of a sample by time, beside what the machine's file says of each: as in the simulator."""
L2_PS, LLC_PS = 1_000, 15_000
KERNEL_THREADS = (
    *("kswapd0", "kswapd1", "kcompactd0", "kcompactd1"),
    *("kdamond.0", "kdamond.1"),
)
"""Of the kernel, those that have a processor of their own with `daemons: own`, as tierd has. They
run as soon as they are woken, and end their work while the clock stands."""


MOST_LAYOUTS = 100


class How(StrEnum):
    """Who carries a policy out."""

    nobody = "nobody"
    placement = "the program's memory policy"
    kernel = "the kernel"
    tierd = "tierd"


SERVED = {"samples"}
"""What tierd's sources of accesses give."""


def how(policy: str) -> How:
    """UserError for a policy that nobody carries out on a real kernel."""
    if policy in NOTHING:
        return How.nobody
    if policy in BOUND:
        return How.placement
    if policy in KERNELS_OWN:
        return How.kernel
    declared = engine.policy(policy)
    if declared.profiled and declared.profiled_when is None:
        raise UserError(
            f"--policy {policy}: it places objects by name, which a running program does not have"
        )
    needs = str(declared.traits.get("needs", "samples")).split(", ")
    if lacking := [need for need in needs if need not in SERVED]:
        raise UserError(
            f"--policy {policy}: it needs {', '.join(lacking)}, which a running process does not "
            "have"
        )
    return How.tierd


class Built(Model):
    """What the machine is made of: the kernel's package, QEMU's version, and content hashes of our
    own programs."""

    kernel: str
    qemu: str
    programs: dict[str, str]


def trial_of(
    workload: str, policy: PolicyDecl, knobs: Mapping[str, KnobValue], **given: Any
) -> Trial:
    """The simulator's trial of a set-up that the machine can have; what is not given is as in the
    machine: its file, its inputs, one thread. UserError as of `settings.resolve`."""
    fields = substrate_defaults(EMULATED) | given | {"substrate": Scenario.substrate}
    setting = settings.resolve(workload, policy=policy, study="emulate", **fields)
    return setting.trial(0, engine.resolve(policy.name, dict(knobs)))


def suitable(trial: Trial) -> StreamRequest:
    """The trial's stream. UserError if a program cannot carry it out in the machine."""
    stream, scenario = trial.stream, trial.scenario
    if not isinstance(stream, StreamRequest):
        raise UserError(f"{trial.workload}: it was recorded; only kernels run in the machine")
    if stream.scale != 1:
        raise UserError(
            f"{trial.workload} ({scenario.input}): found scale {stream.scale:g}; must be 1, "
            "because a page, a period of the kernel and memory's latency are real in the "
            "emulated machine. Inputs named 'emulated' are small enough"
        )
    if scenario.page_bytes != PAGE or scenario.pages != "uniform":
        raise UserError("--page-bytes, --pages: the emulated machine has pages of 4096 bytes")
    policy = engine.policy(scenario.policy)
    if how(policy.name) is How.tierd:
        if policy.goes_by_placement(trial.knobs) and (when := policy.profiled_when):
            raise UserError(
                f"{when.parent}={trial.knobs[when.parent]}: a running process does not have names "
                "of objects"
            )
        if trial.knobs.get("aol.enabled"):
            raise UserError("aol.enabled=true: tierd does not count outstanding reads")
    return stream


def timing(machine: MachineSpec) -> dict[str, str]:
    """The plugin's options: what the machine's file says."""
    options: dict[str, float | str] = {
        "kernel_ps": KERNEL_PS,
        "user_ps": USER_PS,
        "sample_ps": round(machine.tiering.sample_assist_ns * 1000),
        "interrupt_ps": SAMPLE_INTERRUPT_PS,
        "l2_ps": L2_PS,
        "llc_ps": LLC_PS,
        "llc_bytes": round(machine.llc_mib * MIB),
    }
    for name, tier in (("fast", machine.fast), ("slow", machine.slow)):
        points = tier.document()["loaded"][-1]["points"]  # of reads
        options |= {
            f"{name}_ps": round(tier.latency_ns * 1000),
            f"{name}_gbps": tier.read_gbps,
            f"{name}_store_stall": tier.store_stall,
            f"{name}_loaded": "/".join(f"{x:.6g}:{y:.6g}" for x, y in points),
        }
    return {name: str(value) for name, value in options.items()}


class Request(Model):
    """Everything that a run depends on: the same request gives the same result, to the last
    counter."""

    workload: str
    input: str
    kernel: str
    parameters: dict[str, ParameterValue]
    scale: float
    seed: int
    operations: int
    nominal_seconds: float
    """Of the recorded stream's timed part: what a kernel goes by that runs for a time."""
    footprint_bytes: int
    fast_bytes: int
    policy: str
    knobs: dict[str, KnobValue]
    machine: MachineSpec
    layout: Annotated[int, Field(ge=0, lt=MOST_LAYOUTS)] = 0
    """Memory is laid out otherwise, everything else being equal: a seed of what cannot be fixed."""
    daemons: Literal["own", "shared"] = "own"
    source: str = "emulated"
    """Of tierd's samples."""
    report_ms: int = 0
    built: Built

    @property
    def key(self) -> str:
        return content_hash({"built": self.built.model_dump(mode="json"), "setup": self.setup})

    @property
    def setup(self) -> str:
        """A hash of what is done, whatever the machine and the programs are built of. It has what
        the plugin is told of the machine file: the rest is the simulator's."""
        plain = self.model_dump(mode="json", exclude={"workload", "input", "built", "machine"})
        made = {"nodes_mib": self.nodes_mib, "timing": self.timing(), "script": self.script()}
        return content_hash(plain | made)

    @classmethod
    def of(
        cls, trial: Trial, info: Mapping[str, Any], timed: Mapping[str, Any], **more: Any
    ) -> Request:
        """Of a trial of the simulator and what its stream says of itself. UserError for what the
        machine cannot be."""
        stream, scenario = suitable(trial), trial.scenario
        footprint = int(timed["peak_pages"]) * PAGE
        fast = scenario.fast_gib * 2**30 or fast_share(scenario.ratio) * footprint
        return cls(
            workload=trial.workload,
            input=scenario.input,
            kernel=stream.kernel,
            parameters=stream.parameters,
            scale=stream.scale,
            seed=stream.seed,
            operations=int(info["operations"]),
            nominal_seconds=float(info["nominal_seconds"]),
            footprint_bytes=footprint,
            fast_bytes=int(fast) // PAGE * PAGE,
            policy=scenario.policy,
            knobs=trial.knobs,
            machine=trial.machine,
            **more,
        ).checked()

    def checked(self) -> Request:
        """Itself. UserError if the machine cannot have so much memory."""
        if sum(self.nodes_mib) > MOST_MIB:
            raise UserError(
                f"{self.workload} ({self.input}): a footprint of {self.footprint_bytes / MIB:,.0f} "
                f"MiB needs {sum(self.nodes_mib):,} MiB; the emulated machine has at most "
                f"{MOST_MIB:,}. Inputs named 'emulated' fit"
            )
        return self

    @property
    def free_mib(self) -> int:
        """What the fast node has free when the program starts: about `fast_bytes` for its pages.
        What tierd spares is not theirs, but first touches take it: no more than that is added, or a
        policy begins with a tier over its limit and can promote nothing until it is below."""
        fast = self.footprint_bytes if self.policy == "all-fast" else self.fast_bytes
        mib = -(-fast // MIB)
        if how(self.policy) is not How.tierd:
            return mib + KEPT_MIB
        return mib + KEPT_MIB + math.ceil(TIERD_SPARE * (mib + KERNEL_MIB)) - LOW_MIB

    @property
    def nodes_mib(self) -> tuple[int, int]:
        spare = 64 if self.policy == "all-fast" else 0
        slow = -(-self.footprint_bytes // MIB) + SPARE_MIB
        return -(-(self.free_mib + spare + KERNEL_MIB) // 32) * 32, -(-slow // 32) * 32

    def timing(self) -> dict[str, str]:
        """The plugin's options."""
        options = timing(self.machine)
        if self.daemons == "own":
            options |= {
                "elsewhere": tierd.NAME,
                "kernel_threads": ":".join(KERNEL_THREADS),
                "told_only": "1",
            }
        return options

    def program_words(self) -> list[str]:
        words = program_words(
            self.kernel,
            self.parameters,
            scale=self.scale,
            seed=self.seed,
            operations=self.operations,
            seconds=self.nominal_seconds,
        )
        words += ["--emulated", "--vmstat", ",".join(VMSTAT)]
        return [*words, "--report-ms", str(self.report_ms)] if self.report_ms else words

    def script(self) -> str:
        """Of the guest, as root."""
        lines = [
            "set -e",
            "echo 0 > /proc/sys/kernel/numa_balancing",
            "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
            # Else a processor's own list holds up to 32 MiB that count as taken (mm/page_alloc.c).
            "echo 1000000 > /proc/sys/vm/percpu_pagelist_high_fraction",
            f"sleep {SETTLE_SECONDS}",
        ]
        if self.policy not in ("all-fast",):
            lines.append(f"/tiertune_guest fill 0 {self.free_mib}")
        program = ["/tiertune_workload", *self.program_words()]
        sets = set_words(self.knobs)
        match how(self.policy):
            case How.nobody:
                pass
            case How.placement:
                program = [*bound(BOUND[self.policy]), *program]
            case How.kernel:
                lines.append(_words("/tierd", "apply", "--policy", self.policy, *sets))
            case How.tierd:
                limit = ["--fast-limit", str(self.fast_bytes // 1024) + "K"]
                options = ["--policy", self.policy, "--source", self.source, *limit]
                # Its own memory does not shrink with the fast tier, of which it would be several
                # per cent here: a hundredth of that on a server.
                program = [*bound(ANYWHERE), *program]
                program = [*bound(1), "/tierd", "run", *options, *sets, "--", *program]
        if self.daemons == "own":
            lines.append(_words("/tiertune_guest", "at-once", *KERNEL_THREADS))
        lines.append(_words(*program))
        return "\n".join(lines) + "\n"


ANYWHERE = -1
"""For `bound`: as if nobody had said anything."""


def bound(node: int) -> list[str]:
    """What makes a command's memory come from one node alone."""
    return ["/tiertune_guest", "bind", str(node)]


def program_words(
    kernel: str,
    parameters: Mapping[str, ParameterValue],
    *,
    scale: float,
    seed: int,
    operations: int,
    seconds: float,
) -> list[str]:
    """After the program's name: what carries the kernel's stream out. `operations` and `seconds`
    are of the recorded stream: what a kernel goes by that runs for a time."""
    words = ["run", kernel, "--scale", f"{scale:g}", "--seed", str(seed)]
    words += ["--operations", str(operations), "--seconds", repr(seconds)]
    for name, value in sorted(parameters.items()):
        words += ["--set", f"{name}={_text(value)}"]
    return words


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(each) for each in value)
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def set_words(knobs: Mapping[str, KnobValue]) -> list[str]:
    """tierd's options that set them."""
    pairs = (f"{name}={_text(value)}" for name, value in sorted(knobs.items()))
    return [word for pair in pairs for word in ("--set", pair)]


def _words(*words: str) -> str:
    return shlex.join(words)


class Emulated(Model):
    """What a run has shown.

    `seconds` is the timed part's length by the guest's clock, `set_up_seconds` that of what comes
    before it. `resident` is pages of the program at its end, by node. `vmstat` are differences over
    the timed part, of the whole machine. `machine` is what the plugin has counted in it. `marks`
    are the fast node's watermarks, min, low and high, in pages. `console` is what tierd said.
    `host_seconds` is processor time of the host, and no part of the result.
    """

    request: str
    seconds: Annotated[float, Field(gt=0)]
    set_up_seconds: NonNegative
    operations: dict[str, int]
    resident: list[int]
    marks: Annotated[list[int], Field(min_length=3, max_length=3)]
    vmstat: dict[str, int]
    machine: dict[str, Any]
    faults: dict[str, int] = Field(default_factory=dict)
    series: list[dict[str, Any]] = Field(default_factory=list)
    console: str = ""
    host_seconds: NonNegative = 0


def guest_marks(request: Request, found: Emulated) -> dict[str, float]:
    """The watermarks of the guest's fast node as knobs of the policy, shares of the fast tier; none
    where the policy has no such knobs. Linux sizes them by the whole node, which has the kernel's
    own memory, too."""
    own = {knob.name for knob in engine.policy(request.policy).knobs}
    if how(request.policy) is not How.kernel or "watermark_min" not in own:
        return {}
    least, low, high = (pages * PAGE / request.fast_bytes for pages in found.marks)
    return {"watermark_min": least, "watermark_scale": high - low}


def alike(trial: Trial, request: Request, found: Emulated) -> Trial:
    """The trial, whose fast tier has the watermarks that the guest's had."""
    return trial.model_copy(update={"knobs": trial.knobs | guest_marks(request, found)})


def json_lines(console: str) -> list[dict[str, Any]]:
    """The objects that programs have printed, each on a line of its own."""
    found = []
    for line in console.splitlines():
        if not line.startswith("{"):
            continue
        try:
            found.append(parse_json(line))
        except ValueError as error:
            raise UserError(f"the guest said '{brief(line)}'; must be JSON") from error
    return found
