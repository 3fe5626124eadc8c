# SPDX-License-Identifier: MIT
"""What the command line says of containers, and what a study keeps of it. No Docker Engine is
asked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative
from synthetic import request

from tuner import cli
from tuner.commands.isolated import asked
from tuner.errors import UserError
from tuner.experiment.loop import resume_command
from tuner.run import container, metric
from tuner.run.isolation import Isolation, default_image
from tuner.run.metric import Failed, matches
from tuner.run.trial import Status

RUN = ["run", "--workload", "walker", "--policy", "toy"]


@pytest.fixture(autouse=True)
def image(fake: FakeNative, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "image_id", lambda name: f"id of {name}")


def parsed(words: list[str]) -> Isolation | None:
    return asked(cli.parser_for(words).parse_args(words))


def isolation(*words: str) -> Isolation | None:
    return parsed([*RUN, *words])


def test_without_containers_there_is_none() -> None:
    assert isolation() is None


def test_containers_have_the_limits_that_are_asked_for() -> None:
    assert isolation("--runner", "container") == Isolation(image=default_image())
    words = ("--runner", "container", "--image", "x", "--memory", "2.5", "--cpus", "0.5")
    assert isolation(*words) == Isolation(image="x", memory_gib=2.5, cpus=0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--image x", "--image: needs --runner container"),
        ("--cpus 2", "--cpus: needs --runner container"),
        ("--command x --metric (x)", "--command: needs --runner container"),
        ("--runner container --command x", "a command needs both"),
        ("--runner container --command x --metric (x)", "must be given with --image"),
        ("--runner container --image i --command '' --metric (x)", "--command: is empty"),
        ("--runner container --image i --command '\"' --metric (x)", "No closing quotation"),
        ("--runner container --image i --command x --metric '('", "--metric: found '('"),
        ("--runner container --image i --command x --metric x", "must have a group"),
    ],
)
def test_what_does_not_fit_together(words: str, said: str) -> None:
    with pytest.raises(UserError) as told:
        isolation(*shlex.split(words))
    assert said in str(told.value)


COMMAND = ("--runner", "container", "--image", "i", "--command", "a 'b c'", "--metric", "t=(.*)")


@pytest.mark.parametrize("words", [("--runner", "container", "--cpus", "2"), COMMAND])
def test_the_resume_command_asks_for_the_same(tmp_path: Path, words: tuple[str, ...]) -> None:
    before = isolation(*words)
    assert before is not None
    again = shlex.split(resume_command(request(tmp_path, isolation=before)))[1:]
    assert parsed(again) == before


def test_only_a_command_is_part_of_what_results_depend_on(tmp_path: Path) -> None:
    def prints(found: Any) -> str | None:
        return request(tmp_path, isolation=found).fingerprints.command

    assert prints(None) is None and prints(isolation("--runner", "container")) is None
    one, other = isolation(*COMMAND), isolation(*COMMAND[:-1], "u=(.*)")
    assert prints(one) and prints(one) != prints(other)


# --- What a command's metric finds ----------------------------------------------------------------


def test_the_matches_of_a_metric_are_found_in_order() -> None:
    printed = b"ops 12 p99=3\n\xff ops 34.5 p99=7\nend\n"
    found = matches(r"^.*ops ([\d.]+) p99=(?P<p99>\d+)$", printed)
    assert found == [("12", {"p99": "3"}), ("34.5", {"p99": "7"})]
    assert matches(r"(ops)(?P<no>x)?", printed)[-1] == ("ops", {"no": None})
    assert matches("(nothing)", printed) == []


def test_a_metric_that_takes_too_long_costs_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric, "MATCH_SECONDS", 0.3)
    with pytest.raises(Failed, match=r"not found in 3\.9 KiB of output within 0\.3 s") as failure:
        matches(r"(\d+)+x", b"7" * 4000)
    assert failure.value.status is Status.timeout
