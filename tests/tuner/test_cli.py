# SPDX-License-Identifier: MIT
"""The command line as its users meet it: exit codes, messages, and clean standard output."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative, python_path

from tuner import cli, engine, output
from tuner.commands.run import study_request
from tuner.documents import rivals
from tuner.errors import UserError
from tuner.run import runner
from tuner.run.trial import StreamRequest
from tuner.scenario import Scenario
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.study.contender import Contender, Kind
from tuner.study.request import Fingerprints, StudyRequest, StudySummary
from tuner.study.verdict import Verdict, decide

ROOT = Path(__file__).resolve().parents[2]


def tune(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)} | more
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# --- The front door -------------------------------------------------------------------------------


def test_without_arguments_it_prints_help(tmp_path: Path) -> None:
    done = tune(cwd=tmp_path)
    assert done.returncode == 0
    assert "find good knobs for a workload" in done.stdout
    assert done.stdout == tune("--help", cwd=tmp_path).stdout


def in_a_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, tuner.cli\n"
        "try: tuner.cli.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'rich', 'numpy', 'ray', 'smac', 'mlflow', 'tuner._engine'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = in_a_process(code, tmp_path)
    assert "--budget" in done.stdout
    assert done.stderr.strip() == "[]"


def test_nothing_is_looked_through_at_the_end(tmp_path: Path) -> None:
    """Python would collect all that a study has imported, after the last line."""
    code = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "import tuner.cli"
    )
    done = in_a_process(code, tmp_path)
    assert done.stdout == "True\n"


def test_every_command_has_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        "run",
        "sim",
        "best",
        "exec",
        "report",
        "check",
        "gate",
        "doctor",
        "smoke",
        "claims",
        "policies",
        "knobs",
        "workloads",
        "workload",
        "machines",
        "cache",
        "ui",
        "repair",
    ):
        assert cli.main([command, "--help"]) == 0
        assert f"usage: tune {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["run"], "one of the arguments --workload/-w --workloads is required"),
        (["run", "-w", "a", "--workloads", "b,c"], "not allowed with argument --workload/-w"),
        (["run", "-w", "x", "--budget", "0"], "argument --budget: found 0; must be at least 1"),
        (["run", "-w", "x", "--budget", "ten"], "argument --budget: invalid integer value: 'ten'"),
        (["run", "-w", "x", "--deadline", "-1"], "--deadline: found -1; must be more than 0"),
        (["run", "-w", "x", "--threads", "nan"], "argument --threads: invalid number value: 'nan'"),
        (["run", "-w", "x", "--page-bytes", "8192"], "invalid choice: 8192"),
        (["run", "-w", "x", "--budget", "100001"], "--budget: found 100001; must be at most 100,0"),
        (["run", "-w", "x", "--budget", "9" * 5000], "--budget: invalid integer value: '999"),
        (["run", "-w", "x", "--workers", "1025"], "--workers: found 1025; must be at most 1,024"),
        (["run", "-w", "x", "--deadline", "1e300"], "--deadline: found 1e300; must be at most 1,0"),
        (["run", "-w", "x", "--seed", "9" * 5000], "argument --seed: invalid integer value: '999"),
        (["run", "-w", "x", "--scale", "9" * 5000], "argument --scale: invalid number value: '99"),
        (["run", "-w", "x", "--scale=-inf"], "argument --scale: invalid number value: '-inf'"),
        (["smoke", "--workers", "1e9"], "argument --workers: invalid integer value: '1e9'"),
        (["smoke", "--seed", "9" * 5000], "argument --seed: invalid integer value: '999"),
        (["smoke", "--workers", "10000"], "--workers: found 10000; must be at most 1,024"),
        (["claims", "--workers", "10000"], "--workers: found 10000; must be at most 1,024"),
        (["compare", "--workloads", "x", "--seeds", "9999"], "found 9999; must be at most 1,000"),
        (["compare", "--workloads", "x", "--tuned", "999999"], "must be at most 100,000"),
        (["map", "--policies", "x", "--seeds", "9999"], "found 9999; must be at most 1,000"),
        (["import", "x", "--format", "csv", "--threads", "99999"], "must be at most 65,536"),
        (["import", "x", "--format", "csv", "--block-ms", "1e10"], "must be at most 1,000,000,000"),
        (["record", "--set-up", "1e300", "x"], "--set-up: found 1e300; must be at most 1,000,000"),
        (["ui", "--port", "65536"], "argument --port: found 65536; must be at most 65,535"),
        (["sim", "--config", "a", "--policy", "b"], "not allowed with argument --config"),
        (["run", "--work", "x"], "one of the arguments --workload/-w --workloads is required"),
    ],
)
def test_wrong_arguments_exit_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()[-1]) < 420


def test_an_interrupt_is_one_line(
    run: Any, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "policies", interrupt)
    outcome = run("policies")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "tune: interrupted\n")


def test_an_interrupt_at_the_very_end_shows_no_traceback() -> None:
    code = """
import atexit, os, signal, sys
from tuner import cli
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["tune", "--version"]
sys.exit(cli.main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert ran.returncode == -signal.SIGINT
    assert ran.stderr == b""


def test_sigterm_is_an_interrupt(
    run: Any, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "policies", lambda: os.kill(os.getpid(), signal.SIGTERM))
    outcome = run("policies")
    assert (outcome.code, outcome.out, outcome.err) == (143, "", "tune: terminated\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_reader_that_leaves_gets_no_message(tmp_path: Path) -> None:
    """And scripts learn of it, as of any program that SIGPIPE ends."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "machines"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (output.READER_LEFT, "")


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def shell(command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Of the shell; $TUNE stands for the program and $PYTHON for Python."""
    words = {"PYTHON": sys.executable, "TUNE": f"{sys.executable} -m tuner"}
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)} | words | more
    return subprocess.run(
        ["sh", "-c", command], cwd=cwd, env=environment, capture_output=True, check=False
    )


@FULL
@pytest.mark.parametrize(
    "arguments", ["policies", "policies --json", "--version", "--help", "run --help", ""]
)
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, arguments: str) -> None:
    done = shell(f"$TUNE {arguments} >/dev/full", tmp_path)
    said = b"tune: error: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_current_folder_that_was_deleted_is_one_line(tmp_path: Path) -> None:
    gone = 'mkdir gone; cd gone; rmdir "$PWD"; $TUNE best --workload gups'
    said = b"tune: error: the current folder was deleted; change to another\n"
    done = shell(gone, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", said)
    error = json.loads(shell(f"{gone} --json", tmp_path).stdout)["error"]
    assert error == {"message": said.decode()[len("tune: error: ") : -1], "exit": 2}


@FULL
def test_messages_that_cannot_be_written_are_a_failure(tmp_path: Path) -> None:
    """Unlike those that nobody wants to read. The results are there all the same."""
    note = "workloads --measure nosuch --json"  # says so on standard error
    assert shell(f"$TUNE {note} 2>/dev/full", tmp_path).returncode == 2
    for command, code in (("say", 0), ("say 2>/dev/full", 1), ("say 2>&1 >&3 3>&- | cat", 0)):
        (tmp_path / "say").write_text(SAYS)
        done = shell(f"exec 3>&1; $PYTHON {command}", tmp_path)
        assert (done.returncode, done.stdout.count(b"{")) == (code, 1), command


SAYS = """
import sys
from tuner import cli, terminal
from tuner.commands import policies

def run(args):
    terminal.say("a note")
    terminal.print_json({})
    return 0

policies.run = run
sys.exit(cli.main(["policies"]))
"""


@pytest.mark.parametrize(
    ("limit", "words", "said"),
    [
        (12, "run --workload gups", "allows 12 open files; 1 worker must have 32 at least"),
        (48, "compare --workers 2", "allows 48 open files; 2 workers must have 64 at least"),
    ],
)
def test_too_few_open_files_are_told_at_the_start(
    tmp_path: Path, limit: int, words: str, said: str
) -> None:
    name, *rest = words.split()
    command = f"ulimit -n {limit}; $TUNE {name} {' '.join(rest)}"
    command += " --workers 1" if name == "run" else " --workloads gups --policies hmsdk"
    done = shell(command, tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"tune: error: `ulimit -n` of this shell {said}\n"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (f"OSError({errno.EMFILE}, 'No')", "No: `ulimit -n` of this shell allows no more"),
        (f"OSError({errno.EAGAIN}, 'No')", "No: `ulimit -u` of this shell allows no more"),
        (
            f"OSError({errno.EFBIG}, 'No', 'some/file')",
            "some/file: No: `ulimit -f` of this shell allows no larger file",
        ),
        (
            'RuntimeError("can\'t start new thread")',
            "can't start new thread: `ulimit -u` of this shell allows no more",
        ),
        ("MemoryError()", "out of memory: `ulimit -v` of this shell allows 4.0 GiB"),
    ],
)
def test_a_limit_that_is_reached_is_named(tmp_path: Path, raised: str, said: str) -> None:
    (tmp_path / "say").write_text(SAYS.replace('terminal.say("a note")', f"raise {raised}"))
    done = shell(f"ulimit -v {4 << 20}; $PYTHON say", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, f"tune: error: {said}\n")


def test_memory_without_a_limit_runs_out_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "say").write_text(SAYS.replace('terminal.say("a note")', "raise MemoryError"))
    done = shell("$PYTHON say", tmp_path)
    assert (done.returncode, done.stderr) == (2, b"tune: error: out of memory\n")


def test_another_error_at_run_time_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "say").write_text(SAYS.replace('terminal.say("a note")', "raise RuntimeError('x')"))
    done = shell("$PYTHON say", tmp_path)
    assert done.returncode == 1
    assert done.stderr.decode().endswith("\nRuntimeError: x\n")


@pytest.mark.parametrize(
    ("number", "text", "more"),
    [
        (5, "Input/output error", ": a disk fails, which the kernel's log (`dmesg`) names"),
        (28, "No space left on device", ""),
        (122, "Disk quota exceeded", ""),
    ],
)
def test_a_disk_that_fails_at_an_open_file_is_one_line(
    tmp_path: Path, number: int, text: str, more: str
) -> None:
    """As the system tells it of an open file, whose name it does not say."""
    failing = f"raise OSError({number}, {text!r})"
    (tmp_path / "say").write_text(SAYS.replace('terminal.say("a note")', failing))
    done = shell("$PYTHON say", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"tune: error: {text}{more}\n"


def test_no_folder_for_temporary_files_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "say").write_text(SAYS.replace('terminal.say("a note")', TEMPORARY))
    done = shell("$PYTHON say", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    said = b"tune: error: No usable temporary directory; set TMPDIR to a folder that can be written"
    assert done.stderr == said + b"\n"


TEMPORARY = """raise FileNotFoundError(2, "No usable temporary directory")"""


@pytest.mark.parametrize("place", ["argument", "folder"])
def test_a_path_that_is_no_text_is_one_line(tmp_path: Path, place: str) -> None:
    """Studies, documents and stores hold paths as text."""
    command = "$TUNE best --workload \"$(printf 'gr\\374n')\" --json"
    said = "found the argument 'gr\\xfcn'; must be text in UTF-8"
    if place == "folder":
        command = "cd \"$(printf 'gr\\374n')\"; $TUNE best --workload gups --json"
        (tmp_path / os.fsdecode(b"gr\xfcn")).mkdir()
        said = f"the current folder is {tmp_path}/gr\\xfcn, which is no text in UTF-8; "
        said += "change to another"
    done = shell(command, tmp_path)
    assert json.loads(done.stdout)["error"] == {"message": said, "exit": 2}
    assert done.stderr.decode() == f"tune: error: {said}\n"


def test_a_user_without_a_home_is_one_line(tmp_path: Path) -> None:
    """As in a container that runs under a number: docker run --user 12345."""
    nobody = "import pathlib; pathlib.Path.home = classmethod(lambda cls: homeless()); "
    nobody += "import sys; from tuner import cli; sys.exit(cli.main(['cache']))"
    homeless = "def homeless(): raise RuntimeError('Could not determine home directory.')"
    (tmp_path / "say").write_text(f"{homeless}\n{nobody}\n")
    done = shell("$PYTHON say", tmp_path)
    said = (
        f"tune: error: no folder for the stream cache: HOME is not set, and the user {os.getuid()} "
    )
    said += "has no home folder; set TIERTUNE_CACHE to a folder that can be written\n"
    assert (done.returncode, done.stderr.decode()) == (2, said)


@FULL
def test_an_error_that_cannot_be_told_keeps_its_code(tmp_path: Path) -> None:
    assert shell("$TUNE knobs nosuch 2>/dev/full", tmp_path).returncode == 2


def test_closed_outputs_are_as_good_as_none(tmp_path: Path) -> None:
    done = shell("$TUNE policies >&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    done = shell("$TUNE knobs nosuch 2>&-", tmp_path)  # nor does the error go to standard output
    assert (done.returncode, done.stdout) == (2, b"")
    assert shell("$TUNE policies <&- >&- 2>&-", tmp_path).returncode == 0


FIRST_FILE = """
import os
from tuner import cli
with os.fdopen(3, "w") as told:
    cli.main(["--version"])
    print(open("file", "w").fileno() > 2, file=told)
"""


def test_a_closed_output_is_no_file_of_ours(tmp_path: Path) -> None:
    """Else the first file that is opened gets its number, and what is printed."""
    (tmp_path / "first.py").write_text(FIRST_FILE)
    done = shell("$PYTHON first.py 3>&1 >&- <&-", tmp_path)
    assert (done.stdout, done.stderr) == (b"True\n", b"")


def test_an_output_without_all_characters_gets_escapes(tmp_path: Path) -> None:
    done = shell("$TUNE policies", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xa7" in done.stdout
    as_json = shell("$TUNE policies --json", tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(as_json.stdout) == json.loads(shell("$TUNE policies --json", tmp_path).stdout)
    assert as_json.stdout.isascii()


def test_a_name_that_no_file_can_have_is_one_line(tmp_path: Path) -> None:
    name = "n" * 300
    try:
        (tmp_path / name).stat()
    except FileNotFoundError:  # a file system without limit
        folder = tmp_path / name
        said = f"no folder of studies at {folder}; `tune run` makes one, --out names another"
    except OSError as error:
        said = f"{name}: {error.strerror}"
    done = shell(f"$TUNE best --workload gups --input smoke --out {name}", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, f"tune: error: {said}\n")


# --- Listings -------------------------------------------------------------------------------------


def test_listings_are_tables(run: Any, fake: FakeNative) -> None:
    assert run("policies").out.splitlines() == [
        "policy  family  knobs  claims passed  failed  summary                 published in",
        "toy     test        5              -       -  A policy of the tests.  nobody, 2026",
    ]
    knobs = run("knobs", "toy").out.splitlines()
    assert knobs[0].split() == [
        *("knob", "type", "default", "limits", "tuned", "in", "unit", "meaning", "source")
    ]
    threshold = next(line for line in knobs if line.startswith("threshold"))
    assert "1 .. 100 (log)" in threshold
    assert "1 .. 50 (log)" in threshold
    assert "[with aol.enabled = true]" in knobs[-1]
    assert "walks" in run("workloads").out
    workloads = run("workloads", "walker").out
    assert "big (default)" in workloads
    assert "the small one" in workloads
    assert "testbed" in run("machines").out


def test_listings_as_json(run: Any, fake: FakeNative) -> None:
    assert [policy["name"] for policy in run("policies", "--json").json["policies"]] == ["toy"]
    found = run("knobs", "toy", "--json").json
    assert found["policy"] == "toy"
    knobs = {knob["name"]: knob for knob in found["knobs"]}
    assert knobs["threshold"]["default"] == 5
    assert knobs["threshold"]["tuned"] == {"min": 1.0, "max": 50.0, "choices": []}
    assert knobs["aol.low"]["condition"] == {"parent": "aol.enabled", "values": [True]}
    workloads = {
        workload["name"]: workload for workload in run("workloads", "--json").json["workloads"]
    }
    assert workloads["walker"]["inputs"]["small"]["scale"] == 4096
    found = run("machines", "--json").json
    assert "error" not in found
    machines = {machine["name"]: machine for machine in found["machines"]}
    assert machines["testbed"]["slow"]["latency_ns"] == 200


def test_an_unknown_policy_lists_the_known(run: Any, fake: FakeNative) -> None:
    outcome = run("knobs", "toi")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "tune: error: no policy 'toi'; did you mean 'toy'? (known: toy)\n"


def test_one_broken_document_does_not_hide_the_others(run: Any, fake: FakeNative) -> None:
    Path("machines/broken.yaml").write_text("name: broken\n")
    outcome = run("machines", "--json")
    assert outcome.code == 2
    assert "testbed" in {machine["name"] for machine in outcome.json["machines"]}
    assert "machines/broken.yaml:1: ghz: missing" in outcome.err
    assert "machines/broken.yaml:1: ghz: missing" in outcome.json["error"]["message"]
    assert outcome.json["error"]["exit"] == 2
    Path("workloads/broken.yaml").write_text("name: broken\n")
    outcome = run("workloads", "--json")
    assert outcome.json["workloads"] and outcome.json["error"]["exit"] == outcome.code == 2


def test_the_cache_is_shown_and_cleared(run: Any, fake: FakeNative) -> None:
    assert run("cache").out == f"0 streams, 0 B of 32.0 GiB, in {Path('cache').absolute()}\n"
    run("sim", "--workload", "walker", "--policy", "toy")
    outcome = run("cache")
    assert "walker    big" in outcome.out
    assert "1 streams, " in outcome.out
    (stream,) = run("cache", "--json").json["streams"]
    assert (stream["workload"], stream["input"], stream["stale"]) == ("walker", "big", False)
    assert run("cache", "clear", "--stale", "--json").json["removed"] == 0
    assert run("cache", "clear").out.startswith("removed 1 streams, ")
    assert run("cache", "--json").json["streams"] == []


# --- Errors as JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["knobs", "toi"], "no policy 'toi'; did you mean 'toy'? (known: toy)"),
        (["sim"], "what to run? give --workload, --config, or both"),
        (["best", "-w", "walker"], "no folder of studies at"),
        (["sim", "-w", "walker", "--config", "/dev/zero"], "/dev/zero: found a device; must be"),
        (["workload", "show", "walkr"], "no workload 'walkr'"),
        (["cache", "list", "--stale"], "--stale belongs to `tune cache clear`"),
    ],
)
def test_an_error_is_an_object(run: Any, fake: FakeNative, words: list[str], message: str) -> None:
    outcome = run(*words, "--json")
    assert outcome.json.keys() == {"error"}
    assert outcome.json["error"]["message"].startswith(message)
    assert outcome.json["error"]["exit"] == outcome.code == 2
    assert outcome.err.startswith(f"tune: error: {message}")
    assert run(*words).out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fly", "--json"], "argument COMMAND: invalid choice: 'fly'"),
        (["--json", "machines"], "--json belongs after the command, or with --version"),
        (["run", "--json"], "one of the arguments --workload/-w --workloads is required"),
        (["run", "-w", "x", "--json", "--budget", "0"], "argument --budget: found 0; must be at "),
        (["workload", "show", "--json"], "the following arguments are required: W"),
        (["machines", "--json", "--wrong"], "unrecognized arguments: --wrong"),
    ],
)
def test_wrong_usage_is_an_object(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["message"].startswith(message)
    assert error["exit"] == left.value.code == 2
    assert f"error: {message}" in captured.err
    assert captured.err.count("\n") == 1 and captured.err.endswith(" --help`)\n")
    with pytest.raises(SystemExit):
        cli.main([word for word in words if word != "--json"] + ["--wrong"])
    assert capsys.readouterr().out == ""


def test_json_of_a_recorded_program_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    said = "no program './not-there' that can be run"
    for words in (["--", "./not-there", "--json"], ["./not-there", "--json"]):
        assert cli.main(["record", "-o", "wrong", *words]) == 2
        assert capsys.readouterr() == ("", f"tune: error: {said}\n")
    assert cli.main(["record", "--json", "-o", "wrong", "--", "./not-there"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out) == {"error": {"message": said, "exit": 2}}
    assert told.err == f"tune: error: {said}\n"


def test_an_error_of_the_system_is_an_object(
    run: Any, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a file")

    monkeypatch.setattr(engine, "policies", fail)
    outcome = run("policies", "--json")
    assert (outcome.code, outcome.err) == (2, "tune: error: a file: Permission denied\n")
    assert outcome.json == {"error": {"message": "a file: Permission denied", "exit": 2}}


def test_an_interrupt_is_an_object(
    run: Any, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "policies", interrupt)
    outcome = run("policies", "--json")
    assert outcome.code == 130
    assert outcome.json == {"error": {"message": "interrupted", "exit": 130}}


# --- tune run -------------------------------------------------------------------------------------


def request_of(*arguments: str) -> StudyRequest:
    """What `tune run` hands to the study."""
    words = ["run", *arguments]
    return study_request(cli.parser_for(words).parse_args(words))


def test_run_says_what_the_space_pins(
    fake: FakeNative, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "pinned.yaml"
    space.write_text("policy: toy\nsummary: s\nknobs: {threshold: {value: 7}, period: {}}\n")
    request = request_of("--workload", "walker", "--policy", "toy", "--space", str(space))
    assert [knob.name for knob in request.tuned] == ["period"]
    assert request.trial(0, {}).knobs["threshold"] == 7
    assert "the study calls the default: threshold 7 (default 5)" in capsys.readouterr().err


def test_run_resolves_everything(fake: FakeNative) -> None:
    request = request_of("--workload", "walker", "--policy", "toy", "--budget", "7")
    assert request.study == "walker-big-toy-testbed-1to8-throughput-seed0"
    assert request.out == str(Path("results").absolute())
    assert request.scenario == Scenario(
        workload="walker",
        input="big",
        policy="toy",
        machine="testbed",
        ratio="1:8",
        objective="throughput",
        threads=16,
        scale=64,
        page_bytes=4096,
        repeats=1,
        stream_seed=0,
        seed=0,
    )
    assert request.budget == 7
    assert [knob.name for knob in request.tuned][:2] == ["threshold", "period"]
    assert request.tuned[0].max == 50
    assert request.workers == len(os.sched_getaffinity(0))
    assert StudyRequest.model_validate_json(request.model_dump_json()) == request


def test_run_compares_with_what_the_engine_has(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = engine.policies()["toy"]
    declared = {"toy": toy}
    for name in ("static-hot", "first-touch", "all-fast", "all-slow"):
        declared[name] = toy.model_copy(update={"name": name, "knobs": []})
    declared["rival"] = toy.model_copy(update={"name": "rival"})
    monkeypatch.setattr(engine, "policies", lambda: declared)
    few = {"walker": {"1:8": {"toy": 0.0, "rival": 0.1, "slow": 0.2}}}
    monkeypatch.setattr(
        rivals,
        "published",
        lambda: rivals.Published(source="here", engine_build="b", shortfalls=few),
    )
    declared["slow"] = toy.model_copy(update={"name": "slow"})
    request = request_of("--workload", "walker", "--policy", "toy")
    assert [p.name for p in request.references] == ["first-touch", "all-fast", "static-hot"]
    assert [p.name for p in request.alternatives] == ["rival"]
    assert request.not_run == ["slow"] and request.rivals is None
    request = request_of("--workload", "walker", "--policy", "toy", "--rivals", "all")
    assert [p.name for p in request.alternatives] == ["rival", "slow"]
    assert request.not_run == [] and request.rivals == "all"
    request = request_of("--workload", "walker", "--policy", "toy", "--rivals", "none")
    assert request.alternatives == [] and request.not_run == ["rival", "slow"]
    assert request.explain and not request.held_out_streams
    request = request_of("-w", "walker", "--policy", "toy", "--no-explain", "--held-out-streams")
    assert not request.explain and request.held_out_streams


def test_several_policies_are_tuned_and_compared(
    run: Any, fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = engine.policies()["toy"]
    declared = {name: toy.model_copy(update={"name": name}) for name in ("toy", "rival")}
    monkeypatch.setattr(engine, "policies", lambda: declared)
    Path("spaces/rival.yaml").write_text(
        Path("spaces/toy.yaml").read_text().replace("toy", "rival")
    )
    tuned: list[StudyRequest] = []

    def study(request: StudyRequest) -> StudySummary:
        tuned.append(request)
        speed = {"toy": 100.0, "rival": 120.0}[request.policy.name]
        values: dict[Kind, list[float | None]]
        values = {Kind.untuned: [speed, speed], Kind.tuned: [1.1 * speed, 1.1 * speed]}
        contenders = [
            Contender(
                kind=kind, policy=request.policy.name, page_bytes=4096, values=value,
                study=request.study if kind is Kind.tuned else None,
            )
            for kind, value in values.items()
        ]  # fmt: skip
        verdict = decide(
            contenders, objective="throughput", trials=4, policy=request.policy.name, seeds=[1, 2]
        )
        return StudySummary(
            study=request.study, scenario=request.scenario, trials=4, failed=0,
            default_objective=speed, best_objective=1.1 * speed, gain=0.1, best_config="best.yaml",
            verdict=verdict, explanation=None, importance={}, importance_forest={}, seconds=1.0,
        )  # fmt: skip

    monkeypatch.setattr("tuner.commands.run.run_study", study)
    command = ("run", "--workload", "walker", "--budget", "4")
    outcome = run(*command, "--policy", "toy,rival")
    assert outcome.code == 0
    name = "walker-big-{}-testbed-1to8-throughput-seed0"
    assert [request.study for request in tuned] == [name.format("toy"), name.format("rival")]
    assert [request.budget for request in tuned] == [4, 4]
    first, _, *rows = outcome.out.splitlines()
    assert first == (
        f"use {name.format('rival')}/best.yaml (tuned rival): 20.0 ± 0.0 % faster than tuned toy, "
        "10.0 ± 0.0 % faster than its default"
    )
    assert " ".join(rows[0].split()) == "toy 100 ops/s 110 ops/s 10.0 ± 0.0 % faster"
    folder = Path("results") / name.format("compared")
    assert first in (folder / "comparison.html").read_text()
    assert Verdict.model_validate_json((folder / "comparison.json").read_text()).headline == first
    found = run(*command, "--policy", "all", "--name", "mine", "--json").json
    assert found["verdict"]["headline"] == first.replace(name.format("rival"), "mine-rival")
    assert [study["study"] for study in found["studies"]] == ["mine-toy", "mine-rival"]
    outcome = run(*command, "--policy", "toy,rival", "--space", "toy")
    assert outcome.err.startswith("tune: error: --space applies to one policy")


def test_run_takes_every_option(fake: FakeNative) -> None:
    Path("other.yaml").write_text(Path("spaces/toy.yaml").read_text().replace("50", "40"))
    request = request_of(
        *("--workload", "workloads/walker.yaml", "--policy", "toy", "--space", "other.yaml"),
        *("--input", "small", "--machine", "machines/testbed.yaml", "--ratio", "1:4"),
        *("--objective", "p50", "--threads", "8", "--scale", "128", "--page-bytes", "2097152"),
        *("--repeats", "3", "--seed", "5", "--stream-seed", "6", "--workers", "1"),
        *("--deadline", "9", "--out", "elsewhere", "--resume", "--ray-address", "auto"),
        *("--mlflow-uri", "sqlite:///x.db", "--json"),
    )
    assert request.study == (
        "walker-small-toy-testbed-1to4-p50-8threads-scale128-2097152bytes-3repeats-stream6-seed5"
    )
    assert request.out == str(Path("elsewhere").absolute())
    assert request.tuned[0].max == 40
    scenario = request.scenario
    assert (scenario.seed, scenario.stream_seed, scenario.repeats) == (5, 6, 3)
    assert scenario.workload == str(Path("workloads/walker.yaml").absolute())
    assert scenario.machine == str(Path("machines/testbed.yaml").absolute())
    assert (request.deadline_seconds, request.workers, request.resume) == (9, 1, True)
    assert (request.ray_address, request.mlflow_uri) == ("auto", "sqlite:///x.db")
    assert request.json_output
    trial = request.trial(2, {"threshold": 6})
    assert trial.scenario == scenario
    assert isinstance(trial.stream, StreamRequest)
    assert trial.stream.llc_bytes == 24 << 20
    assert request_of("--workload", "walker", "--policy", "toy", "--name", "mine").study == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-w", "walkr"], "no workload 'walkr'; did you mean 'walker'?"),
        (["-w", "walker", "--policy", "toi"], "no policy 'toi'; did you mean 'toy'?"),
        (["-w", "walker", "--input", "bug"], "no input of workload walker 'bug'; did you mean 'b"),
        (["-w", "walker", "--machine", "tastbed"], "no machine 'tastbed'; did you mean 'testbed'"),
        (["-w", "walker", "--ratio", "8"], "--ratio: found '8'; must be FAST:SLOW"),
        (["-w", "walker", "--set", "items=5"], "--set items: workload walker, input big: has no s"),
        (["-w", "walker", "--threads", "0"], "--threads: found 0; must be at least 1"),
        (["-w", "walker", "--seed", "-1"], "--seed: found -1; must be at least 0"),
        (["-w", "walker", "--seed", str(2**63)], "--seed: found 9223372036854775808; must be"),
        (["-w", "walker", "--threads", "1e300"], "--threads: found 1e+300; must be at most 65,536"),
        (["-w", "walker", "--scale", "1e300"], "--scale: found 1e+300; must be at most 1,048,576"),
        (["-w", "walker", "--fast-gib", "1e300"], "--fast-gib: found 1e+300; must be at most 1,04"),
        (["-w", "walker", "--fast-gib", "-1"], "--fast-gib: found -1; must be at least 0"),
        (["-w", "walker", "--repeats", "1001"], "--repeats: found 1001; must be at most 1,000"),
        (["-w", "walker", "--ratio", "9" * 400 + ":1"], "--ratio: found '9999"),
        (["-w", "walker", "--ratio", "1:1001"], "--ratio: found '1:1001'; must be between 1:1000"),
        (["-w", "x" * 5000], "no workload 'xxx"),
        (["-w", "walker", "--objective", "x" * 5000], "--objective: found 'xxx"),
        (["-w", "walker", "--name", "x" * 5000], "--name: found 'xxx"),
        (["-w", "x" * 5000 + ".yaml"], "no workload file 'xxx"),
        (["-w", "walker", "--importance", "x"], "no importance method 'x' (known: default-range"),
        (["-w", "walker", "--name", "a/b"], "--name: found 'a/b'; must consist of letters"),
        (["-w", "walker", "--space", "toy2"], "no space 'toy2'; did you mean 'toy'?"),
    ],
)
def test_run_refuses_what_does_not_exist(
    run: Any, fake: FakeNative, arguments: list[str], message: str
) -> None:
    outcome = run("run", "--policy", "toy", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"tune: error: {message}")
    assert len(outcome.err) < 400
    assert fake.recorded() == 0


# --- tune sim -------------------------------------------------------------------------------------

SIM = ("sim", "--workload", "walker", "--policy", "toy")


def test_sim_shows_where_the_time_goes(run: Any, fake: FakeNative) -> None:
    outcome = run(*SIM)
    assert outcome.code == 0
    assert "throughput: 500 ops/s" in outcome.out
    assert ["slow_stall", "1.000", "50.0", "%"] in [
        line.split() for line in outcome.out.splitlines()
    ]
    assert "making the stream of walker (big)" in outcome.err


def test_sim_sets_knobs(run: Any, fake: FakeNative) -> None:
    outcome = run(
        *SIM,
        *("--set", "threshold=10", "--set", "mode=both", "--set", "aol.enabled=true", "--json"),
    )
    assert outcome.json["objective"] == 1000.0
    assert outcome.json["knobs"]["threshold"] == 10
    assert outcome.json["knobs"]["mode"] == "both"
    assert outcome.json["knobs"]["aol.enabled"] is True
    assert outcome.json["reproduced"] is None
    assert "error" not in outcome.json


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("threshold", "--set threshold: expected KNOB=VALUE"),
        ("treshold=1", "no knob of policy toy 'treshold'; did you mean 'threshold'?"),
        ("threshold=1.5", "--set threshold: found '1.5'; must be an integer"),
        ("period=x", "--set period: found 'x'; must be a number"),
        ("aol.enabled=1", "--set aol.enabled: found '1'; must be true or false"),
        ("threshold=1000", "knob threshold: found 1000"),
        ("threshold=" + "9" * 30, "--set threshold: found 999999999999999999999999999999; must"),
        ("threshold=" + "9" * 5000, "--set threshold: found '999"),
        ("period=1e999", "--set period: found '1e999'; must be a number"),
    ],
)
def test_sim_refuses_bad_knobs(run: Any, fake: FakeNative, assignment: str, message: str) -> None:
    outcome = run(*SIM, "--set", assignment)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"tune: error: {message}")


def test_sim_reports_a_failed_simulation(run: Any, fake: FakeNative) -> None:
    def fail(arguments: dict[str, Any]) -> None:
        raise TimeoutError

    fake.on_simulate = fail
    outcome = run(*SIM, "--deadline", "2", "--json")
    assert outcome.code == 1
    assert outcome.json["status"] == "timeout"
    assert outcome.json["error"] == {"message": "its deadline of 2 s passed", "exit": 1}
    assert "its deadline of 2 s passed" in outcome.err


def test_sim_writes_the_series(run: Any, fake: FakeNative) -> None:
    run(*SIM, "--series", "series.csv")
    assert Path("series.csv").read_text().split() == ["second,hit_ratio", "0.0,0.5", "1.0,0.75"]
    outcome = run(*SIM, "--series", "no/such/folder.csv")
    assert outcome.code == 2
    assert "cannot write no/such/folder.csv" in outcome.err


# --- best.yaml ------------------------------------------------------------------------------------


def find_best(name: str, *arguments: str, **changes: Any) -> BestConfiguration:
    """A study directory with a best.yaml as a study leaves it."""
    request = request_of("--workload", "walker", "--policy", "toy", "--name", name, *arguments)
    trial = request.trial(3, {"threshold": changes.pop("threshold", 10)})
    best = BestConfiguration.of(
        request,
        trial,
        runner.run(trial),
        default_value=500.0,
        date=datetime(2026, 1, 2, tzinfo=UTC),
        git_commit=None,
    ).model_copy(update=changes)
    folder = Path(request.out) / name
    folder.mkdir(parents=True)
    best_file.write(best, folder / "best.yaml")
    return best


def test_best_prints_the_best_study(run: Any, fake: FakeNative) -> None:
    find_best("worse", threshold=6)
    best = find_best("better", threshold=10)
    find_best("other-ratio", "--ratio", "1:4", threshold=40)
    find_best("other-threads", "--threads", "32", threshold=41)
    find_best("huge-pages", "--page-bytes", "2097152", threshold=42)
    outcome = run("best", "--workload", "walker")
    assert outcome.code == 0
    Path("printed.yaml").write_text(outcome.out)
    assert best_file.read(Path("printed.yaml")) == best
    assert "better/best.yaml" in outcome.err
    assert "# for a server: tune apply " in outcome.err
    assert (
        "tune: note: not compared with configurations that differ in --ratio, --threads, "
        "--page-bytes\n"
    ) in outcome.err
    found = run("best", "--workload", "walker", "--json").json
    assert found["path"] == str(Path("results/better/best.yaml").absolute())
    assert found["knobs"]["threshold"] == 10
    assert run("best", "-w", "walker", "--ratio", "1:4", "--json").json["knobs"]["threshold"] == 40
    found = run("best", "-w", "walker", "--threads", "32", "--json").json
    assert found["knobs"]["threshold"] == 41
    found = run("best", "-w", "walker", "--page-bytes", "2097152", "--json").json
    assert found["knobs"]["threshold"] == 42


def test_best_says_what_there_is(run: Any, fake: FakeNative) -> None:
    assert "no folder of studies at" in run("best", "--workload", "walker").err
    find_best("one", "--ratio", "1:4")
    outcome = run("best", "--workload", "walker")
    assert outcome.code == 2
    assert (
        "no configuration is known for walker (big, testbed, 1:8, throughput, 16 threads, "
        "scale 64, 4096 bytes)"
    ) in outcome.err
    assert (
        "\n  big, testbed, 1:4, throughput, 16 threads, scale 64, 4096 bytes, toy\n"
    ) in outcome.err


def test_best_survives_a_damaged_study(run: Any, fake: FakeNative) -> None:
    find_best("good")
    Path("results/bad").mkdir()
    Path("results/bad/best.yaml").write_text("policy: [")
    outcome = run("best", "--workload", "walker", "--json")
    assert outcome.json["provenance"]["study"] == "good"
    assert "skipped: results/bad/best.yaml:1: not valid YAML" in outcome.err


def test_best_takes_the_lower_latency(run: Any, fake: FakeNative) -> None:
    find_best("a", "--objective", "p50", "--seed", "9")
    find_best("b", "--objective", "p50", "--seed", "0")
    found = run("best", "--workload", "walker", "--objective", "p50", "--json").json
    assert found["provenance"]["study"] == "b"


def test_a_recorded_objective_is_reproduced(run: Any, fake: FakeNative) -> None:
    find_best("study", "--ratio", "1:4", "--seed", "3", "--repeats", "3", "--threads", "4")
    config = "results/study/best.yaml"
    outcome = run("sim", "--workload", "walker", "--config", config)
    assert outcome.code == 0
    assert "reproduced exactly: throughput 500.0 ops/s" in outcome.out
    found = run("sim", "--config", config, "--json").json  # the workload is in the file
    assert (found["ratio"], found["seed"], found["threads"]) == ("1:4", 3, 4)
    assert (found["recorded_objective"], found["reproduced"]) == (500.0, True)


def test_an_unexplained_difference_is_a_failure(run: Any, fake: FakeNative) -> None:
    best = find_best("study")
    wrong = best.objective.model_copy(update={"value": best.objective.value * (1 + 1e-15)})
    path = Path("results/study/best.yaml")
    best_file.write(best.model_copy(update={"objective": wrong}), path)
    outcome = run("sim", "--config", str(path))
    assert outcome.code == 1
    assert "NOT REPRODUCED although nothing has changed" in outcome.out


def test_an_explained_difference_is_named(run: Any, fake: FakeNative) -> None:
    best = find_best("study")
    path = Path("results/study/best.yaml")
    changed = best.provenance.model_copy(
        update={
            "engine_build": "build-0",
            "stream_maker": "maker-0",
            "fingerprints": Fingerprints(workload="w", space="s", machine="m"),
        }
    )
    worse = best.objective.model_copy(update={"value": 1.0})
    best_file.write(best.model_copy(update={"provenance": changed, "objective": worse}), path)
    outcome = run("sim", "--config", str(path))
    assert outcome.code == 0
    assert "not the recorded objective (recorded 1.0 ops/s, reproduced 1000.0 ops/s)" in outcome.out
    assert (
        "found with policies build, simulator 0; this engine has policies build, simulator 1"
    ) in outcome.out
    assert "its stream was made by another kernel (maker-0 then, maker-1 now)" in outcome.out
    assert "the workload walker has changed since (w then" in outcome.out
    assert "the machine testbed has changed since (m then" in outcome.out


def test_an_objective_is_reproduced_by_an_engine_that_differs_elsewhere(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = find_best("study")
    assert best.provenance.stream_maker == "maker-1"
    own = fake.ids()
    monkeypatch.setattr(fake, "ids", lambda: own | {"whole": "with another sampler"})
    assert best_file.changes_since(best) == []
    monkeypatch.setattr(fake, "ids", lambda: own | {"policies": "others"})
    (changed,) = best_file.changes_since(best)
    assert changed.endswith("this engine has policies others, simulator 1")


def test_a_config_with_changes_is_no_reproduction(run: Any, fake: FakeNative) -> None:
    find_best("study")
    config = ("sim", "--config", "results/study/best.yaml", "--json")
    assert run(*config, "--ratio", "1:8").json["reproduced"] is True  # as recorded
    assert run(*config, "--ratio", "1:2").json["reproduced"] is None
    assert run(*config, "--set", "threshold=7").json["knobs"]["threshold"] == 7
    assert run(*config, "--workload", "workloads/walker.yaml").json["reproduced"] is True
    Path("workloads/other.yaml").write_text(
        Path("workloads/walker.yaml").read_text().replace("name: walker", "name: other")
    )
    assert run(*config, "--workload", "other").json["reproduced"] is None
    for arguments, difference in (
        (("--workload", "other"), "--workload walker instead of other"),
        (
            ("--ratio", "1:2", "--threads", "4"),
            "--ratio 1:8 instead of 1:2, --threads 16.0",
        ),
        (("--machine", "machines/testbed2.yaml"), "--machine testbed instead of testbed2"),
    ):
        Path("machines/testbed2.yaml").write_text(
            Path("machines/testbed.yaml").read_text().replace("name: testbed", "name: testbed2")
        )
        warning = f"tune: warning: the configuration was tuned elsewhere, for {difference}"
        assert run(*config, *arguments).err.startswith(warning)
    for words, difference in (
        ("--ratio 1:2 --seed 4", "--ratio 1:2 (recorded: 1:8), --seed 4 (recorded: 0)"),
        ("--set threshold=7", "threshold 7 (recorded: 10)"),
        ("--workload other", "--workload other (recorded: walker)"),
    ):
        found = run(*config, *words.split()).json
        assert found["verdict"] == (
            f"nothing to reproduce: this run is not the recorded one, but with {difference}"
        )
        assert (found["recorded_objective"], found["reproduced"]) == (None, None)
    assert run(*config, "--set", "threshold=10").json["reproduced"] is True
    for words in ("", "--ratio 1:8", "--seed 4", "--set threshold=7"):
        assert "elsewhere" not in run(*config, *words.split()).err
    assert run("sim", "--json").err == (
        "tune: error: what to run? give --workload, --config, or both\n"
    )


@pytest.mark.parametrize("kind", ["workload", "machine"])
def test_another_document_of_the_same_name_is_another_run(
    run: Any, fake: FakeNative, kind: str
) -> None:
    best = find_best("study")
    path = Path("results/study/best.yaml")
    wrong = best.objective.model_copy(update={"value": 1.0})
    best_file.write(best.model_copy(update={"objective": wrong}), path)
    folder, name, old, new = {
        "workload": ("workloads", "walker", "keys: 5000", "keys: 6000"),
        "machine": ("machines", "testbed", "latency_ns: 200", "latency_ns: 300"),
    }[kind]
    text = Path(folder, f"{name}.yaml").read_text()
    mine = Path("elsewhere", f"{name}.yaml")
    mine.parent.mkdir()
    config = ("sim", "--config", str(path), f"--{kind}", str(mine))
    mine.write_text(text.replace(old, new))
    outcome = run(*config)
    assert outcome.code == 0
    assert (
        "nothing to reproduce: this run is not the recorded one, but with "
        f"--{kind} {mine.absolute()} (recorded: {name}, with another content)"
    ) in outcome.out
    mine.write_text(text)  # the same content is the same run
    outcome = run(*config)
    assert outcome.code == 1
    assert "NOT REPRODUCED although nothing has changed" in outcome.out


def test_an_engine_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    why = 'two policies are named tpp: "one" (a) and "two" (b); each needs a name of its own'

    def refuse(name: str) -> None:
        raise ImportError(why)

    with monkeypatch.context() as patched:
        patched.setattr(importlib, "import_module", refuse)
        with pytest.raises(UserError, match=re.escape(f"the engine cannot be loaded: {why}")):
            engine.native.__wrapped__()
