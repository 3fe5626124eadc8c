# SPDX-License-Identifier: MIT
"""tierd on several processes, descendants and cgroups, which share the fast tier; and what a
running tierd is asked and told."""

from __future__ import annotations

import re

from guest import Tools, boot


def fast_by_second(output: str, name: str) -> dict[int, tuple[int, int]]:
    """Of a process, whose lines follow its name: MiB of its hot set in the fast tier, and of all of
    it."""
    lines = re.search(rf"^== {name}\n((?:(?!==).*\n)*)", output, re.MULTILINE)
    assert lines, name
    said = re.findall(
        r"^second (\d+): (\d+) of \d+ MiB fast, (\d+) in all$", lines[1], re.MULTILINE
    )
    return {int(second): (int(hot), int(every)) for second, hot, every in said}


def test_processes_share_the_fast_tier_and_a_cgroup_is_followed(
    tools: Tools, programs: dict[str, bytes]
) -> None:
    ran = boot(
        tools,
        """
touch /a /b /c /d
/tierd run --policy hemem --fast-limit 80M --series /series -- \
  sh -c '/hot 96 32 40 >> /a & /hot 96 32 60 >> /b; wait' &
run=$!
for name in a b; do tail -n +1 -f /$name | grep -q '3[0-2] of 32 MiB fast'; done
/tierd status > /status; /tierd status --json > /json; /tierd status --prometheus > /prometheus
wait $run; echo "run: $?"
for name in a b; do echo "== $name"; cat /$name; done
echo "== files"
cat /status
grep -c '"tierd' /prometheus; grep '^tierd_used_bytes' /prometheus
head -n 1 /json
head -n 3 /series

mount -t cgroup2 none /sys/fs/cgroup && mkdir /sys/fs/cgroup/shop
within() { echo 0 > /sys/fs/cgroup/shop/cgroup.procs && exec "$@"; }
/tierd attach --policy hemem --fast-limit 80M --cgroup shop & tierd=$!
(within /hot 96 32 40 >> /c) & c=$!
tail -n +1 -f /c | grep -q '3[0-2] of 32 MiB fast'
(within /hot 96 32 40 >> /d) & d=$!
tail -n +1 -f /d | grep -q '3[0-2] of 32 MiB fast'
/tierd limit 20M
/tierd status | grep capacity
wait $c $d
/tierd stop; wait $tierd; echo "stopped: $?"
/tierd status; echo "none: $?"
for name in c d; do echo "== $name"; cat /$name; done
echo "== end"
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
echo "kdamonds $(cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds)"
ls /run/tierd
""",
        programs,
    )
    print(ran.output)
    for line in ("run: 0", "stopped: 0", "none: 1", "balancing 1", "kdamonds 0"):
        assert line in ran.output.splitlines(), line
    assert ran.output.count("every byte is right") == 4
    first, second, third, fourth = (fast_by_second(ran.output, name) for name in "abcd")
    for both in ((first, second), (third, fourth)):
        shared = both[0].keys() & both[1].keys()
        assert all(both[0][at][1] + both[1][at][1] <= 80 + 2 for at in shared)
    assert third[max(third)][1] + fourth[max(fourth)][1] <= 20 + 2  # after the limit
    assert 'capacity_bytes{tier="fast"} 20971520' in ran.output
    assert "fast_hit_ratio" in ran.output


def test_pages_of_three_tiers_go_a_step_at_a_time(tools: Tools, programs: dict[str, bytes]) -> None:
    """The kernel finds three memory tiers in what the firmware tells of latencies."""
    ran = boot(
        tools,
        """
/tierd run --policy hemem --fast-limit 24M --journal /j -- /tiers 96 16 16 180 > /out &
tail -f /out & until grep -q 'second 5:' /out; do :; done
/tierd status | grep '^used_bytes'
wait %1; echo "exit: $?"
/tierd replay /j; /tierd replay /j.1
/tierd run --fast 0 --slow 1 --slow 1-2 -- true
/tierd run --fast 0 --slow 1 --slow 2 -- true; echo "exit: $?"
/tierd apply --policy hmsdk --dry-run | grep 'fast 0'
""",
        programs,
        nodes_mib=(384, 256, 384),
    )
    print(ran.output)
    said = re.findall(
        r"^second \d+: (\d+) of 16 MiB fast, (\d+) of 16 MiB above the last$",
        ran.output,
        re.MULTILINE,
    )
    hot, warm = said[-1]
    assert int(hot) >= 15 and int(warm) >= 15
    assert "every byte is right" in ran.output
    for tier in ("fast", "slow1", "slow2"):
        assert f'used_bytes{{tier="{tier}"}} ' in ran.output
    assert ran.output.count("every decision is the same") == 2
    assert "tierd: error: node 1 is in two tiers" in ran.output
    assert ran.output.splitlines().count("exit: 0") == 2
    assert "fast 0, slow1 1, slow2 2" in ran.output
    moved = re.search(r"in slow1, \d+ MiB in slow2; moved (\d+) MiB up", ran.output)
    assert moved is not None and int(moved[1]) >= 2 * 15 + 15  # hot pages twice
