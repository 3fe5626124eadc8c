# SPDX-License-Identifier: MIT
"""`tune workload show`: draws the memory accesses of a workload, and prints the figures."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.errors import UserError
from tuner.files import write_atomically
from tuner.report import characteristics, pictures
from tuner.report.pictures import Site, Subject
from tuner.run import streams
from tuner.run.trial import RecordedStream
from tuner.terminal import print_json, table
from tuner.text import percent, si, size


def run(args: Namespace) -> int:
    """Makes the stream if need be, and draws it."""
    subject = _subject(args.workload, args.input, detailed=True)
    others = [_subject(*characteristics.split(name), detailed=False) for name in args.compare]
    out = Path(args.out) / f"{subject.setting.workload.name}-{subject.setting.scenario.input}"
    files = {
        "heat_map": out / "heatmap.png",
        "hotness": out / "hotness.png",
        "sites": out / "sites.png",
    }
    rows = list(pictures.sites(subject))
    drawn = (
        pictures.heat_map(subject),
        pictures.hotness([subject, *others]),
        pictures.site_table(subject, rows),
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, picture in zip(files.values(), drawn, strict=True):
            write_atomically(path, pictures.png(picture))
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from error
    if args.json:
        print_json(_object(subject, others, rows, files))
    else:
        _tell(subject, others, rows, files)
    return 0


def _subject(workload: str, input: str | None, *, detailed: bool) -> Subject:
    setting = characteristics.setting(workload, input)
    request = setting.stream()
    path = streams.prepare(request)
    map_size = {"rows": pictures.ROWS, "columns": pictures.COLUMNS} if detailed else {}
    return Subject(
        setting=setting,
        path=path,
        info=engine.stream_info(path),
        found=engine.characteristics(path, **map_size),
        figures=characteristics.of_stream(request),
    )


def _tell(
    subject: Subject, others: Sequence[Subject], rows: Sequence[Site], files: Mapping[str, Path]
) -> None:
    spec, figures = subject.setting.workload, subject.figures
    print(f"{subject.label}: {spec.summary}")
    print(f"{subject.setting.workload.inputs[subject.setting.scenario.input].summary}\n")
    making = figures.making_seconds
    lines = [
        ("in use", f"{figures.footprint_gib:.4g} GiB at most ({figures.pages:,} simulated pages)"),
        ("scale", f"{figures.scale:g}: {subject.how_recorded}"),
        (
            "accesses",
            f"{si(figures.full_accesses)} ({si(figures.accesses)} simulated), "
            f"{figures.store_share:.0%} stores; {si(figures.set_up_accesses * figures.scale)} more "
            "in set-up",
        ),
        ("time", f"{figures.seconds / 60:.3g} minutes, as if all memory were fast"),
    ]
    if figures.operations:
        kind = spec.operation_of(subject.setting.scenario.input) or "operation"
        lines.append(("operations", f"{si(figures.operations * figures.scale)} ({kind})"))
    lines += [
        (
            "hottest",
            ", ".join(f"{of} of pages: {part:.0%}" for of, part in figures.hottest.items())
            + " of the accesses",
        ),
        ("objectives", ", ".join(spec.objectives_of(subject.setting.scenario.input))),
        ("machine", subject.setting.machine.name),
        (
            "stream",
            f"{size(figures.file_bytes)}"
            + (f", made in {making:.1f} s of processor time" if making is not None else "")
            + f": {subject.path}",
        ),
    ]
    for name, text in lines:
        print(f"{name:<11} {text}")
    print()
    table(
        (*pictures.COLUMN_NAMES, "classes"),
        [
            (
                *pictures.row(site),
                ", ".join(f"{name} {percent(share)}" for name, share in site.classes.items()),
            )
            for site in rows[: pictures.MOST_SITES]
        ],
        prose=1,
    )
    if more := pictures.more(rows):
        print(more)
    if others:
        print()
        table(
            ("hottest pages' share of accesses", ">GiB", *(f">{s}" for s in figures.hottest)),
            [
                (
                    other.label,
                    f"{other.figures.footprint_gib:.3g}",
                    *(f"{share:.0%}" for share in other.figures.hottest.values()),
                )
                for other in (subject, *others)
            ],
        )
    print()
    for path in files.values():
        print(path)


def _object(
    subject: Subject, others: Sequence[Subject], rows: Sequence[Site], files: Mapping[str, Path]
) -> dict[str, Any]:
    def of(one: Subject) -> dict[str, Any]:
        return {
            "workload": one.setting.workload.name,
            "input": one.setting.scenario.input,
            "recorded": isinstance(one.setting.stream(), RecordedStream),
            "how": one.how_recorded,
            "characteristics": one.figures.model_dump(),
            "curve": [list(point) for point in one.found["curve"]],
        }

    return of(subject) | {
        "sites": [vars(site) for site in rows],
        "files": {name: str(path) for name, path in files.items()},
        "compared": [of(other) for other in others],
    }
