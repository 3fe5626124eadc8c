# SPDX-License-Identifier: MIT
"""`tune apply`: what servers get, tried on copies of their files."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_best import BEST
from test_log import filled

from tuner import engine
from tuner.apply import daemon, damo, sources, targets
from tuner.apply.product import How
from tuner.apply.server import KDAMONDS, Plan, Server, node_at, plan
from tuner.apply.worth import DEFAULT, _worth, valued
from tuner.declarations import KnobValue
from tuner.report.conclusion import Conclusion
from tuner.report.importance import Importance
from tuner.study import best as best_file
from tuner.study.contender import Contender, Kind
from tuner.study.explanation import Effect, Explanation
from tuner.study.verdict import decide

OWN = ("autonuma", "nbt", "tpp", "damon-goal", "hmsdk")
"""Policies of Linux itself."""
WATCHED = ("damon-goal", "hmsdk")
EVERYWHERE = [(policy, "linux") for policy in OWN] + [
    *(("damon-goal", "damo"), ("hmsdk", "damo"), ("hmsdk", "hmsdk"), ("hmsdk", "memtierd")),
    *(("freqtier", "tierd"), ("memtis", "tierd"), ("unified", "tierd")),
    *(("hemem", "tierd"), ("hemem", "hemem")),
    *(("hybridtier", "tierd"), ("hybridtier", "hybridtier")),
]
KNOBS: dict[str, dict[str, KnobValue]] = {
    "autonuma": {"scan_size": 128.0},
    "nbt": {"scan_size": 128.0, "promote_rate_limit": 2.0, "hot_threshold": 300.4},
    "tpp": {"watermark_scale": 0.02},
    "damon-goal": {"fast_free_goal": 0.0029, "promote_access_min": 0.37},
    "hmsdk": {"sampling_interval": 7.0, "demote_age": 12.0, "young_filter": False},
    "hemem": {"migration_period": 500, "write_sampling_period": 20000, "read_hot_threshold": 3},
    "hybridtier": {"promote_watermark": 0.02, "sample_batch": 50000.0},
}
ZONES = """\
Node 0, zone      DMA
        spanned  4095
        present  3998
  start_pfn:           1
Node 0, zone    DMA32
        spanned  94208
        present  94208
  start_pfn:           4096
Node 0, zone   Normal
        spanned  0
        present  0
  start_pfn:           0
Node 1, zone   Normal
        spanned  1048576
        present  1048576
  start_pfn:           1048576
Node 1, zone   Normal
        spanned  100
        present  90
  start_pfn:           4194304
Node 1, zone   Device
        spanned  32768
        present  32768
  start_pfn:           8388608
"""
"""With a hole in node 1, and memory of a device that is no node's."""
OLD = "7"
"""What files hold before."""


def best(folder: Path, policy: str, **scenario: Any) -> Path:
    path = folder / "best.yaml"
    given = {"workload": "gups", "policy": policy} | scenario
    knobs = engine.resolve(policy, KNOBS.get(policy, {}))
    found = BEST.model_copy(update={"scenario": replace(BEST.scenario, **given), "knobs": knobs})
    best_file.write(found, path)
    return path


def planned(policy: str) -> Plan:
    return plan(policy, engine.resolve(policy, KNOBS.get(policy, {})), Server())


def put(root: Path, file: str, text: str) -> Path:
    path = root / file.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
    return path


def held(root: Path, file: str) -> str:
    return (root / file.lstrip("/")).read_text().strip()


def machine(root: Path, made: Plan) -> Path:
    """A server's files, with all that the plan writes."""
    put(root, "/proc/sys/kernel/osrelease", "6.16.3-1-amd64")
    put(root, "/proc/zoneinfo", ZONES.rstrip())
    put(root, "/proc/vmstat", "pgpromote_success 12\nnuma_pages_migrated 3\nother 1")
    put(root, "/sys/devices/system/node/has_memory", "0-1")
    for tier in (4, 22):
        put(root, f"/sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist", str(tier % 2))
    (root / "sys/kernel/debug/sched").mkdir(parents=True)
    for write in made.writes:
        put(root, write.file, OLD)
    for number in range(2):
        for file in ("nr_regions", *(f"{n}/{end}" for n in range(2) for end in ("start", "end"))):
            put(root, f"{KDAMONDS}{number}/contexts/0/targets/0/regions/{file}", "0")
    if made.watches:
        put(root, f"{KDAMONDS}nr_kdamonds", "0")
    return root


class Script:
    """Of a policy and a target, with a server to run on."""

    def __init__(self, run: Any, folder: Path, policy: str, target: str) -> None:
        done = run("apply", str(best(folder, policy)), "--for", target, "--script")
        assert done.code == 0, done.err
        self.path = folder / "script.sh"
        self.path.write_text(done.out)
        self.root = folder / "root"
        if policy in OWN:
            machine(self.root, planned(policy))

    def __call__(self, *words: str, code: int = 0, **environment: str) -> str:
        """What it says, all of it."""
        done = subprocess.run(
            ["sh", self.path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TIERTUNE_ROOT": str(self.root)} | environment,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def scripts(run: Any, tmp_path: Path) -> Callable[[str, str], Script]:
    return lambda policy, target: Script(run, tmp_path, policy, target)


# --- Linux itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", OWN)
def test_what_the_plan_says_is_written_and_undone(
    scripts: Callable[[str, str], Script], policy: str
) -> None:
    script, made = scripts(policy, "linux"), planned(policy)
    assert "has what it takes" in script("check")
    assert all(held(script.root, w.file) in (OLD, "0") for w in made.writes)  # nothing is changed
    script("apply")
    for write in made.writes:
        if "/regions/" not in write.file:
            assert held(script.root, write.file) == write.value, write.file
    before = {w.file: w for w in made.writes if w.before is not None}
    saved = (script.root / f"run/tiertune/tiertune-{policy}").read_text().splitlines()
    assert {line.split("\t")[0] for line in saved} == set(before)
    assert (script.root / "run/tiertune").stat().st_mode & 0o777 == 0o700
    assert "it is applied already" in script("apply", code=1)
    script("undo")
    assert all(held(script.root, file) in (OLD, "0") for file in before)
    assert list((script.root / "run/tiertune").iterdir()) == []
    assert "nothing is applied" in script("undo", code=1)


@pytest.mark.parametrize("policy", WATCHED)
def test_addresses_are_those_of_the_server(
    scripts: Callable[[str, str], Script], policy: str
) -> None:
    script = scripts(policy, "linux")
    script()  # it applies unless it is told otherwise
    regions = [f"{KDAMONDS}{number}/contexts/0/targets/0/regions/" for number in range(2)]
    assert [held(script.root, f"{folder}nr_regions") for folder in regions] == ["1", "2"]
    page = 4096
    for folder, number, begin, end in (
        (regions[0], 0, 1, 4096 + 94208),
        (regions[1], 0, 1 << 20, 2 << 20),
        (regions[1], 1, 4 << 20, (4 << 20) + 100),
    ):
        assert int(held(script.root, f"{folder}{number}/start")) == begin * page
        assert int(held(script.root, f"{folder}{number}/end")) == end * page


def test_what_somebody_else_has_set_since_stays(scripts: Callable[[str, str], Script]) -> None:
    script = scripts("nbt", "linux")
    script("apply")
    put(script.root, "/proc/sys/kernel/numa_balancing", "3")
    assert "numa_balancing is '3' now, which is not what was set here" in script("undo")
    assert held(script.root, "/proc/sys/kernel/numa_balancing") == "3"
    assert held(script.root, "/proc/sys/vm/watermark_scale_factor") == OLD


def test_a_refused_value_undoes_what_was_written_before(
    scripts: Callable[[str, str], Script],
) -> None:
    script = scripts("nbt", "linux")
    last = script.root / "proc/sys/kernel/numa_balancing"
    last.unlink()
    last.symlink_to("/dev/null")  # it takes any value, and holds none
    said = script("apply", code=1)
    assert "numa_balancing does not take 2; it takes NUMA balancing with memory tiering" in said
    for write in planned("nbt").writes[:-1]:
        assert held(script.root, write.file) == OLD, write.file
    assert list((script.root / "run/tiertune").iterdir()) == []


@pytest.mark.parametrize(
    ("policy", "change", "says"),
    [
        ("nbt", ("/proc/sys/kernel/osrelease", "5.14.0-570.el9"), "it takes 6.1 or newer"),
        ("damon-goal", ("/proc/sys/kernel/osrelease", "6.12.117"), "it takes 6.16 or newer"),
        ("nbt", ("/sys/kernel/mm/numa/demotion_enabled", None), "it takes demotion between"),
        ("nbt", ("/sys/kernel/debug/sched", None), "mount -t debugfs none /sys/kernel/debug"),
        ("nbt", ("/sys/devices/virtual/memory_tiering/memory_tier4", None), "sees 1 memory tiers"),
        ("autonuma", ("/sys/devices/system/node/has_memory", "0"), "one memory node"),
        ("hmsdk", (f"{KDAMONDS}nr_kdamonds", "1"), "DAMON is in use by somebody else"),
        ("hmsdk", ("/proc/zoneinfo", ZONES.replace("Node 1", "Node 2")), "no memory of node 1"),
        (
            "hmsdk",
            ("/proc/zoneinfo", ZONES.replace("1048576\nNode", "9999\nNode")),
            "lie between each other",
        ),
        ("nbt", ("/run/tierd/applied", "x"), "tierd restore ends it"),
        ("nbt", ("/var/lib/tiertune/tierd-memtis", "x"), "another configuration is applied"),
    ],
)
def test_a_server_that_lacks_something_is_left_as_it_is(
    scripts: Callable[[str, str], Script], policy: str, change: tuple[str, str | None], says: str
) -> None:
    script = scripts(policy, "linux")
    file, text = change
    path = script.root / file.lstrip("/")
    if text is not None:
        put(script.root, file, text)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    assert says in script("apply", code=1)
    assert not (script.root / "run/tiertune").exists()


def test_an_older_kernel_with_newer_features_is_tried(
    scripts: Callable[[str, str], Script],
) -> None:
    script = scripts("nbt", "linux")
    put(script.root, "/proc/sys/kernel/osrelease", "5.14.0-570.el9")
    script("apply", TIERTUNE_ANY_KERNEL="1")


@pytest.mark.parametrize(
    ("policy", "lacking", "needed"),
    [
        ("hmsdk", "/sys/module/damon_stat/parameters/enabled", f"{KDAMONDS}nr_kdamonds"),
        ("nbt", "/sys/kernel/mm/lru_gen/enabled", "/sys/kernel/mm/numa/demotion_enabled"),
    ],
)
def test_files_that_a_kernel_may_lack_are_passed_over(
    scripts: Callable[[str, str], Script], policy: str, lacking: str, needed: str
) -> None:
    script = scripts(policy, "linux")
    optional = {write.file for write in planned(policy).writes if write.optional}
    assert lacking in optional
    assert needed not in optional
    for file in optional:
        (script.root / file.lstrip("/")).unlink()
    script("apply")
    assert not any((script.root / file.lstrip("/")).exists() for file in optional)


def test_counters_are_printed(scripts: Callable[[str, str], Script]) -> None:
    assert scripts("nbt", "linux")("status") == "pgpromote_success 12\n"


def test_a_wrong_action_is_named(scripts: Callable[[str, str], Script]) -> None:
    said = scripts("nbt", "linux")("reset", code=1)
    assert "found 'reset', expected check, apply, undo or status" in said


def test_nodes_are_those_that_are_named(run: Any, tmp_path: Path) -> None:
    path = str(best(tmp_path, "hmsdk"))
    done = run("apply", path, "--for", "linux", "--fast", "0-1", "--slow=3", "--script")
    assert re.findall(r"^  write_regions \S+ (\d)$", done.out, re.MULTILINE) == ["0", "1", "3"]
    assert "nr_kdamonds 3\n" in done.out
    assert run("apply", path, "--for", "linux", "--fast", "0", "--slow", "0").code == 2
    assert run("apply", path, "--for", "linux", "--fast", "0").code == 2
    with pytest.raises(SystemExit):
        run("apply", path, "--for", "linux", "--fast", "1-0", "--slow", "2")
    path = str(best(tmp_path, "nbt"))
    done = run("apply", path, "--for", "linux", "--fast", "0", "--slow", "1")
    assert (done.code, "the kernel's own memory tiers" in done.err) == (2, True)


def test_every_node_has_its_addresses() -> None:
    writes = plan("hmsdk", engine.resolve("hmsdk", {}), Server((0,), (5, 1023))).writes
    starts = [int(w.value) for w in writes if w.file.endswith("/regions/0/start")]
    assert [node_at(start) for start in starts] == [0, 5, 1023]


# --- damo -----------------------------------------------------------------------------------------


def test_damo_is_started_and_stopped(scripts: Callable[[str, str], Script], tmp_path: Path) -> None:
    script, told = scripts("damon-goal", "damo"), tmp_path / "told"
    fake = tmp_path / "damo"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {told}\nexit ${{FAILS:-0}}\n')
    fake.chmod(0o755)
    assert "pip install damo" in script("apply", code=1, DAMO="/nowhere/damo")
    script("apply", DAMO=str(fake))
    assert told.read_text().split()[0] == "start"
    assert shlex.split(told.read_text())[1:] == damo.arguments(planned("damon-goal"))
    assert held(script.root, "/proc/sys/kernel/numa_balancing") == "0"
    put(script.root, f"{KDAMONDS}0/state", "on")
    script("undo", DAMO=str(fake))
    assert told.read_text().splitlines()[-1] == "stop"
    assert held(script.root, "/proc/sys/kernel/numa_balancing") == OLD
    put(script.root, f"{KDAMONDS}0/state", "off")
    assert "does not start it" in script("apply", code=1, DAMO=str(fake), FAILS="1")
    assert held(script.root, "/proc/sys/kernel/numa_balancing") == OLD


def test_damo_is_told_what_the_plan_says() -> None:
    words = damo.arguments(planned("damon-goal"))
    for option, values in (
        ("--monitoring_intervals", "5000us 100000us 1000000us"),
        ("--monitoring_intervals_goal", "4% 3 5000us 10000000us"),
        ("--damos_action", "migrate_cold 1"),
        ("--damos_quota_goal", "node_mem_free_bp 0.291% 0"),  # 0.29 % is 28 to it
        ("--damos_filter", "young matching"),
        ("--nr_ctxs", "1 1"),
    ):
        at = words.index(option) + 1
        assert " ".join(words[at : at + len(values.split())]) == values
    hot = words[words.index("--damos_action", words.index("migrate_cold")) :]
    assert hot[hot.index("--damos_access_rate") + 1 :][:2] == ["40%", "100%"]  # 8 of 20


def test_the_real_damo_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parser, and what it would write, where it is installed."""
    package = pytest.importorskip("damo")
    monkeypatch.syspath_prepend(os.path.dirname(package.__file__))  # noqa: PTH120
    arguments, sysfs, files, info, layout = map(
        importlib.import_module,
        ("_damon_args", "_damon_sysfs", "_damo_fs", "_damo_sysinfo", "damo_report_pa_layout"),
    )
    written: dict[str, str] = {}
    monkeypatch.setattr(files, "write_file", lambda path, text: written.update({path: str(text)}))
    monkeypatch.setattr(files, "read_file", lambda path: (written.get(path, "0"), None))
    monkeypatch.setattr(info, "damon_feature_available", lambda feature: True)
    monkeypatch.setattr(arguments, "warn_unsupported_damon_features_for", lambda args: None)
    monkeypatch.setattr(
        layout, "numa_addr_ranges", lambda nodes: ([[n + 1, 9] for n in nodes], None)
    )
    for name in ("isfile", "isdir"):
        there = getattr(os.path, name)
        monkeypatch.setattr(
            os.path, name, lambda path, there=there: str(path).startswith(KDAMONDS) or there(path)
        )
    for policy in WATCHED:
        parser = argparse.ArgumentParser()
        arguments.set_damon_params_argparser(parser, min_help=False)
        made = planned(policy)
        kdamonds, error = arguments.kdamonds_for(parser.parse_args(damo.arguments(made)))
        assert error is None
        written.clear()
        assert sysfs.stage_kdamonds(kdamonds) is None
        for write in made.writes:
            if write.file in written and not write.file.endswith(("/max", "/start", "/end")):
                assert written[write.file].strip() == write.value, write.file


# --- tierd ----------------------------------------------------------------------------------------


def test_a_service_is_installed_and_removed(scripts: Callable[[str, str], Script]) -> None:
    script = scripts("memtis", "tierd")
    root = script.root
    put(root, "/proc/sys/kernel/numa_balancing", "1")
    assert "which service?" in script("apply", code=1)
    assert "which service?" in script("apply", "../x", code=1)
    assert "/usr/local/bin/tierd is not there" in script("apply", "db", code=1)
    put(root, "/usr/local/bin/tierd", "#!/bin/sh").chmod(0o755)
    script("apply", "db", "--fast-limit 16G")
    assert held(root, "/etc/tierd/db.env") == "TIERD_OPTIONS=--fast-limit 16G"
    assert best_file.read(root / "etc/tierd/db.yaml").scenario.policy == "memtis"
    assert held(root, f"/etc/systemd/system/{daemon.UNIT}") == daemon.unit().strip()
    assert held(root, daemon.SYSCTL) == "kernel.numa_balancing = 0"
    assert held(root, "/proc/sys/kernel/numa_balancing") == "0"
    put(root, daemon.SYSCTL, "kernel.numa_balancing = 2")  # an administrator
    assert "has changed since" in script("undo", "db")
    assert held(root, "/proc/sys/kernel/numa_balancing") == "1"
    assert held(root, daemon.SYSCTL) == "kernel.numa_balancing = 2"
    assert list((root / "etc/tierd").iterdir()) == []
    assert not (root / "etc/systemd/system" / daemon.UNIT).exists()


def test_files_of_somebody_else_are_left_alone(scripts: Callable[[str, str], Script]) -> None:
    script = scripts("memtis", "tierd")
    put(script.root, "/usr/local/bin/tierd", "#!/bin/sh").chmod(0o755)
    put(script.root, "/etc/tierd/db.yaml", "theirs")
    assert "/etc/tierd/db.yaml is there, and not as" in script("apply", "db", code=1)
    assert held(script.root, "/etc/tierd/db.yaml") == "theirs"
    assert [p.name for p in (script.root / "etc/tierd").iterdir()] == ["db.yaml"]
    assert list((script.root / "etc/sysctl.d").iterdir()) == []


# --- Sources --------------------------------------------------------------------------------------

HEMEM = """\
#define PEBS_KSWAPD_INTERVAL      (10000) // in us
#define PEBS_KSWAPD_MIGRATE_RATE  (10UL * 1024UL * 1024UL * 1024UL)
#define HOT_READ_THRESHOLD        (4)
#define HOT_WRITE_THRESHOLD       (4)
#define PEBS_COOLING_THRESHOLD    (10)
#define HOT_RING_REQS_THRESHOLD   (1024*1024)
#define COLD_RING_REQS_THRESHOLD  (128)
#define COOLING_PAGES             (8192)
//#define SAMPLE_PERIOD\t10007
#define SAMPLE_PERIOD 19997
"""


def test_constants_of_hemem_are_replaced_and_put_back(
    scripts: Callable[[str, str], Script], tmp_path: Path
) -> None:
    script = scripts("hemem", "hemem")
    header = put(script.root, "/src/pebs.h", HEMEM.rstrip())
    script("apply", "/src")
    text = header.read_text()
    for line in (
        "#define SAMPLE_PERIOD 5000",
        "#define HOT_READ_THRESHOLD (3)",
        "#define PEBS_KSWAPD_INTERVAL (500000)",
        "#define PEBS_KSWAPD_MIGRATE_RATE (10UL * 1024UL * 1024UL * 1024UL)",
        "//#define SAMPLE_PERIOD\t10007",
    ):
        assert line in text.splitlines()
    assert "undo that first" in script("apply", "/src", code=1)
    script("undo", "/src")
    assert header.read_text() == HEMEM
    header.write_text(HEMEM.replace("COOLING_PAGES", "COOLED_PAGES"))
    assert "found 0 lines with '#define COOLING_PAGES '" in script("apply", "/src", code=1)
    assert header.read_text() == HEMEM.replace("COOLING_PAGES", "COOLED_PAGES")
    assert [path.name for path in header.parent.iterdir()] == ["pebs.h"]


def test_constants_of_hybridtier_are_replaced(scripts: Callable[[str, str], Script]) -> None:
    """A line for each that the configuration has, as C++ that compiles."""
    script = scripts("hybridtier", "hybridtier")
    made = sources.rows("hybridtier", engine.resolve("hybridtier", KNOBS["hybridtier"]))
    edits = [sources.CODES["hybridtier"].edits[row.knob] for row in made if row.to]
    lines = [
        f"{edit.before}{'X / 4L' if edit.names else '1'}{edit.after} rest"
        for edit in edits
        for _ in range(edit.count)
    ]
    code = put(script.root, "/hybridtier.cpp", "\n".join(lines))
    script("apply", "/")
    text = code.read_text()
    assert "#define SAMPLE_BATCH_SIZE 50000" in text
    assert "#define ALLOC_WMARK (FAST_MEMORY_SIZE * 0.02)" in text
    assert text.count("page_momentum < 3) rest") == 2
    assert "second_chance_time_elapsed / 1000 > 60) rest" in text
    script("undo", "/")
    assert code.read_text().splitlines() == lines


# --- Every target ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "target"), EVERYWHERE)
def test_a_plan_tells_of_every_knob(
    run: Any, tmp_path: Path, policy: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = best(tmp_path, policy)
    done = run("apply", str(path), "--for", target, "--json", "--dry-run")
    assert done.code == 0, done.err
    found, knobs = done.json, engine.resolve(policy, KNOBS.get(policy, {}))
    declared = engine.policy(policy)
    active = {k.name for k in declared.knobs if declared.unmet(k.condition, knobs) is None}
    assert {row["knob"] for row in found["knobs"]} >= active
    for row in found["knobs"]:
        assert row["value"] == knobs[row["knob"]]
        assert bool(row["to"]) == (row["how"] in (How.exact, How.converted))
        assert row["note"] or row["to"], row
    assert all(found[part] for part in ("needs", "use", "undo", "proof", "texts"))
    assert found["files"] == [] and not (tmp_path / f"apply-{target}").exists()
    (name, text), *_ = found["texts"].items()
    script = tmp_path / name
    script.write_text(text)
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    assert str(tmp_path) not in text  # the same on any machine


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize(("policy", "target"), EVERYWHERE)
def test_shellcheck_finds_nothing(
    scripts: Callable[[str, str], Script], policy: str, target: str
) -> None:
    script = scripts(policy, target)
    done = subprocess.run(
        ["shellcheck", "-s", "sh", script.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("policy", ["nbt", "hmsdk"])
def test_systemd_finds_nothing_wrong(run: Any, tmp_path: Path, policy: str) -> None:
    done = run("apply", str(best(tmp_path, policy)), "--for", "linux", "-o", str(tmp_path / "o"))
    assert done.code == 0, done.err
    unit = tmp_path / f"o/tiertune-{policy}.service"
    unit.write_text(
        unit.read_text().replace(f"/usr/local/sbin/tiertune-{policy}.sh", sys.executable)
    )
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_files_are_written_and_others_are_kept(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(best(tmp_path, "nbt"))
    assert (
        "nothing is written; without --dry-run: apply-linux/tiertune-nbt.sh and apply-linux/"
        "tiertune-nbt.service\n" in run("apply", path, "--for", "linux", "--dry-run").err
    )
    folder = tmp_path / "apply-linux"
    assert not folder.exists()
    assert run("apply", path, "--for", "linux").code == 0
    names = {"tiertune-nbt.sh", "tiertune-nbt.service"}
    assert {each.name for each in folder.iterdir()} == names
    assert run("apply", path, "--for", "linux").code == 0  # the same again
    (folder / "tiertune-nbt.service").write_text("mine")
    done = run("apply", path, "--for", "linux")
    assert (done.code, "--force replaces it" in done.err) == (2, True)
    assert (folder / "tiertune-nbt.service").read_text() == "mine"
    done = run("apply", path, "--for", "linux", "--force", "--json")
    assert {Path(each).name for each in done.json["files"]} == names
    assert (folder / "tiertune-nbt.service").read_text() != "mine"


def test_the_script_that_undoes_is_the_same_but_for_that(run: Any, tmp_path: Path) -> None:
    path = str(best(tmp_path, "nbt"))
    applies = run("apply", path, "--for", "linux", "--script").out
    undoes = run("apply", path, "--for", "linux", "--undo").out
    assert undoes == applies.replace("action=${1:-apply}", "action=${1:-undo}") != applies


@pytest.mark.parametrize(
    ("policy", "target", "says"),
    [
        ("nbt", "tierd", "policy nbt does not run there; it fits linux, ansible"),
        ("nbt", "damo", "it fits linux"),
        ("damon-goal", "hmsdk", "it fits linux, damo, ansible"),
        ("hmsdk", "hemem", "it fits linux, damo, hmsdk, memtierd, ansible"),
        ("hybridtier", "linux", "it fits tierd, hybridtier, kubernetes, ansible"),
        ("nomad", "linux", "no other target fits: it needs hint faults"),
        ("nomad", "tierd", "it takes a kernel with its patches"),
        ("arms", "tierd", "it needs tier counters"),
        ("first-touch", "tierd", "it moves nothing"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(
    run: Any, tmp_path: Path, policy: str, target: str, says: str
) -> None:
    done = run("apply", str(best(tmp_path, policy)), "--for", target)
    assert done.code == 2
    assert says in done.err


def test_tierd_is_refused_what_it_refuses() -> None:
    knobs = engine.resolve("memtis", {"aol.enabled": True})
    assert (
        daemon.fits("memtis", knobs) == "aol.enabled=true: tierd does not count outstanding reads"
    )
    assert targets.fitting("memtis", knobs) == []


def test_another_advice_is_told(run: Any, tmp_path: Path) -> None:
    path = best(tmp_path, "nbt")
    assert "nothing says yet" in run("apply", str(path), "--for", "linux", "--dry-run").err
    contenders = [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[1.0, 1.1]),
        Contender(kind=Kind.tuned, policy="nbt", page_bytes=4096, values=[0.8, 0.9], study="s"),
    ]
    verdict = decide(contenders, objective="throughput", trials=5, policy="nbt", seeds=[1, 2])
    best_file.write(best_file.read(path).model_copy(update={"verdict": verdict}), path)
    done = run("apply", str(path), "--for", "linux", "--dry-run")
    assert f"the study advises otherwise: {verdict.headline}" in done.err


def test_what_checks_it_later_is_told(run: Any, tmp_path: Path) -> None:
    """The simulator runs what it has measured itself: of a verified configuration its study's."""
    path = best(tmp_path, "nbt")
    later = f"when the workload changes: tune check {path}"
    assert later in run("apply", str(path), "--for", "linux", "--dry-run").err
    other = best(tmp_path / "other", "nbt", substrate="emulated")
    verified = other.rename(tmp_path / "best-verified.yaml")
    assert later in run("apply", str(verified), "--for", "linux", "--dry-run").err
    live = best(tmp_path / "live", "nbt", substrate="live")
    assert "tune check" not in run("apply", str(live), "--for", "linux", "--dry-run").err


# --- What it costs --------------------------------------------------------------------------------


def test_a_lost_knob_is_told_with_what_the_study_knows(tmp_path: Path) -> None:
    path, policy = best(tmp_path, "hemem"), engine.policy("hemem")
    rows = sources.rows("hemem", engine.resolve("hemem", KNOBS["hemem"]))
    told = {row.knob: row.worth for row in valued(rows, policy, path) if row.how is How.lost}
    assert "no study beside best.yaml" in told["write_sampling_period"]
    defaults = sources.rows("hemem", engine.resolve("hemem", {}))
    told = {row.knob: row.worth for row in valued(defaults, policy, path) if row.how is How.lost}
    assert told == {"write_sampling_period": DEFAULT}
    filled(tmp_path / "study")
    beside = best(tmp_path / "study", "hemem")
    told = {row.knob: row.worth for row in valued(rows, policy, beside) if row.how is How.lost}
    assert "the study has not ended" in told["write_sampling_period"]


def test_measured_shares_come_before_importance() -> None:
    forest = Importance({"b": 0.25, "a": 0.5}, 0.7, 40, "default-slice")
    effect = Effect(knob="a", default=1, best=2, share=0.125, without=0.0625)
    explained = Explanation(effects=[effect], minimal={"a": 2}, kept=0.97, runs=9)
    verdict = decide([], objective="throughput", trials=5, policy="toy", seeds=[1])
    found = Conclusion(verdict, explained, forest)
    assert (
        _worth("a", found) == "12.5 % of the gain; without it 6.2 % of the gain is lost, by one run"
    )
    assert _worth("b", found).startswith("not measured; importance 25.0 %, good")
    alone = Conclusion(verdict, Explanation(effects=[effect.model_copy(update={"without": None})],
                                            minimal={}, kept=1, runs=1), forest)  # fmt: skip
    assert _worth("a", alone) == "12.5 % of the gain"
