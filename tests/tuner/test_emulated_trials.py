# SPDX-License-Identifier: MIT
"""Trials on the emulated machine, without the machine (that is tests/emulated)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_compare import Inline

from tuner import cli, engine
from tuner.commands.run import study_request
from tuner.emulate import guest, trials
from tuner.emulate.guest import Ran, Slow
from tuner.emulate.machine import Machine
from tuner.emulate.plan import Built, Emulated, Request
from tuner.errors import UserError
from tuner.experiment import checks, loop
from tuner.run import cache, pools, settings, streams
from tuner.run.settings import Setting
from tuner.run.trial import Status, Trial
from tuner.study.request import StudyRequest

BUILT = Built(kernel="linux-image-6.12.1", qemu="10.0.2", programs={"tierd": "0"})
PLAN = """
{"policy": "nbt", "writes": [],
 "not_settable": [
  {"knob": "max_scan_rate", "reason": "2.5 GiB/s in every kernel", "same": true},
  {"knob": "aol.enabled", "reason": "no regulation", "same": true}],
 "notes": []}
"""


def setting(policy: str = "nbt", **given: Any) -> Setting:
    fields = {"substrate": "emulated", "ratio": "1:4"} | given
    return settings.resolve("gups", policy=engine.policy(policy), study="s", **fields)


def found(request: Request, seconds: float) -> Emulated:
    return Emulated(
        request=request.key,
        seconds=seconds,
        set_up_seconds=0.5,
        operations={"update": 1000},
        resident=[10, 30],
        marks=[300, 400, 500],
        vmstat={"pgpromote_success": 5, "pgdemote_kswapd": 3, "pgmigrate_success": 9},
        machine={
            **{"misses": [30, 70], "prefetched": [20, 80], "samples_lost": 2},
            **{"owed_ns": 2e8, "threads_busy_ns": 3e8},
        },
    )


class Fake:
    """Takes two seconds, and one more with each layout."""

    name = "machine"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def request(self, trial: Trial, **more: Any) -> Request:
        timed = {"peak_pages": 512 << 8}
        info = {"operations": 1000, "nominal_seconds": 2.5}
        return Request.of(trial, info, timed, built=BUILT, **more)

    def run(self, request: Request, told: Callable[[str], None], seconds: float | None) -> Emulated:
        self.asked.append(request)
        if seconds is not None and seconds < 1:
            raise Slow("the guest did not end")
        told('{"done": 0.5}')
        return found(request, 2.0 + request.layout)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(trials, "_machine", lambda: made)
    return made


def trial(policy: str = "nbt", **given: Any) -> Trial:
    return setting(policy, **given).trial(3, {}).model_copy(update={"emulated": "machine"})


# --- Scenarios ------------------------------------------------------------------------------------


def test_the_substrate_has_defaults_of_its_own() -> None:
    scenario = setting().scenario
    assert (scenario.input, scenario.machine, scenario.threads) == ("emulated", "emulated", 1)
    assert (scenario.page_bytes, scenario.scale, scenario.window) == (4096, 1, "all")
    assert setting("hemem").scenario.page_bytes == 4096  # 2 MiB in the simulator
    assert "--on emulated" in " ".join(scenario.command_line())
    assert "on emulated" in scenario.conditions()
    made = settings.resolve("gups", policy=engine.policy("nbt"), substrate="emulated", ratio="1:4")
    assert made.study == "gups-emulated-nbt-emulated-onemulated-1to4-runtime-seed0"
    simulated = settings.resolve("gups", policy=engine.policy("nbt"))
    assert "simulated" not in simulated.study
    assert simulated.scenario.comparable() != scenario.comparable()


def test_another_policy_stays_on_the_substrate() -> None:
    other = setting().under(engine.policy("hemem"), seed=2)
    assert other.scenario.page_bytes == 4096
    assert (other.scenario.substrate, other.scenario.machine) == ("emulated", "emulated")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"threads": 2.0}, "--threads: found 2.0; the emulated machine has 1"),
        ({"window": "steady"}, "--window: found steady; the emulated machine has all"),
        ({"start": "slow"}, "--start: found slow; the emulated machine has fast"),
        ({"input": "smoke"}, r"gups \(smoke\): found scale 2048; must be 1"),
        ({"page_bytes": 2 << 20}, "the emulated machine has pages of 4096 bytes"),
        ({"policy": "soar"}, "it places objects by name"),
    ],
)
def test_what_the_machine_cannot_be_is_refused_before_anything_runs(
    given: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        trials.on_substrate(setting(**given), lambda _: None)


def test_what_the_machine_does_not_tell_is_refused() -> None:
    redis = settings.resolve(
        "redis", policy=engine.policy("nbt"), substrate="emulated", objective="p99"
    )
    with pytest.raises(UserError, match=r"--objective: found p99; .* throughput and runtime"):
        trials.on_substrate(redis, lambda _: None)


def test_the_simulator_needs_none_of_it() -> None:
    plain = settings.resolve("gups", policy=engine.policy("nbt"))
    assert trials.on_substrate(plain, pytest.fail) is plain
    assert trials.not_settable(plain, pytest.fail) == {}


# --- Trials ---------------------------------------------------------------------------------------


def test_a_trial_is_measured_on_its_layout(fake: Fake) -> None:
    seen: list[float] = []
    result = trials.run(trial(seed=2), progress=seen.append)
    assert result.status is Status.success, result.error
    assert (result.study, result.number) == ("s", 3)
    assert result.objective == 4.0 and result.cost == 4.0
    assert [request.layout for request in fake.asked] == [2]
    assert seen == [0.5]
    assert result.metrics["promotions"] == 5
    assert result.metrics["total_seconds"] == 4.5
    assert result.metrics["fast_hit_ratio"] == 0.25
    assert result.metrics["samples_lost"] == 2
    assert result.metrics["owed_seconds"] == pytest.approx(0.2)
    assert "hint_faults" not in result.metrics  # nobody counted them
    assert result.latency == {} and result.breakdown == {}


def test_repeats_are_layouts_of_which_the_median_counts(fake: Fake) -> None:
    result = trials.run(trial(seed=99, repeats=3))
    assert [request.layout for request in fake.asked] == [99, 0, 1]
    assert result.objective == 3.0
    assert result.metrics["seconds"] == 3.0
    assert (result.metrics["repeat.min"], result.metrics["repeat.max"]) == (2.0, 101.0)


def test_what_tierd_moves_the_kernel_does_not_count(fake: Fake) -> None:
    result = trials.run(trial("hemem"))
    assert "promotions" not in result.metrics and result.metrics["migrated_pages"] == 9


def test_a_trial_keeps_its_deadline(fake: Fake) -> None:
    late = trial().model_copy(update={"deadline_seconds": 0.001})
    result = trials.run(late)
    assert result.status is Status.timeout
    assert result.error == "its deadline of 0.001 s passed"


def test_another_machine_refuses_the_trial(fake: Fake) -> None:
    fake.name = "another"
    result = trials.run(trial())
    assert result.host_failed and result.status is Status.failed
    assert "the emulated machine of machine, but this worker has another" in result.error


def test_results_of_the_substrates_are_kept_apart() -> None:
    one = trial()
    other = one.model_copy(update={"emulated": "another"})
    assert cache.key(one) != cache.key(other)


# --- Studies --------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not asked for Debian's packages."""
    monkeypatch.setattr(Machine, "built", BUILT)
    monkeypatch.setattr(Machine, "request", lambda *_: None)
    monkeypatch.setattr(streams, "prepare", lambda _: None)
    reasons = {"max_scan_rate": "2.5 GiB/s in every kernel", "free_space": "it has no knob"}
    monkeypatch.setattr(Machine, "not_settable", lambda *_: reasons)


def request_of(*words: str) -> StudyRequest:
    first = ("run", "-w", "gups", "--on", "emulated", "--ratio", "1:4")
    return study_request(cli.parser_for([*first, *words]).parse_args([*first, *words]))


@pytest.mark.usefixtures("asked")
def test_a_study_searches_what_the_kernel_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    request = request_of("--policy", "nbt")
    names = {knob.name for knob in request.tuned}
    assert "hot_threshold" in names
    assert not names & {"max_scan_rate", "free_space"}
    said = capsys.readouterr().err
    assert "tune: max_scan_rate: not tuned: 2.5 GiB/s in every kernel" in said
    assert [policy.name for policy in request.references] == ["first-touch", "all-fast"]
    assert request.alternatives == []
    assert request.explain is False
    assert (
        request.emulated
        == "linux-image-6.12.1, QEMU 10.0.2, programs " + (Machine().name.rpartition(" ")[2])
    )
    assert request.trial(0, {}).emulated == request.emulated
    assert request.deadline_seconds == 3600
    for each in (request, request_of("--policy", "nbt", "--explain")):
        command = loop.resume_command(each)
        assert "--on emulated" in command
        assert ("--explain" in command) == each.explain
        words = shlex.split(command)[1:]
        resumed = study_request(cli.parser_for(words).parse_args(words))
        assert resumed == each.model_copy(update={"resume": True})


@pytest.mark.usefixtures("asked")
def test_held_out_seeds_are_few_and_layouts_for_everybody() -> None:
    request = request_of("--policy", "nbt")
    seeds = checks.held_out(request)
    assert [seed["seed"] for seed in seeds] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("asked")
def test_tierds_policies_are_searched_without_what_a_process_does_not_have() -> None:
    names = {knob.name for knob in request_of("--policy", "unified").tuned}
    assert "placement" not in names
    assert not any(name.startswith("aol.") for name in names)
    assert names


@pytest.mark.usefixtures("asked")
def test_a_container_is_no_place_for_it() -> None:
    with pytest.raises(UserError, match="--runner container: the emulated machine"):
        request_of("--policy", "nbt", "--runner", "container")


def test_a_boot_tells_what_a_kernel_cannot_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path))
    booted: list[str] = []

    def boot(_: object, job: str, *__: object) -> Ran:
        booted.append(job)
        return Ran(0, f"a line\n{PLAN}")

    monkeypatch.setattr(guest, "boot", boot)
    monkeypatch.setattr(Machine, "built", BUILT)
    monkeypatch.setattr(Machine, "tools", None)
    monkeypatch.setattr(Machine, "programs", {"/tierd": b""})
    reasons = Machine().not_settable("nbt")
    assert reasons["max_scan_rate"] == "2.5 GiB/s in every kernel"
    # A knob that acts only with one of them does nothing either.
    assert reasons["aol.low"] == "no regulation"
    assert Machine().not_settable("nbt") == reasons
    assert booted == ["/tierd apply --policy nbt --dry-run --json\n"]
    Machine().not_settable("tpp")
    assert len(booted) == 2
    monkeypatch.setattr(guest, "boot", lambda *_: Ran(1, "tierd: error: no\n"))
    with pytest.raises(guest.Failed, match="autonuma:\ntierd: error: no"):
        Machine().not_settable("autonuma")


def test_the_sensitivity_is_of_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "-w", "gups", "--sensitivity", "--on", "emulated"]) == 2
    assert "--sensitivity: varies the simulator's figures" in capsys.readouterr().err


# --- Comparisons ----------------------------------------------------------------------------------


@pytest.fixture
def compared(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pools, "open_pool", Inline)
    monkeypatch.setattr(streams, "prepare", lambda *_, **__: None)
    monkeypatch.setattr("tuner.commands.compare.track", lambda *_, **__: None)

    def run(*words: str) -> int:
        given = ["--workloads", "gups", "--ratios", "1:4", "--on", "emulated", "--name", "x"]
        return cli.main(["compare", *given, *words])

    return run


def test_a_comparison_runs_on_the_machine_with_a_layout_for_each_seed(
    compared: Callable[..., int], fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared("--policies", "nbt,memtis", "--seeds", "2") == 0
    said = capsys.readouterr().out
    assert "measured on the emulated machine" in said and "2 layouts of memory" in said
    assert "offline-optimal" not in said and "static-hot" not in said
    by_policy: dict[str, list[int]] = {}
    for request in fake.asked:
        by_policy.setdefault(request.policy, []).append(request.layout)
    layouts = {"all-fast": [0], "first-touch": [0], "nbt": [0, 1], "memtis": [0, 1]}
    assert by_policy == layouts  # nothing that places once depends on one
    document = json.loads(Path("results/compare-x/compare.json").read_text())
    cells = {cell["policy"]: cell for cell in document["cells"]}
    assert cells["nbt"]["objectives"] == [2.0, 3.0]
    assert cells["memtis"]["page_bytes"] == 4096 and cells["nbt"]["substrate"] == "emulated"
    assert cells["nbt"]["metrics"]["promotions"] == [5.0, 5.0]
    asked = len(fake.asked)
    assert compared("--policies", "nbt,memtis", "--seeds", "2") == 0
    assert len(fake.asked) == asked  # all of it is kept


def test_a_comparison_of_all_has_what_a_process_can_have(
    compared: Callable[..., int], fake: Fake
) -> None:
    assert compared("--seeds", "1") == 0
    ran = {request.policy for request in fake.asked}
    assert {"hybridtier", "hemem", "nbt", "tpp"} <= ran
    assert not ran & {"nomad", "colloid", "soar", "offline-optimal"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tuned", "5"), "--tuned: searches on the simulated machine alone"),
        (("--policies", "nomad"), "--policy nomad: it needs"),
        (("--policies", "memtis@2097152"), "the emulated machine has pages of 4096 bytes"),
        (("--window", "steady"), "--window: found steady; the emulated machine has all"),
    ],
)
def test_a_comparison_that_the_machine_cannot_make_is_refused(
    compared: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    assert compared(*words) == 2
    assert message in capsys.readouterr().err
