# SPDX-License-Identifier: MIT
"""Trials on the substrate that their scenario names: the simulated machine, the emulated one, or
this one (`live.py`).

In the emulated machine a seed is a layout of memory: nothing else there is left to chance. What it
does not tell (latencies of single operations, where the time went) its results do not have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from tuner.emulate.guest import Slow
from tuner.emulate.machine import Machine
from tuner.emulate.measure import counted
from tuner.emulate.plan import MOST_LAYOUTS, How, Request, how, suitable
from tuner.errors import UserError
from tuner.objective import OBJECTIVES
from tuner.run import runner, streams
from tuner.run.isolation import Isolation, Live, simulates
from tuner.run.pool import Runner
from tuner.run.runner import HostFailed
from tuner.run.settings import Setting
from tuner.run.trial import Trial, TrialResult
from tuner.scenario import EMULATED, LIVE, Scenario, flag, substrate_defaults
from tuner.tierd import not_tierds

MEASURED = ("throughput", "runtime")
"""Objectives that the machine tells."""
REFERENCES = ("first-touch", "all-fast")
"""Those that a running process can have."""


def runner_in(isolation: Isolation | Live | None) -> Runner:
    """What runs trials there."""
    if isolation is None:
        return run
    if isinstance(isolation, Live):
        from tuner.emulate.live import LiveRunner

        return LiveRunner(isolation)
    from tuner.run.contained import CommandRunner, EngineRunner

    return EngineRunner(isolation) if simulates(isolation) else CommandRunner(isolation)


def run(trial: Trial, *, progress: Callable[[float], None] | None = None) -> TrialResult:
    """As `tuner.run.runner.run`, on the trial's substrate."""
    if trial.scenario.substrate != EMULATED:
        return runner.run(trial, progress=progress)
    return runner.attempt(trial, lambda: _measure(trial, progress))


def follow(update: Callable[[float], object]) -> Callable[[str], None]:
    """Progress by the lines of the guest's console."""

    def told(line: str) -> None:
        if line.startswith("{") and (found := re.search(r'"done": ([0-9.e+-]+)', line)):
            update(min(1.0, float(found[1])))

    return told


@cache
def _machine() -> Machine:
    """The process' own: finding its tools asks Debian's package lists."""
    return Machine()


def _measure(trial: Trial, progress: Callable[[float], None] | None) -> dict[str, Any]:
    """Of each repeat another layout; the result is that of the median run."""
    started = time.monotonic()
    machine = _machine()
    if trial.emulated != machine.name:
        raise HostFailed(
            f"the trial was made for the emulated machine of {trial.emulated}, but this worker has "
            f"{machine.name}; install the same version on every host"
        )
    scenario = trial.scenario
    objective = OBJECTIVES[scenario.objective]
    runs = []
    for repeat in range(scenario.repeats):
        layout = (scenario.seed + repeat) % MOST_LAYOUTS
        request = machine.request(trial, layout=layout)
        watch = runner.part(progress, repeat, scenario.repeats)
        metrics = _metrics(machine, request, trial, started, watch)
        runs.append((objective.value(metrics | {"latency": {}}, trial.operation), metrics))
    middle, metrics, spread = runner.median(runs)
    return {
        "objective": middle,
        "cost": objective.cost(middle),
        "metrics": metrics | spread,
    }


def _metrics(
    machine: Machine,
    request: Request,
    trial: Trial,
    started: float,
    watch: Callable[[float], object] | None,
) -> dict[str, float]:
    left = None
    if trial.deadline_seconds is not None:
        left = max(0.0, trial.deadline_seconds - (time.monotonic() - started))
    try:
        found = machine.run(request, follow(watch) if watch else lambda _: None, left)
    except Slow as error:
        raise TimeoutError(f"its deadline of {trial.deadline_seconds:g} s passed") from error
    return {name: value for name, value in counted(request, found).items() if value is not None}


def differences(scenario: Scenario) -> list[str]:
    """What of a simulated set-up the machine cannot have, as names with what was found. Its inputs
    and machine files are other ones with any name that fits."""
    wanted = substrate_defaults(EMULATED) | {"scale": 1.0, "start": "fast", "pages": "uniform"}
    fields = scenario.plain()
    return [
        f"{name} {fields[name]}"
        for name, value in wanted.items()
        if name not in ("input", "machine") and fields[name] != value
    ]


def verifiable(scenario: Scenario) -> bool:
    """Whether a simulated study of it can be measured on the machine, as far as that shows without
    its files."""
    try:
        carried_out = bool(how(scenario.policy))
    except UserError:
        carried_out = False
    return (
        carried_out
        and scenario.simulated
        and scenario.objective in MEASURED
        and not scenario.placement
        and not differences(scenario)
    )


def on_substrate(setting: Setting, note: Callable[[str], None]) -> Setting:
    """The setting, with what its substrate is built of. UserError, before anything runs, for what
    the emulated machine cannot be or cannot tell. `note` is told what takes long."""
    scenario = setting.scenario
    if scenario.substrate == LIVE:
        raise UserError(f"--on {LIVE}: `tune run` and `tune verify` measure a command of yours")
    if scenario.substrate != EMULATED:
        return setting
    for name, wanted in {"threads": 1, "window": "all", "start": "fast"}.items():
        if (found := getattr(scenario, name)) != wanted:
            raise UserError(f"{flag(name)}: found {found}; the emulated machine has {wanted}")
    if scenario.objective not in MEASURED:
        raise UserError(
            f"--objective: found {scenario.objective}; the emulated machine tells "
            f"{' and '.join(MEASURED)}"
        )
    if setting.placement:
        raise UserError("--placement: a running process does not have names of objects")
    how(setting.policy.name)
    trial = setting.trial(0, {})
    suitable(trial)
    machine = _machine()
    machine.note = note
    streams.prepare(trial.stream)
    machine.request(trial)  # whether it has so much memory
    return setting.model_copy(update={"emulated": machine.name})


def not_settable(setting: Setting, note: Callable[[str], None]) -> dict[str, str]:
    """Knobs of the policy that do nothing on the setting's substrate, and why."""
    if setting.scenario.substrate != EMULATED:
        return {}
    policy = setting.policy
    match how(policy.name):
        case How.kernel:
            machine = _machine()
            machine.note = note
            return machine.not_settable(policy.name)
        case How.tierd:
            return not_tierds(policy)
    return {}
