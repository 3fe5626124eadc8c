# SPDX-License-Identifier: MIT
"""tune fleet: who gets trials, what the studies are, kills, failures, and bad plans."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from synthetic import always_fails, answer, noisy, request, useless

from tuner.fleet.allocation import Allocation, Curve, Rule, allocate, expected
from tuner.fleet.loop import Outcome, run_fleet
from tuner.fleet.report import Fleet, content, markdown
from tuner.optimize.checks import FIRST_CHECK
from tuner.optimize.loop import run_study
from tuner.report.store import client_of, default_store, run_with
from tuner.report.tracked import STUDY_TAG, experiment_name, sorted_out, study_id
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import best, log
from tuner.study.log import StudyLog
from tuner.study.request import StudyRequest

# --- Who gets trials ------------------------------------------------------------------------------

STEADY = [100 * 0.9**n for n in range(200)]
SLOWER = [100 * 0.97**n for n in range(200)]
FLAT = [100.0] * 200
FAILS: list[float | None] = [None] * 200


def play(costs: list[list[Any]], rule: Rule, length: int | None = None) -> Allocation:
    """Gives every study what it is granted, until nothing is left."""
    known = [0] * len(costs)
    while True:
        curves = [
            Curve(own[:count], ended=own is FLAT and count == length)
            for own, count in zip(costs, known, strict=True)
        ]
        found = allocate(curves, rule)
        if found.settled:
            return found
        before = known
        known = [
            min(granted, length) if length is not None and own is FLAT else granted
            for own, granted in zip(costs, found.granted, strict=True)
        ]
        assert sum(found.granted) <= rule.budget + (length is not None) * rule.least
        assert known != before or length is not None


def test_what_gains_gets_the_trials_and_what_stalls_the_least() -> None:
    found = play([STEADY, FLAT, FLAT, FLAT], Rule(budget=80, least=10))
    assert found.granted == [50, 10, 10, 10]
    assert [len(grants) for grants in found.rounds] == [4, 4, *[1] * 8]


def test_the_better_half_of_those_that_gain_goes_first() -> None:
    found = play([SLOWER, STEADY, FLAT], Rule(budget=45, least=10))
    assert found.granted == [10, 25, 10]
    third = found.rounds[2]
    assert [grant.study for grant in third] == [1]
    assert third[0].expected == pytest.approx(math.expm1(expected(STEADY[:10], 5)))


def test_a_study_that_stalled_gets_more_once_all_have() -> None:
    early = [100.0, 80.0, *[70.0] * 198]
    found = play([early, FLAT], Rule(budget=60, least=10))
    assert sum(found.granted) == 60
    assert abs(found.granted[0] - found.granted[1]) <= 10


def test_a_failed_default_costs_one_trial() -> None:
    found = play([FAILS, STEADY, FLAT], Rule(budget=60, least=10))
    assert found.granted[0] == 1
    assert sum(found.granted) == 60


def test_failed_trials_are_no_gain() -> None:
    assert expected([100.0, None, None, None], 5) == 0
    assert expected([100.0, None, 90.0, None], 5) > 0


def test_most_is_kept_and_the_rest_goes_to_others() -> None:
    found = play([STEADY, FLAT], Rule(budget=60, least=10, most=25))
    assert found.granted == [25, 25]


def test_what_an_ended_study_leaves_goes_to_others() -> None:
    found = play([STEADY, FLAT], Rule(budget=40, least=10), length=3)
    assert found.granted == [37, 10]


def test_decisions_wait_for_all_trials_of_a_round() -> None:
    rule = Rule(budget=60, least=10)
    found = allocate([Curve(STEADY[:10]), Curve(FLAT[:9])], rule)
    assert not found.settled
    assert found.granted == [10, 10]
    # Nor do they look at trials that were made beyond what was granted by then.
    more = allocate([Curve(STEADY[:200]), Curve(FLAT[:9])], rule)
    assert more.rounds == found.rounds


def test_a_larger_budget_begins_with_the_same_decisions() -> None:
    small = play([STEADY, SLOWER, FLAT], Rule(budget=60, least=10))
    large = play([STEADY, SLOWER, FLAT], Rule(budget=90, least=10))
    assert large.rounds[: len(small.rounds)] == small.rounds


# --- Whole fleets ---------------------------------------------------------------------------------


class Untracked:
    """Stands in for the tracker."""

    def __init__(self, *_: Any) -> None: ...
    def add(self, *_: Any) -> None: ...
    def conclude(self, *_: Any) -> None: ...
    def close(self, **_: Any) -> None: ...


class Shuffled:
    """Some workers, which are this process; they finish in an order that depends on a seed."""

    seed = 0

    def __init__(self, runner: Callable[[Trial], TrialResult], *, workers: int, **_: Any) -> None:
        self.workers = workers
        self._runner = runner
        self._trials: list[Trial] = []
        self._rng = random.Random(self.seed)

    def submit(self, trial: Trial) -> None:
        assert len(self._trials) < self.workers
        self._trials.append(trial)

    def wait(self, timeout: float) -> list[TrialResult]:
        if not self._trials:
            return []
        return [self._runner(self._trials.pop(self._rng.randrange(len(self._trials))))]

    def close(self) -> None: ...


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> type[Shuffled]:
    monkeypatch.setattr("tuner.optimize.loop.Tracker", Untracked)
    monkeypatch.setattr("tuner.optimize.checks.open_pool", Shuffled)
    return Shuffled


RULE = Rule(budget=26, least=4, batch=3)


def run_by_study(trial: Trial) -> TrialResult:
    """`gains` does, `still` does not, and `broken` fails."""
    if trial.study == "broken" and trial.scenario.policy == "paper":
        return TrialResult(
            study=trial.study, number=trial.number, status=Status.failed, error="no such device"
        )
    if trial.study == "still":
        return useless(trial) if trial.knobs else answer(trial)
    return noisy(trial)


def planned(out: Path, name: str, **changes: Any) -> StudyRequest:
    return request(
        out, **{"study": name, "alternatives": [], "explain": False, "resume": True}
        | {"budget": RULE.least, "seed": {"gains": 1, "still": 2, "broken": 3}[name]} | changes,
    )  # fmt: skip


NAMES = ("gains", "still")


def fleet(
    out: Path, names: tuple[str, ...] = NAMES, rule: Rule = RULE, workers: int = 1, lag: int = 1
) -> Outcome:
    requests = [planned(out, name, workers=lag) for name in names]
    return run_fleet("f", requests, rule, workers=workers, runner=run_by_study)


def trials(out: Path, name: str) -> list[Any]:
    return [(t.number, t.origin, t.knobs, t.objective) for t in log.load(out / name).trials]


def checks(out: Path, name: str) -> list[Any]:
    found = log.load(out / name).checks
    return sorted(
        [c.purpose, str(c.scenario), json.dumps(c.knobs), c.result.objective] for c in found
    )


@pytest.mark.parametrize("lag", [1, 2])
def test_a_study_of_a_fleet_is_the_same_alone(
    tmp_path: Path, inline: type[Shuffled], lag: int
) -> None:
    outcome = fleet(tmp_path / "f", workers=3, lag=lag)
    assert sum(member.trials for member in outcome.members) == RULE.budget
    assert outcome.members[0].trials > RULE.least
    for member in outcome.members:
        name, own = member.request.study, tmp_path / "alone"
        for budget in (RULE.least, member.trials):
            run_study(planned(own, name, budget=budget, workers=lag), runner=run_by_study)
        assert trials(own, name) == trials(tmp_path / "f", name)
        kept = [best.read(folder / name / best.FILE) for folder in (own, tmp_path / "f")]
        assert kept[0].verdict == kept[1].verdict


def test_timing_changes_nothing(
    tmp_path: Path, inline: type[Shuffled], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        monkeypatch.setattr(inline, "seed", seed)
        fleet(tmp_path / str(seed), workers=1 + 2 * seed, lag=2)
    for name in NAMES:
        assert trials(tmp_path / "1", name) == trials(tmp_path / "2", name)


def test_a_larger_budget_goes_on(tmp_path: Path, inline: type[Shuffled]) -> None:
    fleet(tmp_path / "steps", rule=Rule(budget=15, least=4, batch=3))
    fleet(tmp_path / "steps")
    fleet(tmp_path / "once")
    for name in NAMES:
        assert trials(tmp_path / "steps", name) == trials(tmp_path / "once", name)


class Killed(BaseException):
    """The process ends here."""


def run_until(out: Path, records: int, written: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the fleet was killed at its n-th record, right before or after it was written."""
    append, left = StudyLog._append, records

    def mortal(self: StudyLog, event: Any) -> None:
        nonlocal left
        left -= 1
        if left or written:
            append(self, event)
        if not left:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(StudyLog, "_append", mortal)
        try:
            fleet(out)
        except Killed:
            return True
    return False


@pytest.mark.parametrize(
    "step",
    [17, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)])],
)
def test_a_kill_at_any_record_changes_nothing(
    tmp_path: Path, inline: type[Shuffled], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(tmp_path / "whole")
    monkeypatch.setattr("tuner.report.page.write", lambda *_: [])  # draws for a second
    kills = 0
    for records in range(1, 200, step):
        out = tmp_path / str(records)
        if not run_until(out, records, bool(kills % 2), monkeypatch):
            break
        kills += 1
        run_until(out, 7, written=False, monkeypatch=monkeypatch)  # and once more
        fleet(out)
        for name in NAMES:
            assert trials(out, name) == trials(tmp_path / "whole", name)
            assert checks(out, name) == checks(tmp_path / "whole", name)
    assert kills >= 4


def test_a_complete_fleet_runs_nothing_again(tmp_path: Path, inline: type[Shuffled]) -> None:
    fleet(tmp_path)
    before = [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES]
    requests = [planned(tmp_path, name) for name in NAMES]
    run_fleet("f", requests, RULE, workers=2, runner=always_fails)
    assert [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES] == before


def test_a_broken_study_costs_itself_only(tmp_path: Path, inline: type[Shuffled]) -> None:
    outcome = fleet(tmp_path, names=("broken", *NAMES))
    broken, *others = outcome.members
    assert broken.trials == 1
    assert broken.error == "the default fails: no such device"
    assert sum(member.trials for member in others) == RULE.budget - 1
    found = Fleet("f", RULE, outcome)
    data = content(found)
    assert data["recommends"]
    assert [study["advice"] for study in data["studies"]][:2] == ["no-result", "use-best"]
    assert json.loads(json.dumps(data)) == data
    page = markdown(found, "fleet.png")
    assert "no such device" in page
    assert "[gains/best.yaml](gains/best.yaml)" in page


def test_a_stream_that_cannot_be_made_costs_its_study_only(
    tmp_path: Path, inline: type[Shuffled], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.errors import UserError
    from tuner.optimize.checks import Workers

    first = iter(["the disk is full"])

    def prepare(self: Workers, stream: Any) -> None:
        for reason in first:
            raise UserError(reason)

    monkeypatch.setattr(Workers, "prepare", prepare)
    broken, other = fleet(tmp_path).members
    assert (broken.trials, broken.error, broken.summary) == (0, "the disk is full", None)
    assert other.trials == RULE.budget


# --- Plans ----------------------------------------------------------------------------------------

PLAN = """\
workloads: [gups:smoke, drift:smoke]
policies: [hybridtier, memtis]
budget: 60
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAN + "polices: [x]\n", ":4: polices: unknown key; did you mean 'policies'?"),
        (PLAN + "seed: one\n", ":4: seed: found the text 'one'; must be an integer"),
        (PLAN.replace("gups", "gupz"), ":1: workloads[0]: no workload 'gupz'; did you mean 'gups'"),
        (PLAN.replace("drift:smoke", "drift:x"), ":1: workloads[1]: no input of workload drift"),
        (PLAN.replace("memtis", "memtiss"), ":2: policies[1]: no policy 'memtiss'"),
        (PLAN.replace("memtis", "all-fast"), ":2: policies[1]: policy all-fast has no knobs"),
        (PLAN + "machines: [none]\n", ":4: machines[0]: no machine 'none'"),
        (PLAN + "ratios: ['8']\n", ":4: ratios[0]: found the text '8'; must be FAST:SLOW"),
        (PLAN + "objective: speed\n", ":4: objective: found the text 'speed'; must be one of"),
        (PLAN.replace("60", "39"), ":3: budget: found 39; must be at least 40: 4 studies with 10"),
        (PLAN + "per_study: {least: 9, most: 8}\n", ":4: per_study: most: found 8; must be at"),
        (PLAN.replace("drift", "gups"), ":1: workloads[1]: hybridtier on gups:smoke: study gups-"),
        ("workloads: [gups]\nbudget: 60\n", ":1: policies: missing; workloads are combined"),
        ("budget: 60\n", ":1: workloads and policies, or studies: missing"),
        ("budget: 60\nstudies: [{workload: gups}]\n", ":2: studies[0].policy: missing"),
    ],
)
def test_a_bad_plan_is_refused_with_its_place(
    tmp_path: Path, run: Any, text: str, message: str
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    outcome = run("fleet", str(path), "--dry-run", "--out", str(tmp_path))
    assert outcome.code == 2
    assert f"{path}{message}" in outcome.err


def test_the_example_is_planned(tmp_path: Path, run: Any) -> None:
    outcome = run("fleet", str(ROOT / "docs/fleet.yaml"), "--dry-run", "--out", str(tmp_path))
    assert outcome.code == 0
    assert "4 studies with 8 trials each, and 28 trials in batches of 5" in outcome.out
    assert list(tmp_path.iterdir()) == []
    planned = run("fleet", str(ROOT / "docs/fleet.yaml"), "--dry-run", "--json").json
    assert len(planned["studies"]) == 4
    assert planned["seconds"] > 0


@pytest.mark.slow
def test_mlflow_has_the_trials_while_a_fleet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.optimize.checks.open_pool", Shuffled)
    count = 0

    def statuses() -> list[str]:
        """Of the studies of which all trials are there."""
        found = []
        client = client_of(default_store(tmp_path), tmp_path, pytest.fail)
        for data in (log.load(tmp_path / name) for name in NAMES):
            experiment = client.get_experiment_by_name(experiment_name(data))
            parent = experiment and run_with(
                client, experiment.experiment_id, STUDY_TAG, study_id(data)
            )
            if experiment and parent:
                tracked, _ = sorted_out(client, experiment.experiment_id, parent.info.run_id)
                if tracked == {trial.number for trial in data.done}:
                    found.append(parent.info.status)
        return found

    def run(trial: Trial) -> TrialResult:
        nonlocal count
        count += trial.number < FIRST_CHECK
        if count > 11:
            while statuses() != ["RUNNING", "RUNNING"]:
                threading.Event().wait(0.1)
            raise KeyboardInterrupt
        return run_by_study(trial)

    requests = [planned(tmp_path, name, workers=1) for name in NAMES]
    with pytest.raises(KeyboardInterrupt):
        run_fleet("f", requests, RULE, workers=1, runner=run)
    assert sum(len(log.load(tmp_path / name).done) for name in NAMES) == 11
    assert statuses() == ["KILLED", "KILLED"]


@pytest.mark.slow
def test_fleet_on_the_simulated_machine(tmp_path: Path, run: Any) -> None:
    plan = tmp_path / "small.yaml"
    plan.write_text(
        "studies:\n- {workload: 'gups:smoke', policy: memtis}\n"
        "- {workload: 'drift:smoke', policy: memtis}\nbudget: 24\nper_study: {least: 6}\n"
    )
    words = ("fleet", str(plan), "--out", str(tmp_path), "--workers", "2", "--json")
    first = run(*words)
    assert first.code == 0, first.err
    assert first.json["trials"] == 24
    assert first.json["recommends"]
    for name in ("fleet.md", "fleet.json", "fleet.png", "mlflow.db"):
        assert (tmp_path / "small" / name).exists()
    again = run(*words)
    assert again.json == first.json
    for study in first.json["studies"]:
        assert run("check", str(tmp_path / "small" / study["study"])).code == 0
    where = ("--policy", "memtis", "--out", str(tmp_path / "small"))
    found = run("best", "--workload", "gups", "--input", "smoke", *where)
    assert found.code == 0, found.err
    assert "policy: memtis" in found.out
