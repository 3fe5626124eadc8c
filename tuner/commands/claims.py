# SPDX-License-Identifier: MIT
"""`tune claims`: do published results come out?

Runs what the claims need, what ran before from the cache, and prints a verdict for each. A claim
that fails is a result: the command fails only if a run crashed, or with --against if a verdict got
worse.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine, text
from tuner.claims import document, page, verdict
from tuner.claims.document import Claim
from tuner.claims.runs import Plan, execute
from tuner.claims.verdict import Verdict
from tuner.errors import as_object
from tuner.experiment.jobs import Job, Result, known
from tuner.run import cache
from tuner.terminal import GO_ON, print_json, progress, resumable, say, table


def run(args: Namespace) -> int:
    folder = Path(args.claims) if args.claims else document.default_folder()
    claims = document.load(folder)
    chosen = document.select(claims, args.id, quick=args.quick)
    recalled: dict[str, list[Verdict]] = {}
    if args.update:
        recalled = _recall(claims, Path(args.output or "results") / "claims.json")
        for claim in chosen if args.id or args.quick else ():
            recalled.pop(claim.id, None)
    else:
        claims = chosen
    if args.list:
        return _list(chosen, as_json=args.json)
    before = page.read(Path(args.against)) if args.against else None
    asked = [c for c in claims if not c.spec.needs and c.id not in recalled]
    if args.update:
        say(f"{text.plural(len(asked), 'claim')} to run, {len(recalled)} kept")
    plan = Plan([verdict.families(claim) for claim in asked])
    for round in ("", " of best configurations"):
        _run(plan, args.workers, round, only_cached=args.cached)
    cache.prune(engine.results_id())
    verdicts = [
        row for claim in claims for row in recalled.get(claim.id) or verdict.judge(claim, plan)
    ]
    summary = verdict.summarize(verdicts)
    all_of_them = args.update or not (args.id or args.quick)
    written = []
    if args.output or all_of_them:
        with resumable(lambda: f"stopped: all runs are kept; {GO_ON}"):
            written = page.write(Path(args.output or "results"), claims, verdicts, summary)
    crashed = list(plan.crashed.values())
    if args.json:
        error = as_object("\n".join(crashed), 1) if crashed else {}
        print_json(page.content(verdicts, summary) | error)
    else:
        _show(verdicts)
        print()
        print("\n".join(page.headline(verdicts, summary)))
    for path in written:
        say(f"wrote {path}")
    for message in crashed:
        say(f"tune: error: {message}")
    code = 1 if crashed else 0
    if before is not None:
        lines, worse = page.compare(before["claims"], verdicts)
        for line in lines or ["no claim has changed"]:
            say(line)
        code = max(code, int(worse))
    return code


def _run(plan: Plan, workers: int, what: str, *, only_cached: bool) -> None:
    jobs = []
    for job in plan.jobs():
        if found := known(job):
            plan.take(job, found)
        else:
            jobs.append(job)
    if not jobs or only_cached:
        return
    count = 0

    def done(job: Job, result: Result) -> None:
        nonlocal count
        count += 1
        plan.take(job, result)
        update(count / len(jobs))

    with (
        resumable(lambda: f"stopped after {count} of {len(jobs)} runs, which are kept: {GO_ON}"),
        progress(f"{text.plural(len(jobs), 'run')}{what}") as update,
    ):
        execute(jobs, workers, done)


def _recall(claims: list[Claim], path: Path) -> dict[str, list[Verdict]]:
    """The verdicts of the claims whose figures are in an earlier claims.json."""
    rows = {row["id"]: row for row in page.read(path)["claims"]} if path.exists() else {}
    found = {claim.id: verdict.recall(claim, rows) for claim in claims}
    return {id: verdicts for id, verdicts in found.items() if verdicts}


def _list(claims: list[Claim], *, as_json: bool) -> int:
    rows = [(claim.id, claim.source, claim.spec.what.strip()) for claim in claims]
    if as_json:
        listed = [{"id": id, "source": source, "what": what} for id, source, what in rows]
        print_json({"claims": listed})
    else:
        table(("claim", "source", "what"), rows, prose=1)
    return 0


def _show(verdicts: list[Verdict]) -> None:
    table(
        ("claim", "published", "ours", "verdict", "why not"),
        [
            (row.id, page.short(row.published), page.short(row.ours), str(row.verdict), row.reason)
            for row in verdicts
        ],
        prose=1,
    )
