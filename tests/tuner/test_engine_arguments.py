# SPDX-License-Identifier: MIT
"""What the engine says of a run that it cannot make sense of: the key, what was found, and what is
allowed. It says so before it looks for the stream."""

from __future__ import annotations

from typing import Any

import pytest

from tuner import engine
from tuner.documents import catalog


def machine(place: str = "", **changed: Any) -> dict[str, Any]:
    """skx as the engine gets it, changed below `place`; None takes a key away."""
    document = catalog.machine("skx").spec.document()
    inner = document
    for key in filter(None, place.split(".")):
        inner[key] = dict(inner[key])
        inner = inner[key]
    inner |= changed
    for key in [key for key, value in changed.items() if value is None]:
        del inner[key]
    return document


def simulate(**changed: Any) -> None:
    run = {"machine": machine(), "policy": "first-touch", "knobs": {}, "fast_share": 0.2} | changed
    engine.native().simulate("nowhere.tts", **{k: v for k, v in run.items() if v is not ...})


OBJECT = {"site": "a", "score": 1.0, "bytes": 4096.0, "slot": 0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": ...}, "simulate: policy: missing"),
        ({"machine": ...}, "simulate: machine: missing"),
        ({"fast_share": ...}, "simulate: fast_share: missing"),
        ({"fast_shares": 0.5}, "simulate: fast_shares: unknown key (allowed: coarse, deadline"),
        ({"threads": "four"}, "simulate: threads: found 'four', expected a number"),
        ({"fast_share": True}, "simulate: fast_share: found True, expected a number"),
        ({"coarse": 1}, "simulate: coarse: found 1, expected true or false"),
        ({"seed": -1}, "simulate: seed: found -1, expected an integer from 0 to 2^64 - 1"),
        ({"page_bytes": 4096.0}, "simulate: page_bytes: found 4096.0, expected an integer"),
        ({"policy": 3}, "simulate: policy: found 3, expected a text"),
        ({"knobs": []}, "simulate: knobs: found [], expected a mapping"),
        ({"placement": {}}, "simulate: placement: found {}, expected a list"),
        ({"placement": [3]}, "simulate: placement: expected a list of mappings"),
        ({"placement": [OBJECT | {"slot": 1 << 32}]}, "simulate: placement[].slot: found 4294967"),
        ({"placement": [OBJECT | {"size": 1}]}, "simulate: placement[].size: unknown key (all"),
        ({"placement": [{"site": "a"}]}, "simulate: placement[].slot: missing"),
        ({"machine": machine(ghz="fast")}, "machine: ghz: found 'fast', expected a number"),
        ({"machine": machine("slow", latency_ns=None)}, "machine: slow.latency_ns: missing"),
        (
            {"machine": machine("fast", loaded=[{"reads": 1.0, "peak": 1.0, "points": [[0.0]]}])},
            "machine: fast.loaded[].points: expected a list of [utilisation, factor]",
        ),
        (
            {"machine": machine("tiering.work_ns", scan_step=None)},
            "machine: tiering.work_ns.scan_step: missing",
        ),
        (
            {"machine": machine("tiering.work_ns", probe="long")},
            "machine: tiering.work_ns.probe: found 'long', expected a number",
        ),
    ],
)
def test_a_run_that_cannot_be_read_names_the_key(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        simulate(**changed)
    assert str(caught.value).startswith(message)


def test_a_run_that_can_be_read_looks_for_its_stream() -> None:
    left_out = {"placement": None, "deadline_seconds": None, "progress": None}
    with pytest.raises(RuntimeError, match=r"nowhere\.tts"):
        simulate(**left_out, seed=7, threads=4, mixed=False)
