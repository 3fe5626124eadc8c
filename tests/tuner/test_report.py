# SPDX-License-Identifier: MIT
"""`tune report`: live and simulated time series in one picture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tuner import cli

LIVE = "fast_hit_ratio,policy.threshold,promotions,second\n0.5,1,10,1\n0.75,1,20,2.5\n"


def test_live_and_simulated_series_are_drawn_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("live.csv").write_text(LIVE + "0.8,1,3")  # it is being written
    simulated = "second,fast_hit_ratio,operations_per_second\r\n0,0.25,7\r\n1,0.75,9\r\n"
    Path("simulated.csv").write_text(simulated)
    assert cli.main(["report", "live.csv", "simulated.csv", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["picture"] == "live.png"
    assert said["means"]["live.csv"] == {
        "fast_hit_ratio": 0.625,
        "policy.threshold": 1,
        "promotions": 15,
        "second": 1.75,
    }
    assert said["means"]["simulated.csv"]["operations_per_second"] == 8
    assert Path("live.png").read_bytes().startswith(b"\x89PNG")
    both = Path("live.png").read_bytes()
    assert cli.main(["report", "live.csv", "-o", "alone.png"]) == 0
    assert "fast_hit_ratio" in capsys.readouterr().out
    assert Path("alone.png").read_bytes() != both


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "s.csv:1: expected names of columns, 'second' among them"),
        ("a,b\n1,2\n", "s.csv:1: expected names of columns"),
        ("second,second\n1,2\n", "s.csv:1: expected names of columns"),
        ("second,a\n", "s.csv: has no row yet"),
        ("second,a\n1\n", "s.csv:2: found 1 cells, expected 2"),
        ("second,a\n1,2\n2,x\n", "s.csv:3: a: found 'x', expected a number"),
        ("second,a\n1,nan\n", "s.csv:2: a: found 'nan', expected a number"),
        ('second,a\n1,"2\n', "s.csv: "),
    ],
)
def test_what_is_no_series_is_named_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(content)
    assert cli.main(["report", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert not path.with_suffix(".png").exists()


def test_no_pipe_is_waited_for_and_no_input_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert cli.main(["report", str(tmp_path / "pipe.csv")]) == 2
    path = tmp_path / "s.png"
    path.write_text(LIVE)
    assert cli.main(["report", str(path)]) == 2
    assert cli.main(["report", *["a.csv"] * 9]) == 2
    assert path.read_text() == LIVE
    assert "must be at most 8" in capsys.readouterr().err
