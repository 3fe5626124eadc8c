# SPDX-License-Identifier: MIT
"""A real kernel with two memory tiers, timed: what it costs, and what policies do there
(`make test-emulated`). It needs Debian's archive, and minutes."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.emulate import guest, trials
from tuner.emulate.guest import Failed, Timing
from tuner.emulate.machine import PLUGIN, Machine, built_file
from tuner.emulate.measure import compared, measure
from tuner.emulate.plan import Emulated, Request, alike, trial_of
from tuner.run import runner
from tuner.run.trial import Status, StreamRequest, Trial

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        "TIERTUNE_EMULATED" not in os.environ, reason="`make test-emulated` runs it"
    ),
]


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


def trial(policy: str, *, updates_g: float = 0.01, **knobs: Any) -> Trial:
    """GUPS on 128 MiB, of which 13 are hot and were touched late."""
    made = trial_of("gups", engine.policy(policy), knobs, ratio="1:4")
    assert isinstance(made.stream, StreamRequest)
    parameters = made.stream.parameters | {
        "memory_gib": 0.125,
        "hot_gib": 0.0125,
        "updates_g": updates_g,
    }
    return made.model_copy(
        update={"stream": made.stream.model_copy(update={"parameters": parameters})}
    )


def ran(machine: Machine, policy: str, **more: Any) -> tuple[Request, Emulated]:
    request = machine.request(trial(policy, **more))
    return request, machine.run(request)


def test_the_machine_costs_what_it_should(machine: Machine) -> None:
    """Latencies are configured; of the kernel's work a figure is published (docs/emulated.md)."""
    found = {each.what: each for each in measure(machine)}
    for what, within in {
        "a step of a pointer chase, fast": 0.1,
        "a step of a pointer chase, slow": 0.1,
        "a page up, alone": 0.3,
        "a page down, alone": 0.3,
        "a hinting fault": 0.3,
    }.items():
        each = found[what]
        assert each.expected is not None
        assert each.value == pytest.approx(each.expected, rel=within), what


def test_a_run_without_tiering_takes_what_the_simulator_says(machine: Machine) -> None:
    request, found = ran(machine, "first-touch")
    simulated = runner.run(trial("first-touch"))
    rows = {row.what: row.figures for row in compared(request, found, simulated)}
    emulated, said = rows["run time, s"]
    assert emulated == pytest.approx(said, rel=0.05)
    emulated, said = rows["misses served by the fast tier, %"]
    assert emulated == pytest.approx(said, abs=2)
    assert found.operations == {"update": 10_000_000}
    assert sum(found.resident) == request.footprint_bytes // 4096
    # To what the node's free memory is set to, and its watermarks vary by.
    assert found.resident[0] == pytest.approx(request.fast_bytes / 4096, abs=512)


def test_a_run_repeats_to_the_last_counter(machine: Machine) -> None:
    request = machine.request(trial("nbt", updates_g=0.06, scan_period_min=100.0))
    one, two = machine.run(request), machine.boot(request)
    assert one.model_copy(update={"host_seconds": 0}) == two.model_copy(update={"host_seconds": 0})
    assert one.vmstat["numa_hint_faults"] > 0


def test_the_kernel_and_tierd_bring_hot_pages_up(machine: Machine) -> None:
    """NUMA balancing does it by faults, hemem in `tierd` by samples of the machine's sampler."""
    still = ran(machine, "first-touch", updates_g=0.06)[1]
    _, kernel = ran(machine, "nbt", updates_g=0.06, scan_period_min=100.0)
    assert kernel.vmstat["pgpromote_success"] > 1000
    knobs = {"sampling_period": 200, "read_hot_threshold": 2}
    _, tierd = ran(machine, "hemem", updates_g=0.06, **knobs)
    assert tierd.machine["samples"] > 1000
    assert tierd.machine["samples_lost"] == 0
    assert tierd.vmstat["pgpromote_success"] == 0  # it is not the kernel that promotes
    assert "moved" in tierd.console

    def fast_share(run: Emulated) -> float:
        fast, slow = run.machine["misses"]
        return float(fast / (fast + slow))

    assert fast_share(tierd) > fast_share(still) + 0.2
    assert tierd.seconds < 0.95 * still.seconds


def test_numa_balancing_does_what_the_simulator_says(machine: Machine) -> None:
    """With its defaults: run time relative to no tiering within 10 points, and as many promotions
    but for a factor of two (docs/emulated.md tells what is known of the rest)."""
    still = trial("first-touch", updates_g=0.06)
    moved = trial("nbt", updates_g=0.06)
    requests = [machine.request(each) for each in (still, moved)]
    found = [machine.run(request) for request in requests]
    said = [
        runner.run(alike(each, request, run)).metrics
        for each, request, run in zip((still, moved), requests, found, strict=True)
    ]
    relative = found[1].seconds / found[0].seconds
    assert said[1]["seconds"] / said[0]["seconds"] == pytest.approx(relative, abs=0.1)
    promoted = found[1].vmstat["pgpromote_success"]
    assert promoted > 1000
    assert promoted / 2 < said[1]["promotions"] < promoted * 2


def test_a_trial_on_the_machine_is_such_a_run(machine: Machine) -> None:
    """What `tune run --on emulated` does (the run itself is kept)."""
    given = trial("first-touch", updates_g=0.06)
    found = ran(machine, "first-touch", updates_g=0.06)[1]
    scenario = replace(given.scenario, substrate="emulated")
    asked = given.model_copy(update={"scenario": scenario, "emulated": machine.name})
    result = trials.run(asked)
    assert result.status is Status.success, result.error
    assert result.metrics["seconds"] == found.seconds
    assert result.metrics["operations"] == sum(found.operations.values())
    reasons = machine.not_settable("nbt")
    assert "max_scan_rate" in reasons and "hot_threshold" not in reasons


def test_layouts_are_other_runs_of_the_same(machine: Machine) -> None:
    plain = machine.request(trial("first-touch"))
    other = machine.request(trial("first-touch"), layout=1)
    assert plain.key != other.key
    one, two = machine.run(plain), machine.run(other)
    assert one.machine != two.machine
    assert one.seconds == pytest.approx(two.seconds, rel=0.05)


def test_what_cannot_be_timed_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Without -icount there is no clock to move; an option that does not exist is none."""
    command = [
        *machine.tools.qemu.command,
        *("-display", "none", "-nodefaults", "-no-reboot", "-smp", "1", "-m", "64M"),
    ]
    plugin = str(built_file(PLUGIN))
    for options, icount, said in (
        (",end=67108864", [], "QEMU must run with -icount shift=0,sleep=off"),
        (",end=67108864,nonsense=1", ["-icount", "shift=0,sleep=off"], "unknown option nonsense"),
        (",end=0", ["-icount", "shift=0,sleep=off"], "memory ends before it begins"),
    ):
        done = subprocess.run(
            [*command, *icount, "-plugin", plugin + options],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
        )
        assert done.returncode != 0
        assert said in done.stderr


def test_a_guest_that_fails_tells_its_last_words(machine: Machine) -> None:
    with pytest.raises(Failed, match="did not end by itself"):
        guest.boot(
            machine.tools,
            "echo last words; reboot -f\n",
            {},
            timing=Timing(built_file(PLUGIN), {"fast_ps": "90000", "slow_ps": "250000"}),
        )
