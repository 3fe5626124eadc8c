# SPDX-License-Identifier: MIT
"""tierd under Debian's Redis and memcached, with a load of which most goes to some of the keys."""

from __future__ import annotations

import re

import pytest
from guest import Tools, boot, program

HOT = 4_000
COLD = 50_000
LIMIT = 16
"""MiB, of some 60."""
SHARE = 60
"""Percent."""
SERVERS = {
    "redis-server": '/usr/bin/redis-server --save "" --bind 127.0.0.1',
    "memcached": "/usr/bin/memcached --user root --listen 127.0.0.1 --memory-limit 256",
}


def job(policy: str, share: int, seconds: int, server: str = "redis-server") -> str:
    """Fills the server and puts load on it, for so many seconds at most, until such a share is
    fast, within the budget."""
    return f"""
ip link set lo up
mkdir -p /etc && echo root:x:0:0::/:/bin/sh > /etc/passwd
/tierd run --policy {policy} --fast-limit {LIMIT}M -- {SERVERS[server]} > /log & tierd=$!
/keys {server} fill {HOT} {COLD} && \
  /keys {server} load {HOT} {COLD} {share} {LIMIT} {seconds} $tierd; echo "load: $?"
kill -TERM $tierd; wait $tierd; echo "server: $?"
tail -n 3 /log
"""


def redis() -> dict[str, bytes]:
    return program("redis-server", "usr/bin/redis-server")


def memcached() -> dict[str, bytes]:
    return program("memcached", "usr/bin/memcached")


@pytest.mark.parametrize("server", SERVERS)
def test_hot_keys_end_in_the_fast_tier(
    server: str, tools: Tools, programs: dict[str, bytes]
) -> None:
    """Pages are looked for in the server's memory by the values that they hold. All of them are
    fast at first, and what the budget does not allow is demoted before anything is known of it."""
    files = redis() if server == "redis-server" else memcached()
    ran = boot(tools, job("hybridtier", SHARE, 120, server), {**programs, **files})
    print(ran.output)
    for line in ("load: 0", "server: 0", "every value is right"):
        assert line in ran.output.splitlines(), line
    said = re.findall(
        r"^second \d+: (\d+) of (\d+) pages of hot values fast, (\d+) MiB in all; "
        r".* tierd ([\d.]+) %",
        ran.output,
        re.MULTILINE,
    )
    fast, of, every, processor = (float(number) for number in said[-1])
    assert 100 * fast >= SHARE * of
    assert every <= LIMIT
    assert processor > 0
