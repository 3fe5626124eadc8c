# SPDX-License-Identifier: MIT
"""Whole studies on synthetic runners: budget, order, failures, what is left behind."""

from __future__ import annotations

import json
import os
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from conftest import Hang, python_path
from synthetic import KNOBS, MACHINE, WORKLOAD, accident, always_fails, answer, request, smooth

from tuner import cli
from tuner.documents.space import KnobRange, SpaceSpec
from tuner.errors import UserError
from tuner.experiment.loop import everything_fits, run_study
from tuner.run.local_ray import kept_handler
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import best, log
from tuner.study.log import StudyData, StudyLog
from tuner.study.request import Fingerprints, StudySummary


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One MLflow database for all studies here: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


class Untracked:
    """Stands in for the tracker."""

    def __init__(self, *_: Any) -> None: ...
    def add(self, *_: Any) -> None: ...
    def conclude(self, *_: Any) -> None: ...
    def close(self, *, interrupted: bool = False) -> None: ...


@pytest.fixture(autouse=True)
def tracking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only slow tests copy their studies to MLflow."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr("tuner.experiment.loop.Tracker", Untracked)


@pytest.fixture
def ray_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", python_path(Path(__file__).parent))
    import ray

    with kept_handler():
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
            object_store_memory=128 << 20,
        )  # fmt: skip
    yield
    ray.shutdown()


PHASES = {
    "stream": "tuner.experiment.checks.Workers.prepare",
    "references": "tuner.experiment.loop.bounds",
    "search": "tuner.experiment.loop.advance",
    "held-out seeds": "tuner.experiment.studies.judge",
    "explanation": "tuner.experiment.studies.explain",
    "report": "tuner.report.page.write",
    "summary": "tuner.report.conclusion.text",
}


class Here:
    """A pool in this process."""

    workers = 1

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened
        self._flying: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        self._flying.append(trial)

    def wait(self, timeout: float) -> list[TrialResult]:
        return [smooth(self._flying.pop())]

    def close(self) -> None:
        self._happened.append("workers ended")


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_is_answered_before_anything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Ending Ray takes a second, and MLflow may have no answer at all."""
    happened: list[str] = []

    class Slow(Untracked):
        def close(self, *, interrupted: bool = False) -> None:
            happened.append(f"tracker closed, {interrupted=}")

    def interrupt(*_: Any, **__: Any) -> NoReturn:
        happened.clear()
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.experiment.loop.Tracker", Slow)
    monkeypatch.setattr("tuner.experiment.checks.open_pool", lambda *_, **__: Here(happened))
    monkeypatch.setattr("tuner.terminal.say", lambda text: happened.append(text.split(":")[0]))
    monkeypatch.setattr(PHASES[phase], interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_study(request(tmp_path, budget=3), runner=smooth)
    workers = [] if phase in ("stream", "report", "summary", "references") else ["workers ended"]
    assert happened == ["stopped", "tracker closed, interrupted=True", *workers]


def study_of(out: Path, name: str = "synthetic-study") -> StudyData:
    return log.load(out / name)


def sequence(data: StudyData) -> list[tuple[int, str, str]]:
    return [(t.number, t.origin, json.dumps(t.knobs, sort_keys=True)) for t in data.trials]


def run(out: Path, store: str, runner: Any = smooth, **changes: Any) -> StudySummary:
    return run_study(request(out, mlflow_uri=store, **changes), runner=runner)


@pytest.mark.parametrize(
    "budget", [1, 2, 10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_budget_is_kept_exactly(tmp_path: Path, store: str, budget: int) -> None:
    summary = run(tmp_path, store, budget=budget)
    data = study_of(tmp_path)
    assert summary.trials == budget
    assert [t.number for t in data.trials] == list(range(budget))
    assert all(t.succeeded for t in data.trials)
    assert len({json.dumps(t.knobs, sort_keys=True) for t in data.trials}) == budget
    assert data.trials[0].knobs == {knob.name: knob.default for knob in KNOBS}


def test_summary_and_best_configuration_agree_with_the_log(tmp_path: Path, store: str) -> None:
    summary = run(tmp_path, store, budget=14)
    data = study_of(tmp_path)
    objectives = [t.result.objective for t in data.trials if t.result]
    assert summary.default_objective == objectives[0]
    assert data.best is not None and data.top is not None
    assert data.top.objective == max(o for o in objectives if o is not None)
    assert summary.best_objective == data.best.objective  # without changes that add nothing
    assert data.lean is not None and data.best.number == data.top.number
    assert summary.best_objective is not None and summary.default_objective is not None
    # Nothing here depends on the seed, so the held-out gain is that of the study's own.
    assert summary.gain == pytest.approx(summary.best_objective / summary.default_objective - 1)
    assert summary.failed == 0
    assert set(summary.importance) == {knob.name for knob in KNOBS}
    assert summary.best_config is not None
    kept = best.read(Path(summary.best_config))
    winner = data.trials[kept.provenance.trial]
    assert kept.verdict == summary.verdict
    assert kept.objective.value == summary.best_objective
    assert kept.objective.default_value == summary.default_objective
    assert winner is data.top and kept.knobs == data.best.knobs
    trial = data.header.request.trial(winner.number, kept.knobs)
    assert smooth(trial).objective == summary.best_objective


@pytest.mark.slow
def test_lower_is_better_objectives_are_minimised(tmp_path: Path, store: str) -> None:
    summary = run(tmp_path, store, _p99, budget=8, objective="p99")
    values = [t.result.objective for t in study_of(tmp_path).trials if t.result]
    best, top = study_of(tmp_path).best, study_of(tmp_path).top
    assert top is not None and top.objective == min(v for v in values if v is not None)
    assert best is not None and summary.best_objective == best.objective
    assert summary.gain is not None and summary.gain >= 0


def _p99(trial: Trial) -> Any:
    value = 1e9 / (answer(trial).objective or 0)
    return answer(trial).model_copy(update={"objective": value, "cost": value})


@pytest.mark.slow
def test_same_seed_same_study(tmp_path: Path, store: str) -> None:
    for name in ("one", "two"):
        run(tmp_path, store, study=name, budget=10)
    run(tmp_path, store, study="other", budget=10, seed=2)
    one, two, other = (sequence(study_of(tmp_path, n)) for n in ("one", "two", "other"))
    assert one == two
    assert one != other


@pytest.mark.slow
def test_two_workers_same_seed_same_study(tmp_path: Path, store: str, ray_of_two: None) -> None:
    for name in ("one", "two"):
        summary = run(tmp_path, store, study=name, budget=12, workers=2)
        assert summary.trials == 12
    one, two = study_of(tmp_path, "one"), study_of(tmp_path, "two")
    assert sequence(one) == sequence(two)
    assert len({knobs for _, _, knobs in sequence(one)}) == 12


@pytest.mark.slow
def test_trials_that_go_wrong_are_recorded_and_do_not_end_the_study(
    tmp_path: Path, store: str, hang: Hang
) -> None:
    threading.Thread(target=hang.outlast_deadline, daemon=True).start()
    summary = run(tmp_path, store, accident, budget=9, deadline_seconds=1.0)
    results = [t.result for t in study_of(tmp_path).trials]
    assert [r.status for r in results if r] == [
        Status.success, Status.failed, Status.crashed, Status.timeout, Status.failed,
        Status.timeout, Status.crashed, Status.success, Status.success,
    ]  # fmt: skip
    assert (summary.trials, summary.failed) == (9, 6)
    assert all(r.error for r in results if r and r.status is not Status.success)


def test_study_in_which_nothing_works_says_so(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(tmp_path, store, always_fails, budget=3)
    assert (summary.trials, summary.failed) == (3, 3)
    assert summary.best_objective is None
    assert summary.best_config is None
    assert summary.gain is None
    assert "no trial succeeded" in capsys.readouterr().out
    assert not (tmp_path / "synthetic-study" / best.FILE).exists()


def test_finite_space_ends_the_study_early(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mode = [knob for knob in KNOBS if knob.name == "mode"]
    space = SpaceSpec(policy="paper", summary="one", knobs={"mode": KnobRange()})
    summary = run(tmp_path, store, budget=10, tuned=mode, space=space)
    assert summary.trials == 3
    assert "all 3 configurations" in capsys.readouterr().err


@pytest.mark.slow
def test_json_leaves_standard_output_alone(
    tmp_path: Path, store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, store, budget=2, json_output=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "trial 1 (2/2)" in captured.err.replace("  ", " ")


def test_existing_study_is_not_overwritten(tmp_path: Path, store: str) -> None:
    run(tmp_path, store, budget=2)
    before = (tmp_path / "synthetic-study" / log.EVENTS).read_bytes()
    with pytest.raises(UserError, match=r"2 finished trials.*--resume.*--name"):
        run(tmp_path, store, budget=4)
    assert (tmp_path / "synthetic-study" / log.EVENTS).read_bytes() == before


def test_study_of_another_process_is_refused(tmp_path: Path, store: str) -> None:
    run(tmp_path, store, budget=2)
    with (
        StudyLog(tmp_path / "synthetic-study"),
        pytest.raises(UserError, match="another process"),
    ):
        run(tmp_path, store, budget=4, resume=True)


SLOWER = MACHINE.model_copy(update={"slow": MACHINE.slow.model_copy(update={"latency_ns": 300.0})})
NARROWER = SpaceSpec(
    policy="paper", summary="all",
    knobs={knob.name: KnobRange() for knob in KNOBS} | {"share": KnobRange(max=0.9)},
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"machine": SLOWER}, r"machine\.slow\.latency_ns: was 250\.0, is 300\.0"),
        ({"space": NARROWER}, r"space\.knobs\.share\.max: was not there, is 0\.9"),
        (
            {"workload": WORKLOAD.model_copy(update={"kernel": "other"})},
            r"workload\.kernel: was none, is other",
        ),
        ({"engine_build": "build-b"}, "engine_build: was build-a, is build-b"),
        ({"stream_maker": "maker-b"}, "stream_maker: was maker-a, is maker-b"),
        ({"ratio": "1:4"}, "ratio: was 1:8, is 1:4"),
        ({"seed": 5}, "seed: was 1, is 5"),
        ({"objective": "p99"}, "objective: was throughput, is p99"),
    ],
)
def test_resuming_under_other_settings_is_refused_and_named(
    tmp_path: Path, store: str, changes: dict[str, Any], named: str
) -> None:
    if not (tmp_path / "synthetic-study").exists():
        _header_only(tmp_path)
    with pytest.raises(UserError, match=named):
        run(tmp_path, store, resume=True, **changes)


def _header_only(out: Path) -> None:
    wanted = request(out)
    header = log.StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream="x", lag=1, initial=2,
    )  # fmt: skip
    assert isinstance(header.fingerprints, Fingerprints)
    StudyLog(out / "synthetic-study", header).close()


@pytest.mark.slow
def test_prose_workers_and_place_may_change(tmp_path: Path, store: str) -> None:
    run(tmp_path, store, budget=2)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "synthetic-study").rename(moved / "synthetic-study")
    worded = MACHINE.model_copy(update={"summary": "in other words"})
    summary = run(moved, store, budget=4, resume=True, machine=worded, deadline_seconds=99.0)
    assert summary.trials == 4


def test_a_study_tries_what_its_space_starts_with(tmp_path: Path, store: str) -> None:
    space = request(tmp_path).space.model_copy(update={"starts": [{"period": 7}, {"share": 1}]})
    run(tmp_path, store, budget=4, space=space, explain=False)
    trials = study_of(tmp_path).trials
    assert [trial.origin for trial in trials[:3]] == ["default", "start", "start"]
    assert (trials[1].knobs["period"], trials[2].knobs["share"]) == (7, 1.0)


def test_budget_below_what_was_run_is_refused(tmp_path: Path, store: str) -> None:
    run(tmp_path, store, budget=3)
    with pytest.raises(UserError, match="3 trials already, more than --budget 2"):
        run(tmp_path, store, budget=2, resume=True)


def test_resuming_a_complete_study_runs_nothing(tmp_path: Path, store: str) -> None:
    first = run(tmp_path, store, budget=3)
    before = (tmp_path / "synthetic-study" / log.EVENTS).read_bytes()
    again = run(tmp_path, store, always_fails, budget=3, resume=True)
    assert (tmp_path / "synthetic-study" / log.EVENTS).read_bytes() == before
    assert again.model_copy(update={"seconds": 0.0}) == first.model_copy(update={"seconds": 0.0})


ASKED_3 = b'"asked".*"number":3,'
FINISHED_3 = b'"finished".*"number":3,'
ASKED_4 = b'"asked".*"number":4,'


@pytest.mark.parametrize(
    "lost", [[ASKED_3], [FINISHED_3], [ASKED_3, FINISHED_3], [FINISHED_3, ASKED_4]]
)
def test_what_a_damaged_record_held_is_run_again(
    tmp_path: Path, store: str, lost: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, store, budget=6)
    before = study_of(tmp_path)
    path = tmp_path / "synthetic-study" / log.EVENTS
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = []
    for pattern in lost:
        ((index, line),) = [(i, x) for i, x in enumerate(lines) if re.search(pattern, x)]
        lines[index] = line.replace(b'"event"', b'"evemt"')
        damaged.append(f"warning: {path}, line {index + 1}: its checksum does not fit")
    path.write_bytes(b"".join(lines))
    capsys.readouterr()
    summary = run(tmp_path, store, budget=6, resume=True)
    assert summary.trials == 6
    told = capsys.readouterr().err
    assert all(line in told for line in damaged)
    after = study_of(tmp_path)
    assert [t.number for t in after.done] == list(range(6))
    if lost != [FINISHED_3, ASKED_4]:  # else trial 4 was asked for without the result of trial 3
        assert sequence(after) == sequence(before)
        assert [t.result for t in after.trials] == [t.result for t in before.trials]


def test_a_study_without_its_header_is_not_begun_again(tmp_path: Path, store: str) -> None:
    """Its trials would count under the settings of whoever comes next."""
    run(tmp_path, store, budget=2)
    path = tmp_path / "synthetic-study"
    (path / log.HEADER).unlink()
    before = (path / log.EVENTS).read_bytes()
    for resume in (False, True):
        with pytest.raises(UserError, match=r"no study\.json, so what they measured is not known"):
            run(tmp_path, store, budget=2, resume=resume, machine=SLOWER)
    assert (path / log.EVENTS).read_bytes() == before


def test_check_tells_what_is_wrong(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, store, budget=3)
    folder = tmp_path / "synthetic-study"

    def check() -> list[str]:
        capsys.readouterr()
        code = cli.main(["check", str(folder), "--json"])
        found = json.loads(capsys.readouterr().out)
        assert found["study"] == str(folder)
        assert code == bool(found["problems"])
        problems: list[str] = found["problems"]
        return problems

    def changed(name: str, before: str, after: str) -> list[str]:
        path = folder / name
        content = path.read_text()
        assert before in content
        path.write_text(content.replace(before, after, 1))
        found = check()
        path.write_text(content)
        return found

    assert check() == []
    assert cli.main(["check", str(folder)]) == 0
    said = (
        f"{folder}: nothing wrong; 3 of 3 trials finished, {len(study_of(tmp_path).checks)} checks"
    )
    assert capsys.readouterr().out.strip() == said

    (damage,) = changed(log.EVENTS, "reference first", "reference last")
    assert "trials.jsonl, line 1: its checksum does not fit" in damage
    (header,) = changed(log.HEADER, "paper-machine", "other-machine")
    assert "written under another study.json" in header
    (series,) = changed("series/0001.json", "0.5", "0.6")
    assert f"{folder}/series/0001.json: missing or damaged" in series
    (value,) = changed(best.FILE, "  value: ", "  value: 1")
    assert "best.yaml: objective.value: not as in trials.jsonl" in value
    (several,) = changed(best.FILE, "input: small", "input: large")
    assert "best.yaml: scenario: not as in trials.jsonl" in several
    (broken,) = changed(best.FILE, "knobs:", "knobs: [")
    assert "best.yaml:" in broken and "--resume" in broken
    (folder / best.FILE).unlink()
    (missing,) = check()
    assert "best.yaml: missing" in missing
    (folder / log.HEADER).unlink()
    assert cli.main(["check", str(folder)]) == 1
    assert "no study.json" in capsys.readouterr().out


def test_check_moves_lines_that_cannot_be_read_out_of_the_log(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, store, budget=3)
    folder = tmp_path / "synthetic-study"
    before = (folder / log.EVENTS).read_bytes()
    lines = before.splitlines(keepends=True)
    bad = [b"garbage\r\n", lines[5].replace(b"1", b"2", 1)]

    def check(*words: str) -> tuple[int, Any]:
        code = cli.main(["check", str(folder), "--json", *words])
        return code, json.loads(capsys.readouterr().out)

    remedy = "move 1 line of the log to trials.jsonl.damaged"
    (folder / log.EVENTS).write_bytes(b"".join([*lines[:2], bad[0], *lines[2:]]))
    capsys.readouterr()
    code, found = check()
    assert (code, found["remedies"], found["mended"]) == (1, [remedy], [])
    assert not (folder / "trials.jsonl.damaged").exists(), "only --repair changes anything"
    code, found = check("--repair")
    assert (code, found["problems"], found["mended"]) == (0, [], [remedy])
    assert (folder / log.EVENTS).read_bytes() == before
    # And what is there already stays.
    (folder / log.EVENTS).write_bytes(b"".join([*lines[:5], bad[1], *lines[6:]]))
    check("--repair")
    assert (folder / "trials.jsonl.damaged").read_bytes() == b"".join(bad)
    assert (folder / log.EVENTS).read_bytes() == b"".join([*lines[:5], *lines[6:]])
    assert check("--repair")[1]["mended"] == []


def test_check_leaves_a_log_alone_that_is_being_written(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, store, budget=2)
    folder = tmp_path / "synthetic-study"
    with (folder / log.EVENTS).open("ab") as file:
        file.write(b"garbage\n")
    before = (folder / log.EVENTS).read_bytes()
    with StudyLog(folder):
        assert cli.main(["check", str(folder), "--repair"]) == 2
    assert "is working on the study" in capsys.readouterr().err
    assert (folder / log.EVENTS).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "no such file or folder"),
        ("empty", "neither a study nor a folder of studies"),
        ("text.txt", "neither a best.yaml, the folder of a study or of studies, a stream (.tts)"),
        ("pipe.tts", "neither a best.yaml, the folder of a study or of studies, a stream (.tts)"),
    ],
)
def test_what_cannot_be_checked_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").touch()
    os.mkfifo(tmp_path / "pipe.tts")
    assert cli.main(["check", str(tmp_path / name)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"tune: error: {tmp_path / name}: {said}")


def test_a_report_that_cannot_be_written_costs_no_trial(tmp_path: Path, store: str) -> None:
    folder = tmp_path / "synthetic-study"
    (folder / "report.html").mkdir(parents=True)
    with pytest.raises(UserError, match=r"cannot write .*report\.html: Is a directory"):
        run(tmp_path, store, budget=3)
    assert len(study_of(tmp_path).done) == 3
    (folder / "report.html").rmdir()
    assert run(tmp_path, store, always_fails, budget=3, resume=True).failed == 0


@pytest.mark.slow
def test_tracking_that_fails_is_said_once_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(tmp_path, "sqlite:////proc/no/such/folder/mlflow.db", budget=4)
    assert summary.trials == 4
    assert capsys.readouterr().err.count("warning: MLflow at") == 1


@pytest.mark.slow
def test_report_stands_alone_and_names_everything(tmp_path: Path, store: str) -> None:
    run(tmp_path, store, budget=12)
    page = (tmp_path / "synthetic-study" / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    for title in ("What to do", "What was compared", "Knobs", "The search"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("<svg") >= 3
    for knob in KNOBS:
        assert f"<td>{knob.name}</td>" in page
    assert (tmp_path / "synthetic-study" / "importance.png").read_bytes()[:4] == b"\x89PNG"


def test_a_fast_tier_that_holds_everything_is_told(tmp_path: Path) -> None:
    machine = MACHINE.model_copy(update={"slow_gib": 8 * WORKLOAD.footprint_gib})
    wanted = request(tmp_path, machine=machine, ratio="1:8")
    advice = everything_fits(wanted)
    assert advice is not None and "nothing to tune" in advice
    assert everything_fits(request(tmp_path, machine=machine, ratio="1:9")) is None
    assert everything_fits(request(tmp_path)) is None  # a ratio of the footprint never holds it all


def test_a_study_of_what_fits_is_not_begun(tmp_path: Path) -> None:
    machine = MACHINE.model_copy(update={"slow_gib": 8 * WORKLOAD.footprint_gib})
    with pytest.raises(UserError, match="nothing to tune"):
        run_study(request(tmp_path, machine=machine, ratio="1:8"), runner=smooth)
    assert list(tmp_path.iterdir()) == []


TOO_LARGE = (
    r"cannot write .*/report\.html: File too large: `ulimit -f` of this shell allows no larger file"
)


def test_a_report_that_cannot_be_written_says_how_to_go_on(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a full disk: the report is the largest file of a study."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(UserError, match=TOO_LARGE):
            run(tmp_path, store, budget=3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    *_, stopped, resume = capsys.readouterr().err.splitlines()
    assert (
        stopped == f"stopped: 3 of 3 trials are done and stored in {tmp_path / 'synthetic-study'}"
    )
    assert resume.startswith("continue with: tune run ") and resume.endswith(" --resume")
    assert not (tmp_path / "synthetic-study/report.html").exists()
    assert run(tmp_path, store, budget=3, resume=True).trials == 3
    assert (tmp_path / "synthetic-study/report.html").exists()
