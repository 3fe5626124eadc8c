"""What long work says of itself."""

from __future__ import annotations

import pytest

from tuner import terminal


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
