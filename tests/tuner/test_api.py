# SPDX-License-Identifier: MIT
"""Studies from Python, and the notebook that shows how."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, FakeNative
from synthetic import smooth
from test_explain import BEST, DEFAULT, Study

import tuner
from tuner import api
from tuner.errors import UserError
from tuner.study.request import StudyRequest

NOTEBOOK = ROOT / "docs" / "python.ipynb"


def test_options_are_those_of_tune_run(
    fake: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StudyRequest] = []

    def run(request: StudyRequest) -> None:
        asked.append(request)
        raise UserError("enough")

    monkeypatch.setattr(api, "run_study", run)
    with pytest.raises(UserError, match="enough"):
        tuner.tune(
            "walker", policy="toy", budget=7, out=tmp_path, ratio="1:4", seed=3, fast_gib=None,
            explain=False, held_out_streams=True, rivals="none",
        )  # fmt: skip
    (request,) = asked
    assert (request.workload.name, request.policy.name, request.budget) == ("walker", "toy", 7)
    assert (request.scenario.ratio, request.scenario.seed) == ("1:4", 3)
    assert not request.explain and request.held_out_streams and not request.resume
    assert request.out == str(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ratio": "1:x"}, "must be FAST:SLOW"),
        ({"bugdet": 3}, "unrecognized arguments: --bugdet 3"),
        ({"policy": "tyo"}, "did you mean 'toy'"),
        ({"budget": 0}, "argument --budget: "),
    ],
)
def test_what_it_cannot_take_is_an_error(
    fake: FakeNative, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        tuner.tune("walker", **options)


def test_a_study_is_what_is_on_disk(tmp_path: Path) -> None:
    made = Study(tmp_path, smooth)
    expected = made.explain()
    made.log.close()
    study = tuner.load(tmp_path / "s")
    assert study.name == "synthetic-study"
    assert study.verdict.advice.value == "use-best"
    assert study.explain() == expected
    assert [trial["number"] for trial in study.trials] == [0, 1]
    assert study.trials[0]["knob.period"] == DEFAULT["period"]
    assert study.trials[1]["knob.period"] == BEST["period"]
    assert study.verdict.headline in repr(study)
    assert html.escape(study.verdict.headline) in study._repr_html_()
    with pytest.raises(UserError, match="no trial of this study has succeeded"):
        _ = study.config  # nobody has written it


def test_a_study_that_has_not_ended_has_no_verdict(tmp_path: Path) -> None:
    Study(tmp_path, smooth).log.close()
    study = tuner.load("s", tmp_path)
    assert "has not ended" in repr(study) and "has not ended" in study._repr_html_()
    assert len(study.trials) == 2
    with pytest.raises(UserError, match="resume=True"):
        study.explain()
    with pytest.raises(UserError, match="no study at"):
        tuner.load("other", tmp_path)


def test_importing_the_package_is_light() -> None:
    code = "import sys, tuner; print('pydantic' in sys.modules, 'tuner.api' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="no attribute 'tnue'"):
        _ = tuner.tnue


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 3
    program = tmp_path / "notebook.py"
    body = "\n".join(f"    {line}" for cell in code for line in cell.splitlines())
    program.write_text(f"if __name__ == '__main__':\n{body}\n")
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "best.yaml" in done.stdout
