# SPDX-License-Identifier: MIT
"""`tune compare`: policies side by side on several workloads, relative to leaving tiering off.

What ran before with this engine is taken from the cache, so that the same command goes on where an
interrupted one stopped.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import engine, text
from tuner.commands import isolated
from tuner.commands.run import ALL, tunable
from tuner.compare import cells, earlier, page, tables
from tuner.compare.cells import REFERENCES, Comparison, Place, Runs
from tuner.compare.figures import Figures, Measured, measure
from tuner.compare.tracking import track
from tuner.declarations import PolicyDecl
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.workload import BASE_PAGE_BYTES
from tuner.emulate import trials
from tuner.emulate.plan import how
from tuner.errors import UserError, as_object
from tuner.experiment.jobs import Job, Study, StudyResult, Work, known, run_on
from tuner.files import write_files
from tuner.report import characteristics
from tuner.report.pictures import png
from tuner.report.store import default_store, reason
from tuner.run import cache, pool, pools, settings, streams
from tuner.run.trial import Status
from tuner.scenario import EMULATED, options
from tuner.terminal import GO_ON, doing, print_json, progress, resumable, say, table

ALL_KEPT = f"stopped: all runs are kept; {GO_ON}"


def run(args: Namespace) -> int:
    """Exit code 0 when every cell ran or was refused, and some ran."""
    comparison, kept = _planned(args)
    runs = Runs(comparison, kept)
    if args.update:
        say(f"{text.plural(len(kept), 'cell')} kept of {len(comparison.cells)}")
    for what in ("", " of best configurations"):
        run_missing(runs, args, what)
    cache.prune(engine.results_id())
    with resumable(lambda: ALL_KEPT):
        figures = Figures(comparison, measure(runs, kept))
        written = _write(figures, _folder(args, comparison.name))
    _track(figures, written, args)
    bad = [
        f"{m.name}: {m.status}: {m.reason}"
        for m in figures.measured
        if m.status in (Status.crashed, Status.timeout)
    ]
    tell(args, page.content(figures), lambda: _show(figures), written, bad)
    return 1 if bad or not any(m.objectives for m in figures.measured) else 0


def _folder(args: Namespace, name: str) -> Path:
    return Path(args.out) / f"compare-{name}"


def _planned(args: Namespace) -> tuple[Comparison, Mapping[Place, Measured]]:
    """With the figures that are kept."""
    emulated = args.substrate == EMULATED
    chosen = with_pages(args.policies, BASE_PAGE_BYTES if emulated else None)
    workloads = args.workloads.split(",")
    if args.workloads == ALL:
        workloads = catalog.names(Kind.workload)
    before = None
    if args.update:
        if not args.name:
            raise UserError("--update: needs --name, the comparison to add to")
        file = _folder(args, args.name) / "compare.json"
        before = earlier.read(file) if file.exists() else None
    if before is not None:
        workloads = [*before["workloads"], *workloads]
    if emulated:
        if args.tuned:
            raise UserError(
                "--tuned: searches on the simulated machine alone; `tune run --on emulated` tunes "
                "a policy on the emulated one"
            )
        chosen = _of_a_process(chosen, args.policies)
    comparison = cells.plan(
        [characteristics.split(name) for name in dict.fromkeys(workloads)],
        chosen,
        args.ratios.split(","),
        references={
            name: engine.policy(name) for name in (trials.REFERENCES if emulated else REFERENCES)
        },
        seeds=args.seeds,
        budget=args.tuned or 0,
        tune_ratio=args.tune_ratio,
        deadline=args.deadline,
        name=args.name,
        given=settings.given(args),
        fitted=lambda setting: trials.on_substrate(setting, doing),
    )
    for told in dict.fromkeys(cell.setting.resized() for cell in comparison.cells):
        if told:
            say(f"tune: {told}")
    return comparison, earlier.recall(comparison, before) if before is not None else {}


def _of_a_process(
    chosen: Sequence[tuple[PolicyDecl, int]], words: str
) -> list[tuple[PolicyDecl, int]]:
    """Those that a running process can have. UserError for others that were named."""
    found = []
    for policy, size in chosen:
        try:
            how(policy.name)
        except UserError:
            if policy.name in re.split("[,@]", words):
                raise
        else:
            found.append((policy, size))
    return found


def policies(names: str) -> list[PolicyDecl]:
    if names == ALL:
        return tunable()
    return [engine.policy(name) for name in dict.fromkeys(names.split(","))]


def with_pages(words: str, default: int | None = None) -> list[tuple[PolicyDecl, int]]:
    """Policies and the bytes of their pages, from `P`, `P@BYTES` and `all`. `default` is that of
    all policies where they have no pages of their own."""
    found = []
    for word in dict.fromkeys(words.split(",")):
        names, at, size = word.partition("@")
        for policy in policies(names):
            own = default or policy.page_bytes
            found.append((policy, _page_bytes(word, size) if at else own))
    return found


def _page_bytes(word: str, size: str) -> int:
    try:
        return int(options()["page_bytes"].check(int(size) if size.isdigit() else size))
    except ValueError as error:
        raise UserError(f"--policies {word}: pages: found '{size}'; {error}") from error


# --- Runs -----------------------------------------------------------------------------------------


def tell(
    args: Namespace,
    content: dict[str, Any],
    show: Callable[[], None],
    written: Sequence[Path],
    bad: Sequence[str],
) -> None:
    """What was found, the files that have it, and the runs that ended badly."""
    if args.json:
        files = {"files": [str(path) for path in written]}
        print_json(content | files | (as_object("\n".join(bad), 1) if bad else {}))
    else:
        show()
        for path in written:
            say(f"wrote {path}")
    for message in bad:
        say(f"tune: error: {message}")


def run_missing(runs: Work, args: Namespace, what: str = "") -> None:
    """Does what can be done now. Streams come first, each once."""
    runner = trials.runner_in(isolated.asked(args))
    missing: list[Job] = []
    for job in runs.jobs():
        if found := known(job):
            runs.take(job, found)
        else:
            missing.append(job)
    missing = _with_stream(runs, missing)
    if not missing:
        return
    total = sum(job.budget if isinstance(job, Study) else 1 for job in missing)
    count = 0
    workers = min(args.workers, len(missing))
    workers_pool = pools.open_pool(runner, workers=workers, ray_address=args.ray_address)

    def trial_done() -> None:
        nonlocal count
        count += 1
        update(count / total)

    try:
        with (
            resumable(lambda: f"stopped after {count} of {total} runs, which are kept: {GO_ON}"),
            progress(f"{text.plural(total, 'run')}{what}") as update,
        ):
            run_on(workers_pool, missing, runs.take, trial_done)
    finally:
        workers_pool.close()


def _with_stream(runs: Work, missing: Sequence[Job]) -> list[Job]:
    """Those whose stream could be made. The others have failed, with the reason."""
    errors: dict[str, str] = {}
    able = []
    for stream in {job.stream.key: job.stream for job in missing}.values():
        try:
            streams.prepare(stream)
        except UserError as error:
            errors[stream.key] = str(error)
    for job in missing:
        reason = errors.get(job.stream.key)
        if reason is None:
            able.append(job)
        elif isinstance(job, Study):
            runs.take(job, StudyResult(status=Status.failed, error=reason))
        else:
            runs.take(job, pool.without_result(job, Status.failed, reason, 0.0))
    return able


# --- What comes out -------------------------------------------------------------------------------


def _write(figures: Figures, folder: Path) -> list[Path]:
    from tuner.compare.picture import draw

    picture = folder / "compare.png"
    return write_files(
        {
            folder / "compare.csv": page.csv_text(figures),
            folder / "compare.json": page.json_text(figures),
            folder / "compare.md": page.markdown(figures, picture.name),
            picture: png(draw(figures)),
        }
    )


def _track(figures: Figures, files: Sequence[Path], args: Namespace) -> None:
    """The files have everything, so a store that fails is no failure of the command."""
    uri = args.mlflow_uri or default_store(Path(args.out))
    try:
        with progress(f"tracking {text.plural(len(figures.measured), 'cell')}") as update:
            track(figures, files, uri=uri, out=Path(args.out), progress=update)
    except Exception as error:
        say(
            f"tune: warning: MLflow at {uri} does not take this comparison ({reason(error)}); the "
            "same command tries again"
        )


def _show(figures: Figures) -> None:
    for ratio in figures.comparison.ratios:
        shown = [tables.speeds(figures, ratio)]
        if tables.many(figures):
            shown = [tables.summary(figures, ratio), tables.bests(figures, ratio)]
        elif figures.comparison.budget:
            shown.append(tables.gains(figures, ratio))
        for each in shown:
            table(*each)
            print()
    for note in page.notes(figures):
        print(f"- {note}")
