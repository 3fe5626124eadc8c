# SPDX-License-Identifier: MIT
"""Operations of recorded programs: marked by the header, or by USDT probes, with programs that know
how many there are and what each does to memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import test_record_emulation as emulation
from test_cli import tune

from tuner.record.samplers.emulation import EMULATOR, Emulation

pytestmark = [
    pytest.mark.skipif(
        Emulation.unavailable() is not None, reason=f"{EMULATOR} is not installed (qemu-user)"
    ),
    pytest.mark.skipif(emulation.COMPILER is None, reason="no C compiler"),
]

LATENCY_NS = 90  # of the machine `skx`
MLP = 4  # of random loads

MARKS = r"""
#include "tiertune.h"
#define BEGIN tiertune_begin()
#define END tiertune_end()
"""

PROBES = r"""
#define PROBE(name, semaphore) __asm__ volatile( \
  "990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n" \
  "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b,_.stapsdt.base," semaphore "\n" \
  ".asciz \"shop\"\n.asciz \"" name "\"\n.asciz \"\"\n994: .balign 4\n.popsection\n" \
  ".ifndef _.stapsdt.base\n" \
  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
  ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n" \
  ".size _.stapsdt.base,1\n.popsection\n.endif\n")
__attribute__((section(".probes"), visibility("hidden"), used)) volatile unsigned short listeners;
#define BEGIN do { if (listeners) PROBE("order__start", "listeners"); } while (0)
#define END PROBE("order__done", "0")
"""

STORE = r"""
static char *table;
static long lines;
static uint64_t drawn(uint64_t *x) { return *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17; }
static long look_up(uint64_t *x, int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) sum += *(volatile char *)&table[drawn(x) % lines * 64];
  return sum;
}
/* Every hundredth of the requests reads 64 lines, the others 4; between two, 2 are read. */
static void *serve(void *requests) {
  uint64_t x = (uintptr_t)&x | 1;
  for (long r = 0; r < (long)requests; ++r) {
    BEGIN;
    look_up(&x, r % 100 == 0 ? 64 : 4);
    END;
    look_up(&x, 2);
  }
  return 0;
}
static void open_store(long bytes) {
  table = pages(bytes), lines = bytes / 64;
  fill(table, bytes);
}
"""


def build(folder: Path, body: str, marks: str = MARKS, *flags: str, name: str = "server") -> str:
    header = tune("record", "--header", cwd=folder)
    assert header.returncode == 0
    (folder / "tiertune.h").write_text(header.stdout)
    source = folder / f"{name}.c"
    source.write_text(emulation.HEAD + marks + STORE + body)
    options = ("-O1", "-pthread", "-Wno-unused-function", *flags)
    subprocess.run(
        [str(emulation.COMPILER), *options, "-o", str(folder / name), str(source)], check=True
    )
    return str(folder / name)


def record(folder: Path, program: str, *options: str) -> dict[str, Any]:
    done = tune(
        *("record", "--json", "--force", "-o", str(folder / "mine.tts")),
        *("--set", "llc_mib=0.0625", *options, "--", program),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def simulated(folder: Path, *options: str) -> dict[str, Any]:
    """With all memory fast."""
    done = tune(
        *("sim", "--workload", "./mine.yaml", "--policy", "first-touch", "--json"),
        *("--fast-gib", "1", *options),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found["metrics"], "latency": found["latency"]["operation"]}


def check_store(result: dict[str, Any], requests: int) -> None:
    """The latencies are those of the lines that an operation reads, and of no other."""
    found = result["latency"]
    assert result["operations"] == requests
    assert 20_000 <= found["operations"] <= requests
    for percentile, lines in (("p50", 4), ("p999", 64)):
        stalls = lines * LATENCY_NS / MLP
        assert stalls <= found[percentile] <= 1.5 * stalls  # and computation


def test_marked_operations_have_a_rate_and_latencies(tmp_path: Path) -> None:
    body = r"""
int main(void) {
  open_store(32 * MIB);
  pthread_t two[2];
  for (int i = 0; i < 2; ++i) pthread_create(&two[i], 0, serve, (void *)50000l);
  for (int i = 0; i < 2; ++i) pthread_join(two[i], 0);
  fill(table, 32 * MIB);
}
"""
    summary = record(tmp_path, build(tmp_path, body))
    assert summary["operations"] == 100_000
    assert (summary["operations_abandoned"], summary["operations_unbegun"]) == (0, 0)
    result = simulated(tmp_path)
    check_store(result, 100_000)
    # Filling the store and what comes after the last request are not timed.
    reads = 99_000 * 4 + 1_000 * 64 + 2 * 100_000
    assert result["loads_fast"] == pytest.approx(reads, rel=0.05)
    assert result["stores_fast"] < 32 * 16384 / 2
    shown = tune("workload", "show", "./mine.yaml", cwd=tmp_path)
    assert "operations  100 k (operation)" in shown.stdout
    assert "objectives  throughput, p50, p90, p99, p999" in shown.stdout


@pytest.mark.slow
def test_a_study_of_a_recording_improves_a_latency(tmp_path: Path) -> None:
    body = "int main(void) { open_store(16 * MIB); serve((void *)30000l); }"
    record(tmp_path, build(tmp_path, body))
    done = tune(
        *("run", "--workload", "./mine.yaml", "--objective", "p99", "--policy", "hybridtier"),
        *("--budget", "3", "--workers", "1", "--out", str(tmp_path), "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert '"objective": "p99"' in done.stdout


@pytest.mark.parametrize("shared", [False, True])
def test_probes_of_a_program_and_of_a_library(tmp_path: Path, shared: bool) -> None:
    """The first probe is passed by unless its semaphore is set."""
    body = "int run(void) { open_store(16 * MIB); serve((void *)30000l); return 0; }"
    main = "int run(void); int main(void) { return run(); }"
    if shared:
        build(tmp_path, body, PROBES, "-shared", "-fPIC", name="libstore.so")
        (tmp_path / "main.c").write_text(main)
        program = str(tmp_path / "main")
        subprocess.run(
            [
                *(str(emulation.COMPILER), "-o", program, str(tmp_path / "main.c")),
                *(str(tmp_path / "libstore.so"), f"-Wl,-rpath,{tmp_path}"),
            ],
            check=True,
        )
    else:
        program = build(tmp_path, body + main, PROBES)
    summary = record(tmp_path, program, "--operation-usdt", "shop:order__start,order__done")
    assert summary["operations"] == 30_000 and summary["usdt_probes"] == 2
    check_store(simulated(tmp_path), 30_000)
    # Of one probe: from each time to the next.
    summary = record(tmp_path, program, "--operation-usdt", "shop:order__done")
    assert summary["operations"] == 29_999 and summary["operations_unbegun"] == 0
    assert summary["usdt_probes"] == 1
    # Another provider's, and none that is asked for.
    assert record(tmp_path, program, "--operation-usdt", "other:order__done")["operations"] == 0
    assert record(tmp_path, program)["operations"] == 0


def test_operations_that_are_nested_cross_processes_or_free_memory(tmp_path: Path) -> None:
    body = r"""
int main(void) {
  open_store(4 * MIB);
  uint64_t x = 1;
  END;                                /* of none */
  BEGIN; BEGIN; look_up(&x, 4); END;  /* the first is given up */
  for (int i = 0; i < 20; ++i) {
    BEGIN;
    char *own = pages(8 * MIB);
    fill(own, 8 * MIB);
    munmap(own, 8 * MIB);
    look_up(&x, 1000);
    END;
  }
  BEGIN;
  if (fork() == 0) {                  /* the child has begun none */
    END;
    for (int i = 0; i < 7; ++i) { BEGIN; look_up(&x, 4); END; }
    _exit(0);
  }
  wait(0);
  END;
}
"""
    summary = record(tmp_path, build(tmp_path, body))
    assert summary["operations"] == 1 + 20 + 1 + 7
    assert summary["operations_abandoned"] == 1
    assert summary["operations_unbegun"] == 2
    found = simulated(tmp_path)["latency"]
    assert found["operations"] == summary["operations"]
    # What it wrote to memory that is gone by its end belongs to it: page by page, sequentially.
    least = 8 * 16384 * LATENCY_NS / 4 / 8
    assert found["p90"] > least


def test_the_offered_load_makes_idle_time(tmp_path: Path) -> None:
    body = "int main(void) { open_store(16 * MIB); serve((void *)30000l); }"
    program = build(tmp_path, body)
    record(tmp_path, program)
    whole = simulated(tmp_path)
    capacity = whole["operations"] / whole["seconds"]
    summary = record(tmp_path, program, "--offered-load", f"{capacity / 20:.0f}")
    assert summary["operations"] == 30_000
    idle = simulated(tmp_path)
    assert idle["operations"] / idle["seconds"] == pytest.approx(capacity / 20, rel=0.02)
    assert idle["latency"]["p50"] == pytest.approx(whole["latency"]["p50"], rel=0.05)
    assert summary["nominal_seconds"] / summary["blocks"] <= 0.05
    done = tune(
        *("record", "--force", "-o", "mine.tts", "--set", "llc_mib=0.0625"),
        *("--offered-load", f"{capacity * 10:.0f}", "--", program),
        cwd=tmp_path,
    )
    assert "of --offered-load are more than it can answer" in done.stderr


def test_where_there_are_no_operations_they_are_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    program = build(tmp_path, "int main(void) { open_store(4 * MIB); serve((void *)0l); }")
    record(tmp_path, program)
    done = tune("run", "--workload", "./mine.yaml", "--objective", "p99", cwd=tmp_path)
    assert done.returncode != 0 and "p99" in done.stderr and "known: runtime" in done.stderr
    done = tune(
        *("record", "--force", "-o", "mine.tts", "--operation-usdt", "shop:order", "--", program),
        cwd=tmp_path,
    )
    assert "none: 0 places of shop:order in the files that it mapped" in done.stderr
    done = tune("record", "--sampler", "pebs", "--offered-load", "5", "--", program, cwd=tmp_path)
    assert done.returncode != 0
    assert "--offered-load: sampler pebs sees no operations" in done.stderr
    done = tune("record", "--operation-usdt", "order", "--", program, cwd=tmp_path)
    assert done.returncode != 0 and "PROVIDER:BEGIN,END" in done.stderr


PYTHON = Path("/usr/bin/python3")


@pytest.mark.skipif(
    not PYTHON.exists() or b"gc__start" not in PYTHON.resolve().read_bytes(),
    reason="no Python with USDT probes (Debian's has them)",
)
def test_probes_of_a_program_that_nobody_here_wrote(tmp_path: Path) -> None:
    script = tmp_path / "collect.py"
    script.write_text(
        "import gc\n"
        "for _ in range(20):\n"
        "    kept = [[i] for i in range(3000)]\n"
        "    gc.collect()\n"
        "print(sum(stage['collections'] for stage in gc.get_stats()), flush=True)\n"
        "gc.disable()\n"
        "import os; os._exit(0)\n"
    )
    done = tune(
        *("record", "-o", "mine.tts", "--operation-usdt", "python:gc__start,gc__done"),
        *("--", str(PYTHON), "-I", str(script)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    collections = int(done.stdout)
    assert collections >= 20
    assert f"operations   {collections:,} from the first to the last" in done.stderr
