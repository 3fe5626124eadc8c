# SPDX-License-Identifier: MIT
"""What long work says of itself."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner import screen, terminal
from tuner.errors import one_line
from tuner.text import shell


def test_progress_without_a_terminal_is_a_line_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("tuner.terminal.time.monotonic", lambda: now)
    with terminal.progress("work") as update:
        for second in range(0, 150, 10):
            now = 100.0 + second
            update(second / 200)
    assert capsys.readouterr().err.splitlines() == [
        "work ...",
        "work: 30% in 60 s",
        "work: 60% in 120 s",
        "work: done in 140.0 s",
    ]


def test_progress_that_never_began_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress("work"):
        pass
    assert capsys.readouterr().err == ""


STEERING = "\x1b]0;title\x07 \x1b[2J \x9b2J \r \b \x7f \u202e \u2028"


def test_what_steers_a_terminal_is_shown_as_escapes() -> None:
    shown = screen.printable(STEERING)
    assert shown.isprintable()
    assert shown == r"\u001b]0;title\u0007 \u001b[2J \u009b2J \u000d \u0008 \u007f \u202e \u2028"
    assert screen.printable("a\tb\nµ ± 中") == "a\tb\nµ ± 中"
    assert screen.printable("at http://me:hunter2@host: no") == "at http://***@host: no"


@pytest.mark.parametrize("words", [["check"], ["export"], ["check", "--json"]])
def test_names_in_somebodys_study_do_not_steer_the_terminal(
    tmp_path: Path, run: Any, words: list[str]
) -> None:
    study = tmp_path / STEERING
    study.mkdir()
    (study / "study.json").write_text(json.dumps({"format": 4}))
    outcome = run(*words, str(study))
    assert outcome.code != 0
    said = outcome.out + outcome.err
    assert "title" in said
    assert all(line.isprintable() for line in said.splitlines())


def test_an_address_in_a_wrong_place_shows_no_password(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run("doctor", "--mlflow-url", "http://me:hunter2@host")
    assert "hunter2" not in capsys.readouterr().err


def test_a_table_on_a_terminal_has_styles_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr(drawn, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", drawn)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    screen.guard()
    terminal.table(["name", "what"], [[STEERING, f"prose {STEERING}"]], prose=1)
    print(STEERING)
    assert "\x1b[1mname\x1b[0m" in drawn.getvalue()
    assert "\x1b]0" not in drawn.getvalue()
    assert "\x1b[2J" not in drawn.getvalue()
    assert drawn.getvalue().count(r"\u001b]0;title") == 3


def test_a_name_does_not_break_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.table(("name", ">size"), [("two\nlines", "1"), ("ümlaut 🙂", "2")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["name", "two\\nlines", "ümlaut 🙂"]


def test_what_ends_early_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.resumable(lambda: "never said"):
        pass
    with pytest.raises(OSError), terminal.resumable(lambda: "go on"):
        raise OSError
    assert capsys.readouterr().err == "go on\n"


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "",
        "two words",
        "it's",
        "-dash",
        "a\nb",
        "tab\t'\\0123",
        "\udcff\udcfe",
        "🙂\x1b",
        "$HOME",
    ],
)
def test_a_command_can_be_pasted(word: str) -> None:
    command = shell(["printf", "%s", word])
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert done.stdout == word.encode(errors="surrogateescape")
    assert one_line(word).isprintable()
