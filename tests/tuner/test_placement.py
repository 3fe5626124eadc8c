# SPDX-License-Identifier: MIT
"""Placement files: what `tune profile` writes, what `--placement` takes, and what it refuses."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.documents import placement
from tuner.documents.document import Document
from tuner.documents.placement import PlacedObject, PlacementSpec
from tuner.errors import UserError
from tuner.experiment.loop import resume_command
from tuner.run import cache, settings
from tuner.run.settings import Setting

SPEC = PlacementSpec(
    workload="microbench",
    policy="soar",
    objects=[
        PlacedObject(site="chase", score=2e-9, bytes=4096.0 * 100, slot=0),
        PlacedObject(site="1e3", score=0.0, bytes=1.5, slot=1),
    ],
    profiled={"input": "smoke", "scale": 64.0, "seed": 0, "exact": True},
)
TEXT = """\
workload: microbench
policy: soar
objects:
- {site: a, score: 1.0, bytes: 10.0, slot: 0}
- {site: b, score: 0.5, bytes: 10.0, slot: 1}
"""
MICROBENCH = ("-w", "microbench", "--input", "smoke", "--policy", "soar", "--ratio", "1:1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, workload: str = "microbench", policy: str = "soar") -> PlacementSpec:
    Path("p.yaml").write_text(text)
    return placement.read(Path("p.yaml"), workload=workload, policy=policy)


def setting(**given: Any) -> Setting:
    policy = engine.policy(given.pop("policy", "soar"))
    return settings.resolve("microbench", policy=policy, input="smoke", **given)


def test_it_reads_back_as_it_was_written() -> None:
    assert read(placement.render(SPEC)) == SPEC


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "workload: microbench",
            "workload: silo",
            r"p.yaml:1: workload: found the text 'silo'; "
            "must be microbench",
        ),
        ("policy: soar", "policy: other", "p.yaml:2: policy: found the text 'other'; must be soar"),
        ("score: 1.0", "score: -1.0", r"p.yaml:4: objects\[0\].score: found -1.0; must be"),
        ("slot: 1", "slot: x", r"p.yaml:5: objects\[1\].slot: found the text 'x'; must be"),
        ("bytes: 10.0, slot: 1", "slot: 1", r"p.yaml:5: objects\[1\].bytes: missing"),
        ("site: b", "sight: b", r"p.yaml:5: objects\[1\].site: missing"),
        ("site: b", "site: a", "p.yaml:1: objects: 'a' is given twice"),
        ("policy: soar\n", "policy: soar\nextra: 1\n", "p.yaml:3: extra: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(before: str, after: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(TEXT.replace(before, after))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"none\.yaml: No such file"):
        setting(placement="none.yaml")


def test_only_a_policy_that_goes_by_one_takes_it() -> None:
    Path("p.yaml").write_text(TEXT)
    with pytest.raises(UserError, match=r"--placement: policy hybridtier does not go by one.*soar"):
        setting(policy="hybridtier", placement="p.yaml")


def test_a_result_depends_on_the_content(folder: Path) -> None:
    def key(text: str) -> str:
        Path("p.yaml").write_text(text)
        found = setting(placement="p.yaml")
        assert found.scenario.placement == str(folder / "p.yaml")
        return cache.key(found.trial(0, {}))

    assert key(TEXT) == key("# a remark\n" + TEXT)
    assert key(TEXT) != key(TEXT.replace("0.5", "0.6"))
    assert key(TEXT) != cache.key(setting().trial(0, {}))


def test_a_study_resumes_with_it(folder: Path) -> None:
    Path("p.yaml").write_text(TEXT)
    words = ["run", "-w", "microbench", "--input", "smoke", "--policy", "soar"]
    words += ["--placement", "p.yaml"]
    request = study_request(cli.parser_for(words).parse_args(words))
    assert request.fingerprints.placement == request.placement.fingerprint()  # type: ignore[union-attr]
    assert "placementp" in request.study
    again = shlex.split(resume_command(request))[1:]
    assert again[again.index("--placement") + 1] == str(folder / "p.yaml")
    resumed = study_request(cli.parser_for(again).parse_args(again))
    assert resumed == request.model_copy(update={"resume": True})


def test_other_policies_run_without_it() -> None:
    Path("p.yaml").write_text(TEXT)
    under = setting(placement="p.yaml").under(engine.policy("first-touch"))
    assert under.placement is None
    assert not under.scenario.placement


def test_profile_and_obey(run: Any, folder: Path) -> None:
    """A run without the file comes to the same as one with it."""
    profiled = run("profile", "microbench", "-i", "smoke", "-o", "p.yaml")
    assert profiled.code == 0, profiled.err
    assert "rank" in profiled.out
    assert "tune sim -w microbench --policy soar --placement p.yaml" in profiled.out
    found = Document.read(folder / "p.yaml").parse(PlacementSpec)
    assert found.profiled["input"] == "smoke"
    assert [placed.score for placed in found.objects] == sorted(
        (placed.score for placed in found.objects), reverse=True
    )
    placed = run("sim", *MICROBENCH, "--placement", "p.yaml", "--json")
    assert placed.code == 0, placed.err
    alone = run("sim", *MICROBENCH, "--json")
    assert "no --placement: soar profiles microbench on fast memory first" in alone.err
    assert "no --placement" not in placed.err
    assert placed.json["objective"] == alone.json["objective"]
    rows = [row["cells"] for row in placed.json["rows"] if row["table"] == "objects"]
    assert [row["site"] for row in rows] == [placed.site for placed in found.objects]
    assert rows[0]["fast_pages"] == rows[0]["pages"]
    shown = run("sim", *MICROBENCH, "--placement", "p.yaml")
    assert "fast_pages" in shown.out


def test_a_policy_that_goes_by_one_with_a_knob(run: Any, folder: Path) -> None:
    profiled = run("profile", "microbench", "-i", "smoke", "--policy", "unified", "-o", "p.yaml")
    assert profiled.code == 0, profiled.err
    knob = ("--set", "placement=profile")
    assert f"--policy unified {' '.join(knob)} --placement p.yaml" in profiled.out
    smoke = ("-w", "microbench", "-i", "smoke", "--policy", "unified")
    placed = run("sim", *smoke, *knob, "--placement", "p.yaml", "--json")
    alone = run("sim", *smoke, *knob, "--json")
    assert "no --placement: unified profiles microbench" in alone.err
    assert placed.json["objective"] == alone.json["objective"]
    assert "profiles" not in run("sim", *smoke, "--json").err
    run("profile", "microbench", "-i", "smoke", "-o", "chase.yaml", "--set", "r_max=0.6")
    chase = Path("chase.yaml").read_text()
    Path("chase.yaml").write_text(chase.replace("policy: soar", "policy: unified"))
    other = run("sim", *smoke, *knob, "--placement", "chase.yaml", "--json")
    assert other.json["objective"] < placed.json["objective"]
    refused = run("sim", *smoke, "--placement", "p.yaml")
    assert refused.code == 2
    assert (
        "--placement: unified goes by one only with placement=profile; found placement=first-touch"
        in refused.err
    )
    preset = ("--set", "preset=freqtier")
    refused = run("sim", *smoke, *knob, *preset, "--placement", "p.yaml")
    assert refused.code == 2
    assert "goes by one only with preset=ours or static; found preset=freqtier" in refused.err
    Path("narrow.yaml").write_text("policy: unified\nsummary: s\nknobs: {gate: {}}\n")
    study = ("run", *smoke, "--placement", "p.yaml")
    refused = run(*study, "--space", "narrow.yaml")
    assert refused.code == 2
    assert "only with placement=profile, which is not among what space 'narrow.yaml'" in refused.err
    words = list(study)
    assert study_request(cli.parser_for(words).parse_args(words)).placement


def test_what_a_preset_leaves_inactive_asks_for_no_placement() -> None:
    unified = engine.policy("unified")
    for preset, goes in (("ours", True), ("static", True), ("freqtier", False)):
        knobs = engine.resolve("unified", {"preset": preset, "placement": "profile"})
        assert unified.goes_by_placement(knobs) == goes
    assert engine.policy("soar").goes_by_placement(engine.resolve("soar", {}))
    assert not engine.policy("hemem").goes_by_placement(engine.resolve("hemem", {}))


def test_the_order_of_the_file_is_obeyed(run: Any) -> None:
    """R_max below the sweep's share ranks it behind the pointer chase, as the paper means to."""
    seconds = {}
    for r_max, first in (("0.9", "sequential"), ("0.6", "chase")):
        run(
            "profile", "microbench", "-i", "smoke", "-o", f"{first}.yaml", "--set", f"r_max={r_max}"
        )
        found = Document.read(Path(f"{first}.yaml")).parse(PlacementSpec)
        assert found.profiled["r_max"] == float(r_max)
        assert found.objects[0].site == f"microbench.{first}"
        done = run("sim", *MICROBENCH, "--placement", f"{first}.yaml", "--json")
        seconds[first] = done.json["metrics"]["seconds"]
    assert seconds["sequential"] > 1.3 * seconds["chase"]


def test_a_placement_of_other_objects_is_refused(run: Any) -> None:
    Path("p.yaml").write_text(TEXT)
    done = run("sim", *MICROBENCH, "--placement", "p.yaml")
    assert done.code == 1
    assert "the placement has no object of this stream: found 'a', known are" in done.err


def test_nothing_is_overwritten_unasked(run: Any) -> None:
    Path("p.yaml").write_text("mine")
    done = run("profile", "microbench", "-i", "smoke", "-o", "p.yaml")
    assert done.code == 2
    assert "p.yaml exists already; --force replaces it" in done.err
    assert Path("p.yaml").read_text() == "mine"


def test_other_policies_have_nothing_to_profile(run: Any) -> None:
    done = run("profile", "microbench", "-i", "smoke", "--policy", "hybridtier")
    assert done.code == 2
    assert "--policy: found 'hybridtier'; must go by a placement: soar" in done.err


def test_a_placement_of_many_objects_is_read_back(tmp_path: Path) -> None:
    objects = [PlacedObject(site=f"a.c:{n}", score=1.0, bytes=64.0, slot=n) for n in range(3000)]
    spec = PlacementSpec(workload="w", policy="soar", objects=objects)
    path = tmp_path / "placement.yaml"
    path.write_text(placement.render(spec))
    assert placement.read(path, workload="w", policy="soar") == spec
