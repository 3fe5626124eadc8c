# SPDX-License-Identifier: MIT
"""DAMON: what the kernel's monitor sees of processes that run, and nothing that stays behind.

It is set up by its files in sysfs to watch virtual addresses, and tells by its tracepoint in an
instance of tracefs of our own (Documentation/admin-guide/mm/damon/usage.rst; Documentation/trace/
ftrace.rst, "Instances"). A process beside us, the guard, undoes all of it when we end, however that
is.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tuner.errors import UserError
from tuner.files import plain, write_setting

KDAMONDS = Path("sys/kernel/mm/damon/admin/kdamonds")
STAT = Path("sys/module/damon_stat/parameters/enabled")
"""Since 6.17 the kernel may watch itself by default, and keeps others out then."""
TRACING = (Path("sys/kernel/tracing"), Path("sys/kernel/debug/tracing"))
EVENT = "events/damon/damon_aggregated"
INSTANCE = "tiertune-"
BUFFER_KIB = 8192
CHECK_SECONDS = 1.0
"""Between looks at what the processes have mapped."""
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)")


@dataclass(frozen=True)
class Monitoring:
    """In microseconds; see the kernel's documentation."""

    sample_us: int
    aggregate_us: int
    min_regions: int
    max_regions: int


@dataclass
class Watched:
    """`seconds`: on the clock, fewer than asked for if all processes have ended. `processor`: time
    that they took meanwhile. `unseen`: processes that they started, or that entered the group.
    `kernel_processor`: what the kernel's thread took. `disk_full`: that ended it."""

    seconds: float = 0
    processor: float = 0
    kernel_processor: float = 0
    unseen: int = 0
    disk_full: bool = False
    ended: list[int] = field(default_factory=list)


def lacking(root: Path = Path("/")) -> str | None:
    """What keeps DAMON from watching here, and what helps; None: nothing."""
    folder = root / KDAMONDS
    if not folder.is_dir():
        return (
            f"needs the kernel's DAMON: there is no /{KDAMONDS} (a kernel with CONFIG_DAMON_SYSFS "
            "and CONFIG_DAMON_VADDR, as Debian's and Ubuntu's are)"
        )
    if not os.access(folder / "nr_kdamonds", os.W_OK):
        return f"needs root: /{KDAMONDS}/nr_kdamonds cannot be written"
    number = _read(folder / "nr_kdamonds")
    if number != "0":
        known = _read(folder / "0/contexts/0/avail_operations").split()
        if known and "vaddr" not in known:
            return (
                "needs a kernel with CONFIG_DAMON_VADDR: this one's DAMON knows only "
                f"{', '.join(known)} (/{KDAMONDS}/0/contexts/0/avail_operations)"
            )
        return (
            f"DAMON is in use by somebody else: /{KDAMONDS}/nr_kdamonds is {number}; end what "
            "uses it, or write 0 there"
        )
    if _tracing(root) is None:
        return (
            "needs DAMON's tracepoint damon_aggregated and tracefs: mount -t tracefs none "
            "/sys/kernel/tracing"
        )
    return None


def _tracing(root: Path) -> Path | None:
    return next((root / path for path in TRACING if (root / path / EVENT).is_dir()), None)


def _read(path: Path) -> str:
    """Empty where there is nothing."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _write(path: Path, value: object, hint: str = "") -> None:
    try:
        write_setting(path, f"{value}\n")
    except OSError as error:
        raise UserError(f"DAMON: writing {value} to {path}: {error.strerror}{hint}") from error


class Guard:
    """A process that undoes what was set up, when this one closes a pipe or ends. It has a session
    of its own, so that what ends this one's group does not end it."""

    def __init__(self, undo: Callable[[], None]) -> None:
        watched, self._held = os.pipe()
        self._pid = os.fork()
        if self._pid != 0:
            os.close(watched)
            return
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
            # Who waits for the end of our pipes and locks must not wait for the guard.
            os.closerange(0, watched)
            os.closerange(watched + 1, os.sysconf("SC_OPEN_MAX"))
            while os.read(watched, 1):
                pass
            undo()
        finally:
            os._exit(0)

    def close(self) -> None:
        """Returns when all is undone."""
        os.close(self._held)
        os.waitpid(self._pid, 0)


class Damon:
    """DAMON on processes, with its tracepoint's text in a pipe."""

    root: ClassVar[Path] = Path("/")

    def __init__(self, pids: Sequence[int], monitoring: Monitoring) -> None:
        self._folder = self.root / KDAMONDS
        tracing = _tracing(self.root)
        assert tracing is not None  # lacking() has told
        self.instance = tracing / "instances" / f"{INSTANCE}{os.getpid()}"
        self._stat = _read(self.root / STAT)
        self._forget_dead(tracing / "instances")
        self._guard = Guard(self._undo)
        try:
            self._start(pids, monitoring)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _forget_dead(instances: Path) -> None:
        """Instances of those whose guard was killed, too."""
        for path in instances.glob(f"{INSTANCE}*"):
            if not Path(f"/proc/{path.name.removeprefix(INSTANCE)}").exists():
                with suppress(OSError):
                    path.rmdir()

    def _start(self, pids: Sequence[int], monitoring: Monitoring) -> None:
        if self._stat.upper() in ("Y", "1"):
            _write(self.root / STAT, "N")
        _write(self._folder / "nr_kdamonds", 1)
        kdamond = self._folder / "0"
        _write(kdamond / "contexts/nr_contexts", 1)
        context = kdamond / "contexts/0"
        _write(context / "operations", "vaddr", "; it takes a kernel with CONFIG_DAMON_VADDR")
        attributes = context / "monitoring_attrs"
        _write(attributes / "intervals/sample_us", monitoring.sample_us)
        _write(attributes / "intervals/aggr_us", monitoring.aggregate_us)
        _write(attributes / "intervals/update_us", 10 * monitoring.aggregate_us)
        _write(attributes / "nr_regions/min", monitoring.min_regions)
        _write(attributes / "nr_regions/max", monitoring.max_regions)
        _write(context / "targets/nr_targets", len(pids))
        for number, pid in enumerate(pids):
            _write(context / f"targets/{number}/pid_target", pid)
        try:
            self.instance.mkdir()
        except OSError as error:
            raise UserError(f"tracefs: {self.instance}: {error.strerror}") from error
        _write(self.instance / "trace_clock", "mono")
        _write(self.instance / "buffer_size_kb", BUFFER_KIB)
        _write(self.instance / EVENT / "enable", 1)
        self.pipe = os.open(self.instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        gone = [pid for pid in pids if not Path(f"/proc/{pid}").exists()]
        _write(kdamond / "state", "on", f" (process {gone[0]} has ended)" if gone else "")
        self._thread = int(_read(kdamond / "pid") or 0)

    def _undo(self) -> None:
        """In the guard. Each of these may fail because it was not set up, or has ended by itself
        with the last process."""
        for path, value in (
            (self._folder / "0/state", "off"),
            (self._folder / "nr_kdamonds", "0"),
            *([(self.root / STAT, self._stat)] if self._stat else []),
            (self.instance / EVENT / "enable", "0"),
        ):
            with suppress(OSError):
                write_setting(path, value)
        for _ in range(100):
            try:
                self.instance.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:  # the recorder, which is dying, has it open
                    return
                time.sleep(0.1)

    def on(self) -> bool:
        return _read(self._folder / "0/state") == "on"

    def processor(self) -> float:
        """Seconds that the kernel's thread has taken."""
        return processor(self._thread)

    def close(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.pipe)
        self._guard.close()


def processor(pid: int) -> float:
    """Seconds of processor time of a process; 0 when it has ended."""
    words = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK") if words else 0.0


def children(pids: Sequence[int]) -> set[int]:
    """The processes that these have started and that live, and so on."""
    found = list(pids)
    for pid in found:  # grows meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, _read(task).split())
    return set(found) - set(pids)


def members(group: Path) -> set[int]:
    """The processes of a control group and of those below it."""
    return {int(pid) for path in group.rglob("cgroup.procs") for pid in _read(path).split()}


def names(pids: Sequence[int]) -> str:
    """Those of programs, each once; of a process that has ended its number."""
    return ", ".join(dict.fromkeys(_read(Path(f"/proc/{pid}/comm")) or str(pid) for pid in pids))


class Lines:
    """A file of whole lines, which ends where its disk is full."""

    FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = plain(path, "xb", buffering=0)
        self.full = False

    def write(self, text: bytes) -> None:
        """Nothing once it is full. OSError for other reasons."""
        try:
            while text and not self.full:
                text = text[self._file.write(text) :]
        except OSError as error:
            if error.errno not in self.FULL:
                raise
            self.full = True
            os.truncate(self._path, self._whole())

    def _whole(self) -> int:
        """Bytes up to the end of the last whole line."""
        end = self._path.stat().st_size
        with self._path.open("rb") as file:
            while end > 0:
                begin = max(0, end - (1 << 16))
                file.seek(begin)
                if (found := file.read(end - begin).rfind(b"\n")) >= 0:
                    return begin + found + 1
                end = begin
        return 0

    def close(self) -> None:
        self._file.close()


class Mappings:
    """What processes map, as lines for the importer: each part once, and whatever is new."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._known: list[dict[tuple[int, int], str]] = [{} for _ in pids]
        self._pids = pids

    def lines(self, now: float) -> Iterator[str]:
        for target, pid in enumerate(self._pids):
            found: dict[tuple[int, int], str] = {}
            for line in _read(Path(f"/proc/{pid}/maps")).splitlines():
                if (parts := MAPPING.fullmatch(line)) and parts[4] not in ("[vvar]", "[vdso]"):
                    name = parts[4].removesuffix(" (deleted)").rpartition("/")[2].strip("[]")
                    found[int(parts[1], 16), int(parts[2], 16)] = name or "anonymous"
            before = self._known[target]
            for (start, end), name in found.items():
                grown = [e for (s, e), n in before.items() if s == start and n == name and e < end]
                if before.get((start, end)) == name:
                    continue
                at = max(grown, default=start)
                yield (
                    f"tiertune {target} [000] {now:.6f}: PERF_RECORD_MMAP2 {target}/{target}: "
                    f"[{at:#x}({end - at:#x}) @ 0 00:00 0 0]: rw-p {name}\n"
                )
            self._known[target] = found or before


@contextmanager
def watching(pids: Sequence[int], monitoring: Monitoring) -> Iterator[Damon]:
    damon = Damon(pids, monitoring)
    try:
        yield damon
    finally:
        damon.close()


def watch(
    pids: Sequence[int],
    seconds: float,
    monitoring: Monitoring,
    out: Lines,
    *,
    members: Callable[[], set[int]] = set,
    told: Callable[[float], bool] = lambda _: True,
) -> Watched:
    """Writes what DAMON says for so long, as text (`tune import --format damon` reads it).
    `members`: further processes that belong to what is recorded. `told` gets the share that is
    done; False ends it, and so does a full disk."""
    watched = Watched()
    mappings = Mappings(pids)
    seen = members() | set(pids)
    late: set[int] = set()
    with watching(pids, monitoring) as damon:
        begin = time.monotonic()
        before = {pid: processor(pid) for pid in pids}
        after = dict(before)
        look = begin
        while True:
            now = time.monotonic()
            if now >= look:
                look = now + CHECK_SECONDS
                out.write("".join(mappings.lines(now)).encode())
                watched.kernel_processor = damon.processor() or watched.kernel_processor
                late |= (children(pids) | members()) - seen
                after |= {pid: took for pid in pids if (took := processor(pid))}
                if not told(min(1.0, (now - begin) / seconds)) or not damon.on():
                    break
            if now >= begin + seconds or out.full:
                break
            wait = min(look, begin + seconds) - now
            select.select([damon.pipe], [], [], max(0.0, wait))
            with suppress(BlockingIOError):
                out.write(os.read(damon.pipe, 1 << 20))
        watched.seconds = time.monotonic() - begin
        watched.kernel_processor = damon.processor() or watched.kernel_processor
        with suppress(BlockingIOError):
            while text := os.read(damon.pipe, 1 << 20):
                out.write(text)
    watched.disk_full = out.full
    watched.processor = sum(after[pid] - before[pid] for pid in pids)
    watched.ended = [pid for pid in pids if not Path(f"/proc/{pid}").exists()]
    watched.unseen = len(late)
    return watched
