# SPDX-License-Identifier: MIT
"""`tune recommend`: what is tried, what is advised, and what is said of studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import answer

from tuner import cli, engine
from tuner.commands import recommend as command
from tuner.commands.run import study_request
from tuner.declarations import KnobValue
from tuner.documents import catalog, portfolio
from tuner.documents.portfolio import Configuration, Portfolio, Row
from tuner.errors import UserError
from tuner.experiment import recommend
from tuner.experiment.recommend import Plan
from tuner.limits import fast_share
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study import best as best_file
from tuner.study.verdict import HELD_OUT, Advice

REFERENCES = {"first-touch": 100.0, "all-fast": 20.0, "static-hot": 60.0}
DEFAULTS = {"freqtier": 90.0, "memtis": 95.0}
TUNED: dict[str, dict[str, KnobValue]] = {
    "freqtier": {"window": 40.0},
    "memtis": {"cooling_period": 4000.0},
}


def row(known: float, search: float, **sizes: float) -> Row:
    found = {f"k{key}"[1:].lstrip("_"): value for key, value in sizes.items()}
    return Row(
        known=known, known_is="x", default=1.0, search=search, search_is="x", workload=found,
        workload_is="x", family=found, family_is="x", nearest=found,
    )  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Portfolio:
    """A portfolio of three, with what it was worth on three workloads."""
    rows = {
        "gups": row(9.0, 9.0, _1=1.0, _10=2.0),
        "a": row(1.1, 1.0, _1=1.0, _10=1.0),
        "b": row(2.0, 1.5, _1=1.0, _10=1.5),
    }
    freqtier, memtis = (
        Configuration(policy=name, workload="a", knobs=TUNED[name]) for name in TUNED
    )
    found = Portfolio(
        source="there", engine_build="b", searches={"trials": 20}, candidates=9,
        portfolio=[Configuration(policy="freqtier"), freqtier, memtis],
        evidence={"1:8": rows, "1:2": {**rows, "b": row(3.0, 1.5, _10=1.5)}},
        tuned={"memtis": [memtis]},
    )  # fmt: skip
    monkeypatch.setattr(portfolio, "published", lambda: found)
    return found


def result(trial: Trial, seconds: float) -> TrialResult:
    update = {"objective": seconds, "cost": seconds, "number": trial.number}
    return answer(trial, seconds).model_copy(update=update)


def seconds_of(trial: Trial, tuned: float, other: float) -> float:
    """Of freqtier's configuration and of memtis's; seeds make a difference of a hundredth."""
    scenario = trial.scenario
    if scenario.policy in REFERENCES:
        return REFERENCES[scenario.policy]
    own = engine.resolve(scenario.policy, {})
    changed = dict(trial.knobs) != own
    values = {"freqtier": tuned, "memtis": other}
    seconds = values[scenario.policy] if changed else DEFAULTS[scenario.policy]
    return seconds * (1 + 0.01 * (scenario.seed % 3))


def done(plan: Plan, seconds: Callable[[Trial], float | None]) -> Plan:
    while wanted := plan.jobs():
        for trial in wanted:
            assert isinstance(trial, Trial)
            took = seconds(trial)
            found = result(trial, took or 1.0)
            if took is None:
                gone = {"status": Status.failed, "objective": None, "cost": None, "error": "no"}
                found = found.model_copy(update=gone)
            plan.take(trial, found)
    return plan


def test_the_best_of_the_portfolio_is_advised_with_gains_on_held_out_seeds(
    small: Portfolio, tmp_path: Path
) -> None:
    plan = done(recommend.plan("gups"), lambda trial: seconds_of(trial, 50.0, 70.0))
    found = recommend.judge(plan)
    assert found.policy == "freqtier" and found.configuration == small.portfolio[1]
    assert found.tried[0].configuration == small.portfolio[1]
    assert found.tried[0].gain == pytest.approx(1.0)
    verdict = found.verdict
    assert verdict.advice is Advice.use_best and len(verdict.seeds) == HELD_OUT
    assert 0 not in verdict.seeds
    assert verdict.over_first_touch is not None and verdict.over_first_touch.half_width
    assert verdict.over_first_touch.gain == pytest.approx(0.98, abs=0.02)
    assert found.headline.startswith("use freqtier tuned for a: 98.")
    assert found.ceiling == pytest.approx(1.52, abs=0.02)
    # Three tried, three references, default and configuration on six seeds; the default ran.
    assert found.runs == 3 + 3 + 2 * HELD_OUT
    file = tmp_path / "best.yaml"
    best_file.write(recommend.configuration(plan, found, "2026-01-01T00:00:00+00:00"), file)
    written = best_file.read(file)
    assert written.objective.value == 50.0 and written.objective.default_value == 90.0
    assert written.knobs == engine.resolve("freqtier", TUNED["freqtier"])
    assert written.scenario == found.scenario
    assert best_file.changes_since(written) == []
    words = ["run", "--workload", "gups", "--from", str(file), "--policy"]
    request = study_request(cli.arguments_of([*words, "freqtier"]))
    assert request.starts == [{knob.name: written.knobs[knob.name] for knob in request.tuned}]
    with pytest.raises(UserError, match=r"best.yaml: is of policy freqtier, not of memtis"):
        study_request(cli.arguments_of([*words, "memtis"]))


def test_a_default_is_advised_where_no_configuration_beats_it(small: Portfolio) -> None:
    plan = done(recommend.plan("gups"), lambda trial: seconds_of(trial, 92.0, 99.0))
    found = recommend.judge(plan)
    assert found.configuration == Configuration(policy="freqtier")
    assert found.headline.startswith("use freqtier at its defaults: ")
    best = recommend.configuration(plan, found, "2026-01-01T00:00:00+00:00")
    assert best.knobs == engine.resolve("freqtier", {})

    def noisy(trial: Trial) -> float:
        """The tuned one is ahead by a hair, and now the one is faster, now the other."""
        tuned = trial.knobs.get("window") == TUNED["freqtier"]["window"]
        turn = trial.scenario.seed and trial.scenario.seed % 2 == tuned
        return seconds_of(trial, 89.9, 99.0) + 5.0 * turn

    found = recommend.judge(done(recommend.plan("gups"), noisy))
    assert found.tried[0].configuration == small.portfolio[1]
    assert found.configuration == Configuration(policy="freqtier")


def test_first_touch_is_advised_where_nothing_beats_it(small: Portfolio) -> None:
    plan = done(recommend.plan("gups"), lambda trial: max(100.0, seconds_of(trial, 100.0, 120.0)))
    found = recommend.judge(plan)
    assert found.policy == "first-touch" and found.configuration is None
    assert found.headline.startswith("use first-touch: the best of 3 configurations is not ")
    assert found.scenario.policy == "first-touch"
    assert not found.failed


def test_what_fails_is_left_out_and_said(small: Portfolio) -> None:
    def seconds(trial: Trial) -> float | None:
        gone = trial.scenario.policy == "freqtier"
        return None if gone else seconds_of(trial, 50.0, 70.0)

    found = recommend.judge(done(recommend.plan("gups"), seconds))
    assert found.policy == "memtis"
    assert [each.error for each in found.tried] == ["", "failed: no", "failed: no"]
    nothing = recommend.judge(done(recommend.plan("gups"), lambda trial: None))
    assert nothing.failed and nothing.headline.startswith("no result")


def test_policies_that_are_asked_for_are_tried_with_all_their_configurations(
    small: Portfolio,
) -> None:
    plan = recommend.plan("gups", ["memtis", "hemem", "memtis"])
    names = [each.name for each in plan.among]
    assert names == ["memtis at its defaults", "memtis tuned for a", "hemem at its defaults"]
    found = recommend.judge(done(plan, lambda trial: seconds_of_any(trial)))
    assert found.evidence is None and "of the whole portfolio" in found.unlike[0]
    assert "memtis-hemem" in plan.name and "portfolio" in recommend.plan("gups").name
    for policy in ("first-touch", "offline-optimal"):
        with pytest.raises(UserError, match="cannot be advised; must be one that has knobs"):
            recommend.plan("gups", [policy])


def seconds_of_any(trial: Trial) -> float:
    return REFERENCES.get(trial.scenario.policy, 50.0)


def test_a_published_workload_is_no_evidence_for_itself(small: Portfolio) -> None:
    left = portfolio.left(fast_share("1:8"), without="gups")
    assert left.workloads == 2 and left.worst_is == "b"
    assert left.worst == pytest.approx(2.0 / 1.5 - 1)
    assert left.mean == pytest.approx((1.1 * 2.0 / 1.5) ** 0.5 - 1)
    assert portfolio.left(fast_share("1:8")).worst == pytest.approx(3.5)
    assert portfolio.left(fast_share("1:3")).ratio == "1:2"
    found = recommend.judge(
        done(recommend.plan("gups", ratio="1:3"), lambda trial: seconds_of(trial, 50.0, 70.0))
    )
    assert found.evidence == portfolio.left(fast_share("1:3"), without="gups")
    assert found.unlike[0] == "measured at 1:2, and not at 1:3"
    assert "gups had a part in choosing the portfolio" in found.unlike[1]


@pytest.mark.parametrize(("ceiling", "advised"), [(None, True), (0.5, True), (0.01, False)])
def test_a_study_is_worth_it_where_there_is_room(
    small: Portfolio, ceiling: float | None, advised: bool
) -> None:
    evidence = portfolio.left(fast_share("1:8"))
    assert recommend._study(evidence, ceiling) is advised
    hardly = evidence.model_copy(update={"search_tenth": 0.001})
    assert not recommend._study(hardly, ceiling)


# --- What is shipped ------------------------------------------------------------------------------


def test_the_shipped_configurations_are_legal_today() -> None:
    found = portfolio.published()
    assert 0 < len(found.portfolio) == len({str(each) for each in found.portfolio})
    workloads = catalog.names(catalog.Kind.workload)
    for each in [*found.portfolio, *(one for row in found.tuned.values() for one in row)]:
        whole, usual = engine.resolve(each.policy, each.knobs), engine.resolve(each.policy, {})
        assert {name: whole[name] for name in each.knobs} == each.knobs
        assert all(usual[name] != value for name, value in each.knobs.items())
        assert each.workload is None or each.workload in workloads
    for rows in found.evidence.values():
        assert set(rows) <= set(workloads)
        for row in rows.values():
            assert max(map(int, row.family)) == len(found.portfolio)


@pytest.mark.parametrize(
    ("policy", "knobs", "profile", "server"),
    [
        ("soar", {}, True, True),
        ("unified", {"placement": "profile"}, True, True),
        ("unified", {"placement": "first-touch"}, False, False),
        ("memtis", {}, False, False),
        ("pact", {}, False, True),
    ],
)
def test_what_advice_needs_before_it_can_be_used_is_said(
    small: Portfolio, policy: str, knobs: dict[str, KnobValue], profile: bool, server: bool
) -> None:
    taken = Configuration(policy=policy, knobs=knobs)
    plan = done(recommend.plan("gups", [policy]), lambda trial: 50.0)
    found = recommend.judge(plan).model_copy(update={"configuration": taken})
    told = "\n".join(command._needs(found))
    words = f"tune profile gups --policy {policy} --input default --machine pmem-large"
    assert (words in told) == profile
    assert ("server     no target of `tune apply` runs it: " in told) == server
    content = command._content(plan, found, None)
    assert content["profile"] == (words if profile else None)
    if profile:  # it is a command that is there
        assert cli.arguments_of(words.split()[1:]).policy == policy


def test_first_touch_needs_nothing(small: Portfolio) -> None:
    plan = done(recommend.plan("gups", ["soar"]), lambda trial: 50.0)
    found = recommend.judge(plan).model_copy(update={"configuration": None})
    assert command._needs(found) == []


@pytest.mark.slow  # makes a stream, and runs the engine
def test_the_command_advises_and_its_file_replays(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["recommend", "--workload", "gups", "--input", "smoke", "--json"]
    outcome = run(*words)
    assert outcome.code == 0
    told = json.loads(outcome.out)
    folder = tmp_path / "results" / "recommend-gups-smoke-portfolio-pmem-large-1to8-runtime-seed0"
    assert told["file"] == str(folder / "best.yaml")
    assert json.loads((folder / "recommend.json").read_text()) == told
    assert told["run"].startswith("tune run --workload gups --input smoke --policy ")
    assert told["verdict"]["over_first_touch"]["gain"] > 0
    again = run("sim", "--workload", "gups", "--input", "smoke", "--config", told["file"])
    assert again.code == 0 and "reproduced exactly" in again.out
    text = run(*words[:-1])
    assert told["headline"] in text.out and told["run"] in text.out
    assert run(*words).out == outcome.out  # from the cache
