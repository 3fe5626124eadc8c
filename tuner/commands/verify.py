# SPDX-License-Identifier: MIT
"""`tune verify`: measures on a real kernel what a simulated study recommends."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tuner.apply import targets
from tuner.arguments.options import LIVE_OPTIONS
from tuner.commands import repair
from tuner.declarations import PolicyDecl
from tuner.emulate import live
from tuner.emulate.trials import runner_in
from tuner.errors import UserError
from tuner.experiment import verify
from tuner.experiment.recall import remake
from tuner.experiment.verify import Plan
from tuner.files import write_files
from tuner.report.pictures import png
from tuner.report.store import default_store
from tuner.report.verification import draw
from tuner.run import pools
from tuner.run.isolation import Live
from tuner.scenario import LIVE
from tuner.study import best as best_file
from tuner.study import log
from tuner.study.best import BestConfiguration
from tuner.study.commit import commit_of
from tuner.study.events import Checked
from tuner.study.log import StudyData, folder_of, missing
from tuner.study.sessions import ANEW, Runs, sessions_of
from tuner.study.verdict import Verdict
from tuner.study.verified import BEST, COLUMNS, FILE, PICTURE, Verified, rows, sentences, span
from tuner.terminal import GO_ON, doing, print_json, progress, resumable, say, table
from tuner.text import shell

DIFFERS = 3
"""Exit code: the real kernel advises something else than the simulation."""


def run(args: Namespace) -> int:
    """Exit code 0 if the simulation's advice holds, 3 if not, 1 if nothing could be measured."""
    folder = folder_of(args.study, Path(args.out))
    if not log.exists(folder):
        raise UserError(missing(folder))
    data = log.load(folder)
    own = _live(args, data.header.request.policy)
    plan = verify.plan(
        data,
        top=args.top,
        layouts=args.layouts,
        deadline=args.deadline,
        note=doing,
        own_command=own,
    )
    runs = None
    if own is not None:
        runs = Runs(folder, live.conditions(own, plan.setting.scenario), anew=args.anew)
        say(f"tune: note: {live.as_it_is()}")
        _tell(verify.earlier(plan, runs), len(list(plan.places())))
    try:
        return _measured(args, data, plan, runs)
    finally:
        if runs is not None:
            runs.close()


def _tell(earlier: Sequence[Checked], count: int) -> None:
    """Which runs are not made now."""
    if earlier:
        whole = ", ".join(f"{each.runs} from {span(each)} UTC" for each in sessions_of(earlier))
        say(
            f"tune: note: of {count} runs {len(earlier)} are there already ({whole}); "
            f"{ANEW} measures all again"
        )


def _measured(args: Namespace, data: StudyData, plan: Plan, runs: Runs | None) -> int:
    folder, own = data.directory, plan.live
    count = len(plan.candidates) * plan.layouts
    machines = args.workers or len(os.sched_getaffinity(0))
    workers = pools.open_pool(runner_in(own), workers=1 if own else min(machines, count))
    try:
        with (
            resumable(lambda: f"stopped: each run is kept; {GO_ON}"),
            progress(f"{count} runs on {plan.machine}") as update,
        ):
            verify.measure(plan, workers, update, runs, lambda line: say(f"tune: note: {line}"))
    finally:
        workers.close()
    found = verify.judge(plan, data, _verdict(data))
    written = _write(found, plan, data)
    if runs is not None:
        runs.done()
    if found.simulated is not None:  # the study has ended: its report and MLflow show it, too
        remake(data.directory)
        _track(data.directory, args.mlflow_uri or default_store(data.directory.parent))
    if args.json:
        content = found.model_dump(mode="json")
        print_json({**content, "holds": found.holds, "files": [str(path) for path in written]})
    else:
        table(COLUMNS, rows(found))
        print()
        for sentence in sentences(found):
            print(sentence)
        for path in written:
            say(f"wrote {path}")
        if (best := folder / BEST) in written and (use := targets.command(best)):
            say(f"for a server: {use}")
        if plan.live is not None:
            say(f"to search on from there: {_search(plan.live, data)}")
    if all(candidate.mean is None for candidate in found.candidates):
        return 1
    return 0 if found.holds in (True, None) else DIFFERS


def _live(args: Namespace, policy: PolicyDecl) -> Live | None:
    """The command to be measured live, if one is."""
    if args.substrate == LIVE:
        if args.workers not in (None, 1):
            raise UserError(f"--workers: found {args.workers}; one live trial runs at a time")
        return live.asked(args, policy)
    options = {"--command": "trial_command", "--metric": "metric", ANEW: "anew", **LIVE_OPTIONS}
    for name, dest in options.items():
        if getattr(args, dest, None):
            raise UserError(f"{name}: is of --on {LIVE}")
    return None


def _search(own: Live, data: StudyData) -> str:
    """The live study that begins with what the simulated one has found."""
    scenario = data.header.request.scenario
    words = ["tune", "run", "--workload", scenario.workload, "--policy", scenario.policy]
    words += ["--on", LIVE, "--from", str(data.directory), "--objective", scenario.objective]
    return shell([*words, *own.command_line()])


def _verdict(data: StudyData) -> Verdict | None:
    """The study's own, once it has ended."""
    path = data.directory / best_file.FILE
    return best_file.read(path).verdict if path.is_file() else None


def _write(found: Verified, plan: Plan, data: StudyData) -> list[Path]:
    folder = data.directory
    files: dict[Path, str | bytes] = {
        folder / FILE: found.model_dump_json(indent=1) + "\n",
        folder / PICTURE: png(draw(found)),
    }
    best = folder / BEST
    if found.winner is None:
        best.unlink(missing_ok=True)  # of an earlier verification
    else:
        files[best] = best_file.render(_configuration(found, plan, data), BEST)
    return write_files(files)


def _track(folder: Path, uri: str) -> None:
    try:
        repair.add(folder, uri)
    except UserError as error:
        say(f"tune: warning: {error}; `tune repair` tries again")


def _configuration(found: Verified, plan: Plan, data: StudyData) -> BestConfiguration:
    """The winner's, with its objective on the machine's first layout."""
    place = next(i for i, each in enumerate(found.candidates) if each.trial == found.winner)
    default = next(i for i, each in enumerate(found.candidates) if each.trial == 0)
    measured = {"isolation": plan.live} if plan.live else {"emulated": found.emulated}
    request = data.header.request.model_copy(update=measured)
    return BestConfiguration.of(
        request,
        plan.trial(place, 0, found.winner or 0),
        plan.results[place, 0],
        default_value=plan.results[default, 0].objective,
        date=datetime.now(UTC),
        git_commit=commit_of(Path.cwd()),
        verdict=found.verdict,
    )
