# SPDX-License-Identifier: MIT
"""tierd under Debian's Redis, with a load of which most goes to some of the keys."""

from __future__ import annotations

import re

from guest import Tools, boot, program

LIMIT = 32
"""MiB."""
HOT = 12_000
COLD = 60_000


def test_hot_keys_end_in_the_fast_tier(tools: Tools, programs: dict[str, bytes]) -> None:
    """The values of the hot keys are 15 of some 90 MiB. Pages are looked for in Redis's memory by
    the values that they hold."""
    ran = boot(
        tools,
        f"""
ip link set lo up
echo 1 > /proc/sys/vm/overcommit_memory
/tierd run --policy hemem --fast-limit {LIMIT}M -- \
  /usr/bin/redis-server --save "" --bind 127.0.0.1 > /log & tierd=$!
until grep -q "Ready to accept" /log || ! kill -0 $tierd; do :; done
/keys fill {HOT} {COLD} && /keys load {HOT} {COLD} 60 $tierd; echo "load: $?"
kill -TERM $tierd; wait $tierd; echo "redis: $?"
tail -n 3 /log
""",
        {**programs, **program("redis-server", "usr/bin/redis-server")},
    )
    print(ran.output)
    for line in ("load: 0", "redis: 0", "every value is right"):
        assert line in ran.output.splitlines(), line
    said = re.findall(
        r"^second \d+: (\d+) of (\d+) pages of hot values fast, (\d+) MiB in all; .*",
        ran.output,
        re.MULTILINE,
    )
    fast, of = (int(number) for number in said[-1][:2])
    assert fast >= 0.8 * of
