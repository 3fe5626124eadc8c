# SPDX-License-Identifier: MIT
"""`tune report`: the page of a study that runs or has ended; or a picture of time series, of live
runs (`tierd run --series`) as of simulated ones (`tune sim --series`), over each other."""

from __future__ import annotations

import csv
import math
import time
from argparse import Namespace
from pathlib import Path

from tuner.documents.reading import read_text
from tuner.errors import UserError
from tuner.experiment.recall import recall
from tuner.files import write_files
from tuner.objective import OBJECTIVES
from tuner.report import live, page
from tuner.report.conclusion import rows as conclusion_rows
from tuner.study import log
from tuner.study.log import StudyLog
from tuner.terminal import print_json, say, table
from tuner.text import exact

TIME = "second"
MOST_BYTES = 1 << 26
"""Of a series: a day's seconds take about 20 MiB."""
MOST_FILES = 8

Series = dict[str, list[float]]


def run(args: Namespace) -> int:
    folder = _study(args)
    if folder is not None:
        return _page(args, folder)
    if args.watch:
        raise UserError("--watch: needs a study, found files")
    paths = [Path(name) for name in args.files]
    if len(paths) > MOST_FILES:
        raise UserError(f"found {len(paths)} files; must be at most {MOST_FILES}")
    output = Path(args.output) if args.output else paths[0].with_suffix(".png")
    if output in paths:
        raise UserError(f"--output: {output} is one of the files to read")
    series = {str(path): read(path) for path in paths}
    columns = _columns(series)
    from tuner.report.pictures import png
    from tuner.report.series import draw

    write_files({output: png(draw(series, columns))})
    means = {
        name: {column: math.fsum(values) / len(values) for column, values in data.items()}
        for name, data in series.items()
    }
    if args.json:
        print_json({"picture": str(output), "means": means})
        return 0
    table(
        ["mean of", *(f">{name}" for name in series)],
        [
            [column, *(f"{m[column]:,.6g}" if column in m else "" for m in means.values())]
            for column in columns
        ],
    )
    print(f"\ndrawn in {output}")
    return 0


def _study(args: Namespace) -> Path | None:
    """The folder of the study that is meant, if one is."""
    name, *more = args.files
    if more or Path(name).is_file() or name.endswith(".csv"):
        return None
    folder = log.folder_of(name, Path(args.out)).absolute()
    if not log.exists(folder):
        raise UserError(log.missing(folder))
    if args.output:
        raise UserError("--output: the page of a study stays in its folder; leave it out")
    return folder


def _page(args: Namespace, folder: Path) -> int:
    place = _watched(folder) if args.watch else _written(folder, args)
    if args.json:
        print_json({"page": str(place.absolute()), "ended": place.name == page.PAGE})
    else:
        print(place.absolute())
    return 0


def _watched(folder: Path) -> Path:
    """Writes the page of a running study with its new trials, until its report is there."""
    data = log.load(folder)
    drawn = 0
    while not live.ended(data):
        began = time.monotonic()
        if drawn != (size := (folder / log.EVENTS).stat().st_size):
            place = live.write(data)
            if not drawn:
                say(f"open {place.absolute()}, which reads itself again; Ctrl-C ends this")
            drawn = size
        # A few times as long as a page takes: most of the machine is the study's.
        time.sleep(max(live.SECONDS, 4 * (time.monotonic() - began)))
        data = log.load(folder)
    if (folder / live.PAGE).exists():
        live.end(folder)
    return folder / page.PAGE


def _written(folder: Path, args: Namespace) -> Path:
    """The page as the log has it: of a study that has ended its report, with a table of what was
    compared. UserError where another process is about to end it."""
    data = log.load(folder)
    if not data.complete:
        return live.write(data)
    with StudyLog(folder) as study:
        conclusion = recall(study)
        if conclusion is None:
            return live.write(study.data)
        page.write(study.data, conclusion)
        data = study.data
    if not args.json:
        objective = OBJECTIVES[data.header.request.scenario.objective]
        columns = ["contender", f">{objective.name}, {objective.unit}", ">over the default"]
        compared = conclusion_rows(data, conclusion.verdict)
        table(
            columns,
            [(row.name, exact(float(f"{row.value:.6g}")), row.words) for row in compared],
        )
    return folder / page.PAGE


def read(path: Path) -> Series:
    """Columns of numbers by their names in the first line. UserError naming the line that is
    something else, and for a file without rows. A last line that was cut off is left out: the
    program that writes it may have been killed."""
    text = read_text(path, MOST_BYTES)
    whole = text[: text.rfind("\n") + 1]
    rows = csv.reader(whole.splitlines(), strict=True)
    try:
        names = next(rows, [])
        if TIME not in names or len(set(names)) != len(names):
            raise UserError(f"{path}:1: expected names of columns, '{TIME}' among them")
        out: Series = {name: [] for name in names}
        for number, row in enumerate(rows, 2):
            if len(row) != len(names):
                raise UserError(f"{path}:{number}: found {len(row)} cells, expected {len(names)}")
            for name, cell in zip(names, row, strict=True):
                out[name].append(_number(path, number, name, cell))
    except csv.Error as error:
        raise UserError(f"{path}: {error}") from None
    if not out[TIME]:
        raise UserError(f"{path}: has no row yet; one is written every second")
    return out


def _number(path: Path, line: int, name: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}:{line}: {name}: found '{cell[:40]}', expected a number")
    return value


def _columns(series: dict[str, Series]) -> list[str]:
    """In the order in which they first appear, what every file has before what one has."""
    every = [name for data in series.values() for name in data if name != TIME]
    unique = list(dict.fromkeys(every))
    return sorted(unique, key=lambda name: -every.count(name))
