# SPDX-License-Identifier: MIT
"""The emulated machine's plans and answers, without the machine (that is tests/emulated)."""

from __future__ import annotations

import os
import re
import select
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tuner import engine, files, tierd
from tuner.commands import emulate
from tuner.documents.machine import MachineSpec
from tuner.emulate import debian, guest, plan
from tuner.emulate.guest import Qemu, Timing, Tools
from tuner.emulate.initramfs import archive
from tuner.emulate.measure import compared
from tuner.emulate.plan import KERNELS_OWN, Built, Emulated, How, Request, alike, how, json_lines
from tuner.errors import UserError
from tuner.run.trial import Status, Trial, TrialResult

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
BUILT = Built(kernel="linux-image-6.12.1", qemu="10.0.2", programs={"tierd": "0"})
INFO: dict[str, Any] = {"operations": 1000, "nominal_seconds": 2.5}


def trial(policy: str = "first-touch", **given: Any) -> Trial:
    return plan.trial_of("gups", engine.policy(policy), {}, **{"ratio": "1:3"} | given)


def request_of(policy: str = "first-touch", mib: int = 512, **more: Any) -> Request:
    timed = {"peak_pages": mib * MIB // 4096}
    return Request.of(trial(policy), INFO, timed, built=BUILT, **more)


# --- Plans ----------------------------------------------------------------------------------------


def test_the_fast_node_has_what_the_ratio_says() -> None:
    request = request_of()
    assert request.fast_bytes == 128 * MIB
    assert request.free_mib == 128 + plan.KEPT_MIB
    fast, slow = request.nodes_mib
    assert fast >= request.free_mib + plan.KERNEL_MIB
    assert slow >= 512 + plan.SPARE_MIB
    assert "/tiertune_guest fill 0 138\n" in request.script()
    all_fast = request_of("all-fast")
    assert all_fast.nodes_mib[0] > 512 + plan.KERNEL_MIB
    assert "fill" not in all_fast.script()
    # A hundredth of 128 + 256 MiB, but for the low watermark.
    assert request_of("hybridtier").free_mib == request.free_mib + 4 - plan.LOW_MIB


def test_who_carries_a_policy_out() -> None:
    kernel = request_of("nbt").script()
    assert "/tierd apply --policy nbt --set" in kernel
    assert "--set hot_threshold 1000" not in kernel
    assert "--set hot_threshold=1000" in kernel
    assert kernel.index("apply") < kernel.index("/tiertune_workload run gups ")
    own = request_of("hemem").script()
    assert "bind 1 /tierd run --policy hemem --source emulated --fast-limit 131072K --set" in own
    assert "-- /tiertune_guest bind -1 /tiertune_workload run gups" in own
    assert "/tiertune_guest bind 1 /tiertune_workload" in request_of("all-slow").script()
    assert "tierd" not in request_of().script()
    with pytest.raises(UserError, match="--policy soar: it places objects by name"):
        how("soar")
    with pytest.raises(UserError, match="no policy 'nobody'"):
        how("nobody")


def test_what_tierd_runs_is_what_its_page_says() -> None:
    """And the rest is refused here, not after the machine has started."""
    said = (ROOT / "docs/live.md").read_text()
    listed = re.search(r"^Policies that need samples and nothing else: (.*?)\.", said, re.M)
    assert listed is not None
    ran, lacking = set(), {}
    for policy in engine.policies():
        try:
            if how(policy) is How.tierd:
                ran.add(policy)
        except UserError as error:
            lacking[policy] = str(error)
    assert ran == set(re.findall(r"`([a-z0-9-]+)`", listed[1]))
    assert lacking["arms"] == (
        "--policy arms: it needs tier counters, which a running process does not have"
    )
    for knobs, why in (
        ({"placement": "profile"}, "placement=profile: .* does not have names of objects"),
        ({"aol.enabled": True}, "aol.enabled=true: tierd does not count outstanding reads"),
    ):
        asked = plan.trial_of("gups", engine.policy("unified"), knobs)
        with pytest.raises(UserError, match=why):
            plan.suitable(asked)
    assert lacking["multiclock"].endswith(
        "needs accessed bits, which a running process does not have"
    )


def test_the_kernels_own_policies_are_those_of_tierd() -> None:
    program = tierd.find()
    if program is None:
        pytest.skip("no tierd")
    for name in engine.policies():
        words = [str(program), "apply", "--policy", name, "--dry-run"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        refused = "is not one that Linux has itself" in done.stderr
        assert refused == (name not in KERNELS_OWN), name


def test_what_the_machine_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"a footprint of 4,096 MiB needs 5,.* at most 2,816"):
        request_of(mib=4096)
    timed = {"peak_pages": 1000}
    with pytest.raises(UserError, match=r"gups \(smoke\): found scale 2048; must be 1"):
        Request.of(trial(input="smoke"), INFO, timed, built=BUILT)
    huge = trial(page_bytes=2 << 20, scale=1.0)
    with pytest.raises(UserError, match=r"--page-bytes, --pages: .* pages of 4096 bytes"):
        Request.of(huge, INFO, timed, built=BUILT)
    with pytest.raises(UserError, match=r"--kernel: found 5\.4; allowed are 6\.12 and 7\.3"):
        Tools.find("5.4")


def test_a_key_has_all_that_a_run_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of("nbt")
    same = request.model_copy(update={"workload": "another name", "input": "of the same"})
    assert same.key == request.key
    document = request.machine.model_dump(mode="json")
    document["tiering"]["first_touch_us"] += 1  # which the simulator alone goes by
    simulated = request.model_copy(update={"machine": MachineSpec.model_validate(document)})
    assert simulated.key == request.key
    document["slow"]["latency_ns"] += 1
    others = [
        request.model_copy(update={"machine": MachineSpec.model_validate(document)}),
        request.model_copy(update={"layout": 1}),
        request.model_copy(update={"daemons": "shared"}),
        request.model_copy(update={"knobs": request.knobs | {"hot_threshold": 20.0}}),
        request.model_copy(update={"operations": 1001}),
        request.model_copy(update={"built": BUILT.model_copy(update={"qemu": "11.0"})}),
        request_of("tpp"),
        request_of("nbt", mib=256),
    ]
    monkeypatch.setattr(plan, "KERNEL_PS", 400)  # what the plan makes of it counts, too
    keys = {request.key, *(other.key for other in others)}
    monkeypatch.undo()
    assert len(keys | {request.key}) == len(others) + 2


def test_the_machine_gets_the_figures_of_its_profile() -> None:
    options = request_of().timing()
    assert (options["fast_ps"], options["slow_ps"]) == ("90000", "250000")
    assert options["slow_gbps"] == "17.0"
    assert options["slow_loaded"].startswith("0:1/0.5:1.15/")
    assert options["llc_bytes"] == str(2 * MIB)
    assert options["elsewhere"] == "tierd" and options["told_only"] == "1"
    assert options["kernel_threads"].startswith("kswapd0:")
    shared = request_of(daemons="shared").timing()
    assert not {"elsewhere", "kernel_threads", "told_only"} & shared.keys()
    # On a processor of their own the kernel's threads wait for nobody, kdamond included.
    lines = request_of("nbt").script().splitlines()
    assert lines[-2].startswith("/tiertune_guest at-once kswapd0 kswapd1 ")
    assert lines[-2].endswith(" kdamond.1") and lines[-1].startswith("/tiertune_workload ")
    assert "at-once" not in request_of("nbt", daemons="shared").script()


# --- The machine's command ------------------------------------------------------------------------


def test_the_command_of_a_timed_machine_leaves_nothing_to_chance(tmp_path: Path) -> None:
    tools = Tools(Qemu(("qemu",), (10, 0), "10.0"), Path("k"), "linux-image-6.12.1", Path("b"))
    sizes: dict[str, Any] = {"nodes_mib": (100, 300), "work": tmp_path, "append": ""}
    plain = guest.command(tools, Path("i"), timing=None, **sizes)
    assert "-icount" not in plain and "-plugin" not in plain
    timing = Timing(Path("/lib/machine.so"), {"fast_ps": "1"}, sampled=True)
    timed = guest.command(tools, Path("i"), timing=timing, **sizes)
    for pair in (("-icount", "shift=0,sleep=off"), ("-rtc", "base=2026-01-01,clock=vm")):
        assert timed[timed.index(pair[0]) + 1] == pair[1]
    assert "-rdrand" in timed[timed.index("-cpu") + 1]
    assert timed[timed.index("-append") + 1].endswith("nokaslr")
    plugin = timed[timed.index("-plugin") + 1]
    assert plugin.startswith(f"/lib/machine.so,fast_ps=1,slow_from={100 * MIB},end={400 * MIB},")
    assert f"ring={tmp_path / 'ring'}" in plugin
    unsampled = Timing(timing.plugin, timing.options)
    assert "ring=" not in str(guest.command(tools, Path("i"), timing=unsampled, **sizes))


@pytest.mark.parametrize(
    ("said", "numbers", "version"),
    [
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", (10, 0, 2), "Debian 1:10.0.2+ds-2"),
        ("QEMU emulator version 9.1", (9, 1), "9.1"),
    ],
)
def test_a_qemu_is_known_by_what_it_says(
    said: str, numbers: tuple[int, ...], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest, "run", lambda *words: said)
    found = Qemu.of("qemu-system-x86_64")
    assert (found.numbers, found.version) == (numbers, version)
    assert (found.numbers >= guest.TIMED_FROM) == (numbers[0] >= 10)


def test_an_initial_file_system_has_folders_and_programs() -> None:
    content = archive({"/a/b/program": b"\x7fELF", "init": b"#!/bin/sh\n"})
    entries: dict[str, tuple[int, bytes]] = {}
    at = 0
    while content[at : at + 6] == b"070701":
        fields = [int(content[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = content[at + 110 : at + 110 + length - 1].decode()
        start = at + 110 + length + -(110 + length) % 4
        entries[name] = (mode, content[start : start + size])
        at = start + size + -size % 4
    assert list(entries) == ["a", "a/b", "a/b/program", "init", "TRAILER!!!"]
    assert stat.S_ISDIR(entries["a"][0]) and stat.S_ISDIR(entries["a/b"][0])
    mode, program = entries["a/b/program"]
    assert program == b"\x7fELF" and stat.S_ISREG(mode) and mode & 0o111 == 0o111


def test_without_debians_tools_it_is_said_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.emulate.debian.shutil.which", lambda name: None)
    with pytest.raises(debian.Unusable, match="apt-get, apt-cache, dpkg is not here"):
        debian.Suite(debian.STABLE).refresh()


# --- Answers --------------------------------------------------------------------------------------

FOUND = Emulated(
    request="x",
    seconds=2.0,
    set_up_seconds=0.5,
    operations={"update": 1000},
    resident=[10, 30],
    marks=[300, 400, 500],
    vmstat={
        "pgpromote_success": 5,
        "pgdemote_kswapd": 3,
        "pgdemote_direct": 1,
        "pgmigrate_success": 9,
        "numa_hint_faults": 7,
        "numa_pte_updates": 20,
    },
    machine={
        **{"misses": [30, 70], "prefetched": [20, 80], "samples_lost": 2},
        **{"owed_ns": 0, "threads_busy_ns": 250_000_000},
    },
)
METRICS = {
    "seconds": 4.0,
    "total_seconds": 4.25,
    "operations": 1000.0,
    "promotions": 50.0,
    "demotions": 40.0,
    "hint_faults": 14.0,
    "pages_protected": 10.0,
    "fast_hit_ratio": 0.5,
}
SIMULATED = TrialResult(study="s", number=0, status=Status.success, metrics=METRICS)


def test_both_answers_stand_side_by_side() -> None:
    rows = {row.what: row for row in compared(request_of("nbt"), FOUND, SIMULATED)}
    assert rows["run time, s"].figures == (2.0, 4.0)
    assert rows["run time, s"].ratio == "2.00"
    assert rows["set-up, s"].figures == (0.5, 0.25)
    assert rows["ns an operation"].figures == (2e6, 4e6)
    assert rows["misses served by the fast tier, %"].figures == (25.0, 50.0)
    assert rows["promoted pages"].figures == (5, 50.0)
    assert rows["demoted pages"].figures == (4, 40.0)
    assert rows["migrated pages in all"].figures == (9, 90.0)
    assert rows["hinting faults"].figures == (7, 14.0)
    assert rows["entries armed"].ratio == "0.50"
    # What tierd moves the kernel does not count as promoted.
    rows = {row.what: row for row in compared(request_of("hemem"), FOUND, SIMULATED)}
    assert rows["promoted pages"].figures == (None, 50.0)
    assert rows["migrated pages in all"].figures == (9, 90.0)


def test_the_simulator_gets_the_watermarks_of_the_guest() -> None:
    fast = request_of().fast_bytes / 4096
    plain = trial("nbt")
    made = alike(plain, request_of("nbt"), FOUND)
    assert made.knobs["watermark_min"] == pytest.approx(300 / fast)
    assert made.knobs["watermark_scale"] == pytest.approx(100 / fast)
    assert made.knobs | {"watermark_min": 0, "watermark_scale": 0} == plain.knobs | {
        "watermark_min": 0,
        "watermark_scale": 0,
    }
    for policy in ("first-touch", "hemem", "damon-goal"):
        assert alike(trial(policy), request_of(policy), FOUND) == trial(policy)


def test_what_one_of_them_does_not_know_is_not_invented() -> None:
    failed = TrialResult(study="s", number=0, status=Status.failed, error="no")
    bare = FOUND.model_copy(update={"vmstat": {}, "operations": {}})
    for row in compared(request_of(), bare, failed):
        assert row.figures[1] is None and row.simulated == "-" and row.ratio == "-"
    rows = {row.what: row for row in compared(request_of(), bare, failed)}
    assert rows["ns an operation"].emulated == "-"


def test_the_result_says_what_was_lost_and_owed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = FOUND.machine | {"owed_ns": 100_000_000}
    owing = FOUND.model_copy(update={"machine": machine})
    emulate.show(request_of("nbt"), owing, SIMULATED, kept=False)
    out, err = capsys.readouterr()
    assert "512 MiB, of which 128 MiB fit into the fast tier; policy nbt, by the kernel" in out
    least, scale = 300 * 4096 / request_of().fast_bytes, 100 * 4096 / request_of().fast_bytes
    wanted = request_of("nbt").knobs
    assert (
        "simulated with the guest's watermarks (and what was asked for): "
        f"watermark_min {least:.4g} ({wanted['watermark_min']:.4g}), "
        f"watermark_scale {scale:.4g} ({wanted['watermark_scale']:.4g})"
    ) in out
    assert "worked 0.250 s beside it (12.5 %)" in out and "more than one processor" not in err
    assert "2 samples were lost" in err
    assert "5.0 % of the run time is work of other processors" in err
    emulate.show(request_of("first-touch"), owing, SIMULATED, kept=False)
    assert "watermarks" not in capsys.readouterr().out


def test_lines_of_the_console_that_are_no_json_are_refused() -> None:
    assert json_lines('a\n{"begin": true}\nb {"no": 1}\n') == [{"begin": True}]
    with pytest.raises(UserError, match=r"the guest said .* must be JSON"):
        json_lines('{"seconds": ')


# --- What a killed process leaves -----------------------------------------------------------------


def test_a_machine_ends_with_its_process(tmp_path: Path) -> None:
    """`kill -9` of a study takes its emulated machine along."""
    program = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tuner.emulate import guest
words = ["sh", "-c", "echo $$; exec tail -f /dev/null"]
guest._console(words, 60, lambda line: print(line, flush=True))
"""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        machine = int(process.stdout.readline())
        assert Path(f"/proc/{machine}").exists()
        watch = os.pidfd_open(machine)
        process.kill()
    assert select.select([watch], [], [], 30)[0]  # it has ended
    os.close(watch)


def test_what_killed_processes_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = [f"{guest.WORK}pipe", "another"]
    for name in ("another", f"{guest.WORK}killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "initramfs").write_text("")
    os.mkfifo(tmp_path / f"{guest.WORK}pipe")  # nobody waits for it
    with guest.work_folder() as mine:
        (mine / "initramfs").write_text("")
        with guest.work_folder() as other:
            held = {path.name for path in tmp_path.iterdir()}
            assert held == {*kept, mine.name, other.name}
            assert (mine / "initramfs").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_temporary_folder_that_cannot_be_listed_is_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{guest.WORK}killed").mkdir()

    def closed(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", closed)
        with guest.work_folder() as mine:
            assert mine.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [f"{guest.WORK}killed"]


def test_a_folder_that_is_new_is_not_taken_for_one_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = tempfile.mkdtemp

    def and_another_process_looks(**where: Any) -> str:
        folder = str(made(**where))
        if len(seen) < 2:
            seen.append(folder)
            files.remove_abandoned(tmp_path, guest.WORK, "")  # before it has its lock
        return folder

    seen: list[str] = []
    monkeypatch.setattr(tempfile, "mkdtemp", and_another_process_looks)
    with guest.work_folder() as mine:
        files.remove_abandoned(tmp_path, guest.WORK, "")
        assert mine.is_dir()
        assert str(mine) not in seen
    assert len(seen) == 2
