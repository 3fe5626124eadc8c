# SPDX-License-Identifier: MIT
"""The kernels as programs: what they do is what their recorded streams say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.emulate.machine import WORKLOAD, built_file
from tuner.emulate.plan import program_words
from tuner.errors import UserError
from tuner.run import settings, streams
from tuner.run.trial import StreamRequest

GUPS = ("gups", "--set", "memory_gib=0.0625", "--set", "hot_gib=0.00625", "--set", "updates_g=5e-5")
PAGES = 16_384  # of GUPS


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return built_file(WORKLOAD)
    except UserError as error:
        pytest.skip(str(error))


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def lines(program: Path, *words: str) -> list[dict[str, Any]]:
    ran = run(program, "run", *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_all_kernels_are_programs(program: Path) -> None:
    ran = run(program, "list")
    assert json.loads(ran.stdout) == sorted(engine.kernels())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage: tiertune_workload list | run KERNEL"),
        (["run"], "run: which kernel?"),
        (["run", "gupz"], "unknown kernel 'gupz'; known: bc, bfs"),
        (["run", "gups", "--seeds", "1"], "unknown option --seeds"),
        (["run", "gups", "--seed"], "--seed: a value is missing"),
        (["run", "gups", "--seed", "x"], "--seed: found 'x'; must be a whole number"),
        (["run", "gups", "--seed", "-1"], "--seed: found '-1'; must be a whole number"),
        (["run", "gups", "--scale", "2x"], "--scale: found '2x'; must be a number"),
        (["run", "gups", "--scale", "0"], "scale: found 0, expected a number above 0"),
        (["run", "gups", "--set", "hot"], "--set: found 'hot'; must be NAME=VALUE"),
        (["run", "gups", "--set", "cold=1"], "kernel gups has no parameter cold"),
        (["run", "gups", "--set", "hot_gib=x"], "--set: hot_gib: found 'x'; must be a number"),
        (["run", "gups", "--set", "hot_share=2"], "parameter hot_share: found 2, allowed 0 to 1"),
        (["run", "silo", "--set", "scrambled=1"], "scrambled: found '1'; must be true or false"),
        (["run", "redis"], "redis runs for a time: it needs --operations and --seconds"),
        (["run", "redis", "--operations", "9"], "redis runs for a time: it needs --operations"),
    ],
)
def test_what_cannot_run_is_told_in_one_line(program: Path, words: list[str], said: str) -> None:
    ran = run(program, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("tiertune_workload: ")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_program_tells_its_timed_part_and_what_is_resident(program: Path) -> None:
    names = "pgfault,nosuch_counter"
    begin, *between, end = lines(program, *GUPS, "--vmstat", names)
    assert begin["begin"] is True
    least, low, high = begin["marks"]
    assert 0 < least < low < high
    done = [line["done"] for line in between]
    assert done == sorted(done)
    assert set(end["vmstat"]) == {"pgfault"}  # what the kernel does not count is left out
    assert end["operations"] == {"update": 50_000}
    assert sum(end["resident"]) + end["elsewhere"] == PAGES
    assert end["absent"] == 0
    assert end["seconds"] > 0
    # The table was written before the timed part.
    assert end["faults"]["minor"] < PAGES / 2


def test_the_same_seed_gives_the_same_run(program: Path) -> None:
    words = ("xsbench", "--scale", "20000", "--set", "particles_m=1")
    first, second = (lines(program, *words)[-1] for _ in range(2))
    told = ("operations", "resident", "absent", "elsewhere")
    assert [first[name] for name in told] == [second[name] for name in told]


def test_work_goes_by_operations_and_not_by_time(program: Path) -> None:
    words = ("redis", "--scale", "5000", "--set", "duration_s=3", "--seconds", "3")
    for operations in (500, 1000):
        end = lines(program, *words, "--operations", str(operations))[-1]
        assert sum(end["operations"].values()) == operations


@pytest.mark.parametrize("workload", catalog.names(Kind.workload))
def test_every_workload_has_an_input_that_fits_into_the_emulated_machine(workload: str) -> None:
    spec = catalog.workload(workload).spec
    fits = spec.inputs["emulated"]
    assert fits.scale == 1
    assert fits.footprint_gib is not None
    assert 0.25 <= fits.footprint_gib <= 1
    # What the default input does, only less of it: so texts and switches are its own.
    own = spec.inputs[spec.default_input].parameters
    for name, value in fits.parameters.items():
        if isinstance(value, str | bool):
            assert own[name] == value


@pytest.mark.slow
@pytest.mark.parametrize("workload", catalog.names(Kind.workload))
def test_a_program_does_what_its_stream_says(
    program: Path, workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many operations, and the same pages: those of an object that is not freed are resident
    if and only if they were accessed."""
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path))
    spec = catalog.workload(workload).spec
    setting = settings.resolve(
        workload,
        policy=engine.policy("first-touch"),
        study="native",
        input=spec.smoke_input,
        threads=1.0,
    )
    stream = setting.trial(0, {}).stream
    path = streams.ensure(stream)
    info = engine.stream_info(path)
    found = engine.characteristics(path, rows=1, columns=1)
    assert isinstance(stream, StreamRequest)
    words = program_words(
        stream.kernel,
        stream.parameters,
        scale=stream.scale,
        seed=stream.seed,
        operations=info["operations"],
        seconds=info["nominal_seconds"],
    )
    assert spec.kernel is not None
    lasts = any(
        parameter.name == "duration_s" for parameter in engine.kernels()[spec.kernel].parameters
    )
    if lasts and info["operations"] == 0:
        ran = run(program, *words)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "needs --operations" in ran.stderr
        return
    end = lines(program, *words[1:])[-1]
    assert sum(end["operations"].values()) == info["operations"]
    kept = sum(site["pages"] for site in found["sites"] if site["freed"] == 0)
    resident = sum(end["resident"]) + end["elsewhere"]
    if lasts:  # set-up that ends by the time ends a little earlier or later
        assert resident == pytest.approx(kept, rel=0.02)
    else:
        assert resident == kept
