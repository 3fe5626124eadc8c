"""Rules that hold for the tests themselves: what `conftest.py` promises, and what nobody writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import HEAVY, ROOT, Refusal

# Of C, C++ and Python, and in a shell's command: what a test waits for has to be an event.
SLEEP = re.compile(r"\b(?:u|nano|clock_nano)?sle{2}p(?:_for|_until)?[\"']*\s*(?:\(|,|[\d.])")


def test_no_test_sleeps() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("*"))
        if path.suffix in (".py", ".cpp", ".hpp", ".c", ".h", ".sh")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if SLEEP.search(line)
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        *("time.{}(1)", "{}(.5)", "std::this_thread::{}_for(1s)", "u{} (100)", "nano{}(&span, 0)"),
        *('run(["{}", "1"])', "sh -c '{} 1'", "true & {} .1"),
    ],
)
def test_a_sleep_is_found(line: str) -> None:
    assert SLEEP.search(line.format("sle" + "ep"))


def test_home_and_temporary_files_are_the_tests_own(sandbox: Path) -> None:
    assert Path.home() == Path("~").expanduser() == sandbox / "home"
    assert Path(tempfile.gettempdir()) == sandbox
    assert ROOT not in sandbox.parents


@pytest.mark.parametrize("name", HEAVY)
def test_the_quick_half_does_without(name: str) -> None:
    refusal = Refusal()
    with pytest.raises(ModuleNotFoundError, match=f"not marked slow imports {name}"):
        refusal.find_spec(name)
    assert refusal.refused == [name]
    done = subprocess.run(
        [sys.executable, "-c", f"try: import {name}\nexcept ImportError: pass"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == os.EX_SOFTWARE
    assert f"starts a program that imports {name}" in done.stderr
