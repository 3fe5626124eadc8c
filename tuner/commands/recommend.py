# SPDX-License-Identifier: MIT
"""`tune recommend`: what to use for a workload, from published studies and a few runs of it.

Runs are kept as those of `tune compare`, so that the same command goes on where an interrupted one
stopped.
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.apply import daemon, targets
from tuner.commands import compare
from tuner.documents import portfolio
from tuner.errors import as_object
from tuner.experiment import recommend
from tuner.experiment.checks import OFF
from tuner.experiment.recommend import Plan, Recommendation
from tuner.files import write_file
from tuner.objective import OBJECTIVES
from tuner.run import cache, settings
from tuner.scenario import defaults
from tuner.study import best as best_file
from tuner.study.contender import Kind
from tuner.terminal import print_json, say, table
from tuner.text import change, faster, page_size, percent, plural, quantity, shell

HUGE = 2 << 20


def run(args: Namespace) -> int:
    """Exit code 0 when there is an answer, also that nothing beats first-touch; 1 if nothing ran to
    its end."""
    policies = args.policy.split(",") if args.policy else []
    plan = recommend.plan(args.workload, policies, args.deadline, **settings.given(args))
    folder = Path(args.out) / f"recommend-{settings.checked_name(args.name or plan.name)}"
    if resized := plan.setting.resized():
        say(f"tune: {resized}")
    if (sampling := plan.setting.sampling) and sampling.missing:
        say(f"tune: warning: {plan.setting.workload.name} was {sampling.describe()}")
    compare.run_missing(plan, args, f" of {plural(len(plan.among), 'configuration')}")
    compare.run_missing(plan, args, " on held-out seeds")
    cache.prune(engine.results_id())
    found = recommend.judge(plan)
    written = _write(plan, found, folder)
    content = _content(plan, found, written)
    if args.json:
        print_json(content | (as_object(found.headline, 1) if found.failed else {}))
    else:
        _show(plan, found, written)
    return 1 if found.failed else 0


def _write(plan: Plan, found: Recommendation, folder: Path) -> Path | None:
    """best.yaml, and recommend.json with all that was found. Of advice without a configuration no
    file is left that an earlier one has written."""
    file = folder / best_file.FILE
    if found.configuration is None:
        file.unlink(missing_ok=True)
    else:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        best_file.write(recommend.configuration(plan, found, date), file)
    written = file if found.configuration is not None else None
    text = json.dumps(_content(plan, found, written), indent=2)
    write_file(folder / "recommend.json", text + "\n")
    return written


def _content(plan: Plan, found: Recommendation, file: Path | None) -> dict[str, Any]:
    known = portfolio.published()
    return {
        **found.model_dump(mode="json"),
        "file": None if file is None else str(file.absolute()),
        "run": shell(_study(plan, found, file)),
        "profile": shell(needed) if (needed := _profile(found)) else None,
        "source": known.source,
        "source_build": known.engine_build,
    }


def _study(plan: Plan, found: Recommendation, file: Path | None) -> list[str]:
    """The study that could find more, of the policy that is advised or came nearest to it. It
    begins with what is advised."""
    setting = plan.under(one) if (one := plan.best()) else plan.setting
    usual = defaults(setting.workload, setting.policy, setting.scenario.input)
    words = replace(setting.scenario, placement="").command_line(usual | {"policy": ""})
    start = file is not None and found.configuration and found.configuration.knobs
    return ["tune", "run", *words, *(["--from", str(file)] if start else [])]


def _profile(found: Recommendation) -> list[str] | None:
    """The command that has to run before what is advised can be used; None if there is none."""
    taken = found.configuration
    if taken is None:
        return None
    policy = engine.policy(taken.policy)
    if not policy.goes_by_placement(engine.resolve(policy.name, dict(taken.knobs))):
        return None
    scenario = found.scenario
    words = ["--policy", policy.name, "--input", scenario.input, "--machine", scenario.machine]
    return ["tune", "profile", scenario.workload, *words]


def _needs(found: Recommendation) -> list[str]:
    """What has to be there before what is advised can be used, and whether a server can run it."""
    lines = []
    if (profile := _profile(found)) is not None:
        lines = [
            f"needs      a profile of the workload, before it is used: {shell(profile)}",
            "           simulated runs make one by themselves, and the gain is with it",
        ]
    if found.configuration is not None:
        policy = engine.policy(found.configuration.policy)
        knobs = engine.resolve(policy.name, dict(found.configuration.knobs))
        if not targets.fitting(policy.name, knobs):
            why = daemon.fits(policy.name, knobs)
            lines.append(f"server     no target of `tune apply` runs it: {why}")
    return lines


# --- What is shown --------------------------------------------------------------------------------


def _show(plan: Plan, found: Recommendation, file: Path | None) -> None:
    scenario, verdict = found.scenario, found.verdict
    what = scenario.show("workload", "input", "machine", "objective")
    print(f"{what}, {scenario.conditions()}\n")
    shown = OBJECTIVES[verdict.objective].unit
    rows = [
        (
            each.configuration.name,
            "failed" if each.objective is None else quantity(each.objective, shown),
            "-" if each.gain is None else change(each.gain),
        )
        for each in found.tried
    ]
    rows += [
        (name, quantity(value, shown), "-" if name == OFF else _over(plan, found, value))
        for name, value in verdict.references.items()
    ]
    table(("tried", f">{verdict.objective}", ">over first-touch"), rows)
    _tell_failed(found)
    print(f"\n{found.headline}")
    if verdict.uncovered:
        print(f"{verdict.uncovered}")
    print(_measured(plan, found))
    for line in _more(plan, found, file):
        print(line)
    for line in _needs(found):
        print(line)
    if file is not None:
        print(f"file       {file}")
        words = ["tune", "sim", "--workload", scenario.workload, "--config", str(file)]
        print(f"replay     {shell(words)}")


def _tell_failed(found: Recommendation) -> None:
    """Each reason once."""
    by_reason: dict[str, list[str]] = {}
    for each in found.tried:
        if each.error:
            reason, *_ = each.error.splitlines()
            by_reason.setdefault(reason, []).append(each.configuration.name)
    for reason, names in by_reason.items():
        say(f"tune: note: {', '.join(names)}: {reason}")


def _over(plan: Plan, found: Recommendation, value: float) -> str:
    off = found.verdict.references.get(OFF)
    return "-" if off is None else change(OBJECTIVES[plan.objective].gain(value, off))


def _measured(plan: Plan, found: Recommendation) -> str:
    names = [c.name for c in found.verdict.contenders if c.kind is not Kind.off]
    return (
        f"measured {plural(found.runs, 'run')}, {found.seconds:.1f} s: "
        f"{plural(len(plan.among), 'configuration')} on seed {plan.setting.scenario.seed}, and "
        f"{' and '.join(names) or 'nothing'} on {len(found.verdict.seeds)} held-out seeds; "
        "± is about chance in sampling alone"
    )


def _more(plan: Plan, found: Recommendation, file: Path | None) -> list[str]:
    """What a study could add, and what was not looked at."""
    if found.failed:
        return []
    lines = []
    known, left = portfolio.published(), found.evidence
    if left is None:
        lines.append(f"a study    what it adds is not known: {'; '.join(found.unlike)}")
    else:
        lines += [
            f"a study    on {left.workloads} published workloads at {left.ratio}, with a portfolio "
            "that was chosen without them,",
            f"           {known.searches['trials']} trials of the advised policy found "
            f"{percent(left.search_median)} more in the median and {percent(left.search_tenth)} on "
            "one in ten;",
            f"           the best that is known was ahead by {percent(left.mean)} on average, by "
            f"{percent(left.worst)} at worst ({left.worst_is})",
        ]
        lines += (f"           but {reason}" for reason in found.unlike)
    objective = plan.objective
    if found.ceiling is not None:
        fast = faster(found.ceiling, None, objective)
        lines.append(f"           all memory fast would be {fast} than what is advised")
    advice = "is worth it" if found.study else "is hardly worth it"
    lines.append(f"           {advice}: {shell(_study(plan, found, file))}")
    if plan.setting.scenario.page_bytes != HUGE:
        lines.append(f"not tried  pages of {page_size(HUGE)} (--page-bytes {HUGE})")
    return lines
