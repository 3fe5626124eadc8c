# SPDX-License-Identifier: MIT
"""`tune verify`, with a machine that answers at once."""

from __future__ import annotations

import json
import shlex
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner import cli
from tuner.commands import verify as command
from tuner.commands.run import study_request
from tuner.documents import catalog
from tuner.documents.catalog import Entry
from tuner.documents.machine import MachineSpec
from tuner.emulate import trials
from tuner.emulate.machine import Machine
from tuner.emulate.plan import Built
from tuner.errors import UserError
from tuner.experiment import verify
from tuner.experiment.checks import Checks, Workers, bounds
from tuner.experiment.contest import judge
from tuner.experiment.recall import remake
from tuner.report import conclusion
from tuner.report.conclusion import Conclusion
from tuner.report.importance import Importance
from tuner.report.store import default_store
from tuner.run import pools, runner, streams
from tuner.run.isolation import Isolation
from tuner.run.trial import Status, Stream, Trial, TrialResult
from tuner.study import best as best_file
from tuner.study.contender import Contender, Kind
from tuner.study.events import Checked
from tuner.study.log import FORMAT, StudyData, StudyHeader, StudyLog, TrialRecord, load, now
from tuner.study.request import StudyRequest
from tuner.study.verdict import Advice, decide
from tuner.study.verified import (
    BEST,
    FILE,
    PICTURE,
    Candidate,
    agreement,
    current,
    read,
    rows,
    sentences,
)

FITTING = (
    *("--workload", "gups", "--policy", "nbt", "--ratio", "1:4", "--input", "emulated"),
    *("--machine", "emulated", "--threads", "1", "--page-bytes", "4096", "--window", "all"),
)
TRIALS: list[tuple[dict[str, Any], float | None]] = [
    ({}, 6.0),
    ({"max_scan_rate": 10.0}, 5.5),  # the same where the kernel has no such knob
    ({"hot_threshold": 20.0}, 5.0),
    ({"hot_threshold": 20.0, "free_space": 99.0}, 4.0),  # as is this
    ({"scan_size": 64.0}, None),
    ({"scan_size": 512.0}, 5.2),
    ({"scan_size": 1024.0}, 7.0),
]
"""Of a study: what differs from the defaults, and the simulated run time."""
OFF = 5.9


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Built(kernel="linux-image-6.12.1", qemu="10.0.2", programs={"tierd": "0"})
    monkeypatch.setattr(Machine, "built", built)
    monkeypatch.setattr(Machine, "request", lambda *_: None)
    monkeypatch.setattr(streams, "prepare", lambda _: None)
    reasons = dict.fromkeys(("max_scan_rate", "free_space"), "Linux has no knob for it")
    monkeypatch.setattr(Machine, "not_settable", lambda *_: reasons)

    def simulate(trial: Trial) -> TrialResult:
        assert trial.scenario.substrate == "simulated"
        assert trial.knobs["free_space"] == 1024  # as the machine runs it
        return result(request_of(*FITTING), trial.number, 4.0)

    monkeypatch.setattr(runner, "run", simulate)


def request_of(*words: str) -> StudyRequest:
    words = ("run", *words)
    return study_request(cli.parser_for(words).parse_args(words))


def result(request: StudyRequest, number: int, seconds: float | None) -> TrialResult:
    status = Status.failed if seconds is None else Status.success
    return TrialResult(
        study=request.study,
        number=number,
        status=status,
        objective=seconds,
        cost=seconds,
        error="" if seconds else "no",
        engine_build=request.engine_build,
    )


def header_of(request: StudyRequest) -> StudyHeader:
    return StudyHeader(
        format=FORMAT,
        created=now(),
        request=request,
        fingerprints=request.fingerprints,
        stream="none",
        lag=1,
        initial=1,
    )


def study(directory: Path, *words: str) -> StudyData:
    request = request_of(*FITTING, *words)
    data = StudyData(directory, header_of(request))
    defaults = {knob.name: knob.default for knob in request.tuned}
    for number, (knobs, seconds) in enumerate(TRIALS):
        record = TrialRecord(number, "model", defaults | knobs, now())
        record.result = result(request, number, seconds)
        data.trials.append(record)
    off = next(policy for policy in request.references if policy.name == "first-touch")
    scenario = request.under(off).scenario
    done = result(request, 1_000_000, OFF)
    data.checks.append(
        Checked(time=now(), purpose="reference", scenario=scenario, knobs={}, result=done)
    )
    return data


def planned(data: StudyData, *, top: int = 5, layouts: int = 2) -> verify.Plan:
    return verify.plan(data, top=top, layouts=layouts, deadline=60, note=lambda _: None)


class AtOnce:
    """A pool of two workers."""

    workers = 2

    def __init__(self, runner: Callable[[Trial], TrialResult]) -> None:
        self.runner = runner
        self.asked: list[Trial] = []
        self.waiting: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        assert len(self.waiting) < self.workers
        self.asked.append(trial)
        self.waiting.append(trial)

    def wait(self, timeout: float) -> list[TrialResult]:
        done, self.waiting = self.waiting[::-1], []
        return [self.runner(trial) for trial in done]

    def close(self) -> None:
        assert not self.waiting


def machine_that_says(
    seconds: dict[str, float | None], plan: verify.Plan
) -> Callable[[Trial], TrialResult]:
    """By name of the candidate; a layout makes each a little longer."""
    by = [(each.policy, each.knobs, each.name) for each in plan.candidates]

    def run(trial: Trial) -> TrialResult:
        name = next(
            name
            for policy, knobs, name in by
            if policy == trial.scenario.policy and knobs in ({}, trial.knobs)
        )
        said = seconds[name]
        request = request_of(*FITTING)
        value = None if said is None else said * (1 + 0.001 * trial.scenario.seed)
        return result(request, trial.number, value)

    return run


# --- What is run ----------------------------------------------------------------------------------


def test_candidates_differ_where_the_machine_can_be_set(tmp_path: Path) -> None:
    found = planned(study(tmp_path))
    assert [(each.name, each.kind, each.simulated) for each in found.candidates] == [
        ("first-touch", Kind.off, OFF),
        ("nbt, defaults", Kind.untuned, 6.0),
        ("nbt, trial 3", Kind.tuned, 4.0),
        ("nbt, trial 5", Kind.tuned, 5.2),
        ("nbt, trial 6", Kind.tuned, 7.0),
    ]
    third = found.candidates[2].knobs
    assert third["hot_threshold"] == 20
    assert third["free_space"] == 1024  # its default
    assert len(planned(study(tmp_path), top=1).candidates) == 3


def test_a_machine_that_was_edited_since_is_the_study_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = study(tmp_path)
    then = data.header.request.machine
    assert planned(data).trial(0, 0).machine == then
    assert "has changed" not in capsys.readouterr().err
    load = catalog.machine

    def edited(name: str) -> Entry[MachineSpec]:
        found = load(name)
        slow = found.spec.slow.model_copy(update={"latency_ns": 400.0})
        return replace(found, spec=found.spec.model_copy(update={"slow": slow}))

    monkeypatch.setattr(catalog, "machine", edited)
    assert planned(data).trial(0, 0).machine == then
    assert "machine emulated has changed since study" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [4.5, None])
def test_what_is_simulated_is_what_the_machine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    """Trial 3 has a knob that the machine does not have, and without it another run time."""
    monkeypatch.setattr(
        runner, "run", lambda trial: result(request_of(*FITTING), trial.number, seconds)
    )
    found = judged(tmp_path, (5.9, 6.0, 4.0, 5.2, 7.0))
    assert [each.simulated for each in found.candidates[2:]] == [seconds, 5.2, 7.0]
    said = "nbt, trial 3: not simulated as the machine runs it." in sentences(found)
    assert said == (seconds is None)


def test_candidates_take_turns_on_the_machine(tmp_path: Path) -> None:
    plan = planned(study(tmp_path))
    pool_of_two = AtOnce(machine_that_says(dict.fromkeys(NAMES, 5.0), plan))
    told: list[float] = []
    verify.measure(plan, pool_of_two, told.append)
    asked = pool_of_two.asked
    assert [trial.scenario.seed for trial in asked] == [0] * 5 + [1] * 5
    assert {trial.scenario.substrate for trial in asked} == {"emulated"}
    assert {trial.emulated for trial in asked} == {Machine().name}
    assert {trial.deadline_seconds for trial in asked} == {60}
    assert [trial.scenario.policy for trial in asked[:2]] == ["first-touch", "nbt"]
    assert told[-1] == 1 and told == sorted(told)
    assert plan.candidates[0].values == [5.0, 5.0 * 1.001]


def test_a_study_that_the_machine_cannot_have_is_refused_with_one_that_it_can(
    tmp_path: Path,
) -> None:
    data = study(tmp_path)
    data.header = header_of(request_of("--workload", "gups", "--policy", "nbt", "--ratio", "1:4"))
    with pytest.raises(UserError, match=r"found threads 12.0, scale 256.0, which") as error:
        planned(data)
    program, *words = shlex.split(str(error.value).partition("verified: ")[2])
    assert program == "tune"
    data.header = header_of(study_request(cli.parser_for(words).parse_args(words)))
    assert len(planned(data).candidates) == 5


def test_other_studies_are_refused(tmp_path: Path) -> None:
    data = study(tmp_path)
    fitting = data.header.request
    ran = fitting.scenario.plain() | {"substrate": "emulated"}
    data.header = header_of(fitting.model_copy(update={"scenario": type(fitting.scenario)(**ran)}))
    with pytest.raises(UserError, match="ran in the emulated machine already"):
        planned(data)
    own = Isolation(image="mine", command=("bench",), metric="([0-9]+)")
    data.header = header_of(fitting.model_copy(update={"isolation": own}))
    with pytest.raises(UserError, match="it measured a command, and simulated nothing"):
        planned(data)
    data = study(tmp_path)
    del data.trials[2:]
    with pytest.raises(UserError, match="no trial differs from the defaults in a knob that"):
        planned(data)


# --- What it says ---------------------------------------------------------------------------------

NAMES = ("first-touch", "nbt, defaults", "nbt, trial 3", "nbt, trial 5", "nbt, trial 6")
SIMULATED = decide(
    [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[5.9, 5.9]),
        Contender(kind=Kind.untuned, policy="nbt", page_bytes=4096, values=[6.0, 6.01]),
        Contender(kind=Kind.tuned, policy="nbt", page_bytes=4096, values=[4.0, 4.01]),
        Contender(kind=Kind.untuned, policy="arc", page_bytes=4096, values=[3.0, 3.01]),
    ],
    objective="runtime",
    trials=7,
    policy="nbt",
)


def judged(directory: Path, seconds: Sequence[float | None]) -> Any:
    data = study(directory)
    plan = planned(data)
    runner = machine_that_says(dict(zip(NAMES, seconds, strict=True)), plan)
    verify.measure(plan, AtOnce(runner), lambda _: None)
    return verify.judge(plan, data, SIMULATED)


def test_a_simulation_that_holds(tmp_path: Path) -> None:
    found = judged(tmp_path, (5.9, 6.0, 4.0, 5.2, 7.0))
    assert SIMULATED.advice is Advice.use_untuned  # of a policy that is not compared here
    assert found.simulated.advice is Advice.use_best
    assert found.verdict.advice is Advice.use_best
    assert found.holds and found.winner == 3
    assert (found.tau, found.pairs) == (1.0, 10)
    said = sentences(found)
    assert said[0].startswith("On the real kernel: use best.yaml: ")
    assert said[1] == "The simulation advises the same."
    assert "best-verified.yaml has the knobs to use." in said
    assert "Kept at their defaults: max_scan_rate, free_space (Linux has no knob for it)." in said
    assert rows(found)[2][0] == "nbt, trial 3"
    assert rows(found)[2][3] == "47.5 % faster"  # 5.9 / 4.0, simulated
    assert rows(found)[0][3:5] == ("-", "-")


def test_another_of_the_best_may_be_better_there(tmp_path: Path) -> None:
    found = judged(tmp_path, (5.9, 6.0, 6.5, 5.2, 7.0))
    assert found.verdict.advice is Advice.leave_off
    assert found.holds is False
    assert found.winner == 5
    said = sentences(found)
    assert said[1].startswith("The simulation advises something else: use best.yaml")
    assert "number 5 is better there than number 3, the best one in the simulation" in said[2]


def test_nothing_may_be_worth_it(tmp_path: Path) -> None:
    found = judged(tmp_path, (5.0, 6.0, 6.5, 5.2, 7.0))
    assert found.winner is None
    assert not any(BEST in line for line in sentences(found))


def test_what_failed_is_said(tmp_path: Path) -> None:
    found = judged(tmp_path, (5.9, 6.0, 4.0, None, 7.0))
    assert found.winner == 3
    assert rows(found)[3][2] == "failed"
    assert "nbt, trial 5: failed: no" in sentences(found)
    assert found.pairs == 6


def test_close_figures_are_ties() -> None:
    def candidate(simulated: float, measured: float) -> Candidate:
        return Candidate(
            name="x",
            kind=Kind.tuned,
            policy="nbt",
            trial=1,
            knobs={},
            simulated=simulated,
            values=[measured],
        )

    assert agreement([candidate(1, 1), candidate(2, 2)]) == (1.0, 1)
    assert agreement([candidate(1, 2), candidate(2, 1)]) == (-1.0, 1)
    assert agreement([candidate(1, 1), candidate(1.001, 0.999)]) == (None, 1)
    assert agreement([]) == (None, 0)


# --- The command ----------------------------------------------------------------------------------


class Simulator(Workers):
    """Runs the checks of a study at once."""

    def pool(self, stream: Stream) -> Any:
        seconds = {"first-touch": OFF, "all-fast": 2.0, "static-hot": 2.5, "nbt": 6.0}

        def run(trial: Trial) -> TrialResult:
            value = seconds.get(trial.scenario.policy, 6.5)
            if trial.knobs.get("hot_threshold") == 20:
                value = 4.0
            value *= 1 + 0.001 * trial.scenario.seed
            return result(self._request, trial.number, value)

        return AtOnce(run)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A study on disk that has ended."""
    data = study(tmp_path, "--no-explain", "--out", str(tmp_path), "--name", "mine")
    request = data.header.request
    with StudyLog(tmp_path / "mine", data.header) as log:
        for trial in data.trials:
            log.asked(trial.number, trial.origin, trial.knobs)
            assert trial.result is not None
            log.finished(trial.result)
        checks = Checks(request, log, Simulator(request, None), lambda _: None)
        bounds(checks)
        judge(checks, log.data)
    remake(tmp_path / "mine")
    return tmp_path


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In place of MLflow."""
    folders: list[Path] = []
    monkeypatch.setattr(command, "_track", lambda folder, _: folders.append(folder))
    return folders


def machine_of(
    monkeypatch: pytest.MonkeyPatch, out: Path, seconds: Sequence[float | None]
) -> list[str]:
    plan = planned(load(out / "mine"), layouts=3)
    runner = machine_that_says(dict(zip(NAMES, seconds, strict=True)), plan)
    monkeypatch.setattr(pools, "open_pool", lambda *_, **__: AtOnce(runner))
    return ["verify", "mine", "--out", str(out)]


def test_the_command_writes_what_to_use(
    stored: Path,
    tracked: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = machine_of(monkeypatch, stored, (5.9, 6.0, 4.0, 5.2, 7.0))
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "nbt, trial 3" in out and "The simulation advises the same." in out
    folder = stored / "mine"
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    kept = json.loads((folder / FILE).read_text())
    assert kept["winner"] == 3 and len(kept["candidates"][2]["values"]) == 5
    page = (folder / "report.html").read_text()
    assert "On a real kernel" in page and "The simulation advises the same." in page
    capsys.readouterr()
    assert cli.main(["export", str(folder), "-o", str(stored / "a.tar.gz")]) == 0
    assert capsys.readouterr().err == ""
    with tarfile.open(stored / "a.tar.gz") as archive:
        assert {f"study/{FILE}", f"study/{BEST}"} <= set(archive.getnames())
    best = best_file.read(folder / BEST)
    assert "--config best-verified.yaml\n" in (folder / BEST).read_text()
    assert best.scenario.substrate == "emulated"
    assert best.provenance.emulated == Machine().name
    assert best.provenance.trial == 3
    assert (best.objective.value, best.objective.default_value) == (4.0, 6.0)
    assert best.knobs["hot_threshold"] == 20 and best.knobs["free_space"] == 1024
    # What was recommended once and is no longer goes.
    words = machine_of(monkeypatch, stored, (5.0, 6.0, 6.5, 5.2, 7.0))
    assert cli.main([*words, "--json"]) == command.DIFFERS
    said = json.loads(capsys.readouterr().out)
    assert said["holds"] is False and said["winner"] is None
    assert not (folder / BEST).exists()
    assert "The simulation advises something else" in (folder / "report.html").read_text()
    assert tracked == [folder, folder]
    assert cli.main(["check", str(folder)]) == 0


@pytest.mark.usefixtures("tracked")
def test_a_machine_that_runs_nothing_is_a_failure(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = machine_of(monkeypatch, stored, (None,) * 5)
    assert cli.main(words) == 1
    assert "failed: no" in capsys.readouterr().out


@pytest.mark.slow
def test_mlflow_shows_it(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = machine_of(monkeypatch, stored, (5.9, 6.0, 4.0, 5.2, 7.0))
    assert cli.main(words) == 0
    from mlflow import MlflowClient

    client = MlflowClient(default_store(stored))
    found = [
        run
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        if "verified" in run.data.tags
    ]
    (run,) = found
    assert run.data.metrics["verified/gain"] == pytest.approx(0.5)
    assert run.data.metrics["verified/holds"] == 1
    assert run.data.metrics["verified/tau"] == 1
    files = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert {FILE, BEST, PICTURE} <= files


def test_a_damaged_file_is_named(stored: Path) -> None:
    path = stored / "mine" / FILE
    assert read(path.parent) is None
    for content in ("{", "{}"):
        path.write_text(content)
        with pytest.raises(UserError, match=rf"{path}: .*; `tune verify` makes it again"):
            read(path.parent)


def test_a_verification_of_fewer_trials_is_not_shown(
    stored: Path, tracked: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(machine_of(monkeypatch, stored, (5.9, 6.0, 4.0, 5.2, 7.0))) == 0
    data = load(stored / "mine")
    assert current(data) == read(data.directory)
    data.trials.pop()
    assert current(data) is None


def test_a_study_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "mine", "--out", str(tmp_path)]) == 2
    assert f"no study at {tmp_path / 'mine'}; `tune run` makes one" in capsys.readouterr().err


def test_one_run_of_each_tells_nothing_of_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """It would advise what is simplest, whatever the runs say."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["verify", "mine", "--layouts", "1"])
    assert "--layouts: found 1; must be at least 2" in capsys.readouterr().err


# --- The study's last lines -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "can"),
    [((), True), (("--objective", "throughput"), True), (("--window", "steady"), False)],
)
def test_a_study_that_can_be_verified_ends_with_how(
    tmp_path: Path, words: tuple[str, ...], can: bool
) -> None:
    data = study(tmp_path, *words)
    request = data.header.request
    contenders = [Contender(kind=Kind.untuned, policy="nbt", page_bytes=4096, values=[5.0, 5.1])]
    objective = request.scenario.objective
    verdict = decide(contenders, objective=objective, trials=len(TRIALS), policy="nbt")
    found = Conclusion(verdict, None, Importance({}, 0.0, 0, "none"))
    said = conclusion.text(data, found).splitlines()
    assert (f"verify   tune verify {data.directory}" in said) == can


@pytest.mark.parametrize(
    ("given", "can"),
    [
        ({}, True),
        ({"policy": "hybridtier"}, True),
        ({"policy": "nomad"}, False),
        ({"objective": "p99"}, False),
        ({"threads": 16.0}, False),
        ({"page_bytes": 2 << 20}, False),
        ({"substrate": "emulated"}, False),
    ],
)
def test_what_can_be_verified(given: dict[str, Any], can: bool) -> None:
    scenario = request_of(*FITTING).scenario
    assert trials.verifiable(replace(scenario, **given)) == can
