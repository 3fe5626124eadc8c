# SPDX-License-Identifier: MIT
"""The rule of `tune map`: what can be seen of a run, how a rule is judged, and how one is found."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tuner.map.rule import (
    ALL,
    AVOID,
    EQUAL_RATES,
    FEATURES,
    INFORMED,
    LOSE,
    Case,
    Condition,
    Rule,
    Run,
    derive,
    features,
    judge,
)

RUN = Run(
    metrics={
        "loads_fast": 600.0,
        "stores_fast": 200.0,
        "loads_slow": 150.0,
        "stores_slow": 50.0,
        "fast_hit_ratio": 0.8,
        "promotions": 20.0,
        "demotions": 15.0,
        "ping_pongs": 5.0,
        "migrated_bytes": 35.0 * 4096,
        "fast_capacity_bytes": 10.0 * 4096,
        "footprint_bytes": 40.0 * 4096,
    },
    breakdown={
        **{"compute": 10.0, "fast_stall": 8.0, "slow_stall": 22.0, "bandwidth": 0.0},
        **{"migration": 6.0, "sampling": 3.0, "policy": 1.0},
    },
    page_bytes=4096,
    unpromoted_hit_ratio=0.7,
)


def case(performance: float, **seen: float) -> Case:
    return Case(dict.fromkeys(ALL, 0.0) | seen, performance)


def line(values: Sequence[float], performances: Sequence[float], feature: str) -> list[Case]:
    return [case(p, **{feature: v}) for v, p in zip(values, performances, strict=True)]


def test_what_can_be_seen_of_a_run() -> None:
    assert features(RUN) == pytest.approx(
        {
            "demotions_per_promotion": 0.75,
            "ping_pong_share": 0.25,
            "fast_hit_ratio": 0.8,
            "hit_excess": 0.55,  # a quarter of the memory is fast
            "slow_stall_share": 22 / 50,
            "tiering_share": 10 / 50,
            "replacements_per_minute": 60 * 2 / 50,
            "moved_per_accessed": 35 * 4096 / 64000,
            "fast_hits_per_promotion": 40,
            "gained_hits_per_promotion": 550 / 20,
            "gain_over_cost": 550 * (22 / 200 - 8 / 800) / 10,
            "hits_raised": 0.1,
            "raised_hits_per_promotion": 5,
            "raise_over_cost": 100 * (22 / 200 - 8 / 800) / 10,
        }
    )
    assert list(features(RUN)) == list(ALL) == [*FEATURES, *INFORMED]


def test_a_run_that_promotes_nothing_cannot_be_turned_off() -> None:
    still = Run(dict(RUN.metrics) | {"promotions": 0.0}, RUN.breakdown, 4096, 0.7)
    assert features(still) == {}
    always = Rule((Condition("fast_hit_ratio", above=True, threshold=-1.0),))
    assert always.off(case(0.5))
    assert not always.off(Case({}, 0.5))
    assert judge(always, [case(0.5), Case({}, 0.5), Case({}, 1.5)]) == judge(always, [case(0.5)])


def test_a_rule_is_judged_by_harm_avoided_and_gain_lost() -> None:
    rule = Rule((Condition("tiering_share", above=True, threshold=0.5),))
    cases = [
        *(case(0.5, tiering_share=0.9), case(0.98, tiering_share=0.6)),  # avoided
        case(0.7, tiering_share=0.1),  # missed
        case(2.0, tiering_share=0.2),  # kept
        case(1.25, tiering_share=0.7),  # lost
        case(0.995, tiering_share=0.7),  # no harm: less than a percent
    ]
    found = judge(rule, cases)
    counts = found.harmful_off, found.harmful_on, found.good_off, found.good_on
    assert counts == (2, 1, 2, 1)
    assert found.avoided == pytest.approx(2 / 3)
    assert found.gain == pytest.approx(1.0 + 0.25 - 0.005)
    assert found.lost == pytest.approx(0.25 - 0.005)
    assert found.lost_share == pytest.approx(0.245 / 1.245)
    assert not found.met
    assert judge(rule, []).met


def test_conditions_hold_together_or_either() -> None:
    conditions = (
        Condition("tiering_share", above=True, threshold=0.5),
        Condition("fast_hit_ratio", above=False, threshold=0.2),
    )
    both, either = Rule(conditions), Rule(conditions, either=True)
    one = case(1.0, tiering_share=0.9, fast_hit_ratio=0.9)
    assert (both.off(one), either.off(one)) == (False, True)
    two = case(1.0, tiering_share=0.9, fast_hit_ratio=0.1)
    assert both.off(two)
    none = case(1.0, tiering_share=0.5, fast_hit_ratio=0.2)
    assert not either.off(none)
    assert str(both) == "tiering_share > 0.5 and fast_hit_ratio < 0.2"
    assert str(either) == "tiering_share > 0.5 or fast_hit_ratio < 0.2"


def test_one_threshold_is_found_between_the_cases_that_it_parts() -> None:
    cases = line([1, 2, 3, 4, 5], [2.0, 1.5, 1.2, 0.9, 0.5], "replacements_per_minute")
    rule = derive(cases)
    assert rule == Rule((Condition("replacements_per_minute", above=True, threshold=3.5),))
    cases = line([1, 2, 3, 4, 5], [0.2, 0.9, 1.2, 1.5, 2.0], "gain_over_cost")
    assert derive(cases) == Rule((Condition("gain_over_cost", above=False, threshold=2.5),))


def test_of_features_that_part_equally_well_the_simplest_is_taken() -> None:
    cases = [
        case(p, gain_over_cost=v, fast_hit_ratio=v, hit_excess=v)
        for v, p in ((1.0, 0.5), (2.0, 0.9), (3.0, 1.5))
    ]
    rule = derive(cases)
    assert rule is not None
    assert [condition.feature for condition in rule.conditions] == ["fast_hit_ratio"]


def test_one_threshold_may_cost_what_was_allowed_and_not_more() -> None:
    """Of 100 units of gain, the last good case has as much as the test gives it."""

    def cases(gain: float) -> list[Case]:
        good = line([1, 2], [1 + 100 - gain, 1 + gain], "ping_pong_share")
        return good + line([1.9, 3, 4], [0.5, 0.5, 0.5], "ping_pong_share")

    found = derive(cases(100 * LOSE * 0.9), ["ping_pong_share"])
    assert found == Rule((Condition("ping_pong_share", above=True, threshold=1.45),))
    found = derive(cases(100 * LOSE * 1.5), ["ping_pong_share"])
    assert found is not None
    assert not judge(found, cases(100 * LOSE * 1.5)).met


def test_two_thresholds_are_found_where_one_does_not_do() -> None:
    draw = random.Random(3)

    def cases(either: bool) -> list[Case]:
        found = []
        for _ in range(300):
            a, b = draw.random(), draw.random()
            bad = (a > 0.6 or b < 0.3) if either else (a > 0.4 and b < 0.7)
            performance = 0.8 if bad else 1.4
            found.append(case(performance, tiering_share=a, hit_excess=b))
        return found

    for either in (False, True):
        rule = derive(cases(either))
        assert rule is not None
        assert rule.either is either
        assert {(c.feature, c.above) for c in rule.conditions} == {
            ("tiering_share", True),
            ("hit_excess", False),
        }
        confusion = judge(rule, cases(either))  # other cases of the same law
        assert confusion.avoided > 0.9
        assert confusion.lost_share < 0.1


def test_what_cannot_be_parted_gives_the_closest() -> None:
    draw = random.Random(1)
    cases = [case(draw.choice([0.5, 2.0]), fast_hit_ratio=draw.random()) for _ in range(60)]
    rule = derive(cases)
    assert rule is not None
    found = judge(rule, cases)
    assert not found.met
    assert found.avoided < AVOID or found.lost_share > LOSE


def test_a_rule_is_found_among_the_features_that_are_given() -> None:
    """By default, none that a run alone does not tell."""
    cases = [case(p, hits_raised=v) for v, p in ((0.1, 0.5), (0.2, 0.9), (0.3, 1.5))]
    assert derive(cases) is None
    assert derive(cases, tuple(INFORMED)) == Rule((Condition("hits_raised", False, 0.25),))


def test_without_harm_there_is_no_rule() -> None:
    assert derive(line([1, 2], [1.5, 0.995], "ping_pong_share")) is None
    assert derive([Case({}, 0.5)]) is None
    assert derive([]) is None


def test_the_proposed_rule_compares_rates() -> None:
    assert EQUAL_RATES.off(case(1, demotions_per_promotion=1.0))
    assert EQUAL_RATES.off(case(1, demotions_per_promotion=0.96))
    assert not EQUAL_RATES.off(case(1, demotions_per_promotion=0.9))
