# SPDX-License-Identifier: MIT
"""What long work says of itself."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner import screen, terminal
from tuner.arguments import COMMANDS, TABLED
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


def test_tables_are_kept_as_csv_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (
        ("t.csv", 'policy,knobs\n"a, b",1\n\nx\ny|z\n'),
        ("t.md", "| policy | knobs |\n| --- | ---: |\n| a, b | 1 |\n\n| x |\n| --- |\n| y\\|z |\n"),
    ):
        with terminal.tables_kept(str(tmp_path / "new" / name)):
            terminal.table(["policy", ">knobs"], [["a, b", "1"]])
            terminal.table(["x"], [["y|z"]])
        assert (tmp_path / "new" / name).read_text() == content
    assert capsys.readouterr().out.splitlines()[:2] == ["policy  knobs", "a, b        1"]
    terminal.table(["x"], [["y"]])  # which nobody keeps


def test_tables_that_cannot_be_kept_are_wrong_usage(tmp_path: Path, run: Any) -> None:
    told = run("policies", "--tables", str(tmp_path / "t.txt"))
    assert told.code == 2 and "t.txt; must end in .csv or .md" in told.err and told.out == ""
    told = run("policies", "--json", "--tables", str(tmp_path / "t.csv"))
    assert told.code == 2 and "no table was printed" in told.err
    assert list(tmp_path.iterdir()) == []
    assert run("policies", "--tables", str(tmp_path / "t.csv")).code == 0
    assert (tmp_path / "t.csv").read_text().startswith("policy,family,knobs,")


def test_every_command_that_prints_a_table_writes_it(tmp_path: Path) -> None:
    """A command's tables may be those of a module that it imports from its own folder."""
    folder = Path(terminal.__file__).parent / "commands"
    sources = {path.stem: path.read_text() for path in folder.glob("*.py")}
    printing = {name for name, text in sources.items() if re.search(r"^ +table\(", text, re.M)}
    more = {
        name
        for name, text in sources.items()
        if any(re.search(rf"from tuner.commands(\.{o} | import .*\b{o}\b)", text) for o in printing)
    }
    assert ((printing | more) & set(COMMANDS)) - {"run"} == set(TABLED)


def test_remarks_come_in_their_place_where_both_streams_are_one_file() -> None:
    text = "from tuner.terminal import say; print(1); say('2'); print(3); say('4')"
    words = [sys.executable, "-c", text]
    done = subprocess.run(words, stdout=-1, stderr=subprocess.STDOUT, text=True, check=True)
    assert done.stdout.split() == ["1", "2", "3", "4"]


def test_quiet_leaves_out_progress_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.be_quiet(True)
    try:
        terminal.doing("working")
        with terminal.progress("work") as update:
            update(0.5)
        terminal.say("warning: something")
    finally:
        terminal.be_quiet(False)
    assert capsys.readouterr().err == "warning: something\n"


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_a_shell_completes_commands_and_options(run: Any, name: str, tmp_path: Path) -> None:
    script = run("--completion", name).out
    for word in ("--budget", "--completion", "--held-out-streams", "emulated"):
        assert word in script
    if name == "bash":
        (tmp_path / "tune").write_text(script)
        ask = "source ./tune; COMP_WORDS=(tune run --bud); COMP_CWORD=2; _shtab_tune; "
        ask += 'echo "${COMPREPLY[@]}"'
        said = subprocess.run(
            ["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert said.stdout.split() == ["--budget"]
