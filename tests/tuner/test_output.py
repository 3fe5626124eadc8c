# SPDX-License-Identifier: MIT
"""Standard output and error that are closed, full, or read by nobody."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import python_path

from tuner import output
from tuner.study import log

ROOT = Path(__file__).resolve().parents[2]


def test_what_nobody_reads_is_left_out() -> None:
    reading, writing = os.pipe()
    file = output.Output(writing)
    assert file.write(b"first") == 5
    assert file.failed is None
    os.close(reading)
    assert file.write(b"second") == 6
    assert isinstance(file.failed, BrokenPipeError)
    assert file.write(b"third") == 5
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_first_error_is_kept() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    file = output.Output(descriptor)
    assert file.write(b"text") == 4
    os.close(descriptor)
    assert file.write(b"more") == 4
    assert file.failed is not None and file.failed.errno == errno.ENOSPC


def test_a_full_pipe_is_waited_for_though_somebody_made_it_non_blocking() -> None:
    """Whoever shares a terminal or pipe with us may do so: ssh and Node do."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    room = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    file = output.Output(writing)
    assert file.write(bytes(room)) == room
    written: list[int] = []
    thread = threading.Thread(target=lambda: written.append(file.write(b"more")))
    thread.start()
    assert os.read(reading, room) == bytes(room)
    thread.join()
    assert (written, file.failed) == ([4], None)
    assert os.read(reading, room) == b"more"
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
def test_a_study_outlives_its_readers(tmp_path: Path) -> None:
    """Whatever becomes of its output, all trials are done; and nobody takes it for done who has not
    got its results."""
    words = "run --workload gups --input smoke --policy hmsdk --workers 1 --no-explain --name study"
    tune = f"{sys.executable} -m tuner {words}"
    endings = (
        ("2>&1 | head -1", output.READER_LEFT),
        ("| true", output.READER_LEFT),
        ("--json 2>/dev/null | true", output.READER_LEFT),
        ("2>&1 >/dev/null | head -1", 0),  # what nobody read was no result
        (">/dev/full", 1),
        ("2>/dev/full", 1),
        (">&- 2>&-", 0),
    )
    for budget, (ending, code) in enumerate(endings, 1):
        command = f"{tune} --budget {budget} --resume {ending}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python_path(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{ending}: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert len(log.load(tmp_path / "results/study").done) == budget
        if ending == ">/dev/full":
            said = "tune: error: cannot write the output: No space left on device"
            assert done.stderr.splitlines()[-1] == said
