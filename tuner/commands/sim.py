# SPDX-License-Identifier: MIT
"""`tune sim`: runs one configuration, and checks a recorded one.

With a best.yaml and nothing changed on the command line, the objective must be that of the file to
the last bit: the simulator is deterministic. If it does not, either something that it depends on
has changed (which is named), or it is a defect (exit code 1).
"""

from __future__ import annotations

import csv
import io
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.arguments import options
from tuner.commands import isolated
from tuner.compare import transfer
from tuner.declarations import KnobDecl, KnobValue, PolicyDecl
from tuner.documents.loader import LARGEST
from tuner.emulate import trials
from tuner.errors import UserError, as_object, brief, unknown
from tuner.files import write_atomically
from tuner.objective import OBJECTIVES
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import SIZES, Scenario
from tuner.study import best as best_file
from tuner.study import replay
from tuner.study.best import BestConfiguration
from tuner.study.replay import Replay
from tuner.terminal import doing, print_json, progress, say, table
from tuner.text import percent


def run(args: Namespace) -> int:
    if args.sensitivity is not None:
        from tuner.commands import sensitivity

        knobs, args = divided(args)
        if knobs:
            raise UserError(
                f"--sensitivity runs every policy as published: leave out --set {brief(knobs[0])}"
            )
        return sensitivity.run(args)
    recorded = best_file.read(Path(args.config)) if args.config else None
    setting, trial = _trial(args, recorded)
    confined = isolated.asked(args)
    if setting.sampling and setting.sampling.missing:
        name = f"{trial.workload} ({trial.scenario.input})"
        say(f"tune: warning: {name} was {setting.sampling.describe()}")
    policy = setting.policy
    if trial.placement and (unmet := policy.unmet(policy.profiled_when, trial.knobs)):
        raise UserError(
            f"--placement: {policy.name} goes by one only with {unmet}; "
            f"found {unmet.parent}={trial.knobs[unmet.parent]}"
        )
    setting.prepare(trial.stream)
    profiles = policy.goes_by_placement(trial.knobs) and trial.placement is None
    doing = "profiling and simulating" if profiles else "simulating"
    if profiles:
        say(f"tune: no --placement: {policy.name} profiles {trial.workload} on fast memory first")
    with progress(f"{doing} {trial.scenario.policy} on {trial.workload}") as update:
        if confined is None:
            result = trials.run(trial, progress=update)
        else:
            result = trials.runner_in(confined)(trial)
    if result.status is not Status.success:
        if args.json:
            print_json(_object(trial, result, recorded, None))
        say(f"tune: error: the simulation ended: {result.status}: {result.error}")
        return 1
    if args.series:
        _write_series(Path(args.series), result.series)
    found = replay.replay(setting, trial, recorded, result) if recorded else None
    if args.json:
        print_json(_object(trial, result, recorded, found))
    else:
        _show(trial, result)
        if found:
            print(f"\n{found.text}")
    return 1 if found and found.defect else 0


def _trial(args: Namespace, recorded: BestConfiguration | None) -> tuple[Setting, Trial]:
    if recorded is None and args.workload is None:
        raise UserError("what to run? give --workload, --config, or both")
    fields = recorded.scenario.plain() if recorded else {}
    before = fields.pop("workload", ""), fields.pop("policy", Scenario.policy)
    policy = engine.policy(args.policy or before[1])
    words, args = divided(args)
    setting = settings.resolve(
        args.workload or before[0],
        policy=policy,
        study="sim",
        deadline_seconds=args.deadline,
        **settings.other_size(fields, settings.given(args)),
    )
    if resized := setting.resized():
        say(f"tune: {resized}")
    if recorded and (differences := replay.elsewhere(setting, recorded)):
        say(
            "tune: warning: the configuration was tuned elsewhere, for "
            f"{', '.join(differences)}; it may gain less here, or lose. "
            f"{transfer.sentence(setting, recorded)}"
        )
    setting = trials.on_substrate(setting, doing)
    knobs = replay.knobs_of(args.config, recorded) if recorded else {}
    knobs |= parse_knobs(words, policy)
    resolved, defaults = engine.resolve(policy.name, knobs), engine.resolve(policy.name, {})
    for name, reason in trials.not_settable(setting, doing).items():
        if resolved[name] != defaults[name]:
            say(f"tune: warning: {name}={resolved[name]} does nothing there: {reason}")
    return setting, setting.trial(0, resolved)


def divided(args: Namespace) -> tuple[list[str], Namespace]:
    """What --set sets: the knobs, and the arguments with the sizes of the workload alone. No knob
    has the name of a size."""
    words = [part for word in args.sizes or () for part in word.split(",")]
    sizes = [word for word in words if word.partition("=")[0] in SIZES]
    knobs = [word for word in words if word not in sizes]
    return knobs, Namespace(**vars(args) | {"sizes": sizes or None})


def parse_knobs(assignments: Sequence[str], policy: PolicyDecl) -> dict[str, KnobValue]:
    """`knob=value` as the declared type. UserError naming knob, found and allowed."""
    knobs: dict[str, KnobValue] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {brief(assignment)}: expected KNOB=VALUE")
        declared = policy.knob(name)
        if declared is None:
            raise unknown(f"knob of policy {policy.name}", name, (k.name for k in policy.knobs))
        knobs[name] = _value(declared, text)
    return knobs


def _value(knob: KnobDecl, text: str) -> KnobValue:
    try:
        if knob.type == "integer":
            value = options.integer(text)
            if abs(value) > LARGEST:
                raise UserError(
                    f"--set {knob.name}: found {text}; must be between {knob.min:g} and "
                    f"{knob.max:g}"
                )
            return value
        if knob.type == "real":
            return options.number(text)
        if knob.type == "boolean":
            return {"true": True, "false": False}[text.lower()]
    except (ArgumentTypeError, KeyError) as error:
        kinds = {"integer": "an integer", "real": "a number", "boolean": "true or false"}
        raise UserError(
            f"--set {knob.name}: found '{brief(text)}'; must be {kinds[knob.type]}"
        ) from error
    return text


def _object(
    trial: Trial,
    result: TrialResult,
    recorded: BestConfiguration | None,
    found: Replay | None,
) -> dict[str, Any]:
    reproduced = found.same if found else None
    same = recorded is not None and reproduced is not None
    return {
        **trial.scenario.plain(),
        "knobs": trial.knobs,
        "objective_name": trial.scenario.objective,
        "recorded_objective": recorded.objective.value if recorded and same else None,
        "reproduced": reproduced,
        "verdict": found.text if found else None,
        **result.model_dump(exclude={"study", "number", "error"}, mode="json"),
        **(as_object(result.error, 1) if result.error else {}),
    }


def _show(trial: Trial, result: TrialResult) -> None:
    scenario = trial.scenario
    unit = OBJECTIVES[scenario.objective].unit
    print(
        f"{trial.workload} ({scenario.input}) under {scenario.policy} on {trial.machine.name}, "
        f"{scenario.conditions()}"
    )
    print(f"{scenario.objective}: {result.objective:,.6g} {unit} (in {result.seconds:.2f} s)\n")
    if result.breakdown:
        total = sum(result.breakdown.values())
        table(
            ("where the time goes", ">seconds", ">share"),
            [
                (name, f"{value:.3f}", percent(value / total) if total else "-")
                for name, value in sorted(result.breakdown.items(), key=lambda part: -part[1])
            ],
        )
        print()
    if result.latency:
        table(
            ("latency, ns", ">sampled", ">mean", ">p50", ">p90", ">p99", ">p999"),
            [
                (
                    kind,
                    f"{latency['operations']:g}",
                    *(f"{latency[p]:,.1f}" for p in ("mean", "p50", "p90", "p99", "p999")),
                )
                for kind, latency in result.latency.items()
            ],
        )
        print()
    table(
        ("metric", ">value"),
        [(name, f"{value:,.6g}") for name, value in sorted(result.metrics.items())],
    )
    for name in dict.fromkeys(row["table"] for row in result.rows):
        print(f"\n{name}")
        _show_rows([row["cells"] for row in result.rows if row["table"] == name])


def _show_rows(rows: list[dict[str, Any]]) -> None:
    """A policy's own table. Texts come first."""
    columns = sorted(rows[0], key=lambda name: (not isinstance(rows[0][name], str), name))
    table(
        [name if isinstance(rows[0][name], str) else f">{name}" for name in columns],
        [
            [
                value if isinstance(value := row.get(name, ""), str) else f"{value:,.6g}"
                for name in columns
            ]
            for row in rows
        ],
    )


def _write_series(path: Path, series: dict[str, list[float]]) -> None:
    names = sorted(series, key=lambda name: (name != "second", name))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(zip(*(series[name] for name in names), strict=True))
    try:
        write_atomically(path, text.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
