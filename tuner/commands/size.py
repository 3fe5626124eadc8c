# SPDX-License-Identifier: MIT
"""`tune size`: how much fast memory a workload needs for a bound on its slowdown.

Its runs are kept as those of `tune compare`, so that the same command goes on where an interrupted
one stopped.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.commands import best as best_command
from tuner.commands import compare, isolated
from tuner.declarations import PolicyDecl
from tuner.emulate.trials import runner_in
from tuner.errors import UserError
from tuner.experiment.jobs import Job, Result, run_on
from tuner.files import write_files
from tuner.report.pictures import png
from tuner.run import cache, pools, settings, streams
from tuner.run.pool import Pool
from tuner.run.trial import Status, Trial
from tuner.scenario import EMULATED, Scenario
from tuner.size import report
from tuner.size.measure import Found, measure
from tuner.size.plan import Plan, Prices, conditions, plan
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.terminal import progress, resumable, say, table
from tuner.text import plural, shell

NONE_MEETS = 3
"""Exit code: no configuration meets the bound with less than all of the memory fast."""

Known = Sequence[tuple[Path, BestConfiguration]]


def run(args: Namespace) -> int:
    """Exit code 0 when there is an answer, 3 when no size meets the bound, 1 when a run crashed or
    nothing could be judged."""
    planned = _planned(args)
    if resized := planned.configurations[0].setting.resized():
        say(f"tune: {resized}")
    with resumable(lambda: compare.ALL_KEPT):
        found = _measured(planned, args)
        cache.prune(engine.results_id())
        written = _write(found, Path(args.out) / f"size-{planned.name}")
    bad = [
        f"{each.configuration.row.name}: {each.failure}"
        for each in found.sized
        if each.status in (Status.crashed, Status.timeout)
    ]
    compare.tell(args, report.content(found), lambda: _show(found), written, bad)
    if bad or all(each.failure for each in found.sized):
        return 1
    return 0 if any(each.below_whole for each in found.sized) else NONE_MEETS


# --- What is asked --------------------------------------------------------------------------------


def _planned(args: Namespace) -> Plan:
    if (args.price_fast is None) != (args.price_slow is None):
        raise UserError("--price-fast and --price-slow: found one of them; costs need both")
    prices = None if args.price_fast is None else Prices(args.price_fast, args.price_slow)
    recorded = best_file.read(Path(args.config)) if args.config else None
    given = settings.given(args)
    workload = args.workload
    if recorded is not None:
        workload = workload or recorded.scenario.workload
        given = settings.other_size(_conditions(recorded, args.config, workload), given)
    if workload is None:
        raise UserError("what to run? give --workload, --config, or both")
    names = args.policy or (recorded.scenario.policy if recorded else Scenario.policy)
    policies = compare.policies(names)
    tuned = _known(args, workload, policies, given)
    if recorded is not None:
        if recorded.scenario.policy not in [policy.name for policy in policies]:
            raise UserError(
                f"--config {args.config}: scenario.policy: found {recorded.scenario.policy}; must "
                f"be one of --policy {names}"
            )
        tuned[recorded.scenario.policy] = args.config, recorded
        for change in best_file.changes_since(recorded):
            say(f"tune: note: {args.config}: {change}")
    return plan(
        workload,
        policies,
        tuned,
        bound=args.max_slowdown,
        seeds=args.seeds,
        deadline=args.deadline,
        name=args.name,
        prices=prices,
        given=given,
    )


def _conditions(recorded: BestConfiguration, file: str, workload: str) -> dict[str, Any]:
    """Those of a configuration's study. Of another workload only the knobs count."""
    scenario = recorded.scenario
    if scenario.substrate == EMULATED:
        raise UserError(
            f"--config {file}: scenario.substrate: found {EMULATED}; must be simulated, which all "
            "sizes are"
        )
    if workload != scenario.workload:
        say(
            f"tune: warning: {file} was tuned for {scenario.show('workload')}; its gain there says "
            "nothing about here"
        )
        return {}
    setting = settings.resolve(
        workload,
        policy=engine.policy(scenario.policy),
        input=scenario.input,
        sizes=scenario.sizes,
    )
    return conditions(recorded, setting)


def _known(
    args: Namespace, workload: str, policies: Sequence[PolicyDecl], given: Mapping[str, Any]
) -> dict[str, tuple[str, BestConfiguration]]:
    """The tuned configurations that `tune best` would print, by policy."""
    out = Path(args.out)
    if args.config or not out.is_dir():
        return {}
    found = best_command.find(out)
    tuned = {}
    for policy in policies:
        setting = settings.resolve(workload, policy=policy, **given)
        known = best_command.of_workload(found, setting, policy.name)
        best = best_command.best_of(known, setting)
        if best is not None:
            path, configuration = best
            tuned[policy.name] = str(path), configuration
            for change in best_file.changes_since(configuration):
                say(f"tune: note: {path}: {change}")
        elif known:
            say(
                f"tune: note: {policy.name} is not sized tuned: it was tuned under other "
                f"conditions, {_others(known)}. "
                f"`{shell(['tune', 'size', '--config', str(known[0][0])])}` sizes it under those"
            )
    return tuned


def _others(known: Known) -> str:
    return "; ".join(sorted({f"{best.scenario.conditions()} ({path})" for path, best in known}))


# --- Runs -----------------------------------------------------------------------------------------


def _measured(planned: Plan, args: Namespace) -> Found:
    """The pool is opened for the first run that is missing."""
    runner = runner_in(isolated.asked(args))
    everything = [each.setting for each in planned.configurations]
    everything += [setting for pair in planned.references.values() for setting in pair]
    for stream in {s.stream().key: s.stream() for s in everything}.values():
        streams.prepare(stream)
    count = plural(len(planned.configurations), "configuration")
    with ExitStack() as ended, progress(f"sizing {count}") as update:
        opened: list[Pool] = []

        def do(trials: Sequence[Trial], done: Callable[[Job, Result], None]) -> None:
            if not opened:
                workers = pools.open_pool(
                    runner, workers=args.workers, ray_address=args.ray_address
                )
                opened.append(workers)
                ended.callback(workers.close)
            run_on(opened[0], trials, done)

        return measure(planned, do, update)


# --- What comes out -------------------------------------------------------------------------------


def _write(found: Found, folder: Path) -> list[Path]:
    from tuner.size.picture import draw

    return write_files(
        {
            folder / "size.csv": report.csv_text(found),
            folder / "size.json": report.json_text(found),
            folder / "size.png": png(draw(found)),
        }
    )


def _show(found: Found) -> None:
    print(report.headline(found))
    table(*report.answers(found))
    for each in report.curves(found):
        print()
        table(*each)
    print()
    for line in (*report.verdicts(found), *report.notes(found)):
        print(f"- {line}")
