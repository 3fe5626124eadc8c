# SPDX-License-Identifier: MIT
"""`tune smoke`: does everything that is declared run at all?

Every policy on every workload's smoke input: the default configuration, and two random ones from
the policy's space if it has knobs. Any error, of a document, a kernel or a trial, fails the
command. Making a stream takes longer than all trials on it together, so that is the workers' task
too; a stream's trials follow as soon as it is made.
"""

from __future__ import annotations

import math
import random
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from tuner import engine
from tuner.declarations import KnobDecl, KnobValue, PolicyDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.workload import WorkloadSpec
from tuner.errors import UserError, unknown
from tuner.run import runner, settings, streams
from tuner.run.trial import Status, Stream, Trial, TrialResult
from tuner.terminal import print_json, progress, say, table

RANDOM_TRIALS = 2
DEADLINE = 60.0  # seconds per trial; smoke inputs take a fraction of one


def run(args: Namespace) -> int:
    """Exit code 0 when everything ran."""
    started = time.monotonic()
    errors: list[str] = []
    trials = _trials(args, errors)
    done = _run(trials, args.workers, errors)
    for trial, result in done:
        if result.status is not Status.success:
            errors.append(
                f"{trial.scenario.policy} on {trial.workload}: {result.status}: {result.error}\n"
                f"  again: {_command(trial)}"
            )
    seconds = time.monotonic() - started
    if args.json:
        print_json(
            {
                "trials": len(done),
                "failed": sum(result.status is not Status.success for _, result in done),
                "errors": errors,
                "seconds": seconds,
            }
        )
    else:
        _show(done)
        for message in errors:
            say(f"tune: error: {message}")
        print(f"\n{len(done)} trials in {seconds:.1f} s, {len(errors)} errors")
    return 1 if errors or not done else 0


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
    """All trials. Documents that are wrong are left out and reported in `errors`."""
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


def _run(trials: list[Trial], workers: int, errors: list[str]) -> list[tuple[Trial, TrialResult]]:
    """Every trial whose stream could be made, in order, with its result; those of a worker that
    died are `crashed`. A stream that cannot be made is reported in `errors`."""
    by_stream: dict[str, list[int]] = {}
    for i, trial in enumerate(trials):
        by_stream.setdefault(trial.stream.key, []).append(i)
    results: dict[int, TrialResult] = {}
    left = len(by_stream) + len(trials)
    with (
        progress(f"{len(by_stream)} streams, {len(trials)} trials") as update,
        ProcessPoolExecutor(min(workers, left or 1), get_context("spawn")) as pool,
    ):
        making: dict[Future[Any], Stream] = {
            pool.submit(_make, stream): stream
            for stream in {trial.stream.key: trial.stream for trial in trials}.values()
        }
        running: dict[Future[Any], int] = {}
        try:
            while making or running:
                for future in wait([*making, *running], return_when=FIRST_COMPLETED).done:
                    left -= 1
                    if future in running:
                        i = running.pop(future)
                        results[i] = _result(future, trials[i])
                        continue
                    stream = making.pop(future)
                    numbers = by_stream[stream.key]
                    try:
                        if error := future.result():  # the stream's trials would only repeat it
                            errors.append(error)
                            left -= len(numbers)
                            continue
                        running |= {pool.submit(runner.run, trials[i]): i for i in numbers}
                    except BrokenProcessPool:
                        results |= {i: _crashed(trials[i]) for i in numbers}
                        left -= len(numbers)
                update(1 - left / (len(by_stream) + len(trials)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [(trials[i], results[i]) for i in sorted(results)]


def _make(stream: Stream) -> str | None:
    """Makes a stream; returns what is wrong with it."""
    try:
        streams.ensure(stream)
    except UserError as error:
        return str(error)
    except Exception as error:  # a kernel's defect must not hide the other workloads
        return f"workload {stream.workload}, input {stream.input}: {type(error).__name__}: {error}"
    return None


def _result(future: Future[TrialResult], trial: Trial) -> TrialResult:
    try:
        return future.result()
    except BrokenProcessPool:
        return _crashed(trial)


def _crashed(trial: Trial) -> TrialResult:
    return TrialResult(
        study=trial.study,
        number=trial.number,
        status=Status.crashed,
        error="a worker process died; --workers 1 with --policy and --workload shows which",
    )


def _command(trial: Trial) -> str:
    """The command that runs the trial alone."""
    defaults = {knob.name: knob.default for knob in engine.policy(trial.scenario.policy).knobs}
    changed = (
        f" --set {name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in trial.knobs.items()
        if value != defaults[name]
    )
    scenario = trial.scenario
    return (
        f"tune sim --workload {scenario.workload} --input {scenario.input} "
        f"--policy {scenario.policy}" + "".join(changed)
    )


def _show(done: list[tuple[Trial, TrialResult]]) -> None:
    """Workloads down, policies across: how many trials ran, `2 of 3` where one failed."""
    pairs: dict[tuple[str, str], list[TrialResult]] = {}
    for trial, result in done:
        pairs.setdefault((trial.workload, trial.scenario.policy), []).append(result)
    policies = list(dict.fromkeys(trial.scenario.policy for trial, _ in done))
    workloads = list(dict.fromkeys(trial.workload for trial, _ in done))

    def cell(results: list[TrialResult]) -> str:
        good = sum(result.status is Status.success for result in results)
        return str(good) if good == len(results) else f"{good} of {len(results)}"

    table(
        ("trials that ran", *(f">{policy}" for policy in policies), ">seconds"),
        [
            (
                workload,
                *(cell(pairs.get((workload, policy), [])) for policy in policies),
                f"{sum(r.seconds for p in policies for r in pairs.get((workload, p), [])):.2f}",
            )
            for workload in workloads
        ],
    )
