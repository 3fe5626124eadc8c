# SPDX-License-Identifier: MIT
"""The files of a recording: the trace NAME.tts, and the workload NAME.yaml that replays it."""

from __future__ import annotations

import re
from pathlib import Path

from tuner import engine
from tuner.documents.document import render
from tuner.documents.machine import MachineSpec
from tuner.documents.workload import Sampling
from tuner.errors import UserError
from tuner.files import write_files
from tuner.model import NAME
from tuner.report.characteristics import PAGE_BYTES
from tuner.text import shell

INPUT = "recorded"
"""The one input of a recorded workload."""


def output(path: str, force: bool) -> Path:
    """The trace's absolute path. Everything that could keep it from being written is found here,
    before anything runs."""
    trace = Path(path).absolute()
    if trace.suffix != ".tts" or not re.fullmatch(NAME, trace.stem):
        raise UserError(
            f"-o {path}: must be NAME.tts, where NAME consists of letters, digits, '.', '_', '-': "
            "it names the workload"
        )
    if not trace.parent.is_dir():
        raise UserError(f"-o {path}: there is no folder {trace.parent}")
    for file in (trace, trace.with_suffix(".yaml")):
        if file.exists() and not force:
            raise UserError(f"{file} exists; --force replaces it")
    return trace


def document(
    trace: Path,
    *,
    summary: str,
    source: str,
    threads: float,
    machine: MachineSpec,
    sampling: Sampling,
    scale: float = 1.0,
    operation: str | None = None,
    window: str = "all",
) -> tuple[Path, int]:
    """Writes the workload beside the trace; returns its path, and the footprint in bytes, both of
    what the recording stands for. With an `operation` the objectives are its rate and latencies.
    UserError if it cannot be written."""
    footprint = round(engine.characteristics(trace)["peak_pages"] * PAGE_BYTES * scale)
    objectives = ["runtime"] if operation is None else ["throughput", "p50", "p90", "p99", "p999"]
    path = trace.with_suffix(".yaml")
    content = render(
        {
            "name": trace.stem,
            "summary": summary,
            "sources": [source],
            **({} if operation is None else {"operation": operation}),
            "objective": objectives[0],
            "objectives": objectives,
            "footprint_gib": footprint / 2**30,
            "scale": float(scale),
            "threads": float(threads),
            "machine": machine.name,
            **({} if window == "all" else {"window": window}),
            "default_input": INPUT,
            "smoke_input": INPUT,
            "inputs": {
                INPUT: {
                    "summary": "as it ran",
                    "trace": trace.name,
                    "sampling": sampling.model_dump(exclude_none=True),
                }
            },
        }
    )
    write_files({path: content})
    return path, footprint


def footprint_of(trace: Path) -> int:
    """Bytes in use at most, of what the stream stands for."""
    scale = float(engine.stream_info(trace)["scale"])
    pages = int(engine.characteristics(trace)["peak_pages"])
    return round(pages * PAGE_BYTES * scale)


def next_step(workload: Path) -> str:
    """`next: tune run --workload ./NAME.yaml`, with the path as the user would type it."""
    try:
        shown = f"./{workload.relative_to(Path.cwd())}"
    except ValueError:
        shown = str(workload)
    return f"next: tune run --workload {shell([shown])}"
