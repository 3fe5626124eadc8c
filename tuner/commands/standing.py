# SPDX-License-Identifier: MIT
"""Whether a best.yaml still pays: what `tune check` and `tune gate` share, and the check."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.commands import best as best_command
from tuner.commands import compare
from tuner.compare import transfer
from tuner.declarations import PolicyDecl
from tuner.errors import UserError, as_object
from tuner.experiment import standing
from tuner.experiment.standing import Outcome, Plan, Standing
from tuner.report.drift import Change, Drift, drift
from tuner.run import cache, limits, settings
from tuner.run.settings import Setting
from tuner.scenario import flag
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.study.contender import Kind
from tuner.terminal import print_json, say, table
from tuner.text import change, exact, faster, page_size, percent, quantity, shell, si

NO_LONGER = 3
"""Exit code: the configuration no longer pays."""
NONE = "none"


def check(args: Namespace, path: Path) -> int:
    """Exit code 0 if the configuration still pays, 3 if not, 1 if that could not be measured."""
    if args.repair:
        raise UserError("--repair: applies to a study, a stream or a store, not to a best.yaml")
    if args.workers is None:
        args.workers = len(os.sched_getaffinity(0))
        limits.check(args.workers, cluster=args.ray_address is not None)
    recorded = best_file.read(path)
    own = recorded.verdict and recorded.verdict.best_untuned
    plan = planned(args, path, recorded, default=[own] if own else [])
    found = measured(plan, args, args.tolerance)
    moved = _drift(plan, args.tolerance)
    advice = _advice(plan, found, moved, Path(args.out), args.tolerance)
    if args.json:
        print_json(content(plan, path, found) | {"drift": moved.model_dump()} | advice)
    else:
        show(plan, found)
        _tell_drift(moved, found)
        for line in _advised(found, advice):
            print(line)
        if found.pays:
            _tell_next(args, path)
    if found.outcome is Outcome.nothing:
        return 1
    return 0 if found.pays else NO_LONGER


def planned(
    args: Namespace,
    path: Path,
    recorded: BestConfiguration,
    *,
    default: Sequence[str],
    again: bool = False,
) -> Plan:
    """`default`: the other policies that it is compared with, if --against does not say."""
    plan = standing.plan(
        path,
        recorded,
        workload=_workload(args.workload),
        given=settings.given(args),
        rivals=_rivals(args.against, default),
        deadline=args.deadline,
        again=again,
    )
    if (sampling := plan.setting.sampling) and sampling.missing:
        say(f"tune: warning: {plan.setting.workload.name} was {sampling.describe()}")
    return plan


def _workload(given: str | None) -> str | None:
    """Of a recording the YAML file that `tune record` wrote beside it."""
    if given is None or not given.endswith(".tts"):
        return given
    document = Path(given).with_suffix(".yaml")
    if document.is_file():
        return str(document)
    raise UserError(f"--workload {given}: no {document}, which a recording has beside it")


def _rivals(words: str | None, default: Sequence[str]) -> list[PolicyDecl]:
    if words is None:
        return [engine.policies()[name] for name in default if name in engine.policies()]
    return [] if words == NONE else compare.policies(words)


def measured(plan: Plan, args: Namespace, tolerance: float) -> Standing:
    """Runs what is missing."""
    for what in ("" if len(plan.rivals) < 2 else " of other policies", ""):
        compare.run_missing(plan, args, what)
    cache.prune(engine.results_id())
    return standing.judge(plan, tolerance)


# --- What is shown --------------------------------------------------------------------------------


def content(plan: Plan, path: Path, found: Standing) -> dict[str, Any]:
    """For scripts."""
    told = {"transfer": _transfer(plan, found)}
    plain = found.model_dump(mode="json", exclude={"replay"})
    failed = found.outcome is Outcome.nothing
    error = as_object("\n".join([found.headline, *found.errors.values()]), 1) if failed else {}
    return {"configuration": str(path.absolute()), "pays": found.pays, **plain, **told, **error}


def _transfer(plan: Plan, found: Standing) -> str | None:
    """What such differences have cost others."""
    return transfer.sentence(plan.setting, plan.recorded, "") if found.elsewhere else None


def show(plan: Plan, found: Standing) -> None:
    """The runs and what they say; on standard error what failed, and what is not as it was."""
    if found.elsewhere:
        say(f"tune: note: it was tuned for {', '.join(found.elsewhere)}. {_transfer(plan, found)}")
    verdict, scenario = found.verdict, found.scenario
    what = scenario.show("policy", "workload", "input", "machine", "objective")
    print(f"{what}, {scenario.conditions()}\n")
    rows = [
        (
            "the configuration" if each.kind is Kind.tuned else each.name,
            page_size(each.page_bytes),
            "-" if each.mean is None else quantity(each.mean, standing.unit(verdict.objective)),
            str(sum(value is not None for value in each.values)),
        )
        for each in verdict.contenders
    ]
    table(("held-out seeds", "pages", f">{verdict.objective}", ">runs"), rows)
    for name, error in found.errors.items():
        say(f"tune: error: {name}: {error}")
    print(f"\n{found.headline}")
    study = found.recorded
    if study is None or study.gain is None:
        print("its study: no gain over the defaults is recorded")
    else:
        words = faster(study.gain.gain, study.gain.half_width, study.objective)
        print(f"its study: {words} than the defaults of {found.scenario.policy}")
    if not any(c.kind is Kind.untuned for c in verdict.contenders[3:]):
        print("other policies were not run: --against all compares them")


def _tell_drift(moved: Drift, found: Standing) -> None:
    print()
    if moved.unknown:
        print(f"the study's workload: not known, since {moved.unknown}")
    elif moved.same:
        print("the workload's accesses are those of the study")
    elif moved.changed:
        rows = [(c.what, _figure(c, c.then), _figure(c, c.now), _moved(c)) for c in moved.changed]
        table(("what has changed", ">in the study", ">today", ">change"), rows)
    else:
        print("the workload's accesses are others than the study's, but no figure has changed much")


def _figure(one: Change, value: float) -> str:
    if one.unit == "share":
        return percent(value)
    return f"{value:.4g} {one.unit}" if one.unit else si(value)


def _moved(one: Change) -> str:
    if one.change is None:
        return "-"
    return f"{100 * one.change:+.1f} points" if one.unit == "share" else change(one.change)


def _tell_next(args: Namespace, path: Path) -> None:
    """On standard error, that cron need not send it."""
    words = ["--config", str(path)]
    if args.workload is not None:
        words += ["--workload", args.workload]
    words += [word for size in args.sizes or () for word in ("--set", size)]
    fields = {name: value for name, value in settings.given(args).items() if name != "sizes"}
    conditions = [word for name, value in fields.items() for word in (flag(name), exact(value))]
    gate = ["tune", "gate", *words, *conditions, "--min-gain", "2%"]
    say(f"to fail where it gains too little: {shell(gate)}")
    say(f"how little fast memory is enough: {shell(['tune', 'size', *words])}")


# --- What to do -----------------------------------------------------------------------------------


def _drift(plan: Plan, tolerance: float) -> Drift:
    if plan.then is None:
        return Drift(
            unknown="no study.json is beside the file, and its documents have changed since"
        )
    return drift(plan.then, plan.setting, tolerance)


def _advice(
    plan: Plan, found: Standing, moved: Drift, out: Path, tolerance: float
) -> dict[str, Any]:
    """`lost`: whether the gain has fallen. `retune`: the command that searches again, where that is
    worth it, and `known`: the best.yaml of such a search, if there is one, with its gain."""
    lost = standing.lost(found, tolerance)
    advice: dict[str, Any] = {"lost": lost, "retune": None, "known": None}
    if found.outcome is Outcome.nothing or (found.pays and not lost):
        return advice
    setting = plan.setting
    if found.outcome is Outcome.another:
        setting = setting.under(engine.policy(found.verdict.best_untuned or setting.policy.name))
    elif moved.same and not found.elsewhere:
        return advice  # the same search would find the same
    words = standing.retune(setting.scenario)
    if (out / setting.study_name).exists():  # of an earlier content, or with another engine
        words += ["--name", f"{setting.study_name}-again"]
    return advice | {"retune": shell(words), "known": _known(plan, setting, out)}


def _known(plan: Plan, now: Setting, out: Path) -> dict[str, Any] | None:
    """The largest gain that a study of today's conditions has measured with this engine."""
    if not out.is_dir():
        return None
    gains = [
        {"path": str(path), "gain": gain.gain, "half_width": gain.half_width}
        for path, each in best_command.find(out)
        if each.scenario.comparable() == now.scenario.comparable()
        and each.scenario.policy == now.policy.name
        and each.provenance.engine_build == now.engine_build
        and each.provenance.fingerprints.workload == now.workload.fingerprint()
        and each.provenance.fingerprints.machine == now.machine.fingerprint()
        and dict(each.knobs) != dict(plan.recorded.knobs)
        and each.verdict
        and (gain := each.verdict.gain)
    ]
    return max(gains, key=lambda each: float(each["gain"] or 0), default=None)


def _advised(found: Standing, advice: dict[str, Any]) -> list[str]:
    lines = ["the gain over the defaults has fallen since the study"] if advice["lost"] else []
    if advice["retune"] is None:
        if found.outcome in (Outcome.gone, Outcome.off):
            lines.append("nothing has changed since the study: the same search would find the same")
        return lines
    lines.append(f"tune again: {advice['retune']}")
    if known := advice["known"]:
        words = faster(known["gain"], known["half_width"], found.verdict.objective)
        lines.append(f"known from a run: {known['path']} is {words} than the defaults")
    else:
        lines.append("what that would gain is not known: no study of these conditions has run")
    return lines
