# SPDX-License-Identifier: MIT
"""The PEBS/IBS sampler. No hardware is needed: the kernel's page-fault event, whose samples have
the same layout, takes the place of the processor's, and sysfs is a folder of ours."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from tuner import cli, engine
from tuner.documents import catalog
from tuner.errors import UserError
from tuner.record import samplers
from tuner.record.samplers.pebs import Event, Pebs

# While it records, the tuner keeps all signals for the program, the timeout's SIGALRM too.
pytestmark = pytest.mark.timeout(method="thread")

PAGE_FAULTS = Event("page-faults", type=1, config=2, period=1, filter="faults")


class Faults(Pebs):
    """Page faults instead of memory samples; everything else is the sampler's own."""

    name = "faults"

    @classmethod
    def unavailable(cls) -> str | None:
        return None

    def events(self) -> list[Event]:
        return [PAGE_FAULTS]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(samplers._MODULES, "faults", "tests_of_pebs:Faults")
    monkeypatch.setitem(sys.modules, "tests_of_pebs", sys.modules[__name__])
    monkeypatch.chdir(tmp_path)
    ourselves = Faults({}, catalog.machine("skx").spec)
    ourselves.launch([], tmp_path)
    try:
        ourselves.attach(os.getpid())
    except UserError as error:
        if any(os.strerror(n) in str(error) for n in (errno.EPERM, errno.EACCES, errno.ENOSYS)):
            pytest.skip(f"the kernel gives no page-fault events: {error}")
        raise
    finally:
        ourselves.detach()
    for spool in tmp_path.iterdir():
        spool.unlink()


def machine(folder: Path, device: str, events: dict[str, str]) -> Path:
    """A sysfs with one device."""
    (folder / device / "events").mkdir(parents=True)
    (folder / device / "format").mkdir()
    (folder / device / "type").write_text("4\n")
    for name, text in events.items():
        (folder / device / "events" / name).write_text(text + "\n")
    for name, where in {
        "event": "config:0-7",
        "umask": "config:8-15",
        "ldlat": "config1:0-15",
        "odd": "config2:1,4-5",
    }.items():
        (folder / device / "format" / name).write_text(where + "\n")
    return folder


def sampler(**given: float) -> Pebs:
    return Pebs(given, catalog.machine("skx").spec)


# --- Which events ---------------------------------------------------------------------------------


def test_intel_events_are_read_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Pebs,
        "devices",
        machine(
            tmp_path,
            "cpu",
            {
                "mem-loads": "event=0xcd,umask=0x1,ldlat=3",
                "mem-loads-aux": "event=0x03,umask=0x82",
                "mem-stores": "event=0xd0,umask=0x82,odd=5",
            },
        ),
    )
    assert Pebs.unavailable() is None
    loads, stores = sampler(period=5000, latency=30).events()
    assert (loads.type, loads.config, loads.config1) == (4, 0x01CD, 30)
    assert (loads.leader, loads.period, loads.precise) == (0x8203, 5000, 2)
    assert (stores.config, stores.config2, stores.filter) == (0x82D0, 0b100010, "stores")


def test_amd_samples_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pebs, "devices", machine(tmp_path, "ibs_op", {}))
    assert Pebs.unavailable() is None
    (event,) = sampler(period=1000).events()
    assert (event.type, event.period, event.filter) == (4, 992, "operations")


def test_a_machine_without_memory_samples_is_told_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pebs, "devices", machine(tmp_path, "software", {}))
    reason = Pebs.unavailable()
    assert reason is not None
    for word in ("mem-loads", "ibs_op", "offers software", "--sampler emulation"):
        assert word in reason


def test_an_event_that_cannot_be_opened_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = sampler()
    monkeypatch.setattr(broken, "events", lambda: [Event("no-such", type=4095, config=1)])
    broken.launch(["true"], tmp_path)
    with pytest.raises(UserError, match=r"no-such on processor 0.*perf_event_paranoid"):
        broken.attach(1)
    broken.detach()


# --- From the ring buffer to a workload -----------------------------------------------------------


def test_a_program_is_recorded_through_the_ring_buffers(
    faults: None, capfd: pytest.CaptureFixture[str]
) -> None:
    pages = 3000
    text = f"import mmap; m = mmap.mmap(-1, {pages * 4096}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)"
    text += f"\nfor i in range({pages}): m[i * 4096] = 1"
    words = ["record", "--sampler", "faults", "--json", "-o", "mine.tts", "--"]
    assert cli.main([*words, sys.executable, "-S", "-c", text]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["sampler"] == "faults" and not summary["cut_short"]
    assert summary["samples"] == summary["accesses"] > pages
    assert summary["dropped"] == 0
    info = engine.native().stream_info("mine.tts")
    assert [c["name"] for c in info["classes"]] == ["random", "sequential"]
    assert any(o["pages"] >= pages for o in info["objects"])
    assert any(o["site"].startswith("libc") for o in info["objects"])


def test_children_have_spools_of_their_own(faults: None, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["record", "--sampler", "faults", "--json", "-o", "mine.tts", "--"]
    assert cli.main([*words, "sh", "-c", "true & wait; ls > /dev/null; exit 3"]) == 3
    summary = json.loads(capfd.readouterr().out)
    assert summary["processes"] == 3
    assert summary["exit_status"] == 3
    capfd.readouterr()
    assert cli.main(["record", "--sampler", "faults", "-o", "other.tts", "--", "true"]) == 0
    assert "served by a cache" in capfd.readouterr().err


def test_the_sampler_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["samplers", "--json"]) == 0
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)["samplers"]}
    assert {option["name"] for option in listed["pebs"]["options"]} == {"period", "latency"}
