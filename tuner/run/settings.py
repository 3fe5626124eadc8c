# SPDX-License-Identifier: MIT
"""Settings: a scenario with everything that it names looked up and every default filled in."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from tuner import engine
from tuner.declarations import KnobValue, ParameterValue, PolicyDecl
from tuner.documents import catalog, placement
from tuner.documents.machine import MachineSpec
from tuner.documents.placement import PlacementSpec
from tuner.documents.workload import LATENCIES, Sampling, WorkloadSpec
from tuner.errors import LONGEST_NAME, UserError, WrongParameter, brief, unknown
from tuner.model import NAME, Model, Name, Positive
from tuner.run import streams
from tuner.run.trial import RecordedStream, Stream, StreamRequest, Trial
from tuner.scenario import (
    SIZES,
    Scenario,
    defaults,
    flag,
    options,
    size_text,
    sizes_of,
    substrate_defaults,
)
from tuner.terminal import say
from tuner.text import short

_SCENARIO = TypeAdapter(Scenario)
GIB = 1 << 30
CLOSE = 0.05
"""By how much a resized workload may differ from what was asked for without a word."""


class Setting(Model):
    """A scenario with everything that it names looked up: the documents as they were then, the
    policy's declarations, and the engine."""

    study: Name
    scenario: Scenario
    workload: WorkloadSpec
    policy: PolicyDecl
    machine: MachineSpec
    placement: PlacementSpec | None = None
    deadline_seconds: Positive | None = None
    engine_version: str
    engine_build: str
    stream_maker: str
    emulated: str | None = None
    """What the emulated machine is built of (`tuner.emulate.machine.Machine.name`), if trials run
    on it."""

    @property
    def study_name(self) -> str:
        """Made from the scenario. The budget is not part of it, so that a study can be resumed with
        a larger one."""
        scenario = self.scenario
        return scenario.study_name(
            defaults(
                self.workload,
                self.policy,
                scenario.input,
                scenario.page_bytes,
                scenario.substrate,
            )
        )

    @property
    def sampling(self) -> Sampling | None:
        return self.workload.inputs[self.scenario.input].sampling

    def stream(self) -> Stream:
        scenario = self.scenario
        input = self.workload.inputs[scenario.input]
        if self.workload.kernel is None:
            assert input.trace is not None and input.content is not None  # the catalog saw to it
            return RecordedStream(
                workload=self.workload.name,
                input=scenario.input,
                trace=input.trace,
                content=input.content,
            )
        return StreamRequest(
            workload=self.workload.name,
            input=scenario.input,
            kernel=self.workload.kernel,
            parameters=input.parameters,
            scale=scenario.scale,
            page_bytes=scenario.page_bytes,
            threads=scenario.threads,
            llc_bytes=self.machine.llc_bytes,
            seed=scenario.stream_seed,
            maker=self.stream_maker,
        )

    def prepare(self, stream: Stream) -> None:
        """Makes the stream. UserError if that fails, or if it has nothing that the objective could
        be measured by. Of a resized workload, says if it is not as large as it was meant to be."""
        path = streams.prepare(stream)
        self._check_operation(path)
        if self.scenario.sizes:
            self._tell_memory(path)

    def _check_operation(self, path: Path) -> None:
        objective, input = self.scenario.objective, self.scenario.input
        operation = self.workload.operation_of(input)
        if objective not in LATENCIES:
            return
        kinds = engine.stream_info(path)["op_kinds"]
        if operation not in kinds:
            own = self.workload.inputs[input].operation is not None
            raise WrongParameter(
                f"operation: found '{brief(str(operation))}'; {objective} needs one that input "
                f"{input} has: {' or '.join(kinds) or 'it has none'}",
                ("inputs", input, "operation") if own else ("operation",),
            )

    def _tell_memory(self, path: Path) -> None:
        scenario = self.scenario
        pages = engine.characteristics(path)["peak_pages"] * scenario.scale
        wanted = self.workload.footprint_of(scenario.input)
        found = pages * scenario.page_bytes / GIB
        if abs(found / wanted - 1) > CLOSE:
            say(
                f"tune: note: {self.workload.name} ({scenario.input}) with {scenario.sizes}: "
                f"memory in use is {short(found)} GiB, and not {short(wanted)}; ratios are shares "
                "of what is in use"
            )

    def resized(self) -> str | None:
        """What --set has made of the workload, in a sentence; None without it."""
        scenario, changed = self.scenario, self.workload
        if not scenario.sizes:
            return None
        before = catalog.workload(scenario.workload).spec
        found = catalog.resized(before, scenario.input, scenario.sizes)
        then, now = (spec.footprint_of(scenario.input) for spec in (before, changed))
        told = [f"memory {_from_to(then, now)} GiB"] if then != now else []
        if before.threads != changed.threads:
            told.append(f"threads {_from_to(before.threads, changed.threads)}")
        told += [f"{name} {_from_to(was, value)}" for name, was, value in found.changes]
        scales = [spec.scale_of(scenario.input, scenario.page_bytes) for spec in (before, changed)]
        told.append(
            f"a simulated page stands for {short(scenario.scale)} real ones"
            + (f" ({short(scales[0])} before)" if scenario.scale != scales[0] else ", as before")
        )
        return f"{changed.name} ({scenario.input}) with {scenario.sizes}: {', '.join(told)}"

    def trial(self, number: int, knobs: Mapping[str, KnobValue]) -> Trial:
        """A trial in this setting; `knobs` may leave out those that keep their default."""
        own = {knob.name: knob.default for knob in self.policy.knobs}
        return Trial(
            study=self.study,
            number=number,
            scenario=self.scenario,
            knobs=own | dict(knobs),
            stream=self.stream(),
            machine=self.machine,
            placement=self.placement,
            operation=self.workload.operation_of(self.scenario.input),
            coarse=self.workload.inputs[self.scenario.input].coarse,
            deadline_seconds=self.deadline_seconds,
            engine_build=self.engine_build,
            emulated=self.emulated,
        )

    def under(self, policy: PolicyDecl, **changes: Any) -> Self:
        """The same under another policy: what depends on the policy becomes that one's default,
        unless it was set to something else. `changes` are of the scenario; pages of another size
        have a default scale of their own."""
        input, on = self.scenario.input, self.scenario.substrate
        mine = defaults(self.workload, self.policy, input, substrate=on)
        theirs = defaults(self.workload, policy, input, changes.get("page_bytes"), on)
        fields = self.scenario.plain()
        fields |= {name: theirs[name] for name in theirs if fields[name] == mine[name]}
        own = {"policy": policy.name} | ({} if policy.profiled else {"placement": ""})
        scenario = Scenario(**fields | own | changes)
        placed = self.placement if scenario.placement else None
        return self.model_copy(update={"scenario": scenario, "policy": policy, "placement": placed})


def _from_to(then: ParameterValue, now: ParameterValue) -> str:
    """16 -> 200; of a list its last, which is the largest."""
    values = [each[-1] if isinstance(each, list) else each for each in (then, now)]
    most = "up to " if isinstance(now, list) else ""
    return f"{most}{short(values[0])} -> {short(values[1])}"


def other_size(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recorded scenario, and over them what is given. Of a workload of another size
    the recorded scale and threads are not those of that size, and are left to its defaults."""
    if given.get("sizes", fields.get("sizes")) == fields.get("sizes"):
        return {**fields, **given}
    follows = {"scale"} | ({"threads"} & sizes_of(given["sizes"]).keys())
    return {name: value for name, value in fields.items() if name not in follows} | dict(given)


def given(args: Namespace) -> dict[str, Any]:
    """The scenario's fields that the command line sets, without workload and policy. UserError for
    a --set of something else than a size."""
    found = {
        name: value
        for name in options()
        if name not in ("workload", "policy") and (value := getattr(args, name, None)) is not None
    }
    if words := found.pop("sizes", None):
        found["sizes"] = _sizes(words)
    return found


def _sizes(words: Sequence[str]) -> str:
    """What --set says, given once or several times, as `Scenario.sizes` has it."""
    for word in words:
        name = word.partition("=")[0]
        if any(policy.knob(name) for policy in engine.policies().values()):
            raise UserError(
                f"--set {brief(name)}: is a knob, and not the size of a workload; must be of "
                f"{', '.join(SIZES)} here. `tune run` searches knobs; a space's file pins them"
            )
    try:
        return size_text(sizes_of(",".join(words)))
    except ValueError as error:
        raise UserError(f"--set {brief(','.join(words))}: {error}") from error


def resolve(
    workload_name: str,
    *,
    policy: PolicyDecl,
    study: str | None = None,
    deadline_seconds: float | None = None,
    **given: Any,
) -> Setting:
    """The setting of a scenario of which some fields are given; None stands for the default.

    UserError for what does not exist or does not fit.
    """
    workload = catalog.workload(workload_name).spec
    on = given.get("substrate") or Scenario.substrate
    input = given.get("input") or substrate_defaults(on).get("input") or workload.default_input
    if input not in workload.inputs:
        raise unknown(f"input of workload {workload.name}", input, workload.inputs)
    if sizes := given.get("sizes"):
        workload = catalog.resized(workload, input, sizes).spec
        _check_threads(sizes, given.get("threads"))
    values = defaults(workload, policy, input, given.get("page_bytes"), on) | {
        name: value for name, value in given.items() if value is not None
    }
    values |= {
        "workload": catalog.absolute(workload_name) or workload_name,
        "policy": policy.name,
        "machine": catalog.absolute(values["machine"]) or values["machine"],
    }
    machine = catalog.machine(values["machine"]).spec
    if values["placement"]:
        values["placement"] = str(Path(values["placement"]).absolute())
    scenario = _checked(values, workload)
    setting = Setting(
        study="x",
        scenario=scenario,
        workload=workload,
        policy=policy,
        machine=machine,
        placement=_placement(scenario, workload, policy),
        deadline_seconds=deadline_seconds,
        engine_version=engine.version(),
        engine_build=engine.results_id(),
        stream_maker=engine.stream_id(workload.kernel) if workload.kernel else "",
    )
    return setting.model_copy(update={"study": checked_name(study or setting.study_name)})


def _check_threads(sizes: str, threads: float | None) -> None:
    """They may be said twice, but not differently."""
    wanted = sizes_of(sizes).get("threads")
    if wanted is not None and threads not in (None, wanted):
        raise UserError(f"--set threads: found {wanted:g}, and --threads {threads:g}; give one")


def _checked(values: Mapping[str, Any], workload: WorkloadSpec) -> Scenario:
    """The scenario. UserError if a field has a value that it may not have with this workload."""
    try:
        scenario = _SCENARIO.validate_python(values)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        found = detail["input"]
        shown = f"{found:g}" if isinstance(found, float) else brief(repr(found))
        message = detail["msg"].removeprefix("Value error, ")
        raise UserError(f"{flag(str(detail['loc'][0]))}: found {shown}; {message}") from error
    able = workload.objectives_of(scenario.input)
    if scenario.objective not in able:
        raise unknown(f"objective of workload {workload.name}", scenario.objective, able)
    if workload.kernel is None:
        _check_recorded(scenario, workload)
        _check_whole(scenario, workload)
    return scenario


def _placement(
    scenario: Scenario, workload: WorkloadSpec, policy: PolicyDecl
) -> PlacementSpec | None:
    if not scenario.placement:
        return None
    if not policy.profiled:
        known = [other.name for other in engine.policies().values() if other.profiled]
        raise UserError(
            f"--placement: policy {policy.name} does not go by one; must be left out "
            f"(those that do: {', '.join(known)})"
        )
    return placement.read(Path(scenario.placement), workload=workload.name, policy=policy.name)


def _check_recorded(scenario: Scenario, workload: WorkloadSpec) -> None:
    """A recording has one scale, and no seed."""
    recorded = workload.scale_of(scenario.input)
    if scenario.scale != recorded:
        raise UserError(
            f"--scale: found {scenario.scale:g}; {workload.name} ({scenario.input}) is a "
            f"recording of scale {recorded:g}"
        )
    if scenario.stream_seed:
        raise UserError(
            f"--stream-seed: found {scenario.stream_seed}; {workload.name} "
            f"({scenario.input}) is a recording, which has no seed"
        )


def _check_whole(scenario: Scenario, workload: WorkloadSpec) -> None:
    sampling = workload.inputs[scenario.input].sampling
    if sampling is not None and sampling.dropped_share > sampling.dropped_allowed:
        raise UserError(
            f"{scenario.workload}: inputs.{scenario.input}.sampling.dropped_share: found "
            f"{sampling.dropped_share:.2g}; must be at most dropped_allowed, "
            f"{sampling.dropped_allowed:g}: record again, with more room on the disk, or raise it"
        )


def checked_name(name: str) -> str:
    """The name, of which a folder is made. UserError if it cannot be one."""
    if len(name) > LONGEST_NAME or not re.fullmatch(NAME, name):
        raise UserError(
            f"--name: found '{brief(name)}'; must consist of letters, digits, '.', '_' and '-', at "
            f"most {LONGEST_NAME} of them"
        )
    return name
