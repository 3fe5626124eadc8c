# SPDX-License-Identifier: MIT
"""Studies with several objectives, and their fronts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import request
from test_constraints import data_of, dearer, latency, recalled, run
from test_explain import BEST, DEFAULT, Study

from tuner import cli
from tuner.commands.run import study_request
from tuner.errors import UserError
from tuner.experiment import loop
from tuner.experiment.fronts import SEEDS, front
from tuner.optimize.costs import scalarized
from tuner.report import conclusion, page, table
from tuner.report.front import told
from tuner.run.trial import Trial, TrialResult
from tuner.study import best as best_file
from tuner.study import check
from tuner.study.constraint import Constraint
from tuner.study.front import MOST_POINTS, beats, candidates, costs, spread, values
from tuner.study.log import TrialRecord
from tuner.study.request import StudySummary
from tuner.study.verdict import Advice

__all__ = ["run"]  # a fixture

BOTH = ["throughput", "p99"]


# --- The front ------------------------------------------------------------------------------------


def periods(tmp_path: Path, *others: int, constraints: list[Constraint] | None = None) -> Study:
    """The default, whose period is 100, one of 2000, and others; each dearer than a shorter one."""
    study = Study(
        tmp_path, dearer, study="s", objectives=BOTH, explain=False, constraints=constraints or []
    )
    for number, period in enumerate(others, 2):
        knobs = BEST | {"period": period}
        study.log.asked(number, "model", knobs)
        study.log.finished(dearer(study.request.trial(number, knobs)))
    study.open(dearer)
    return study


def test_the_front_has_what_no_other_trial_beats(tmp_path: Path) -> None:
    # 3000 is slower than 2000, and dearer; 120 beats the default in time, and not in latency; the
    # second of equals adds nothing.
    study = periods(tmp_path, 3000, 120, 500, 500)
    found = candidates(study.log.data)
    assert [trial.number for trial in found] == [1, 4, 3, 0]
    vectors = [costs(values(study.request, BOTH, trial.result) or {}) for trial in found]
    assert not any(beats(one, other) for one in vectors for other in vectors)
    assert study.log.data.best is not None and study.log.data.best.number == 1


def test_what_breaks_a_constraint_is_not_on_the_front(tmp_path: Path) -> None:
    limit = Constraint(figure="p99", at_most=True, bound=6000.0)
    study = periods(tmp_path, 120, 500, constraints=[limit])
    assert [trial.number for trial in candidates(study.log.data)] == [3, 2, 0]
    assert study.log.data.best is not None and study.log.data.best.number == 3


def test_of_a_long_front_both_ends_and_the_best_are_shown() -> None:
    trials = [TrialRecord(number, "model", {}, "") for number in range(40)]
    for best in (0, 7, 39):
        numbers = [trial.number for trial in spread(trials, best)]
        assert len(numbers) == MOST_POINTS == len(set(numbers))
        assert {0, 39, best} <= set(numbers) and numbers == sorted(numbers)
    assert spread(trials[:3], 1) == trials[:3]


def test_a_front_is_measured_on_held_out_seeds_and_says_what_does_not_hold(tmp_path: Path) -> None:
    def runner(trial: Trial) -> TrialResult:
        """A period of 120 has its low latency on the study's seed alone."""
        lucky = trial.knobs.get("period") == 120
        own = trial.scenario.seed == request(Path()).scenario.seed
        return latency(trial, 9000.0) if lucky and not own else dearer(trial)

    periods(tmp_path, 120).log.close()
    study = periods(tmp_path / "other", 120)
    study.open(runner)
    found = front(study.checks, study.log.data)
    assert found is not None and found.best == 1
    assert [point.trial for point in found.points] == [1, 2, 0]
    assert [point.beaten for point in found.points] == [False, True, False]
    assert found.points[1].held_out["p99"] == 9000.0
    assert len({trial.scenario.seed for trial in study.pool.ran}) == SEEDS
    lines = told(found)
    assert lines[1].endswith("best.yaml") and "beaten by another on held-out seeds" in lines[2]


# --- The search -----------------------------------------------------------------------------------


def test_a_scalarization_is_pure_and_keeps_what_is_better_in_everything_ahead() -> None:
    vectors = {0: [1.0, 8.0], 1: [2.0, 2.0], 2: [8.0, 1.0], 3: [3.0, 3.0], 4: None}
    found = {seed: scalarized(vectors, seed) for seed in range(20)}
    assert scalarized(vectors, 7) == found[7]
    firsts = set()
    for costs_ in found.values():
        assert costs_[4] is None
        known = {n: cost for n, cost in costs_.items() if cost is not None}
        assert known[1] < known[3]
        assert all(1 <= cost <= math.exp(1.05) for cost in known.values())
        firsts.add(min(known, key=known.__getitem__))
    assert {0, 1, 2} == firsts  # each of the front is what some weights look for


def test_a_cost_of_nothing_and_one_that_is_the_same_everywhere_do_no_harm() -> None:
    found = scalarized({0: [0.0, 5.0], 1: [1.0, 5.0], 2: [math.inf, 5.0]}, 3)
    assert found[0] is not None and found[1] is not None and found[2] is not None
    assert found[0] < found[1] <= found[2] < math.inf
    assert scalarized({0: None}, 1) == {0: None}


def test_a_study_finds_a_front_writes_it_and_repeats_exactly(
    tmp_path: Path, run: Callable[..., StudySummary]
) -> None:
    fields = {"objectives": BOTH, "constraints": [], "budget": 24}

    def interrupted(trial: Trial) -> TrialResult:
        if trial.number == 13:
            raise KeyboardInterrupt
        return dearer(trial)

    summary = run(tmp_path / "whole", dearer, **fields)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", interrupted, **fields)
    again = run(tmp_path / "parts", dearer, **fields, resume=True)
    assert again.verdict == summary.verdict
    data, folder = data_of(tmp_path / "whole"), tmp_path / "whole" / "synthetic-study"
    found = summary.verdict.front
    assert found is not None and len(found.points) > 2
    # The best by the first objective, which is what the verdict is about.
    assert data.best is not None and found.best == data.best.number == found.points[0].trial
    assert data.best.objective == max(trial.objective or 0 for trial in data.good)
    assert summary.verdict.advice is Advice.use_best
    for point in found.points:
        file = Path(summary.front[point.trial])
        each = best_file.read(file)
        trial = data.trial(point.trial)
        assert trial is not None and each.objectives == point.values and each.on_front
        assert each.knobs.items() >= trial.knobs.items()
        assert f"--config front/{file.name}" in file.read_text()
    stored = best_file.read(folder / best_file.FILE)
    assert stored.objectives == found.points[0].values and stored.on_front is None
    assert check.problems(data) == []
    recalled_ = recalled(tmp_path / "whole")
    assert recalled_.verdict.front == found
    text = page.text(data, recalled_)
    assert "<h2>The front</h2>" in text and "throughput over p99 of each trial" in text
    assert f"best.yaml has trial {found.best}" in conclusion.text(data, recalled_)
    assert set(table.compared(data.header.request, data.done[0])) >= set(BOTH)
    with pytest.raises(UserError, match="objectives"):
        run(tmp_path / "whole", dearer, **fields | {"objectives": []}, resume=True)
    assert "--objectives throughput,p99" in loop.resume_command(data.header.request)


def test_files_of_an_earlier_front_go(tmp_path: Path, run: Callable[..., StudySummary]) -> None:
    fields = {"objectives": BOTH, "constraints": []}
    first = run(tmp_path, dearer, **fields, budget=5)
    second = run(tmp_path, dearer, **fields, budget=16, resume=True)
    folder = tmp_path / "synthetic-study" / best_file.FRONT
    assert set(first.front) - set(second.front)
    assert sorted(map(str, folder.iterdir())) == sorted(second.front.values())


def test_changes_that_add_nothing_to_the_first_objective_stay(tmp_path: Path) -> None:
    best = DEFAULT | {"period": 2000, "share": 0.5001}
    plain = Study(tmp_path / "one", dearer, best, study="s")
    several = Study(tmp_path / "two", dearer, best, study="s", objectives=BOTH)
    assert plain.explain().lean and not several.explain().lean


# --- What a user writes ---------------------------------------------------------------------------


def asked(*words: str) -> object:
    return study_request(cli.arguments_of(["run", "-w", "silo", "-i", "smoke", *words]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objectives", "throughput"], "must be from 2 to 4 different figures"),
        (["--objectives", "p99,p99"], "must be from 2 to 4 different figures"),
        (["--objectives", "throughput,p98"], "no figure for --objectives 'p98'; did you mean"),
        (["--objectives", "throughput,p99", "--objective", "p99"], "begins with throughput"),
        (["--objectives", "fast_hit_ratio,p99"], "found 'fast_hit_ratio'; must be one of"),
    ],
)
def test_objectives_that_are_none_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        asked(*words)
    assert message in str(refused.value)


def test_the_first_of_several_is_the_studys_objective() -> None:
    request_ = study_request(
        cli.arguments_of(
            ["run", "-w", "silo", "-i", "smoke", "--objectives", "p99,migrated_gib_per_h"]
        )
    )
    assert request_.scenario.objective == "p99"
    assert request_.objectives == ["p99", "migrated_gib_per_h"]
    assert request_.study.endswith("-and-migrated_gib_per_h")
