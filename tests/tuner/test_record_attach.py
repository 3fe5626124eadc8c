# SPDX-License-Identifier: MIT
"""`tune record --pid` and `--cgroup`: what is refused, what comes out, and the guard that undoes.
DAMON itself is the subject of tests/live/test_live_attach.py."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, engine
from tuner.documents import catalog
from tuner.record import damon

REGIONS = b"""\
tiertune 0 [000] 5.000000: PERF_RECORD_MMAP2 0/0: [0x100000(0x8000) @ 0 00:00 0 0]: rw-p table
tiertune 0 [000] 5.000000: PERF_RECORD_MMAP2 0/0: [0x200000(0x4000) @ 0 00:00 0 0]: rw-p libx.so.1
 kdamond.0-9 [000] ..... 5.1: damon_aggregated: target_id=0 nr_regions=2 1048576-1090000: 20 0
 kdamond.0-9 [000] ..... 5.1: damon_aggregated: target_id=0 nr_regions=2 1990000-2113536: 1 0
CPU:0 [LOST 3 EVENTS]
 kdamond.0-9 [000] ..... 6.1: damon_aggregated: target_id=0 nr_regions=1 1048576-1081344: 10 0
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a kernel with DAMON, without what they do."""
    root = tmp_path / "root"
    for path, text in {
        "nr_kdamonds": "0\n",
        "0/contexts/0/avail_operations": "vaddr\nfvaddr\npaddr\n",
    }.items():
        file = root / damon.KDAMONDS / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / damon.TRACING[0] / damon.EVENT).mkdir(parents=True)
    monkeypatch.setattr(damon.Damon, "root", root)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def watched(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the kernel would say, and what it was asked."""
    asked: dict[str, Any] = {"says": REGIONS, "saw": damon.Watched(seconds=2, processor=3.6)}

    def watch(
        pids: Iterable[int],
        seconds: float,
        monitoring: damon.Monitoring,
        out: damon.Lines,
        *,
        members: Callable[[], set[int]],
        told: Callable[[float], bool],
    ) -> damon.Watched:
        asked.update(pids=list(pids), seconds=seconds, monitoring=monitoring, members=members())
        asked["began"] = time.monotonic()
        out.write(asked["says"])
        saw = asked["saw"]
        assert isinstance(saw, damon.Watched)
        saw.disk_full = out.full
        return saw

    monkeypatch.setattr(damon, "watch", watch)
    return asked


def record(*words: str) -> int:
    return cli.main(["record", "-o", "mine.tts", *words])


def test_what_was_watched_becomes_a_workload(
    watched: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    me = str(os.getppid())
    assert record("--pid", me, "--for", "2s", "--set", "sample_ms=10", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert watched["pids"] == [int(me)] and watched["seconds"] == 2
    assert watched["monitoring"] == damon.Monitoring(10_000, 100_000, 10, 1000)
    assert summary["accesses"] == 20 * 8 + 4 + 10 * 8
    assert (summary["threads"], summary["dropped"], summary["complete"]) == (2, 3, False)
    assert summary["region_bytes"] == 1090000 - 1048576
    objects = engine.native().stream_info("mine.tts")["objects"]
    assert {each["site"]: each["pages"] for each in objects} == {"table": 8, "libx.so.1": 4}
    spec = catalog.workload("./mine.yaml").spec
    assert spec.sources == [f"tune record --sampler damon --pid {me} --for 2"]
    assert "in regions of 40.5 KiB and more for half of it, stores taken for loads" in spec.summary
    assert spec.inputs["recorded"].sampling is not None
    assert "3 observations could not be kept" in spec.inputs["recorded"].sampling.missing[0]


def test_the_summary_says_what_was_not_seen(
    watched: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    watched["saw"] = damon.Watched(seconds=2, processor=1, unseen=1, ended=[os.getppid()])
    assert record("--pid", str(os.getppid()), "--for", "2") == 0
    said = capsys.readouterr().err
    assert "half of what was found accessed lies in regions at least so large" in said
    assert "at most one per page and 5 ms, loads and stores alike" in said
    assert "the recording of 1 process was cut short" in said
    assert "1 process could not be recorded" in said
    assert "next: tune run --workload ./mine.yaml" in said


def test_watching_begins_later_if_asked(
    watched: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    assert record("--pid", str(os.getppid()), "--for", "2", "--after", "0.3") == 0
    assert watched["began"] - start >= 0.3
    assert "beginning in 0.3 s" in capsys.readouterr().err


def test_the_processes_of_a_control_group_are_watched(
    watched: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "group/inner").mkdir(parents=True)
    (tmp_path / "group/cgroup.procs").write_text(f"{os.getppid()}\n")
    (tmp_path / "group/inner/cgroup.procs").write_text("1\n")
    assert record("--cgroup", "group", "--for", "1") == 0
    assert watched["pids"] == sorted({1, os.getppid()}) == sorted(watched["members"])


def test_nothing_found_accessed_is_an_error(
    watched: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched["says"] = REGIONS[: REGIONS.index(b" kdamond")]
    assert record("--pid", "1", "--for", "1") == 2
    assert "no access in 2 lines" in capsys.readouterr().err
    assert not (tmp_path / "mine.tts").exists() and not (tmp_path / "mine.yaml").exists()


class SmallDisk(io.FileIO):
    """Has room for so many bytes."""

    room = 0

    def write(self, text: Any) -> int:
        if self.tell() >= self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text[: self.room - self.tell()])


@pytest.mark.parametrize(
    ("until", "accesses"),
    [(b"1990000", 20 * 8), (b"CPU:0", 20 * 8 + 4), (b"PU:0", 20 * 8 + 4)],
)
def test_a_full_disk_ends_it_and_keeps_what_came_before(
    watched: dict[str, Any],
    until: bytes,
    accesses: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SmallDisk, "room", REGIONS.index(until))
    monkeypatch.setattr(damon, "plain", lambda path, mode, buffering: SmallDisk(path, mode))
    assert record("--pid", str(os.getppid()), "--for", "2s", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["disk_full"], summary["complete"]) == (True, False)
    assert summary["accesses"] == accesses
    sampling = catalog.workload("./mine.yaml").spec.inputs["recorded"].sampling
    assert sampling is not None and sampling.disk_full
    assert "the disk filled up: the trace holds what came before" in sampling.missing


def test_lines_of_any_length_end_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallDisk, "room", 300_000)
    monkeypatch.setattr(damon, "plain", lambda path, mode, buffering: SmallDisk(path, mode))
    for number, (text, left) in enumerate(((b"ab\n" + b"c" * 400_000, 3), (b"d" * 400_000, 0))):
        path = tmp_path / str(number)
        lines = damon.Lines(path)
        lines.write(text)
        lines.write(b"more\n")
        lines.close()
        assert lines.full and path.read_bytes() == text[:left]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pid", "1"), "--pid and --cgroup need --for S"),
        (("--pid", "1", "--for", "1", "--", "true"), "no command goes with them"),
        (("--pid", "1", "--for", "1", "--set-up", "1"), "--set-up: belongs to a command"),
        (("--pid", "1", "--for", "1", "--sampler", "emulation"), "only a program that it starts"),
        (("--pid", "4194304", "--for", "1"), "--pid 4194304: there is no such process"),
        (("--pid", str(os.getpid()), "--for", "1"), "it cannot watch itself"),
        (("--cgroup", "none", "--for", "1"), "--cgroup none: no control group (no /sys/fs/cgroup/"),
        (("--after", "1", "--", "true"), "--after: belongs to --pid and --cgroup"),
        (("--sampler", "damon", "--", "true"), "watches processes that run already: --pid P"),
        (("--pid", "1", "--for", "1", "--set", "sample_ms=60"), "at least twice sample_ms (60)"),
        (("--pid", "1", "--for", "1", "--set", "min_regions=2000"), "at most max_regions (1000)"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    watched: dict[str, Any], words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(*words) == 2
    assert said in capsys.readouterr().err
    assert "pids" not in watched


def test_what_a_kernel_lacks_is_named(kernel: Path) -> None:
    assert damon.lacking(kernel) is None
    number = kernel / damon.KDAMONDS / "nr_kdamonds"
    number.write_text("1\n")
    assert "DAMON is in use by somebody else" in str(damon.lacking(kernel))
    known = kernel / damon.KDAMONDS / "0/contexts/0/avail_operations"
    known.write_text("paddr\n")
    assert "CONFIG_DAMON_VADDR: this one's DAMON knows only paddr" in str(damon.lacking(kernel))
    number.write_text("0\n")
    (kernel / damon.TRACING[0] / damon.EVENT).rmdir()
    assert "mount -t tracefs none /sys/kernel/tracing" in str(damon.lacking(kernel))
    assert "needs the kernel's DAMON: there is no /sys/kernel/mm/damon" in str(
        damon.lacking(kernel / "none")
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_the_guard_undoes_whatever_ends_its_process(number: int | None, tmp_path: Path) -> None:
    told, tell = os.pipe()
    undone = tmp_path / "undone"
    child = os.fork()
    if child == 0:
        guard = damon.Guard(lambda: undone.mkdir())
        os.write(tell, b"x")
        if number is None:
            guard.close()
            os._exit(0 if undone.is_dir() else 1)
        os.kill(os.getpid(), number)
    os.close(tell)
    assert os.read(told, 1) == b"x"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-number if number else 0)
    # Only the guard can tell when it has ended, by nothing but what it did.
    while not undone.is_dir():
        select.select([], [], [], 0.01)


def test_children_are_known(tmp_path: Path) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(told, 1)
        os._exit(0)
    try:
        assert child in damon.children([os.getpid()])
        assert child not in damon.children([os.getpid(), child])
    finally:
        os.close(tell)
        os.waitpid(child, 0)


def test_mappings_are_told_once_and_growth_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = "1000-3000 rw-p 00000000 00:00 0    [heap]\n"
    maps = [f"{heap}5000-6000 r-xp 0 08:01 7   /lib/libx.so (deleted)"]
    monkeypatch.setattr(damon, "_read", lambda path: maps[0])
    mappings = damon.Mappings([1])
    names = [line.split(" ", 5)[-1] for line in mappings.lines(1)]
    assert names == [
        "0/0: [0x1000(0x2000) @ 0 00:00 0 0]: rw-p heap\n",
        "0/0: [0x5000(0x1000) @ 0 00:00 0 0]: rw-p libx.so\n",
    ]
    maps[0] = "1000-4000 rw-p 00000000 00:00 0    [heap]\n5000-6000 rw-p 0 00:00 0"
    assert [line.split(" ", 5)[-1] for line in mappings.lines(2)] == [
        "0/0: [0x3000(0x1000) @ 0 00:00 0 0]: rw-p heap\n",
        "0/0: [0x5000(0x1000) @ 0 00:00 0 0]: rw-p anonymous\n",
    ]
    assert list(mappings.lines(3)) == []
