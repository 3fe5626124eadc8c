# SPDX-License-Identifier: MIT
"""`tune verify --on live` that is stopped and goes on, with a tierd that moves nothing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_compare import Inline
from test_live_trials import Fake, fake, inline, read, script, wait_for
from test_verify import study

from tuner import cli
from tuner.emulate import live
from tuner.errors import UserError
from tuner.experiment import verify
from tuner.run import host, pools
from tuner.run.trial import TrialResult
from tuner.study.contender import Kind
from tuner.study.log import StudyLog
from tuner.study.sessions import FILE, Runs
from tuner.study.verdict import Advice, Verdict
from tuner.study.verified import Candidate, Session, Verified, over_sessions

__all__ = ["fake", "inline"]

COUNTED = """echo "$TUNE_POLICY" >> ran
if [ -e stop ] && [ $(wc -l < ran) -ge $(cat stop) ]; then read line < fifo; fi
if [ -e broken ]; then exit 5; fi
if [ "$TUNE_POLICY" = nbt ]; then
  awk "BEGIN {print \\"took\\", 50 + $TUNE_KNOB_hot_threshold / 50}"
else
  echo took 90
fi"""
"""Notes that it runs, and waits for the fifo at a run, or fails, if it is told to."""


SLOWER = """took=$(( 70 + $(echo "$TUNE_POLICY" | wc -c) ))
if [ -e slower ]; then took=$(( 2 * took )); fi
echo took $took"""


@pytest.fixture
def words(inline: Fake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command, on a study that is on the disk: two rounds of three configurations."""
    monkeypatch.setattr(verify, "_simulated", lambda *_: 4.0)
    data = study(Path("results/sim"), "--name", "sim")
    with StudyLog(data.directory, data.header) as log:
        for trial in data.trials:
            log.asked(trial.number, trial.origin, trial.knobs)
            assert trial.result is not None
            log.finished(trial.result)
    return [
        *("verify", "sim", "--on", "live", "--top", "1", "--layouts", "2"),
        *("--command", script(COUNTED), "--metric", "took ([0-9.]+)"),
    ]


def runs() -> list[str]:
    return read("ran").split()


def stopped_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """By Ctrl-C, when so many runs have ended."""
    left = count

    class Stopping(Inline):
        def wait(self, timeout: float) -> list[TrialResult]:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return super().wait(timeout)

    monkeypatch.setattr(pools, "open_pool", Stopping)


def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "open_pool", Inline)


def found() -> Any:
    return json.loads(Path("results/sim/verified.json").read_text())


# --- It goes on -----------------------------------------------------------------------------------

DRIVER = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_compare import Inline
from tuner import cli, tierd
from tuner.commands import verify as command
from tuner.emulate import live
from tuner.errors import UserError
from tuner.experiment import verify
from tuner.run import host, pools
tierd.find = lambda: Path("tierd").absolute()
live.NODES, live.TIERS, live.APPLIED = Path("nodes"), Path("tiers"), Path("nothing")
host.LOCK, host.CACHES, host.SETTLE_SECONDS = Path("nodes"), Path("caches"), 0
pools.open_pool = Inline
verify._simulated = lambda *_: 4.0
cli.main({words!r})
"""


def test_one_that_is_killed_goes_on(
    words: list[str], fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(__file__).parent
    text = DRIVER.format(paths=[str(here), str(here.parents[1])], words=words)
    os.mkfifo("fifo")
    Path("stop").write_text("5")
    with (
        Path("fifo").open("r+b", 0),
        subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE) as driver,
    ):
        wait_for(lambda: Path("ran").is_file() and len(runs()) == 5)
        driver.send_signal(signal.SIGKILL)
    os.close(host.locked(wait=True))  # the guard has undone all
    Path("stop").unlink()
    Path("ran").write_text("")
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "note: of 6 runs 4 are there already (4 from 20" in said.err
    assert runs() == ["nbt", "nbt"]
    assert "Measured in 2 sessions: 4 runs from 20" in said.out
    assert "Round 2: not all of it is of one session" in said.out
    kept = found()
    assert [each["sessions"] for each in kept["candidates"]] == [[0, 0], [0, 1], [0, 1]]
    assert [each["runs"] for each in kept["sessions"]] == [4, 2]
    assert kept["winner"] == 3
    # What has ended is not gone on with: the same command is another measurement.
    assert not Path("results/sim", FILE).exists()
    Path("ran").write_text("")
    assert cli.main(words) == 0
    assert len(runs()) == 6
    assert "session" not in capsys.readouterr().out


def test_ctrl_c_says_what_is_kept(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_after(monkeypatch, 1)
    assert cli.main(words) == 130
    assert "stopped: each run is kept; repeat the command to continue" in capsys.readouterr().err
    stopped_after(monkeypatch, 3)
    assert cli.main(words) == 130
    assert "1 are there already" in capsys.readouterr().err
    undisturbed(monkeypatch)
    assert cli.main(words) == 0
    assert "4 are there already (1 from 20" in capsys.readouterr().err
    assert [each["runs"] for each in found()["sessions"]] == [1, 3, 2]
    assert len(runs()) == 6


def test_a_machine_that_has_changed_is_said_at_once(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words[words.index("--command") + 1] = script(SLOWER)
    stopped_after(monkeypatch, 7)
    assert cli.main([*words, "--layouts", "4"]) == 130
    assert "the session of" not in capsys.readouterr().err.lower()
    Path("slower").write_text("")
    stopped_after(monkeypatch, 1)
    assert cli.main([*words, "--layouts", "4"]) == 130
    said = capsys.readouterr().err
    assert "the defaults ran 50.0 % slower than before, and chance does no more than" in said
    assert said.index("the defaults ran") < said.index("stopped: each run is kept")


def test_what_is_whole_needs_no_run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed before verified.json was written."""
    stopped_after(monkeypatch, 6)

    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verify, "judge", killed)
        assert cli.main(words) == 130
    stopped_after(monkeypatch, 0)
    assert cli.main(words) == 0
    assert len(runs()) == 6
    assert [each["runs"] for each in found()["sessions"]] == [6]


def test_a_run_that_failed_is_tried_again(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("broken").write_text("")
    stopped_after(monkeypatch, 3)
    assert cli.main(words) == 130
    Path("broken").unlink()
    undisturbed(monkeypatch)
    assert cli.main(words) == 0
    assert len(runs()) == 3 + 6
    assert all(None not in each["values"] for each in found()["candidates"])


def test_more_configurations_and_rounds_may_be_asked_for(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(monkeypatch, 5)
    assert cli.main(words) == 130
    undisturbed(monkeypatch)
    assert cli.main([*words, "--top", "2", "--layouts", "3"]) == 0
    assert len(runs()) == 4 * 3
    assert sum(each["runs"] for each in found()["sessions"]) == 12


# --- It does not go on ----------------------------------------------------------------------------


def test_other_conditions_are_refused_and_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_after(monkeypatch, 4)
    assert cli.main(words) == 130
    capsys.readouterr()
    undisturbed(monkeypatch)
    monkeypatch.setattr(live, "host_of", lambda _: "Linux 9.9, tierd 1.2.3")
    other = [*words, "--pin", str(min(os.sched_getaffinity(0)))]
    other[other.index("--metric") + 1] = "took ([0-9]+)"
    assert cli.main(other) == 2
    said = capsys.readouterr().err
    assert f"results/sim/{FILE} has 4 runs under other conditions:\n" in said
    assert "\n  --metric: was took ([0-9.]+); is took ([0-9]+)\n" in said
    assert f"\n  kernel and tierd: was Linux {os.uname().release}, tierd 1.2.3, policies 01" in said
    assert "; is Linux 9.9, tierd 1.2.3\n" in said
    assert "--for" not in said
    assert "--anew drops the runs and measures all again" in said
    assert len(runs()) == 4
    assert cli.main([*other, "--anew"]) == 0
    assert len(runs()) == 4 + 6
    assert len(found()["sessions"]) == 1


def test_another_program_of_that_name_is_another_condition(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words[words.index("--command") + 1] = "./bench"
    bench = Path("bench")
    for change in ("", "# faster\n"):
        bench.write_text(f"#!/bin/sh\n{change}{COUNTED}\n")
        bench.chmod(0o755)
        stopped_after(monkeypatch, 1)
        assert cli.main(words) == (2 if change else 130)
    assert "its program: was ./bench, SHA-256 " in capsys.readouterr().err


def test_conditions_of_no_run_hinder_nobody(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(monkeypatch, 0)
    assert cli.main(words) == 130
    undisturbed(monkeypatch)
    monkeypatch.setattr(live, "host_of", lambda _: "Linux 9.9, tierd 1.2.3")
    assert cli.main(words) == 0


@pytest.mark.parametrize(
    ("harm", "left", "said"),
    [
        (lambda data: data[:-20], 3, ""),
        (
            lambda data: data.replace(b"took", b"Took"),
            None,
            "line 2: was written under another first line",
        ),
        (lambda data: data.replace(b'"objective":', b'"0bjective":', 1), 3, "line 2: its checksum"),
        (lambda data: b"{}" + data[data.index(b"\n") :], None, "line 1: is damaged; --anew"),
        (lambda data: data[:30], 0, ""),
    ],
)
def test_what_is_damaged_is_measured_again(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[bytes], bytes],
    left: int | None,
    said: str,
) -> None:
    stopped_after(monkeypatch, 4)
    assert cli.main(words) == 130
    path = Path("results/sim", FILE)
    path.write_bytes(harm(path.read_bytes()))
    undisturbed(monkeypatch)
    assert cli.main(words) == (0 if left is not None else 2)
    assert said in capsys.readouterr().err
    assert len(runs()) == 4 + (0 if left is None else 6 - left)
    if left is None:
        assert cli.main([*words, "--anew"]) == 0


def test_two_at_once_do_not_mix(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nested(Inline):
        def wait(self, timeout: float) -> list[TrialResult]:
            undisturbed(monkeypatch)
            assert cli.main(words) == 2
            assert "another `tune verify` writes to it" in capsys.readouterr().err
            raise KeyboardInterrupt

    monkeypatch.setattr(pools, "open_pool", Nested)
    assert cli.main(words) == 130


def test_runs_are_not_added_to_a_file_that_is_gone(tmp_path: Path) -> None:
    """Of another process that ends between the opening of the file and its lock."""
    first = Runs(tmp_path, {"a": "b"}, anew=False)
    original = fcntl.flock

    def flock(file: Any, how: int) -> None:
        first.done()
        original(file, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        with pytest.raises(UserError, match="another `tune verify` writes to it"):
            Runs(tmp_path, {"a": "b"}, anew=False)
    Runs(tmp_path, {"a": "b"}, anew=False).close()


def test_the_emulated_machine_has_nothing_to_measure_anew(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", "sim", "--anew"]) == 2
    assert "--anew: is of --on live" in capsys.readouterr().err


# --- What sessions do to the comparison -----------------------------------------------------------

SESSIONS = [
    Session(began="2026-03-01T10:00:00.000+00:00", ended="2026-03-01T11:30:00+00:00", runs=4),
    Session(began="2026-03-02T22:00:00.000+00:00", ended="2026-03-03T01:00:00+00:00", runs=6),
]


def between(
    default: Sequence[float | None], best: Sequence[float | None], sessions: list[int]
) -> list[str]:
    candidates = [
        Candidate(
            name=name,
            kind=kind,
            policy="nbt",
            trial=trial,
            knobs={},
            simulated=None,
            values=list(values),
            sessions=sessions,
        )
        for name, kind, trial, values in (
            ("nbt, defaults", Kind.untuned, 0, default),
            ("nbt, trial 3", Kind.tuned, 3, best),
        )
    ]
    verdict = Verdict(advice=Advice.nothing, headline="", objective="runtime", trials=7)
    return over_sessions(
        Verified(
            study="sim",
            emulated="x",
            objective="runtime",
            candidates=candidates,
            unset={},
            verdict=verdict,
            simulated=None,
            winner=None,
            tau=None,
            pairs=0,
            sessions=SESSIONS,
        )
    )


def test_a_machine_that_has_changed_is_said() -> None:
    steady = between((10, 10.1, 9.9, 10.05), (8, 8.1, 7.9, 8), [0, 0, 1, 1])
    assert steady[0] == (
        "Measured in 2 sessions: 4 runs from 2026-03-01 10:00 to 11:30; "
        "6 runs from 2026-03-02 22:00 to 2026-03-03 01:00 (UTC)."
    )
    assert "the defaults ran 0.75 % faster than before, within what chance does (" in steady[1]
    changed = between((10, 10.1, 12, 12.1), (8, 8.1, 8, 8), [0, 0, 1, 1])
    assert "the defaults ran 16.6 % slower than before, and chance does no more than" in changed[1]
    assert "the machine or its load has changed" in changed[1]


def test_what_tells_nothing_is_said_too() -> None:
    assert between((10, 12), (8, 8.1), [0, 1])[1].endswith(
        "16.7 % slower than before; no configuration ran twice in a session, so chance may be why."
    )
    none = between((10, 10.1, None), (8, 8.1, 8), [0, 0, 1])[1]
    assert "no run of the defaults in it, so whether the machine was as fast as before" in none
