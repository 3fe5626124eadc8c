# SPDX-License-Identifier: MIT
"""The hint-fault sampler in real programs: that they never notice, and what it learns of them.

The programs (hint_fault_program.cpp) check their own memory all the time. They run until they have
been sampled often enough, so that speed and load of the machine do not matter. Bounds on what is
learnt are generous: it is a sample.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tuner import cli
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.record import samplers
from tuner.record.process import UNSEEN
from tuner.record.samplers.hint_fault import HintFault

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("hint_fault_program.cpp")
PAGE = 4096
TIME, SITE, MAP, ACCESS, COMPUTE = 1, 2, 3, 6, 7
CLOSED = 1

# Uses operator new, and its failure, in a library that is loaded, unloaded and loaded again.
PLUGIN = """
#include <new>
#include <string>
#include <vector>
extern "C" int run(long bytes, const char** said) {
  static std::string kept = "caught";
  std::vector<int*> all;
  for (int i = 0; i < 42; ++i) all.push_back(new int(1));
  int sum = 0;
  for (int* one : all) { sum += *one; delete one; }
  try {
    delete[] new char[bytes];
  } catch (const std::bad_alloc&) {
    *said = kept.c_str();
  }
  return sum;
}
"""
HOST = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** words) {
  (void)count;
  for (int i = 0; i < 3; ++i) {
    void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(long, const char**) = (int (*)(long, const char**))dlsym(library, "run");
    const char* said = "not caught";
    int sum = run(1l << 62, &said);
    if (i == 2) printf("%d %s, ", sum, said);
    dlclose(library);
  }
  const char* error = dlerror();
  puts(error ? error : "no error");
}
"""

MISSING = HintFault.unavailable()
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=f"hint-fault {MISSING}"),
    # While it records, the tuner keeps all signals for the program, the timeout's SIGALRM too.
    pytest.mark.timeout(method="thread"),
]


@dataclass
class Spool:
    state: int
    samples: float
    threads: int
    accesses: Counter[int] = field(default_factory=Counter)  # by page address
    late: Counter[int] = field(default_factory=Counter)  # of the last two thirds of the time
    maps: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    compute_s: float = 0
    error: float = 0


def read(path: Path) -> Spool:
    """As engine/record/spool.hpp lays it out."""
    data = path.read_bytes()
    _, _, _, start, count, state, threads, _, samples, last, error = struct.unpack_from(
        "<QIIQQIIQdQd", data
    )
    out = Spool(state, samples, threads, error=error)
    at, now, site = 0, start, ""
    while at < count:
        word, value = struct.unpack_from("<QQ", data, 4096 + at * 16)
        number = struct.unpack_from("<d", data, 4096 + at * 16 + 8)[0]
        at += 1
        kind, address = word >> 48 & 0xFF, word & (1 << 48) - 1
        if kind == TIME:
            now = value
        elif kind == SITE:
            site = data[4096 + at * 16 :][:value].decode()
            at += -(-value // 16)
        elif kind == MAP:
            out.maps[site].append((address, value))
            site = ""
        elif kind == ACCESS:
            out.accesses[address] += number
            if now - start > (last - start) / 3:
                out.late[address] += number
        elif kind == COMPUTE:
            out.compute_s += number * 1e-9
    return out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    path = tmp_path_factory.mktemp("program") / "checker"
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-pthread", str(SOURCE), "-o", str(path)], check=True
    )
    return path


@dataclass
class Recorder:
    folder: Path

    def __call__(
        self, *command: str | Path, overhead: float = 50, llc_mib: float = 0.0625
    ) -> tuple[subprocess.CompletedProcess[str], list[Spool]]:
        sampler = HintFault({"overhead": overhead, "llc_mib": llc_mib}, catalog.machine("skx").spec)
        folder = self.folder / f"spools{time.monotonic_ns()}"
        folder.mkdir()
        (folder / UNSEEN).write_bytes(bytes(4096))
        launch = sampler.launch([shutil.which(command[0]) or "", *map(str, command[1:])], folder)
        done = subprocess.run(
            launch.command,
            env=os.environ
            | dict(launch.environment)
            | {
                samplers.FOLDER_VARIABLE: str(folder),
                samplers.START_VARIABLE: str(time.monotonic_ns()),
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done, [read(path) for path in sorted(folder.glob("*.spool"))]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


# --- What it learns -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_hot_half_of_an_array_is_hot_in_the_recording(
    program: Path, recorded: Recorder
) -> None:
    done, (spool,) = recorded(program, "hot", "8000")
    assert done.returncode == 0, done.stderr
    place, count, used_s = done.stdout.split()
    base, pages = int(place, 16) // PAGE * PAGE, int(count)
    half = [0.0, 0.0]
    for address, touches in spool.late.items():
        if base <= address < base + pages * PAGE:
            half[(address - base) * 2 // (pages * PAGE)] += touches
    assert half[0] > 2.5 * half[1], half  # in truth 49 times

    # By its call site: the array is an object of its own.
    ((start, size),) = (
        maps[0] for site, maps in spool.maps.items() if site.startswith("checker+0x")
    )
    assert start <= base < start + size == start + (pages + 1) * PAGE
    # The time is the program's own: the process's, without the sampler's share.
    assert 0 < spool.compute_s < float(used_s)
    assert 0 < spool.error < 1


@pytest.mark.slow
def test_a_lower_bound_on_the_overhead_takes_fewer_pages(program: Path, recorded: Recorder) -> None:
    per_second = []
    for overhead in (1, 40):
        done, (spool,) = recorded(program, "hot", str(10 * overhead), overhead=overhead)
        assert done.returncode == 0, done.stderr
        per_second.append(spool.samples / float(done.stdout.split()[-1]))
    assert per_second[0] * 4 < per_second[1], per_second


def test_a_recording_by_the_command_line_is_a_workload(
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["record", "--sampler", "hint-fault", "--set", "overhead=30", "--json"]
    assert cli.main([*words, "-o", "mine.tts", "--", str(program), "hot", "200"]) == 0
    printed = capfd.readouterr()
    summary = json.loads(printed.out)
    assert summary["sampler"] == "hint-fault" and not summary["cut_short"]
    assert summary["accesses"] > 0 and summary["samples"] >= 200 and summary["threads"] == 1
    assert 2048 * PAGE <= summary["footprint_bytes"] < 4096 * PAGE
    used_s = float(printed.err.splitlines()[1])  # as the program says, the sampler's time included
    assert 0.2 * used_s < summary["nominal_seconds"] < 1.5 * used_s


# --- What the program does not notice -------------------------------------------------------------


@pytest.mark.parametrize(
    "mode",
    [
        *("threads", "hot"),
        *(
            pytest.param(mode, marks=pytest.mark.slow)
            for mode in ("io", "forks", "remap", "grow", "huge", "orphan")
        ),
    ],
)
def test_programs_find_their_memory_as_they_left_it(
    program: Path, recorded: Recorder, mode: str
) -> None:
    # Those that change their mappings a lot give the sampler little to take.
    samples = {"grow": 20, "forks": 50, "huge": 50, "remap": 100}.get(mode, 400)
    done, spools = recorded(program, mode, str(samples))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(spool.state == CLOSED for spool in spools)
    assert max(spool.samples for spool in spools) >= samples


@pytest.mark.slow
def test_children_are_recorded_too(program: Path, recorded: Recorder) -> None:
    done, spools = recorded(program, "family", "50")
    assert done.returncode == 0, done.stderr
    assert len(spools) == 2
    sizes = sorted(max(size for maps in s.maps.values() for _, size in maps) for s in spools)
    assert sizes == [601 * PAGE, 901 * PAGE]
    assert all(spool.samples >= 50 for spool in spools)


@pytest.mark.parametrize(("mode", "number"), [("crash", signal.SIGSEGV), ("kill", signal.SIGKILL)])
def test_a_crash_leaves_what_came_before(
    program: Path, recorded: Recorder, mode: str, number: signal.Signals
) -> None:
    done, (spool,) = recorded(program, mode, "50")
    assert done.returncode == -number
    assert spool.state != CLOSED
    assert spool.samples >= 50 and len(spool.accesses) >= 1024


def test_a_program_that_dies_at_once_is_not_said_to_be_exact(recorded: Recorder) -> None:
    done, (spool,) = recorded("sh", "-c", "kill -KILL $$")
    assert done.returncode == -signal.SIGKILL
    assert spool.error > 0


def test_a_c_program_may_load_the_cpp_library_late(recorded: Recorder, tmp_path: Path) -> None:
    """As Python does with NumPy: the C++ library comes with a local dlopen, and is in no scope in
    which the sampler's library could find it."""
    (tmp_path / "plugin.cpp").write_text(PLUGIN)
    (tmp_path / "host.c").write_text(HOST)
    compiler = shutil.which("c++")
    c_compiler = shutil.which("cc")
    if compiler is None or c_compiler is None:
        pytest.skip("no C++ compiler")
    library, host = tmp_path / "plugin.so", tmp_path / "host"
    words = ["-shared", "-fPIC", "-O0", str(tmp_path / "plugin.cpp"), "-o", str(library)]
    subprocess.run([compiler, *words], check=True)
    subprocess.run([c_compiler, str(tmp_path / "host.c"), "-o", str(host), "-ldl"], check=True)
    done, _ = recorded(host, library)
    assert (done.returncode, done.stdout) == (0, "42 caught, no error\n"), done.stderr


def test_a_child_that_cannot_be_recorded_is_counted(recorded: Recorder) -> None:
    text = """
        import mmap, os, resource, signal
        with open(os.environ["TIERTUNE_RECORD"] + "/unseen", "r+b") as file:
            count = mmap.mmap(file.fileno(), 4096)
        if os.fork() == 0:
            signal.alarm(50)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # it can open no spool
            while count[0] == 0:
                pass
            os._exit(0)
        _, status = os.wait()
        print(status, count[0])
    """
    done, spools = recorded(sys.executable, "-c", textwrap.dedent(text))
    assert (done.stdout, len(spools)) == ("0 1\n", 1), done.stderr


@pytest.mark.slow
def test_a_python_program(recorded: Recorder) -> None:
    text = """
        import glob, hashlib, os, struct, subprocess
        (spool,) = glob.glob(f"{os.environ['TIERTUNE_RECORD']}/{os.getpid()}.spool")
        def samples():
            with open(spool, "rb") as file:
                return struct.unpack_from("<d", file.read(64), 48)[0]
        data = bytearray(os.urandom(1 << 20)) * 16
        digest = hashlib.sha256(data).hexdigest()
        while samples() < 25:
            assert hashlib.sha256(data).hexdigest() == digest
            data += b""
        print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
    """
    done, spools = recorded(sys.executable, "-c", textwrap.dedent(text))
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr
    assert max(spool.samples for spool in spools) >= 25


def test_a_program_that_becomes_another_ends_its_recording(
    program: Path, recorded: Recorder
) -> None:
    done, spools = recorded("sh", "-c", f"exec {program} hot 20")
    assert done.returncode == 0, done.stderr
    assert [spool.state for spool in spools] == [CLOSED]


# --- What cannot be recorded ----------------------------------------------------------------------


def test_a_static_program_is_refused_with_the_alternative(program: Path, tmp_path: Path) -> None:
    data = bytearray(program.read_bytes())
    start, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    for at in range(start, start + size * count, size):
        if struct.unpack_from("<I", data, at)[0] == 3:  # the loader's name
            struct.pack_into("<I", data, at, 0)
    static = tmp_path / "static"
    static.write_bytes(data)
    sampler = HintFault({}, catalog.machine("skx").spec)
    with pytest.raises(UserError, match=r"statically linked.*--sampler emulation"):
        sampler.launch([str(static)], tmp_path)
    script = tmp_path / "script"
    script.write_text(f"#!{static} -x\n")
    with pytest.raises(UserError, match="statically linked"):
        sampler.launch([str(script)], tmp_path)
    script.write_text("echo no interpreter\n")
    with pytest.raises(UserError, match="not a 64-bit program"):
        sampler.launch([str(script)], tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EPERM, "CAP_SYS_PTRACE"), (errno.EINVAL, r"Linux 6\.8"), (errno.ENOSYS, "UFFDIO_MOVE")],
)
def test_what_is_missing_is_named_with_the_alternative(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    class Library:
        def __init__(self, path: str) -> None:
            self.tiertune_hint_fault_probe = lambda: number

    monkeypatch.setattr("ctypes.CDLL", Library)
    reason = HintFault.unavailable()
    assert reason is not None
    assert pytest.importorskip("re").search(words, reason)
    assert "--sampler emulation" in reason
