# SPDX-License-Identifier: MIT
"""The optimizer: schedule, determinism, conditions, pending and failed trials, small spaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import python_path
from numpy.typing import NDArray
from smac.model.random_forest import RandomForest
from synthetic import KNOBS, seconds_of

from tuner.declarations import KnobCondition, KnobDecl, KnobValue
from tuner.errors import UserError
from tuner.optimize import optimizer
from tuner.optimize.optimizer import Optimizer, Proposal, SpaceExhausted, initial_trials
from tuner.optimize.search import MOST_LEARNED, Forest, Process, instructive, suggest
from tuner.optimize.space import Space

AOL_LOW = KNOBS[-1]


def real(name: str, **changes: Any) -> KnobDecl:
    fields: dict[str, Any] = {"name": name, "type": "real", "default": 0.5, "min": 0.0, "max": 1.0}
    return KnobDecl(**(fields | changes))


def drive(optimizer: Optimizer, trials: int, costs: Any = seconds_of) -> list[Proposal]:
    """Runs to `trials`, telling the oldest result whenever the optimizer needs one."""
    proposals: list[Proposal] = []
    told = 0
    while len(proposals) < trials:
        while not optimizer.ready():
            optimizer.tell(told, costs(proposals[told].knobs))
            told += 1
        proposals.append(optimizer.ask())
    for number in range(told, trials):
        optimizer.tell(number, costs(proposals[number].knobs))
    return proposals


@pytest.mark.parametrize(
    ("budget", "expected"), [(1, 1), (2, 2), (5, 2), (10, 2), (50, 10), (100, 20)]
)
def test_initial_trials_scale_with_the_budget(budget: int, expected: int) -> None:
    assert initial_trials(budget) == expected


@pytest.mark.slow
def test_schedule_is_default_then_initial_then_mostly_the_model() -> None:
    proposals = drive(Optimizer(KNOBS, seed=3, initial=20), 60)
    origins = [proposal.origin for proposal in proposals]
    assert origins[0] == "default"
    assert proposals[0].knobs == {knob.name: knob.default for knob in KNOBS}
    assert set(origins[1:20]) == {"initial"}
    assert set(origins[20:]) == {"model", "random"}
    assert 0 < origins[20:].count("random") <= 17  # 40 draws at 0.2: within 3.5 sigma
    assert [proposal.number for proposal in proposals] == list(range(60))
    assert len({json.dumps(proposal.knobs, sort_keys=True) for proposal in proposals}) == 60


def test_starts_come_after_the_default_in_place_of_random_ones() -> None:
    default = {knob.name: knob.default for knob in KNOBS}
    starts = [default | {"share": 0.25}, default | {"period": 7}]
    proposals = drive(Optimizer(KNOBS, seed=3, initial=5, starts=starts), 8)
    assert [proposal.knobs for proposal in proposals[:3]] == [default, *starts]
    origins = [proposal.origin for proposal in proposals]
    assert origins[:5] == ["default", "start", "start", "initial", "initial"]
    assert set(origins[5:]) <= {"model", "random"}
    few = drive(Optimizer(KNOBS, seed=3, initial=2, starts=starts), 4)
    assert [proposal.origin for proposal in few[:3]] == ["default", "start", "start"]
    assert few[3].origin in ("model", "random")


def test_same_seed_same_sequence_other_seed_another() -> None:
    one = drive(Optimizer(KNOBS, seed=3, initial=4), 12)
    assert drive(Optimizer(KNOBS, seed=3, initial=4), 12) == one
    assert drive(Optimizer(KNOBS, seed=4, initial=4), 12) != one


@pytest.mark.slow
def test_sequence_does_not_depend_on_the_process() -> None:
    """Hashes of strings differ between processes; nothing may be ordered by them."""
    code = (
        "import json; from synthetic import *; from test_optimizer import *\n"
        "print(json.dumps([p.knobs for p in drive(Optimizer(KNOBS, seed=7, initial=4), 14)]))"
    )
    here = Path(__file__).parent
    outputs = []
    for hash_seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": python_path(*sys.path),
        }
        outputs.append(
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                cwd=here, env=environment, check=True, capture_output=True, text=True,
            ).stdout
        )  # fmt: skip
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])) == 14


def test_replayed_trials_continue_the_same_sequence() -> None:
    whole = drive(Optimizer(KNOBS, seed=5, initial=4), 14)
    for cut in (1, 3, 9):
        resumed = Optimizer(KNOBS, seed=5, initial=4)
        for proposal in whole[:cut]:
            resumed.replay(proposal.number, proposal.knobs)
            resumed.tell(proposal.number, seconds_of(proposal.knobs))
        rest: list[Proposal] = []
        while len(rest) < 14 - cut:
            rest.append(resumed.ask())
            resumed.tell(rest[-1].number, seconds_of(rest[-1].knobs))
        assert rest == whole[cut:]


@pytest.mark.slow
def test_order_of_results_does_not_matter_with_several_workers() -> None:
    def run(newest_first: bool) -> list[Proposal]:
        optimizer = Optimizer(KNOBS, seed=5, initial=4, lag=3)
        proposals: list[Proposal] = []
        running: list[int] = []
        while len(proposals) < 15:
            while not optimizer.ready():
                number = running.pop(-1 if newest_first else 0)
                optimizer.tell(number, seconds_of(proposals[number].knobs))
            proposals.append(optimizer.ask())
            running.append(proposals[-1].number)
        return proposals

    assert run(newest_first=True) == run(newest_first=False)


def test_asking_too_early_is_refused() -> None:
    optimizer = Optimizer(KNOBS, seed=1, initial=2, lag=2)
    optimizer.ask()
    optimizer.ask()
    assert not optimizer.ready()
    with pytest.raises(ValueError, match="needs the results"):
        optimizer.ask()
    optimizer.tell(0, 1.0)
    assert optimizer.ready()


def test_pending_trial_is_not_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model would propose a certain configuration. While that is pending, it proposes another.

    A model that does not learn of it proposes it once more, and the optimizer draws at random.
    """
    monkeypatch.setattr(optimizer, "RANDOM_PROBABILITY", 0.0)
    monkeypatch.setattr(
        optimizer, "suggest", lambda space, known, _, process: suggest(space, known, 1)
    )
    history = drive(Optimizer(KNOBS, seed=2, initial=12), 12)

    def after_history(lag: int) -> Optimizer:
        resumed = Optimizer(KNOBS, seed=2, initial=12, lag=lag)
        for past in history:
            resumed.replay(past.number, past.knobs)
            resumed.tell(past.number, seconds_of(past.knobs))
        return resumed

    first = after_history(lag=1).ask()
    assert first.origin == "model"
    busy = after_history(lag=2)
    busy.replay(first.number, first.knobs)
    second = busy.ask()
    assert second.origin == "model"
    assert second.knobs != first.knobs


@pytest.mark.slow
@pytest.mark.slow
def test_model_beats_random_search() -> None:
    """Sum over seeds of the best cost: the model must find what 40 random draws do not."""
    optimum = 99.9
    model, chance = 0.0, 0.0
    for seed in range(10):
        guided = drive(Optimizer(KNOBS, seed=seed, initial=8), 40)
        model += min(seconds_of(p.knobs) for p in guided) - optimum
        blind = drive(Optimizer(KNOBS, seed=seed, initial=40), 40)
        chance += min(seconds_of(p.knobs) for p in blind) - optimum
    assert model < 0.7 * chance


def test_inactive_knobs_are_at_their_default() -> None:
    proposals = drive(Optimizer(KNOBS, seed=9, initial=10), 20)
    inactive = [p.knobs["aol.low"] for p in proposals if not p.knobs["aol"]]
    active = [p.knobs["aol.low"] for p in proposals if p.knobs["aol"]]
    assert set(inactive) == {AOL_LOW.default}
    assert len(set(active)) > 1


def test_knobs_are_plain_values_within_limits() -> None:
    for proposal in drive(Optimizer(KNOBS, seed=11, initial=15), 20):
        for knob in KNOBS:
            value = proposal.knobs[knob.name]
            assert (
                type(value)
                is {"integer": int, "real": float, "boolean": bool, "choice": str}[knob.type]
            )
            if knob.type in ("integer", "real"):
                assert knob.min is not None and knob.max is not None
                assert knob.min <= float(value) <= knob.max
            if knob.type == "choice":
                assert value in knob.choices


def test_values_survive_the_way_through_configspace() -> None:
    space = Space(KNOBS)
    rng = np.random.default_rng(0)
    for _ in range(50):
        knobs = space.sample(rng)
        configuration = space.configuration(knobs)
        assert configuration is not None
        assert space.knobs(configuration) == knobs


@pytest.mark.parametrize(("aol", "tuned"), [(True, ["aol.low"]), (False, []), (None, [])])
def test_condition_on_a_knob_that_is_not_tuned_is_decided_by_its_value(
    aol: bool | None, tuned: list[str]
) -> None:
    fixed = [] if aol is None else [KnobDecl(name="aol", type="boolean", default=aol)]
    assert Space([AOL_LOW], fixed).tuned == tuned


def test_condition_goes_through_a_knob_that_is_not_tuned() -> None:
    """window acts while the ladder is on, which is not tuned, and the ladder while preset is ours,
    which is tuned."""
    preset = KnobDecl(name="preset", type="choice", default="ours", choices=["ours", "static"])
    ladder = KnobDecl(
        name="ladder", type="boolean", default=True,
        condition=KnobCondition(parent="preset", values=["ours"]),
    )  # fmt: skip
    window = real("window", condition=KnobCondition(parent="ladder", values=[True]))
    space = Space([window, preset], [ladder])
    assert space.tuned == ["window", "preset"]
    for value, active in (("ours", True), ("static", False)):
        knobs: dict[str, KnobValue] = {"window": 0.7, "preset": value}
        assert space.active("window", knobs) == active
        configuration = space.configuration(knobs)
        assert configuration is not None
        assert ("window" in configuration) == active
    off = ladder.model_copy(update={"default": False})
    assert Space([window, preset], [off]).tuned == ["preset"]


def test_chain_of_conditions() -> None:
    knobs = [
        real("leaf", condition=KnobCondition(parent="middle", values=["on"])),
        KnobDecl(
            name="middle", type="choice", default="off", choices=["off", "on"],
            condition=KnobCondition(parent="root", values=[True]),
        ),
        KnobDecl(name="root", type="boolean", default=False),
    ]  # fmt: skip
    proposals = drive(Optimizer(knobs, seed=1, initial=3), 25, lambda k: 1.0 + abs(k["leaf"] - 0.9))
    for proposal in proposals[1:]:
        if not proposal.knobs["root"]:
            assert proposal.knobs["middle"] == "off"
        if proposal.knobs["middle"] == "off":
            assert proposal.knobs["leaf"] == 0.5
    assert any(p.knobs["leaf"] != 0.5 for p in proposals)


def test_knob_with_one_value_is_constant_and_kept() -> None:
    knobs = [real("a"), real("b", min=0.25, max=0.25, default=0.25),
             KnobDecl(name="c", type="choice", default="x", choices=["y"])]  # fmt: skip
    space = Space(knobs)
    assert space.tuned == ["a"]
    proposals = drive(Optimizer(knobs, seed=1, initial=2), 4, lambda k: 1.0 + k["a"])
    assert proposals[0].knobs == {"a": 0.5, "b": 0.25, "c": "x"}
    assert all(p.knobs["b"] == 0.25 and p.knobs["c"] == "y" for p in proposals[1:])


def test_default_outside_a_narrowed_range_is_still_tried_first() -> None:
    knobs = [real("a", min=0.8, max=1.0)]
    proposals = drive(Optimizer(knobs, seed=1, initial=2), 8, lambda k: 1.0 + k["a"])
    assert proposals[0].knobs == {"a": 0.5}
    assert all(0.8 <= float(p.knobs["a"]) <= 1.0 for p in proposals[1:])


def test_finite_space_ends_when_everything_was_tried() -> None:
    knobs = [KnobDecl(name="a", type="boolean", default=False),
             KnobDecl(name="b", type="choice", default="x", choices=["x", "y", "z"])]  # fmt: skip
    optimizer = Optimizer(knobs, seed=1, initial=2)
    proposals = drive(optimizer, 6, lambda k: 1.0 + (k["b"] == "z"))
    assert len({json.dumps(p.knobs) for p in proposals}) == 6
    with pytest.raises(SpaceExhausted, match="all 6 configurations"):
        optimizer.ask()


@pytest.mark.slow
def test_failed_trials_steer_the_model_away() -> None:
    """Half of the space fails: the model proposes less of it than chance would."""
    knobs = [real("a"), real("b")]

    def costs(knobs: dict[str, Any]) -> float | None:
        return None if knobs["a"] > 0.5 else 1.0 + knobs["b"]

    proposals = drive(Optimizer(knobs, seed=1, initial=8), 40, costs)
    chosen = [p for p in proposals if p.origin == "model"]
    failed = [p for p in chosen if costs(p.knobs) is None]
    assert len(failed) < 0.4 * len(chosen)
    worked = [p for p in chosen if costs(p.knobs) is not None]
    assert min(float(p.knobs["b"]) for p in worked) < 0.05


def test_study_in_which_everything_fails_goes_on_at_random() -> None:
    proposals = drive(Optimizer(KNOBS, seed=1, initial=2), 6, lambda _: None)
    assert [p.origin for p in proposals[2:]] == ["random"] * 4


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), 0.0, -1.0])
def test_costs_must_be_positive_and_finite(cost: float) -> None:
    optimizer = Optimizer(KNOBS, seed=1, initial=2)
    optimizer.ask()
    with pytest.raises(ValueError, match="not a positive number"):
        optimizer.tell(0, cost)


def test_telling_twice_or_what_was_not_asked_is_refused() -> None:
    optimizer = Optimizer(KNOBS, seed=1, initial=2)
    optimizer.ask()
    optimizer.tell(0, 1.0)
    for number in (0, 1, -1):
        with pytest.raises(ValueError, match="not waiting"):
            optimizer.tell(number, 1.0)


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        (real("a", log=True), "logarithmic"),
        (real("a", min=None), "no limits"),
        (KnobDecl(name="a", type="integer", default=1, min=0.2, max=0.8), "no integer"),
    ],
)
def test_unusable_knob_is_named(knob: KnobDecl, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Space([knob])


def test_a_long_study_learns_from_its_best_and_its_latest_trials() -> None:
    space = Space(KNOBS).configspace
    costs = [float(1 + (7 * index) % 1000) for index in range(1000)]
    drawn = space.sample_configuration()
    known = [(drawn, cost) for cost in costs]
    assert instructive(known[:MOST_LEARNED], MOST_LEARNED) == known[:MOST_LEARNED]
    learned = [cost for _, cost in instructive(known, MOST_LEARNED)]
    half = MOST_LEARNED // 2
    assert len(learned) == MOST_LEARNED
    assert learned[half:] == costs[-half:]
    assert set(learned[:half]) == set(sorted(costs[:-half])[:half])
    assert learned[:half] == [cost for cost in costs[:-half] if cost in learned[:half]]


def test_equal_configurations_count_once_with_their_last_cost() -> None:
    space = Space(KNOBS)
    rng = np.random.default_rng(1)
    drawn = [space.configuration(space.sample(rng)) for _ in range(12)]
    known = [(one, 100.0 + k) for k, one in enumerate(drawn) if one is not None]
    once = suggest(space.configspace, known, 5)
    assert once is not None
    before = [(one, 1.0) for one, _ in known]
    assert suggest(space.configspace, [*before, *known], 5) == once
    assert once not in [one for one, _ in known]


@pytest.mark.parametrize("digits", [-1, 0, 9])  # leaves of many trials, of some, of one
def test_the_forest_is_that_of_smac_to_the_bit(digits: int) -> None:
    space = Space(KNOBS)
    rng = np.random.default_rng(7)
    drawn = [space.configuration(space.sample(rng)) for _ in range(150)]
    points = np.array([one.get_array() for one in drawn if one is not None])
    costs = np.log(np.round(100 * (1 + rng.random(len(points))), digits))[:, None]
    ours, theirs = Forest(space.configspace, 3), Forest(space.configspace, 3)
    ours.train(points, costs)
    RandomForest._train(theirs, points, costs)
    assert ours._rf is not None and theirs._rf is not None
    for one, other in zip(ours._rf.estimators_, theirs._rf.estimators_, strict=True):
        assert np.array_equal(one.tree_.value, other.tree_.value)


def test_every_second_model_is_a_process_whose_lengths_are_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[NDArray[np.float64]] = []
    trained = Process._train
    asked: list[tuple[int, bool]] = []

    def train(self: Process, *data: Any) -> Process:
        trained(self, *data)
        lengths.append(self._gp.kernel_.theta)
        return self

    def told(space: Any, known: Any, seed: int, *, process: bool) -> Any:
        asked.append((len(known), process))
        return suggest(space, known, seed, process=process)

    monkeypatch.setattr(optimizer, "RANDOM_PROBABILITY", 0.0)
    monkeypatch.setattr(optimizer, "suggest", told)
    monkeypatch.setattr(Process, "_train", train)
    proposals = drive(Optimizer(KNOBS, seed=3, initial=6), 14)
    assert [each.origin for each in proposals[6:]] == 8 * ["model"]
    assert asked == [(number, number % 2 == 0) for number in range(6, 14)]
    assert len(lengths) == 4
    for found in lengths:
        assert np.allclose(100 * found, np.round(100 * found), atol=1e-9)
        assert len(set(found)) > 2  # learned, not where they began


def test_a_process_learns_from_few_and_equal_costs() -> None:
    space = Space(KNOBS)
    rng = np.random.default_rng(4)
    drawn = [c for _ in range(8) if (c := space.configuration(space.sample(rng))) is not None]
    for known in ([(drawn[0], 5.0)], [(one, 5.0) for one in drawn]):
        found = suggest(space.configspace, known, 1, process=True)
        assert found is not None and found not in drawn
        assert found == suggest(space.configspace, known, 1, process=True)


def test_where_the_process_cannot_be_fitted_the_forest_proposes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = Space(KNOBS)
    rng = np.random.default_rng(2)
    drawn = [c for _ in range(8) if (c := space.configuration(space.sample(rng))) is not None]
    known = [(one, 5.0 + n) for n, one in enumerate(drawn)]

    def singular(self: Process, *data: Any) -> Process:
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(Process, "_train", singular)
    found = suggest(space.configspace, known, 1, process=True)
    assert found is not None
    assert found == suggest(space.configspace, known, 1)


def test_a_search_goes_on_from_trials_of_an_earlier_study() -> None:
    """Its costs are on another scale: what counts is how they stand to the default's."""
    earlier = drive(Optimizer(KNOBS, seed=5, initial=10), 40)
    costs = [3 * seconds_of(proposal.knobs) for proposal in earlier]
    known = [(p.knobs, cost / costs[0]) for p, cost in zip(earlier, costs, strict=True)]
    least = min(costs) / 3
    proposals = drive(Optimizer(KNOBS, seed=6, initial=4, prior=known), 8)
    assert [each.origin for each in proposals] == ["default"] + 7 * ["model"]
    alone = drive(Optimizer(KNOBS, seed=6, initial=4), 8)
    here, there = (min(seconds_of(p.knobs) for p in each) for each in (proposals, alone))
    assert here - least < 0.3 * (there - least)


def test_without_a_default_nothing_is_known_of_an_earlier_study() -> None:
    earlier = drive(Optimizer(KNOBS, seed=5, initial=10), 20)
    prior = [(proposal.knobs, 0.5) for proposal in earlier]
    search = Optimizer(KNOBS, seed=6, initial=4, prior=prior)
    search.tell(search.ask().number, None)
    assert search.ask().origin == "random"
