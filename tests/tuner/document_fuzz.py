# SPDX-License-Identifier: MIT
"""Damages documents at random and reads them: each is accepted, or refused with one message that
says where. As a program: document_fuzz.py COUNT [SEED] prints the counts as JSON, and exits with 1
if there were failures; what failed is kept in ./document-failures.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from mutations import mutated
from test_best import OF_0_1

from tuner.claims import document as claims
from tuner.documents import catalog, placement
from tuner.documents.catalog import Kind
from tuner.documents.placement import PlacedObject, PlacementSpec
from tuner.errors import UserError
from tuner.study import best

BEST = """\
scenario:
  workload: gups
  input: default
  policy: hybridtier
  machine: skx
  ratio: '1:8'
  objective: throughput
  threads: 16.0
  scale: 1024.0
  page_bytes: 4096
  repeats: 1
  stream_seed: 0
  seed: 0
knobs: {momentum_threshold: 3, aol.enabled: false, aol.low: 40.0, variant: paper}
objective: {value: 125.25, default_value: 100.0}
provenance:
  study: gups-study
  trial: 3
  date: '2026-01-02T00:00:00+00:00'
  engine_version: 1.2.3
  engine_build: 0123456789abcdef
  fingerprints: {workload: w1, space: s1, machine: m1}
  host: somewhere
"""
SHIPPED = [
    *((kind.name, path) for kind in Kind for path in catalog.packaged_folder(kind).glob("*.yaml")),
    *(("claims", path) for path in claims.default_folder().glob("*.yaml")),
]
LONGEST_MESSAGE = 5000
CPU_SECONDS = 20.0
"""A document that takes longer hangs: most take milliseconds. Processor time, so that a busy
machine changes nothing."""


def documents() -> list[tuple[str, str, bytes]]:
    """Kind, file name and content of what is shipped, and of what the tuner writes."""
    found = [(kind, path.name, path.read_bytes()) for kind, path in sorted(SHIPPED)]
    old = OF_0_1.replace("toy", "hybridtier")
    placed = PlacedObject(site="grid.cpp:7", score=0.5, bytes=4096.0, slot=0)
    spec = PlacementSpec(workload="w", policy="soar", objects=[placed], profiled={"scale": 64.0})
    return [
        *found,
        ("best", "old.yaml", old.encode()),
        ("best", "best.yaml", BEST.encode()),
        ("placement", "placement.yaml", placement.render(spec).encode()),
    ]


def load(kind: str, path: Path) -> None:
    if kind == "claims":
        claims.load(path.parent)
    elif kind == "best":
        best.read(path)
    elif kind == "placement":
        placement.read(path, workload="w", policy="soar")
    else:
        getattr(catalog, kind)(str(path))


def fuzz(count: int, seed: str, failures: Path, tell: Callable[[str], None]) -> dict[str, int]:
    """Reads so many damaged documents, the same for the same seed; returns how many were `mutated`,
    `accepted`, `refused` and `failures`. Each failure is told, and kept in the folder `failures`.
    """
    rng = random.Random(seed)
    shipped = documents()
    counts = {"mutated": 0, "accepted": 0, "refused": 0, "failures": 0}
    before = signal.signal(signal.SIGPROF, _hangs)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind, name, text = rng.choice(shipped)
            file = Path(folder, kind, name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(mutated(text, rng))
            outcome, complaint = _read(kind, file)
            counts["mutated"] += 1
            counts[outcome] += 1
            if complaint:
                kept = failures / f"{seed}-{number}" / name
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, kept)
                tell(f"{kept}: {complaint}")
            file.unlink()
    signal.signal(signal.SIGPROF, before)
    return counts


def _read(kind: str, file: Path) -> tuple[str, str]:
    """What became of a document, and what is wrong with that."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        load(kind, file)
    except UserError as error:
        message = str(error)
        placed = re.compile(rf"{re.escape(str(file))}:\d+: ")
        if not all(line.startswith(f"{file}:") for line in message.splitlines()):
            return "failures", f"not every line names the file: {message}"
        if not placed.match(message):
            return "failures", f"no line number: {message}"
        if len(message) >= LONGEST_MESSAGE:
            return "failures", f"a message of {len(message)} characters"
        return "refused", ""
    except (Exception, Hangs) as error:
        return "failures", f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "accepted", ""


class Hangs(BaseException):
    """Passes all handlers of errors."""


def _hangs(*_: object) -> NoReturn:
    raise Hangs(f"not read in {CPU_SECONDS:g} s of processor time")


def main() -> int:
    count, seed = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "mutations"

    def tell(failure: str) -> None:
        print(failure, file=sys.stderr, flush=True)

    counts = fuzz(count, seed, Path("document-failures"), tell)
    print(json.dumps(counts))
    return 1 if counts["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
