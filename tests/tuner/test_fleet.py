# SPDX-License-Identifier: MIT
"""tune fleet: who gets trials, what the studies are, kills, failures, and bad plans."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from synthetic import always_fails, answer, noisy, request, useless

from tuner.commands import fleet as plans
from tuner.experiment.checks import FIRST_CHECK
from tuner.experiment.loop import run_study
from tuner.fleet.allocation import Progress, allocate, equal_parts
from tuner.fleet.loop import Member, run_fleet
from tuner.fleet.report import Fleet, _winner, content, markdown
from tuner.report.store import client_of, default_store, run_with
from tuner.report.tracked import STUDY_TAG, experiment_name, sorted_out, study_id
from tuner.run import runner, streams
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import best, log
from tuner.study.contender import Contender, Kind
from tuner.study.log import StudyLog
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT, decide

# --- Who gets trials ------------------------------------------------------------------------------

NEW, RUNS = Progress(0), Progress(1)


def test_every_study_has_its_default_before_it_has_more() -> None:
    assert allocate([NEW, NEW, NEW], 60) == [1, 1, 1]
    assert allocate([RUNS, NEW, Progress(7)], 60) == [20, 1, 20]
    assert allocate([NEW, NEW, NEW], 2) == [1, 1, 0]


def test_parts_are_equal_and_the_first_have_what_is_left_over() -> None:
    assert allocate([RUNS] * 3, 62) == [21, 21, 20]
    assert allocate([Progress(20)] * 3, 60) == [20, 20, 20]


def test_a_failed_default_costs_one_trial() -> None:
    assert allocate([Progress(1, default_failed=True), RUNS, RUNS], 61) == [1, 30, 30]


def test_what_an_ended_study_leaves_goes_to_others() -> None:
    assert allocate([Progress(3, ended=True), RUNS, RUNS], 60) == [3, 29, 28]
    assert allocate([Progress(0, ended=True), RUNS], 60) == [0, 60]
    assert allocate([Progress(3, ended=True)] * 2, 60) == [3, 3]


def test_nothing_that_was_granted_is_taken_back() -> None:
    """Whichever studies end, and in whatever order."""
    rng = random.Random(1)
    for _ in range(300):
        count, budget = rng.randint(1, 6), rng.randint(12, 40)
        studies = [RUNS] * count
        before = allocate(studies, budget)
        for number in rng.sample(range(count), count):
            studies[number] = Progress(rng.randint(1, before[number]), ended=True)
            after = allocate(studies, budget)
            assert sum(after) <= budget
            over = [study.over for study in studies]
            assert all(a >= b for a, b, end in zip(after, before, over, strict=True) if not end)
            before = after


def test_a_study_that_gains_late_has_its_part(tmp_path: Path, inline: type[Shuffled]) -> None:
    """The one whose default leads early is not starved."""
    assert [member.trials for member in fleet(tmp_path, names=("still", "gains"))] == [13, 13]


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
    monkeypatch.setattr("tuner.experiment.loop.Tracker", Untracked)
    monkeypatch.setattr("tuner.experiment.checks.open_pool", Shuffled)
    return Shuffled


BUDGET = 26


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
        | {"budget": BUDGET // 2, "seed": {"gains": 1, "still": 2, "broken": 3}[name]} | changes,
    )  # fmt: skip


NAMES = ("gains", "still")


def fleet(
    out: Path, names: tuple[str, ...] = NAMES, budget: int = BUDGET, workers: int = 1, lag: int = 1
) -> list[Member]:
    parts = zip(names, equal_parts(budget, len(names)), strict=True)
    requests = [planned(out, name, budget=part, workers=lag) for name, part in parts]
    return run_fleet("f", requests, budget, workers=workers, runner=run_by_study)


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
    members = fleet(tmp_path / "f", workers=3, lag=lag)
    assert [member.trials for member in members] == [BUDGET // 2, BUDGET // 2]
    for member in members:
        name, own = member.request.study, tmp_path / "alone"
        run_study(planned(own, name, workers=lag), runner=run_by_study)
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
    fleet(tmp_path / "steps")
    before = {name: trials(tmp_path / "steps", name) for name in NAMES}
    assert [member.trials for member in fleet(tmp_path / "steps", budget=35)] == [18, 17]
    for name in NAMES:
        assert trials(tmp_path / "steps", name)[: BUDGET // 2] == before[name]


class Killed(BaseException):
    """The process ends here."""


def killed(
    run: Callable[[], object], records: int, written: bool, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether it was killed at the n-th record of all logs, right before or after writing it."""
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
            run()
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
        if not killed(partial(fleet, out), records, bool(kills % 2), monkeypatch):
            break
        kills += 1
        killed(partial(fleet, out), 7, written=False, monkeypatch=monkeypatch)  # and once more
        fleet(out)
        for name in NAMES:
            assert trials(out, name) == trials(tmp_path / "whole", name)
            assert checks(out, name) == checks(tmp_path / "whole", name)
    assert kills >= 4


def test_a_complete_fleet_runs_nothing_again(tmp_path: Path, inline: type[Shuffled]) -> None:
    fleet(tmp_path)
    before = [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES]
    requests = [planned(tmp_path, name) for name in NAMES]
    run_fleet("f", requests, BUDGET, workers=2, runner=always_fails)
    assert [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES] == before


def test_a_broken_study_costs_itself_only(tmp_path: Path, inline: type[Shuffled]) -> None:
    broken, *others = members = fleet(tmp_path, names=("broken", *NAMES))
    assert broken.trials == 1
    assert broken.error == "the default fails: no such device"
    assert sum(member.trials for member in others) == BUDGET - 1
    found = Fleet("f", BUDGET, members)
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
    from tuner.experiment.checks import Workers

    first = iter(["the disk is full"])

    def prepare(self: Workers, stream: Any) -> None:
        for reason in first:
            raise UserError(reason)

    monkeypatch.setattr(Workers, "prepare", prepare)
    broken, other = fleet(tmp_path)
    assert (broken.trials, broken.error, broken.summary) == (0, "the disk is full", None)
    assert other.trials == BUDGET


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
        (PLAN.replace("60", "7"), ":3: budget: found 7; must be at least 8: 2 trials for each of"),
        (PLAN + "per_study: {least: 9}\n", ":4: per_study: unknown key"),
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
    assert "4 studies, 60 trials in equal parts" in outcome.out
    assert list(tmp_path.iterdir()) == []
    planned = run("fleet", str(ROOT / "docs/fleet.yaml"), "--dry-run", "--json").json
    assert len(planned["studies"]) == 4
    assert planned["seconds"] > 0


def test_the_time_is_estimated_from_a_run_of_each_default(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fleet", str(ROOT / "docs/fleet.yaml"), "--dry-run", "--workers", "2")
    ran = []

    def two_seconds(trial: Trial) -> Any:
        ran.append((trial.scenario.workload, trial.scenario.policy, trial.knobs))
        return TrialResult(study=trial.study, number=0, status=Status.success, seconds=2.0)

    monkeypatch.setattr(streams, "is_ready", lambda stream: True)
    monkeypatch.setattr(runner, "run", two_seconds)
    runs = 60 + 4 * (3 + 2 * HELD_OUT)
    rest = plans.START_SECONDS + 4 * plans.REPORT_SECONDS + 60 * plans.ASK_SECONDS
    found = run(*words, "--json").json
    assert found["seconds"] == pytest.approx(rest + runs * 2.0 / 2)
    assert found["streams_to_make"] == 0
    assert len({(workload, policy) for workload, policy, _ in ran}) == 4
    monkeypatch.setattr(streams, "is_ready", lambda stream: False)
    assert ", and the making of 4 streams on 2 workers" in run(*words).out
    assert len(ran) == 4


def test_the_choice_at_a_place_is_that_of_its_verdict() -> None:
    """Not the policy whose mean is best by chance."""

    def tuned(policy: str, *values: float) -> Contender:
        return Contender(
            kind=Kind.tuned, policy=policy, page_bytes=4096, values=[*values], study=policy
        )

    contenders = [tuned("first", 10.0, 12.0, 11.0), tuned("second", 9.0, 12.5, 11.0)]
    verdict = decide(contenders, objective="runtime", trials=9, policy="second")
    assert verdict.chosen == contenders[0]
    assert "first" in verdict.headline
    assert _winner(verdict) == {
        "advice": verdict.advice,
        "headline": verdict.headline,
        "best_policy": "first",
        "best": 11.0,
    }


@pytest.mark.slow
def test_mlflow_has_the_trials_while_a_fleet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.experiment.checks.open_pool", Shuffled)
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
        run_fleet("f", requests, BUDGET, workers=1, runner=run)
    assert sum(len(log.load(tmp_path / name).done) for name in NAMES) == 11
    assert statuses() == ["KILLED", "KILLED"]


@pytest.mark.slow
def test_fleet_on_the_simulated_machine(tmp_path: Path, run: Any) -> None:
    plan = tmp_path / "small.yaml"
    plan.write_text(
        "studies:\n- {workload: 'gups:smoke', policy: memtis}\n"
        "- {workload: 'drift:smoke', policy: memtis}\nbudget: 24\n"
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
