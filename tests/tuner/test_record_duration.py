# SPDX-License-Identifier: MIT
"""Recordings that end before their program, and how slow a recorder says that it is. With the real
emulator; needs qemu-x86_64 and a C compiler."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import test_record_emulation as emulation
from conftest import python_path
from test_cli import ROOT, tune

from tuner import engine
from tuner.documents import catalog
from tuner.record.samplers.emulation import EMULATOR, Emulation

pytestmark = [
    pytest.mark.skipif(
        Emulation.unavailable() is not None, reason=f"{EMULATOR} is not installed (qemu-user)"
    ),
    pytest.mark.skipif(emulation.COMPILER is None, reason="no C compiler"),
    pytest.mark.timeout(method="thread"),  # the recorder keeps signals for the program
]

HEAD = r"""
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static volatile int over;
static void *work(void *own) {
  while (!over) sum(own, 4 * MIB);
  return 0;
}
"""

OUTLIVES = (
    HEAD
    + r"""
/* Three threads go on when the recording has ended. The folder of its spools is gone then, which is
   when other memory is filled, and another program runs. */
int main(int words, char **word) {
  pthread_t threads[3];
  char *early = pages(4 * MIB);
  fill(early, 4 * MIB);
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], 0, work, early);
  while (access(word[1], F_OK) != 0) {
    for (double until = now() + 0.05; now() < until;) {}
  }
  char *late = pages(32 * MIB);
  fill(late, 32 * MIB);
  over = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], 0);
  if (fork() == 0) execlp("readlink", "readlink", "/proc/self/exe", (char *)0);
  wait(0);
  return 7;
}
"""
)


@pytest.mark.parametrize("option", ["--for", "--duration"])
def test_the_recording_ends_and_the_program_goes_on(tmp_path: Path, option: str) -> None:
    """It goes on until the workload is there."""
    program = emulation.build(tmp_path, OUTLIVES)
    workload = tmp_path / "mine.yaml"
    done = tune(
        *("record", "-o", "mine.tts", "--set", "llc_mib=1", option, "1s"),
        *("--", program, str(workload)),
        cwd=tmp_path,
    )
    assert done.returncode == 7, done.stderr
    assert "readlink" in done.stdout and "qemu" not in done.stdout  # what it executes is native
    assert "ended        after 1 s; the program goes on, not recorded" in done.stderr
    assert "missing" not in done.stderr
    (sampling,) = (each.sampling for each in catalog.workload(str(workload)).spec.inputs.values())
    assert sampling is not None and sampling.ended_after == 1 and not sampling.missing
    assert "it ended after 1 s, as was asked, before the program did" in sampling.describe()
    pages = engine.characteristics(tmp_path / "mine.tts")["peak_pages"]
    assert 1024 <= pages < 8 * 1024  # the 4 MiB, and not the 32
    assert not list(tmp_path.glob(".*.spools"))


def test_a_program_that_ends_before_is_recorded_as_ever(tmp_path: Path) -> None:
    program = emulation.build(tmp_path, "int main(void) { fill(pages(4 * MIB), 4 * MIB); }")
    done = tune("record", "-o", "mine.tts", "--json", "--for", "500", "--", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["ended_after"] is None and summary["complete"]


def test_what_waits_when_the_recording_ends_is_not_cut_short(tmp_path: Path) -> None:
    body = (
        HEAD
        + r"""
int main(int words, char **word) {
  fill(pages(4 * MIB), 4 * MIB);
  if (fork() == 0) {
    fill(pages(4 * MIB), 4 * MIB);
    int all[2];
    pipe(all);
    kill(getppid(), SIGUSR1);
    read(all[0], all, 1);
  }
  sigset_t set;
  int got;
  sigemptyset(&set), sigaddset(&set, SIGUSR1);
  sigwait(&set, &got);
  while (access(word[1], F_OK) != 0) {
    for (double until = now() + 0.05; now() < until;) {}
  }
  kill(0, SIGTERM);
}
"""
    )
    program = emulation.build(tmp_path, body)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tuner", "record", "-o", "mine.tts", "--for", "2", "--json"),
            *("--", program, str(tmp_path / "mine.yaml")),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        start_new_session=True,  # it signals its group
        check=False,
    )
    summary = json.loads(done.stdout)
    assert summary["exit_status"] == 128 + 15
    assert (summary["processes"], summary["cut_short"]) == (2, 0)
    assert summary["ended_after"] == 2


def test_a_recorder_says_how_slow_it_is_where_somebody_watches(tmp_path: Path) -> None:
    """And what would be quicker; the summary says it anyway."""
    body = HEAD + "int main(void) { char *at = pages(4 * MIB);"
    body += " while (clock() < 4 * CLOCKS_PER_SEC) sum(at, 4 * MIB); }"
    program = emulation.build(tmp_path, body)
    script = (
        "import sys; from tuner import cli; from tuner.record import process;"
        "process.SLOWDOWN_SECONDS = 1.5; sys.exit(cli.main(sys.argv[1:]))"
    )
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, "record", "-o", "mine.tts", "--json", "--", program],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python_path(ROOT)},
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
        )
        said = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    slowdown = json.loads(done.stdout)["slowdown"]
    assert 2 < slowdown < 500
    said = " ".join(said.split())
    assert f"the program is about {slowdown:.2g} times as slow as by itself" in said
    assert "--for 60s ends the recording then, and the program goes on" in said
    assert "--pid P watches it at full speed" in said
