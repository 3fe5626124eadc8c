# SPDX-License-Identifier: MIT
"""The verdict: what a user is told to do, in each case, and how sure that is."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tuner.objective import OBJECTIVES
from tuner.report.contenders import policies
from tuner.study.contender import Contender, Kind, difference, interval
from tuner.study.verdict import (
    HELD_OUT,
    Advice,
    Verdict,
    chosen,
    decide,
    left_to_chance,
    merge,
    way,
)
from tuner.text import faster


def contender(kind: Kind, policy: str, *values: float | None, page_bytes: int = 4096) -> Contender:
    study = f"study-{policy}" if kind is Kind.tuned else None
    return Contender(
        kind=kind, policy=policy, page_bytes=page_bytes, values=list(values), study=study
    )


def steady(kind: Kind, policy: str, mean: float, page_bytes: int = 4096) -> Contender:
    """A little noise, the same for all, as of common seeds."""
    return contender(kind, policy, *(mean * (1 + n) for n in NOISE), page_bytes=page_bytes)


NOISE = (0.001, -0.001, 0.0005, -0.0005, 0.0, 0.0002)


def judged(
    *contenders: Contender, objective: str = "throughput", static_hot: float | None = None
) -> Verdict:
    bound = None if static_hot is None else steady(Kind.off, "static-hot", static_hot)
    return decide(
        contenders, objective=objective, trials=100, policy="mine", static_hot=bound,
        seeds=range(1, 7),
    )  # fmt: skip


OFF = steady(Kind.off, "first-touch", 100)
DEFAULT = steady(Kind.untuned, "mine", 110)
BEST = contender(Kind.tuned, "mine", *(120 * (1 + n) for n in reversed(NOISE)))
OTHER = steady(Kind.untuned, "other", 105)


def test_use_best_names_gain_and_the_way() -> None:
    verdict = judged(OFF, DEFAULT, BEST, OTHER, static_hot=140)
    assert verdict.advice is Advice.use_best
    assert verdict.headline == (
        "use best.yaml: 9.1 ± 0.1 % faster than the default, 50 % of static-hot's gain over "
        "first-touch"
    )
    assert verdict.gain is not None and verdict.gain.gain == pytest.approx(120 / 110 - 1, rel=1e-2)
    assert verdict.over_first_touch is not None
    assert verdict.over_first_touch.gain == pytest.approx(0.2, rel=1e-2)
    assert verdict.over_untuned is not None and verdict.best_untuned == "other"
    assert verdict.way == pytest.approx(0.5, abs=0.01)


def test_what_beats_static_hot_is_told_in_times_its_gain() -> None:
    verdict = judged(OFF, DEFAULT, BEST, static_hot=108)
    assert verdict.headline.endswith(
        "than the default, 2.5 times static-hot's gain over first-touch"
    )


def test_without_a_better_bound_the_gain_over_first_touch_is_told() -> None:
    verdict = judged(OFF, DEFAULT, BEST, static_hot=90)
    assert verdict.way is None
    assert verdict.headline.endswith("than the default, 20.0 ± 0.1 % faster than first-touch")


def test_leave_off_when_doing_nothing_is_faster() -> None:
    verdict = judged(steady(Kind.off, "first-touch", 120.3), DEFAULT, BEST)
    assert verdict.advice is Advice.leave_off
    assert verdict.headline == (
        "leave tiering off: first-touch is 0.25 ± 0.11 % faster than the best of 100 trials"
    )
    assert verdict.over_first_touch is not None and verdict.over_first_touch.gain < 0


def test_leave_off_when_the_best_is_not_measurably_faster() -> None:
    verdict = judged(steady(Kind.off, "first-touch", 119.95), DEFAULT, BEST)
    assert verdict.advice is Advice.leave_off
    assert verdict.headline == (
        "leave tiering off: the best of 100 trials is not measurably better than first-touch "
        "(0.04 ± 0.11 % faster)"
    )


def test_keep_default_when_the_search_found_nothing() -> None:
    same = steady(Kind.tuned, "mine", 110)
    verdict = judged(OFF, DEFAULT, same.model_copy(update={"values": same.values[::-1]}), OTHER)
    assert verdict.advice is Advice.keep_default
    assert verdict.headline.startswith(
        "keep the defaults of mine: the best of 100 trials is not measurably better than the def"
    )
    verdict = judged(OFF, DEFAULT)
    assert verdict.advice is Advice.keep_default
    assert verdict.headline == "keep the defaults of mine: none of 100 trials was better"
    assert verdict.gain is None


def test_use_untuned_when_another_policy_is_faster_as_it_comes() -> None:
    other = steady(Kind.untuned, "other", 124.8)
    verdict = judged(OFF, DEFAULT, other)
    assert verdict.advice is Advice.use_untuned
    assert verdict.headline.startswith("use other with its default knobs (--policy other): ")
    assert verdict.headline.endswith(" than untuned mine")
    verdict = judged(OFF, DEFAULT, BEST, other)
    assert verdict.advice is Advice.use_untuned
    assert verdict.headline == (
        "use other with its default knobs (--policy other): 4.0 ± 0.1 % faster than tuned mine"
    )
    found = chosen(verdict)
    assert found is not None and (found.kind, found.policy) == (Kind.untuned, "other")
    huge = other.model_copy(update={"page_bytes": 2 << 20})
    assert judged(OFF, DEFAULT, BEST, huge).headline == (
        "use other with its default knobs and 2 MiB pages (--policy other --page-bytes 2097152): "
        "4.0 ± 0.1 % faster than tuned mine with 4 KiB pages"
    )


def test_a_best_that_loses_to_doing_nothing_always_says_so() -> None:
    off, other = steady(Kind.off, "first-touch", 121), steady(Kind.untuned, "other", 124.8)
    assert judged(off, DEFAULT, BEST, other).headline == (
        "use other with its default knobs (--policy other): 4.0 ± 0.1 % faster than tuned mine, "
        "which first-touch beats too (0.83 ± 0.11 % faster)"
    )


COIN = (5054.0, 5049.0, 2045.0, 2038.0, 2040.0, 5071.0)
"""Run times of a configuration that finds the hot set on every second seed."""


def test_what_holds_on_half_of_the_seeds_is_not_advised() -> None:
    slow = steady(Kind.off, "first-touch", 7960), steady(Kind.untuned, "mine", 5500)
    coin, other = contender(Kind.tuned, "mine", *COIN), steady(Kind.untuned, "other", 2117)
    verdict = judged(*slow, coin, other, objective="runtime")
    assert verdict.gain is not None and not verdict.gain.certain
    assert verdict.headline.startswith("use other with its default knobs")
    assert left_to_chance(verdict)  # how much better that is
    # On more seeds it is a gain, but others have that, too, and always.
    often = (*COIN, *(2040.0, 2030.0) * 3)
    again = [each.model_copy(update={"values": each.values * 2}) for each in (*slow, other)]
    off, default, other = again
    coin = contender(Kind.tuned, "mine", *often)
    verdict = judged(off, default, coin, other, objective="runtime")
    assert verdict.gain is not None and verdict.gain.certain
    ahead = difference(other, coin, "runtime")
    assert ahead is not None and not ahead.certain
    assert verdict.advice is Advice.use_untuned
    near = contender(Kind.untuned, "other", *(v * (0.96, 1.02)[k % 2] for k, v in enumerate(often)))
    assert judged(off, default, coin, near, objective="runtime").advice is Advice.use_best
    # Nothing else is as fast: then it has to prove itself, as ever.
    coin = contender(Kind.tuned, "mine", *COIN)
    verdict = judged(*slow, coin, objective="runtime")
    assert verdict.advice is Advice.keep_default
    assert left_to_chance(verdict)


def test_more_seeds_are_for_gains_that_matter() -> None:
    assert not left_to_chance(judged(OFF, DEFAULT, BEST, OTHER))
    assert not left_to_chance(judged(steady(Kind.off, "first-touch", 119.95), DEFAULT, BEST))
    assert not left_to_chance(judged(OFF, contender(Kind.untuned, "mine", *[None] * 6)))
    rough = contender(Kind.tuned, "mine", 130, 90, 140, 100, 120, 130)
    assert left_to_chance(judged(OFF, DEFAULT, rough))
    twice = DEFAULT.model_copy(update={"values": DEFAULT.values * 2})
    rough = rough.model_copy(update={"values": rough.values * 2})
    found = difference(rough, twice, "throughput"), difference(rough, DEFAULT, "throughput")
    assert [each and each.pairs for each in found] == [12, 6]  # of other studies


def test_a_second_look_hardly_takes_chance_for_a_gain_more_often() -> None:
    rng, wrong = random.Random(13), 0
    for _ in range(1000):
        runs = [[rng.gauss(100, 8) for _ in range(2 * HELD_OUT)] for _ in range(2)]
        kinds = Kind.untuned, Kind.tuned
        few = judged(
            *(contender(k, "mine", *r[:HELD_OUT]) for k, r in zip(kinds, runs, strict=True))
        )
        if left_to_chance(few):
            few = judged(*(contender(k, "mine", *r) for k, r in zip(kinds, runs, strict=True)))
        wrong += few.advice is Advice.use_best
    assert wrong / 1000 <= 0.05


def test_nothing_ran() -> None:
    verdict = judged(OFF, contender(Kind.untuned, "mine", *[None] * 6))
    assert verdict.advice is Advice.nothing
    assert verdict.headline == "no result: mine did not run to its end"


def test_the_default_may_have_failed() -> None:
    verdict = judged(OFF, BEST, static_hot=140)
    assert verdict.advice is Advice.use_best
    assert verdict.gain is None
    assert verdict.headline == "use best.yaml: 50 % of static-hot's gain over first-touch"


def test_a_single_pair_proves_nothing() -> None:
    """Held-out runs that failed leave no interval, and without one there is no gain to trust."""
    verdict = judged(
        contender(Kind.untuned, "mine", 100, None), contender(Kind.tuned, "mine", 150, 151)
    )
    assert verdict.advice is Advice.keep_default
    assert verdict.gain is not None
    assert (verdict.gain.pairs, verdict.gain.half_width) == (1, None)


def test_run_times_and_latencies_read_the_right_way() -> None:
    off = steady(Kind.off, "first-touch", 1000)
    default, best = steady(Kind.untuned, "mine", 619), steady(Kind.tuned, "mine", 186)
    text = judged(off, default, best, objective="runtime").headline
    assert text.startswith("use best.yaml: 3.3x faster than the default, 5.4x faster than first-t")
    text = judged(off, default, best, objective="p99").headline
    assert text.startswith("use best.yaml: 70.0 ± 0.0 % lower p99 than the default")
    assert faster(0.123, 0.004, "runtime") == "12.3 ± 0.4 % faster"
    assert faster(-0.002, None, "throughput") == "0.20 % slower"
    assert faster(2.3, 0.1, "throughput") == "3.3 ± 0.1x faster"
    assert faster(-0.2, None, "p50") == "25.0 % higher p50"


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_way_is_in_the_objectives_own_unit(name: str) -> None:
    low, high = (100.0, 200.0) if OBJECTIVES[name].higher_is_better else (200.0, 100.0)
    assert way(name, 150.0, low, high) == pytest.approx(0.5)
    assert way(name, low, low, high) == 0
    assert way(name, 150.0, high, low) is None
    assert way(name, 150.0, low, 1.001 * low if high > low else low / 1.001) is None
    assert way(name, None, low, high) is None


def test_pairs_cancel_what_seeds_have_in_common() -> None:
    rough = [100.0, 130.0, 90.0, 110.0]
    one = contender(Kind.untuned, "mine", *rough)
    two = contender(Kind.tuned, "mine", *(1.1 * value for value in rough))
    found = difference(two, one, "throughput")
    assert found is not None and found.certain
    assert found.gain == pytest.approx(0.1)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng, hits = random.Random(7), 0
    for _ in range(2000):
        mean, half_width = interval([rng.gauss(0.05, 0.01) for _ in range(HELD_OUT)])
        assert half_width is not None
        hits += abs(mean - 0.05) <= half_width
    assert 0.935 <= hits / 2000 <= 0.965  # 3 standard errors


def test_chance_alone_is_rarely_called_a_gain() -> None:
    """Default and best are the same thing: 2.5 % of the studies may believe otherwise."""
    rng, wrong = random.Random(11), 0
    for _ in range(1000):
        runs = [[rng.gauss(100, 1) for _ in range(HELD_OUT)] for _ in range(2)]
        verdict = judged(
            contender(Kind.untuned, "mine", *runs[0]), contender(Kind.tuned, "mine", *runs[1])
        )
        wrong += verdict.advice is Advice.use_best
    assert wrong / 1000 <= 0.025 + 3 * (0.025 * 0.975 / 1000) ** 0.5


def verdict_of(policy: str, default: float, best: float, *others: Contender) -> Verdict:
    contenders: Sequence[Contender] = (
        OFF, steady(Kind.untuned, policy, default), steady(Kind.tuned, policy, best), *others,
    )  # fmt: skip
    return decide(
        contenders, objective="throughput", trials=50, policy=policy, seeds=range(1, 7),
        references={"first-touch": 100.0},
    )  # fmt: skip


def test_several_policies_are_compared() -> None:
    a, b = verdict_of("a", 110, 120), verdict_of("b", 105, 130)
    verdict = merge([("a", a), ("b", b)])
    assert verdict.advice is Advice.use_best
    assert verdict.headline == (
        "use study-b/best.yaml (tuned b): 8.3 ± 0.0 % faster than tuned a, 23.8 ± 0.0 % faster "
        "than its default, 30.0 ± 0.0 % faster than first-touch"
    )
    assert verdict.trials == 100
    assert [(c.kind, c.policy) for c in verdict.contenders] == [
        (Kind.off, "first-touch"), (Kind.untuned, "a"), (Kind.untuned, "b"),
        (Kind.tuned, "a"), (Kind.tuned, "b"),
    ]  # fmt: skip
    slow = merge([("a", verdict_of("a", 80, 90)), ("b", verdict_of("b", 70, 95))])
    assert slow.headline == "leave tiering off: first-touch is 5.3 ± 0.0 % faster than tuned b"
    untuned = merge([("a", verdict_of("a", 140, 140)), ("b", verdict_of("b", 105, 130))])
    assert untuned.headline.startswith("keep the defaults of a: ")


def test_of_several_policies_one_may_have_run_on_more_seeds() -> None:
    a, b = verdict_of("a", 110, 120), verdict_of("b", 105, 130)
    twice = [each.model_copy(update={"values": each.values * 2}) for each in b.contenders]
    b = b.model_copy(update={"contenders": twice, "seeds": [*range(1, 7), *range(8, 14)]})
    for pair in ([("a", a), ("b", b)], [("b", b), ("a", a)]):
        verdict = merge(pair)
        assert verdict.headline.startswith("use study-b/best.yaml (tuned b): 8.3 ± 0.0 % faster")
        assert len(verdict.seeds) == 12
        assert policies(verdict) is not None
