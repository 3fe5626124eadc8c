# SPDX-License-Identifier: MIT
"""`tune record` and the processes around it: signals to the whole group, processes that outlive the
program, and a recorder that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import descendants, started
from test_record import driver, ended, in_folder, leftovers

from tuner.record.group import Orphans

COUNTING = """\
import os, signal, sys
{first}
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
print("ready", flush=True)
seen = 0
while signal.sigwait([signal.SIGUSR1, signal.SIGUSR2]) == signal.SIGUSR1:
    seen += 1
    print("one", flush=True)
print(f"seen {{seen}}", flush=True)
"""


@contextmanager
def recording(folder: Path, script: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tune record` of a Python program, the leader of a group of its own, once that is ready."""
    with started(
        [*driver(), "-o", "mine.tts", *words, "--", sys.executable, "-c", script],
        **in_folder(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as tune:
        assert tune.stdout is not None and tune.stdout.readline() == b"ready\n"
        yield tune


@pytest.mark.parametrize("own", [False, True], ids=["same group", "own group"])
def test_a_signal_to_the_group_reaches_the_program_once(own: bool, tmp_path: Path) -> None:
    first = "os.setpgid(0, 0)" if own else ""
    with recording(tmp_path, COUNTING.format(first=first)) as tune:
        assert tune.stdout is not None
        # The recorder is late: two that wait at the same time would count as one.
        tune.send_signal(signal.SIGSTOP)
        os.waitpid(tune.pid, os.WUNTRACED)
        os.killpg(tune.pid, signal.SIGUSR1)
        if not own:
            assert tune.stdout.readline() == b"one\n"
        tune.send_signal(signal.SIGCONT)
        if own:
            assert tune.stdout.readline() == b"one\n"
        tune.send_signal(signal.SIGUSR2)  # for the recorder alone, which hands it on after the rest
        said, error = ended(tune)
        assert said == b"seen 1\n", error
        assert tune.returncode == 0


def test_a_group_that_was_stopped_goes_on_when_the_recorder_does(tmp_path: Path) -> None:
    with recording(tmp_path, COUNTING.format(first="")) as tune:
        os.killpg(tune.pid, signal.SIGSTOP)
        os.waitpid(tune.pid, os.WUNTRACED)
        tune.send_signal(signal.SIGCONT)
        tune.send_signal(signal.SIGUSR2)
        assert ended(tune)[0] == b"seen 0\n"


DAEMON = """\
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), file=sys.stderr, flush=True)
        os.close(1)
        os.close(2)
        sys.stdin.read()
    os._exit(0)
os.wait()
"""


def test_a_daemon_that_outlives_the_program_is_told(tmp_path: Path) -> None:
    with started(
        [*driver(), "-o", "mine.tts", "--json", "--", sys.executable, "-c", DAEMON],
        **in_folder(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as tune:
        assert tune.stdout is not None and tune.stderr is not None
        daemon = int(tune.stderr.readline())
        summary = json.loads(tune.stdout.read())
        assert (summary["outlived"], summary["complete"]) == (1, False)
        assert Path(f"/proc/{daemon}").exists()  # it waits for us, and not the recorder for it
        ended(tune)
        assert tune.returncode == 0
    text = (tmp_path / "mine.yaml").read_text()
    assert "outlived: 1" in text


def test_orphans_that_end_in_time_are_none() -> None:
    orphans = Orphans()
    try:
        read, write = os.pipe()
        code = "import os\nif os.fork() == 0:\n  os.read(0, 1)\n"
        subprocess.run([sys.executable, "-c", code], stdin=read, check=True)
        os.close(read)
        assert orphans.bury() == 1
        calls = []

        def pause(seconds: float) -> bool:
            calls.append(seconds)
            with contextlib.suppress(OSError):
                os.close(write)
            return True

        assert orphans.outlast(pause, 100) == 0
        assert calls and calls[0] <= 100
        assert orphans.bury() == 0
    finally:
        orphans.close()


def test_a_killed_recorder_leaves_the_program_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    script = "import sys\nprint('ready', flush=True)\nprint('got', sys.stdin.readline())"
    with recording(tmp_path, script) as tune:
        family = descendants(tune.pid)
        assert len(family) == 2  # the program, and the witness
        assert len(leftovers(tmp_path)) == 1
        tune.kill()
        tune.wait()
        # Ends with the program, which is the last that holds the pipe.
        assert ended(tune, b"line\n")[0] == b"got line\n\n"
    assert len(leftovers(tmp_path)) == 1
    with recording(tmp_path, script, "--force") as tune:
        (own,) = leftovers(tmp_path)
        other = [*driver(), "-o", "other.tts", "--", "true"]
        subprocess.run(other, **in_folder(tmp_path), check=True, stderr=subprocess.DEVNULL)
        assert leftovers(tmp_path) == [own]  # it is in use
        ended(tune, b"line\n")
    assert leftovers(tmp_path) == []


def test_a_recorder_that_is_killed_before_the_program_begins(tmp_path: Path) -> None:
    code = driver()[-1].replace(
        "samplers.find =",
        "import os, signal\n"
        "test_record.Scripted.attach = lambda self, pid: os.kill(os.getpid(), signal.SIGKILL)\n"
        "samplers.find =",
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), "--", "touch", "ran"],
        **in_folder(tmp_path),
        capture_output=True,  # until nobody holds the pipes
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "ran").exists()
