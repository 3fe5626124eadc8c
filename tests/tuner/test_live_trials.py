# SPDX-License-Identifier: MIT
"""Live trials, with a tierd that moves nothing. tests/live has a real one, on a real kernel."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_compare import Inline

from tuner import cli, tierd
from tuner.apply import targets
from tuner.commands import run
from tuner.commands.run import study_request
from tuner.emulate import live
from tuner.emulate.live import LiveRunner
from tuner.errors import UserError
from tuner.experiment import checks, loop, noise, verify
from tuner.run import host
from tuner.run.host import Ended, Program, Run
from tuner.run.isolation import Live
from tuner.run.trial import Status, Trial, TrialResult
from tuner.study.verdict import Advice

TIERD = """#!/bin/sh
here={folder}
(IFS='\t'; echo "$*") >> $here/calls
case "$1" in
version) echo "tierd 1.2.3, policies 0123" ;;
probe) cat $here/probe ;;
restore) rm -f $here/applied ;;
apply)
  case "$*" in
  *--dry-run*) echo '{{"not_settable": [{{"knob": "free_space", "reason": "it has none"}}]}}' ;;
  *) : > $here/applied ;;
  esac ;;
attach)
  if [ -e $here/broken ]; then echo "tierd: error: no samples" >&2; exit 1; fi
  for word; do pid=$word; done
  trap : TERM
  : > $here/attached
  tail --pid=$pid -f /dev/null & wait $!
  kill $! 2> /dev/null
  echo "tierd: 5 MiB in the fast tier; moved 12 MiB up and 3 MiB down" >&2 ;;
esac
"""
WORKS = [
    {"subject": name, "works": True, "found": "x", "cure": None}
    for name in ("memory tiers", "moving pages", "populated pages", "DAMON")
]


class Fake:
    """A tierd that notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "tierd"
        self.program.write_text(TIERD.format(folder=shlex.quote(str(folder))))
        self.program.chmod(0o755)
        self.finds(*WORKS)

    def finds(self, *findings: dict[str, Any]) -> None:
        (self.folder / "probe").write_text(json.dumps(findings))

    @property
    def calls(self) -> list[list[str]]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [words for line in lines if (words := line.split("\t"))[0] != "version"]

    def forget(self) -> None:
        (self.folder / "calls").write_text("")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    for node, mib in ((0, 1024), (1, 4096)):
        folder = tmp_path / f"nodes/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text("0\n" if node == 0 else "\n")
        said = f"Node {node} MemTotal: {mib << 10} kB\nNode {node} MemFree:  {mib << 9} kB\n"
        (folder / "meminfo").write_text(said)
        (tmp_path / f"tiers/memory_tier{4 + 10 * node}").mkdir(parents=True)
        (tmp_path / f"tiers/memory_tier{4 + 10 * node}/nodelist").write_text(f"{node}\n")
    made = Fake(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tierd, "find", lambda: made.program)
    monkeypatch.setattr(live, "NODES", tmp_path / "nodes")
    monkeypatch.setattr(live, "TIERS", tmp_path / "tiers")
    monkeypatch.setattr(live, "APPLIED", tmp_path / "nothing")
    monkeypatch.setattr(host, "LOCK", tmp_path / "nodes")
    monkeypatch.setattr(host, "CACHES", tmp_path / "caches")
    monkeypatch.setattr(host, "SETTLE_SECONDS", 0)
    yield made
    live._end_kept()


OPTIONS = ("run", "-w", "gups", "--on", "live", "--policy", "hemem")


def request_of(*words: str, metric: str = "took ([0-9.]+)", command: str = "sh -c true") -> Any:
    given = (*OPTIONS, "--command", command, "--metric", metric, *words)
    return study_request(cli.parser_for(given).parse_args(given))


def script(text: str) -> str:
    return shlex.join(["sh", "-c", text])


def result_of(text: str, *words: str, knobs: dict[str, Any] | None = None, **more: Any) -> Any:
    """Of a trial that runs a script of the shell."""
    request = request_of(*words, command=script(text), **more)
    return LiveRunner(request.isolation)(request.trial(3, knobs or {}))


def words_after(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words[:-1]) if word == option]


# --- What is asked for ----------------------------------------------------------------------------


def test_a_study_is_of_this_machine(fake: Fake) -> None:
    request = request_of("--warm-up", "2s", "--for", "3", "--repeats", "2", "--fast-gib", "0.5")
    assert request.isolation == Live(
        command=("sh", "-c", "true"),
        metric="took ([0-9.]+)",
        warm_up_seconds=2,
        window_seconds=3,
        processors=tuple(sorted(os.sched_getaffinity(0))),
        fast=(0,),
        slow=(1,),
        host=f"Linux {os.uname().release}, tierd 1.2.3, policies 0123",
    )
    assert (request.scenario.ratio, request.scenario.page_bytes) == ("1:4", 4096)
    assert [policy.name for policy in request.references] == ["first-touch"]
    assert (request.alternatives, request.explain, request.workers) == ([], False, 1)
    assert request.deadline_seconds == 2 * (2 + 3 + live.SPARE_SECONDS)
    assert len(checks.held_out(request)) == 5
    command = loop.resume_command(request)
    words = shlex.split(command)[1:]
    resumed = study_request(cli.parser_for(words).parse_args(words))
    assert resumed == request.model_copy(update={"resume": True})


def test_tiers_may_be_named(fake: Fake) -> None:
    fake.finds({**WORKS[0], "works": False}, *WORKS[1:])
    found = request_of("--fast", "0", "--slow", "1").isolation
    assert found.nodes == ["--fast", "0", "--slow", "1"]
    assert found.processors == (0,)


def test_what_tierd_cannot_honour_is_not_tuned(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {knob.name for knob in request_of("--policy", "unified").tuned}
    assert names
    assert not {name for name in names if name.startswith(("aol.", "placement"))}
    assert "aol.enabled" in capsys.readouterr().err


def test_a_policy_of_the_kernel_has_the_knobs_that_it_has(fake: Fake) -> None:
    request = request_of("--policy", "nbt")
    names = {knob.name for knob in request.tuned}
    assert "hot_threshold" in names and "free_space" not in names
    assert ["apply", "--policy", "nbt", "--dry-run", "--json"] in fake.calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ratio", "1:4"), "--ratio: is of simulated memory"),
        (("--runner", "container"), "--runner: is of containers"),
        (("--workers", "2"), "--workers: found 2; one live trial runs at a time"),
        (("--fast", "0"), "--fast and --slow: found one of them"),
        (("--fast", "0", "--slow", "7"), "found node 7, which this machine lacks"),
        (("--metric", "exit-time", "--for", "3"), "leave out --warm-up and --for"),
        (("--metric", "no group"), "must have a group"),
        (("--metric", "exit-time", "--objective", "throughput"), "of which more is better"),
        (("--keep-running",), "--keep-running: what does not end needs --for"),
        (("--keep-running", "--for", "3", "--ray-address", "a:1"), "a cluster's workers come and"),
        (("--policy", "nomad"), "--policy nomad: it needs"),
        (("--command", "/nowhere/at-all"), "found '/nowhere/at-all', which is no program"),
        (("--from", "nothing"), "no study"),
    ],
)
def test_what_does_not_fit_is_refused(fake: Fake, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        request_of(*words)


@pytest.mark.parametrize("subject", ["memory tiers", "moving pages", "populated pages", "DAMON"])
def test_what_the_machine_lacks_is_named_with_its_cure(fake: Fake, subject: str) -> None:
    lacking = {"works": False, "found": "not here", "cure": "root"}
    fake.finds(*(each | lacking if each["subject"] == subject else each for each in WORKS))
    with pytest.raises(UserError, match=f"{subject}: not here; what helps: root"):
        request_of()


def test_a_source_may_be_chosen(fake: Fake) -> None:
    fake.finds(*(each | {"works": each["subject"] != "DAMON"} for each in WORKS))
    assert request_of("--tierd", "--source ibs").isolation.options == ("--source", "ibs")


def test_a_policy_that_is_applied_already_is_left_alone(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "APPLIED", fake.program)
    with pytest.raises(UserError, match="`tierd restore` undoes it"):
        request_of()


def test_other_commands_do_not_run_live(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "-w", "gups", "--on", "live"]) == 2
    assert "`tune run` and `tune verify` measure a command of yours" in capsys.readouterr().err
    assert cli.main(["run", "-w", "gups", "--for", "3"]) == 2
    assert "--for: is of --on live" in capsys.readouterr().err


# --- Trials ---------------------------------------------------------------------------------------


def test_tierd_is_attached_with_the_trials_knobs(fake: Fake) -> None:
    result = result_of(
        "until [ -e attached ]; do :; done; echo took 7 $TUNE_KNOB_cooling_threshold; "
        "exec tail -f calls",
        "--for",
        "0.2",
        "--fast-gib",
        "0.5",
        "--tierd",
        "--cpu 3%",
        knobs={"cooling_threshold": 21},
        metric="took ([0-9.]+) (?P<knob>[0-9]+)",
    )
    assert result.status is Status.success, result.error
    assert (result.objective, result.metrics["knob"]) == (7, 21)
    assert (result.metrics["promotions"], result.metrics["demotions"]) == (12 * 256, 3 * 256)
    attach, restore = [words for words in fake.calls if words[0] in ("attach", "restore")][-2:]
    assert "cooling_threshold=21" in words_after(attach, "--set")
    assert words_after(attach, "--policy") == ["hemem"]
    assert words_after(attach, "--fast-limit") == ["0.5G"]
    assert words_after(attach, "--cpu") == ["3%"]
    assert restore == ["restore"]


def test_a_policy_of_the_kernel_is_applied_and_undone(fake: Fake) -> None:
    result = result_of("[ -e applied ] && echo took 7", "--policy", "nbt")
    assert result.objective == 7, result.error
    assert [words[0] for words in fake.calls][-2:] == ["apply", "restore"]
    assert not (fake.folder / "applied").exists()


def test_no_tiering_is_the_command_alone(fake: Fake) -> None:
    request = request_of(command=script("echo took 7"))
    (off,) = request.references
    fake.forget()
    result = LiveRunner(request.isolation)(request.under(off).trial(0, {}))
    assert result.objective == 7
    assert fake.calls == [["restore"]]


@pytest.mark.parametrize(
    ("text", "words", "metric", "value"),
    [
        ("echo took 1; echo took 5", (), "took ([0-9.]+)", 5),
        ("echo took 1; echo took 5; exec tail -f calls", ("--for", "0.5"), "took ([0-9.]+)", 3),
        ("echo 12.5 > figure", (), "file:figure", 12.5),
    ],
)
def test_a_metric_is_the_last_one_a_mean_or_in_a_file(
    fake: Fake, text: str, words: tuple[str, ...], metric: str, value: float
) -> None:
    result = result_of(text, "--policy", "nbt", *words, metric=metric)
    assert result.objective == value, result.error


def test_the_time_to_the_exit_is_a_metric(fake: Fake) -> None:
    result = result_of("true", "--policy", "nbt", metric="exit-time")
    assert result.objective == result.metrics["seconds"] > 0


def test_what_is_said_in_the_warm_up_does_not_count(fake: Fake) -> None:
    text = "echo took 1; read line < fifo; echo took 9; exec tail -f calls"
    os.mkfifo("fifo")
    request = request_of(
        "--policy", "nbt", "--warm-up", "0.3", "--for", "0.5", command=script(text)
    )
    began = time.monotonic()
    writer = subprocess.Popen(["sh", "-c", "exec 3> fifo; read wait; echo >&3"], stdin=-1)
    result: list[TrialResult] = []
    original = host._Output.clear

    def clear(output: host._Output) -> None:
        original(output)
        assert writer.stdin is not None
        writer.communicate(b"\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host._Output, "clear", clear)
        result.append(LiveRunner(request.isolation)(request.trial(0, {})))
    assert result[0].objective == 9, result[0].error
    assert time.monotonic() - began > 0.8


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        ("echo wrong >&2; exit 3", (), "sh ended: 3: wrong"),
        ("kill -SEGV $$", (), "sh was killed by SIGSEGV"),
        ("echo", (), "its command printed nothing like"),
        ("echo took -4", ("--metric", r"took ([-\d]+)"), "the metric is -4, not a positive"),
        ("true", ("--for", "5"), "sh ended: 0, before it was measured to the end"),
        ("true", ("--warm-up", "5"), "sh ended: 0, before its warm-up was over"),
        ("true", ("--metric", "file:nothing"), "nothing: No such file"),
        ("true", ("--metric", "file:probe"), "probe: is older than the run"),
    ],
)
def test_what_goes_wrong_is_the_trials_failure(
    fake: Fake, text: str, words: tuple[str, ...], error: str
) -> None:
    os.utime("probe", (1, 1))
    result = result_of(text, "--policy", "nbt", *words)
    assert result.status is Status.failed
    assert error in result.error
    assert not (fake.folder / "applied").exists()


def test_a_command_that_hangs_is_ended_with_all_that_it_has_started(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "GRACE_SECONDS", 0.1)
    original = host.ended

    def ended(processes: Sequence[Any], until: float) -> Any:
        wait_for(lambda: Path("started").is_file() and read("started") != "")
        return original(processes, until)

    request = request_of("--policy", "nbt", "--deadline", "0.001", command=script(HANGS))
    monkeypatch.setattr(host, "ended", ended)
    monkeypatch.setattr(Program, "_tierd", lambda *_: None)
    result = LiveRunner(request.isolation)(request.trial(0, {}))
    assert result.status is Status.timeout
    assert result.error == "its deadline of 0.001 s passed"
    gone(read("started"))


HANGS = "trap '' TERM; tail -f calls > /dev/null & echo $! > started; wait"


def gone(number: str) -> None:
    """A process that has just been killed may be there for a moment."""
    until = time.monotonic() + 20
    while Path(f"/proc/{int(number)}").exists() and "Z" not in state(number):
        assert time.monotonic() < until


def state(number: str) -> str:
    try:
        return Path(f"/proc/{int(number)}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_tierd_that_cannot_go_on_is_the_trials_failure(fake: Fake) -> None:
    (fake.folder / "broken").write_text("")
    result = result_of("exec tail -f calls", "--for", "20")
    assert result.status is Status.failed
    assert result.error.startswith(f"{fake.program} ended: 1: tierd: error: no samples")


def test_another_host_refuses_the_trial(fake: Fake) -> None:
    request = request_of()
    other = request.isolation.model_copy(update={"host": "Linux 1.0"})
    result = LiveRunner(other)(request.trial(0, {}))
    assert result.host_failed and result.error.startswith("the trial is for Linux 1.0; this host")


def test_repeats_are_runs_of_which_the_median_counts(fake: Fake) -> None:
    text = "echo x >> runs; echo took $(wc -l < runs)"
    result = result_of(text, "--policy", "nbt", "--repeats", "3")
    assert (result.objective, result.metrics["repeat.max"]) == (2, 3)


# --- A command that stays up ----------------------------------------------------------------------


def test_a_command_stays_up_between_trials(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[tuple[list[int], Any, Any]] = []
    monkeypatch.setattr(host, "drain", lambda *given: drained.append(given))
    text = "echo $$ >> started; while :; do echo took 7; head -c 999999 /dev/zero > /dev/null; done"
    request = request_of("--keep-running", "--for", "0.2", command=script(text))
    runner = LiveRunner(request.isolation)
    for number in range(2):
        assert runner(request.trial(number, {"cooling_threshold": number + 3})).objective == 7
    (server,) = (fake.folder / "started").read_text().split()
    assert [(int(server) in given[0], given[1:]) for given in drained] == [(True, ((0,), (1,)))] * 2
    attached = [words for words in fake.calls if words[0] == "attach"]
    assert [words_after(words, "--pid") for words in attached] == [[server], [server]]
    # Without tiering it is a new one, whose first touches are its own.
    (off,) = request.references
    assert runner(request.under(off).trial(2, {})).objective == 7
    gone(server)
    assert len((fake.folder / "started").read_text().split()) == 2
    assert live._kept == {}


def test_pages_of_a_process_are_moved_by_the_kernel() -> None:
    """On any machine: from a node to itself."""
    try:
        host.drain([os.getpid()], [0], [0])
    except Ended as error:
        pytest.skip(str(error))  # a container may not
    with pytest.raises(Ended, match=f"process {os.getpid()}: its pages stay fast"):
        host.drain([os.getpid()], [0], [1000])
    host.drain([2**22 + 1], [0], [0])  # it has ended meanwhile


# --- One at a time, and an end whatever happens ---------------------------------------------------

DRIVER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tuner.run import host
host.LOCK, host.CACHES, host.SETTLE_SECONDS = Path("nodes"), Path("caches"), 0
words = ["sh", "-c", "trap '' TERM; echo $$ > started; read line < fifo"]
run = host.Run(words, {{"PATH": {path!r}}}, {tierd!r}, apply=["apply"])
host.Program(run).measure(run)
"""


def test_a_driver_that_is_killed_takes_everything_along(fake: Fake) -> None:
    root = str(Path(__file__).resolve().parents[2])
    text = DRIVER.format(root=root, path=os.environ["PATH"], tierd=str(fake.program))
    os.mkfifo("fifo")
    with (
        Path("fifo").open("r+b", 0),
        subprocess.Popen([sys.executable, "-I", "-c", text]) as driver,
    ):
        wait_for(lambda: (fake.folder / "started").is_file() and read("started") > "0")
        assert (fake.folder / "applied").exists()
        driver.send_signal(signal.SIGKILL)
    os.close(host.locked(wait=True))  # the guard has it until all is undone
    assert not (fake.folder / "applied").exists()
    gone(read("started"))


def read(name: str) -> str:
    return Path(name).read_text()


def wait_for(there: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not there():
        assert time.monotonic() < until


def test_a_trial_waits_for_the_one_that_runs(fake: Fake) -> None:
    first = Program(Run(["sh", "-c", "echo"], dict(os.environ), str(fake.program)))
    with pytest.raises(BlockingIOError):
        host.locked(wait=False)
    first.end()
    os.close(host.locked(wait=False))


# --- Noise ----------------------------------------------------------------------------------------


def test_the_noise_tells_what_a_search_is_worth() -> None:
    assert noise.luck(0.02, 50) == pytest.approx(0.045, abs=0.001)  # 2.25 deviations
    assert noise.luck(0.02, 1) == 0
    assert noise.resolution(0.02) == pytest.approx(2.776 * 0.02 * (2 / 5) ** 0.5, rel=1e-3)
    said = noise.statement(0.02, 4, 50, 1)
    assert said == (
        "noise: 4 runs of the default differ by 2.0 % (standard deviation). Of 50 configurations "
        "without any difference the luckiest would look 4.5 % better; the verdict's runs tell "
        "gains of 3.5 % from chance."
    )
    assert "or --repeats 8." in noise.statement(0.08, 4, 50, 1)


# --- Whole commands -------------------------------------------------------------------------------


@pytest.fixture
def inline(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(checks, "open_pool", Inline)
    monkeypatch.setattr(checks, "HELD_OUT_REAL", 2)
    monkeypatch.setattr("tuner.run.pools.open_pool", Inline)
    monkeypatch.setattr(loop, "tracker_of", lambda *_: Silent())
    monkeypatch.setattr("tuner.commands.verify._track", lambda *_: None)
    return fake


class Silent:
    """A tracker that keeps nothing."""

    def add(self, *_: object) -> None:
        pass

    conclude = add

    def close(self, *, interrupted: bool = False) -> None:
        pass


FASTER = (
    'if [ "$TUNE_POLICY" = nbt ]; then awk "BEGIN {print \\"took\\", 50 + '
    '$TUNE_KNOB_hot_threshold / 50}"; else echo took 90; fi'
)


def test_a_study_is_run_with_noise_first(inline: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*OPTIONS, "--policy", "nbt", "--budget", "4", "--name", "mine"]
    command = ["--command", script(FASTER), "--metric", "took ([0-9.]+)"]
    assert cli.main([*words, *command]) == 0
    captured = capsys.readouterr()
    said = captured.err
    assert said.index("noise: 4 runs of the default differ by 0.0 %") < said.index("trial 0")
    assert "note: first-touch is this machine as it is" in said
    assert "use best.yaml" in captured.out
    assert "tune exec" in captured.out and "tune sim" not in captured.out
    assert "for a server: tune apply" in said
    text = Path("results/mine/best.yaml").read_text()
    assert "For a program: tune exec best.yaml -- command args..." in text
    assert cli.main([*words, *command, "--resume"]) == 0
    assert cli.main(["check", "results/mine/best.yaml", "-w", "gups"]) == 2
    assert "it was measured by a command" in capsys.readouterr().err


@pytest.mark.parametrize("on", ["simulated", "live"])
def test_a_simulated_study_ends_with_how_it_is_measured_live(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    best = SimpleNamespace(advice=Advice.use_best)
    summary = SimpleNamespace(best_config="x", best_objective=1.0, verdict=best)
    monkeypatch.setattr(run, "run_study", lambda _: summary)
    monkeypatch.setattr(targets, "command", lambda _: "tune apply x --for linux")
    words = ["run", "-w", "gups", "--policy", "nbt", "--name", "mine"]
    live_words = ["--on", "live", "--command", "sh", "--metric", "exit-time"]
    assert cli.main(words + live_words * (on == "live")) == 0
    said = capsys.readouterr().err
    assert ("results/mine --on live --command 'COMMAND'" in said) == (on == "simulated")
    assert "for a server: tune apply x --for linux" in said


def test_a_command_that_does_not_run_ends_the_study_before_its_search(
    inline: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*OPTIONS, "--policy", "nbt", "--command", script("exit 4"), "--metric", "exit-time"]
    assert cli.main([*words, "--budget", "4"]) == 1
    assert "the default has not run once, so nothing is tuned: sh ended: 4" in (
        capsys.readouterr().err
    )


def test_a_simulated_study_is_where_a_live_one_starts_and_what_it_verifies(
    inline: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_verify import study

    from tuner.study import log

    monkeypatch.setattr(verify, "_simulated", lambda *_: 4.0)
    data = study(Path("results/sim"), "--name", "sim")
    monkeypatch.setattr(log, "load", lambda _: data)
    monkeypatch.setattr(log, "exists", lambda _: True)
    request = request_of("--policy", "nbt", "--from", "sim", "--budget", "20")
    assert [start["hot_threshold"] for start in request.starts] == [20.0, 1000.0, 1000.0]
    costs = [t.result.cost for t in data.done if t.result is not None and t.result.cost is not None]
    assert [known.over for known in request.prior] == [cost / costs[0] for cost in costs]
    names = {knob.name for knob in request.tuned}
    assert all(set(known.knobs) == names for known in request.prior)
    capsys.readouterr()
    other = request_of("--policy", "nbt", "--from", "sim", "--workload", "redis")
    assert other.starts and not other.prior
    assert "--from: of workload gups: its trials say nothing of this one" in capsys.readouterr().err
    live_one = LiveRunner(request_of("--policy", "nbt", command=script(FASTER)).isolation).live
    plan = verify.plan(data, top=2, layouts=3, deadline=None, note=print, own_command=live_one)
    assert plan.machine == live_one.host
    assert [place for place, _ in plan.places()][:4] == [0, 1, 2, 3]
    runner = LiveRunner(live_one)
    verify.measure(plan, InlineOf(runner), lambda _: None)
    found = verify.judge(plan, data, None)
    assert found.winner is not None and found.verdict.advice == "use-best"
    assert found.emulated == live_one.host


class InlineOf(Inline):
    def __init__(self, work: Callable[[Trial], TrialResult]) -> None:
        super().__init__(work)
