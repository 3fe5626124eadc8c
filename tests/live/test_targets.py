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
