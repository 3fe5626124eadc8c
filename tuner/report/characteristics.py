# SPDX-License-Identifier: MIT
"""Figures of a workload's streams: footprint, accesses, how few pages get most of them.

Making the streams of all workloads takes many minutes, so figures are measured once and kept in
`characteristics.json` beside the workloads' YAML files. Each is kept with the key of the stream
that it was measured on: whatever changes the stream (kernel, parameters, machine) makes them stale,
and they are shown as such. A stream that is in the cache, or is a recording, is asked itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents.catalog import Entry
from tuner.documents.reading import read_json
from tuner.documents.workload import WorkloadSpec
from tuner.errors import UserError
from tuner.files import make_room, write_atomically
from tuner.model import Model
from tuner.run import settings, streams
from tuner.run.settings import Setting
from tuner.run.trial import RecordedStream, Stream
from tuner.terminal import say

FILE = "characteristics.json"
PAGE_BYTES = 4096


class Figures(Model):
    """Measured on one stream, over its timed part. A simulated access stands for `scale` real ones.

    `hottest` is the share of accesses to the hottest pages, by their share of `timed_pages`: all
    pages that were allocated at some time of the timed part; memory that is freed and allocated
    again at the same site counts once. `pages` is the largest number in use at a time.
    `footprint_gib` and `seconds` (virtual, if all memory were fast) are full-scale.
    """

    stream: str
    scale: float
    footprint_gib: float
    pages: int
    timed_pages: int
    accesses: int
    set_up_accesses: int
    store_share: float
    operations: int
    seconds: float
    hottest: dict[str, float]  # "1%", "10%", ...
    file_bytes: int
    making_seconds: float | None  # processor time; None: not known

    @property
    def full_accesses(self) -> float:
        return self.accesses * self.scale


@dataclass(frozen=True)
class Known:
    """Figures of an input, if there are any; stale ones are of an older stream."""

    figures: Figures | None
    stale: bool = False


def setting(workload: str, input: str | None = None) -> Setting:
    """A workload as every command runs it by default."""
    # A stream depends on no policy, but a setting has one.
    return settings.resolve(workload, policy=next(iter(engine.policies().values())), input=input)


def split(name: str) -> tuple[str, str | None]:
    """Workload and input of `W` or `W:INPUT`."""
    workload, colon, input = name.rpartition(":")
    return (workload, input) if colon and "/" not in input else (name, None)


def requests(entry: Entry[WorkloadSpec]) -> dict[str, Stream]:
    """The stream of each input."""
    one = setting(str(entry.path))
    return {
        name: one.model_copy(
            update={
                "scenario": replace(one.scenario, input=name, scale=one.workload.scale_of(name))
            }
        ).stream()
        for name in one.workload.inputs
    }


def known(entry: Entry[WorkloadSpec]) -> dict[str, Known]:
    """What is known of each input without making a stream."""
    kept = _read(_file_of(entry)).get(entry.spec.name, {})
    found: dict[str, Known] = {}
    for name, request in requests(entry).items():
        figures = kept.get(name)
        stale = figures is None or figures.stream != request.key
        if stale and (isinstance(request, RecordedStream) or streams.is_ready(request)):
            figures, stale = of_stream(request), False
        found[name] = Known(figures, stale and figures is not None)
    return found


def of_stream(request: Stream) -> Figures:
    """Measured on the stream's file, which must be there."""
    path = streams.path_of(request)
    info, found = engine.stream_info(path), engine.characteristics(path)
    timed = found["loads"] + found["stores"]
    return Figures(
        stream=request.key,
        scale=info["scale"],
        footprint_gib=_rounded(found["peak_pages"] * PAGE_BYTES * info["scale"] / (1 << 30)),
        pages=found["peak_pages"],
        timed_pages=found["timed_pages"],
        accesses=timed,
        set_up_accesses=found["set_up_accesses"],
        store_share=_rounded(found["stores"] / timed) if timed else 0.0,
        operations=info["operations"],
        seconds=_rounded(info["nominal_seconds"]),
        hottest={f"{share:.0%}": _rounded(accesses) for share, accesses in found["hottest"]},
        file_bytes=path.stat().st_size,
        making_seconds=streams.making_seconds(request),
    )


def measure(
    entry: Entry[WorkloadSpec], input: str, progress: streams.Progress | None = None
) -> bool:
    """Measures an input whose figures are missing or stale, and stores them. Returns whether it
    measured. A stream that had to be made for it does not stay in the cache."""
    file, name, request = _file_of(entry), entry.spec.name, requests(entry)[input]
    before = _read(file).get(name, {}).get(input)
    if isinstance(request, RecordedStream) or (before and before.stream == request.key):
        return False
    cached = streams.is_ready(request)
    streams.ensure(request, progress=progress)
    figures = of_stream(request)
    if not cached:
        streams.remove(request)
    content = _read(file)  # again: another process may have measured meanwhile
    own = content.get(name, {}) | {input: figures}
    content[name] = {i: f for i, f in own.items() if i in entry.spec.inputs}
    _write(file, content)
    return True


def _file_of(entry: Entry[WorkloadSpec]) -> Path:
    return entry.path.parent / FILE


_told: set[Path] = set()


def _read(file: Path) -> dict[str, dict[str, Figures]]:
    """Figures by workload and input; none if they cannot be read, which is then said."""
    if not os.path.lexists(file):
        return {}
    try:
        content: Mapping[str, Mapping[str, Any]] = read_json(file)
        return {
            workload: {input: Figures.model_validate(found) for input, found in inputs.items()}
            for workload, inputs in content.items()
        }
    except (UserError, ValueError, AttributeError) as error:
        if file not in _told:
            _told.add(file)
            first, *_ = str(error).splitlines()
            say(
                f"tune: note: {file} is damaged and counts as missing ({first}); `tune workloads "
                "--measure` writes it again"
            )
        return {}


def _write(file: Path, content: Mapping[str, Mapping[str, Figures]]) -> None:
    plain = {
        workload: {input: figures.model_dump() for input, figures in sorted(inputs.items())}
        for workload, inputs in sorted(content.items())
    }
    try:
        make_room(file)
        write_atomically(file, json.dumps(plain, indent=1) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot write {file}: {error.strerror}; copy the workload's YAML to ./workloads to "
            "measure it there"
        ) from error


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
