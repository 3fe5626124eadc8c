# SPDX-License-Identifier: MIT
"""`tune exec` becomes tierd: which configuration, which words, and what passes through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, python_path, started
from test_best import BEST

from tuner import tierd
from tuner.errors import UserError
from tuner.study import best as best_file
from tuner.study import log
from tuner.study.contender import Contender, Kind
from tuner.study.verdict import decide

REAL = ROOT / "build/engine/tierd"


def program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def write_best(path: Path, policy: str = "hybridtier") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    scenario = replace(BEST.scenario, policy=policy)
    best_file.write(BEST.model_copy(update={"scenario": scenario, "knobs": {}}), path)
    return path


class Became(Exception):
    """This process would now be another program."""

    def __init__(self, executable: Path, words: list[str], environment: dict[str, str]) -> None:
        super().__init__(executable)
        self.executable, self.words, self.environment = executable, words, environment


@pytest.fixture
def becomes(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The words that tierd gets."""
    fake = program(tmp_path / "bin/tierd", "exit 0")
    monkeypatch.setattr(tierd, "find", lambda: fake)
    monkeypatch.chdir(tmp_path)

    def execve(executable: Path, words: list[str], environment: dict[str, str]) -> None:
        raise Became(executable, words, environment)

    monkeypatch.setattr(os, "execve", execve)

    def call(*arguments: str) -> list[str]:
        with pytest.raises(Became) as became:
            run("exec", *arguments)
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
        assert became.value.executable == fake
        assert "PYTHONSAFEPATH" not in became.value.environment
        return became.value.words

    return call


# --- Which configuration and which words ----------------------------------------------------------


@pytest.mark.parametrize(
    "study", ["mine", "results/mine", "results/mine/best.yaml", "{}/results/mine", "other.yaml"]
)
def test_a_study_or_a_file_is_what_tierd_runs(
    becomes: Callable[..., list[str]], tmp_path: Path, study: str
) -> None:
    path = write_best(tmp_path / "results/mine/best.yaml")
    if study == "other.yaml":
        path = write_best(tmp_path / study)
    assert becomes(study.format(tmp_path), "--", "redis-server", "--port", "7") == [
        *("tierd", "run", "--config", str(path), "--", "redis-server", "--port", "7")
    ]


def test_options_are_passed_on_and_the_programs_own_stay_its_own(
    becomes: Callable[..., list[str]], tmp_path: Path
) -> None:
    path = write_best(tmp_path / "elsewhere/mine/best.yaml")
    options = ["--fast-limit", "16G", "--fast=0", "--slow", "1-2", "--journal", "a b", "--quiet"]
    assert becomes("--out", "elsewhere", "mine", *options, "--", "p", "--out", "--", "-x") == [
        *("tierd", "run", "--config", str(path), *options, "--", "p", "--out", "--", "-x")
    ]


@pytest.mark.parametrize("option", ["--pid=4711", "--cgroup=/sys/fs/cgroup/db"])
def test_what_runs_is_attached_to(
    becomes: Callable[..., list[str]], tmp_path: Path, option: str
) -> None:
    path = write_best(tmp_path / "results/mine/best.yaml")
    attached = ["tierd", "attach", "--config", str(path), option, "--quiet"]
    assert becomes("mine", option, "--quiet") == attached


def test_another_advice_of_the_study_is_told(
    becomes: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contenders = [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[1.0, 1.1]),
        Contender(kind=Kind.tuned, policy="toy", page_bytes=4096, values=[0.8, 0.9], study="s"),
    ]
    verdict = decide(contenders, objective="throughput", trials=5, policy="toy", seeds=[1, 2])
    best_file.write(BEST.model_copy(update={"verdict": verdict}), tmp_path / "best.yaml")
    becomes("best.yaml", "--", "true")
    said = f"tune: note: the study advises otherwise: {verdict.headline}\n"
    assert capsys.readouterr().err.startswith(said)
    becomes("best.yaml", "--quiet", "--", "true")
    assert capsys.readouterr().err == ""


def test_what_it_was_tuned_for_is_told_and_what_differs(
    becomes: Callable[..., list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(**changes: Any) -> list[str]:
        own = BEST.provenance.model_copy(update=changes)
        best_file.write(BEST.model_copy(update={"provenance": own}), tmp_path / "best.yaml")
        becomes("best.yaml", "--", "true")
        return capsys.readouterr().err.splitlines()

    (note,) = told()
    assert note.startswith(
        "tune: note: tuned for walker, big, testbed, 1:8, on the simulated machine; it may gain "
        "less, or lose, for another program, machine or share of fast memory. Published "
    )
    assert "% on a real kernel in place of the simulator (" in note
    here = os.uname().release
    kernel = "linux-image-{}, QEMU 10.0.2, programs 0"
    assert told(emulated=kernel.format(here))[1:] == []
    assert told(emulated=kernel.format("6.12.1"))[1:] == [
        f"tune: warning: measured on Linux 6.12.1; this is Linux {here}"
    ]
    becomes("best.yaml", "--quiet", "--", "true")
    assert capsys.readouterr().err == ""


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which study? tune exec STUDY -- command args..."),
        (["--", "redis-server"], "which study? tune exec STUDY -- command args..."),
        (["mine"], "which program? tune exec STUDY -- command args..., or --pid PID"),
        (["mine", "redis-server"], "which program? tune exec STUDY -- command"),
        (["mine", "--"], "which program? tune exec STUDY -- command"),
        (["mine", "--out", "x", "--", "p"], "--out belongs before STUDY"),
        (["gone", "--", "p"], "no study at {}/results/gone; `tune run` makes one, --out names"),
        (["no/such/study", "--", "p"], "no study at {}/no/such/study; `tune run` makes one"),
        (["a b", "--", "p"], "--name: found 'a b'; must consist of"),
        (["empty", "--", "p"], "results/empty: no trial of this study has succeeded yet"),
        (["broken.yaml", "--", "p"], "broken.yaml"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_best(tmp_path / "results/mine/best.yaml")
    (tmp_path / "results/empty").mkdir()
    (tmp_path / "results/empty" / log.HEADER).write_text("{}")
    (tmp_path / "broken.yaml").write_text("policy: [")
    outcome = run("exec", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"tune: error: {said.format(tmp_path)}")
    assert len(outcome.err.splitlines()) == 1


def test_without_tierd_it_says_where_it_comes_from(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_best(tmp_path / "best.yaml")
    monkeypatch.setattr(tierd, "find", lambda: None)
    outcome = run("exec", "best.yaml", "--", "true")
    assert outcome.code == 2
    assert outcome.err.startswith("tune: error: no tierd beside this Python and on the PATH: ")
    of_another_machine = tmp_path / "tierd"
    of_another_machine.write_bytes(b"\x7fELF")
    of_another_machine.chmod(0o755)
    monkeypatch.setattr(tierd, "find", lambda: of_another_machine)
    outcome = run("exec", "best.yaml", "--quiet", "--", "true")
    assert (outcome.code, outcome.err) == (
        *(2, f"tune: error: {of_another_machine}: Exec format error\n"),
    )


@pytest.mark.skipif(not REAL.exists(), reason="tierd is not built")
def test_what_tierd_refuses_is_told_by_itself(tmp_path: Path) -> None:
    path = write_best(tmp_path / "best.yaml", "lru")
    nodes = ("--fast", "0", "--slow", "1")
    done = tune_exec(REAL, str(path), *nodes, "--quiet", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tierd: error: {path}: line ")
    assert "policy: unknown policy" in done.stderr


# --- What passes through --------------------------------------------------------------------------

CALLS = """\
import sys
from pathlib import Path
from tuner import cli, tierd
tierd.find = lambda: Path(sys.argv[1])
sys.exit(cli.main(["exec", *sys.argv[2:]]))
"""
RUNS = ('while test "$1" != --; do shift; done', "shift", 'exec "$@"')


def command(executable: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", CALLS, str(executable), *words]


def tune_exec(executable: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    return subprocess.run(
        command(executable, *words),
        **{"env": environment, "capture_output": True, "text": True, "check": False, **options},
    )


def test_streams_status_and_environment_are_the_programs(tmp_path: Path) -> None:
    fake, best = program(tmp_path / "tierd", *RUNS), str(write_best(tmp_path / "best.yaml"))
    script = 'cat; echo "$PYTHONPATH" "${PYTHONSAFEPATH-unset}" >&2; exit 7'
    done = tune_exec(fake, best, "--quiet", "--", "sh", "-c", script, input="a\0b")
    assert (done.returncode, done.stdout) == (7, "a\0b")
    assert done.stderr == f"{python_path(ROOT)} unset\n"
    killed = tune_exec(fake, best, "--", "sh", "-c", "kill -PIPE $$; exit 1")
    assert killed.returncode == -signal.SIGPIPE, "which Python ignores"


def test_a_signal_reaches_tierd(tmp_path: Path) -> None:
    fake, best = program(tmp_path / "tierd", *RUNS), str(write_best(tmp_path / "best.yaml"))
    words = command(fake, best, "--", "sh", "-c", "trap 'exit 9' USR1; echo up; read line")
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(words, env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait() == 9


# --- Where tierd is, and what it says -------------------------------------------------------------


def test_the_source_trees_comes_first_and_the_current_folders_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "scripts"))
    monkeypatch.setattr(tierd, "__file__", str(tmp_path / "tuner/tierd.py"))
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", str(tmp_path / "usr")]))
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "tierd")
    assert tierd.find() is None
    on_path = program(tmp_path / "usr/tierd")
    assert tierd.find() == on_path
    installed = program(tmp_path / "scripts/tierd")
    assert tierd.find() == installed
    built = program(tmp_path / "build/engine/tierd")
    assert tierd.find() == installed, "this is no source tree"
    (tmp_path / "pyproject.toml").touch()
    assert tierd.find() == built


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("echo x; echo 'no such option' >&2; exit 2",), "probe: no such option"),
        (("exit 3",), "probe: it ended with 3"),
        (("echo '[{}]'",), r"probe: found '\[\{\}\]\\n'; must be its findings"),
    ],
)
def test_a_tierd_that_answers_otherwise_is_an_error(
    tmp_path: Path, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        tierd.probe(program(tmp_path / "tierd", *lines))


def test_a_tierd_that_does_not_answer_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(tierd, "SECONDS", 0.01)
    with pytest.raises(UserError, match=r"tierd version: no answer within 0.01 s"):
        tierd.version(program(tmp_path / "tierd", f"exec cat '{tmp_path}/pipe'"))


@pytest.mark.skipif(not REAL.exists(), reason="tierd is not built")
def test_the_real_one_tells_of_this_machine() -> None:
    from tuner import engine

    assert tierd.version(REAL) == f"tierd {engine.version()}, policies {engine.ids()['policies']}"
    subjects = {each.subject for each in tierd.probe(REAL)}
    assert {"memory tiers", "moving pages", "DAMON"} <= subjects
