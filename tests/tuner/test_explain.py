# SPDX-License-Identifier: MIT
"""Checks and the explanation, on an objective of which the truth is known."""

from __future__ import annotations

import gc
import json
import math
import random
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from synthetic import KNOBS, OTHER, REFERENCES, answer, noisy, request, seconds_of, smooth

from tuner import cli
from tuner.declarations import KnobValue
from tuner.experiment.checks import (
    FIRST_CHECK,
    Check,
    Checks,
    Workers,
    bounds,
    held_out,
)
from tuner.experiment.contest import judge
from tuner.experiment.explain import FEW, SEEDS, _sets, _shapley, explain, leaner
from tuner.experiment.recall import recall, remake
from tuner.experiment.studies import OpenStudy
from tuner.report import archive, conclusion
from tuner.report.conclusion import Conclusion, steps
from tuner.report.importance import Importance
from tuner.report.mechanism import sentences
from tuner.run.pool import without_result
from tuner.run.trial import Status, StreamRequest, Trial, TrialResult
from tuner.study import best as best_file
from tuner.study import check, log
from tuner.study.contender import Kind
from tuner.study.explanation import KEEP, Explanation
from tuner.study.log import StudyHeader, StudyLog
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT, Advice, Verdict

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
        self.most = 0  # at a time
        self._flying: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        self._flying.append(trial)
        self.most = max(self.most, len(self._flying))

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
        self.judge()
        explanation = explain(self.checks, self.log.data)
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
    first, *each = study.told
    assert first.startswith(
        "before the search: 3 references and 1 of 1 other policies at their defaults: 4 runs"
    )
    assert len(each) == 4
    assert any(
        line.startswith("reference static-hot (") and "throughput 10.53 k ops/s" in line
        for line in each
    )


def test_checks_keep_no_time_series(tmp_path: Path) -> None:
    """A study has hundreds of them, and series are a quarter of a megabyte each."""
    study = Study(tmp_path, study="without-series")
    study.explain()
    results = [found for found in gc.get_objects() if isinstance(found, TrialResult)]
    kept = [found for found in results if found.study == "without-series"]
    assert len(kept) >= len(study.pool.ran) > 0
    assert not [found for found in kept if found.series]


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


def test_no_tiering_has_the_pages_of_a_rival_too(tmp_path: Path) -> None:
    """Or the gain of huge pages would be taken for one of the rival's."""
    huge = 2 << 20
    other = OTHER.model_copy(update={"traits": {"page_bytes": huge}})

    def by_pages(trial: Trial) -> TrialResult:
        if trial.scenario.page_bytes == huge:
            return answer(trial, 70.0 if trial.scenario.policy == "first-touch" else 75.0)
        return answer(trial)

    study = Study(tmp_path, by_pages, alternatives=[other])
    verdict = study.judge()
    off = [c for c in verdict.contenders if c.kind is Kind.off]
    assert [(c.policy, c.page_bytes) for c in off] == [("first-touch", 4096), ("first-touch", huge)]
    assert verdict.advice is Advice.leave_off
    assert verdict.headline.startswith("leave tiering off: first-touch with 2 MiB pages is "), (
        verdict.headline
    )
    assert verdict.over_first_touch is not None and verdict.over_first_touch.gain > 0  # 4 KiB
    forest = Importance({}, 0.0, 0, "none")
    assert "  first-touch with 2 MiB pages  " in conclusion.text(
        study.log.data, Conclusion(verdict, None, forest)
    )


def test_an_advised_rival_is_run_again_as_it_ran(tmp_path: Path) -> None:
    base, huge = 4096, 2 << 20

    def fast(trial: Trial) -> TrialResult:
        return answer(trial, 20.0 if trial.scenario.policy == "other" else None)

    for name, own, asked, option in (
        ("own", huge, base, ""),
        ("asked", base, huge, f"--page-bytes {huge}"),
    ):
        other = OTHER.model_copy(update={"traits": {"page_bytes": own}})
        more = {"page_bytes": asked, "held_out_streams": True}
        study = Study(tmp_path / name, fast, BEST, alternatives=[other], **more)
        verdict = study.judge()
        assert verdict.advice is Advice.use_untuned
        ran = {t.scenario.page_bytes for t in study.pool.ran if t.scenario.policy == "other"}
        assert ran == {huge}
        forest = Importance({}, 0.0, 0, "none")
        text = conclusion.text(study.log.data, Conclusion(verdict, None, forest))
        (again,) = (line for line in text.splitlines() if line.startswith("reuse "))
        assert again.startswith("reuse    tune sim --workload synthetic --policy other")
        assert option in again and ("--page-bytes" in again) == bool(option)
        (then,) = (line for line in text.splitlines() if line.startswith("next "))
        same = again.split("tune sim ")[1]
        assert then == (
            f"next     tune run {same} --budget {study.request.budget} --held-out-streams"
        )
        assert then.split(maxsplit=1)[1] in [words for _, words in steps(study.log.data, verdict)]


def test_a_rival_that_does_not_run_is_not_covered(tmp_path: Path) -> None:
    def coarse(trial: Trial) -> TrialResult:
        if trial.scenario.policy == "other":
            raise ValueError("too coarse")
        return answer(trial)

    study = Study(tmp_path, coarse, alternatives=[OTHER], not_run=["third"])
    verdict = study.judge()
    assert verdict.not_run == ["other", "third"]
    assert verdict.uncovered is not None and verdict.uncovered.endswith("not cover other, third")


def test_a_winner_that_moves_nothing_is_called_so(tmp_path: Path) -> None:
    def still(trial: Trial) -> TrialResult:
        result, moved = answer(trial), 0.0 if trial.knobs == BEST else 9.0
        figures = result.metrics | {"promotions": moved, "demotions": moved}
        return result.model_copy(update={"metrics": figures})

    verdict = Study(tmp_path / "still", still).judge()
    assert verdict.headline.endswith("; it moves no page: it turns tiering off")
    assert [c.moved for c in verdict.contenders if c.policy == "paper"] == [18.0, 0.0]
    assert "moves no page" not in Study(tmp_path / "other").judge().headline


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
    assert f"{100 * found['regret']:.1f} % behind the best published one on average" in line
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
    (line,) = (line for line in study.told if line.startswith("untuned other ("))
    assert line.endswith("): failed: not on this machine")


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


@pytest.mark.parametrize("cut", [1, 3, 6, 20, 26, 28])
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


def test_shares_are_means_over_the_orders_and_add_up(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        gain = 20.0 * (knobs["period"] == 2000) + 8.0 * (knobs["mode"] == "eager")
        return 100.0 - gain - 0.5 * (knobs["threshold"] == 8.0)

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    first, second, *others = explanation.effects
    whole = math.log(100 / 71.5)
    assert (first.knob, first.default, first.best) == ("period", 100, 2000)
    assert first.share == pytest.approx(
        (math.log(100 / 80) + math.log(92 / 72)) / 2 / whole, rel=1e-9
    )
    assert first.alone == pytest.approx(math.log(100 / 80) / whole)
    assert first.without == pytest.approx(math.log(91.5 / 71.5) / whole)
    assert second.knob == "mode"
    assert second.share == pytest.approx((math.log(100 / 92) + math.log(80 / 72)) / 2 / whole)
    assert second.alone == pytest.approx(math.log(100 / 92) / whole)
    assert explanation.kept == pytest.approx(math.log(100 / 72) / whole)
    assert (first.share or 0) + (second.share or 0) == pytest.approx(explanation.kept)
    assert explanation.sets is None  # all of them
    assert {effect.share for effect in others} == {None}
    assert [effect.knob for effect in explanation.needed] == ["period", "mode"]
    found = explanation.shares([knob.name for knob in KNOBS])
    assert list(found)[:2] == ["period", "mode"]
    assert set(found) == set(DEFAULT)


def test_of_two_changes_that_do_the_same_one_is_needed(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 80.0 if knobs["period"] == 2000 or knobs["mode"] == "eager" else 100.0

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    (needed,) = explanation.minimal
    (other,) = {"period", "mode"} - {needed}
    (either,) = explanation.alternatives
    assert (either.knob, either.instead_of) == (other, needed)
    assert either.kept == pytest.approx(1.0)
    effects = {effect.knob: effect for effect in explanation.effects}
    assert effects[needed].alone == pytest.approx(1.0) and effects[other].alone is None
    assert [effects[name].without for name in ("period", "mode")] == [0.0, 0.0]


def test_it_takes_few_runs(tmp_path: Path) -> None:
    study = Study(tmp_path, noisy)
    study.judge()
    before = len(study.pool.ran)
    explanation = study.explain()
    assert len(explanation.needed) == 1
    # Best without each change on one seed, and the one that is needed on all.
    assert len(study.pool.ran) - before == len(BEST) + HELD_OUT
    assert explanation.runs == len(study.pool.ran) - before + 2 * HELD_OUT


def test_what_clearly_loses_the_gain_is_given_up_after_few_seeds(tmp_path: Path) -> None:
    """Each of two changes can be missed, but not both."""

    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 80.0 if knobs["period"] == 2000 or knobs["mode"] == "eager" else 100.0

    study = Study(tmp_path, runner_of(seconds))
    study.explain()
    seeds: dict[str, int] = {}
    for trial in study.pool.ran:
        if trial.scenario.policy == "paper":
            seeds[str(trial.knobs)] = seeds.get(str(trial.knobs), 0) + 1
    neither = DEFAULT | {"threshold": BEST["threshold"]}
    assert seeds[str(neither)] == FEW < HELD_OUT


def test_intervals_of_shares_hold_the_truth(tmp_path: Path) -> None:
    def gain(changed: Sequence[str]) -> float:
        made = DEFAULT | {name: BEST[name] for name in changed}
        return math.log(seconds_of(DEFAULT) / seconds_of(made) * WORTH ** ("mode" in changed))

    inside = total = 0
    for seed in range(20):
        explanation = Study(tmp_path / str(seed), twice_noisy, seed=1000 * seed).explain()
        names = [effect.knob for effect in explanation.needed]
        unit = gain(names) if explanation.lean else gain(list(BEST))
        for effect in explanation.needed if len(names) > 1 else ():
            each = [order[: order.index(effect.knob)] for order in permutations(names)]
            truth = sum(gain([*b, effect.knob]) - gain(b) for b in each) / len(each) / unit
            assert effect.share is not None and effect.half_width is not None
            inside += abs(effect.share - truth) <= effect.half_width
            total += 1
    assert total >= 20
    assert 0.8 <= inside / total <= 1.0


WORTH = 1.04


def twice_noisy(trial: Trial) -> TrialResult:
    """With a second change that is worth a fifth of the first one's gain, or so."""
    result = noisy(trial)
    if trial.scenario.policy != "paper" or trial.knobs["mode"] != "eager":
        return result
    assert result.objective is not None
    value = result.objective * WORTH
    return result.model_copy(update={"objective": value, "cost": 1 / value})


@pytest.mark.parametrize("runner", [smooth, noisy])
def test_the_minimal_configuration_keeps_the_gain(
    tmp_path: Path, runner: Callable[[Trial], TrialResult]
) -> None:
    explanation = Study(tmp_path, runner).explain()
    assert list(explanation.minimal) == ["period"]
    gain = math.log(seconds_of(DEFAULT) / seconds_of(DEFAULT | explanation.minimal))
    assert gain / math.log(seconds_of(DEFAULT) / seconds_of(BEST)) >= KEEP
    assert explanation.kept >= KEEP
    assert sum(effect.share or 0 for effect in explanation.needed) == pytest.approx(
        explanation.kept, abs=1e-9
    )


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
    assert [effect.share for effect in explanation.needed] == pytest.approx(
        [explanation.kept / 2] * 2
    )
    (both,) = explanation.interactions
    assert set(both.knobs) == {"period", "mode"}
    assert both.part == pytest.approx(explanation.kept)
    assert not explanation.lean


def test_three_changes_that_need_one_another_share_alike(tmp_path: Path) -> None:
    """A path would give all of it to the last."""
    names = ("period", "threshold", "share")

    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 80.0 if all(knobs[name] == BEST[name] for name in names) else 100.0

    study = Study(tmp_path, runner_of(seconds))
    explanation = study.explain()
    assert [effect.share for effect in explanation.needed] == pytest.approx([1 / 3] * 3)
    (group,) = explanation.interactions
    assert sorted(group.knobs) == sorted(names) and group.part == pytest.approx(1.0)
    lines = conclusion.together(explanation)
    assert lines == [
        f"100.0 ± 0.0 % of the gain comes only if {conclusion.listed(group.knobs)} "
        "are changed together"
    ]


def test_changes_that_overlap_are_told(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        changed = (knobs["period"] == 2000) + (knobs["mode"] == "eager")
        return (100.0, 80.0, 70.0)[changed]

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    (pair,) = explanation.interactions
    assert pair.part == pytest.approx(1 - 2 * math.log(100 / 80) / math.log(100 / 70))
    (line,) = conclusion.together(explanation)
    assert " overlap: " in line


def test_a_change_that_costs_and_is_needed_is_told(tmp_path: Path) -> None:
    """The other one harms by itself, and all of the gain needs both."""

    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        period, mode = knobs["period"] == 2000, knobs["mode"] == "eager"
        return {(False, False): 100.0, (True, False): 90.0, (False, True): 150.0}.get(
            (period, mode), 80.0
        )

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    shares = {effect.knob: effect.share or 0 for effect in explanation.needed}
    assert shares["mode"] < 0 and shares["period"] > 1
    both, costs = conclusion.together(explanation)
    assert both.endswith("together: more than all of it, as other sets of changes lose")
    assert costs == (
        "mode costs on average over all orders of the changes, but without it the gain is smaller"
    )


def some_of(names: Sequence[str]) -> Callable[[Mapping[str, KnobValue]], float]:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        worth = sum((k + 4.0) * (knobs[name] == BEST[name]) for k, name in enumerate(names))
        return 100.0 - worth

    return seconds


@pytest.mark.parametrize("most", [30, 29])
def test_of_many_changes_sets_are_left_out_and_shares_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("tuner.experiment.explain.MOST_SETS", most)
    names = [name for name in BEST if name != "aol"]
    seconds = some_of(names)
    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert set(explanation.minimal) == set(names)
    assert explanation.sets == (None if most == 30 else 10)
    shares = {effect.knob: effect.share or 0 for effect in explanation.needed}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-9) and explanation.lean
    assert list(shares) == names[::-1]

    def gain(changed: Sequence[str]) -> float:
        made = DEFAULT | {name: BEST[name] for name in changed}
        return math.log(100.0 / seconds(made)) / math.log(100.0 / seconds(BEST))

    for effect in explanation.needed:
        each = [order[: order.index(effect.knob)] for order in permutations(names)]
        truth = sum(gain([*b, effect.knob]) - gain(b) for b in each) / len(each)
        # Changes overlap a little here; the interval says what the sets left out may matter.
        assert effect.share == pytest.approx(truth, abs=1e-9 if most == 30 else 0.01)
    assert bool(explanation.interactions) is False


@pytest.mark.parametrize("players", range(1, 6))
def test_the_fit_has_the_shapley_values(players: int) -> None:
    """Of any game if all sets are measured; of one without higher interactions than those of two
    by the smallest and the largest sets alone."""
    names = [f"k{n}" for n in range(players)]
    rng = random.Random(players)
    single = {name: rng.gauss(0, 1) for name in names}
    pairs = {pair: rng.gauss(0, 1) for pair in combinations(names, 2)}
    three = {group: rng.gauss(0, 1) for group in combinations(names, 3)}

    def gain(made: Collection[str], *, higher: bool) -> float:
        each = [*((n,) for n in names), *pairs, *(three if higher else ())]
        worth = {(n,): value for n, value in single.items()} | pairs | three
        return sum(worth[group] for group in each if set(group) <= set(made))

    whole = frozenset(names)
    for higher, outer in ((True, False), (False, True)):
        sets = [*_sets(names, outer=outer), whole]
        found = _shapley(names, {each: gain(each, higher=higher) for each in sets})
        orders = list(permutations(names))
        for name in names:
            earlier = [order[: order.index(name)] for order in orders]
            truth = sum(
                gain([*b, name], higher=higher) - gain(b, higher=higher) for b in earlier
            ) / len(orders)
            assert found[name] == pytest.approx(truth, abs=1e-9)
        assert sum(found.values()) == pytest.approx(gain(names, higher=higher))


def test_seeds_are_added_until_intervals_are_narrow(tmp_path: Path) -> None:
    def shaky(trial: Trial) -> TrialResult:
        """What the second change is worth depends on the seed."""
        second = 3.0 * (trial.scenario.seed % 3) * (trial.knobs.get("mode") == "eager")
        first = 20.0 * (trial.knobs.get("period") == 2000)
        own = trial.scenario.policy == "paper"
        return answer(trial, 100.0 - first - 4.0 - second if own else None)

    steady = Study(tmp_path / "steady", runner_of(lambda k: 100 - 20.0 * (k["period"] == 2000)))
    assert len(steady.explain().seeds) == SEEDS
    assert len(Study(tmp_path / "shaky", shaky).explain().seeds) == HELD_OUT


def test_a_change_that_adds_next_to_nothing_is_not_needed(tmp_path: Path) -> None:
    """Best cannot do without `threshold`, since `share` is harmful then; so the path has it."""

    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        period, threshold, share, mode, aol = (
            knobs[name] == BEST[name] for name in ("period", "threshold", "share", "mode", "aol")
        )
        gain = 0.55 * period + 0.398 * (mode and aol) + 0.004 * threshold
        gain += share * (0.048 if threshold else -0.45)
        return 100.0 * math.exp(-0.3 * gain)

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert set(explanation.minimal) == {"period", "mode", "aol"}
    assert explanation.kept == pytest.approx(0.948)


def test_a_change_for_the_worse_is_left_out(tmp_path: Path) -> None:
    def seconds(knobs: Mapping[str, KnobValue]) -> float:
        return 100.0 - 20.0 * (knobs["period"] == 2000) + 3.0 * (knobs["mode"] == "eager")

    explanation = Study(tmp_path, runner_of(seconds)).explain()
    assert explanation.effects[-1].knob == "mode"
    assert (explanation.effects[-1].without or 0) < -0.1
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
    assert explain(study.checks, study.log.data) is None
    assert len(study.pool.ran) == before


# --- Where the minimal configuration is as good ---------------------------------------------------


def harmful(trial: Trial) -> TrialResult:
    """`mode` costs a little, and is among what the search has found."""
    own = trial.scenario.policy == "paper"
    seconds = 100.0 - 20.0 * (trial.knobs.get("period") == 2000)
    return answer(trial, seconds + 0.2 * (trial.knobs.get("mode") == "eager") if own else None)


def test_changes_that_add_nothing_are_not_recommended(tmp_path: Path) -> None:
    study = Study(tmp_path, harmful, study="s")
    study.log.close()
    with OpenStudy(study.request.model_copy(update={"resume": True})) as opened:
        study.checks._study = study.log = opened.log
        bounds(study.checks)
        verdict, explanation = opened.judge(study.checks)
        ended, _ = opened.report((verdict, explanation))
        text = conclusion.text(opened.log.data, ended)
        before = len(study.pool.ran)
        assert opened.judge(study.checks) == (verdict, explanation)
        assert len(study.pool.ran) == before
    assert explanation is not None and explanation.lean and explanation.kept > 1
    assert [effect.share for effect in explanation.needed] == [1.0]
    data = log.load(study.directory)
    lean = data.best
    assert lean is not None and lean.knobs == DEFAULT | {"period": 2000}
    assert (lean.number, data.lean) == (1, lean.result.number if lean.result else None)
    assert lean.objective == pytest.approx(1e6 / 80.0)
    tuned = verdict.contender(Kind.tuned)
    assert tuned is not None and tuned.values == [lean.objective] * HELD_OUT
    wanted = best_file.read(study.directory / best_file.FILE)
    minimal = best_file.read(study.directory / best_file.MINIMAL)
    assert wanted.knobs == minimal.knobs == lean.knobs
    assert wanted.objective.value == lean.objective
    assert "trial 1, without what adds nothing)" in text
    few = f"has 1 of the {len(BEST)} changes of trial 1, with 101.1 ± 0.0 % of its gain"
    assert few in text
    # Its series are those of its own run, and go with the study.
    assert data.series_of(lean) == harmful(study.request.trial(1, lean.knobs)).series
    assert check.problems(data) == []
    archive.pack(study.directory, tmp_path / "s.tar.gz")
    with tarfile.open(tmp_path / "s.tar.gz") as file:
        assert any(name.endswith(f"series/{data.lean}.json") for name in file.getnames())

    # Whoever reads the log alone comes to the same.
    with StudyLog(study.directory) as again:
        recalled = recall(again)
    assert recalled is not None and recalled.verdict == verdict
    assert recalled.explanation == explanation
    (study.directory / best_file.FILE).unlink()
    remake(study.directory)
    assert best_file.read(study.directory / best_file.FILE) == wanted


def test_another_trial_is_recommended_as_it_is_until_it_is_judged(tmp_path: Path) -> None:
    study = Study(tmp_path, harmful)
    check_of = Check("minimal configuration", study.request, {"period": 2000})
    (result,) = study.checks.run([check_of])
    study.log.chose(1, result.number)
    assert study.log.data.best is not None and study.log.data.best.knobs != BEST
    study.log.asked(2, "model", BEST)
    study.log.finished(harmful(study.request.trial(2, BEST)))
    assert study.log.data.lean is None
    assert study.log.data.best is not None and study.log.data.best.knobs == BEST


def test_what_may_lose_by_its_interval_is_not_recommended(tmp_path: Path) -> None:
    """Both changes are as good on the mean, but seeds differ by more than what may be lost."""

    def shaky(trial: Trial) -> TrialResult:
        if trial.scenario.policy != "paper" or trial.knobs == DEFAULT:
            return answer(trial, 100.0)
        whole = trial.knobs == BEST
        return answer(trial, 80.0 + (0 if whole else 4.0 * (-1) ** trial.scenario.seed))

    study = Study(tmp_path, shaky)
    explanation = study.explain()
    assert len(explanation.minimal) < len(BEST)
    assert explanation.kept > 1 and (explanation.half_width or 0) > 0.05
    assert not explanation.lean and leaner(study.checks, study.log.data) is None


def test_without_a_certain_gain_nothing_is_left_out(tmp_path: Path) -> None:
    study = Study(tmp_path, lambda trial: answer(trial, 100.0))
    study.judge()
    assert leaner(study.checks, study.log.data) is None


# --- Side by side ---------------------------------------------------------------------------------


def test_parts_share_their_runs_and_fill_the_workers(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.pool.most = 0
    asked: list[str] = []

    def check_of(period: int) -> Check:
        return Check("x", study.request, {"period": period})

    def steps() -> list[float | None]:
        """One run after the other, as a search of its own."""
        asked.append("steps")
        return [
            value for period in range(2, 6) for value in study.checks.values([check_of(period)])
        ]

    def batch() -> list[float | None]:
        return study.checks.values([check_of(period) for period in range(2, 12)])

    one, other = study.checks.together(steps, batch)
    assert one == other[:4] and None not in other
    assert len(study.pool.ran) == 10 == len({str(trial.knobs) for trial in study.pool.ran})
    assert study.pool.most == study.pool.workers  # also while the first part waits for one run
    assert study.checks.run([check_of(2)])[0].objective == one[0]  # and later runs are as before


def test_what_crashes_runs_once_side_by_side(tmp_path: Path) -> None:
    def crash(trial: Trial) -> TrialResult:
        if trial.knobs["period"] == 7:
            return without_result(trial, Status.crashed, "its host failed", 1.0)
        return answer(trial)

    study = Study(tmp_path, crash)
    wanted = [Check("x", study.request, {"period": 7})]
    assert study.checks.together(lambda: study.checks.values(wanted)) == [[None]]
    assert len(study.pool.ran) == 1


# --- tune explain ---------------------------------------------------------------------------------


def figures(trial: Trial, moved: float) -> TrialResult:
    """As the simulator's, for the knobs of a trial."""
    result = answer(trial)
    metrics = {"promotions": moved, "demotions": 0.0, "fast_hit_ratio": 0.5 if moved else 0.75}
    breakdown = {"slow_stall": 60.0 if moved else 20.0, "migration": 10.0 if moved else 0.0}
    breakdown |= {"compute": 30.0, "sampling": 1.0 if moved else 0.5}
    return result.model_copy(update={"metrics": result.metrics | metrics, "breakdown": breakdown})


def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["explain", "s", "--out", str(tmp_path), *words]) == 0
    return capsys.readouterr().out


def test_explain_says_why_from_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path, lambda trial: figures(trial, 2e6 if trial.knobs == DEFAULT else 0.0))
    found = study.explain()
    study.log.close()
    out = explained(tmp_path, capsys)
    (needed,) = found.needed
    (row,) = (line for line in out.splitlines() if line.startswith("period "))
    assert row.split()[:4] == ["period", "100", "->", "2000"]
    assert conclusion.share(needed.share or 0, needed.half_width) in row
    assert f"the {len(BEST) - 1} others together: " in out
    assert "it moves no page: tiering is off (the default moves 2 M pages)" in out
    assert "serves 75.0 % of the accesses, 50.0 % by default" in out
    assert "stalls on slow memory 60 s -> 20 s, stalls by migration 10 s -> 0 s\n" in out
    plain = json.loads(explained(tmp_path, capsys, "--json"))
    assert plain["explanation"] == found.model_dump(mode="json")
    assert len(plain["mechanism"]) == 3


def test_explain_of_what_is_not_explained_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study(tmp_path)
    study.judge()
    study.log.close()
    assert "--resume --explain" in explained(tmp_path, capsys)


def test_explain_needs_a_study_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Study(tmp_path).log.close()
    assert cli.main(["explain", "s", "--out", str(tmp_path)]) == 2
    assert "the study has not ended" in capsys.readouterr().err


def test_little_that_is_known_is_told_alone() -> None:
    trial = request(Path("x")).trial(0, DEFAULT)
    bare = answer(trial).model_copy(update={"metrics": {}})
    assert sentences(bare, bare) == []
    few = {"promotions": 10.0, "demotions": 0.0}
    many = bare.model_copy(update={"metrics": {"promotions": 1e4, "demotions": 1e4}})
    (line,) = sentences(many, bare.model_copy(update={"metrics": few}))
    assert line == "it moves next to no pages: 10 pages, the default 20 k"


def test_the_study_compares_the_declared_references() -> None:
    from tuner import engine
    from tuner.experiment.checks import REFERENCES as NAMES

    assert [policy.name for policy in REFERENCES] == list(NAMES)
    declared = engine.policies()
    assert all(not declared[name].knobs for name in NAMES)
