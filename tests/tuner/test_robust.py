# SPDX-License-Identifier: MIT
"""Which trial is called best, and what it is worth beside the conditions of its search."""

from __future__ import annotations

import math
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from synthetic import answer, request, seconds_of
from test_explain import BEST, DEFAULT, Study

from tuner.experiment import contest
from tuner.experiment.recall import recall, remake
from tuner.experiment.robust import CANDIDATES, SEEDS, choose, elsewhere, neighbours
from tuner.experiment.studies import OpenStudy
from tuner.report import conclusion
from tuner.report.contenders import standing
from tuner.run.trial import Trial, TrialResult
from tuner.study import best as best_file
from tuner.study import check, log
from tuner.study.contender import Kind
from tuner.study.log import TrialRecord
from tuner.study.verdict import HELD_OUT, left_to_chance

SHARP, BROAD = BEST | {"period": 2000}, BEST | {"period": 2500}
HERE = "1:8"


def times(trial: Trial) -> float | None:
    """SHARP is the best by 1.5 % at 1:8, and worse than the default elsewhere."""
    if trial.scenario.policy != "paper":
        return None
    home = trial.scenario.ratio == HERE
    if trial.knobs == SHARP:
        return 80.0 if home else 125.0
    if trial.knobs == BROAD:
        return 81.2 if home else 90.0
    return seconds_of(trial.knobs) if trial.knobs == DEFAULT else 110.0


def by_ratio(trial: Trial) -> TrialResult:
    return answer(trial, times(trial))


def study_of(
    out: Path,
    *others: Mapping[str, Any],
    runner: Callable[[Trial], TrialResult] = by_ratio,
    **changes: Any,
) -> Study:
    """The default, SHARP, and other configurations."""
    fields = {"ratio": HERE, "robust": True, "study": "s", "explain": False} | changes
    study = Study(out, runner, SHARP, **fields)
    for number, knobs in enumerate(others, 2):
        study.log.asked(number, "model", dict(knobs))
        study.log.finished(runner(study.request.trial(number, dict(knobs))))
    study.open(runner)
    study.checks.learn(study.log.data)
    return study


def found(study: Study) -> TrialRecord:
    best = study.log.data.best
    assert best is not None
    return best


def test_neighbours_have_half_and_twice_the_fast_memory(tmp_path: Path) -> None:
    ratio = request(tmp_path, ratio="1:8")
    assert neighbours(ratio) == {"1:16": {"ratio": "1:16"}, "1:4": {"ratio": "1:4"}}
    assert list(neighbours(request(tmp_path, ratio="2:3"))) == ["2:6", "2:1.5"]
    fixed = request(tmp_path, fast_gib=0.25)
    assert neighbours(fixed) == {
        "0.125 GiB fast": {"fast_gib": 0.125}, "0.5 GiB fast": {"fast_gib": 0.5},
    }  # fmt: skip
    # The footprint is 1 GiB: with twice 0.5 there is nothing to place.
    assert list(neighbours(request(tmp_path, fast_gib=0.5))) == ["0.25 GiB fast"]


def test_of_the_best_few_the_one_that_holds_elsewhere_is_chosen(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD)
    assert choose(study.checks, study.log.data) == 2
    # Two candidates and the default, on a seed of their own at each of three sizes.
    assert len(study.pool.ran) == 3 * 3
    (seed,) = {trial.scenario.seed for trial in study.pool.ran}
    assert seed == study.request.scenario.seed + HELD_OUT + 1
    assert {trial.scenario.ratio for trial in study.pool.ran} == {"1:4", HERE, "1:16"}


def test_what_is_much_worse_here_is_no_candidate(tmp_path: Path) -> None:
    poor = BEST | {"period": 7000}  # 110 s everywhere
    study = study_of(tmp_path, poor)
    assert choose(study.checks, study.log.data) is None
    assert study.pool.ran == []


def test_few_are_candidates_and_the_default_is_none(tmp_path: Path) -> None:
    def same(trial: Trial) -> TrialResult:
        return answer(trial, 80.0 if trial.scenario.policy == "paper" else None)

    others = [BEST | {"period": 1000 + k} for k in range(2 * CANDIDATES)]
    study = study_of(tmp_path, *others, runner=same)
    assert choose(study.checks, study.log.data) is not None
    tried = {str(trial.knobs) for trial in study.pool.ran}
    assert len(tried) == CANDIDATES + 1 - 1  # trial 0, which is as good, stands for itself


def test_a_candidate_that_fails_elsewhere_is_not_chosen(tmp_path: Path) -> None:
    def picky(trial: Trial) -> TrialResult:
        if trial.knobs == BROAD and trial.scenario.ratio == "1:4":
            raise ValueError("no room")
        return by_ratio(trial)

    study = study_of(tmp_path, BROAD, runner=picky)
    assert choose(study.checks, study.log.data) == 1


def test_without_robust_the_best_on_the_seed_is_best(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD, robust=False)
    assert choose(study.checks, study.log.data) is None
    assert elsewhere(study.checks, study.log.data) == []
    assert found(study).number == 1


def conclude(study: Study, tmp_path: Path) -> tuple[str, Any]:
    """As a study ends, with its files."""
    study.log.close()
    wanted = study.request.model_copy(update={"resume": True})
    with OpenStudy(wanted) as opened:
        study.log = opened.log
        study.checks._study = opened.log
        study.judge()
        told = opened.judge(study.checks)
        ended, _ = opened.report(told)
        return conclusion.text(opened.log.data, ended), told[0]


def test_the_chosen_trial_is_the_studys_best_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path, BROAD)
    text, verdict = conclude(study, tmp_path)
    data = log.load(study.directory)
    assert data.chosen == 2 and data.best == data.trial(2) and data.top == data.trial(1)
    assert best_file.read(study.directory / best_file.FILE).knobs == BROAD
    assert check.problems(data) == []
    assert "trial 2, not 1: that one is 1.5 % faster on the study's seed" in text
    monkeypatch.setattr(conclusion, "SEEN", 0.02)
    (why, *_) = conclusion.nearby(data, verdict)
    assert "trial 2, not 1: that one is as good on the study's seed" in why
    assert [place.where for place in verdict.elsewhere] == ["1:16", "1:4"]
    for place in verdict.elsewhere:
        assert place.gain.pairs == SEEDS
        assert place.gain.gain == pytest.approx(seconds_of(DEFAULT) / 90.0 - 1)
        assert f"at {place.where}: " in text
        assert place.over_first_touch.gain > 0

    # Whoever reads the log alone comes to the same, and nothing runs again.
    with log.StudyLog(study.directory) as again:
        recalled = recall(again)
    assert recalled is not None and recalled.verdict == verdict
    (study.directory / best_file.FILE).unlink()
    remake(study.directory)
    assert best_file.read(study.directory / best_file.FILE).knobs == BROAD


def test_where_few_seeds_do_not_agree_there_are_more(tmp_path: Path) -> None:
    def doubtful(trial: Trial) -> TrialResult:
        seconds = times(trial)
        if trial.knobs == BROAD and trial.scenario.ratio == "1:4":
            seconds = seconds_of(DEFAULT) * (0.9 if trial.scenario.seed % 2 else 1.1)
        return answer(trial, seconds)

    study = study_of(tmp_path, BROAD, runner=doubtful)
    study.log.chose(2)
    less, more = elsewhere(study.checks, study.log.data)
    assert less.gain is not None and less.gain.pairs == SEEDS
    assert more.gain is not None and more.gain.pairs == HELD_OUT
    assert more.gain.half_width is not None and abs(more.gain.gain) < more.gain.half_width


def coin(trial: Trial) -> TrialResult:
    """BROAD is faster than the default on every second held-out seed."""
    seconds = times(trial)
    if trial.knobs == BROAD and trial.scenario.seed in range(3, 14, 2):
        seconds = 1.1 * seconds_of(DEFAULT)
    return answer(trial, seconds)


def test_where_chance_could_decide_there_are_more_held_out_seeds(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD, runner=coin)
    text, verdict = conclude(study, tmp_path)
    (best_line,) = (line for line in text.splitlines() if line.startswith("  best "))
    assert best_line.endswith(", trial 2, 7.519 k ops/s to 12.32 k ops/s by seed)")
    assert text.count("by seed") == 1  # the others are steady
    drawn = standing(log.load(study.directory), verdict)
    assert drawn is not None  # with labels that leave room for what they are of
    labels = [each.get_text() for axes in drawn.figure.axes for each in axes.texts]
    assert labels and not any("by seed" in label or "trial" in label for label in labels)
    own = study.request.scenario.seed
    assert verdict.seeds == [own + k for k in (*range(1, 7), *range(8, 14))]
    best = verdict.contender(Kind.tuned)
    assert best is not None and sorted(Counter(best.values).values()) == [HELD_OUT, HELD_OUT]
    ran = [trial.scenario.seed for trial in study.pool.ran if trial.knobs == BROAD]
    assert ran.count(own + HELD_OUT + 1) == 3  # the choice's, at each of three sizes
    with log.StudyLog(study.directory) as again:
        recalled = recall(again)
    assert recalled is not None and recalled.verdict == verdict


def test_a_study_of_before_is_recalled_with_the_seeds_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(contest, "left_to_chance", lambda verdict: False)
        _, verdict = conclude(study_of(tmp_path, BROAD, runner=coin), tmp_path)
    assert len(verdict.seeds) == HELD_OUT and left_to_chance(verdict)
    with log.StudyLog(tmp_path / "s") as again:
        recalled = recall(again)
    assert recalled is not None and recalled.verdict == verdict
    remake(tmp_path / "s")


def test_the_choice_holds_until_another_trial_ends(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD)
    study.log.chose(2)
    assert found(study).number == 2
    study.open(by_ratio)
    assert found(study).number == 2
    study.log.asked(3, "model", BEST | {"period": 7000})
    assert found(study).number == 2
    study.log.finished(by_ratio(study.request.trial(3, BEST | {"period": 7000})))
    assert found(study).number == 1
    study.open(by_ratio)
    assert found(study).number == 1


def test_a_study_that_was_ended_without_it_is_recalled_without_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD)
    study.request = study.request.model_copy(update={"robust": False})
    study.checks.request = study.request
    _, verdict = conclude(study, tmp_path)
    assert verdict.elsewhere == []
    with log.StudyLog(study.directory) as again:
        assert again.data.header.request.robust
        recalled = recall(again)
    assert recalled is not None and recalled.verdict.elsewhere == []
    remake(study.directory)
    assert best_file.read(study.directory / best_file.FILE).knobs == SHARP


sys.path.append(str(ROOT / "tests/bench"))  # where it finds cases.py
BENCH = runpy.run_path(str(ROOT / "tests/bench/robust.py"))


def test_the_rule_that_is_measured_is_the_one_that_chooses(tmp_path: Path) -> None:
    study = study_of(tmp_path, BROAD, BEST | {"period": 7000})

    def gain(knobs: Mapping[str, Any], ratio: str) -> float:
        setting = study.request.under(study.request.policy, ratio=ratio)
        default, seconds = times(setting.trial(0, {})), times(setting.trial(0, knobs))
        assert default is not None and seconds is not None
        return math.log(default / seconds)

    places = dict(zip(BENCH["PLACES"], (HERE, "1:16", "1:4"), strict=True))
    trials = [(trial.knobs, gain(trial.knobs, HERE)) for trial in study.log.data.done]
    bed = SimpleNamespace(
        runs=80,
        search=lambda count: trials[:count],
        gains=lambda knobs, seed=0: {name: gain(knobs, at) for name, at in places.items()},
    )
    chosen = choose(study.checks, study.log.data)
    assert chosen == 2
    assert BENCH["near"](bed) == trials[chosen][0] == BROAD
    assert BENCH["near"](bed, count=1) == SHARP
    bed.search = lambda count: trials
    assert BENCH["on_seed"](bed) == SHARP


def test_figures_of_rules_tell_what_is_kept_attained_and_lost() -> None:
    def case(**gains: tuple[float, float, float, float]) -> dict[str, Any]:
        names = ("home", "half", "twice", "stream")
        rules = {
            rule: {"gain": dict(zip(names, row, strict=True)), "runs": 80}
            for rule, row in gains.items()
        }
        return {"rules": rules}

    found = BENCH["summary"](
        [
            case(seed=(0.4, 0.1, -0.1, 0.4), near=(0.3, 0.2, 0.2, 0.3)),
            case(seed=(0.01, 0.0, 0.0, 0.0), near=(0.01, 0.0, 0.0, 0.0)),  # nothing to keep
        ]
    )
    seed, near = found["rules"]["seed"], found["rules"]["near"]
    assert found["studies"] == 2
    assert seed["kept_enough"] == pytest.approx(1 / 3)  # the other stream
    assert near["kept_enough"] == pytest.approx(1 / 3)
    assert seed["attained_enough"] == pytest.approx(1 / 3)
    assert near["attained_enough"] == pytest.approx(2 / 3)
    assert seed["harmful"] == pytest.approx(1 / 6) and near["harmful"] == 0
    assert near["lost_at_home"] == pytest.approx(0.05) and near["lost_little"] == 0.5
    assert seed["over_near"]["mean"] == pytest.approx((0.2 - 0.25) / 2)
    assert (seed["over_near"]["better"], seed["over_near"]["worse"]) == (0, 1)
    assert near["gain"]["half"] == pytest.approx(0.1)
