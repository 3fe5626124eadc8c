# SPDX-License-Identifier: MIT
"""What a recording lacks is said when it is made, in its workload's file, and by whoever uses
it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from spools import DISK_FULL, OPEN
from test_record import Scripted, scripted, tune_record

from tuner import cli
from tuner.documents import catalog
from tuner.documents.workload import Sampling

__all__ = ["scripted"]

# While it records, the tuner keeps all signals for the program, the timeout's SIGALRM too.
pytestmark = pytest.mark.timeout(method="thread")

SIM = ["sim", "--workload", "./mine.yaml", "--policy", "all-slow", "--fast-gib", "1"]


def sampling() -> Sampling:
    found = catalog.workload("./mine.yaml").spec.inputs["recorded"].sampling
    assert found is not None
    return found


def test_a_whole_recording_says_so(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    shown = capfd.readouterr().err
    assert "every access was seen" in shown and "warning" not in shown
    assert sampling().missing == []
    # A zero that was found is written down; what is not known (of an import) is left out.
    assert "dropped: 0" in Path("mine.yaml").read_text()
    assert cli.main(SIM) == 0
    assert "warning" not in capfd.readouterr().err


def test_a_full_disk_is_said_by_all_that_speak_of_the_recording(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    scripted.state, scripted.dropped = DISK_FULL, 1
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    shown = capfd.readouterr().err
    assert "every access was seen" not in shown
    assert "missing      1 observation could not be kept (0.056 of all)" in shown
    assert "missing      the disk filled up: the trace holds what came before" in shown
    assert "tune: warning: the recording is not whole" in shown

    found = sampling()
    assert (found.dropped, found.disk_full, found.signal) == (1, True, None)
    assert found.dropped_share == pytest.approx(1 / 18)
    assert "all 1,000 accesses were seen" not in found.describe()
    assert cli.main(SIM) == 0
    shown = capfd.readouterr().err
    assert "tune: warning: mine (recorded) was recorded by scripted, not whole: 1 obs" in shown
    assert "the disk filled up" in shown


def test_a_recording_that_dropped_too_much_is_refused(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    scripted.state, scripted.dropped = DISK_FULL, 2
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    capfd.readouterr()
    assert cli.main(SIM) == 2
    shown = capfd.readouterr().err
    key = "mine.yaml: inputs.recorded.sampling.dropped_share"
    assert f"{key}: found 0.11; must be at most dropped_allowed, 0.1: record again" in shown
    file = Path("mine.yaml")
    file.write_text(
        file.read_text().replace("dropped: 2", "dropped: 2\n      dropped_allowed: 0.2")
    )
    assert cli.main(SIM) == 0


def test_the_signal_that_ended_the_program_is_written_down(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    scripted.state = OPEN
    status = tune_record("-o", "mine.tts", "--json", "--", "sh", "-c", "kill -SEGV $$")
    assert status == 128 + signal.SIGSEGV
    summary = json.loads(capfd.readouterr().out)
    assert (summary["signal"], summary["cut_short"], summary["complete"]) == (11, 1, False)
    assert summary["exit_status"] == status
    found = sampling()
    assert (found.signal, found.cut_short) == (11, 1)
    assert found.missing == [
        "signal 11 ended the program",
        "the recording of 1 process was cut short: the trace holds what came before",
    ]
    assert "every access" not in found.describe() and "signal 11" in found.describe()


def test_samples_of_a_program_that_died_are_not_all_there_is(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    scripted.state, scripted.error = OPEN, 0.25
    assert tune_record("-o", "mine.tts", "--", "sh", "-c", "kill -KILL $$") == 137
    assert "signal 9 ended the program" in sampling().describe()
    assert "0.25 of itself (standard error); signal 9" in sampling().describe()
