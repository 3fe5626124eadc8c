# SPDX-License-Identifier: MIT
"""`tune workload show`: draws the memory accesses of a workload, and prints the figures.
`tune workload resize`: makes a recorded one stand for more than was recorded."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.documents.document import render
from tuner.errors import UserError, unknown
from tuner.files import write_atomically, write_files
from tuner.record import stand_in
from tuner.record.workload import INPUT, footprint_of, next_step, output
from tuner.report import characteristics, pictures
from tuner.report.pictures import Site, Subject
from tuner.run import streams
from tuner.run.trial import RecordedStream
from tuner.terminal import print_json, say, table
from tuner.text import percent, si, size

GIB = 1 << 30


def run(args: Namespace) -> int:
    return _resize(args) if args.action == "resize" else _show(args)


def _resize(args: Namespace) -> int:
    """Writes another trace and its workload document."""
    entry = catalog.workload(args.workload)
    spec, path = entry.spec, entry.path
    name = args.input or spec.default_input
    if name not in spec.inputs:
        raise unknown(f"input of workload {spec.name}", name, spec.inputs)
    input = spec.inputs[name]
    if spec.kernel is not None or input.trace is None:
        raise UserError(
            f"{path}: {spec.name} is no recording: `--set footprint_gib=N` of `tune run` makes it "
            "larger, where it has sizes"
        )
    if input.sampling is None:
        raise UserError(f"{path}: inputs.{name}.sampling: missing; it says how it was recorded")
    if input.sampling.stands_for:
        raise UserError(
            f"{path}: inputs.{name}.sampling.stands_for: it {input.sampling.stands_for.describe()} "
            "already; resize what it was made from"
        )
    trace = output(args.output, args.force)
    made = stand_in.resize(Path(input.trace), trace, args, input.sampling, spec.threads)
    footprint = footprint_of(trace)
    changes = {
        "name": trace.stem,
        "sources": [*spec.sources, f"tune workload resize {made.words}{args.workload}"],
        "footprint_gib": footprint / GIB,
        "scale": made.scale,
        "threads": made.threads,
        "default_input": INPUT,
        "smoke_input": INPUT,
        "inputs": {
            INPUT: input.model_copy(
                update={
                    "trace": trace.name,
                    "content": None,
                    "scale": None,
                    "footprint_gib": None,
                    "sampling": made.sampling,
                }
            )
        },
    }
    document = trace.with_suffix(".yaml")
    content = spec.model_copy(update=changes).model_dump(exclude_none=True, exclude_defaults=True)
    write_files({document: render(content)})
    summary = {
        "trace": str(trace),
        "workload": str(document),
        "footprint_bytes": footprint,
        "blocks": made.info["blocks"],
        "nominal_seconds": made.info["nominal_seconds"],
        "threads": made.threads,
        **made.summary(),
    }
    if args.json:
        print_json(summary)
        return 0
    say(f"tune: wrote {trace} ({size(trace.stat().st_size)})")
    for heading, text in made.told():
        say(f"  {heading:<12} {text}")
    say(next_step(document))
    return 0


def _show(args: Namespace) -> int:
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
            f"{percent(figures.store_share, 0)} stores; "
            f"{si(figures.set_up_accesses * figures.scale)} more in set-up",
        ),
        ("time", f"{figures.seconds / 60:.3g} minutes, as if all memory were fast"),
    ]
    if figures.operations:
        kind = spec.operation_of(subject.setting.scenario.input) or "operation"
        lines.append(("operations", f"{si(figures.operations * figures.scale)} ({kind})"))
    lines += [
        (
            "hottest",
            ", ".join(f"{of} of pages: {percent(part, 0)}" for of, part in figures.hottest.items())
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
                    *(percent(share, 0) for share in other.figures.hottest.values()),
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
            "stands_for": _stands_for(one),
            "characteristics": one.figures.model_dump(),
            "curve": [list(point) for point in one.found["curve"]],
        }

    return of(subject) | {
        "sites": [vars(site) for site in rows],
        "files": {name: str(path) for name, path in files.items()},
        "compared": [of(other) for other in others],
    }


def _stands_for(one: Subject) -> dict[str, Any] | None:
    sampling = one.setting.sampling
    if sampling is None or sampling.stands_for is None:
        return None
    return sampling.stands_for.model_dump(exclude_none=True)
