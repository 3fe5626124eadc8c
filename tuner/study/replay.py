# SPDX-License-Identifier: MIT
"""A recorded configuration that is run again: how the run differs from the recorded one, and
whether the recorded objective came out."""

from __future__ import annotations

from dataclasses import dataclass

from tuner import engine
from tuner.declarations import KnobValue
from tuner.errors import UserError, brief
from tuner.objective import OBJECTIVES
from tuner.run.settings import Setting
from tuner.run.trial import Trial, TrialResult
from tuner.scenario import LIVE, flag, label
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration


def knobs_of(file: str, recorded: BestConfiguration) -> dict[str, KnobValue]:
    """All of them. UserError naming the file if its policy does not take them."""
    try:
        return engine.resolve(recorded.scenario.policy, dict(recorded.knobs))
    except UserError as error:
        raise UserError(f"{file}: knobs: {brief(str(error), 500)}") from error


def elsewhere(setting: Setting, recorded: BestConfiguration) -> list[str]:
    """The conditions that results depend on and that are not those of the configuration's study:
    options, contents of documents, what makes the stream, and the engine's build."""
    here, there = setting.scenario.comparable(), recorded.scenario.comparable()
    found = [
        f"{flag(name)} {there[name]} instead of {here[name]}"
        for name in there
        if there[name] != here[name]
    ]
    then = recorded.provenance
    for name in ("workload", "machine"):
        other = getattr(setting, name).fingerprint() != getattr(then.fingerprints, name)
        if other and here[name] == there[name]:
            found.append(f"another content of --{name} {there[name]}")
    same = here["workload"] == there["workload"]
    if same and then.stream_maker not in (None, setting.stream_maker):
        found.append("streams of another build of the workload's kernel")
    if then.engine_build != setting.engine_build:
        builds = engine.show(then.engine_build), engine.show(setting.engine_build)
        found.append(f"{builds[0]} instead of {builds[1]}")
    if then.fingerprints.command is not None:
        where = "" if recorded.scenario.substrate == LIVE else " in a container"
        found.append(f"a command{where} instead of a simulation")
    return found


def differences(setting: Setting, trial: Trial, recorded: BestConfiguration) -> list[str]:
    """What was asked for that is not as recorded. A document that has moved is the same."""
    asked, before = trial.scenario.plain(), recorded.scenario.plain()
    found = []
    for name, then in before.items():
        now, also = asked[name], ""
        if name in ("workload", "machine") and now != then and label(now) == label(then):
            fingerprint = getattr(setting, name).fingerprint()
            if fingerprint == getattr(recorded.provenance.fingerprints, name):
                continue
            also = ", with another content"
        if now != then:
            found.append(f"{flag(name)} {now} (recorded: {then}{also})")
    if (built := recorded.provenance.emulated) and built != trial.emulated:
        found.append(f"an emulated machine of {trial.emulated} (recorded: {built})")
    knobs = engine.resolve(trial.scenario.policy, dict(recorded.knobs))
    return found + [
        f"{name} {value} (recorded: {knobs[name]})"
        for name, value in trial.knobs.items()
        if value != knobs[name]
    ]


ANOTHER = "nothing to reproduce: this run is not the recorded one, but with "


@dataclass(frozen=True)
class Replay:
    """`same`: whether the recorded objective was reproduced; None if something else was run.
    `defect`: it did not, although nothing that it depends on has changed."""

    text: str
    same: bool | None
    defect: bool = False


def replay(
    setting: Setting, trial: Trial, recorded: BestConfiguration, result: TrialResult
) -> Replay:
    """What a run says of the recorded objective, in one paragraph."""
    if different := differences(setting, trial, recorded):
        return Replay(ANOTHER + ", ".join(different), None)
    then, now = recorded.objective.value, result.objective
    name = recorded.scenario.objective
    unit = OBJECTIVES[name].unit
    if then == now:
        return Replay(f"reproduced exactly: {name} {then!r} {unit}", True)
    reasons = best_file.changes_since(recorded)
    values = f"recorded {then!r} {unit}, reproduced {now!r} {unit}"
    if reasons:
        text = f"not the recorded objective ({values}), because:\n  " + "\n  ".join(reasons)
        return Replay(text, False)
    text = f"NOT REPRODUCED although nothing has changed: {values}; please report this"
    return Replay(text, False, defect=True)
