# SPDX-License-Identifier: MIT
"""Studies whose best configuration has to keep to bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from synthetic import answer, request
from test_explain import BEST, DEFAULT, Here, Study

from tuner import cli
from tuner.commands.run import study_request
from tuner.errors import UserError
from tuner.experiment import loop
from tuner.experiment.loop import run_study
from tuner.experiment.recall import recall
from tuner.experiment.robust import choose
from tuner.figure import FIGURES
from tuner.optimize.costs import penalized
from tuner.report import conclusion, page
from tuner.report.progress import Progress
from tuner.run.trial import Trial, TrialResult
from tuner.study import best as best_file
from tuner.study import check, log
from tuner.study.constraint import WORST, Constraint, figures_of, parsed, value_of
from tuner.study.contender import Kind
from tuner.study.log import StudyData
from tuner.study.request import StudySummary
from tuner.study.verdict import Advice

P99 = Constraint(figure="p99", at_most=True, bound=1.05, of_default=True)


def latency(trial: Trial, p99: float) -> TrialResult:
    return answer(trial).model_copy(update={"latency": {"get": {"operations": 10.0, "p99": p99}}})


def dearer(trial: Trial) -> TrialResult:
    """The faster period costs latency: 4000 ns at 100 samples, 7300 at the fastest, 2000."""
    if trial.scenario.policy != "paper":
        return answer(trial)
    return latency(trial, 4000.0 * (float(trial.knobs["period"]) / 100) ** 0.2)


def worse_elsewhere(trial: Trial) -> TrialResult:
    """Whatever differs from the defaults keeps its latency on the study's seed alone."""
    own = trial.knobs == DEFAULT or trial.scenario.seed == request(Path()).scenario.seed
    return latency(trial, 4000.0 if own or trial.scenario.policy != "paper" else 5000.0)


class Untracked:
    def __init__(self, *_: Any) -> None: ...
    def add(self, *_: Any) -> None: ...
    def conclude(self, *_: Any) -> None: ...
    def close(self, *, interrupted: bool = False) -> None: ...


class OneByOne(Here):
    workers = 1


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StudySummary]:
    """Runs a study in this process."""
    monkeypatch.setattr("tuner.experiment.loop.Tracker", Untracked)

    def run(out: Path, runner: Callable[[Trial], TrialResult], **changes: Any) -> StudySummary:
        pool = OneByOne(runner)
        monkeypatch.setattr("tuner.experiment.checks.open_pool", lambda *_, **__: pool)
        fields: dict[str, Any] = {"budget": 30, "explain": False, "constraints": [P99]} | changes
        return run_study(request(out, **fields), runner=runner)

    return run


def data_of(out: Path) -> StudyData:
    return log.load(out / "synthetic-study")


# --- What a user writes ---------------------------------------------------------------------------

KNOWN = figures_of(request(Path()), None)


def bound(figure: str, at_most: bool, number: float, of_default: bool = False) -> Constraint:
    return Constraint(figure=figure, at_most=at_most, bound=number, of_default=of_default)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("p99<=1.05*default", P99),
        (" p99 <= 1.05 * default ", P99),
        ("throughput>=default", bound("throughput", False, 1.0, True)),
        ("p99<=4us", bound("p99", True, 4000.0)),
        ("migrated_gib_per_h<=50", bound("migrated_gib_per_h", True, 50.0)),
        ("migrated_bytes<=2GiB", bound("migrated_bytes", True, 2.0**31)),
        ("fast_hit_ratio>=60%", bound("fast_hit_ratio", False, 0.6)),
        ("throughput>=1e6", bound("throughput", False, 1e6)),
    ],
)
def test_a_constraint_is_read_and_written(text: str, wanted: Constraint) -> None:
    assert parsed([text], KNOWN) == [wanted]
    assert parsed([str(wanted)], KNOWN) == [wanted]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["p98<=3"], "no figure 'p98'; did you mean 'p99'?"),
        (["p99<3"], "must be FIGURE<=BOUND or FIGURE>=BOUND"),
        (["p99<=3GiB"], "the unit of p99 must be ns or us or ms or s"),
        (["p99<=0"], "the bound must be above 0"),
        (["p99<=-3"], "the bound must be above 0"),
        (["p99<=1e999"], "the bound must be above 0, and finite"),
        (["p99<=1.0.0"], "'1.0.0' is not a number"),
        (["p99<=1.05*best"], "must be FIGURE<=BOUND"),
        (["fast_hit_ratio>=1.2"], "fast_hit_ratio is at most 100 %"),
        (["p99<=300", "p99>=400"], "nothing meets both p99>=400 and p99<=300"),
        (["p99<=300", "p99<=400"], "one bound twice"),
    ],
)
def test_what_is_none_or_cannot_be_met_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        parsed(texts, KNOWN)
    assert message in str(refused.value)


def test_a_command_measures_its_objective_and_its_named_groups() -> None:
    from tuner.run.isolation import Isolation

    metric = r"ops: ([0-9.]+) lag: (?P<lag>[0-9.]+)"
    known = figures_of(request(Path()), Isolation(image="i", command=("c",), metric=metric))
    assert set(known) == {"throughput", "lag"}
    assert parsed(["lag<=3"], known) == [bound("lag", True, 3.0)]
    with pytest.raises(UserError, match="left out: a command measures it"):
        parsed(["lag<=3ms"], known)


def test_a_simulated_trial_measures_every_figure() -> None:
    """Each is in what the engine returns, under the name that the declaration has."""
    words = ["run", "-w", "silo", "-i", "smoke", "--policy", "freqtier", "--rivals", "none"]
    asked = study_request(cli.arguments_of(words))
    from tuner.run import runner

    result = runner.run(asked.trial(0, {}))
    known = figures_of(asked, None)
    assert set(known) == set(FIGURES)
    values = {name: value_of(asked, name, result) for name in known}
    assert [name for name, value in values.items() if value is None] == []
    metrics = result.metrics
    per_hour = metrics["migrated_bytes"] / 2**30 / metrics["seconds"] * 3600
    assert values["migrated_gib_per_h"] == pytest.approx(per_hour)
    assert values["p99"] == result.latency["read"]["p99"]


# --- The search -----------------------------------------------------------------------------------


def test_a_penalty_puts_what_breaks_a_bound_behind_what_may_be_used() -> None:
    costs: dict[int, float | None] = {0: 10.0, 1: 5.0, 2: 8.0, 3: None, 4: 30.0, 5: 6.0}
    missed = {0: 1.0, 1: 1.1, 2: 1.0, 4: 2.0, 5: 1.5}
    found = penalized(costs, missed)
    assert found == {0: 10.0, 1: 11.0, 2: 8.0, 3: None, 4: 60.0, 5: 15.0}
    # Where the default breaks it as well, what breaks it least is ahead.
    assert penalized({0: 10.0, 1: 5.0}, {0: 1.2, 1: 1.1}) == {0: 12.0, 1: 11.0}


def test_a_figure_that_was_not_measured_or_is_zero_misses_its_bound_by_no_more_than_the_worst() -> (
    None
):
    assert P99.missed(None, 3.0) == WORST
    assert P99.missed(3.0, None) == WORST
    assert bound("fast_hit_ratio", False, 0.5).missed(0.0, 0.5) == WORST
    assert P99.missed(1e9, 3.0) == WORST
    assert P99.missed(3.0, 3.0) == 1.0


def test_the_best_keeps_to_the_bound_and_the_search_looks_for_such(
    tmp_path: Path, run: Callable[..., StudySummary]
) -> None:
    free = run(tmp_path / "free", dearer, constraints=[])
    kept = run(tmp_path / "kept", dearer)
    loose, data = data_of(tmp_path / "free"), data_of(tmp_path / "kept")
    assert loose.best is not None and int(loose.best.knobs["period"]) > 1000
    assert data.best is not None and data.top is not None
    assert 100 <= int(data.best.knobs["period"]) <= 127  # 1.05 ** 5 times the default's
    # It is the best of those that keep to it, and not the best of all.
    assert free.best_objective and kept.best_objective
    assert kept.best_objective < free.best_objective
    assert data.best.objective == max(t.objective or 0 for t in data.good)
    # What the model proposes keeps to it more often than what is drawn at random does.
    late = [trial for trial in data.done if trial.origin == "model"]
    chance = [trial for trial in loose.done if trial.origin != "model"]
    good = {trial.number for trial in data.good}
    meets = [t for t in chance if float(t.knobs["period"]) <= 127]
    assert sum(t.number in good for t in late) / len(late) > 1.3 * len(meets) / len(chance)
    assert kept.verdict.advice is Advice.use_best
    assert kept.verdict.headline.endswith("; it meets p99<=1.05*default")
    stored = best_file.read(tmp_path / "kept" / "synthetic-study" / best_file.FILE)
    assert stored.constraints == [P99]
    assert check.problems(data) == []
    assert "p99&lt;=1.05*default: default 4000 ns (limit 4200 ns)" in page.text(
        data, recalled(tmp_path / "kept")
    )


def recalled(out: Path) -> conclusion.Conclusion:
    with log.StudyLog(out / "synthetic-study") as study:
        found = recall(study)
    assert found is not None
    return found


def test_a_study_with_constraints_is_the_same_after_an_interruption(
    tmp_path: Path, run: Callable[..., StudySummary]
) -> None:
    run(tmp_path / "whole", dearer, budget=16)

    def interrupted(trial: Trial) -> TrialResult:
        if trial.number == 9:
            raise KeyboardInterrupt
        return dearer(trial)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", interrupted, budget=16)
    run(tmp_path / "parts", dearer, budget=16, resume=True)
    whole, parts = (
        [(t.knobs, t.origin, t.objective) for t in data_of(tmp_path / name).trials]
        for name in ("whole", "parts")
    )
    assert whole == parts
    with pytest.raises(UserError, match="constraints"):
        run(tmp_path / "parts", dearer, budget=16, resume=True, constraints=[])
    asked = request(tmp_path, constraints=[P99])
    assert "--constraint 'p99<=1.05*default'" in loop.resume_command(asked)


def test_a_study_that_nothing_meets_says_so_and_what_came_nearest(
    tmp_path: Path, run: Callable[..., StudySummary]
) -> None:
    tight = bound("p99", True, 1000.0)
    summary = run(tmp_path, dearer, constraints=[tight], budget=12)
    data, verdict = data_of(tmp_path), summary.verdict
    assert data.best is None and summary.best_objective is None and summary.best_config is None
    assert not (tmp_path / "synthetic-study" / best_file.FILE).exists()
    assert check.problems(data) == []
    assert verdict.advice is Advice.nothing and verdict.chosen is None
    assert verdict.headline == "no result: none of 12 trials meets p99<=1000"
    assert verdict.constraints is not None
    nearest = min(data.done, key=lambda trial: (float(trial.knobs["period"]), trial.number))
    assert verdict.constraints.nearest == nearest.number
    assert verdict.constraints.default_breaks == {"p99<=1000": pytest.approx(4.0)}
    told = conclusion.text(data, recalled(tmp_path))
    assert f"trial {nearest.number} comes nearest: it breaks p99<=1000" in told
    assert "on the study's seed the default breaks p99<=1000 4.0 times" in told


def test_a_best_that_breaks_a_bound_on_other_seeds_is_not_advised(tmp_path: Path) -> None:
    study = Study(tmp_path, worse_elsewhere, study="s", explain=False, constraints=[P99])
    assert study.log.data.best is not None and study.log.data.best.number == 1
    verdict = study.judge()
    tuned = verdict.contender(Kind.tuned)
    assert tuned is not None and tuned.judged is not None
    (judged,) = tuned.judged
    assert (judged.broken, judged.seeds) == (6, 6)
    assert judged.missed == pytest.approx(5000 / 4200)
    assert verdict.advice is Advice.leave_off  # which beats the default
    assert verdict.gain is not None and verdict.gain.certain  # it is faster all the same
    assert "the best of 2 trials breaks on held-out seeds p99<=1.05*default" in verdict.headline
    lines = conclusion.constrained(verdict)
    assert any("which breaks it on 6 of 6 held-out seeds" in line for line in lines)


def test_of_the_best_few_one_that_breaks_a_bound_on_a_fresh_seed_is_passed_over(
    tmp_path: Path,
) -> None:
    near = BEST | {"period": 2100}

    def runner(trial: Trial) -> TrialResult:
        return latency(trial, 4000.0) if trial.knobs == near else worse_elsewhere(trial)

    for constraints, wanted in (([], 1), ([P99], 2)):
        out = tmp_path / str(wanted)
        study = Study(out, runner, study="s", robust=True, explain=False, constraints=constraints)
        study.log.asked(2, "model", near)
        study.log.finished(runner(study.request.trial(2, near)))
        study.open(runner)
        assert choose(study.checks, study.log.data) == wanted


def test_changes_are_not_taken_back_where_a_bound_needs_them(tmp_path: Path) -> None:
    """`share` gains nothing, but without it the latency is too high."""

    def runner(trial: Trial) -> TrialResult:
        plain = trial.knobs == DEFAULT or trial.scenario.policy != "paper"
        return latency(trial, 4000.0 if plain or trial.knobs["share"] == 0.3 else 6000.0)

    free = Study(tmp_path / "free", runner, study="s")
    assert "share" not in free.explain().minimal and free.explain().breaks is None
    bounded = Study(tmp_path / "bounded", runner, study="s", constraints=[P99])
    found = bounded.explain()
    assert found.breaks == ["p99<=1.05*default"] and not found.lean
    assert "there is no best-minimal.yaml" in conclusion.fewest(bounded.log.data, found)


def test_the_best_so_far_waits_for_what_the_default_measures(tmp_path: Path) -> None:
    """With several workers the default need not end first."""
    asked = request(tmp_path, constraints=[P99])
    progress = Progress(asked)
    fast = dict(BEST)
    order: list[tuple[int, Mapping[str, Any]]] = [(1, fast), (2, DEFAULT | {"period": 110})]
    for number, knobs in order:
        record = log.TrialRecord(number, "initial", dict(knobs), log.now())
        record.result = dearer(asked.trial(number, dict(knobs)))
        assert not progress.add(record)
    assert progress.best is None
    first = log.TrialRecord(0, "default", dict(DEFAULT), log.now())
    first.result = dearer(asked.trial(0, dict(DEFAULT)))
    assert progress.add(first)
    assert progress.best is not None and progress.best.number == 2
    broken = log.TrialRecord(3, "model", fast, log.now())
    broken.result = dearer(asked.trial(3, fast))
    assert not progress.add(broken)
    assert "breaks p99<=1.05*default by 73 %" in progress.describe(broken)


def test_the_name_of_a_study_has_its_constraints() -> None:
    words = ["run", "-w", "silo", "-i", "smoke", "--rivals", "none"]
    plain = study_request(cli.arguments_of(words))
    bounded = study_request(cli.arguments_of([*words, "--constraint", "p99<=1.05*default"]))
    assert bounded.study == f"{plain.study}-p99-most-1.05xdefault"
