"""Whatever is done to a document, it is accepted or refused with one message that says where."""

from __future__ import annotations

import random
import re
from pathlib import Path

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


def test_a_mutated_document_is_accepted_or_refused_with_its_place(tmp_path: Path) -> None:
    rng = random.Random("mutations")
    outcomes = []
    for kind, name, text in rng.choices(documents(), k=400):
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_bytes(mutated(text, rng))
        try:
            load(kind, file)
            outcomes.append("accepted")
        except UserError as error:
            message = str(error)
            assert all(line.startswith(f"{file}:") for line in message.splitlines()), message
            assert re.match(r":\d+: ", message.removeprefix(str(file))), message
            assert len(message) < 5000
            outcomes.append("refused")
        file.unlink()
    assert 20 < outcomes.count("accepted") < 200
