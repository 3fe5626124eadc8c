# SPDX-License-Identifier: MIT
"""One configuration for several workloads: what is searched, chosen, printed and refused."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from synthetic import always_fails, answer, noisy, request, seconds_of
from test_fleet import Shuffled, checks, inline, killed, trials

from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.experiment.loop import run_study
from tuner.experiment.recall import recall
from tuner.fleet import shared_report
from tuner.fleet.shared_report import Shared
from tuner.fleet.together import Alone, Part, lag_of, run_shared
from tuner.limits import GEOMEAN, TOGETHER, WORST
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import best as best_file
from tuner.study import log
from tuner.study.contender import Contender, Kind
from tuner.study.log import StudyLog
from tuner.study.request import StudyRequest
from tuner.study.together import Together, best_of, combined, costs, verdict_of
from tuner.study.verdict import Advice, Verdict

__all__ = ["inline"]

NAMES = ("long", "short")
BUDGET = 14


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the studies' own reports, which take a second each."""
    monkeypatch.setattr("tuner.report.page.write", lambda *_: [])


def by_study(trial: Trial) -> TrialResult:
    """`long` wants long periods, `short` short ones, and gains ten times as much by them."""
    if trial.scenario.policy != "paper":
        return answer(trial)
    if trial.study == "long":
        return noisy(trial)
    seconds = 1000 + 60 * math.log10(float(trial.knobs["period"]) / 5) ** 2
    return answer(trial, seconds + seconds_of(trial.knobs) / 100)


def planned(out: Path, how: str, **changes: Any) -> list[StudyRequest]:
    together = Together.model_validate(
        {"how": how, "studies": list(NAMES), "workloads": ["w:long", "w:short"]}
    )
    fields = {"alternatives": [], "explain": False, "resume": True, "budget": BUDGET}
    return [
        request(out, **fields | {"study": name, "together": together} | changes) for name in NAMES
    ]


def run_all(
    out: Path,
    how: str = WORST,
    *,
    workers: int = 1,
    alone: dict[str, Alone] | None = None,
    runner: Any = by_study,
    **changes: Any,
) -> Shared:
    requests = planned(out, how, workers=lag_of(workers, len(NAMES)), **changes)
    parts: list[Part] = run_shared(
        requests,
        requests[0].together,  # type: ignore[arg-type]
        workers=workers,
        alone=alone or {},
        go_on="tune run",
        runner=runner,
    )
    assert requests[0].together is not None
    return Shared(out / "both", requests[0].together, parts)


# --- One cost of several --------------------------------------------------------------------------


def test_one_cost_is_the_worst_or_the_geometric_mean() -> None:
    assert combined([0.5, 2.0, 1.0], WORST) == 2.0
    assert combined([0.5, 2.0, 1.0], GEOMEAN) == pytest.approx(1.0)
    assert combined([0.5, 0.5, 2.0], GEOMEAN) == pytest.approx(0.5 ** (1 / 3))


@pytest.mark.parametrize("how", TOGETHER)
def test_what_fails_on_one_workload_fails(how: str) -> None:
    assert combined([0.5, None], how) is None
    assert combined([], how) is None


def verdict(*, default: float, best: list[float], off: float, objective: str) -> Verdict:
    values = {Kind.off: [off] * 3, Kind.untuned: [default] * 3, Kind.tuned: best}
    contenders = [
        Contender(
            kind=kind,
            policy="first-touch" if kind is Kind.off else "paper",
            page_bytes=4096,
            values=[*each],
            moved=8.0,
        )
        for kind, each in values.items()
    ]
    return Verdict(
        advice=Advice.nothing, headline="", objective=objective, trials=9, contenders=contenders
    )


def test_the_verdict_is_on_the_worst_of_each_held_out_seed() -> None:
    """Of a throughput and a run time; which workload is the worst may differ by seed."""
    verdicts = [
        verdict(default=100.0, best=[50.0, 80.0, 50.0], off=160.0, objective="runtime"),
        verdict(default=10.0, best=[12.0, 20.0, 12.0], off=10.0, objective="throughput"),
    ]
    worst = Together(how="worst", studies=["a", "b"], workloads=["a", "b"])
    found = verdict_of(worst, verdicts, "paper")
    assert found.gain is not None and found.over_first_touch is not None
    assert found.gain.gain == pytest.approx((0.2 + 0.25 + 0.2) / 3)
    assert found.over_first_touch.gain == pytest.approx((0.2 + 1.0 + 0.2) / 3)
    assert found.advice is Advice.use_best
    assert found.headline.startswith("use best.yaml: 21.7 ")
    assert found.headline.endswith(", by the worst of a and b")
    mean = worst.model_copy(update={"how": GEOMEAN})
    gain = verdict_of(mean, verdicts, "paper").gain
    assert gain is not None
    assert gain.gain == pytest.approx(
        (2 * (math.sqrt(2.0 * 1.2) - 1) + math.sqrt(1.25 * 2.0) - 1) / 3
    )


def test_what_doing_nothing_gains_is_told_as_in_the_table() -> None:
    """The worst workload by the costs over the default's need not be the one that loses most."""
    verdicts = [
        verdict(default=100.0, best=[98.0, 98.0, 98.0], off=96.0, objective="runtime"),
        verdict(default=100.0, best=[90.0, 90.0, 90.0], off=70.0, objective="runtime"),
    ]
    both = Together(how="worst", studies=["a", "b"], workloads=["a", "b"])
    found = verdict_of(both, verdicts, "paper")
    assert found.advice is Advice.leave_off and found.over_first_touch is not None
    assert found.over_first_touch.gain == pytest.approx(70 / 90 - 1)
    assert found.headline == (
        "leave tiering off: the best of 9 trials is 22.2 ± 0.0 % slower than first-touch, by the "
        "worst of a and b"
    )


def test_one_workload_may_have_run_on_more_seeds() -> None:
    few = verdict(default=100.0, best=[50.0, 80.0, 50.0], off=160.0, objective="runtime")
    more = verdict(default=100.0, best=[50.0, 80.0, 50.0], off=160.0, objective="runtime")
    contenders = [each.model_copy(update={"values": each.values * 2}) for each in more.contenders]
    more = more.model_copy(update={"contenders": contenders, "seeds": [1, 2, 3, 5, 6, 7]})
    few = few.model_copy(update={"seeds": [1, 2, 3]})
    both = Together(how="worst", studies=["a", "b"], workloads=["a", "b"])
    for pair in ([few, more], [more, few]):
        found = verdict_of(both, pair, "paper")
        assert found.seeds == [1, 2, 3]
        assert [len(each.values) for each in found.contenders] == [3, 3, 3]


def test_a_gain_on_one_workload_does_not_pay_for_a_loss_on_another() -> None:
    verdicts = [
        verdict(default=100.0, best=[25.0, 26.0, 25.0], off=160.0, objective="runtime"),
        verdict(default=100.0, best=[112.0, 111.0, 112.0], off=160.0, objective="runtime"),
    ]
    for how, advice in ((WORST, Advice.keep_default), (GEOMEAN, Advice.use_best)):
        both = Together.model_validate({"how": how, "studies": ["a", "b"], "workloads": ["a", "b"]})
        assert verdict_of(both, verdicts, "paper").advice is advice


def test_latencies_are_called_latencies() -> None:
    verdicts = [verdict(default=90.0, best=[60.0, 61.0, 60.0], off=160.0, objective="p99")] * 2
    both = Together(how="worst", studies=["a", "b"], workloads=["a", "b"])
    assert " % lower p99 than the default" in verdict_of(both, verdicts, "paper").headline


# --- Studies --------------------------------------------------------------------------------------


def test_all_workloads_run_the_same_configurations(tmp_path: Path, inline: type[Shuffled]) -> None:
    run_all(tmp_path, workers=3)
    long, short = ([t[:3] for t in trials(tmp_path, name)] for name in NAMES)
    assert long == short
    assert len(long) == BUDGET


@pytest.mark.parametrize("how", TOGETHER)
def test_the_best_over_all_is_chosen(tmp_path: Path, inline: type[Shuffled], how: str) -> None:
    found = run_all(tmp_path, how, budget=24)
    logs = [log.load(tmp_path / name) for name in NAMES]
    over = [
        [t.result.cost / data.default.result.cost for t in data.done]  # type: ignore[union-attr,operator]
        for data in logs
    ]
    both = [combined(each, how) for each in zip(*over, strict=True)]
    best = min(range(24), key=lambda number: (both[number], number))
    assert costs(logs, range(24), how) == dict(enumerate(both))
    assert best_of(logs, how) == best
    tops = {data.top.number for data in logs if data.top}
    assert best not in tops or len(tops) == 1  # a compromise, which is none's own best
    kept = [best_file.read(tmp_path / name / best_file.FILE) for name in NAMES]
    assert {each.provenance.trial for each in kept} == {best}
    assert kept[0].knobs == kept[1].knobs
    assert all(each.together == found.together for each in kept)
    worst = min(range(24), key=lambda number: max(each[number] for each in over))
    assert (best == worst) == (how == WORST)


def test_the_search_learns_what_trials_cost_over_all(
    tmp_path: Path, inline: type[Shuffled], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[int, float | None]] = []

    def learned(*arguments: Any) -> dict[int, float | None]:
        told.append(costs(*arguments))
        return told[-1]

    monkeypatch.setattr("tuner.fleet.together.costs", learned)
    run_all(tmp_path, GEOMEAN)
    assert len(told) >= 5
    assert all(None not in each.values() and each[0] == pytest.approx(1.0) for each in told)


def test_timing_changes_nothing(
    tmp_path: Path, inline: type[Shuffled], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        monkeypatch.setattr(inline, "seed", seed)
        run_all(tmp_path / str(seed), workers=4)
    for name in NAMES:
        assert trials(tmp_path / "1", name) == trials(tmp_path / "2", name)


def test_a_larger_budget_goes_on(tmp_path: Path, inline: type[Shuffled]) -> None:
    run_all(tmp_path)
    before = [trials(tmp_path, name) for name in NAMES]
    found = run_all(tmp_path, budget=BUDGET + 4)
    assert found.verdict.trials == BUDGET + 4
    for name, earlier in zip(NAMES, before, strict=True):
        assert trials(tmp_path, name)[:BUDGET] == earlier
    with pytest.raises(UserError, match="18 trials already, more than --budget 14"):
        run_all(tmp_path)


def test_a_kill_at_any_record_changes_nothing(
    tmp_path: Path, inline: type[Shuffled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one between the records of two logs."""
    run_all(tmp_path / "whole", workers=3)
    kills = 0
    for records in range(1, 200, 17):
        out = tmp_path / str(records)
        run = partial(run_all, out, workers=3)
        if not killed(run, records, bool(kills % 2), monkeypatch):
            break
        kills += 1
        assert not any(out.glob(f"*/{best_file.FILE}"))  # nobody takes a workload's own best
        run_all(out, workers=3)
        for name in NAMES:
            assert trials(out, name) == trials(tmp_path / "whole", name)
            assert checks(out, name) == checks(tmp_path / "whole", name)
            assert log.load(out / name).chosen == log.load(tmp_path / "whole" / name).chosen
    assert kills >= 4


def test_what_is_complete_runs_nothing_again(tmp_path: Path, inline: type[Shuffled]) -> None:
    first = run_all(tmp_path)
    before = [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES]
    again = run_all(tmp_path, runner=always_fails)
    assert [(tmp_path / name / log.EVENTS).read_bytes() for name in NAMES] == before
    assert shared_report.content(again) == shared_report.content(first)


def test_a_default_that_fails_on_a_workload_ends_it(tmp_path: Path, inline: type[Shuffled]) -> None:
    def broken(trial: Trial) -> TrialResult:
        if trial.study == "short" and trial.scenario.policy == "paper":
            return TrialResult(
                study=trial.study, number=trial.number, status=Status.failed, error="no device"
            )
        return by_study(trial)

    for _ in range(2):  # also when it is resumed
        with pytest.raises(UserError, match=r"the defaults of paper fail, .*: no device"):
            run_all(tmp_path, runner=broken)
    assert len(log.load(tmp_path / "long").trials) <= 2


def test_a_study_of_several_is_not_resumed_alone(tmp_path: Path, inline: type[Shuffled]) -> None:
    run_all(tmp_path)
    one = planned(tmp_path, WORST)[0]
    with pytest.raises(UserError, match=r"together: was .*, is not there"):
        run_study(one.model_copy(update={"together": None, "budget": 20}), runner=by_study)
    other = planned(tmp_path, GEOMEAN)[0]
    with pytest.raises(UserError, match="how: was worst, is geomean"):
        run_study(other, runner=by_study)


def test_a_log_tells_what_its_study_came_to(tmp_path: Path, inline: type[Shuffled]) -> None:
    """As `tune report` and `tune unpack` read it, without the others."""
    found = run_all(tmp_path)
    for part in found.parts:
        with StudyLog(tmp_path / part.request.study) as study:
            conclusion = recall(study)
        assert conclusion is not None
        assert conclusion.verdict == part.summary.verdict
        assert conclusion.verdict.headline.endswith("chosen by the worst of w:long and w:short")


# --- What is shown --------------------------------------------------------------------------------


def test_what_was_tuned_alone_runs_on_the_same_seeds(
    tmp_path: Path, inline: type[Shuffled]
) -> None:
    ideal: dict[str, KnobValue] = {
        "period": 5,
        "threshold": 8.0,
        "share": 0.3,
        "mode": "eager",
        "aol": False,
    }
    own = Alone("short-alone", 77, ideal)
    found = run_all(tmp_path, GEOMEAN, alone={"short": own})
    long, short = found.parts
    assert (long.alone, long.behind) == (None, None)
    assert short.behind is not None and short.behind.pairs == 6
    best = best_file.read(tmp_path / "short" / best_file.FILE).knobs
    expected = [by_study(short.request.trial(0, knobs)).objective for knobs in (best, ideal)]
    assert short.behind.gain == pytest.approx(expected[1] / expected[0] - 1)  # type: ignore[operator]
    rows = dict(zip(NAMES, shared_report.rows(found), strict=True))
    assert rows["long"][-1] == "not measured"
    assert rows["short"][-1].endswith(" % faster")
    text = shared_report.text(found)
    assert "short-alone (77 trials)" in text
    assert "how far it is behind what is tuned for w:long alone was not measured" in text


def test_the_files_agree(tmp_path: Path, inline: type[Shuffled]) -> None:
    found = run_all(tmp_path)
    shared_report.write(found)
    content = json.loads((found.folder / shared_report.DATA).read_text())
    assert content["verdict"]["headline"] == found.verdict.headline
    assert [each["workload"] for each in content["workloads"]] == ["w:long", "w:short"]
    page = (found.folder / shared_report.PAGE).read_text()
    assert found.verdict.headline in page
    for row in shared_report.rows(found):
        assert all(cell in page for cell in row)
    assert "other amounts of fast memory were not tried" in page
    best = best_file.read(found.folder / best_file.FILE)
    assert best.verdict is not None
    assert best.verdict.headline == found.verdict.headline
    own = best_file.read(tmp_path / "long" / best_file.FILE)
    assert (best.knobs, best.scenario) == (own.knobs, own.scenario)
    for each, part in zip(content["workloads"], found.parts, strict=True):
        bound = part.summary.verdict.references["all-fast"]
        assert each["of_all_fast"] == pytest.approx(each["best"] / bound)


BOTH = ("run", "--workloads", "gups:smoke,silo:smoke")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*BOTH, "--robust", "neighbours"), "--robust with --workloads: must be worst or geomean"),
        ((*BOTH, "--policy", "hemem,memtis"), "--policy with --workloads: must be one policy"),
        ((*BOTH, "--policy", "all"), "--policy with --workloads: must be one policy"),
        ((*BOTH, "--input", "smoke"), "--input with --workloads: each workload has its own"),
        ((*BOTH, "--set", "items=5"), "--set with --workloads: each workload has its own sizes"),
        ((*BOTH, "--on", "emulated"), "--on with --workloads: trials must be simulated"),
        ((*BOTH, "--command", "true"), "--command with --workloads: trials must be simulated"),
        ((*BOTH, "--budget", "auto"), "--budget with --workloads: auto is for one workload"),
        ((*BOTH, "--from", "x"), "--from with --workloads: a study is of one workload"),
        (
            (*BOTH, "--objectives", "runtime,p99"),
            "--objectives with --workloads: several objectives",
        ),
        (
            (*BOTH, "--constraint", "p99<=4us"),
            "--constraint with --workloads: a constraint is for the trials",
        ),
        ((*BOTH, "--explain"), "--explain with --workloads: an explanation is of one workload"),
        (
            (*BOTH, "--rivals", "few"),
            "--rivals with --workloads: rivals are chosen for one workload",
        ),
        (("run", "--workloads", "gups"), "--workloads: found 'gups'; must be two or more"),
        (("run", "--workloads", "gups,gups"), "--workloads: found 'gups,gups'; must be two"),
        (("run", "--workloads", "gups,"), "--workloads: found 'gups,'; must be two or more"),
        (("run", "--workloads", "gups,gups:default"), "two have the same name and input"),
        (("run", "--workloads", "gups,nope"), "--workloads: nope: no workload 'nope'"),
        (("run", "-w", "gups", "--robust", "worst"), "--robust worst: is of several workloads"),
        ((*BOTH, "--ratio", "8"), "--workloads: gups:smoke: --ratio: found '8'; must be"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, run: Any, words: tuple[str, ...], message: str
) -> None:
    outcome = run(*words, "--out", str(tmp_path))
    assert outcome.code == 2
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_on_the_simulated_machine(tmp_path: Path, run: Any) -> None:
    words = ("--budget", "6", "--workers", "1", "--out", str(tmp_path), "--policy", "memtis")
    alone = ("--rivals", "none", "--robust", "none", "--no-explain")
    assert run("run", "-w", "gups", "-i", "smoke", *words, *alone).code == 0
    both = ("run", "--workloads", "gups:smoke,drift:smoke", "--robust", "geomean", *words)
    found = run(*both, "--json").json
    gups, drift = found["workloads"]
    assert gups["tuned_alone"]["trials"] == 6
    assert gups["tuned_alone"]["gain"]["pairs"] == 6
    assert drift["tuned_alone"] is None
    assert found["verdict"]["gain"]["pairs"] == 6
    for each in (gups, drift):
        sim = run("sim", "-w", each["workload"].split(":")[0], "--config", each["best_config"])
        assert sim.code == 0
    refused = run(*both)
    assert (refused.code, "continue with --resume" in refused.err) == (2, True)
    again = run(*both, "--resume", "--json").json
    assert again == found
