# SPDX-License-Identifier: MIT
"""`tune map`: where promotion helps and where it hurts, and a rule for when to turn it off.

Its cells are run and kept as those of `tune compare`, so that the same command goes on where an
interrupted one stopped.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine
from tuner.commands import compare
from tuner.commands.run import ALL
from tuner.compare.cells import Runs
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.files import write_files
from tuner.map import cells, page
from tuner.map.cells import Plan
from tuner.map.picture import draw
from tuner.map.points import Found, measure
from tuner.report import characteristics
from tuner.report.pictures import png
from tuner.run import cache, settings
from tuner.run.trial import Status
from tuner.terminal import resumable, table


def run(args: Namespace) -> int:
    """Exit code 0 when every cell ran or was refused, and some ran."""
    plan = _planned(args)
    runs = Runs(plan.comparison)
    compare.run_missing(runs, args)
    cache.prune(engine.results_id())
    with resumable(lambda: compare.ALL_KEPT):
        found = Found(plan, measure(plan, runs), engine.version(), engine.results_id())
        written = _write(found, Path(args.out) / f"map-{plan.comparison.name}")
    bad = [
        f"{p.name}: {p.status}: {p.reason}"
        for p in found.points
        if p.status in (Status.crashed, Status.timeout)
    ]
    compare.tell(args, page.content(found), lambda: _show(found), written, bad)
    return 1 if bad or not any(point.performance for point in found.points) else 0


def _planned(args: Namespace) -> Plan:
    return cells.plan(
        compare.policies(args.policies),
        cells.axes(args.ratios, args.skews, args.drifts, args.machines),
        input=args.input,
        others=_others(args.also),
        seeds=args.seeds,
        deadline=args.deadline,
        name=args.name,
        given={name: value for name, value in settings.given(args).items() if name != "input"},
    )


def _others(also: str | None) -> list[tuple[str, str | None]]:
    """Workloads and inputs to judge the rule on."""
    if not also:
        return []
    if also != ALL:
        return [characteristics.split(name) for name in dict.fromkeys(also.split(","))]
    specs = [catalog.workload(name).spec for name in catalog.names(Kind.workload)]
    return [(spec.name, spec.smoke_input) for spec in specs if spec.name != cells.WORKLOAD]


def _write(found: Found, folder: Path) -> list[Path]:
    pictures = {
        folder / page.picture_name(row): png(draw(found, row)) for row in found.plan.policies
    }
    return write_files(
        {
            folder / "map.csv": page.csv_text(found),
            folder / "map.json": page.json_text(found),
            folder / "map.md": page.markdown(found),
            **pictures,
        }
    )


def _show(found: Found) -> None:
    table(*page.summary(found))
    print()
    if found.rules():
        table(*page.confusions(found))
        print()
    for note in (*page.notes(found), *page.rule_notes(found)):
        print(f"- {note}")
