# SPDX-License-Identifier: MIT
"""Errors of `make setup`: each says what is missing and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("c++") or shutil.which("g++")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def preflight(
    python: str, compiler: str, folder: Path, code: int = 1, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [ROOT / "cmake/preflight.sh", python, compiler],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def compiler(tmp_path: Path) -> str:
    """Compiles anything."""
    return script(tmp_path / "c++", "exit 0")


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Passes every check."""
    return script(tmp_path / "python", "exit 0")


def test_a_machine_that_has_everything_passes_silently(
    tmp_path: Path, python: str, compiler: str
) -> None:
    done = preflight(python, compiler, tmp_path, code=0)
    assert done.stdout + done.stderr == ""


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_this_machine_passes(tmp_path: Path) -> None:
    preflight(sys.executable, str(COMPILER), tmp_path, code=0)


def test_no_python(tmp_path: Path, compiler: str) -> None:
    error = preflight("no-such-python", compiler, tmp_path).stderr
    assert error.startswith("error: no Python found (no-such-python): apt install python3-dev")


@pytest.mark.parametrize(
    ("question", "answer", "remedy"),
    [
        ("version_info", "Python 3.11 or newer is needed", "PYTHON="),
        ("ensurepip", "has no venv module", "apt install python3-venv"),
        ("Python.h", "has no C headers", "apt install python3-dev"),
    ],
)
def test_an_unusable_python(
    tmp_path: Path, compiler: str, question: str, answer: str, remedy: str
) -> None:
    python = script(
        tmp_path / "python",
        f'case "$*" in *--version*) echo "Python 3.9.2";; *{question}*) exit 1;; esac',
    )
    error = preflight(python, compiler, tmp_path).stderr
    assert answer in error
    assert remedy in error
    assert error.count("\n") == 1


def test_no_compiler(tmp_path: Path, python: str) -> None:
    error = preflight(python, "no-such-c++", tmp_path).stderr
    assert error == "error: no C++ compiler found (no-such-c++): apt install g++, or set CXX\n"


def test_an_old_compiler(tmp_path: Path, python: str) -> None:
    compiler = script(tmp_path / "c++", 'echo "unrecognized option -std=c++20" >&2; exit 1')
    error = preflight(python, compiler, tmp_path).stderr
    assert "unrecognized option -std=c++20" in error
    assert "cannot build a C++20 program: install g++ 12 or clang 16 or newer" in error


def test_no_disk(tmp_path: Path, python: str, compiler: str) -> None:
    script(tmp_path / "df", "printf 'head\\ndisk 9 9 2000000 9 /\\n'")
    path = f"{tmp_path}:{os.environ['PATH']}"
    error = preflight(python, compiler, tmp_path, PATH=path).stderr
    assert f"error: 3 GiB of free disk are needed in {tmp_path}, found 1" in error
    # A finished installation needs no more room.
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.engine").touch()
    preflight(python, compiler, tmp_path, code=0, PATH=path)


def test_no_temporary_folder(tmp_path: Path, python: str, compiler: str) -> None:
    error = preflight(python, compiler, tmp_path, TMPDIR=str(tmp_path / "missing")).stderr
    assert "no temporary file can be made" in error
    assert "set TMPDIR" in error


@pytest.mark.parametrize(
    ("log", "means"),
    [
        ("Retrying after NameResolutionError('...')", "the package index cannot be reached"),
        ("[Errno 28] No space left on device", "the disk is full"),
        ("ERROR: something else", "see pip's last lines above"),
    ],
)
def test_why_pip_failed(tmp_path: Path, log: str, means: str) -> None:
    file = tmp_path / "pip.log"
    file.write_text(log + "\n")
    done = subprocess.run(
        [ROOT / "cmake/pip_failed.sh", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the Python packages could not be installed: ")
    assert means in done.stderr


def test_make_alone_lists_its_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("run", "test", "test-quick", "bench", "wheel"):
        assert f"make {target} " in done.stdout
