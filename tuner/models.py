"""The plain data that crosses the package's doors, and what an objective means.

Three documents are written by people (workload, machine, space); trials, results and requests are
written by us. All of them are checked on the way in, refuse unknown keys, and survive a round trip
through JSON unchanged, floating-point numbers included.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

KnobValue = bool | int | float | str
ParameterValue = bool | int | float | str | list[float]


class Model(BaseModel):
    """No coercion, no unknown keys, no change after construction, no NaN from outside."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", ser_json_inf_nan="constants"
    )

    def to_json(self) -> str:
        """One line of JSON that `from_json` turns into an equal object."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls.model_validate_json(text)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Of documents and studies: they become names of files."""


def _name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise ValueError("must consist of letters, digits, '.', '_' and '-'")
    return value


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[float, AfterValidator(_finite), Field(gt=0)]
NonNegative = Annotated[float, AfterValidator(_finite), Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, AfterValidator(_name)]
Scale = Annotated[float, AfterValidator(_finite), Field(ge=1)]


# --- Objectives -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """What a study improves, computed from the dictionary that `tuner._engine.simulate` returns."""

    name: str
    unit: str
    higher_is_better: bool
    meaning: str
    of: Callable[[Mapping[str, Any], str | None], float]

    def value(self, result: Mapping[str, Any], operation: str | None) -> float:
        """The objective in its own unit. ValueError if the result does not have it."""
        value = self.of(result, operation)
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"objective {self.name} is {value}, not a positive number")
        return value

    def cost(self, value: float) -> float:
        """Positive and lower is better, so that a ratio of costs is the relative improvement."""
        return 1.0 / value if self.higher_is_better else value

    def gain(self, best: float, default: float) -> float:
        """Relative improvement: 0.12 is 12 % better than the default."""
        return best / default - 1 if self.higher_is_better else default / best - 1

    def better(self, a: float, b: float) -> bool:
        return a > b if self.higher_is_better else a < b


def _throughput(result: Mapping[str, Any], operation: str | None) -> float:
    if not result["operations"]:
        raise ValueError("the workload reports no operations, so it has no throughput")
    return float(result["operations"]) / float(result["seconds"])


def _latency(percentile: str) -> Callable[[Mapping[str, Any], str | None], float]:
    def of(result: Mapping[str, Any], operation: str | None) -> float:
        latency = result["latency"]
        if operation is None or operation not in latency:
            known = ", ".join(sorted(latency)) or "none"
            raise ValueError(f"no latency of operation '{operation}' (measured: {known})")
        if not latency[operation]["operations"]:
            raise ValueError(f"no '{operation}' operation was sampled, so it has no latency")
        return float(latency[operation][percentile])

    return of


OBJECTIVES: dict[str, Objective] = {
    o.name: o
    for o in (
        Objective("throughput", "ops/s", True, "operations per second", _throughput),
        Objective("runtime", "s", False, "run time", lambda r, _: float(r["seconds"])),
        Objective("p50", "ns", False, "median operation latency", _latency("p50")),
        Objective("p90", "ns", False, "90th percentile of latency", _latency("p90")),
        Objective("p99", "ns", False, "99th percentile of latency", _latency("p99")),
        Objective("p999", "ns", False, "99.9th percentile of latency", _latency("p999")),
    )
}


def _objective_name(value: str) -> str:
    if value not in OBJECTIVES:
        raise ValueError(f"must be one of {', '.join(OBJECTIVES)}")
    return value


ObjectiveName = Annotated[str, AfterValidator(_objective_name)]


# --- Fast:slow ratio ------------------------------------------------------------------------------


def _ratio(value: str) -> str:
    match = re.fullmatch(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)", value)
    if not match or float(match[1]) <= 0 or float(match[2]) <= 0:
        raise ValueError("must be FAST:SLOW with two positive numbers, such as 1:8")
    return value


Ratio = Annotated[str, AfterValidator(_ratio)]


def fast_share(ratio: str) -> float:
    """Fast-tier capacity as a share of the footprint: 1:8 is 1/9. ValueError for a bad ratio."""
    fast, slow = (float(part) for part in _ratio(ratio).split(":"))
    return fast / (fast + slow)


# --- What the engine declares ---------------------------------------------------------------------


class KnobCondition(Model):
    """The knob acts only while `parent` has one of `values`."""

    parent: str
    values: list[KnobValue]


class KnobDecl(Model):
    """A knob as its policy declares it (limits are inclusive), or narrowed by a space."""

    name: str
    type: Literal["integer", "real", "boolean", "choice"]
    default: KnobValue
    min: float | None = None
    max: float | None = None
    log: bool = False
    unit: str = ""
    meaning: str = ""
    source: str = ""
    choices: list[str] = []
    condition: KnobCondition | None = None


class PolicyDecl(Model):
    name: str
    family: str
    summary: str
    citation: str
    traits: dict[str, Any] = {}
    knobs: list[KnobDecl]

    def knob(self, name: str) -> KnobDecl | None:
        return next((knob for knob in self.knobs if knob.name == name), None)


class ParameterDecl(Model):
    name: str
    default: ParameterValue
    unit: str = ""
    meaning: str = ""


class KernelDecl(Model):
    name: str
    summary: str
    parameters: list[ParameterDecl]


# --- Documents written by people ------------------------------------------------------------------


class Spec(Model):
    """A document of the catalog. Its fingerprint covers what acts on a result, not its prose."""

    name: Name
    summary: str
    sources: list[str] = []
    notes: str = ""

    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of the content; comments and order do not count."""
        prose = {"summary", "sources", "notes"}
        return content_hash(self.model_dump(exclude=prose))


def content_hash(content: Any) -> str:
    """First 16 hex digits of the SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Sampling(Model):
    """How a recorded stream was sampled before it was expanded to all accesses.

    `probability` is the share of accesses that were sampled, where there is one; `error_share` the
    relative standard error of a page's count that comes of it (0: exact).
    """

    sampler: str
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    samples: Annotated[int, Field(ge=0)]
    error_share: NonNegative

    def told(self) -> str:
        """sampled by hint-fault: 52,000 samples, one access in 1,000; ..."""
        if self.error_share == 0:
            return f"recorded whole by {self.sampler}: all {self.samples:,} accesses were seen"
        rate = "" if self.probability is None else f", one access in {1 / self.probability:,.4g}"
        return (
            f"sampled by {self.sampler}: {self.samples:,} samples{rate}; the count of a page is "
            f"uncertain by {self.error_share:.2g} of itself (standard error)"
        )


class InputSpec(Model):
    """One input of a workload: full-scale values for its kernel's parameters, or a recording.

    `trace` is the recording's file, relative to the YAML file's folder (the catalog makes it
    absolute). `content` is the recording's identity: the catalog finds it in the file and, where it
    is written down, insists on it.
    """

    summary: str
    scale: Scale | None = None
    footprint_gib: Positive | None = None
    parameters: dict[str, ParameterValue] = {}
    trace: str | None = None
    content: str | None = None
    sampling: Sampling | None = None


class WorkloadSpec(Spec):
    """workloads/NAME.yaml: what runs, what is measured, and on which inputs.

    A workload has a `kernel` that makes its streams, or none, and each input names a recording.
    `scale` is R of the simulated miniature: one simulated page stands for R real ones.
    `operation` is the kind of operation whose latency counts; None where there is none.
    """

    kernel: str | None = None
    operation: str | None = None
    objective: ObjectiveName
    objectives: Annotated[list[ObjectiveName], Field(min_length=1)]
    footprint_gib: Positive
    scale: Scale
    threads: Positive
    machine: str
    default_input: str
    smoke_input: str
    inputs: Annotated[dict[str, InputSpec], Field(min_length=1)]

    def footprint_of(self, input: str) -> float:
        """GiB, full-scale."""
        return self.inputs[input].footprint_gib or self.footprint_gib

    def scale_of(self, input: str) -> float:
        return self.inputs[input].scale or self.scale

    def fingerprint(self) -> str:
        """A recording counts by its content, wherever it lies and whatever is said about it."""
        content = self.model_dump(exclude={"summary", "sources", "notes"})
        for input in content["inputs"].values():
            del input["trace"], input["sampling"]
            if input["content"] is None:
                del input["content"]
        return content_hash(content)


class TierSpec(Model):
    """One memory tier. Bandwidths in GB/s (10^9 bytes), latency of an idle load in ns.

    `loaded` is the loaded-latency curve: (utilisation, factor on the idle latency), ascending, from
    (0, 1). `store_stall` is the share of the latency that a store costs its thread.
    """

    latency_ns: Positive
    read_gbps: Positive
    write_gbps: Positive
    total_gbps: NonNegative = 0
    store_stall: Share
    loaded: list[Annotated[list[Finite], Field(min_length=2, max_length=2)]]

    @model_validator(mode="after")
    def _curve(self) -> TierSpec:
        curve = self.loaded
        if not curve or curve[0] != [0, 1]:
            raise ValueError("loaded must start with [0, 1]")
        if any(b[0] <= a[0] or b[1] < a[1] for a, b in itertools.pairwise(curve)):
            raise ValueError("loaded must ascend: utilisation strictly, factor never down")
        return self


class WorkCosts(Model):
    """Nanoseconds of the tiering thread per item of policy work."""

    tracker_update: NonNegative
    tracker_lookup: NonNegative
    cooling_step: NonNegative
    scan_step: NonNegative
    threshold_pass: NonNegative


class TieringSpec(Model):
    """What tiering itself costs on the machine."""

    migration_fixed_us: NonNegative
    migration_copy_gbps: Positive
    migration_shootdown_us: NonNegative
    sample_assist_ns: NonNegative
    sample_drain_ns: NonNegative
    work_ns: WorkCosts
    huge_page_gain: Share
    daemon_core_share: Share
    sample_queue: Positive


class MachineSpec(Spec):
    """engine/machines/NAME.yaml: the hardware that the simulator plays.

    `slow_gib` is the slow tier's capacity where the publication fixes it: a ratio of 1:8 is then an
    eighth of it of fast memory, whatever the workload's footprint. Without it a ratio divides the
    footprint.
    """

    ghz: Positive
    cores: Annotated[int, Field(ge=1)]
    threads: Annotated[int, Field(ge=1)]
    llc_mib: Positive
    slow_gib: Positive | None = None
    fast: TierSpec
    slow: TierSpec
    tiering: TieringSpec

    @property
    def llc_bytes(self) -> int:
        return round(self.llc_mib * (1 << 20))

    def fast_bytes(self, ratio: str) -> int:
        """Full-scale fast-tier capacity at FAST:SLOW; 0 where the footprint decides."""
        if self.slow_gib is None:
            return 0
        share = fast_share(ratio)
        return round(self.slow_gib * (1 << 30) * share / (1 - share))

    def document(self) -> dict[str, Any]:
        """What `tuner._engine.simulate(machine=...)` takes."""
        return self.model_dump()


def _choice(value: Any) -> Any:
    return str(value) if type(value) is int else value


Choice = Annotated[str, BeforeValidator(_choice)]
"""Name of a choice; `4` may be written without quotes."""


class KnobRange(Model):
    """Narrows a declared knob; empty means the declared limits."""

    min: Finite | None = None
    max: Finite | None = None
    choices: Annotated[list[Choice], Field(min_length=1)] | None = None


class SpaceSpec(Model):
    """spaces/POLICY.yaml: the knobs that are tuned. All others keep their default."""

    policy: str
    summary: str
    knobs: Annotated[dict[str, KnobRange], Field(min_length=1)]

    def fingerprint(self) -> str:
        return content_hash(self.model_dump(exclude={"summary"}))


# --- Trials ---------------------------------------------------------------------------------------


class StreamRequest(Model):
    """Everything that makes an access stream; equal requests give equal bytes.

    `maker` is the kernel's `tuner._engine.stream_id()`: another recorder or kernel may make another
    stream, so it is part of the key.
    """

    workload: str
    input: str
    kernel: str
    parameters: dict[str, ParameterValue]
    scale: Scale
    threads: Positive
    llc_bytes: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)] = 0
    maker: str

    @property
    def key(self) -> str:
        """Content hash. The names are labels: equal contents share one stream."""
        return content_hash(self.model_dump(exclude={"workload", "input"}))


class RecordedStream(Model):
    """A stream that was recorded or imported, and cannot be made again: the file is all there is.

    `content` is its identity (`tuner._engine.stream_info()["identity"]`), so a file that was
    replaced is noticed.
    """

    workload: str
    input: str
    trace: str  # absolute
    content: str
    scale: Scale

    @property
    def key(self) -> str:
        return self.content

    @property
    def seed(self) -> int:
        """It happened once."""
        return 0


class Trial(Model):
    """One run of one configuration. Any worker on any host can run it from this alone."""

    study: str
    number: Annotated[int, Field(ge=0)]
    policy: str
    knobs: dict[str, KnobValue]
    stream: StreamRequest | RecordedStream
    machine: MachineSpec
    ratio: Ratio
    threads: Positive
    page_bytes: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    objective: ObjectiveName
    operation: str | None = None
    repeats: Annotated[int, Field(ge=1)] = 1
    deadline_seconds: Positive | None = None
    engine_build: str  # a worker with another engine refuses the trial

    @property
    def workload(self) -> str:
        return self.stream.workload

    @property
    def input(self) -> str:
        return self.stream.input


class Status(StrEnum):
    success = "success"
    failed = "failed"  # the trial itself raised: a bad knob, no such operation, a bad stream
    timeout = "timeout"  # its deadline passed
    crashed = "crashed"  # its process or its host died


class TrialResult(Model):
    """What a trial came to. `objective` and `cost` are None unless the status is success.

    `cost` is positive and lower is better (`Objective.cost`). `latency` is in ns per kind of
    operation, `breakdown` in seconds of the timed part, `series` one value per virtual second;
    with repeats they are those of the median run, and `metrics` has the spread as `repeat.*`.
    `seconds` is wall time.
    """

    study: str
    number: int
    status: Status
    objective: float | None = None
    cost: float | None = None
    metrics: dict[str, float] = {}
    latency: dict[str, dict[str, float]] = {}
    breakdown: dict[str, float] = {}
    series: dict[str, list[float]] = {}
    error: str = ""
    seconds: float = 0
    engine_version: str = ""
    engine_build: str = ""
    host: str = ""


# --- Studies --------------------------------------------------------------------------------------


class Fingerprints(Model):
    """Content hashes of the documents that a result depends on."""

    workload: str
    space: str
    machine: str


class Setting(Model):
    """Everything about a run but the knobs: every name looked up, every default filled in.

    `workload_file` and `machine_file` are absolute paths where the user named a file rather than a
    name to be looked up.
    """

    study: Name
    workload: WorkloadSpec
    input: str
    policy: PolicyDecl
    machine: MachineSpec
    ratio: Ratio
    threads: Positive
    scale: Scale
    page_bytes: Annotated[int, Field(ge=0)] = 0  # 0: the policy's own managed page
    objective: ObjectiveName
    repeats: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 0
    stream_seed: Annotated[int, Field(ge=0)] = 0
    deadline_seconds: Positive | None = None
    engine_version: str
    engine_build: str
    stream_maker: str
    workload_file: str | None = None
    machine_file: str | None = None

    @property
    def workload_argument(self) -> str:
        """What --workload takes to get the same."""
        return self.workload_file or self.workload.name

    @property
    def sampling(self) -> Sampling | None:
        return self.workload.inputs[self.input].sampling

    def stream(self) -> StreamRequest | RecordedStream:
        input = self.workload.inputs[self.input]
        if self.workload.kernel is None:
            assert input.trace is not None and input.content is not None  # the catalog saw to it
            return RecordedStream(
                workload=self.workload.name,
                input=self.input,
                trace=input.trace,
                content=input.content,
                scale=self.scale,
            )
        return StreamRequest(
            workload=self.workload.name,
            input=self.input,
            kernel=self.workload.kernel,
            parameters=input.parameters,
            scale=self.scale,
            threads=self.threads,
            llc_bytes=self.machine.llc_bytes,
            seed=self.stream_seed,
            maker=self.stream_maker,
        )

    def trial(self, number: int, knobs: Mapping[str, KnobValue]) -> Trial:
        """A trial in this setting; `knobs` may leave out those that keep their default."""
        defaults = {knob.name: knob.default for knob in self.policy.knobs}
        return Trial(
            study=self.study,
            number=number,
            policy=self.policy.name,
            knobs=defaults | dict(knobs),
            stream=self.stream(),
            machine=self.machine,
            ratio=self.ratio,
            threads=self.threads,
            page_bytes=self.page_bytes,
            seed=self.seed,
            objective=self.objective,
            operation=self.workload.operation,
            repeats=self.repeats,
            deadline_seconds=self.deadline_seconds,
            engine_build=self.engine_build,
        )


class StudyRequest(Setting):
    """`tune run`, resolved.

    `knobs` are the tuned ones with their narrowed limits, in the space's order; the policy's other
    knobs stay at their defaults and are not listed. `out` is the folder that holds studies; the
    study's directory is `out/study`. `seed` is the optimizer's too. `space_argument` is what
    --space was given, absolute if that is a file; None for the policy's own.
    """

    out: str
    space: SpaceSpec
    space_argument: str | None = None
    knobs: list[KnobDecl]
    budget: Annotated[int, Field(ge=1)]
    workers: Annotated[int, Field(ge=1)]
    resume: bool = False
    ray_address: str | None = None
    mlflow_uri: str | None = None
    json_output: bool = False  # standard output belongs to the final object

    @property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(
            workload=self.workload.fingerprint(),
            space=self.space.fingerprint(),
            machine=self.machine.fingerprint(),
        )


class StudySummary(Model):
    """The object that `tune run --json` prints. `gain` is relative: 0.12 is 12 % better."""

    study: str
    workload: str
    input: str
    policy: str
    machine: str
    ratio: str
    trials: int
    failed: int
    default_objective: float | None
    best_objective: float | None
    gain: float | None
    best_config: str | None  # path of best.yaml; None when no trial succeeded
    importance: dict[str, float]
    seconds: float
    sampling: Sampling | None = None  # of a recorded stream


class BestObjective(Model):
    name: ObjectiveName
    value: float
    default_value: float | None
    gain: float | None


class Provenance(Model):
    study: str
    trial: int
    date: str  # ISO 8601, UTC
    engine_version: str
    engine_build: str
    fingerprints: Fingerprints
    git_commit: str | None = None
    host: str


class BestConfiguration(Model):
    """best.yaml (read and written by `tuner.best` only): a configuration and how it was found.

    `knobs` holds every knob of the policy at full scale. Together with the workload's and the
    machine's documents it reproduces `objective.value` exactly. `workload_file` and `machine_file`
    say where they are if they are not found by name.
    """

    policy: str
    knobs: dict[str, KnobValue]
    workload: str
    workload_file: str | None = None
    input: str
    machine: str
    machine_file: str | None = None
    ratio: Ratio
    threads: Positive
    scale: Scale
    page_bytes: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0)]
    stream_seed: Annotated[int, Field(ge=0)]
    repeats: Annotated[int, Field(ge=1)]
    objective: BestObjective
    provenance: Provenance

    @classmethod
    def of(
        cls,
        request: StudyRequest,
        trial: Trial,
        result: TrialResult,
        *,
        default_value: float | None,
        date: datetime,
        git_commit: str | None,
    ) -> BestConfiguration:
        """From a successful trial of a study. `default_value`: objective of the default."""
        if result.objective is None:
            raise ValueError(f"trial {trial.number} has no objective")
        objective = OBJECTIVES[trial.objective]
        gain = None if default_value is None else objective.gain(result.objective, default_value)
        return cls(
            policy=trial.policy,
            knobs=trial.knobs,
            workload=trial.workload,
            workload_file=request.workload_file,
            input=trial.input,
            machine=trial.machine.name,
            machine_file=request.machine_file,
            ratio=trial.ratio,
            threads=trial.threads,
            scale=trial.stream.scale,
            page_bytes=trial.page_bytes,
            seed=trial.seed,
            stream_seed=trial.stream.seed,
            repeats=trial.repeats,
            objective=BestObjective(
                name=trial.objective,
                value=result.objective,
                default_value=default_value,
                gain=gain,
            ),
            provenance=Provenance(
                study=request.study,
                trial=trial.number,
                date=date.isoformat(timespec="seconds"),
                engine_version=result.engine_version,
                engine_build=result.engine_build,
                fingerprints=request.fingerprints,
                git_commit=git_commit,
                host=result.host,
            ),
        )

    @property
    def workload_argument(self) -> str:
        """What --workload takes to get the same."""
        return self.workload_file or self.workload

    @property
    def machine_argument(self) -> str:
        return self.machine_file or self.machine
