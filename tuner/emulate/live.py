# SPDX-License-Identifier: MIT
"""Live trials: a command of the user's on the memory of a host, under tierd, under a policy of the
kernel's, or left alone (docs/live-trials.md)."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import socket
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tuner import foreign, tierd
from tuner.arguments.options import nodes
from tuner.declarations import PolicyDecl
from tuner.documents.reading import opened, read_text
from tuner.emulate.plan import How, how, set_words
from tuner.errors import UserError
from tuner.limits import EMULATED_DEADLINE_SECONDS, PROCESS
from tuner.objective import OBJECTIVES
from tuner.run import host, metric
from tuner.run.host import Ended, Overdue, Program, Ran, Run
from tuner.run.isolation import EXIT_TIME, FILE, LIVE_RESOURCE, Live, pattern, words_of
from tuner.run.metric import Failed
from tuner.run.pool import without_result
from tuner.run.runner import median
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import LIVE, Scenario, flag
from tuner.text import gib
from tuner.tierd import not_tierds

NODES = Path("/sys/devices/system/node")
TIERS = Path("/sys/devices/virtual/memory_tiering")
APPLIED = Path("/run/tierd/applied")
"""What `tierd apply` has changed, as long as it is."""
SOURCES = ("DAMON", "hardware samples", "emulated machine")
"""What tells tierd of accesses of a process that runs, as `tierd probe` calls them."""
NEEDED = ("moving pages", "populated pages")
SPARE_SECONDS = 120.0
"""Of a run, beside what --warm-up and --for ask for."""
WRITTEN_SECONDS = 0.1
"""By which the time of a file may be behind the clock."""


GIVEN = ("substrate", "fast_gib", "objective", "repeats", "seed")
"""Fields of a scenario that mean something to a live trial, beside workload and policy."""


# --- What is asked for ----------------------------------------------------------------------------


def given(fields: Mapping[str, Any], *, resume: bool) -> dict[str, Any]:
    """The fields that the command line may set. UserError for one that is the simulator's; of a
    study that is resumed all are as they were."""
    for name in fields:
        if name not in GIVEN and not resume:
            raise UserError(f"{flag(name)}: is of simulated memory; --on {LIVE} has this machine's")
    return {name: fields[name] for name in GIVEN if name in fields}


def asked(args: Namespace, policy: PolicyDecl) -> Live:
    """What the command line asks for. UserError where it does not fit together, and where this
    machine cannot do it: what is missing, and what would help."""
    others = {"runner": PROCESS, "image": None, "memory": None, "cpus": None}
    for name, wanted in others.items():
        if getattr(args, name, wanted) != wanted:
            raise UserError(f"--{name}: is of containers; --on {LIVE} runs on this machine itself")
    if args.trial_command is None or args.metric is None:
        raise UserError(f"--on {LIVE}: found no --command and --metric; it measures a command")
    command = words_of("--command", args.trial_command)
    if shutil.which(command[0]) is None:
        raise UserError(f"--command: found '{command[0]}', which is no program")
    if args.metric == EXIT_TIME and (args.warm_up or args.measured_for):
        raise UserError(
            f"--metric {EXIT_TIME}: is the whole of a run; leave out --warm-up and --for"
        )
    if args.metric != EXIT_TIME and not args.metric.startswith(FILE):
        pattern(args.metric)
    if args.keep_running and args.measured_for is None:
        raise UserError("--keep-running: what does not end needs --for")
    if args.keep_running and getattr(args, "ray_address", None):
        raise UserError("--keep-running: a cluster's workers come and go; leave it out there")
    engine = tierd.program()
    fast, slow = _nodes(args, engine)
    found = Live(
        command=command,
        metric=args.metric,
        warm_up_seconds=args.warm_up or 0.0,
        window_seconds=args.measured_for,
        keep_running=args.keep_running,
        processors=tuple(args.pin or _processors(fast if args.fast else ())),
        fast=tuple(fast),
        slow=tuple(slow),
        named=bool(args.fast),
        options=() if args.tierd_options is None else words_of("--tierd", args.tierd_options),
        host=host_of(engine),
    )
    _ready(found, policy, engine)
    return found


def host_of(engine: Path) -> str:
    return f"Linux {os.uname().release}, {tierd.version(engine)}"


def _nodes(args: Namespace, engine: Path) -> tuple[list[int], list[int]]:
    """Of the tiers. UserError if nobody tells them."""
    if (args.fast is None) != (args.slow is None):
        raise UserError("--fast and --slow: found one of them; give both, or neither")
    if args.fast is not None:
        for node in (*args.fast, *args.slow):
            if not (NODES / f"node{node}").is_dir():
                raise UserError(f"--fast, --slow: found node {node}, which this machine lacks")
        return args.fast, args.slow
    _refuse(each for each in tierd.probe(engine) if each.subject == "memory tiers")
    tiers = sorted(TIERS.glob("memory_tier*"), key=lambda tier: int(re.sub(r"\D", "", tier.name)))
    fast, *slower = [nodes(read_text(tier / "nodelist").strip()) for tier in tiers]
    return fast, [node for tier in slower for node in tier]


def _processors(near: Sequence[int]) -> list[int]:
    """Those that we may use, of the nodes if they have any."""
    ours = os.sched_getaffinity(0)
    lists = [read_text(NODES / f"node{node}" / "cpulist").strip() for node in near]
    local = {processor for text in lists if text for processor in nodes(text)}
    return sorted(ours & local or ours)


def _refuse(findings: Iterator[tierd.Told]) -> None:
    """UserError if there is one that does not work."""
    lacking = [
        f"{each.subject}: {each.found}" + (f"; what helps: {each.cure}" if each.cure else "")
        for each in findings
        if each.works is False
    ]
    if lacking:
        raise UserError("\n  ".join([f"--on {LIVE}: this machine lacks", *lacking]))


def _ready(live: Live, policy: PolicyDecl, engine: Path) -> None:
    """UserError if the policy cannot be carried out here."""
    if APPLIED.exists():
        raise UserError(f"--on {LIVE}: a policy is applied already; `tierd restore` undoes it")
    try:
        os.close(host.locked(wait=False))
    except BlockingIOError as error:
        raise UserError(f"--on {LIVE}: another live trial runs on this host") from error
    tierd.restore(engine)  # of engines that were killed, and their guards too
    if how(policy.name) is How.kernel:
        tierd.planned(engine, "--policy", policy.name, *live.nodes)  # or says why not
        return
    told = tierd.probe(engine)
    _refuse(each for each in told if each.subject in NEEDED)
    sources = [each for each in told if each.subject in SOURCES]
    if not any(each.works for each in sources) and "--source" not in live.options:
        _refuse(iter(sources))


def not_settable(live: Live, policy: PolicyDecl) -> dict[str, str]:
    """Knobs that tierd cannot honour, or for which this kernel has no setting, and why."""
    if how(policy.name) is not How.kernel:
        return not_tierds(policy)
    words = ("--policy", policy.name, *live.nodes)
    return tierd.not_settable(tierd.planned(tierd.program(), *words), policy)


def deadline(live: Live, repeats: int) -> float:
    """Seconds of a trial, unless they are given."""
    if live.window_seconds is None:
        return EMULATED_DEADLINE_SECONDS
    warm_up = live.warm_up_seconds * (1 + live.keep_running)
    return repeats * (warm_up + live.window_seconds + SPARE_SECONDS)


def ratio(live: Live) -> str:
    """Fast to slow capacity of this machine."""
    fast, slow = (sum(map(_mib, tier)) for tier in (live.fast, live.slow))
    if not fast or not slow:
        raise UserError(f"--on {LIVE}: found a tier without memory")
    return f"1:{slow / fast:.3g}" if slow >= fast else f"{fast / slow:.3g}:1"


def _mib(node: int) -> float:
    said = re.search(r"MemTotal: +(\d+) kB", read_text(NODES / f"node{node}" / "meminfo"))
    return float(said[1]) / 1024 if said else 0.0


def check_objective(live: Live, objective: str) -> None:
    """UserError if a run time is to be as long as possible."""
    if live.metric == EXIT_TIME and OBJECTIVES[objective].higher_is_better:
        raise UserError(
            f"--metric {EXIT_TIME}: found --objective {objective}, of which more is better; must "
            "be one of which less is, such as runtime"
        )


def as_it_is() -> str:
    """What no tiering means here: nothing of the kernel's own is turned off for it."""
    return f"first-touch is this machine as it is ({_tiering()})"


def _tiering() -> str:
    """The kernel's own settings."""
    values = []
    for file in ("/proc/sys/kernel/numa_balancing", "/sys/kernel/mm/numa/demotion_enabled"):
        with contextlib.suppress(UserError, OSError):
            values.append(f"{Path(file).name} {read_text(Path(file)).strip()}")
    return ", ".join(values) or "without NUMA balancing"


def conditions(live: Live, scenario: Scenario) -> dict[str, str]:
    """What two runs must have in common to be compared, by what people call it."""
    nodes = [(tier, node) for tier in ("fast", "slow") for node in getattr(live, tier)]
    memory = [f"{gib(_mib(node) / 1024)} GiB {tier} (node {node})" for tier, node in nodes]
    program = shutil.which(live.command[0]) or live.command[0]
    content = hashlib.sha256()
    with opened(Path(program)) as file:
        while part := file.read(1 << 20):
            content.update(part)
    return {
        "this machine": ", ".join([socket.gethostname(), *_processor(), *memory]),
        "kernel and tierd": live.host,
        "the kernel's settings": _tiering(),
        "--command": shlex.join(live.command),
        "its program": f"{program}, SHA-256 {content.hexdigest()[:16]}",
        "--metric": live.metric,
        "--objective of the study": scenario.objective,
        "--warm-up": f"{live.warm_up_seconds:g} s",
        "--for": "until it ends" if live.window_seconds is None else f"{live.window_seconds:g} s",
        "--keep-running": "on" if live.keep_running else "off",
        "--pin": ",".join(map(str, live.processors)),
        "--tierd": shlex.join(live.options),
        "--fast-gib of the study": gib(scenario.fast_gib) if scenario.fast_gib else "none",
    }


def _processor() -> list[str]:
    said = re.search(r"^model name\s*: (.+)$", read_text(Path("/proc/cpuinfo")), re.MULTILINE)
    return [said[1]] if said else []


# --- Trials ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LiveRunner:
    """Can be sent to another process, as any runner, and to another host that is like this one.
    `changed` is what of the environment is the tuner's own."""

    live: Live
    changed: Mapping[str, str | None] = field(default_factory=foreign.changed, hash=False)

    resources: ClassVar[dict[str, float]] = {LIVE_RESOURCE: 1.0}
    """Of Ray's, that a host gives for a trial: one at a time."""

    def __call__(self, trial: Trial) -> TrialResult:
        started = time.monotonic()
        try:
            engine = tierd.program()
            if (here := host_of(engine)) != self.live.host:
                raise UserError(f"the trial is for {self.live.host}; this host has {here}")
        except UserError as error:
            failed = without_result(trial, Status.failed, str(error), 0.0)
            return failed.model_copy(update={"host_failed": True})
        try:
            runs = []
            for _ in range(trial.scenario.repeats):
                ran = self._once(trial, engine, started)
                value, found = self.objective(ran)
                runs.append((value, found | ran.counters | {"seconds": ran.seconds}))
            middle, metrics, spread = median(runs)
            return metric.result(trial, middle, {**metrics, **spread}, started)
        except Overdue as error:
            said = f"its deadline of {trial.deadline_seconds:g} s passed"
            return self._failed(trial, Status.timeout, said, started, error.log)
        except Ended as error:
            return self._failed(trial, Status.failed, str(error), started, error.log)
        except Failed as error:
            return self._failed(trial, error.status, str(error), started, "")

    @staticmethod
    def _failed(trial: Trial, status: Status, error: str, started: float, log: str) -> TrialResult:
        result = without_result(trial, status, error, time.monotonic() - started)
        return result.model_copy(update={"log": log})

    def _once(self, trial: Trial, engine: Path, started: float) -> Ran:
        run = self._run(trial, engine, started)
        off = not (run.apply or run.attach)
        kept = _kept.pop(self.live, None)
        if kept is not None and (off or not kept.runs):
            kept.end()  # first touches are those of a new program
            kept = None
        program = kept or Program(run)
        try:
            ran = program.measure(run)
            if self.live.keep_running and not off:
                if run.apply:
                    program.undo()
                _kept[self.live] = program
            return ran
        finally:
            if self.live not in _kept:
                program.end()

    def _run(self, trial: Trial, engine: Path, started: float) -> Run:
        live, scenario = self.live, trial.scenario
        choice = ["--policy", scenario.policy, *set_words(trial.knobs), *live.nodes]
        way = how(scenario.policy)
        attach: list[str] = []
        if way is How.tierd:
            limit = ["--fast-limit", f"{scenario.fast_gib:g}G"] if scenario.fast_gib else []
            attach = ["attach", *choice, *limit, *live.options]
        stays = live.keep_running and way in (How.tierd, How.kernel)
        left = (trial.deadline_seconds or float("inf")) - (time.monotonic() - started)
        return Run(
            command=live.command,
            environment=self._environment(trial),
            tierd=str(engine),
            apply=["apply", *choice] if way is How.kernel else [],
            attach=attach,
            warm_up=live.warm_up_seconds,
            seconds=live.window_seconds,
            deadline=max(0.0, left),
            processors=live.processors,
            fast=live.fast if stays else (),
            slow=live.slow if stays else (),
        )

    def _environment(self, trial: Trial) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in self.changed}
        own |= {name: value for name, value in self.changed.items() if value is not None}
        return own | metric.environment(trial)

    def objective(self, ran: Ran) -> tuple[float, dict[str, float]]:
        """What the metric finds, and what else it names. Failed if it finds nothing."""
        asked = self.live.metric
        if asked == EXIT_TIME:
            return ran.seconds, {}
        if asked.startswith(FILE):
            return metric.positive(metric.number(_written(asked.removeprefix(FILE), ran))), {}
        matches = metric.matches(asked, ran.said)
        if not matches:
            raise Failed(Status.failed, f"its command printed nothing like {asked}")
        if self.live.window_seconds is None:
            matches = matches[-1:]
        found = [metric.values(match) for match in matches]
        names = {name for _, groups in found for name in groups}
        means = {
            name: statistics.fmean(groups[name] for _, groups in found if name in groups)
            for name in names
        }
        return metric.positive(statistics.fmean(value for value, _ in found)), means


def _written(name: str, ran: Ran) -> str:
    """The text of a file that the run has written."""
    path = Path(name)
    try:
        if path.stat().st_mtime < ran.began - WRITTEN_SECONDS:
            raise Failed(Status.failed, f"{name}: is older than the run")
        return read_text(path).strip()
    except (OSError, UserError) as error:
        raise Failed(
            Status.failed, f"{name}: {getattr(error, 'strerror', None) or error}"
        ) from error


_kept: dict[Live, Program] = {}
"""Of this process, what stays up between trials."""


@atexit.register
def _end_kept() -> None:
    while _kept:
        _, program = _kept.popitem()
        program.end()
