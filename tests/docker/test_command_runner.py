# SPDX-License-Identifier: MIT
"""Trials that are the user's own command: what it may do, what it may not, and what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner import engine
from tuner.run import settings
from tuner.run.contained import CommandRunner
from tuner.run.isolation import Isolation, default_image
from tuner.run.trial import Status, Trial, TrialResult

METRIC = r"took ([\d.]+) s, (?P<faults>\d+) faults"


def trial_of(deadline: float) -> Trial:
    setting = settings.resolve(
        "gups",
        policy=engine.policy("hybridtier"),
        deadline_seconds=deadline,
        study="s",
        input="smoke",
    )
    return setting.trial(7, {})


def python(script: str, *, deadline: float = 120.0, **limits: Any) -> TrialResult:
    """A trial whose command is a script in Python."""
    isolation = Isolation(
        image=default_image(),
        command=("python", "-c", script),
        metric=METRIC,
        image_id="x",
        **limits,
    )
    return CommandRunner(isolation)(trial_of(deadline))


GOOD = "print('took 2.5 s, 12 faults')"


@pytest.fixture(autouse=True)
def harmless(ours: Callable[[], set[str]]) -> Any:
    """Nothing is left of any of them, and the next trial is as good as ever."""
    before = ours()
    yield
    assert ours() == before
    result = python(GOOD)
    assert (result.status, result.objective) == (Status.success, 2.5)


def test_the_metric_is_found_in_what_it_prints() -> None:
    result = python("print('took 9 s, 1 faults'); print('took 2.5 s, 12 faults\\nbye')")
    assert result.status is Status.success
    assert (result.objective, result.cost) == (2.5, 2.5)
    assert result.metrics == {"faults": 12.0}
    assert (result.study, result.number) == ("s", 7)


def test_it_has_the_trial_in_its_environment() -> None:
    script = (
        "import json, os\n"
        "trial = json.loads(os.environ['TUNE_TRIAL'])\n"
        "assert trial['workload'] == 'gups' and trial['policy'] == os.environ['TUNE_POLICY']\n"
        "assert int(os.environ['TUNE_SEED']) == trial['seed']\n"
        "for name, value in trial['knobs'].items():\n"
        "    found = os.environ['TUNE_KNOB_' + name.replace('.', '_')]\n"
        "    assert found == str(value).lower() or float(found) == value, (name, found, value)\n"
        "print('took %d s, 0 faults' % len(trial['knobs']))"
    )
    result = python(script)
    assert result.status is Status.success, result.log
    assert result.objective == len(engine.policy("hybridtier").knobs)


@pytest.mark.parametrize(
    "printed, why",
    [
        ("nothing", "printed nothing like"),
        ("took 0 s, 1 faults", "the metric is 0, not a positive number"),
        ("took 1.2.3 s, 1 faults", "the metric is '1.2.3', not a number"),
    ],
)
def test_without_a_good_metric_it_has_failed(printed: str, why: str) -> None:
    result = python(f"print({printed!r})")
    assert result.status is Status.failed and why in result.error


def test_what_it_said_is_kept_when_it_fails() -> None:
    result = python("import sys; print('one\\ntwo', file=sys.stderr); sys.exit(3)")
    assert result.status is Status.crashed
    assert result.error == "its container exited with 3: two"
    assert result.log == "one\ntwo\n"


def test_a_command_that_is_not_there() -> None:
    isolation = Isolation(
        image=default_image(), command=("no-such-command",), metric=METRIC, image_id="x"
    )
    result = CommandRunner(isolation)(trial_of(60))
    assert result.status is Status.crashed
    assert "exited with 127" in result.error and "no-such-command" in result.error


# --- Hostile ones ---------------------------------------------------------------------------------


def test_a_fork_bomb() -> None:
    result = python(
        "import os\nwhile True:\n    os.fork()",
        deadline=5.0,
    )
    assert result.status in (Status.crashed, Status.timeout)


def test_a_memory_hog() -> None:
    result = python("kept = []\nwhile True:\n    kept.append(b'x' * (1 << 24))", memory_gib=0.25)
    assert result.status is Status.crashed
    assert "ran out of memory: --memory allows 0.25 GiB" in result.error


def test_a_full_disk() -> None:
    result = python(
        "with open('/tmp/full', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))"
    )
    assert result.status is Status.crashed and "No space left" in result.error


def test_an_endless_loop() -> None:
    result = python("while True: pass", deadline=2.0)
    assert result.status is Status.timeout and "killed" in result.error


def test_endless_output() -> None:
    result = python("while True: print('x' * 65536)", deadline=60.0)
    assert result.status is Status.failed and "says more than" in result.error


def test_endless_errors() -> None:
    script = "import sys\nwhile True: print('x' * 65536, file=sys.stderr)"
    result = python(script, deadline=3.0)
    assert result.status is Status.timeout
    assert len(result.log) <= 4096


@pytest.mark.parametrize("path", ["/etc/x", "/x", "/opt/tiertune/x", "/home/tiertune/x", "/dev/x"])
def test_it_writes_nowhere_but_into_its_scratch(path: str) -> None:
    result = python(f"open({path!r}, 'w')")
    assert result.status is Status.crashed
    assert "Read-only file system" in result.error or "Permission denied" in result.error


def test_it_reaches_no_network() -> None:
    script = (
        "import socket\n"
        "assert [name for _, name in socket.if_nameindex()] == ['lo']\n"
        "try:\n    socket.create_connection(('192.0.2.1', 80), 3)\n"
        "except OSError as error:\n    print('took 1 s,', error.errno, 'faults')"
    )
    result = python(script)
    assert (result.status, result.metrics) == (Status.success, {"faults": 101.0}), result.log


def test_it_has_no_rights() -> None:
    script = (
        "import os\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "caps = sum(int(status[name], 16) for name in ('CapPrm', 'CapEff', 'CapBnd'))\n"
        "assert int(status['NoNewPrivs']) == 1 and os.getuid() != 0\n"
        "print('took 1 s,', caps, 'faults')"
    )
    result = python(script)
    assert result.metrics == {"faults": 0.0}, result.log


def test_a_study_of_a_command(tmp_path: Path) -> None:
    """Its objective has a best threshold, and tiering as a whole is worth 1 s."""
    script = (
        "import os, math\n"
        "value = float(os.environ.get('TUNE_KNOB_momentum_hot_threshold', 0) or 0)\n"
        "off = os.environ['TUNE_POLICY'] == 'first-touch'\n"
        "print('took', 4 if off else 2 + abs(math.log(max(value, 1) / 9)), 's, 3 faults')"
    )
    command = [
        *(sys.executable, "-m", "tuner", "run", "--workload", "gups", "--input", "smoke"),
        *("--budget", "8", "--workers", "2", "--out", str(tmp_path), "--name", "mine", "--json"),
        *("--objective", "runtime", "--no-explain", "--runner", "container"),
        *("--image", default_image(), "--metric", METRIC),
    ]
    quoted = "python -c '" + script.replace("'", '"') + "'"
    done = subprocess.run(
        [*command, "--command", quoted], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["trials"], summary["failed"]) == (8, 0)
    assert summary["best_objective"] < summary["default_objective"]
    again = subprocess.run(
        [*command, "--command", quoted + " x", "--resume"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 2 and "isolation.command" in again.stderr
