# SPDX-License-Identifier: MIT
"""`tune check best.yaml` and `tune gate`: whether a tuned configuration still pays."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from conftest import POLICIES, ROOT, FakeNative
from test_compare import Inline

from tuner import cli, engine
from tuner.arguments import COMMANDS
from tuner.commands import check
from tuner.commands.run import study_request
from tuner.compare import transfer
from tuner.declarations import PolicyDecl
from tuner.documents import transfer as documents_transfer
from tuner.documents.transfer import FILE, WHERE, Differs, published
from tuner.emulate import trials
from tuner.experiment import standing
from tuner.report import characteristics, drift
from tuner.report.characteristics import Figures
from tuner.report.junit import Case, render
from tuner.run import pools, runner, settings
from tuner.scenario import Scenario
from tuner.study import best as best_file
from tuner.study import replay
from tuner.study.best import BestConfiguration
from tuner.study.contender import Contender, Kind
from tuner.study.log import FORMAT, StudyHeader, now
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT, decide

BEST = "results/study/best.yaml"
STREAM_FIGURES: dict[str, Any] = {
    "stream": "s", "scale": 64.0, "footprint_gib": 8.0, "pages": 100, "timed_pages": 100,
    "accesses": 1000, "set_up_accesses": 0, "store_share": 0.5, "operations": 10, "seconds": 1.0,
    "hottest": {"1%": 0.2, "10%": 0.9}, "file_bytes": 1, "making_seconds": None,
}  # fmt: skip


class Native(FakeNative):
    """Virtual seconds by what runs: no tiering, the toy's defaults and with another threshold, and
    two other policies; chance adds a little of the toy's by its seed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seconds = {"first-touch": 20.0, "default": 10.0, "tuned": 8.0, "one": 12.0, "two": 9.0}
        self.ran: list[dict[str, Any]] = []

    def simulate(self, path: str, **arguments: Any) -> dict[str, Any]:
        found = super().simulate(path, **arguments | {"knobs": {"threshold": 5}})
        self.ran.append(arguments)
        policy = arguments["policy"]
        if policy == "toy":
            policy = "default" if arguments["knobs"]["threshold"] == 5 else "tuned"
        seconds = self.seconds[policy] * (1 + 0.00001 * (arguments["seed"] % 3))
        return found | {"seconds": seconds}

    def characteristics(self, path: str, rows: int, columns: int) -> dict[str, Any]:
        return {
            "peak_pages": 32768, "timed_pages": 32768, "loads": 900, "stores": 100,
            "set_up_accesses": 0, "hottest": [(0.01, 0.2), (0.1, 0.9)],
            "sites": [{"site": "table", "accesses": [(900, 100)]}],
        }  # fmt: skip

    def stream_info(self, path: str) -> dict[str, Any]:
        return super().stream_info(path) | {
            "scale": 64.0, "operations": 1000, "nominal_seconds": 10.0,
        }  # fmt: skip


@pytest.fixture
def native(fake: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    found = Native(tmp_path)
    bare = {"family": "test", "summary": "s", "citation": "c", "knobs": []}
    others = [bare | {"name": "first-touch", "traits": {"page_bytes": 4096, "needs": ""}}]
    others += [POLICIES[0] | {"name": name} for name in ("one", "two")]
    declared = [PolicyDecl.model_validate(each) for each in (*POLICIES, *others)]
    monkeypatch.setattr(engine, "policies", lambda: {each.name: each for each in declared})
    monkeypatch.setattr(engine, "native", lambda: found)
    monkeypatch.setattr(pools, "open_pool", Inline)
    monkeypatch.setattr(Inline, "opened", 0)
    monkeypatch.setattr(standing, "HELD_OUT", 2)  # each is a file that is written
    return found


def request_of(*words: str) -> StudyRequest:
    arguments = ("run", "--workload", "walker", "--policy", "toy", "--seed", "3", *words)
    return study_request(cli.parser_for(arguments).parse_args(arguments))


def tuned(*words: str, other: str | None = "one", threshold: int = 9) -> BestConfiguration:
    """A best.yaml whose study had a verdict, without a study beside it."""
    request = request_of("--name", "study", *words)
    trial = request.trial(3, {"threshold": threshold})
    contenders = [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[50.0, 50.5]),
        Contender(kind=Kind.untuned, policy="toy", page_bytes=4096, values=[100.0, 100.5]),
        Contender(kind=Kind.tuned, policy="toy", page_bytes=4096, values=[125.0, 125.5]),
    ]
    if other:
        contenders.append(
            Contender(kind=Kind.untuned, policy=other, page_bytes=4096, values=[90.0, 90.5])
        )
    best = BestConfiguration.of(
        request,
        trial,
        runner.run(trial),
        default_value=100.0,
        date=datetime(2026, 1, 2, tzinfo=UTC),
        git_commit=None,
        verdict=decide(contenders, objective="throughput", trials=20, policy="toy"),
    )
    path = Path(BEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    best_file.write(best, path)
    return best


# --- What it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "outcome", "headline", "code"),
    [
        ({}, "still-pays", "still pays: 25.0 ± 0.0 % faster than the defaults of toy, 2.5x", 0),
        ({"tuned": 10.0}, "gain-gone", "gain gone: the configuration is 0.00 ± 0.00 % faster", 3),
        (
            {"first-touch": 7.0},
            *("do-nothing", "do nothing: the configuration is 12.5 ± 0.0 % slower than first-t", 3),
        ),
        (
            {"one": 6.0},
            *("another-default", "another default is better: untuned one is 33.3 ± 0.0 % fas", 3),
        ),
    ],
)
def test_what_became_of_the_gain(
    run: Any, native: Native, changes: dict[str, float], outcome: str, headline: str, code: int
) -> None:
    tuned()
    native.seconds |= changes
    found = run("check", BEST)
    assert found.code == code
    assert headline in found.out
    assert "its study: 24.9 ± 0.8 % faster than the defaults of toy" in found.out
    told = run("check", BEST, "--json")
    assert told.code == code
    assert told.json["outcome"] == outcome
    assert told.json["pays"] is (code == 0)
    assert told.json["headline"].startswith(headline)
    assert told.json["configuration"] == str(Path(BEST).absolute())


def test_what_comes_next_is_told_as_it_can_be_pasted(run: Any, native: Native) -> None:
    tuned()
    words = ("--ratio", "1:2", "--threads", "2", "--against", "none")
    found = run("check", BEST, *words)
    lines = [line.partition(": tune ")[2] for line in found.err.splitlines() if ": tune " in line]
    gate, size = (shlex.split(line) for line in lines if line.startswith(("gate", "size")))
    assert gate == [
        *("gate", "--config", BEST, "--ratio", "1:2", "--threads", "2", "--min-gain", "2%")
    ]
    assert run(*gate).code == 0
    assert size == ["size", "--config", BEST]
    cli.parser_for(size).parse_args(size)
    native.seconds["tuned"] = 10.0
    assert "tune gate" not in run("check", BEST).err, "it does not pay"


def test_seeds_are_held_out_and_runs_are_kept(
    run: Any, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "HELD_OUT", HELD_OUT)
    tuned()
    native.ran.clear()
    run("check", BEST)
    by_policy: dict[str, list[int]] = {}
    for each in native.ran:
        if each["policy"] != "toy" or each["knobs"]["threshold"] == 9:
            by_policy.setdefault(each["policy"], []).append(each["seed"])
    assert sorted(by_policy["toy"]) == sorted(by_policy["one"]) == [4, 5, 6, 7, 8, 9]
    assert by_policy["first-touch"] == [3], "it does not sample"
    assert Inline.opened == 1
    found = run("check", BEST)
    assert (found.code, Inline.opened) == (0, 1), "nothing is run again"


def test_another_policy_must_be_ahead_by_more_than_the_tolerance(run: Any, native: Native) -> None:
    tuned()
    native.seconds["one"] = 7.85  # 1.9 % ahead
    assert run("check", BEST).code == 0
    found = run("check", BEST, "--tolerance", "1%", "--json")
    assert (found.code, found.json["outcome"]) == (3, "another-default")
    assert found.json["verdict"]["best_untuned"] == "one"
    assert run("check", BEST, "--json").json["verdict"]["best_untuned"] == "one", "it is shown"
    assert run("check", BEST, "--tolerance", "1%", "--against", "none").code == 0


def test_of_several_policies_the_best_one_runs_on_all_seeds(run: Any, native: Native) -> None:
    tuned(other=None)
    found = run("check", BEST)
    assert "other policies were not run: --against all compares them" in found.out
    native.ran.clear()
    found = run("check", BEST, "--against", "all", "--json")
    seeds = {
        name: [r["seed"] for r in native.ran if r["policy"] == name] for name in ("one", "two")
    }
    assert seeds == {"one": [3], "two": [3, 4, 5]}
    assert found.json["verdict"]["contenders"][-1]["policy"] == "two"
    native.seconds |= {"one": 3.0, "two": 4.0}
    native.ids = lambda: {"policies": "other", "simulator": "1", "whole": "all"}  # type: ignore[method-assign]
    assert run("check", BEST, "--against", "one,two", "--json").json["outcome"] == "another-default"


@pytest.mark.parametrize("what", ["first-touch", "default", "tuned"])
def test_a_contender_that_does_not_run_leaves_no_result(
    run: Any, native: Native, what: str
) -> None:
    tuned()
    del native.seconds[what]
    found = run("check", BEST, "--json")
    assert found.code == 1
    assert found.json["outcome"] == "no-result"
    assert found.json["headline"].startswith("no result: ")
    assert found.json["error"]["exit"] == 1
    assert found.json["retune"] is None
    assert run("gate", "--config", BEST).code == 1


# --- Today's workload -----------------------------------------------------------------------------

OTHER = {
    "name: walker": "name: mine",
    "threads: 16": "threads: 4",
    "scale: 64": "scale: 32",
    "big": "large",
    "machine: testbed": "machine: another",
}


def other_workload() -> None:
    text = Path("workloads/walker.yaml").read_text()
    for old, new in OTHER.items():
        text = text.replace(old, new)
    Path("mine.yaml").write_text(text)
    machine = Path("machines/testbed.yaml").read_text()
    Path("machines/another.yaml").write_text(machine.replace("testbed", "another"))


def test_another_workload_brings_its_own_defaults_and_the_machine_stays(
    run: Any, native: Native
) -> None:
    tuned("--ratio", "1:4", "--objective", "runtime")
    other_workload()
    found = run("check", BEST, "--workload", "mine.yaml", "--json")
    scenario = found.json["scenario"]
    assert scenario["workload"] == str(Path("mine.yaml").absolute())
    kept = {name: scenario[name] for name in ("machine", "ratio", "objective")}
    assert kept == {"machine": "testbed", "ratio": "1:4", "objective": "runtime"}
    taken = {name: scenario[name] for name in ("input", "threads", "scale")}
    assert taken == {"input": "large", "threads": 4.0, "scale": 32.0}
    assert "--workload walker instead of mine" in found.json["elsewhere"]
    set_by_hand = tuned("--threads", "5")
    assert set_by_hand.scenario.threads == 5
    found = run("check", BEST, "--workload", "mine.yaml", "--threads", "2", "--json")
    assert found.json["scenario"]["threads"] == 2.0
    found = run("check", BEST, "--workload", "mine.yaml", "--json")
    assert found.json["scenario"]["threads"] == 5.0


def test_what_differs_is_told_with_the_gain_that_was_lost_and_how_to_tune_again(
    run: Any, native: Native
) -> None:
    tuned()
    native.seconds["tuned"] = 9.5
    found = run("check", BEST, "--ratio", "1:2")
    assert found.code == 0
    assert "tune: note: it was tuned for --ratio 1:8 instead of 1:2" in found.err
    assert "the gain over the defaults has fallen since the study" in found.out
    (line,) = [line for line in found.out.splitlines() if line.startswith("tune again: ")]
    again = shlex.split(line.removeprefix("tune again: "))[1:]
    request = study_request(cli.parser_for(again).parse_args(again))
    wanted = run("check", BEST, "--ratio", "1:2", "--json").json["scenario"]
    assert json.loads(json.dumps(request.scenario.plain())) == wanted
    assert "what that would gain is not known: no study of these conditions has run" in found.out


def test_a_gain_is_promised_only_where_a_run_has_measured_it(run: Any, native: Native) -> None:
    there = tuned("--ratio", "1:2", threshold=20)
    folder = Path("results/there")
    Path(BEST).parent.rename(folder)
    tuned()
    native.seconds["tuned"] = 9.5
    known = run("check", BEST, "--ratio", "1:2", "--json").json["known"]
    assert known["path"] == "results/there/best.yaml"
    assert there.verdict is not None and there.verdict.gain is not None
    assert known["gain"] == there.verdict.gain.gain
    assert run("check", BEST, "--ratio", "1:4", "--json").json["known"] is None
    other = there.provenance.model_copy(update={"engine_build": "another"})
    best_file.write(there.model_copy(update={"provenance": other}), folder / "best.yaml")
    assert run("check", BEST, "--ratio", "1:2", "--json").json["known"] is None


def test_nothing_is_advised_where_nothing_has_changed(run: Any, native: Native) -> None:
    tuned()
    native.seconds["tuned"] = 11.0
    found = run("check", BEST)
    assert "nothing has changed since the study: the same search would find the same" in found.out
    assert "tune again" not in found.out
    native.seconds["one"] = 5.0
    native.ids = lambda: {"policies": "other", "simulator": "1", "whole": "all"}  # type: ignore[method-assign]
    again = shlex.split(run("check", BEST, "--json").json["retune"])
    assert again[again.index("--policy") + 1] == "one"


# --- Drift ----------------------------------------------------------------------------------------


def figures(**changes: Any) -> Figures:
    return Figures(**STREAM_FIGURES | changes)


def test_drift_names_what_has_changed_by_more_than_the_tolerance(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_workload()
    then = request_of()
    today = settings.resolve("mine.yaml", policy=engine.policy("toy"))
    moved = {"footprint_gib": 16.0, "store_share": 0.51, "hottest": {"1%": 0.2, "10%": 0.6}}
    own = {then.stream().key: figures(), today.stream().key: figures(**moved)}
    monkeypatch.setattr(characteristics, "of_stream", lambda request: own[request.key])
    seen = {
        f"{then.stream().key}.tts": [("a", 90), ("b", 10)],
        f"{today.stream().key}.tts": [("a", 50), ("c", 50)],
    }

    def sites(path: Path, **_: int) -> dict[str, Any]:
        return {"sites": [{"site": s, "accesses": [(n, 0)]} for s, n in seen[path.name]]}

    monkeypatch.setattr(engine, "characteristics", sites)
    found = drift.drift(then, today, 0.03)
    assert not found.same
    assert {each.what: round(each.change or 0, 6) for each in found.changed} == {
        "memory in use": 1.0,
        "accesses to the hottest 10% of pages": -0.3,
        "accesses to a": -0.4,
        "accesses to b": -0.1,
        "accesses to c": 0.5,
    }
    assert "stores, of the accesses" in {each.what for each in found.compared}
    assert drift.drift(then, then, 0.03).same


def test_a_fast_tier_of_fixed_size_is_another_share_of_more_memory(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = request_of("--fast-gib", "2")
    today = request_of("--fast-gib", "2", "--stream-seed", "1")
    own = {then.stream().key: figures(), today.stream().key: figures(footprint_gib=16.0)}
    monkeypatch.setattr(characteristics, "of_stream", lambda request: own[request.key])
    (share,) = [c for c in drift.drift(then, today, 0.03).changed if c.what.startswith("fast tier")]
    assert (share.then, share.now) == (0.25, 0.125)


def test_what_is_not_known_of_the_studys_workload_is_said(run: Any, native: Native) -> None:
    tuned()
    assert "the workload's accesses are those of the study" in run("check", BEST).out
    text = Path("workloads/walker.yaml").read_text()
    Path("workloads/walker.yaml").write_text(text.replace("keys: 5000", "keys: 6000"))
    said = "not known, since no study.json is beside the file"
    assert said in run("check", BEST).out
    request = request_of("--name", "study")
    spec = request.workload
    before = {
        n: i.model_copy(update={"parameters": {"keys": 5000}}) for n, i in spec.inputs.items()
    }
    old = request.model_copy(update={"workload": spec.model_copy(update={"inputs": before})})
    header = StudyHeader(
        format=FORMAT, created=now(), request=old, fingerprints=old.fingerprints,
        stream="none", lag=1, initial=1,
    )  # fmt: skip
    Path("results/study/study.json").write_text(header.model_dump_json())
    found = run("check", BEST)
    assert "others than the study's, but no figure has changed much" in found.out
    native.stream_id = lambda kernel: "maker-2"  # type: ignore[method-assign]
    assert "another build of the workload's kernel made its stream" in run("check", BEST).out


# --- The gate -------------------------------------------------------------------------------------


def gate(run: Any, *words: str) -> Any:
    return run("gate", "--config", BEST, "--json", *words)


def results(found: Any) -> dict[str, bool | None]:
    return {each["name"]: each["passed"] for each in found.json["checks"]}


def test_a_gate_passes_and_fails_by_its_bound(run: Any, native: Native, tmp_path: Path) -> None:
    tuned()
    found = gate(run, "--min-gain", "24%", "--junit", "gate.xml")
    assert found.code == 0
    assert set(results(found).values()) == {True}
    root = ElementTree.parse("gate.xml").getroot()
    assert (root.get("tests"), root.get("failures"), len(root)) == ("4", "0", 4)
    found = gate(run, "--min-gain", "26%", "--junit", "gate.xml")
    assert found.code == 1
    assert results(found) == {
        "configuration is reproduced": True,
        "gain over the defaults of toy": False,
        "gain over no tiering": True,
        "verdict": True,
    }
    (failure,) = ElementTree.parse("gate.xml").getroot().iter("failure")
    assert failure.get("message") == "25.0 ± 0.0 % faster; at least +26.0 % is asked for"
    assert "FAILED" in run("gate", "--config", BEST, "--min-gain", "26%").out


def test_a_gate_fails_when_the_verdict_turns(run: Any, native: Native) -> None:
    tuned()
    native.seconds["one"] = 4.0
    assert gate(run).code == 0, "other policies are not its matter"
    found = gate(run, "--against", "one")
    assert (found.code, results(found)["verdict"]) == (1, False)
    native.seconds["first-touch"] = 7.0
    native.ids = lambda: {"policies": "other", "simulator": "1", "whole": "all"}  # type: ignore[method-assign]
    found = gate(run)
    assert (found.code, results(found)["gain over no tiering"]) == (1, False)


def test_a_gate_tells_a_defect_from_a_change(run: Any, native: Native) -> None:
    best = tuned()
    assert results(gate(run, "--ratio", "1:2"))["configuration is reproduced"] is None
    worse = best.objective.model_copy(update={"value": 1.0})
    best_file.write(best.model_copy(update={"objective": worse}), Path(BEST))
    found = gate(run)
    assert (found.code, results(found)["configuration is reproduced"]) == (1, False)
    native.ids = lambda: {"policies": "other", "simulator": "1", "whole": "all"}  # type: ignore[method-assign]
    found = gate(run)
    assert (found.code, results(found)["configuration is reproduced"]) == (0, None)


def test_junit_has_what_xml_can_have() -> None:
    text = render(
        "a\x01&b", [Case("<x>", False, "\x00\n\"'"), Case("y", None, "é"), Case("z", True, "")]
    )
    root = ElementTree.fromstring(text.encode())
    assert [root.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    assert root.get("name") == "a\\x01&b"
    assert [case.get("name") for case in root] == ["<x>", "y", "z"]
    (failure,) = root.iter("failure")
    assert failure.get("message") == "\\x00\\n\"'"


def test_the_workflow_of_the_documentation_is_one(run: Any) -> None:
    workflow = yaml.safe_load((ROOT / "docs/gate.yaml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [
        shlex.split(line, comments=True)
        for step in steps
        for line in step.get("run", "").replace("\\\n", " ").splitlines()
        if "/tune " in line
    ]
    assert {words[words.index("gate")] for words in commands if "gate" in words} == {"gate"}
    for words in commands:
        own = words[1:]
        assert words[0].endswith("tune")
        assert cli.parser_for(own).parse_args(own).command in COMMANDS
    for step in steps:
        assert ("uses" in step) != ("run" in step)
        assert "@" in step.get("uses", "@")
    assert any(step.get("if") == "always()" for step in steps), "the report of a failed gate"


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", BEST, "--repair"), "--repair: applies to a study, a stream or a store"),
        (
            ("check", "results", "--ratio", "1:2"),
            "--ratio: applies to a best.yaml, which results is not",
        ),
        (("check", "none.yaml"), "none.yaml"),
        (("check", BEST, "--tolerance", "3"), "--tolerance: found 3; must end in %, such as 5%"),
        (("check", BEST, "--tolerance=-1%"), "--tolerance: found -1%; must be from 0% to"),
        (("check", BEST, "--tolerance", "x%"), "--tolerance: invalid number value: 'x'"),
        (("check", BEST, "--against", "onne"), "no policy 'onne'; did you mean 'one'?"),
        (("check", BEST, "-w", "mine.tts"), "mine.tts: no mine.yaml, which a recording has beside"),
        (("check", BEST, "-w", "nothing"), "no workload 'nothing'"),
        (("gate",), "the following arguments are required: --config"),
        (("gate", "--config", "workloads/walker.yaml"), "walker.yaml:"),
    ],
)
def test_wrong_usage(
    run: Any,
    native: Native,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    tuned()
    if words == ("gate",) or any(word.startswith("--tolerance") for word in words):
        with pytest.raises(SystemExit, match="2"):
            run(*words)
        assert said in capsys.readouterr().err
        return
    found = run(*words)
    assert found.code == 2
    assert said in found.err


def test_what_was_not_simulated_is_refused(run: Any, native: Native) -> None:
    best = tuned()
    path = Path(BEST)
    prints = best.provenance.fingerprints.model_copy(update={"command": "c0ffee"})
    measured = best.provenance.model_copy(update={"fingerprints": prints})
    best_file.write(best.model_copy(update={"provenance": measured}), path)
    found = run("check", BEST)
    assert (found.code, "measured by a command" in found.err) == (2, True)
    emulated = replace(best.scenario, substrate="emulated")
    best_file.write(best.model_copy(update={"scenario": emulated}), path)
    found = run("gate", "--config", BEST)
    assert (found.code, "on the emulated machine" in found.err) == (2, True)


def test_a_studys_folder_with_an_option_means_its_configuration(run: Any, native: Native) -> None:
    tuned()
    Path("results/study/study.json").write_text("{}")
    assert run("check", "results/study", "--ratio", "1:2", "--json").json["outcome"] == "still-pays"
    assert run("check", "results/study").code == 1, "the study itself is damaged"


def test_a_study_is_found_by_its_name_and_leads_to_its_configuration(
    run: Any, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned()
    Path("results/study/study.json").write_text("{}")
    found = run("check", "study")
    assert (found.code, "results/study/study.json" in found.out) == (1, True)
    assert "tune check" not in found.err, "it is damaged"
    monkeypatch.setattr(check, "STUDY", check.Kind("study", lambda _: check.Checked("x"), print))
    found = run("check", "study")
    assert (found.code, found.out) == (0, "results/study: nothing wrong; x\n")
    assert f"whether its configuration still pays: tune check {BEST}" in found.err
    assert "no such file or folder" in run("check", "studies").err


# --- Elsewhere ------------------------------------------------------------------------------------


def test_whatever_differs_from_the_study_is_named(native: Native) -> None:
    best = tuned()
    setting = request_of("--seed", "3")
    assert replay.elsewhere(setting, best) == []
    then = best.provenance.model_copy(
        update={
            "engine_build": "0-1",
            "stream_maker": "maker-0",
            "fingerprints": best.provenance.fingerprints.model_copy(update={"machine": "m"}),
        }
    )
    assert replay.elsewhere(setting, best.model_copy(update={"provenance": then})) == [
        "another content of --machine testbed",
        "streams of another build of the workload's kernel",
        "policies 0, simulator 1 instead of policies build, simulator 1",
    ]


def test_a_transfer_that_was_measured_is_told_and_no_other() -> None:
    path = ROOT / "results" / transfer.RATIOS
    content = json.loads(path.read_text())

    def of(ratio: str, tuned: bool) -> dict[str, Any]:
        wanted = {"workload": "gups", "policy": "freqtier", "page_bytes": 4096, "ratio": ratio}
        (cell,) = [
            c for c in content["cells"] if wanted.items() <= c.items() and c["tuned"] is tuned
        ]
        return dict(cell)

    home = of("1:8", True)
    fields = set(Scenario.__dataclass_fields__) - {"repeats", "seed"}
    there = Scenario(**{name: home[name] for name in fields if name in home})
    found = transfer.measured(content, there, "1:16")
    assert found is not None
    for gain, ratio in zip(found, ("1:8", "1:16"), strict=True):
        pairs = zip(of(ratio, False)["objectives"], of(ratio, True)["objectives"], strict=True)
        assert gain.gain == pytest.approx(sum(a / b - 1 for a, b in pairs) / 3)
    assert transfer.measured(content, there, "1:3") is None
    assert transfer.measured(content, replace(there, threads=3.0), "1:16") is None
    assert transfer.measured(content, replace(there, ratio="1:16"), "1:4") is None, (
        "no search there"
    )


def changed(best: BestConfiguration, difference: Differs) -> BestConfiguration:
    """As if it had been tuned under other conditions in that one respect."""
    prints, then = best.provenance.fingerprints, best.provenance
    match difference:
        case Differs.ratio:
            return best.model_copy(update={"scenario": replace(best.scenario, ratio="1:2")})
        case Differs.machine:
            prints = prints.model_copy(update={"machine": "m"})
        case Differs.workload:
            prints = prints.model_copy(update={"workload": "w"})
        case Differs.kernel:
            prints = prints.model_copy(update={"command": "c"})
        case Differs.build:
            then = then.model_copy(update={"engine_build": "0-1"})
    then = then.model_copy(update={"fingerprints": prints})
    return best.model_copy(update={"provenance": then})


@pytest.mark.parametrize("difference", list(Differs))
def test_each_difference_is_told_with_what_it_has_cost_others(
    native: Native, difference: Differs
) -> None:
    best, setting = tuned(), request_of("--seed", "3")
    assert transfer.kinds(setting, best) == []
    assert transfer.sentence(setting, best, "") == ""
    other = changed(best, difference)
    assert transfer.kinds(setting, other) == [difference]
    assert len(replay.elsewhere(setting, other)) == 1
    cost = json.loads((ROOT / "results" / FILE).read_text())["differences"][difference]
    assert transfer.sentence(setting, other, "").startswith(
        "Published configurations gained over the defaults of their policies "
        f"{100 * cost['there']:.1f} % {WHERE[difference]} ({100 * cost['home']:.1f} % at home; "
        f"{cost['harmed']} of {cost['cases']} cases slower than the defaults, at worst by "
    )


def test_what_is_not_published_is_said(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    best, setting = tuned(), request_of("--seed", "3", "--threads", "2")
    said = "What another --threads costs is not published"
    assert transfer.sentence(setting, best, "") == said
    nothing = published().model_copy(update={"differences": {}})
    monkeypatch.setattr(transfer, "published", lambda: nothing)
    monkeypatch.setattr(documents_transfer, "published", lambda: nothing)
    other = changed(best, Differs.ratio)
    said = "What another ratio and --threads costs is not published"
    assert transfer.sentence(setting, other, "") == said


def test_whoever_uses_a_configuration_elsewhere_is_told(run: Any, native: Native) -> None:
    tuned()
    found = run("sim", "--config", BEST, "--ratio", "1:2", "--threads", "2")
    assert "% at another ratio (" in found.err
    assert "another --threads costs is not published. `tune check FILE` measures" in found.err
    words = ("--ratio", "1:2", "--against", "none")
    for command in (("check", BEST), ("gate", "--config", BEST)):
        found = run(*command, *words)
        assert "it was tuned for --ratio 1:8 instead of 1:2. Published configurations" in found.err
        assert "% at another ratio (" in run(*command, *words, "--json").json["transfer"]
        assert run(*command, "--against", "none", "--json").json["transfer"] is None


# --- With the engine ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_configuration_pays_where_it_was_found_and_not_everywhere(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    words = ("run", "--workload", "gups", "--input", "smoke", "--policy", "freqtier")
    request = study_request(cli.parser_for(words).parse_args(words))
    trial = request.trial(1, {"cooling_period": 7.6, "hot_threshold": 5})
    best = BestConfiguration.of(
        request,
        trial,
        trials.run(trial),
        default_value=None,
        date=datetime(2026, 1, 2, tzinfo=UTC),
        git_commit=None,
    )
    best_file.write(best, tmp_path / "best.yaml")
    gate = run("gate", "--config", "best.yaml", "--min-gain", "2%", "--workers", "1", "--json")
    assert gate.code == 0, gate.out
    assert gate.json["checks"][0]["text"].startswith("reproduced exactly: runtime ")
    assert run("check", "best.yaml", "--workers", "1").code == 0
    found = run("check", "best.yaml", "--workers", "1", "--fast-gib", "64", "--json")
    assert (found.code, found.json["outcome"]) == (3, "do-nothing"), "all of it is fast"


@pytest.mark.parametrize(("seconds", "outcome"), [(8.0, "still-pays"), (9.5, "breaks-constraint")])
def test_a_configuration_is_held_to_the_constraints_of_its_study(
    native: Native, capsys: pytest.CaptureFixture[str], seconds: float, outcome: str
) -> None:
    """It is faster than the defaults either way."""
    tuned("--constraint", "runtime<=0.9*default")
    native.seconds["tuned"] = seconds
    code = cli.main(["check", BEST, "--against", "none", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], code) == (outcome, 0 if outcome == "still-pays" else 3)
    if outcome == "breaks-constraint":
        assert found["headline"].startswith(
            "breaks what it was tuned to meet: runtime<=0.9*default:"
        )
        assert found["verdict"]["gain"]["gain"] > 0
