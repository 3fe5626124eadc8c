# SPDX-License-Identifier: MIT
"""Live trials: what `tune run --on live` does to a host, by the module that does it. The rest of
tune does not run in the guest."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from guest import Tools, boot, python

SECONDS = 800
"""Of a guest, whose Python takes its time."""

DRIVER = b"""
import json, sys
from tuner.run import host

def fast(said):
    return [int(line.split()[2]) for line in said.decode().splitlines() if "MiB fast" in line]

def trial(name, program=None, **given):
    run = host.Run(environment={"PATH": "/bin"}, tierd="/tierd", **given)
    own = program or host.Program(run)
    told = {}
    try:
        ran = own.measure(run)
        told = {"fast": fast(ran.said), "seconds": ran.seconds, **ran.counters}
    except host.Ended as error:
        told = {"error": str(error), "overdue": isinstance(error, host.Overdue), "log": error.log}
    finally:
        print(name + ": " + json.dumps(told), flush=True)
        if program is None:
            own.end()
    return told.get("fast")

hot = ["/hot", "64", "32", "900"]
until = [*hot, "900"]  # and a share of the hot set that ends it
hemem = ["attach", "--policy", "hemem", "--fast-limit", "40M"]
nbt = ["apply", "--policy", "nbt", "--set", "hot_threshold=300", "--set", "scan_period_min=200"]
"""
STATE = """
balancing() { cat /proc/sys/kernel/numa_balancing; }
left() { ps | grep -E "[/]hot |[t]ierd|[p]ython"; }  # a guard becomes tierd
state() {
  echo "$1: balancing $(balancing), notes $(ls /run/tierd | wc -l)"
  left
}
"""


@pytest.fixture(scope="module")
def host(programs: dict[str, bytes]) -> dict[str, bytes]:
    return {**programs, **python("tuner.run.host", "json")}


def told(output: str) -> dict[str, dict[str, Any]]:
    """What the driver has said of each trial."""
    lines = re.findall(r"^([a-z0-9 ]+): (\{.*\})$", output, re.MULTILINE)
    return {name: json.loads(text) for name, text in lines}


def test_a_trial_tiers_a_command_and_leaves_nothing_behind(
    tools: Tools, host: dict[str, bytes]
) -> None:
    job = b"""
trial("off", command=hot, warm_up=2, seconds=4)
trial("hemem", command=[*until, "95"], attach=hemem)
trial("nbt", command=[*until, "25"], apply=nbt)
trial("fails", command=["sh", "-c", "echo it is wrong >&2; exit 3"], attach=hemem)
trial("hangs", command=["sh", "-c", "cat /dev/zero > /dev/null & wait"], apply=nbt, deadline=3)
trial("refused", command=hot, attach=["attach", "--policy", "nbt"], seconds=5)
kept = host.Program(host.Run(environment={"PATH": "/bin"}, tierd="/tierd", command=hot))
while max(trial("kept", kept, command=hot, attach=hemem, seconds=30)) < 16:
    pass
trial("drained", kept, command=hot, seconds=5, fast=[0], slow=[1])
kept.end()
"""
    ran = boot(
        tools,
        f"{STATE}\necho 0 > /proc/sys/kernel/numa_balancing\n/python /driver\nstate after\n",
        {**host, "/driver": DRIVER + job},
        seconds=SECONDS,
    )
    print(ran.output)
    assert ran.status == 1  # of grep: no process is left
    assert "after: balancing 0, notes 0" in ran.output.splitlines()
    found = told(ran.output)
    assert max(found["off"]["fast"]) == 0 and found["off"]["promotions"] == 0
    for name, mib in {"hemem": 30, "nbt": 8}.items():
        assert max(found[name]["fast"]) >= mib, name
        assert found[name]["promotions"] >= 256 * mib
    assert found["drained"]["fast"][0] == 0  # its pages are where they began
    assert found["fails"]["error"] == "sh ended: 3: it is wrong"
    assert found["hangs"]["overdue"]
    assert "`tierd apply` sets it up" in found["refused"]["error"]


def test_a_driver_that_is_killed_leaves_nothing_behind(
    tools: Tools, host: dict[str, bytes]
) -> None:
    """While tierd moves pages, and while the kernel does."""
    ran = boot(
        tools,
        f"""{STATE}
for how in hemem nbt; do
  /python /driver $how & driver=$!
  until [ $(balancing) != 1 ] && grep -q "MiB fast" /out; do :; done
  state "$how runs"
  kill -9 $driver; wait $driver
  while left; do :; done > /dev/null
  state "$how was killed"
  rm /out
done
""",
        {
            **host,
            "/driver": DRIVER
            + b"""
words = {"attach": hemem} if sys.argv[1] == "hemem" else {"apply": nbt}
trial("killed", command=["sh", "-c", "/hot 64 32 900 > /out"], seconds=900, **words)
""",
        },
        seconds=SECONDS,
    )
    print(ran.output)
    for how, balancing in {"hemem": 0, "nbt": 2}.items():
        assert re.search(rf"^{how} runs: balancing {balancing}, notes [1-9]", ran.output, re.M)
        assert f"{how} was killed: balancing 1, notes 0" in ran.output.splitlines()
