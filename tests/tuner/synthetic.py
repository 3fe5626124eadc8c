# SPDX-License-Identifier: MIT
"""A study without an engine: a complete request, and runners that answer at once.

Run as a program it is a `tune run` on them: synthetic.py RUNNER OUT [FIELD=VALUE ...].

The runners stand in for `tuner.run.runner.run` behind the same seam: `Trial` in, `TrialResult` out.
Misbehaviour is asked for through the environment, which worker processes inherit.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from tuner.declarations import KnobCondition, KnobDecl, PolicyDecl
from tuner.documents.machine import MachineSpec
from tuner.documents.space import KnobRange, SpaceSpec
from tuner.documents.workload import WorkloadSpec
from tuner.model import content_hash
from tuner.run import streams
from tuner.run.trial import Status, Trial, TrialResult
from tuner.scenario import Scenario, options
from tuner.study.request import StudyRequest

KNOBS = [
    KnobDecl(name="period", type="integer", default=100, min=1, max=10_000, log=True),
    KnobDecl(name="threshold", type="real", default=4.0, min=0.5, max=64.0, log=True),
    KnobDecl(name="share", type="real", default=0.5, min=0.0, max=1.0),
    KnobDecl(name="mode", type="choice", default="plain", choices=["plain", "eager", "lazy"]),
    KnobDecl(name="aol", type="boolean", default=False),
    KnobDecl(
        name="aol.low", type="real", default=40.0, min=10.0, max=100.0,
        condition=KnobCondition(parent="aol", values=[True]),
    ),
]  # fmt: skip

_TIER: dict[str, Any] = {
    "latency_ns": 100.0,
    "read_gbps": 100.0,
    "write_gbps": 50.0,
    "store_stall": 0.2,
    "loaded": [[0.0, 1.0], [1.0, 3.0]],
}
_COSTS = ("tracker_update", "tracker_lookup", "cooling_step", "scan_step", "threshold_pass")

MACHINE = MachineSpec.model_validate(
    {
        "name": "paper-machine",
        "summary": "for tests",
        "ghz": 2.0,
        "cores": 8,
        "threads": 16,
        "llc_mib": 16.0,
        "fast": _TIER,
        "slow": _TIER | {"latency_ns": 250.0},
        "tiering": {
            "migration_fixed_us": 2.0,
            "migration_copy_gbps": 4.0,
            "migration_shootdown_us": 1.0,
            "sample_assist_ns": 100.0,
            "sample_drain_ns": 50.0,
            "work_ns": dict.fromkeys(_COSTS, 10.0),
            "huge_page_gain": 0.1,
            "daemon_core_share": 1.0,
            "sample_queue": 1024.0,
        },
    }
)

WORKLOAD = WorkloadSpec.model_validate(
    {
        "name": "synthetic",
        "summary": "for tests",
        "kernel": "none",
        "operation": "get",
        "objective": "throughput",
        "objectives": ["throughput", "p99"],
        "footprint_gib": 1.0,
        "scale": 64.0,
        "threads": 4.0,
        "machine": "paper-machine",
        "default_input": "small",
        "smoke_input": "small",
        "inputs": {"small": {"summary": "the only one"}},
    }
)


def policy(name: str, knobs: list[KnobDecl], page_bytes: int = 4096) -> PolicyDecl:
    return PolicyDecl(
        name=name, family="test", summary="for tests", citation="none", knobs=knobs,
        traits={"page_bytes": page_bytes},
    )  # fmt: skip


REFERENCES = [policy(name, []) for name in ("first-touch", "all-fast", "static-hot")]
OTHER = policy("other", [KnobDecl(name="speed", type="real", default=1.0, min=0.5, max=2.0)])
SECONDS = {"first-touch": 118.0, "all-fast": 80.0, "static-hot": 95.0, "other": 130.0}
"""Run times of what is not tuned; `paper` takes 120.9 by default and 99.9 at best."""

SCENARIO = set(options()) - {"workload", "policy", "machine"}  # those name documents


def request(out: Path, **changes: Any) -> StudyRequest:
    """A complete request; `changes` replaces fields of it or of its scenario."""
    scenario = Scenario(
        workload="synthetic",
        input="small",
        policy="paper",
        machine="paper-machine",
        objective="throughput",
        threads=4.0,
        scale=64.0,
        page_bytes=4096,
        seed=1,
    )
    fields: dict[str, Any] = {
        "scenario": replace(
            scenario, **{name: changes.pop(name) for name in SCENARIO if name in changes}
        ),
        "study": "synthetic-study",
        "out": str(out),
        "workload": WORKLOAD,
        "policy": policy("paper", KNOBS),
        "references": REFERENCES,
        "alternatives": [OTHER],
        "space": SpaceSpec(
            policy="paper", summary="all", knobs={knob.name: KnobRange() for knob in KNOBS}
        ),
        "tuned": KNOBS,
        "machine": MACHINE,
        "budget": 10,
        "workers": 1,
        "engine_version": "0",
        "engine_build": "build-a",
        "stream_maker": "maker-a",
    }
    return StudyRequest(**(fields | changes))


def seconds_of(knobs: dict[str, Any]) -> float:
    """A run time with one optimum: period matters much, threshold some, the rest little."""
    seconds = 100.0
    seconds += 12 * math.log10(knobs["period"] / 2000) ** 2
    seconds += 2 * math.log10(knobs["threshold"] / 8) ** 2
    seconds += 0.5 * (knobs["share"] - 0.3) ** 2
    modes = {"plain": 0.4, "eager": 0.0, "lazy": 0.8}
    seconds += modes[knobs["mode"]]
    if knobs["aol"]:
        seconds += 0.2 * (knobs["aol.low"] - 60) ** 2 / 2500 - 0.1
    return float(seconds)


def answer(trial: Trial, seconds: float | None = None) -> TrialResult:
    """The result of a trial that ran so many virtual seconds."""
    if seconds is None:
        name = trial.scenario.policy
        seconds = seconds_of(trial.knobs) if name == "paper" else SECONDS[name]
    throughput = 1e6 / seconds
    return TrialResult(
        study=trial.study,
        number=trial.number,
        status=Status.success,
        objective=throughput,
        cost=1 / throughput,
        metrics={"fast_hit_ratio": 0.9, "migrations": 12.0},
        latency={"get": {"p50": 900.0, "p99": 4000.0}},
        series={
            "fast_hit_ratio": [0.5 + 0.4 * i / 600 for i in range(600)],
            "operations_per_second": [1.0] * 600,
        },
        engine_version="0",
        engine_build=trial.engine_build,
        host="here",
    )


def smooth(trial: Trial) -> TrialResult:
    return answer(trial)


class OnOwnHosts:
    """As `smooth`, on nodes of a cluster that have what it takes; its host is the node's id."""

    resources: ClassVar[dict[str, float]] = {"own": 1.0}

    def __call__(self, trial: Trial) -> TrialResult:
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        return answer(trial).model_copy(update={"host": node})


def noisy(trial: Trial) -> TrialResult:
    """As `smooth`, with noise of 0.3 % that depends on the seed and the configuration. References
    do not sample, so they have none."""
    result = answer(trial)
    if not trial.knobs:
        return result
    seed = content_hash([trial.knobs, trial.scenario.seed, trial.scenario.stream_seed])
    noise = 1 + 0.003 * random.Random(seed).gauss(0, 1)
    assert result.objective is not None
    value = result.objective * noise
    return result.model_copy(update={"objective": value, "cost": 1 / value})


def useless(trial: Trial) -> TrialResult:
    """No knob does anything: there is noise of 0.3 %, and every policy takes 110 s."""
    if not trial.knobs:
        return answer(trial)
    seed = content_hash([trial.knobs, trial.scenario.seed])
    return answer(trial, 110 * (1 + 0.003 * random.Random(seed).gauss(0, 1)))


def hang() -> NoReturn:
    while True:
        threading.Event().wait()


def meet(fifo: Path) -> None:
    """Returns when the test reads the pipe, which waits for this moment."""
    fifo.open("wb").close()


def counted(trial: Trial) -> TrialResult:
    """Keeps a count of its runs in the folder SYNTHETIC_RUNS. A trial for which there are two pipes
    tells in the one that it runs, and waits for the other before it goes on."""
    folder = Path(os.environ["SYNTHETIC_RUNS"])
    with (folder / "runs").open("a") as file:
        file.write(f"{trial.number}\n")
    running, go_on = folder / f"running-{trial.number}", folder / f"go-on-{trial.number}"
    if running.exists():
        meet(running)
        go_on.read_bytes()
    return answer(trial)


def logs(trial: Trial) -> TrialResult:
    """The second trial fails as one in a container does, with a log."""
    if trial.number != 1:
        return smooth(trial)
    return TrialResult(
        study=trial.study, number=1, status=Status.crashed, error="it exited with 3",
        log="<first>\n\x1b[1mlast\n",
    )  # fmt: skip


def accident(trial: Trial) -> TrialResult:
    """Most things that can go wrong, by trial number. One that hangs tells so in the pipe
    SYNTHETIC_HANGS."""
    kind = {1: "raise", 2: "kill", 3: "hang", 4: "nan", 5: "timeout", 6: "exit"}.get(trial.number)
    if kind == "raise":
        raise ValueError("no such operation")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        if pipe := os.environ.get("SYNTHETIC_HANGS"):
            meet(Path(pipe))
        hang()
    if kind == "nan":
        return answer(trial).model_copy(update={"objective": math.nan, "cost": math.nan})
    if kind == "timeout":
        raise TimeoutError("deadline of 2 s passed")
    if kind == "exit":
        os._exit(3)
    return answer(trial)


def second_time_lucky(trial: Trial) -> TrialResult:
    """Hangs the first time, and tells so in the pipe SYNTHETIC_HANGS."""
    pipe = Path(os.environ["SYNTHETIC_HANGS"])
    note = pipe.with_name("second time")
    if not note.exists():
        note.touch()
        meet(pipe)
        hang()
    return answer(trial)


def dies_until_verified(trial: Trial) -> TrialResult:
    """As on a stream that crashes the engine, until somebody looks at it: its note is gone."""
    note = streams.path_of(trial.stream).with_suffix(".json")
    if note.exists():
        os.kill(os.getpid(), signal.SIGBUS)
    return answer(trial)


def always_fails(trial: Trial) -> TrialResult:
    raise RuntimeError(f"trial {trial.number} cannot work")


def die_at_write(number: int) -> None:
    """Kills this process at its n-th fsync."""
    left, fsync = number, os.fsync

    def mortal(fd: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(fd)

    os.fsync = mortal


def main(runner: str, out: str, *changes: str) -> int:
    from tuner.errors import UserError
    from tuner.experiment.loop import run_study
    from tuner.stop import Terminated, terminable

    fields = {name: json.loads(value) for name, value in (c.split("=", 1) for c in changes)}
    import synthetic  # not __main__: workers import the runner by its module's name

    die_at_write(int(os.environ.get("SYNTHETIC_DIES", "0")))
    try:
        with terminable():
            run_study(request(Path(out), **fields), runner=getattr(synthetic, runner))
    except Terminated:
        return 143
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
