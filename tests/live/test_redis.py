# SPDX-License-Identifier: MIT
"""tierd under Debian's Redis, with a load of which most goes to some of the keys."""

from __future__ import annotations

import re

from guest import Tools, boot, program

HOT = 4_000
COLD = 50_000
LIMIT = 16
"""MiB, of some 60."""
SHARE = 60
"""Percent."""


def job(policy: str, share: int, seconds: int) -> str:
    """Fills Redis and puts load on it, for so many seconds at most, until such a share is fast."""
    return f"""
ip link set lo up
/tierd run --policy {policy} --fast-limit {LIMIT}M -- \
  /usr/bin/redis-server --save "" --bind 127.0.0.1 > /log & tierd=$!
until grep -q "Ready to accept" /log || ! kill -0 $tierd; do :; done
/keys fill {HOT} {COLD} && /keys load {HOT} {COLD} {share} {seconds} $tierd; echo "load: $?"
kill -TERM $tierd; wait $tierd; echo "redis: $?"
tail -n 3 /log
"""


def redis() -> dict[str, bytes]:
    return program("redis-server", "usr/bin/redis-server")


def test_hot_keys_end_in_the_fast_tier(tools: Tools, programs: dict[str, bytes]) -> None:
    """Pages are looked for in Redis's memory by the values that they hold. All of them are fast at
    first, and what the budget does not allow is demoted before anything is known of it."""
    ran = boot(tools, job("hybridtier", SHARE, 120), {**programs, **redis()})
    print(ran.output)
    for line in ("load: 0", "redis: 0", "every value is right"):
        assert line in ran.output.splitlines(), line
    said = re.findall(
        r"^second \d+: (\d+) of (\d+) pages of hot values fast, .* tierd ([\d.]+) %",
        ran.output,
        re.MULTILINE,
    )
    fast, of, processor = (float(number) for number in said[-1])
    assert 100 * fast >= SHARE * of
    assert processor > 0
