"""`tune smoke`: does everything that is declared run at all?

Every policy on every workload's smoke input: the default configuration and two random ones from the
policy's space. Any error, of a document or of a trial, fails the command.
"""

from __future__ import annotations

import math
import random
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from tuner import catalog, engine, runner, settings, streams
from tuner.catalog import Kind
from tuner.errors import UserError, unknown
from tuner.models import KnobDecl, KnobValue, PolicyDecl, Status, Trial, TrialResult, WorkloadSpec
from tuner.terminal import print_json, progress, say, table

RANDOM_TRIALS = 2
DEADLINE = 60.0  # seconds per trial; smoke inputs take a fraction of one


def smoke(args: Namespace) -> int:
    """Exit code 0 when everything ran."""
    started = time.monotonic()
    errors: list[str] = []
    trials = _trials(args, errors)
    for stream in {trial.stream.key: trial.stream for trial in trials}.values():
        try:
            streams.ensure(stream)
        except UserError as error:  # the stream's trials would only repeat it
            errors.append(str(error))
            trials = [trial for trial in trials if trial.stream.key != stream.key]
    results = _run(trials, args.workers)
    for trial, result in zip(trials, results, strict=True):
        if result.status is not Status.success:
            errors.append(
                f"{trial.policy} on {trial.workload}: {result.status}: {result.error}\n"
                f"  again: {_command(trial)}"
            )
    seconds = time.monotonic() - started
    if args.json:
        print_json(
            {
                "trials": len(trials),
                "failed": sum(result.status is not Status.success for result in results),
                "errors": errors,
                "seconds": seconds,
            }
        )
    else:
        _show(trials, results)
        for message in errors:
            say(f"tune: error: {message}")
        print(f"\n{len(trials)} trials in {seconds:.1f} s, {len(errors)} errors")
    return 1 if errors or not trials else 0


def random_configuration(
    knobs: list[KnobDecl], policy: PolicyDecl, rng: random.Random
) -> dict[str, KnobValue]:
    """Uniform in each range, on its scale. Knobs whose condition is off are left at the default."""
    drawn: dict[str, KnobValue] = {knob.name: _draw(knob, rng) for knob in knobs}
    values = {knob.name: knob.default for knob in policy.knobs} | drawn

    def active(knob: KnobDecl) -> bool:
        return knob.condition is None or values[knob.condition.parent] in knob.condition.values

    return {knob.name: drawn[knob.name] for knob in knobs if active(knob)}


def _draw(knob: KnobDecl, rng: random.Random) -> KnobValue:
    if knob.type == "boolean":
        return rng.random() < 0.5
    if knob.type == "choice":
        return rng.choice(knob.choices)
    assert knob.min is not None and knob.max is not None
    if knob.log:
        value = math.exp(rng.uniform(math.log(knob.min), math.log(knob.max)))
    else:
        value = rng.uniform(knob.min, knob.max)
    value = min(max(value, knob.min), knob.max)
    return round(value) if knob.type == "integer" else value


def _trials(args: Namespace, errors: list[str]) -> list[Trial]:
    """All trials; documents that are wrong are told in `errors` and left out."""
    policies = [engine.policy(name) for name in args.policy or engine.policies()]
    known = catalog.names(Kind.workload)
    workloads: list[WorkloadSpec] = []
    for name in args.workload or known:
        if name not in known:
            raise unknown("workload", name, known)
        try:
            workloads.append(catalog.workload(name).spec)
        except UserError as error:
            errors.append(str(error))
    trials: list[Trial] = []
    for policy in policies:
        try:
            space = catalog.space(policy.name).spec if policy.knobs else None
        except UserError as error:
            errors.append(str(error))
            continue
        knobs = catalog.tuned_knobs(space, policy) if space else []
        for workload in workloads:
            try:
                trials += _pair(workload, policy, knobs, args.seed)
            except UserError as error:
                errors.append(str(error))
    return trials


def _pair(
    workload: WorkloadSpec, policy: PolicyDecl, knobs: list[KnobDecl], seed: int
) -> Iterator[Trial]:
    setting = settings.resolve(
        workload.name,
        policy=policy,
        study="smoke",
        input=workload.smoke_input,
        deadline_seconds=DEADLINE,
    )
    yield setting.trial(0, {})
    rng = random.Random(f"{seed}/{policy.name}/{workload.name}")
    for number in range(1, RANDOM_TRIALS + 1) if knobs else ():
        yield setting.trial(number, random_configuration(knobs, policy, rng))


def _run(trials: list[Trial], workers: int) -> list[TrialResult]:
    """Results in the order of the trials; those of a worker that died are `crashed`."""
    results: list[TrialResult | None] = [None] * len(trials)
    with (
        progress("smoke trials") as tell,
        ProcessPoolExecutor(min(workers, len(trials) or 1), get_context("spawn")) as pool,
    ):
        running = {pool.submit(runner.run, trial): i for i, trial in enumerate(trials)}
        try:
            for done, future in enumerate(as_completed(running), 1):
                i = running[future]
                try:
                    results[i] = future.result()
                except BrokenProcessPool:
                    results[i] = TrialResult(
                        study=trials[i].study,
                        number=trials[i].number,
                        status=Status.crashed,
                        error="a worker process died; --workers 1 with --policy and --workload "
                        "tells which trial kills it",
                    )
                tell(done / len(trials))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [result for result in results if result is not None]


def _command(trial: Trial) -> str:
    """The command that runs the trial alone."""
    defaults = {knob.name: knob.default for knob in engine.policy(trial.policy).knobs}
    changed = (
        f" --set {name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in trial.knobs.items()
        if value != defaults[name]
    )
    return (
        f"tune sim --workload {trial.workload} --input {trial.input} --policy {trial.policy}"
        + "".join(changed)
    )


def _show(trials: list[Trial], results: list[TrialResult]) -> None:
    pairs: dict[tuple[str, str], list[TrialResult]] = {}
    for trial, result in zip(trials, results, strict=True):
        pairs.setdefault((trial.policy, trial.workload), []).append(result)
    table(
        ("policy", "workload", ">trials", ">failed", ">seconds"),
        [
            (
                policy,
                workload,
                str(len(of_pair)),
                str(sum(result.status is not Status.success for result in of_pair)),
                f"{sum(result.seconds for result in of_pair):.2f}",
            )
            for (policy, workload), of_pair in pairs.items()
        ],
    )
