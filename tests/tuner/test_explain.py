# SPDX-License-Identifier: MIT
"""Checks and the explanation, on an objective of which the truth is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from synthetic import KNOBS, OTHER, REFERENCES, answer, noisy, request, seconds_of, smooth

from tuner.declarations import KnobValue
from tuner.optimize.checks import (
    FIRST_CHECK,
    Check,
    Checks,
    Workers,
    bounds,
    held_out,
    judge,
)
from tuner.optimize.explain import SEEDS, TRIES, explain
from tuner.report import conclusion
from tuner.report.conclusion import Conclusion
from tuner.report.importance import Importance
from tuner.run.pool import without_result
from tuner.run.trial import Status, StreamRequest, Trial, TrialResult
from tuner.study import log
from tuner.study.explanation import KEEP, Explanation
from tuner.study.log import StudyHeader, StudyLog
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT, Advice, Kind, Verdict

DEFAULT: dict[str, KnobValue] = {knob.name: knob.default for knob in KNOBS}
BEST: dict[str, KnobValue] = {
    "period": 2000, "threshold": 8.0, "share": 0.3, "mode": "eager", "aol": True, "aol.low": 60.0,
}  # fmt: skip


class Here:
    """A pool in this process, which answers out of order."""

    workers = 3

    def __init__(self, runner: Callable[[Trial], TrialResult]) -> None:
        self.runner = runner
        self.ran: list[Trial] = []
        self._flying: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        self._flying.append(trial)

    def wait(self, timeout: float) -> list[TrialResult]:
        trial = self._flying.pop()
        self.ran.append(trial)
        try:
            return [self.runner(trial)]
        except ValueError as error:
            return [without_result(trial, Status.failed, str(error), 0.0)]

    def close(self) -> None: ...


class Study:
    """A study of two trials, the default and another configuration, and its checks."""

    def __init__(
        self,
        out: Path,
        runner: Callable[[Trial], TrialResult] = smooth,
        best: Mapping[str, KnobValue] = BEST,
        **changes: Any,
    ) -> None:
        self.request: StudyRequest = request(out, **changes)
        self.directory = out / "s"
        header = StudyHeader(
            format=log.FORMAT, created=log.now(), request=self.request,
            fingerprints=self.request.fingerprints, stream="x", lag=1, initial=2,
        )  # fmt: skip
        self.log = StudyLog(self.directory, header)
        for number, knobs in enumerate((DEFAULT, dict(best))):
            self.log.asked(number, "initial", knobs)
            self.log.finished(runner(self.request.trial(number, knobs)))
        self.open(runner)

    def open(self, runner: Callable[[Trial], TrialResult]) -> None:
        """As a new process would."""
        self.log.close()
        self.log = StudyLog(self.directory)
        self.told: list[str] = []
        self.pool = Here(runner)
        workers = Workers(self.request, runner)
        workers._pool = self.pool
        self.checks = Checks(self.request, self.log, workers, self.told.append)

    def judge(self) -> Verdict:
        bounds(self.checks)
        return judge(self.checks, self.log.data)

    def explain(self) -> Explanation:
        explanation = explain(self.checks, self.log.data, self.judge())
        assert explanation is not None
        return explanation


# --- Bounds and held-out seeds --------------------------------------------------------------------


def test_references_and_other_policies_run_under_the_same_conditions(tmp_path: Path) -> None:
    other = OTHER.model_copy(update={"traits": {"page_bytes": 2 << 20}})
    study = Study(tmp_path, alternatives=[other], ratio="1:4")
    bounds(study.checks)
    ran = {trial.scenario.policy: trial for trial in study.pool.ran}
    assert set(ran) == {"first-touch", "all-fast", "static-hot", "other"}
    for name, trial in ran.items():
        # A reference has the study's page size, another policy its own.
        pages = 2 << 20 if name == "other" else 4096
        expected = replace(study.request.scenario, policy=name, page_bytes=pages)
        assert trial.scenario == expected
        assert trial.knobs == ({"speed": 1.0} if name == "other" else {})
        stream = study.request.stream()
        assert trial.stream == stream.model_copy(update={"page_bytes": pages})
        assert trial.number >= FIRST_CHECK
    assert len(study.told) == 4
    assert any(
        line.startswith("reference static-hot: throughput 10.53 k ops/s") for line in study.told
    )


def test_references_start_in_the_fast_tier_wherever_the_policy_does(tmp_path: Path) -> None:
    """The engine refuses a policy that never moves a page on pages that all start slow."""
    study = Study(tmp_path, start="slow")
    verdict = study.judge()
    references = {"first-touch", "all-fast", "static-hot"}
    assert {
        trial.scenario.policy for trial in study.pool.ran if trial.scenario.start == "fast"
    } == references
    assert {trial.scenario.start for trial in study.pool.ran} == {"fast", "slow"}
    assert set(verdict.references) == references


def test_what_was_set_for_the_study_is_kept_for_other_policies(tmp_path: Path) -> None:
    study = Study(tmp_path, page_bytes=2 << 20)
    bounds(study.checks)
    assert {trial.scenario.page_bytes for trial in study.pool.ran} == {2 << 20}


def test_the_verdict_has_the_bounds_and_pairs_of_held_out_seeds(tmp_path: Path) -> None:
    study = Study(tmp_path, noisy)
    verdict = study.judge()
    assert verdict.advice is Advice.use_best
    assert list(verdict.references) == ["first-touch", "all-fast", "static-hot"]
    assert set(verdict.untuned) == {"other"}
    assert verdict.seeds == [2, 3, 4, 5, 6, 7]  # the study's is 1
    truth = seconds_of(DEFAULT) / seconds_of(BEST) - 1
    assert verdict.gain is not None and verdict.gain.half_width is not None
    assert abs(verdict.gain.gain - truth) < 2 * verdict.gain.half_width
    assert verdict.gain.pairs == HELD_OUT
    tuned = verdict.contender(Kind.tuned)
    assert tuned is not None
    best = [t for t in study.pool.ran if t.knobs == BEST]
    assert [t.scenario.seed for t in sorted(best, key=lambda t: t.scenario.seed)] == verdict.seeds
    # 3 references and one other policy; default, best and the other on each seed.
    assert len(study.pool.ran) == 4 + 3 * HELD_OUT


def test_the_terminal_names_the_best_of_the_other_policies(tmp_path: Path) -> None:
    study = Study(tmp_path, noisy)
    few = {f"p{i}": 100.0 + i for i in range(5)}  # and `other`
    forest = Importance({}, 0.0, 0, "none")
    verdict = study.judge().model_copy(update={"untuned": few})
    lines = conclusion.text(study.log.data, Conclusion(verdict, None, forest)).splitlines()
    assert sum(line.startswith("  untuned ") for line in lines) == 6
    verdict = verdict.model_copy(update={"untuned": few | {"p6": 1000.0, "p7": 2000.0}})
    lines = conclusion.text(study.log.data, Conclusion(verdict, None, forest)).splitlines()
    assert sum(line.startswith("  untuned ") for line in lines) == 5
    (rest,) = (line for line in lines if "more untuned" in line)
    assert rest == "  3 more untuned: 102 ops/s to 100 ops/s (the report has all)"


def test_the_terminal_says_what_going_by_the_simulator_risks(tmp_path: Path) -> None:
    study = Study(tmp_path, noisy)
    conclusion_of_it = Conclusion(study.judge(), None, Importance({}, 0.0, 0, "none"))
    found = json.loads((ROOT / "results" / "claims.json").read_text())
    (line,) = (
        line
        for line in conclusion.text(study.log.data, conclusion_of_it).splitlines()
        if line.startswith("risk ")
    )
    assert f"loses {100 * found['regret']:.1f} % of the best on average" in line
    assert f"{100 * found['worst_regret']:.0f} % at worst" in line


def test_repeats_of_a_trial_and_held_out_seeds_do_not_overlap(tmp_path: Path) -> None:
    wanted = request(tmp_path, repeats=3, seed=10)
    assert [seed["seed"] for seed in held_out(wanted)] == [13, 16, 19, 22, 25, 28]
    assert {seed["stream_seed"] for seed in held_out(wanted)} == {0}


def test_held_out_streams_are_others_and_references_run_on_each(tmp_path: Path) -> None:
    study = Study(tmp_path, held_out_streams=True, stream_seed=4)
    verdict = study.judge()
    assert verdict.stream_seeds == [5, 6, 7, 8, 9, 10]
    off = [t.scenario.stream_seed for t in study.pool.ran if t.scenario.policy == "first-touch"]
    assert sorted(off) == [4, 5, 6, 7, 8, 9, 10]
    streams = [t.stream for t in study.pool.ran if t.knobs == BEST]
    assert {s.seed for s in streams if isinstance(s, StreamRequest)} == set(verdict.stream_seeds)


def test_what_fails_costs_its_own_part_of_the_verdict(tmp_path: Path) -> None:
    def picky(trial: Trial) -> TrialResult:
        if trial.scenario.policy in ("other", "static-hot"):
            raise ValueError("not on this machine")
        return answer(trial)

    study = Study(tmp_path, picky)
    verdict = study.judge()
    assert verdict.untuned == {}
    assert list(verdict.references) == ["first-touch", "all-fast"]
    assert verdict.way is None
    assert verdict.advice is Advice.use_best
    assert "untuned other: failed: not on this machine" in study.told


def test_nothing_is_run_twice(tmp_path: Path) -> None:
    study = Study(tmp_path)
    first = study.explain()
    events = (study.directory / log.EVENTS).read_bytes()
    assert len({(t.scenario, str(t.knobs)) for t in study.pool.ran}) == len(study.pool.ran)
    assert len({t.number for t in study.pool.ran}) == len(study.pool.ran)
    study.open(smooth)
    again = study.explain()
    assert study.pool.ran == []
    assert again == first
    assert (study.directory / log.EVENTS).read_bytes() == events


@pytest.mark.parametrize("cut", [1, 3, 6, 20, 30, 34])
def test_checks_go_on_where_they_were_stopped(tmp_path: Path, cut: int) -> None:
    study = Study(tmp_path, noisy)
    whole = study.explain()
    total = len(study.pool.ran)
    path = study.directory / log.EVENTS
    lines = path.read_bytes().splitlines(keepends=True)
    trials = 4  # asked and finished
    path.write_bytes(b"".join(lines[: trials + cut]) + lines[trials + cut][:20])
    study.open(noisy)
    assert study.explain() == whole
    assert len(study.pool.ran) == total - cut


def test_a_crashed_check_is_run_again_when_the_study_is_resumed(tmp_path: Path) -> None:
    study = Study(tmp_path)
    check = Check("held-out default", study.request, DEFAULT | {"period": 7})
    lost = without_result(check.trial, Status.crashed, "its host failed", 1.0)
    study.log.checked(check.purpose, check.trial.scenario, check.trial.knobs, lost)
    study.open(smooth)
    (result,) = study.checks.run([check])
    assert result.status is Status.success
    assert study.pool.ran[0].number > FIRST_CHECK


# --- The explanation ------------------------------------------------------------------------------


def test_shares_add_up_along_the_path(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        gain = 20.0 * (knobs["period"] == 2000) + 8.0 * (knobs["mode"] == "eager")
        return 100.0 - gain - 0.5 * (knobs["threshold"] == 8.0)

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    first, second, *others = explanation.effects
    whole = math.log(100 / 71.5)
    assert (first.knob, first.default, first.best) == ("period", 100, 2000)
    assert first.share == first.kept == pytest.approx(math.log(100 / 80) / whole)
    assert first.alone == pytest.approx(first.share)
    assert first.without == pytest.approx(math.log(91.5 / 71.5) / whole)
    assert second.knob == "mode"
    assert second.share == pytest.approx(math.log(80 / 72) / whole)
    assert second.kept == pytest.approx(first.share + second.share) == explanation.kept
    assert second.alone == pytest.approx(math.log(100 / 92) / whole)
    assert {effect.share for effect in others} == {0.0}
    assert [effect.knob for effect in explanation.path] == ["period", "mode"]
    found = explanation.shares([knob.name for knob in KNOBS])
    assert list(found)[:2] == ["period", "mode"]
    assert set(found) == set(DEFAULT)


def test_of_two_changes_that_do_the_same_one_is_needed(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 80.0 if knobs["period"] == 2000 or knobs["mode"] == "eager" else 100.0

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert len(explanation.minimal) == 1
    effects = {effect.knob: effect for effect in explanation.effects}
    assert [effects[name].alone for name in ("period", "mode")] == pytest.approx([1.0, 1.0])
    assert [effects[name].without for name in ("period", "mode")] == [0.0, 0.0]


def test_it_takes_few_runs(tmp_path: Path) -> None:
    study = Study(tmp_path, noisy)
    study.judge()
    before = len(study.pool.ran)
    explanation = study.explain()
    most = 2 * len(BEST) + len(explanation.path) * (TRIES * SEEDS + HELD_OUT)
    assert len(study.pool.ran) - before <= most
    assert explanation.runs <= most + 2 * HELD_OUT


def test_intervals_of_shares_hold_the_truth(tmp_path: Path) -> None:
    inside = total = 0
    for seed in range(20):
        explanation = Study(tmp_path / str(seed), noisy, seed=1000 * seed).explain()
        truth, made = 0.0, dict(DEFAULT)
        for effect in explanation.path:
            made[effect.knob] = BEST[effect.knob]
            kept = math.log(seconds_of(DEFAULT) / seconds_of(made))
            kept /= math.log(seconds_of(DEFAULT) / seconds_of(BEST))
            assert effect.half_width is not None
            inside += abs(effect.share - (kept - truth)) <= effect.half_width
            total, truth = total + 1, kept
    assert 0.8 <= inside / total <= 1.0


@pytest.mark.parametrize("runner", [smooth, noisy])
def test_the_minimal_configuration_keeps_the_gain(
    tmp_path: Path, runner: Callable[[Trial], TrialResult]
) -> None:
    explanation = Study(tmp_path, runner).explain()
    assert list(explanation.minimal) == ["period"]
    gain = math.log(seconds_of(DEFAULT) / seconds_of(DEFAULT | explanation.minimal))
    assert gain / math.log(seconds_of(DEFAULT) / seconds_of(BEST)) >= KEEP
    assert explanation.kept >= KEEP
    assert explanation.path[-1].kept == explanation.kept


def runner_of(
    seconds: Callable[[Mapping[str, KnobValue]], float],
) -> Callable[[Trial], TrialResult]:
    def run(trial: Trial) -> TrialResult:
        return answer(trial, seconds(trial.knobs) if trial.scenario.policy == "paper" else None)

    return run


def test_changes_that_help_only_together_are_both_kept(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        both = knobs["period"] == 2000 and knobs["mode"] == "eager"
        return (80.0 if both else 100.0) - (0.5 if knobs["threshold"] == 8.0 else 0.0)

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert set(explanation.minimal) == {"period", "mode"}
    assert {
        effect.alone for effect in explanation.effects if effect.knob in ("period", "mode")
    } == {0.0}
    assert explanation.path[-1].share == pytest.approx(explanation.kept)


def test_a_change_for_the_worse_is_left_out(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 100.0 - 20.0 * (knobs["period"] == 2000) + 3.0 * (knobs["mode"] == "eager")

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert explanation.effects[-1].knob == "mode"
    assert (explanation.effects[-1].alone or 0) < -0.1
    assert list(explanation.minimal) == ["period"]
    assert explanation.kept > 1


def test_every_change_may_be_needed(tmp_path: Path) -> None:
    names = list(BEST)

    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 100.0 - 5.0 * sum(knobs[name] == BEST[name] for name in names)

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert set(explanation.minimal) == set(names)
    assert explanation.kept == 1.0


def test_a_change_that_cannot_run_alone_gains_nothing_alone(tmp_path: Path) -> None:
    def run(trial: Trial) -> TrialResult:
        knobs = trial.knobs
        if trial.scenario.policy == "paper" and knobs["share"] == 0.3 and knobs["mode"] == "plain":
            raise ValueError("this share needs another mode")
        return answer(trial)

    explanation = Study(tmp_path, run).explain()
    effects = {effect.knob: effect for effect in explanation.effects}
    assert effects["share"].alone is None
    assert effects["mode"].without is None  # best does not run without it
    assert "share" not in explanation.minimal


def test_without_a_gain_nothing_is_explained(tmp_path: Path) -> None:
    def flat(trial: Trial) -> TrialResult:
        return answer(trial, 100.0 + 1e-9 * (trial.number == 0))

    study = Study(tmp_path, flat)
    verdict = study.judge()
    assert verdict.gain is not None and not verdict.gain.certain
    before = len(study.pool.ran)
    assert explain(study.checks, study.log.data, verdict) is None
    assert len(study.pool.ran) == before


def test_the_study_compares_the_declared_references() -> None:
    from tuner import engine
    from tuner.optimize.checks import REFERENCES as NAMES

    assert [policy.name for policy in REFERENCES] == list(NAMES)
    declared = engine.policies()
    assert all(not declared[name].knobs for name in NAMES)
