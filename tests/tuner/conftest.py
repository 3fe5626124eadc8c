"""Declarations and documents that the tuner's tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner import engine

KNOBS: list[dict[str, Any]] = [
    {
        "name": "threshold",
        "type": "integer",
        "default": 5,
        "min": 1,
        "max": 100,
        "log": True,
        "unit": "count_per_page",
        "meaning": "Accesses that make a page hot.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "period",
        "type": "real",
        "default": 1.5,
        "min": 0.5,
        "max": 10.0,
        "log": False,
        "unit": "milliseconds",
        "meaning": "Time between two passes.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "mode",
        "type": "choice",
        "default": "paper",
        "min": 0,
        "max": 0,
        "log": False,
        "unit": "none",
        "meaning": "Which rule.",
        "source": "test",
        "choices": ["paper", "artifact", "both"],
        "condition": None,
    },
    {
        "name": "aol.enabled",
        "type": "boolean",
        "default": False,
        "min": 0,
        "max": 0,
        "log": False,
        "unit": "none",
        "meaning": "Regulation by AOL.",
        "source": "test",
        "choices": [],
        "condition": None,
    },
    {
        "name": "aol.low",
        "type": "real",
        "default": 40.0,
        "min": 1.0,
        "max": 400.0,
        "log": False,
        "unit": "cycles",
        "meaning": "Below it nothing is promoted.",
        "source": "test",
        "choices": [],
        "condition": {"parent": "aol.enabled", "values": [True]},
    },
]

POLICIES: list[dict[str, Any]] = [
    {
        "name": "toy",
        "family": "test",
        "summary": "A policy of the tests.",
        "citation": "nobody, 2026",
        "traits": {"page_bytes": 4096},
        "knobs": KNOBS,
    }
]

KERNELS: list[dict[str, Any]] = [
    {
        "name": "walk",
        "summary": "Walks.",
        "parameters": [
            {"name": "keys", "default": 1000, "unit": "", "meaning": "how many"},
            {"name": "skew", "default": 0.9, "unit": "", "meaning": "how skewed"},
            {"name": "shift", "default": False, "unit": "", "meaning": "whether it shifts"},
            {"name": "mix", "default": [0.5, 0.5], "unit": "", "meaning": "of what"},
            {"name": "order", "default": "random", "unit": "", "meaning": "in which order"},
        ],
    }
]

WORKLOAD = """\
# A workload of the tests.
name: walker
summary: walks
sources: [nobody]
kernel: walk
operation: step
objective: throughput
objectives: [throughput, p50]
footprint_gib: 8
scale: 64
threads: 16
machine: testbed
default_input: big
smoke_input: small
inputs:
  big:
    summary: the big one
    parameters: {keys: 5000, skew: 1, mix: [0.1, 0.9]}
  small:
    summary: the small one
    scale: 4096
    parameters:
      keys: 10
      order: linear
"""

MACHINE = """\
name: testbed
summary: a machine of the tests
sources: [nobody]
ghz: 2.5
cores: 16
threads: 16
llc_mib: 24
fast: {latency_ns: 80, read_gbps: 100, write_gbps: 100, total_gbps: 120, store_stall: 0.1,
       loaded: [[0, 1], [0.9, 1.5], [1, 4]]}
slow: {latency_ns: 200, read_gbps: 30, write_gbps: 20, store_stall: 0.2, loaded: [[0, 1], [1, 3]]}
tiering:
  migration_fixed_us: 2
  migration_copy_gbps: 5
  migration_shootdown_us: 1
  sample_assist_ns: 200
  sample_drain_ns: 100
  work_ns: {tracker_update: 20, tracker_lookup: 15, cooling_step: 5, scan_step: 30,
            threshold_pass: 1000}
  huge_page_gain: 0.1
  daemon_shares_cores: false
  sample_queue: 65536
"""

SPACE = """\
policy: toy
summary: all of it
knobs:
  threshold: {max: 50}
  period: {}
  mode: {choices: [paper, both]}
  aol.enabled: {}
  aol.low: {}
"""


@pytest.fixture
def toy_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that declares one policy and one kernel and cannot run anything."""
    policies = {p["name"]: engine.PolicyDecl.model_validate(p) for p in POLICIES}
    kernels = {k["name"]: engine.KernelDecl.model_validate(k) for k in KERNELS}
    monkeypatch.setattr(engine, "policies", lambda: policies)
    monkeypatch.setattr(engine, "kernels", lambda: kernels)


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_engine: None) -> Path:
    """The current directory of a user with a workload, a machine and a space of their own."""
    for folder, name, text in (
        ("workloads", "walker", WORKLOAD),
        ("machines", "testbed", MACHINE),
        ("spaces", "toy", SPACE),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path
