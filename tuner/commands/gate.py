# SPDX-License-Identifier: MIT
"""`tune gate`: fails where a best.yaml gains too little, for continuous integration.

No time is checked: neither best.yaml nor a study's log has the processor time of a trial, only wall
time, which another machine or a busy one need not keep. The gain is virtual time, and comes out the
same everywhere.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner.commands import standing
from tuner.errors import as_object
from tuner.experiment.standing import Standing
from tuner.files import write_file
from tuner.report import junit
from tuner.report.junit import Case
from tuner.study import best as best_file
from tuner.study.contender import Difference
from tuner.study.verdict import Advice
from tuner.terminal import print_json, say, table
from tuner.text import change, faster

RESULTS = {True: "ok", False: "FAILED", None: "skipped"}


def run(args: Namespace) -> int:
    """Exit code 1 if one of the checks fails."""
    path = Path(args.config)
    recorded = best_file.read(path)
    plan = standing.planned(args, path, recorded, default=[], again=True)
    found = standing.measured(plan, args, tolerance=0.0)
    checks = cases(found, args.min_gain)
    if args.junit:
        suite = f"tune gate {found.scenario.show('workload', 'policy')}"
        write_file(Path(args.junit), junit.render(suite, checks))
    failed = [f"{case.name}: {case.text}" for case in checks if case.passed is False]
    if args.json:
        plain = [{"name": c.name, "passed": c.passed, "text": c.text} for c in checks]
        error = as_object("\n".join(failed), 1) if failed else {}
        print_json(standing.content(plan, path, found) | {"checks": plain} | error)
    else:
        standing.show(plan, found)
        print()
        table(("check", "result", "found"), [(c.name, RESULTS[c.passed], c.text) for c in checks])
    if args.junit:
        say(f"wrote {args.junit}")
    return 1 if failed else 0


def cases(found: Standing, least: float) -> list[Case]:
    """What is checked. `least`: the relative gain that the configuration must have."""
    verdict, replay = found.verdict, found.replay
    assert replay is not None  # the plan asked for it
    objective = verdict.objective
    wanted = f"; at least {change(least)} is asked for"

    def gains(name: str, gain: Difference | None) -> Case:
        if gain is None:
            return Case(name, False, f"not measured{wanted}")
        words = faster(gain.gain, gain.half_width, objective)
        return Case(name, gain.gain >= least, f"{words}{wanted}")

    reproduced = None if replay.same is None or not (replay.same or replay.defect) else replay.same
    headline = found.headline
    before = found.recorded
    if before and before.advice is not Advice.use_best:
        headline += f" (its study: {before.headline})"
    return [
        Case("configuration is reproduced", reproduced, replay.text),
        gains(f"gain over the defaults of {found.scenario.policy}", verdict.gain),
        gains("gain over no tiering", verdict.over_first_touch),
        Case("verdict", found.pays, headline),
    ]
