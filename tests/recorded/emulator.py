# SPDX-License-Identifier: MIT
"""What recording costs over the emulator alone: how much less it could cost at most.

    python tests/recorded/emulator.py [--rounds 2] [--folder FOLDER]

Programs of programs.py run as they are, in the emulator without the plugin, and in it as the
sampler `emulation` starts it, in turn; the least processor time of each goes to
results/recorded/emulator.json. Each is one process, so that the time is its own. `make docs` writes
the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import LLC_MIB, PROGRAMS, Place, Program, Unmeasured, fetched

RESULTS = Path(__file__).resolve().parents[2] / "results/recorded/emulator.json"
MEASURED = ("Redis", "SQLite", "DuckDB", "XGBoost", "LIBLINEAR")


def cpu_seconds(program: Program, place: Place, command: list[str]) -> float:
    """Processor time of the command's process, the kernel's included."""
    process = subprocess.Popen(
        command,
        cwd=place.work,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if program.load is not None:
            program.load(place)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise Unmeasured(f"exit status {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure(program: Program, folder: Path, rounds: int) -> dict[str, object]:
    from tuner.documents import catalog
    from tuner.record.samplers.emulation import EMULATOR, Emulation

    debian, pip, version = fetched(program, folder)
    sampler = Emulation({"llc_mib": LLC_MIB}, catalog.machine("skx").spec)
    least: dict[str, float] = {}
    for _ in range(rounds):
        for way in ("native", "emulated", "recorded"):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                place = Place(debian, pip, Path(work))
                if program.set_up is not None:
                    program.set_up(place)
                command = program.command(place)
                if way == "emulated":
                    command = [EMULATOR, "-cpu", "max", *command]
                if way == "recorded":
                    spools = place.work / "spools"
                    spools.mkdir()
                    command = list(sampler.launch(command, spools).command)
                seconds = cpu_seconds(program, place, command)
                print(f"{program.name}: {way} {seconds:.2f} s", file=sys.stderr, flush=True)
                least[way] = min(seconds, least.get(way, seconds))
    return {"does": program.does, "version": version, "cpu_seconds": least}


def main() -> None:
    from tuner.files import write_atomically
    from tuner.record.samplers.emulation import EMULATOR

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    default = Path(tempfile.gettempdir()) / f"tiertune-programs-{os.getuid()}"
    parser.add_argument("--folder", type=Path, default=default, help="for packages and inputs")
    args = parser.parse_args()
    for name in (signal.SIGTERM, signal.SIGINT):  # what it has started ends with it
        signal.signal(name, signal.default_int_handler)
    args.folder.mkdir(exist_ok=True)
    os.environ["TIERTUNE_CACHE"] = str(args.folder / "cache")
    said = subprocess.run([EMULATOR, "--version"], check=True, capture_output=True, text=True)
    programs: dict[str, object] = {}
    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "emulator": said.stdout.split(" version ")[1].split()[0],
        "rounds": args.rounds,
        "llc_mib": LLC_MIB,
        "programs": programs,
    }
    for program in PROGRAMS:
        if program.name in MEASURED:
            programs[program.name] = measure(program, args.folder, args.rounds)
            write_atomically(RESULTS, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
