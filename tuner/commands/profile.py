# SPDX-License-Identifier: MIT
"""`tune profile`: runs a workload on fast memory alone and writes which of its objects are worth
it, for a policy that goes by a placement."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine
from tuner.commands.sim import divided, parse_knobs
from tuner.documents import placement
from tuner.documents.placement import PlacedObject, PlacementSpec
from tuner.errors import UserError, as_object
from tuner.files import write_files
from tuner.run import runner, settings, streams
from tuner.run.trial import Status, TrialResult
from tuner.terminal import print_json, progress, say, table
from tuner.text import percent, size


def run(args: Namespace) -> int:
    output = Path(args.output)
    if output.exists() and not args.force:
        raise UserError(f"{output} exists already; --force replaces it")
    policy = engine.policy(args.policy or _profiled()[0])
    if not policy.profiled:
        raise UserError(
            f"--policy: found '{policy.name}'; must go by a placement: {' or '.join(_profiled())}"
        )
    words, args = divided(args)
    setting = settings.resolve(
        args.workload_name, policy=policy, study="profile", **settings.given(args)
    )
    if resized := setting.resized():
        say(f"tune: {resized}")
    when = policy.profiled_when
    knobs = ({when.parent: when.values[0]} if when else {}) | parse_knobs(words, policy)
    trial = setting.trial(0, engine.resolve(policy.name, knobs))
    streams.prepare(trial.stream)
    with progress(f"profiling {trial.workload} on fast memory") as update:
        result, objects = runner.profile(trial, progress=update)
    if result.status is not Status.success:
        message = f"the profiling run ended: {result.status}: {result.error}"
        if args.json:
            print_json(as_object(message, 1))
        say(f"tune: error: {message}")
        return 1
    if not objects:
        raise UserError(f"{trial.workload} ({trial.scenario.input}) maps no object")
    scenario = setting.scenario
    spec = PlacementSpec(
        workload=setting.workload.name,
        policy=policy.name,
        objects=objects,
        profiled={
            "input": scenario.input,
            "machine": setting.machine.name,
            "threads": scenario.threads,
            "scale": scenario.scale,
            "stream_seed": scenario.stream_seed,
            "seed": scenario.seed,
            "stream": trial.stream.key,
            "engine_build": trial.engine_build,
            **trial.knobs,
        },
    )
    write_files({output: placement.render(spec)})
    if args.json:
        print_json({"placement": str(output), "rows": result.rows, **spec.model_dump()})
        return 0
    _show(objects, result)
    print(
        f"\nwritten to {output}: tune sim -w {args.workload_name} --policy {policy.name} "
        f"{f'--set {when} ' if when else ''}--placement {output}"
    )
    return 0


def _profiled() -> list[str]:
    """Those first that always are."""
    found = [policy for policy in engine.policies().values() if policy.profiled]
    return [policy.name for policy in sorted(found, key=lambda p: p.profiled_when is not None)]


def _show(objects: list[PlacedObject], result: TrialResult) -> None:
    seen = {row["cells"]["site"]: row["cells"] for row in result.rows if row["table"] == "objects"}
    most = max(placed.score for placed in objects) or 1
    everything = sum(float(cells["samples"]) for cells in seen.values()) or 1
    table(
        (">rank", "object", ">size", ">accesses", ">score/byte", ">slot", ">from s", ">to s"),
        [
            (
                str(rank),
                placed.site,
                size(placed.bytes),
                percent(float(seen[placed.site]["samples"]) / everything),
                f"{placed.score / most:.4g}",
                str(placed.slot),
                f"{float(seen[placed.site]['first_s']):.1f}",
                f"{float(seen[placed.site]['last_s']):.1f}",
            )
            for rank, placed in enumerate(objects, 1)
        ],
    )
