# SPDX-License-Identifier: MIT
"""Which other policies a study runs, that a resumed one keeps them, and that the rest is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import OTHER, policy, request

from tuner.commands.run import tunable
from tuner.documents import rivals
from tuner.errors import UserError
from tuner.experiment.loop import resume_command
from tuner.experiment.studies import OpenStudy
from tuner.limits import ALL, FEW, NONE
from tuner.study.contender import Contender, Kind
from tuner.study.verdict import Verdict, decide, merge

NAMES = [policy.name for policy in tunable()]


def best(place: rivals.Shortfalls, names: list[str]) -> float:
    return min(place.get(name, 1.0) for name in names)


@pytest.mark.parametrize("workload", [*rivals.published().shortfalls, "mine"])
def test_few_come_near_the_best_default_whoever_is_tuned(workload: str) -> None:
    found = rivals.published().shortfalls
    for own in NAMES:
        able = [name for name in NAMES if name != own]
        few = rivals.chosen(FEW, able, workload)
        assert 0 < len(few) <= rivals.MOST_FEW + 1
        assert set(few) <= set(able) and len(set(few)) == len(few)
        assert few == rivals.chosen(FEW, able[::-1], workload)  # whatever the order
        places = list(found.get(workload, {}).values())
        if workload not in found:
            places = [place for by in found.values() for place in by.values()]
        lost = [best(place, few) - best(place, able) for place in places]
        assert sum(lost) / len(lost) < 0.02


def test_all_and_none_are_what_they_say() -> None:
    assert rivals.chosen(ALL, NAMES, "gups") == NAMES
    assert rivals.chosen(NONE, NAMES, "gups") == []


def test_the_next_one_is_taken_that_helps_where_the_first_do_not() -> None:
    places = [{"a": 0.0, "b": 0.3, "c": 0.01}, {"a": 0.5, "b": 0.0}, {"a": 0.0, "b": 0.3}]
    assert rivals.nearest(places, ["c", "b", "a"]) == ["a", "b"]
    assert rivals.nearest(places, ["c"]) == ["c"]
    assert rivals.nearest([], ["a"]) == []
    many = [{name: 0.0} for name in "abcdefg"]
    assert rivals.nearest(many, "abcdefg") == ["a", "b", "c", "d"]


@pytest.mark.slow  # imports SMAC
def test_a_resumed_study_keeps_its_rivals(tmp_path: Path) -> None:
    asked = request(tmp_path, alternatives=[OTHER], not_run=["third"])
    with OpenStudy(asked):
        pass
    third = policy("third", OTHER.knobs)
    changed = {"resume": True, "alternatives": [third], "not_run": ["other"]}
    with OpenStudy(request(tmp_path, **changed)) as study:
        assert study.request.alternatives == [OTHER]
        assert study.request.not_run == ["third"]
        assert "--rivals" not in resume_command(study.request)
    for _ in range(2):  # the first one lets go of the study
        with pytest.raises(UserError, match="has 1 rivals, and --rivals all means 2"):
            OpenStudy(request(tmp_path, resume=True, rivals=ALL, alternatives=[OTHER, third]))
    with OpenStudy(request(tmp_path, resume=True, rivals=FEW, alternatives=[OTHER])) as study:
        assert "--rivals few" in resume_command(study.request)


def judged(name: str, not_run: list[str]) -> Verdict:
    contenders = [
        Contender(kind=Kind.untuned, policy=name, page_bytes=4096, values=[10.0, 10.1]),
        Contender(kind=Kind.tuned, policy=name, page_bytes=4096, values=[8.0, 8.1], study=name),
    ]
    return decide(contenders, objective="runtime", trials=4, policy=name, not_run=not_run)


def test_the_verdict_names_what_it_does_not_cover() -> None:
    assert judged("a", []).uncovered is None
    assert judged("a", ["b"]).uncovered == (
        "1 other policy was not run, so the advice does not cover b"
    )
    assert judged("a", ["b", "c"]).uncovered == (
        "2 other policies were not run, so the advice does not cover b, c"
    )
    both = merge([("a", judged("a", ["b", "c"])), ("b", judged("b", ["a", "c"]))])
    assert both.not_run == ["c"]
