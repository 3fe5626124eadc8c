# SPDX-License-Identifier: MIT
"""`tune apply --for memtierd`: what its own reader would take, and what becomes of each knob."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_production import best, held, put

from tuner import engine
from tuner.apply import memtierd
from tuner.apply.product import How, Row
from tuner.apply.server import Server
from tuner.declarations import KnobValue

# Fields of PolicyAgeConfig, PidWatcherCgroupsConfig, TrackerIdlePageConfig and MoverConfig in the
# public code (github.com/intel/memtierd, pkg/memtier), in lower case as its YAML reader has them.
AGE = {"pidwatcher", "tracker", "mover", "intervalms", "swapoutms"} | {
    f"{kind}{what}" for kind in ("idle", "active") for what in ("durationms", "numas")
}
CGROUPS = {"intervalms", "cgroups"}
IDLEPAGE = {
    *("pagesinregion", "maxcountperregion", "scanintervalms", "regionsupdatems"),
    *("pagemapreadahead", "kpageflagsreadahead", "bitmapreadahead"),
}
MOVER = {"intervalms", "bandwidth"}


def knobs(**own: KnobValue) -> dict[str, KnobValue]:
    return engine.resolve("hmsdk", own)


def age(**own: KnobValue) -> dict[str, Any]:
    """The policy's configuration, as memtierd comes to it."""
    found = yaml.safe_load(memtierd.config(knobs(**own), Server((0, 2), (1,))))
    assert found.keys() == {"policy"} and found["policy"].keys() == {"name", "config"}
    assert found["policy"]["name"] == "age"
    inner: dict[str, Any] = yaml.safe_load(found["policy"]["config"])
    return inner


def rows(**own: KnobValue) -> dict[str, Row]:
    return {each.knob: each for each in memtierd.rows(knobs(**own))}


def test_every_key_is_one_of_memtierds() -> None:
    found = age()
    assert found.keys() <= AGE
    assert found["pidwatcher"]["name"] == "cgroups"
    assert yaml.safe_load(found["pidwatcher"]["config"]).keys() <= CGROUPS
    assert found["tracker"]["name"] == "idlepage"
    tracker = yaml.safe_load(found["tracker"]["config"])
    assert tracker.keys() <= IDLEPAGE
    assert found["mover"].keys() == MOVER  # of what is left out Go makes 0, which moves nothing
    numbers = [*found["mover"].values(), *tracker.values()]
    numbers += [value for key, value in found.items() if key.endswith("ms")]
    assert all(type(value) is int and value > 0 for value in numbers)
    assert (found["activenumas"], found["idlenumas"]) == ([0, 2], [1])


def test_times_and_the_bandwidth_are_in_its_units() -> None:
    found = age(
        aggregation_interval=1500,
        update_interval=9000,
        demote_age=12.5,
        promote_age=4,
        promote_quota_size=300,
        demote_quota_size=100,
        quota_interval=10,
    )
    tracker = yaml.safe_load(found["tracker"]["config"])
    assert (found["intervalms"], tracker["scanintervalms"]) == (1500, 1500)
    assert tracker["regionsupdatems"] == 9000
    assert (found["idledurationms"], found["activedurationms"]) == (12500, 4000)
    assert found["mover"]["bandwidth"] == 40  # MiB/s, of both directions


def test_no_age_is_the_shortest_and_not_never() -> None:
    assert age(demote_age=0, promote_age=0)["activedurationms"] == 1
    row = rows(promote_age=0)["promote_age"]
    assert (row.how, row.note) == (How.converted, "0 would turn it off")


@pytest.mark.parametrize(
    ("knob", "own", "how"),
    [
        ("update_interval", {}, How.exact),
        ("aggregation_interval", {}, How.converted),
        ("demote_access_max", {}, How.same),
        ("demote_access_max", {"demote_access_max": 0.1}, How.lost),
        # Of 20 samples one.
        ("promote_access_min", {"sampling_interval": 100.0, "promote_access_min": 0.05}, How.same),
        ("promote_access_min", {"sampling_interval": 100.0, "promote_access_min": 0.1}, How.lost),
        ("promote_access_max", {"promote_access_max": 0.9}, How.lost),
        ("young_filter", {}, How.lost),
        ("young_filter", {"young_filter": False}, How.same),
        ("demote_free_mid", {"demote_free_mid": 0.5}, How.lost),
        ("aol.enabled", {}, How.same),
        ("aol.enabled", {"aol.enabled": True}, How.lost),
        ("aol.low", {"aol.enabled": True}, How.lost),
        ("age_weight", {}, How.lost),
    ],
)
def test_what_becomes_of_a_knob(knob: str, own: dict[str, KnobValue], how: How) -> None:
    assert rows(**own)[knob].how is how


@pytest.mark.parametrize("policy", ["freqtier", "nbt", "damon-goal", "hemem"])
def test_policies_of_which_it_could_be_told_nothing(run: Any, tmp_path: Path, policy: str) -> None:
    done = run("apply", str(best(tmp_path, policy)), "--for", "memtierd")
    assert done.code == 2
    assert f"policy {policy} does not run there; it fits " in done.err


def test_it_is_placed_for_a_service_and_taken_away(run: Any, tmp_path: Path) -> None:
    words = ["apply", str(best(tmp_path, "hmsdk")), "--for", "memtierd", "--fast", "0"]
    done = run(*words, "--slow", "1", "--script")
    script, root = tmp_path / "script.sh", tmp_path / "root"
    script.write_text(done.out)
    put(root, "/proc/sys/kernel/osrelease", "6.16.3")
    put(root, "/proc/sys/kernel/numa_balancing", "1")

    def act(*action: str) -> subprocess.CompletedProcess[str]:
        environment = {"TIERTUNE_ROOT": str(root), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            ["sh", script, *action], env=environment, capture_output=True, text=True, check=False
        )

    missing = act("check", "redis")
    assert (missing.returncode, "build it of intel/memtierd" in missing.stderr) == (1, True)
    put(root, memtierd.BINARY, "").chmod(0o755)
    missing = act("check", "redis")
    assert "it takes a kernel with CONFIG_IDLE_PAGE_TRACKING" in missing.stderr
    put(root, memtierd.BITMAP, "")
    assert "node0 is not there" in act("check", "redis").stderr
    for node in (0, 1):
        put(root, f"/sys/devices/system/node/node{node}/cpulist", "0")
    assert act("apply", "a b").returncode == 1
    applied = act("apply", "redis-server")
    assert applied.returncode == 0, applied.stderr
    found = yaml.safe_load((root / "etc/memtierd/redis-server.yaml").read_text())
    watched = yaml.safe_load(yaml.safe_load(found["policy"]["config"])["pidwatcher"]["config"])
    assert watched == {"cgroups": ["/sys/fs/cgroup/system.slice/redis-server.service"]}
    unit = root / "etc/systemd/system/memtierd@.service"
    assert 'memtierd -config /etc/memtierd/%i.yaml -c ""' in unit.read_text()
    assert held(root, "/proc/sys/kernel/numa_balancing") == "0"
    undone = act("undo", "redis-server")
    assert undone.returncode == 0, undone.stderr
    assert not unit.exists()
    assert held(root, "/proc/sys/kernel/numa_balancing") == "1"
