# SPDX-License-Identifier: MIT
"""Recordings that stand for a server: larger, longer, and said wherever their results are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.documents import catalog
from tuner.documents.document import Document
from tuner.documents.workload import StandsFor, WorkloadSpec
from tuner.record import stand_in
from tuner.run import runner, settings
from tuner.run.doubts import doubts

PAGE, MIB, GIB = 4096, 1 << 20, 1 << 30
PAGES, BLOCKS, BLOCK_MS = 3000, 200, 10

Tune = Callable[..., Any]


def write(hot: Sequence[int], path: str = "in.csv") -> None:
    """Two seconds of accesses: a tenth of all pages is hot, from page `hot[i]` on, in as many equal
    parts as there are."""
    rng = random.Random(5)
    rows = ["time,address,kind,count"]
    for block in range(BLOCKS):
        first = hot[block * len(hot) // BLOCKS]
        for _ in range(250):
            any_page = rng.random() < 0.2
            page = rng.randrange(PAGES) if any_page else first + rng.randrange(PAGES // 10)
            rows.append(f"{block * BLOCK_MS * 1_000_000},{PAGE * page},load,40")
    Path(path).write_text("\n".join(rows) + "\n")


def imported(tune: Tune, *words: str, code: int = 0) -> Any:
    return tune("import", "in.csv", "--format", "csv", "--force", *words, code=code)


def spec(path: str = "trace.yaml") -> WorkloadSpec:
    return Document.read(Path(path)).parse(WorkloadSpec)


def stands_for(path: str = "trace.yaml") -> StandsFor:
    sampling = spec(path).inputs["recorded"].sampling
    assert sampling is not None and sampling.stands_for is not None
    return sampling.stands_for


def test_size_scale_and_time_grow_together(tune: Tune) -> None:
    write([0])
    small = imported(tune)
    before = engine.stream_info(Path("trace.tts"))
    large = imported(tune, "--stands-for", "16x", "--stretch-to", "0")
    after = engine.stream_info(Path("trace.tts"))
    assert after["scale"] == 16
    assert after["accesses"] == before["accesses"]
    assert large["footprint_bytes"] == 16 * small["footprint_bytes"]
    assert large["nominal_seconds"] == pytest.approx(16 * small["nominal_seconds"])
    assert spec().scale == 16
    assert spec().footprint_gib == large["footprint_bytes"] / GIB
    assert "--stands-for 16x" in spec().sources[0]
    assert catalog.workload("./trace.yaml").spec.threads == small["threads"]
    known = stands_for()
    assert (known.factor, known.passes, known.alike) == (16, 1, None)
    assert known.recorded_gib == small["footprint_bytes"] / GIB
    assert known.recorded_seconds == pytest.approx(small["nominal_seconds"])


def test_a_size_in_gib_and_more_threads(tune: Tune) -> None:
    write([0])
    small = imported(tune)
    words = ["--stands-for", "1.5GiB", "--stretch-to", "0", "--server-threads", "8"]
    large = imported(tune, *words)
    factor = 1.5 * GIB / small["footprint_bytes"]
    assert large["footprint_bytes"] == pytest.approx(1.5 * GIB)
    assert spec().threads == 8
    assert large["nominal_seconds"] == pytest.approx(small["nominal_seconds"] * factor / 8)
    # It runs as what it stands for: with a fast tier of its own size.
    setting = settings.resolve("./trace.yaml", policy=engine.policy("first-touch"))
    result = runner.run(setting.trial(0, {}))
    assert result.error == ""
    assert setting.scenario.scale == pytest.approx(factor)


def test_a_steady_recording_is_repeated_until_policies_have_time(tune: Tune) -> None:
    write([0])
    imported(tune, "--stands-for", "2x")
    known = stands_for()
    seconds = engine.stream_info(Path("trace.tts"))["nominal_seconds"]
    assert known.passes > 10
    assert known.alike is not None and known.alike > stand_in.ALIKE
    assert seconds >= 180  # three times the longest look-back of a policy, a minute
    said = doubts(
        settings.resolve("./trace.yaml", policy=engine.policy("nimble")), [engine.policy("tpp")]
    )
    (only,) = said
    assert only.startswith("the recording stands for 2 times the 0.011")
    assert f"comes {known.passes} times" in only


def test_what_moves_is_not_repeated(tune: Tune) -> None:
    """The hot pages are others in each sixteenth of the time."""
    write(list(range(0, 2560, 160)))
    made = imported(tune, "--stands-for", "2x")
    assert "no phase of it is steady" in made["too_short"]
    assert stands_for().passes == 1
    (_, short) = doubts(settings.resolve("./trace.yaml", policy=engine.policy("nimble")))
    assert "less than 3 times" in short and "resize" not in short


def test_of_two_phases_the_longer_one_is_repeated(tune: Tune) -> None:
    write([0, 1000, 1000, 1000])
    imported(tune, "--stands-for", "1x", "--stretch-to", "20")
    known = stands_for()
    assert known.factor == 1
    assert known.steady_from == pytest.approx(known.recorded_seconds / 4, abs=0.02)
    assert known.steady_to == pytest.approx(known.recorded_seconds, abs=0.02)
    assert known.steady_from is not None and known.steady_to is not None
    phase = known.steady_to - known.steady_from
    assert known.passes == 1 + math.ceil((20 - known.recorded_seconds) / phase)
    assert "more than their 1.99 s" in known.describe()


def test_a_recorded_workload_is_made_larger_later(tune: Tune) -> None:
    write([0])
    imported(tune)
    text = Path("trace.yaml").read_text()
    Path("trace.yaml").write_text(text.replace("summary: imported", "summary: mine, imported"))
    made = tune("workload", "resize", "./trace.yaml", "--stands-for", "64MiB", "-o", "big.tts")
    assert made["footprint_bytes"] == pytest.approx(64 * MIB)
    big = catalog.workload("./big.yaml").spec
    assert big.summary.startswith("mine, imported")
    assert big.sources[0] == spec().sources[0]
    assert "tune workload resize --stands-for 64.0MiB ./trace.yaml" in big.sources[1]
    shown = tune("workload", "show", "./big.yaml", "--out", "shown")
    assert shown["stands_for"]["factor"] == pytest.approx(made["stands_for"]["factor"])
    assert "; it stands for" in shown["how"]
    assert engine.stream_info(Path("trace.tts"))["scale"] == 1  # what was recorded stays
    again = tune("workload", "resize", "./big.yaml", "--stands-for", "2x", "-o", "more.tts", code=2)
    assert "sampling.stands_for: it stands for" in again
    assert "already; resize what it was made from" in again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stands-for", "1MiB"], "must be at least what was recorded, 11."),
        (["--stands-for", "900TiB"], "must be at most 1,048,576: record more than 11."),
        (["--stretch-to", "5"], "--stretch-to: belongs to --stands-for"),
        (["--server-threads", "5"], "--server-threads: belongs to --stands-for"),
    ],
)
def test_what_cannot_be_is_refused(tune: Tune, words: Sequence[str], message: str) -> None:
    write([0])
    assert message in imported(tune, *words, code=2)


@pytest.mark.parametrize("text", ["200", "0.5x", "x", "200GB", "-1GiB", "nanx"])
def test_a_size_needs_a_unit(tune: Tune, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        tune("import", "in.csv", "--format", "csv", f"--stands-for={text}")
    assert ended.value.code == 2


def test_kernels_have_sizes_of_their_own(tune: Tune) -> None:
    message = tune("workload", "resize", "redis", "--stands-for", "2x", "-o", "a.tts", code=2)
    assert "redis is no recording: `--set footprint_gib=N`" in message


def test_the_cache_shrinks_with_the_data(tune: Tune) -> None:
    """lackey's accesses go through the machine's cache: of the server's, the copy's share."""
    data = str(Path(__file__).parent / "data" / "lackey.txt")
    tune("import", data, "--format", "lackey", "--stands-for", "16x")
    whole = catalog.machine("skx").spec.llc_mib
    assert stands_for().llc_mib == pytest.approx(whole / 16)
    setting = settings.resolve("./trace.yaml", policy=engine.policy("first-touch"))
    assert not any("cache" in text for text in doubts(setting))
    tune("import", data, "--format", "lackey", "--stands-for", "1GiB", "--force")
    assert stands_for().llc_mib == pytest.approx(whole)
    found = doubts(settings.resolve("./trace.yaml", policy=engine.policy("first-touch")))
    (cache,) = [text for text in found if "cache" in text]
    assert "recorded behind a cache of 13.8 MiB" in cache
    assert "more of the accesses hit than on the server" in cache


def test_what_is_too_coarse_needs_more_data(tune: Tune) -> None:
    """The scale of a recording is what it is: a smaller one is no remedy."""
    write([0])
    imported(tune, "--stands-for", "16x", "--stretch-to", "0")
    setting = settings.resolve("./trace.yaml", policy=engine.policy("first-touch"), ratio="1:99")
    error = runner.run(setting.trial(0, {})).error
    assert "at least 256. What helps: a recording of more data; --fast-gib 0.02 or more" in error
    assert "--scale" not in error
