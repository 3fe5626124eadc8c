# SPDX-License-Identifier: MIT
"""Measured loaded latency: the shipped curves, and how well those of some mixes predict another."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from pathlib import Path
from statistics import mean

import pytest
from conftest import FakeNative

from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.machine import MeasuredCurve, TierSpec
from tuner.errors import UserError

NAMES = catalog.names(Kind.curves)


def shipped(name: str) -> list[MeasuredCurve]:
    return sorted(catalog.curves(name).spec.curves, key=lambda c: c.reads)


def along(points: list[list[float]], x: float) -> float:
    places = [point[0] for point in points]
    i = min(max(bisect_left(places, x), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y1 if x >= x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def predicted(others: list[MeasuredCurve], reads: float, gbps: float) -> float:
    """Factor on the idle latency, as the engine has it (engine/sim/README.md, loaded latency)."""
    tier = TierSpec(latency_ns=1, read_gbps=1, write_gbps=1, store_stall=0, curves=others)
    curves = tier.document()["loaded"]
    above = next(i for i, curve in enumerate(curves) if curve["reads"] >= reads)
    low, high = curves[above - 1], curves[above]
    weight = (reads - low["reads"]) / (high["reads"] - low["reads"])
    most = max(curve.points[-1][0] for curve in others)
    peak = most * (low["peak"] + weight * (high["peak"] - low["peak"]))
    fewer, more = (along(curve["points"], gbps / peak) for curve in (low, high))
    return float(fewer + weight * (more - fewer))


@pytest.mark.parametrize("name", NAMES)
def test_the_curves_of_other_mixes_predict_a_mix(name: str) -> None:
    curves = shipped(name)
    errors, below_saturation = [], []
    for out in curves[1:-1]:
        idle = out.points[0][1]
        for gbps, ns in out.points[1:]:
            others = [curve for curve in curves if curve is not out]
            error = abs(predicted(others, out.reads, gbps) * idle / ns - 1)
            errors.append(error)
            if gbps < 0.9 * out.points[-1][0]:
                below_saturation.append(error)
    assert mean(errors) < 0.04, f"{mean(errors):.4f}"
    assert mean(below_saturation) < 0.015, f"{mean(below_saturation):.4f}"


@pytest.mark.parametrize("name", NAMES)
def test_writes_cost_latency(name: str) -> None:
    """At a load that every mix can have."""
    curves = shipped(name)
    gbps = 0.8 * min(curve.points[-1][0] for curve in curves)
    fewest, most = (
        along(curve.points, gbps) / curve.points[0][1] for curve in (curves[0], curves[-1])
    )
    assert fewest > most


def test_every_machine_has_one_curve_or_measured_ones() -> None:
    for entry in catalog.load_all(Kind.machine, catalog.machine)[0]:
        for tier in (entry.spec.fast, entry.spec.slow):
            curves = tier.document()["loaded"]
            assert all(a["reads"] < b["reads"] for a, b in itertools.pairwise(curves))
            assert max(curve["peak"] for curve in curves) == 1
            assert all(curve["points"][0] == [0, 1] for curve in curves)


def test_unknown_curves_are_named_with_their_place(fake: FakeNative) -> None:
    path = Path("machines/testbed.yaml")
    text = path.read_text()
    path.write_text(text.replace("loaded: [[0, 1], [1, 3]]", "curves: cascade"))
    with pytest.raises(UserError, match=r"testbed.yaml:\d+: slow.curves: .*'cascade'"):
        catalog.machine("testbed")
