# SPDX-License-Identifier: MIT
"""The emulation sampler, with real programs in the real emulator: what they do to memory is known,
so what must be in the trace is too. Needs qemu-x86_64 and a C compiler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import started
from test_cli import tune

from tuner import engine
from tuner.documents.document import Document
from tuner.record.samplers.emulation import EMULATOR, Emulation

COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.skipif(
        Emulation.unavailable() is not None, reason=f"{EMULATOR} is not installed (qemu-user)"
    ),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]

MIB = 1 << 20
PAGE = 4096
LINE = 64

HEAD = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB (1l << 20)
static char *pages(long bytes) {
  return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void fill(volatile char *at, long bytes) {
  for (long i = 0; i < bytes; i += 64) at[i] = 1;
}
static long sum(volatile char *at, long bytes) {
  long all = 0;
  for (long i = 0; i < bytes; i += 64) all += at[i];
  return all;
}
"""


class Recorded:
    """A trace, by allocation site: accesses per class, pages."""

    def __init__(self, done: subprocess.CompletedProcess[str], trace: Path) -> None:
        self.done = done
        self.trace = trace

    @property
    def sites(self) -> dict[str, dict[str, Any]]:
        names = [c["name"] for c in engine.native().stream_info(str(self.trace))["classes"]]
        found = engine.characteristics(self.trace, rows=1, columns=1)["sites"]
        return {
            site["site"]: site | {"by": dict(zip(names, site["accesses"], strict=True))}
            for site in found
        }

    def biggest(self, count: int = 1) -> list[dict[str, Any]]:
        return sorted(self.sites.values(), key=lambda site: -site["pages"])[:count]


def build(folder: Path, body: str) -> str:
    source = folder / "program.c"
    source.write_text(HEAD + body)
    program = folder / "program"
    subprocess.run([str(COMPILER), "-O1", "-pthread", "-o", str(program), str(source)], check=True)
    return str(program)


def record(folder: Path, *words: str, options: tuple[str, ...] = ()) -> Recorded:
    trace = folder / "mine.tts"
    done = tune("record", "-o", str(trace), "--force", *options, "--", *words, cwd=folder)
    return Recorded(done, trace)


def run_c(folder: Path, body: str, *options: str) -> Recorded:
    return record(folder, build(folder, body), options=options)


def test_sweeps_chases_and_updates_are_counted_and_told_apart(tmp_path: Path) -> None:
    found = run_c(
        tmp_path,
        r"""
int main(void) {
  char *swept = pages(8 * MIB);
  fill(swept, 8 * MIB);
  long all = sum(swept, 8 * MIB);
  /* A ring through 2^16 lines in random order, which is chased once around. */
  long lines = 1 << 16;
  void **ring = (void **)pages(lines * 64);
  uint32_t *order = malloc(lines * 4);
  for (long i = 0; i < lines; ++i) order[i] = i;
  uint64_t x = 88172645463325252ull;
  for (long i = lines - 1; i > 0; --i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    uint32_t other = x % i, kept = order[i];
    order[i] = order[other], order[other] = kept;
  }
  for (long i = 0; i < lines; ++i) ring[order[i] * 8l] = &ring[order[(i + 1) % lines] * 8l];
  void **at = ring;
  for (long i = 0; i < lines; ++i) at = *at;
  printf("%ld %d\n", all, at == ring);
}
""",
        *("--set", "llc_mib=1"),
    )
    assert found.done.returncode == 0, found.done.stderr
    assert found.done.stdout == f"{8 * MIB // LINE} 1\n"
    swept, ring = found.biggest(2)
    lines = 8 * MIB // LINE
    assert swept["pages"] == 8 * MIB // PAGE and swept["site"].startswith("program+0x")
    assert swept["by"]["sequential"] == pytest.approx((lines, lines), rel=0.01)
    assert swept["by"]["random"] == pytest.approx((0, 0), abs=16)
    lines = 1 << 16
    assert ring["pages"] == lines * LINE // PAGE
    # The chase misses what a cache of a quarter of the ring has lost: all, least recently used.
    assert ring["by"]["dependent"][0] == pytest.approx(lines, rel=0.02)
    assert ring["by"]["random"][1] == pytest.approx(lines, rel=0.02)


def test_an_access_that_reaches_into_the_next_line_touches_both(tmp_path: Path) -> None:
    """Loads and stores of every size at every place of a line, each in lines of its own."""
    found = run_c(
        tmp_path,
        r"""
#define AT(size, place) ((size) * 64 + (place)) * 256l + (place)
int main(void) {
  char *loaded = pages(MIB), *stored = pages(MIB), *updated = pages(MIB);
  for (long place = 0; place < 64; ++place) {
    char *from = loaded + AT(0, place), *to = stored + AT(0, place), *both = updated + AT(0, place);
    const long next = 64 * 256;
    asm volatile("movb (%0), %%al; movw (%0,%1), %%ax; movl (%0,%1,2), %%eax" ::"r"(from),
                 "r"(next) : "rax");
    from += 3 * next;
    asm volatile("movq (%0), %%rax; movdqu (%0,%1), %%xmm0" ::"r"(from), "r"(next)
                 : "rax", "xmm0");
    asm volatile("movb %%al, (%0); movw %%ax, (%0,%1); movl %%eax, (%0,%1,2)" ::"r"(to), "r"(next)
                 : "memory");
    to += 3 * next;
    asm volatile("movq %%rax, (%0); movdqu %%xmm0, (%0,%1)" ::"r"(to), "r"(next) : "memory");
    asm volatile("incb (%0); incw (%0,%1); lock incl (%0,%1,2)" ::"r"(both), "r"(next)
                 : "memory");
    asm volatile("movb (%0), %%al; movb %%al, (%0)" ::"r"(both) : "rax", "memory");
  }
  return 0;
}
""",
        *("--set", "llc_mib=4"),
    )
    assert found.done.returncode == 0, found.done.stderr
    # One line each, and the second of as many places as it has bytes beyond the first.
    lines = {size: 64 + size - 1 for size in (1, 2, 4, 8, 16)}
    each, updated = sum(lines.values()), lines[1] + lines[2] + lines[4]
    (memory,) = found.biggest()
    by = memory["by"]
    assert by["random"][0] + by["sequential"][0] + by["dependent"][0] == each + updated
    assert by["random"][1] + by["sequential"][1] == each
    assert by["resident"] == (0, updated)  # the load of each has fetched what its store makes dirty


def test_memory_that_comes_and_goes(tmp_path: Path) -> None:
    found = run_c(
        tmp_path,
        r"""
int main(void) {
  for (int i = 0; i < 3; ++i) {
    char *at = pages(2 * MIB);
    fill(at, 2 * MIB);
    at = mremap(at, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE);
    fill(at + 2 * MIB, 2 * MIB);
    madvise(at, MIB, MADV_DONTNEED);
    fill(at, MIB);
    munmap(at, 4 * MIB);
  }
}
""",
    )
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    assert site["pages"] == 3 * 5 * MIB // PAGE
    assert site["freed"] == site["objects"]
    assert sum(stores for _, stores in site["accesses"]) == 3 * 5 * MIB // LINE
    assert found.done.stderr.rstrip().endswith("next: tune run --workload ./mine.yaml")


def test_buffers_that_the_kernel_fills_count(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 4 * MIB)
    found = run_c(
        tmp_path,
        r"""
int main(void) {
  FILE *file = fopen("data", "r");
  char *at = pages(4 * MIB);
  return read(fileno(file), at, 4 * MIB) == 4 * MIB ? 0 : 1;
}
""",
    )
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    assert site["by"]["sequential"][1] == 4 * MIB // LINE


def test_threads_are_recorded_side_by_side(tmp_path: Path) -> None:
    body = r"""
static void *work(void *at) {
  for (int i = 0; i < 4; ++i) fill(at, 4 * MIB), sum(at, 4 * MIB);
  return 0;
}
int main(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(threads + i, 0, work, pages(4 * MIB));
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], 0);
}
"""
    found = run_c(tmp_path, body, "--set", "llc_mib=0.5")
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    lines = 3 * 4 * 4 * MIB // LINE
    assert site["pages"] == 3 * 4 * MIB // PAGE
    assert sum(loads for loads, _ in site["accesses"]) == pytest.approx(lines, rel=0.02)
    assert sum(stores for _, stores in site["accesses"]) == pytest.approx(lines, rel=0.02)
    assert Document.read(tmp_path / "mine.yaml").data["threads"] == 3


def test_children_and_what_they_execute_are_recorded(tmp_path: Path) -> None:
    program = build(
        tmp_path,
        r"""
int main(int count, char **words) {
  char *at = pages(4 * MIB);
  fill(at, 4 * MIB);
  if (count > 1) return strcmp(words[1], "again");
  if (fork() == 0) {
    fill(at, 4 * MIB);
    execl(words[0], words[0], "again", (char *)0);
  }
  int status = 1;
  wait(&status);
  return status;
}
""",
    )
    found = record(tmp_path, program)
    assert found.done.returncode == 0, found.done.stderr
    assert "3 processes" in found.done.stderr
    (site,) = found.biggest()
    assert sum(stores for _, stores in site["accesses"]) == 3 * 4 * MIB // LINE
    assert site["pages"] == 3 * 4 * MIB // PAGE
    assert "cut short" not in found.done.stderr


def test_scripts_and_pipes(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh -e\ncat | tr a-z A-Z\nexit $1\n")
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "record", "-o", "mine.tts", "--", "./script", "3"],
        cwd=tmp_path,
        input=b"hello\n",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"HELLO\n"), done.stderr
    sites = Recorded(None, tmp_path / "mine.tts").sites  # type: ignore[arg-type]
    assert {"cat", "tr"} & set(sites)


@pytest.mark.slow
def test_python_programs_are_recorded(tmp_path: Path) -> None:
    code = "import json; data = bytearray(8 << 20)\nfor i in range(0, len(data), 4096): data[i] = 1"
    found = record(tmp_path, sys.executable, "-c", code)
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    assert site["pages"] >= 8 * MIB // PAGE


@pytest.mark.parametrize(
    ("end", "number", "least"),
    [
        ("*(volatile int *)0 = 1;", signal.SIGSEGV, 0.9),
        # It tells the kernel, and so us, before it dies.
        ("kill(getpid(), SIGKILL);", signal.SIGKILL, 1.0),
        ("abort();", signal.SIGABRT, 1.0),
    ],
)
def test_a_crash_leaves_what_came_before(
    end: str, number: int, least: float, tmp_path: Path
) -> None:
    found = run_c(
        tmp_path, "int main(void) { fill(pages(16 * MIB), 16 * MIB); " + end + " return 0; }"
    )
    assert found.done.returncode == 128 + number
    assert "every access was seen" not in found.done.stderr
    assert f"signal {int(number)} ended the program" in found.done.stderr
    assert Document.read(tmp_path / "mine.yaml").data["inputs"]["recorded"]["sampling"][
        "signal"
    ] == int(number)
    (site,) = found.biggest()
    stores = sum(stores for _, stores in site["accesses"])
    assert least * 16 * MIB / LINE <= stores <= 16 * MIB / LINE


def test_a_process_that_cannot_be_recorded_is_told(tmp_path: Path) -> None:
    found = run_c(
        tmp_path,
        r"""
#include <sys/resource.h>
int main(void) {
  fill(pages(MIB), MIB);
  if (fork() == 0) {
    struct rlimit none = {0, 0}; /* of descriptors: it can open no spool */
    setrlimit(RLIMIT_NOFILE, &none);
    fill(pages(4 * MIB), 4 * MIB);
    _exit(0);
  }
  int status = 1;
  wait(&status);
  return status;
}
""",
    )
    assert found.done.returncode == 0, found.done.stderr
    assert "missing      1 process could not be recorded" in found.done.stderr
    assert "every access was seen" not in found.done.stderr


DROPS_ROOT = r"""
#include <sys/prctl.h>
int main(int count, char **words) {
  if (count > 1) return fill(pages(4 * MIB), 4 * MIB), puts(words[1]) < 0;
  if (prctl(PR_SET_KEEPCAPS, 1) || setgid(65534) || setuid(65534)) return 1;
  execl("/nowhere", "/nowhere", (char *)0); /* as who looks for a program in PATH */
  execl(words[0], words[0], "ran", (char *)0);
  return 1;
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give it up")
@pytest.mark.parametrize("reachable", [True, False])
def test_a_program_that_gives_up_root_and_executes_another(reachable: bool) -> None:
    """As setpriv, gosu and chpst do. What the other user cannot write to is not recorded, and
    that is said."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # each folder above it lets others in
        folder, closed = Path(made), Path(made) / "closed"
        folder.chmod(0o755)
        closed.mkdir(0o700)
        program = build(folder, DROPS_ROOT)
        found = record(folder if reachable else closed, program)
        assert (found.done.returncode, found.done.stdout) == (0, "ran\n"), found.done.stderr
        stores = sum(stores for site in found.sites.values() for _, stores in site["accesses"])
        filled = 4 * MIB // LINE
        said = "missing      1 process could not be recorded, nor what it started"
        if reachable:
            assert filled <= stores < 1.2 * filled and "2 processes" in found.done.stderr
        else:
            assert stores < 0.2 * filled
        assert (said in found.done.stderr) != reachable
        assert ("every access was seen" in found.done.stderr) == reachable


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_what_is_executed_beyond_our_reach_is_told(tmp_path: Path) -> None:
    source = tmp_path / "inside.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("ran") < 0; }\n')
    inside = tmp_path / "inside"
    subprocess.run([str(COMPILER), "-static", "-o", str(inside), str(source)], check=True)
    body = r"""
int main(int count, char **words) {
  if (count < 2 || chroot(words[1]) || chdir("/")) return 1;
  execl("/inside", "/inside", (char *)0);
  return 1;
}
"""
    found = record(tmp_path, build(tmp_path, body), str(tmp_path))
    assert (found.done.returncode, found.done.stdout) == (0, "ran\n"), found.done.stderr
    assert "missing      1 process could not be recorded" in found.done.stderr
    assert "cut short" not in found.done.stderr


def test_a_site_is_who_asked_and_no_older_call(tmp_path: Path) -> None:
    """Calls that are over have left their return addresses where the C library's functions have
    theirs and what they have not written."""
    body = r"""
__attribute__((noinline)) static long deep(long n) {
  volatile char room[24] = {0};
  return n == 0 ? room[0] : deep(n - 1) + room[1];
}
/* With a buffer on its stack, which deep() has used before. */
__attribute__((noinline)) static long asks(void) {
  char *at = 0;
  return asprintf(&at, "%*d", (int)(16 * MIB), 1) - 16 * MIB;
}
int main(void) { return deep(500) + asks(); }
"""
    found = run_c(tmp_path, body)
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    name, _, offset = site["site"].partition("+")
    listed = subprocess.run(
        ["nm", "-S", "program"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    at, size = next(line.split()[:2] for line in listed.stdout.splitlines() if "asks" in line)
    assert name == "program"
    assert int(at, 16) < int(offset, 16) <= int(at, 16) + int(size, 16)


def test_a_program_that_closes_all_descriptors_and_changes_folder(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    found = run_c(
        tmp_path,
        r"""
int main(void) {
  for (int i = 3; i < 1024; ++i) close(i);
  if (chdir("/") != 0) return 1;
  fill(pages(64 * MIB), 64 * MIB); /* more than a piece of the spool */
}
""",
    )
    assert found.done.returncode == 0, found.done.stderr
    (site,) = found.biggest()
    assert sum(stores for _, stores in site["accesses"]) == 64 * MIB // LINE


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(small)]
    if not shutil.which("mount") or subprocess.run(size, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk")
    try:
        program = build(
            tmp_path,
            r"""
int main(void) {
  volatile char *at = pages(256 * MIB);
  uint64_t x = 1;
  for (long i = 0; i < 4000000; ++i) {
    x = x * 6364136223846793005ull + 1;
    at[(x >> 33) % (256 * MIB)] = 1;
  }
  puts("done");
}
""",
        )
        found = record(small, program)
        assert (found.done.returncode, found.done.stdout) == (0, "done\n"), found.done.stderr
        assert "the disk filled up: the trace holds what came before" in found.done.stderr
        assert "every access was seen" not in found.done.stderr
        sampling = Document.read(small / "mine.yaml").data["inputs"]["recorded"]["sampling"]
        assert sampling["disk_full"] and 0 < sampling["dropped_share"] < 1
        (site,) = found.biggest()
        assert 100_000 < sum(stores for _, stores in site["accesses"]) < 4_000_000
        assert sorted(path.name for path in small.iterdir()) == ["mine.tts", "mine.yaml"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_signals_reach_the_program_in_the_emulator(tmp_path: Path) -> None:
    program = build(
        tmp_path,
        r"""
static void leave(int number) { (void)number; exit(9); }
int main(void) {
  signal(SIGTERM, leave);
  fill(pages(MIB), MIB);
  puts("ready"), fflush(stdout);
  for (;;) pause();
}
""",
    )
    with started(
        [sys.executable, "-m", "tuner", "record", "-o", "mine.tts", "--", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGTERM)
        running.communicate()
        assert running.returncode == 9
    (site,) = Recorded(None, tmp_path / "mine.tts").biggest()  # type: ignore[arg-type]
    assert sum(stores for _, stores in site["accesses"]) == MIB // LINE


@pytest.mark.slow
def test_the_same_program_gives_the_same_trace(tmp_path: Path) -> None:
    program = build(tmp_path, "int main(void) { fill(pages(4 * MIB), 4 * MIB); return 0; }")
    traces = []
    for _ in range(2):
        found = record(tmp_path, program)
        traces.append(found.trace.read_bytes())
    assert traces[0] == traces[1]


def test_what_is_no_program_is_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("not a program")
    bad.chmod(0o755)
    found = record(tmp_path, str(bad))
    assert found.done.returncode == 2
    assert "not a program of this machine" in found.done.stderr


@pytest.mark.parametrize("file", [False, True])
def test_memory_that_processes_share_is_there_once(tmp_path: Path, file: bool) -> None:
    """Four children touch all of it, each with a cache of its own; a fifth maps half of a file at
    another place."""
    body = r"""
#include <fcntl.h>
int main(void) {
  int f = FILE ? open("shared", O_RDWR | O_CREAT, 0600) : -1;
  long bytes = 8 * MIB;
  if (FILE && ftruncate(f, bytes)) return 1;
  char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (FILE ? 0 : MAP_ANONYMOUS), f, 0);
  for (int child = 0; child < 5; ++child)
    if (fork() == 0) {
      if (FILE && child == 4) {
        bytes = 4 * MIB;
        at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 4 * MIB);
      }
      fill(at, bytes);
      _exit(0);
    }
  while (wait(0) > 0) {}
  return 0;
}
"""
    found = run_c(tmp_path, body.replace("FILE", str(int(file))))
    (site,) = found.biggest()
    assert site["pages"] == 8 * MIB // PAGE
    swept = (4 * 8 + (4 if file else 8)) * MIB
    assert sum(map(sum, site["by"].values())) == pytest.approx(swept // LINE, rel=0.02)
