# SPDX-License-Identifier: MIT
"""`tune record` around any sampler: the program's streams, signals and exit status, the files that
come out, and what happens when there is no room or nothing to record.

The sampler of these tests writes a spool of its own, so that no emulator and no kernel feature is
needed.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import python_path, started
from spools import ACCESS, CLOSED, MAP, OPEN, PAGE, TIME, UNMAP, entry, spool, two_arrays

from tuner import cli, engine
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.record import samplers
from tuner.record.samplers import Launch, Option, Sampler, StreamClass

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[1]
DEADLINE = 50
"""Seconds after which something hangs, on however loaded a machine. Less than a test's own limit,
which would say nothing of the program."""

# While it records, the tuner keeps all signals for the program, the timeout's SIGALRM too.
pytestmark = pytest.mark.timeout(method="thread")


class Scripted(Sampler):
    """Writes `entries` as a spool when the program exists; the program itself just runs."""

    name = "scripted"
    summary = "a sampler of the tests"
    options = (
        Option("rate", 5, 1, 100, "Hz", "how often"),
        Option("cache", None, 0, 1000, "MiB", "how much"),
    )
    classes = (StreamClass("random", mlp=4), StreamClass("sequential", mlp=8))
    wall_time = False
    entries: tuple[bytes, ...] = tuple(two_arrays())
    state = CLOSED
    error = 0.0
    dropped = 0
    missing: str | None = None

    def from_machine(self, name: str, machine: Any) -> float:
        return float(machine.llc_mib)

    @classmethod
    def unavailable(cls) -> str | None:
        return cls.missing

    def launch(self, command: Sequence[str], folder: Path) -> Launch:
        self.folder = folder
        return Launch(command, {"SEEN_BY_THE_PROGRAM": "yes"})

    def attach(self, pid: int) -> None:
        if self.entries:
            path = self.folder / "77.spool"
            state, error, dropped = self.state, self.error, self.dropped
            spool(path, *self.entries, state=state, error=error, dropped=dropped)

    def remarks(self) -> list[str]:
        return ["scripted to the end"]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Scripted]:
    class Fresh(Scripted):
        pass

    monkeypatch.setattr(samplers, "names", lambda: ["scripted"])
    monkeypatch.setattr(samplers, "find", lambda name: Fresh)
    monkeypatch.chdir(tmp_path)
    return Fresh


def tune_record(*words: str) -> int:
    return cli.main(["record", *words])


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


# --- What comes out -------------------------------------------------------------------------------


def test_a_recording_is_a_trace_and_a_workload_that_can_be_tuned(
    scripted: type[Scripted], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    info = engine.native().stream_info("mine.tts")
    assert info["accesses"] == 81
    assert {o["site"]: o["pages"] for o in info["objects"]} == {"table": 8, "log": 1}
    sites = engine.characteristics(Path("mine.tts"), rows=8, columns=1)["sites"]
    assert {s["site"]: s["accesses"] for s in sites} == {
        "table": [(80, 0), (0, 0)],
        "log": [(0, 0), (0, 1)],
    }

    spec = catalog.workload("./mine.yaml").spec
    assert (spec.objective, spec.scale, spec.machine) == ("runtime", 1, "skx")
    assert spec.default_input == spec.smoke_input == "recorded"
    assert spec.threads == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "recorded 81 accesses to 36.0 KiB in 2 objects" in shown.err
    assert "every access was seen" in shown.err and "scripted to the end" in shown.err
    assert shown.err.rstrip().endswith("next: tune run --workload ./mine.yaml")
    assert leftovers(tmp_path) == []


def test_a_recording_ends_when_it_was_asked_to_and_the_program_goes_on(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sampler outside of the program: it is detached, once, before the spools are read."""
    detached: list[bool] = []
    monkeypatch.setattr(scripted, "state", OPEN)  # that the process 77 lives, it does not know
    monkeypatch.setattr(scripted, "detach", lambda _: detached.append(Path("mine.yaml").exists()))
    until = "until [ -e mine.yaml ]; do :; done; echo goes on; exit 5"
    assert tune_record("-o", "mine.tts", "--for", "0.3", "--json", "--", "sh", "-c", until) == 5
    shown = capfd.readouterr()
    assert detached[0] is False
    summary = json.loads(shown.out)
    assert (summary["exit_status"], summary["ended_after"], summary["accesses"]) == (5, 0.3, 81)
    assert "goes on" in shown.err  # its output, as there is JSON
    sampling = catalog.workload("./mine.yaml").spec.inputs["recorded"].sampling
    assert sampling is not None and sampling.ended_after == 0.3
    # Of a process that had lost its spool before, the recording was cut short.
    lives = Path("/proc/77").exists()
    assert sampling.cut_short == (0 if lives else 1)


def test_the_end_of_the_program_is_noticed_beside_other_threads(scripted: type[Scripted]) -> None:
    # The kernel may hand SIGCHLD to any thread that does not block it, and it is gone.
    enough = threading.Event()
    idle = [threading.Thread(target=enough.wait) for _ in range(8)]
    for thread in idle:
        thread.start()
    try:
        for i in range(5):
            assert tune_record("-o", f"{i}.tts", "--", "true") == 0
    finally:
        enough.set()
        for thread in idle:
            thread.join()


def test_a_recorded_workload_replays(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    capfd.readouterr()
    # A tier that holds everything: nine pages leave no miniature to decide about.
    words = ["sim", "--workload", "./mine.yaml", "--policy", "all-slow", "--fast-gib", "1"]
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["objective"] > 0


def test_the_uncertainty_of_samples_is_told_and_written_down(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    scripted.error = 0.125
    assert tune_record("-o", "mine.tts", "--json", "--", "true") == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["error_share"] == 0.125 and summary["samples"] == 1000
    sampling = catalog.workload("./mine.yaml").spec.inputs["recorded"].sampling
    assert sampling is not None
    assert (sampling.sampler, sampling.samples, sampling.error_share) == ("scripted", 1000, 0.125)
    assert tune_record("-o", "again.tts", "--", "true") == 0
    assert "1,000 samples; a page's count is off by 12.5 %" in capfd.readouterr().err


def test_with_json_standard_output_is_one_object(
    scripted: type[Scripted], capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune_record("--json", "--", "sh", "-c", "echo noise; exit 3") == 3
    shown = capfd.readouterr()
    summary = json.loads(shown.out)
    assert summary["exit_status"] == 3 and summary["accesses"] == 81
    assert summary["complete"] and summary["dropped"] == 0 and summary["processes"] == 1
    assert "noise" in shown.err


def test_a_program_that_unmaps_everything_is_fine(scripted: type[Scripted]) -> None:
    scripted.entries = (
        *two_arrays(),
        entry(UNMAP, 1 << 40, 0),
        entry(TIME, 20_000_000),
    )
    assert tune_record("-o", "mine.tts", "--", "true") == 0
    assert engine.native().stream_info("mine.tts")["accesses"] == 81
    assert cli.main(["sim", "--workload", "./mine.yaml", "--policy", "all-fast", "--json"]) == 0


def test_the_set_up_is_replayed_but_not_timed(
    scripted: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.entries = (*two_arrays(), entry(ACCESS, 7.0, 0x10000), entry(TIME, 20_000_000))
    assert tune_record("-o", "mine.tts", "--set-up", "0.01", "--", "true") == 0
    found = engine.characteristics(Path("mine.tts"))
    assert (found["set_up_accesses"], found["loads"], found["stores"]) == (81, 7, 0)
    capsys.readouterr()
    assert tune_record("-o", "other.tts", "--set-up", "9", "--", "true") == 1
    assert "nothing is left to time" in capsys.readouterr().err


# --- The program is left alone --------------------------------------------------------------------


def test_standard_streams_environment_and_exit_status_pass_through(tmp_path: Path) -> None:
    script = "read line; echo out:$line:$SEEN_BY_THE_PROGRAM; echo err >&2; exit 42"
    done = subprocess.run(
        [*driver(), "-o", "mine.tts", "--", "sh", "-c", script],
        **in_folder(tmp_path),
        input=b"hello\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 42
    assert done.stdout == b"out:hello:yes\n"
    assert done.stderr.startswith(b"err\n")
    assert (tmp_path / "mine.tts").is_file()


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_a_program_that_dies_of_a_signal_leaves_its_trace(
    name: str, scripted: type[Scripted], tmp_path: Path
) -> None:
    number = signal.Signals[name]
    assert tune_record("-o", "mine.tts", "--", "sh", "-c", f"kill -{number.value} $$") == (
        128 + number
    )
    assert engine.native().stream_info("mine.tts")["accesses"] == 81


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_for_us_is_the_program_s(name: str, tmp_path: Path) -> None:
    # It waits with the signal blocked: one that came just before signal.pause() would be missed.
    script = (
        "import signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])\n"
        "print('ready', flush=True)\n"
        f"signal.sigwait([signal.{name}])\n"
        "sys.exit(9)\n"
    )
    with started(
        [*driver(), "-o", "mine.tts", "--", sys.executable, "-c", script],
        **in_folder(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as tune:
        assert tune.stdout is not None and tune.stdout.readline() == b"ready\n"
        tune.send_signal(signal.Signals[name])
        _, said = ended(tune)
        assert tune.returncode == 9, said
    assert (tmp_path / "mine.tts").is_file()


def test_an_interrupt_from_the_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    """The terminal signals the whole foreground group: handing it on would double it."""
    script = (
        "import signal, sys\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(f'seen {len(seen)}', flush=True)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)
            words = [*driver(), "-o", "mine.tts", "--", sys.executable, "-c", script]
            os.execve(words[0], words, in_folder(tmp_path)["env"])
        finally:
            os._exit(127)  # or there would be two processes that run the tests
    text = b""

    def read_until(word: bytes) -> None:
        nonlocal text
        while word not in text:
            text += os.read(terminal, 1000)

    try:
        read_until(b"ready")
        os.write(terminal, b"\x03")
        read_until(b"^C")
        os.write(terminal, b"go on\n")
        read_until(b"next:")
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert b"seen 1" in text
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_program_has_the_usual_signals_and_no_descriptors_of_ours(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []),"
        " [n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')])\n"
        "print([line.split()[1] for line in open('/proc/self/status') if line[:6] == 'SigIgn'])\n"
    )
    program = [sys.executable, "-c", script]
    expected, found = (
        subprocess.run(
            words,
            **in_folder(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
        for words in (program, [*driver(), "--", *program])
    )
    assert found == expected


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which program"),
        (["--"], "which program"),
        (["--", "no-such-program-here"], "no program 'no-such-program-here'"),
        (["-o", "mine.txt", "--", "true"], "must be NAME.tts"),
        (["-o", "a b.tts", "--", "true"], "must be NAME.tts"),
        (["-o", "nowhere/mine.tts", "--", "true"], "there is no folder"),
        (["--set", "rate", "--", "true"], "expected NAME=VALUE"),
        (["--set", "rate=quick", "--", "true"], "must be a number"),
        (["--set", "rat=3", "--", "true"], "no option 'rat'; did you mean 'rate'?"),
        (["--set", "rate=101", "--", "true"], "found 101, allowed 1 to 100 Hz"),
        (["--set", "rate=nan", "--", "true"], "--set rate: found 'nan'; must be a number"),
        (["--machine", "skyx", "--", "true"], "no machine 'skyx'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    words: list[str],
    message: str,
    scripted: type[Scripted],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted.launch = None  # type: ignore[method-assign,assignment]
    assert tune_record(*words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_not_replaced_unasked(
    scripted: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    assert tune_record("-o", "mine.tts", "--", "true") == 2
    assert "mine.yaml exists; --force" in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    assert tune_record("-o", "mine.tts", "--force", "--", "true") == 0
    assert catalog.workload("./mine.yaml").spec.name == "mine"


def test_a_sampler_that_cannot_work_here_says_why(
    scripted: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.missing = "needs a kernel from the future"
    assert tune_record("--", "true") == 2
    assert "sampler scripted: needs a kernel from the future" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["exit 0", "exit 5"])
def test_nothing_recorded_is_an_error_unless_the_program_s_own_comes_first(
    script: str,
    scripted: type[Scripted],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted.entries = ()
    assert tune_record("-o", "mine.tts", "--", "sh", "-c", script) == (
        1 if script == "exit 0" else 5
    )
    assert "nothing was recorded" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_program_without_accesses_is_an_error(
    scripted: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.entries = (entry(MAP, PAGE, 0x10000), entry(TIME, 5))
    assert tune_record("-o", "mine.tts", "--", "true") == 1
    assert "no access was observed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_spool_is_an_error_that_names_it(
    scripted: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.entries = (entry(99, 0),)
    assert tune_record("--", "true") == 1
    shown = capsys.readouterr().err
    assert "77.spool: record 0: of an unknown type" in shown and "Traceback" not in shown


def test_a_full_disk_before_the_program_is_an_error(
    scripted: type[Scripted],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert tune_record("--", "touch", "ran") == 2
    assert "is full" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sampler_that_fails_to_attach_does_not_let_the_program_begin(
    scripted: type[Scripted], tmp_path: Path
) -> None:
    def attach(self: Scripted, pid: int) -> None:
        raise UserError("the kernel said no")

    detached = []
    scripted.attach = attach  # type: ignore[method-assign]
    scripted.detach = lambda self: detached.append(self)  # type: ignore[method-assign]
    assert tune_record("--", "touch", "ran") == 2
    assert list(tmp_path.iterdir()) == [] and len(detached) == 1


def test_a_program_that_cannot_be_executed_is_an_error(
    scripted: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    assert tune_record("--", "./bad") == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


# --- The list of samplers -------------------------------------------------------------------------


def test_samplers_are_listed_with_their_options(
    scripted: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.missing = "needs luck"
    assert cli.main(["samplers"]) == 0
    shown = capsys.readouterr().out
    assert "scripted" in shown and "1 to 100 Hz" in shown and "needs luck" in shown
    assert cli.main(["samplers", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["samplers"]
    assert found["unavailable"] == "needs luck"
    assert [option["name"] for option in found["options"]] == ["rate", "cache"]


def test_options_that_follow_from_the_machine() -> None:
    machine = catalog.machine("skx").spec
    assert Scripted({}, machine).values == {"rate": 5, "cache": machine.llc_mib}
    assert Scripted({"cache": 3}, machine).values["cache"] == 3


# --- A `tune` of its own --------------------------------------------------------------------------


def driver() -> list[str]:
    """`tune record` with the scripted sampler, as a process."""
    code = textwrap.dedent("""\
        import sys
        import test_record
        from tuner import cli
        from tuner.record import samplers
        samplers.find = lambda name: test_record.Scripted
        sys.exit(cli.main(["record", *sys.argv[1:]]))
    """)
    return [sys.executable, "-c", code]


def ended(tune: subprocess.Popen[bytes], input: bytes | None = None) -> tuple[bytes, bytes]:
    """What it has left to say. Fails if it does not end: then nothing else would."""
    try:
        return tune.communicate(input, timeout=DEADLINE)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"still runs after {DEADLINE} s; said {error.stderr!r}") from error


def in_folder(folder: Path) -> dict[str, Any]:
    return {"cwd": folder, "env": os.environ | {"PYTHONPATH": python_path(ROOT, TESTS)}}
