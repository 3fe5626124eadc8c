# SPDX-License-Identifier: MIT
"""The kernel's own policies, set up by `tierd apply` on real kernels."""

from __future__ import annotations

import json
import re

import pytest
from guest import Tools, Unusable, boot

from tuner import engine
from tuner.apply import linux
from tuner.apply.server import Server

SETTINGS = """
settings() {
  for file in /proc/sys/kernel/numa_balancing* /sys/kernel/mm/numa/demotion_enabled \\
      /proc/sys/vm/watermark_scale_factor /sys/kernel/debug/sched/numa_balancing/* \\
      /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds /sys/module/damon_stat/parameters/enabled
  do [ -e $file ] && echo "$file $(cat $file)"; done
}
restored() { /tierd restore; settings > /after; cmp /before /after && echo "$1: as before"; }
echo 0 > /proc/sys/kernel/numa_balancing
settings > /before
"""
FAST = 16
"""MiB of a hot set of 32 that have to come up."""


def hot_while(applied: str, name: str) -> str:
    """A script: a hot set in the slow tier, the command, and the wait for half of the hot set to
    be fast, or for the program to end."""
    return f"""
/hot 96 32 120 > /out & hot=$!
until grep -q "second 2:" /out; do :; done
{applied}; echo "{name}: applied $?"
until grep -qE ": (1[6-9]|2.|3.) of 32 MiB fast" /out || ! kill -0 $hot; do :; done
kill $hot; wait $hot; tail -n 1 /out | sed "s/^/{name}: /"
"""


def fast(output: str, name: str) -> int:
    """MiB of the hot set that were fast in the end."""
    said = re.search(rf"^{name}: second \d+: (\d+) of 32 MiB fast", output, re.MULTILINE)
    assert said, f"{name} said nothing"
    return int(said[1])


def documents(output: str) -> list[dict[str, object]]:
    """What --json has printed, in its order."""
    return [json.loads(text) for text in re.findall(r"^\{.*?\]\}$", output, re.M | re.S)]


def test_numa_balancing_is_set_up_and_restored(tools: Tools, programs: dict[str, bytes]) -> None:
    knobs = (
        "--set scan_size=128 --set scan_period_min=200 --set hot_threshold=300"
        " --set promote_rate_limit=2"
    )
    ran = boot(
        tools,
        f"""{SETTINGS}
/tierd apply --policy nbt {knobs} --dry-run --json; echo "dry: $?"
settings > /after; cmp /before /after && echo "dry: as before"
{hot_while(f"/tierd apply --policy nbt {knobs} --json", "nbt")}
settings
/tierd apply --policy nbt; echo "second: $?"
/tierd run --policy hemem -- true; echo "beside: $?"
restored nbt
umount /sys/kernel/debug; /tierd apply --policy nbt; echo "no debugfs: $?"
mount -t debugfs none /sys/kernel/debug
/tierd apply --policy hemem; echo "by samples: $?"
/tierd run --policy nbt -- true; echo "not to run: $?"
""",
        programs,
    )
    print(ran.output)
    lines = ran.output.splitlines()
    for line in (
        *("dry: 0", "dry: as before", "nbt: applied 0", "second: 1", "beside: 1"),
        *("nbt: as before", "no debugfs: 1", "by samples: 2", "not to run: 2"),
        "/proc/sys/kernel/numa_balancing 2",
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps 2048",
        "/sys/kernel/mm/numa/demotion_enabled true",
        "/sys/kernel/debug/sched/numa_balancing/scan_size_mb 128",
        "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms 200",
        "/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms 300",
    ):
        assert line in lines, line
    assert "mount -t debugfs none /sys/kernel/debug" in ran.output
    assert "`tierd apply` sets it up" in ran.output
    planned, applied = documents(ran.output)
    assert (planned["applied"], applied["applied"]) == (False, True)
    assert planned["writes"] == applied["writes"]
    assert fast(ran.output, "nbt") >= FAST


HMSDK = (
    "/tierd apply --policy hmsdk --set sampling_interval=100 --set quota_interval=1"
    " --set promote_quota_cores=1 > /plan"
)


def test_damons_schemes_of_6_12_migrate_and_its_goals_are_refused(
    tools: Tools, programs: dict[str, bytes]
) -> None:
    """Killed when it has changed so many settings, or a few more, it can be restored."""
    ran = boot(
        tools,
        f"""{SETTINGS}
/tierd apply --policy damon-goal; echo "goal: $?"
restored goal
{hot_while(HMSDK, "hmsdk")}
/tierd apply --policy hmsdk; echo "second: $?"
restored hmsdk
echo 1 > /proc/sys/kernel/numa_balancing; settings > /before
for changes in 2 3 4; do
  {HMSDK} & tierd=$!
  until [ -e /run/tierd/applied ] && [ $(wc -l < /run/tierd/applied) -ge $changes ]; do :; done
  kill -9 $tierd; wait $tierd
  restored killed
done
""",
        programs,
    )
    print(ran.output)
    lines = ran.output.splitlines()
    for line in ("goal: 1", "goal: as before", "hmsdk: applied 0", "second: 1", "hmsdk: as before"):
        assert line in lines, line
    assert "it takes goals by the use of a node" in ran.output
    assert "nothing has changed" in ran.output
    assert lines.count("killed: as before") == 3
    assert fast(ran.output, "hmsdk") >= FAST


def test_damons_goals_of_7_3_bring_a_hot_set_up(programs: dict[str, bytes]) -> None:
    try:
        tools = Tools.find("7.3")
    except Unusable as error:
        pytest.skip(str(error))
    apply = (
        "/tierd apply --policy damon-goal --set access_goal=0 --set sampling_interval=100"
        " --set min_regions=100 --set quota_interval=250 --set apply_interval=250"
        " --set fast_used_goal=0.9 > /plan"
    )
    ran = boot(
        tools,
        f"""{SETTINGS}
{hot_while(apply, "goal")}
settings
restored goal
/tierd apply --policy damon-goal > /plan; echo "published: $?"
cat /sys/kernel/mm/damon/admin/kdamonds/*/state
restored published
""",
        programs,
    )
    print(ran.output)
    lines = ran.output.splitlines()
    for line in (
        *("goal: applied 0", "goal: as before", "published: 0", "published: as before"),
        # What watches otherwise keeps others out.
        "/sys/module/damon_stat/parameters/enabled N",
        "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds 2",
    ):
        assert line in lines, line
    assert lines.count("on") == 2
    assert fast(ran.output, "goal") >= FAST


def test_the_script_of_tune_apply_does_the_same(tools: Tools, programs: dict[str, bytes]) -> None:
    """Addresses of nodes, which it finds by itself, are what DAMON needs to move anything."""
    knobs = engine.resolve(
        "hmsdk", {"sampling_interval": 100.0, "quota_interval": 1.0, "promote_quota_cores": 1.0}
    )
    made = linux.product("hmsdk", knobs, Server(), ["Of a test."], "apply")
    ran = boot(
        tools,
        f"""{SETTINGS}
sh /script check; echo "check: $?"
settings > /after; cmp /before /after && echo "check: as before"
{hot_while("sh /script apply", "script")}
sh /script status
sh /script apply; echo "second: $?"
sh /script undo; echo "undo: $?"
settings > /after; cmp /before /after && echo "undo: as before"
""",
        {**programs, "/script": made.files[made.script].encode()},
    )
    print(ran.output)
    lines = ran.output.splitlines()
    for line in ("check: 0", "check: as before", "script: applied 0", "second: 1", "undo: 0"):
        assert line in lines, line
    assert "undo: as before" in lines
    moved = re.findall(r"^migrate_hot sz_applied (\d+)$", ran.output, re.MULTILINE)
    assert sum(map(int, moved)) >> 20 >= FAST
