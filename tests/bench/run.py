# SPDX-License-Identifier: MIT
"""Runs every benchmark of the project in one go, prints a table and writes `name -> value` as JSON.

    python tests/bench/run.py --build build/bench --out results/bench.json [--only PREFIX] [--full]

Machines are shared and noisy: read ratios and medians, and run it when nothing else does.
Cachegrind figures (instructions, L1 data misses) do not depend on load. `to_native.*` are speeds of
the build that users get, relative to one compiled for this processor alone (--native), in
alternating runs. `--full` adds the whole `tune run --workload cachelib --budget 100`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# name -> (unit, comparison, target). A figure without a row here is printed for information.
TARGETS: dict[str, tuple[str, str, float]] = {
    "cbf.blocked.4m.zipf": ("M/s", ">=", 60),
    "cbf.blocked.4m.uniform": ("M/s", ">=", 55),
    "cbf.blocked.64m.zipf": ("M/s", ">=", 35),
    "cbf.blocked.64m.uniform": ("M/s", ">=", 33),
    "cbf.ratio.64m.uniform": ("x", ">=", 3),
    "cbf.cachegrind.d1_misses": ("per increment", "<=", 1.15),
    "cbf.cachegrind.instructions": ("per increment", "<=", 110),
    "replay.hybridtier.cachelib": ("accesses/s", ">=", 400e6),
    "replay.ratio_to_bare": ("x", ">=", 0.40),
    "replay.hybridtier.64mi": ("accesses/s", ">=", 150e6),
    "replay.rss_gib.64mi": ("GiB", "<=", 4),
    # of every policy that learns from them
    "replay.samples.*": ("accesses/s", ">=", 300e6),
    "replay.traps.*": ("accesses/s", ">=", 150e6),
    "replay.future.*": ("accesses/s", ">=", 60e6),
    "to_native.cbf.4m.uniform": ("x", ">=", 0.95),
    "to_native.cbf.4m.zipf": ("x", ">=", 0.95),
    "to_native.cbf.64m.uniform": ("x", ">=", 0.95),
    "to_native.cbf.64m.zipf": ("x", ">=", 0.95),
    "to_native.recorder.scattered": ("x", ">=", 0.95),
    "to_native.recorder.sequential": ("x", ">=", 0.95),
    "to_native.replay.64mi": ("x", ">=", 0.95),
    "to_native.replay.cachelib": ("x", ">=", 0.95),
    "live.samples.*": ("M/s", ">=", 10),
    "live.share.*": ("of a core", "<=", 0.01),
    "trial.cachelib.seconds": ("s", "<=", 3),
    "tuner.overhead.seconds": ("s/trial", "<=", 0.6),
    "tune.help.seconds": ("s", "<=", 0.3),
    "tune.run.seconds": ("s", "<=", 300),
    "study.1000.seconds": ("s", "<=", 360),
    "study.ratio": ("x", "<=", 3.2),
    "study.driver_mib": ("MiB/100", "<=", 2),
    "study.mlflow_mb": ("MB/100", "<=", 1),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_json(command: list[str]) -> dict[str, float]:
    """Runs a benchmark program whose standard output is one JSON object."""
    say("$ " + " ".join(command))
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: float(value) for name, value in json.loads(out).items()}


def medians(command: list[str], rounds: int = 9) -> dict[str, float]:
    """Of several runs one after the other: a shared host may be half as fast for some seconds."""
    found = [run_json(command) for _ in range(rounds)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def cachegrind(program: Path) -> dict[str, float]:
    """Instructions and L1 data misses per increment: the difference of two runs of other length.

    Valgrind shows the program a processor with AVX2 and without AVX-512; the set-up of both runs is
    the same and cancels out.
    """
    if shutil.which("valgrind") is None or not program.exists():
        say("cachegrind figures left out: valgrind or the portable benchmark is missing")
        return {}
    few, many = 1_000_000, 2_000_000
    counts = []
    with tempfile.TemporaryDirectory() as work:
        for increments in (few, many):
            command = [
                "valgrind",
                "--tool=cachegrind",
                "--cache-sim=yes",
                "--D1=32768,8,64",
                f"--cachegrind-out-file={work}/out",
                str(program),
                "--case",
                "blocked.4m.uniform",
                "--increments",
                str(increments),
            ]
            say("$ " + " ".join(command))
            text = subprocess.run(command, check=True, capture_output=True, text=True).stderr
            found = {
                key: int(re.search(pattern, text).group(1).replace(",", ""))  # type: ignore[union-attr]
                for key, pattern in {
                    "instructions": r"I\s+refs:\s+([\d,]+)",
                    "d1_misses": r"D1\s+misses:\s+([\d,]+)",
                }.items()
            }
            counts.append(found)
    return {
        f"cbf.cachegrind.{key}": (counts[1][key] - counts[0][key]) / (many - few)
        for key in counts[0]
    }


def cachelib_stream() -> Path:
    """The default cachelib stream, made by the tuner where it is not cached yet."""
    from tuner import engine
    from tuner.run import settings, streams

    setting = settings.resolve("cachelib", policy=engine.policy("hybridtier"))
    return streams.ensure(setting.stream())


def to_native(build: Path, native: Path, rounds: int = 9) -> dict[str, float]:
    """Speed of the build that runs everywhere over that of a native one, median of paired runs."""
    if not (native / "bench_track").exists():
        say(f"ratios to a native build left out: {native} is missing")
        return {}
    stream = str(cachelib_stream())
    cases = {
        f"cbf.{case}": (["bench_track", "--case", f"blocked.{case}"], f"blocked.{case}")
        for case in ("4m.uniform", "4m.zipf", "64m.uniform", "64m.zipf")
    }
    for case in ("cachelib", "64mi"):
        cases[f"replay.{case}"] = (["bench_replay", stream], f"replay.hybridtier.{case}")
    for case in ("scattered", "sequential"):
        cases[f"recorder.{case}"] = (["bench_recorder"], f"recorder.{case}")
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds):  # who goes first alternates, too
        seen: dict[tuple[str, ...], dict[Path, dict[str, float]]] = {}
        for name, (command, figure) in cases.items():
            if tuple(command) not in seen:
                program, *arguments = command
                order = (build, native) if turn % 2 == 0 else (native, build)
                seen[tuple(command)] = {
                    folder: run_json([str(folder / program), *arguments]) for folder in order
                }
            found = seen[tuple(command)]
            ratios[name].append(found[build][figure] / found[native][figure])
    return {f"to_native.{name}": statistics.median(values) for name, values in ratios.items()}


def trial_seconds(repeats: int = 5) -> dict[str, float]:
    """Median wall time of one default trial, as a worker runs it."""
    command = [str(Path(sys.executable).parent / "tune"), "sim", "--workload", "cachelib", "--json"]
    seconds = []
    for _ in range(repeats):
        say("$ " + " ".join(command))
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds.append(float(json.loads(out)["seconds"]))
    return {"trial.cachelib.seconds": statistics.median(seconds)}


def help_seconds(repeats: int = 9) -> dict[str, float]:
    command = [str(Path(sys.executable).parent / "tune"), "--help"]
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return {"tune.help.seconds": statistics.median(seconds)}


def full_run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as work:
        command = [
            str(Path(sys.executable).parent / "tune"),
            *("run", "--workload", "cachelib", "--budget", "100", "--json"),
        ]
        say("$ " + " ".join(command))
        start = time.perf_counter()
        out = subprocess.run(command, check=True, cwd=work, stdout=subprocess.PIPE, text=True)
        summary = json.loads(out.stdout)
        return {
            "tune.run.seconds": time.perf_counter() - start,
            "tune.run.gain": float(summary["gain"] or 0),
        }


def table(figures: dict[str, float]) -> str:
    lines = [f"{'figure':<34} {'value':>14} {'target':>12}  {'':<14}"]
    for name, value in sorted(figures.items()):
        every = name.rpartition(".")[0] + ".*"
        unit, comparison, target = TARGETS.get(name) or TARGETS.get(every) or ("", "", 0.0)
        verdict = ""
        if comparison:
            met = value >= target if comparison == ">=" else value <= target
            verdict = "met" if met else "MISSED"
        wanted = f"{comparison} {target:.4g}" if comparison else ""
        lines.append(f"{name:<34} {value:>14.5g} {wanted:>12}  {unit:<14} {verdict}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, default=ROOT / "build/bench")
    parser.add_argument("--native", type=Path, default=ROOT / "build/bench-native")
    parser.add_argument("--out", type=Path, default=ROOT / "results/bench.json")
    parser.add_argument(
        "--only",
        default="",
        help="run only these groups, comma-separated: track, cachegrind, recorder, replay, "
        "policies, live, native, trial, help, tuner, length, full",
    )
    parser.add_argument("--full", action="store_true", help="also time whole tuning runs")
    args = parser.parse_args()

    groups = {
        "track": lambda: run_json([str(args.build / "bench_track")]),
        "cachegrind": lambda: cachegrind(args.build / "bench_track"),
        "recorder": lambda: run_json([str(args.build / "bench_recorder")]),
        "replay": lambda: run_json([str(args.build / "bench_replay"), str(cachelib_stream())]),
        "policies": lambda: run_json([str(args.build / "bench_replay"), "--policies"]),
        "live": lambda: medians([str(args.build / "bench_live")]),
        "native": lambda: to_native(args.build, args.native),
        "trial": trial_seconds,
        "help": help_seconds,
        "tuner": lambda: run_json([sys.executable, str(ROOT / "tests/bench/bench_tuner.py")]),
        "length": lambda: run_json([sys.executable, str(ROOT / "tests/bench/length.py")]),
        "full": full_run,
    }
    chosen = [name for name in args.only.split(",") if name] or [
        name for name in groups if name not in ("length", "full") or args.full
    ]
    figures: dict[str, float] = {}
    if args.only and args.out.exists():  # a partial run updates its own figures only
        figures = json.loads(args.out.read_text())
    for name in chosen:
        figures |= groups[name]()
        temporary = args.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")
        temporary.replace(args.out)
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
