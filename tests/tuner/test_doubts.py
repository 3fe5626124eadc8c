# SPDX-License-Identifier: MIT
"""What a study of a recording says against itself: before it begins, and in its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner import cli, engine
from tuner.run import settings
from tuner.run.doubts import PERIODS, doubts
from tuner.study.contender import Contender, Kind
from tuner.study.verdict import decide


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def recording(seconds: float, accesses: int, *words: str) -> None:
    """trace.yaml: so many accesses, one page after the other, spread over so many seconds."""
    rows = 100
    text = "time,address,kind,count\n" + "".join(
        f"{i * seconds * 1e9 / (rows - 1):.0f},{4096 * i},load,{accesses // rows}\n"
        for i in range(rows)
    )
    Path("in.csv").write_text(text)
    assert cli.main(["import", "in.csv", "--format", "csv", "--force", *words]) == 0


def found(policy: str, *rivals: str, workload: str = "./trace.yaml") -> list[str]:
    setting = settings.resolve(workload, policy=engine.policy(policy))
    return doubts(setting, [engine.policy(name) for name in rivals])


def test_a_recording_must_be_longer_than_policies_look_back(folder: Path) -> None:
    """multiclock's daemon wakes every second, nimble's every five."""
    recording(2, 10_000)
    (short,) = found("multiclock")
    assert short.startswith(
        "the recording has 2 s, less than 3 times what these policies look back"
    )
    assert "multiclock (kpromoted_period 1 s); one of 3 s helps" in short
    recording(4, 10_000)
    assert found("multiclock") == []
    (short,) = found("multiclock", "nimble")
    assert "nimble (manage_period 5 s); one of 15 s helps" in short
    recording(16, 10_000)
    assert found("multiclock", "nimble") == []


def test_knobs_without_effect_do_not_count(folder: Path) -> None:
    """Alto's regulation, which all policies have, looks at a second: but it is off."""
    declared = {knob.name: knob for knob in engine.policy("hemem").knobs}
    assert (declared["aol.interval"].default, declared["aol.interval"].unit) == (1000, "ms")
    assert declared["migration_period"].default == 10
    recording(0.02, 10_000)
    (short,) = found("hemem")
    assert "hemem (migration_period 0.01 s)" in short
    recording(0.04, 10_000)
    assert found("hemem") == []


def test_a_policy_must_get_the_samples_that_it_counts_to(folder: Path) -> None:
    """memtis cools every 2 million samples of one load in 200."""
    enough = PERIODS * 2_000_000 * 200
    recording(100, enough + 1000)
    assert found("memtis") == []
    recording(100, enough // 4)
    (few,) = found("memtis")
    assert "memtis (cooling_period 2,000,000 samples)" in few
    assert re.search(r"a recording 4(\.0)? times as long helps", few)


def test_a_miniature_stands_for_all_its_accesses(folder: Path) -> None:
    recording(100, PERIODS * 2_000_000 * 200 + 1000)
    assert found("memtis") == []
    recording(100, 10 * PERIODS * 2_000_000 * 200, "--scale", "10")
    assert found("memtis") == []


def test_a_recording_must_have_samples_itself(folder: Path) -> None:
    recording(100, 1000, "--period", "1000")  # ten samples of a page
    doubt = found("first-touch")
    assert [text for text in doubt if "uncertain by 32 % (more than 25 %)" in text]
    recording(100, 10_000, "--period", "1000")
    assert found("first-touch") == []


def test_kernels_are_as_long_as_they_must_be(folder: Path) -> None:
    assert found("hybridtier", workload="gups") == []


def test_a_verdict_carries_its_doubts() -> None:
    contenders = [
        Contender(kind=kind, policy=policy, page_bytes=4096, values=[1.0, 1.1])
        for kind, policy in ((Kind.off, "first-touch"), (Kind.untuned, "tpp"), (Kind.tuned, "tpp"))
    ]
    known = {"objective": "runtime", "trials": 3, "policy": "tpp"}
    verdict = decide(contenders, **known, doubts=["it is short", "it is sparse"], not_run=["nbt"])  # type: ignore[arg-type]
    assert verdict.uncovered == (
        "in doubt: it is short. in doubt: it is sparse. 1 other policy was not run, so the advice "
        "does not cover nbt"
    )
    assert decide(contenders, **known).uncovered is None  # type: ignore[arg-type]
