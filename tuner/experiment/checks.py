# SPDX-License-Identifier: MIT
"""Checks: runs beside the search, which tell what its result is worth.

References and the other policies' defaults at the start; default, best and their rivals on held-out
seeds at the end; then the runs that explain the best configuration (`explain.py`). What is to be
run follows from the log alone, and a check that is in the log is not run again, so that a study
can be killed here as anywhere.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.declarations import KnobValue, PolicyDecl
from tuner.emulate.trials import runner_in
from tuner.model import content_hash
from tuner.objective import OBJECTIVES
from tuner.run import cache, isolation, streams
from tuner.run.pool import Pool, Runner
from tuner.run.pools import open_pool
from tuner.run.settings import Setting
from tuner.run.trial import Status, Stream, Trial, TrialResult
from tuner.scenario import Scenario
from tuner.study.constraint import Judged, judged
from tuner.study.log import StudyData, StudyLog
from tuner.study.request import StudyRequest
from tuner.study.verdict import HELD_OUT
from tuner.terminal import LINE_SECONDS
from tuner.text import clock, quantity

POLL_SECONDS = 0.5  # between two checks for deadlines and Ctrl-C while trials run

HELD_OUT_REAL = 5

FIRST_CHECK = 1_000_000
"""Checks have numbers from here on, above those of all trials."""

OFF, BOUND = "first-touch", "static-hot"
REFERENCES = (OFF, "all-fast", BOUND)
"""What every study runs: leaving tiering off, what no tiering can beat, and the best that can be
done without moving a page."""


class Workers:
    """The pool of a study, opened when there is something to run. Use as a context manager."""

    able = True  # to run something

    def __init__(self, request: StudyRequest, runner: Runner | None) -> None:
        self._request = request
        self._runner = runner
        self._pool: Pool | None = None

    def prepare(self, stream: Stream) -> None:
        """Makes the stream, unless there is none to be made. UserError if that fails."""
        made = self._runner is None and isolation.simulates(self._request.isolation)
        if made and (self._pool is None or not streams.is_ready(stream)):
            self._request.prepare(stream)

    def pool(self, stream: Stream) -> Pool:
        """The pool, once there is a stream for it to run on.

        Making a stream takes all cores and Ray gives up if its start is held up, so one after the
        other.
        """
        self.prepare(stream)
        if self._pool is None:
            runner = self._runner or runner_in(self._request.isolation)
            self._pool = open_pool(
                runner, workers=self._request.workers, ray_address=self._request.ray_address
            )
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Check:
    """A run of `setting`, with the knobs that differ from its policy's defaults; `series`: its time
    series are kept."""

    purpose: str
    setting: Setting
    knobs: Mapping[str, KnobValue]
    series: bool = False

    @cached_property
    def trial(self) -> Trial:
        return self.setting.trial(FIRST_CHECK, self.knobs)

    @cached_property
    def key(self) -> str:
        return _key(self.trial)


class Lacking(Exception):
    """Runs that `wanted` has and the log does not, where nothing may be run now. `what` tells of
    them."""

    def __init__(self, wanted: Sequence[Check], what: str = "") -> None:
        super().__init__(what)
        self.wanted = wanted
        self.what = what


def _key(trial: Trial) -> str:
    """Equal for runs that give the same result within a study."""
    return _hash(trial.scenario, trial.knobs)


def _hash(scenario: Scenario, knobs: Mapping[str, KnobValue]) -> str:
    """A study's documents stay the same, but may have been moved."""
    return content_hash([scenario.named(), knobs])


class Checks:
    """Runs checks that the log does not have.

    Args:
        tell: is given one line per check that `run` is asked to tell about.
    """

    def __init__(
        self,
        request: StudyRequest,
        study: StudyLog,
        workers: Workers,
        tell: Callable[[str], None],
    ) -> None:
        self.request = request
        self.tell = tell
        self._study = study
        self.workers = workers
        self._flying: dict[int, Check] = {}
        self._known: dict[str, TrialResult] = {}
        self._asking = False  # a part of `together`
        self._took: list[float] = []  # wall seconds of runs
        self.learn(study.data)
        for check in study.data.checks:
            self._recall(_hash(check.scenario, check.knobs), check.result)
        numbers = (check.result.number for check in study.data.checks)
        self._next = max(numbers, default=FIRST_CHECK - 1) + 1

    def _know(self, key: str, result: TrialResult) -> None:
        self._known[key] = cache.without_series(result)
        self._took.append(result.seconds)

    def _recall(self, key: str, result: TrialResult) -> None:
        # A crash may be the host's: the check is run again when the study is resumed.
        if result.status is not Status.crashed:
            self._know(key, result)

    def learn(self, data: StudyData) -> None:
        """Takes the search's trials as known."""
        for trial in data.done:
            if trial.result is not None:
                self._recall(_key(self.request.trial(trial.number, trial.knobs)), trial.result)

    def run(
        self, wanted: Sequence[Check], *, each: bool = False, what: str = ""
    ) -> list[TrialResult]:
        """The results, in order. `what` tells how many are run; where they take long, also how far
        they are. `each` tells of every new one. Lacking: in a part of `together`."""
        missing = self.missing(wanted)
        if missing and self._asking:
            raise Lacking(missing, what)
        runs, done_runs, told = len(missing), 0, time.monotonic()
        self._announce(what, runs)

        def done(_: Checks, check: Check, result: TrialResult) -> None:
            nonlocal done_runs, told
            done_runs += 1
            standing = f"{done_runs} of {runs}{self.left(runs - done_runs)}"
            if each:
                self.tell(f"{check.purpose} ({standing}): {_outcome(check, result)}")
            elif what and time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                self.tell(f"{what}: {standing}")

        run_together(self.workers, [(self, missing)], done)
        return [self._known[check.key] for check in wanted]

    def _announce(self, what: str, runs: int) -> None:
        if what and runs:
            self.tell(f"{what}: {runs} {'run' if runs == 1 else 'runs'}{self.left(runs)}")

    def together(self, *parts: Callable[[], Any]) -> list[Any]:
        """What each part returns. They run checks side by side, so that no worker waits while one
        of them needs a few results before it can go on; what earlier parts need comes first, and
        what several need runs once.

        What a part runs must follow from results alone: it is called again from its start when runs
        that it lacked have ended.
        """
        found: dict[int, Any] = {}
        lacking: dict[int, list[Check]] = {}

        def call(number: int) -> None:
            self._asking = True
            try:
                found[number] = parts[number]()
                lacking.pop(number, None)
            except Lacking as lack:
                lacking[number] = list(lack.wanted)
                self._announce(lack.what, len(lack.wanted))
            finally:
                self._asking = False

        for number in range(len(parts)):
            call(number)
        while lacking:
            flying = {check.key for check in self._flying.values()}
            wanted = (check for number in sorted(lacking) for check in lacking[number])
            waiting = deque(check for check in self.missing(wanted) if check.key not in flying)
            if waiting:
                pool = self.workers.pool(waiting[0].trial.stream)
            while waiting and len(self._flying) < pool.workers:
                pool.submit(self.begin(waiting.popleft()))
            for result in pool.wait(POLL_SECONDS):
                self.take(result)
            for number in sorted(lacking):
                if not self.missing(lacking[number]):
                    call(number)
        return [found[number] for number in range(len(parts))]

    def left(self, runs: int) -> str:
        """`, 0:12 left`, by what runs of this study took; empty before there was one."""
        if not runs or not self._took:
            return ""
        mean = sum(self._took) / len(self._took)
        return f", {clock(runs * mean / self.request.workers)} left"

    def obtainable(self, wanted: Sequence[Check]) -> bool:
        """Whether `run` can have the results: they are known, or may be run."""
        return self.workers.able or not self.missing(wanted)

    def missing(self, wanted: Iterable[Check]) -> list[Check]:
        """What is to be run of them, each once."""
        return list({c.key: c for c in wanted if c.key not in self._known}.values())

    def begin(self, check: Check) -> Trial:
        """The run of a check, with a number of its own."""
        self._flying[self._next] = check
        self._next += 1
        return check.trial.model_copy(update={"number": self._next - 1})

    def take(self, result: TrialResult) -> Check:
        """Records the end of a run, and returns its check."""
        check = self._flying.pop(result.number)
        trial = check.trial
        self._study.checked(check.purpose, trial.scenario, trial.knobs, result, series=check.series)
        self._know(check.key, result)
        return check

    def values(
        self, wanted: Sequence[Check], *, each: bool = False, what: str = ""
    ) -> list[float | None]:
        """Their objectives; None for what failed."""
        return [result.objective for result in self.run(wanted, each=each, what=what)]


def run_together(
    workers: Workers,
    parts: Sequence[tuple[Checks, Sequence[Check]]],
    done: Callable[[Checks, Check, TrialResult], None],
) -> None:
    """Runs checks of several studies side by side; `done` is called with each that ends."""
    by_name = {checks.request.study: checks for checks, _ in parts}
    waiting = deque((checks, check) for checks, wanted in parts for check in wanted)
    running = 0
    while waiting or running:
        if waiting:
            pool = workers.pool(waiting[0][1].trial.stream)
        while waiting and running < pool.workers:
            checks, check = waiting.popleft()
            pool.submit(checks.begin(check))
            running += 1
        for result in pool.wait(POLL_SECONDS):
            running -= 1
            checks = by_name[result.study]
            done(checks, checks.take(result), result)


def _outcome(check: Check, result: TrialResult) -> str:
    if result.objective is None:
        first, *_ = result.error.splitlines() or [""]
        return f"{result.status}: {first}"
    objective = check.trial.scenario.objective
    return f"{objective} {quantity(result.objective, OBJECTIVES[objective].unit)}"


# --- What is to be run ----------------------------------------------------------------------------


def held_out(request: StudyRequest) -> list[dict[str, int]]:
    """Seeds that the search does not use, the same for every study of the same seed; with
    `held_out_streams` each comes with another stream."""
    scenario = request.scenario
    return seeds_beside(scenario, seeds_of(scenario), streams=request.held_out_streams)


def seeds_beside(scenario: Scenario, count: int, *, streams: bool = False) -> list[dict[str, int]]:
    """Seeds, and with `streams` those of streams, that trials of the scenario do not use."""
    return [
        {
            "seed": (scenario.seed + k * scenario.repeats) % 2**63,
            "stream_seed": (scenario.stream_seed + k * streams) % 2**63,
        }
        for k in range(1, count + 1)
    ]


def seeds_of(scenario: Scenario) -> int:
    """How many seeds are held out. On a real kernel, where a run takes minutes, few have to be
    enough to tell whether a gain is one."""
    return HELD_OUT if scenario.simulated else HELD_OUT_REAL


def reference(setting: Setting, policy: PolicyDecl, **stream: int) -> Check:
    """Under the setting's page size. References do not sample, so the seed is left alone, unless it
    stands for a run of a real kernel. They start in the fast tier wherever the setting's policy
    does: they never move a page, so that starting in the slow tier would make each of them
    all-slow."""
    same = {"page_bytes": setting.scenario.page_bytes, "start": "fast"} | stream
    return Check(f"reference {policy.name}", setting.under(policy, **same), {})


def untuned_of(request: StudyRequest, policy: PolicyDecl) -> Check:
    return Check(f"untuned {policy.name}", request.under(policy), {})


def bounds(checks: Checks) -> None:
    """Runs the references, and the other policies' defaults."""
    request = checks.request
    others = len(request.alternatives)
    what = f"before the search: {len(request.references)} references"
    what += f" and {others} of {others + len(request.not_run)} other policies at their defaults"
    checks.run(bounds_of(request), each=True, what=what)


def bounds_of(request: StudyRequest) -> list[Check]:
    references = [reference(request, policy) for policy in request.references]
    untuned = [untuned_of(request, policy) for policy in request.alternatives]
    return [*references, *untuned]


def on_seeds(
    setting: Setting,
    knobs: Mapping[str, KnobValue],
    seeds: Sequence[Mapping[str, int]],
    purpose: str,
    policy: PolicyDecl | None = None,
) -> list[Check]:
    """One configuration of the setting's policy, or of another, on several seeds."""
    other = policy or setting.policy
    return [Check(purpose, setting.under(other, **seed), knobs) for seed in seeds]


def judged_on(
    checks: Checks, knobs: Mapping[str, KnobValue], seeds: Sequence[Mapping[str, int]]
) -> list[Judged]:
    """What the study's constraints say of a configuration of its policy on some seeds."""
    request = checks.request
    if not request.constraints:
        return []
    runs, defaults = (on_seeds(request, each, seeds, "constraints") for each in (knobs, {}))
    checks.run([*runs, *defaults])
    return judged(request, request.constraints, checks.run(runs), checks.run(defaults))
