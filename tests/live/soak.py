# SPDX-License-Identifier: MIT
"""The long form of the tests in the guest, which writes results/live.json.

TIERTUNE_TIERD=build/engine/tierd python tests/live/soak.py [--minutes 60] [--kills 200]

- `soak`: tierd moves the memory of a program that checks all of it, for so long: wrong bytes,
  moves, failures by cause, records lost, and tierd's processor time and memory.
- `kills`: tierd is killed at so many moments, and then `tierd restore` undoes what it has changed.
- `redis`: the share of pages with hot keys' values in the fast tier, every five seconds.
- `start`: milliseconds until a program runs, by itself and under `tierd run`.
- `policies`: seconds until 95 % of a hot set of 64 of 160 MiB are in the fast tier, and until
  another hot set is.
- `small`: the same with knobs for a memory of this size, of the policies that forget by numbers of
  samples which were published for hundreds of GiB.

`--part` runs one of them; what the file has of the others stays. Seconds are those of the guest's
clock, which goes on while the host does something else: `processor` is the share of one that the
guest has had.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest import Tools, boot, built
from test_redis import job, redis

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("hemem", "hybridtier", "freqtier", "memtis")
QUICK = "--policy hemem --set read_hot_threshold=2"
SMALL = {
    "hybridtier": "frequency_cooling_period=4 momentum_cooling_period=1 sample_batch=10000"
    " adaptation_period=10000 second_chance_revisit=2000",
    "freqtier": "cooling_period=4 sample_batch=10000 adaptation_period=10000 window=2",
    "memtis": "cooling_period=100000 adaptation_period=10000",
}
"""Knobs, by policy."""
LIMIT = 24
"""MiB."""


def numbers(output: str, expected: str) -> list[tuple[float, ...]]:
    """Of each line that begins so, its numbers."""
    found = [match.groups() for match in re.finditer(f"^{expected}", output, re.MULTILINE)]
    assert found, f"no line begins with {expected}:\n{output[-3000:]}"
    return [tuple(float(number) for number in groups) for groups in found]


def summary(output: str) -> dict[str, Any]:
    """What tierd says at its end."""
    up, down, calls, longest = numbers(
        output,
        r"tierd: .*; moved (\d+) MiB up and (\d+) MiB down in (\d+) calls, the longest of (\d+) us",
    )[-1]
    refused = re.findall(r"(\d+) pages refused \(([^)]*)\)", output)
    no_room = re.findall(r"no room for (\d+) pages", output)
    lost = re.findall(r"(\d+) records of DAMON lost", output)
    return {
        "moved_up_mib": up,
        "moved_down_mib": down,
        "calls": calls,
        "longest_call_ms": longest / 1000,
        "refused_pages": {cause: int(count) for count, cause in refused},
        "no_room_pages": int(no_room[-1]) if no_room else 0,
        "lost_records": int(lost[-1]) if lost else 0,
    }


def content(output: str) -> dict[str, float]:
    checked, wrong, copies, pinned, most = numbers(
        output,
        r"content: (\d+) pages checked, (\d+) wrong; (\d+) copies, (\d+) pages pinned; "
        r"\d+ MiB came, at most (\d+) KiB fast$",
    )[-1]
    return {
        "checked_pages": checked,
        "wrong_pages": wrong,
        "forked_copies": copies,
        "pinned_pages": pinned,
        "most_fast_kib": most,
        "limit_kib": LIMIT * 1024,
    }


def soak(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    seconds = given.minutes * 60
    output = run(
        f"""
mkfifo /lines
/content 999999 {seconds:g} > /lines & content=$!
/tierd attach {QUICK} --fast-limit {LIMIT}M --pid $content & tierd=$!
while read line; do
  echo "$line"
  echo "rss $(grep VmRSS /proc/$tierd/status)"
  echo "up $(cut -d' ' -f1 /proc/uptime) ticks $(cut -d' ' -f14,15 /proc/$tierd/stat)"
done < /lines
wait $content; echo "content: exit $?"
wait $tierd; echo "tierd: exit $?"
""",
        seconds,
    )
    rss = [kib for (kib,) in numbers(output, r"rss VmRSS:\s+(\d+) kB")]
    ticks = numbers(output, r"up ([\d.]+) ticks (\d+) (\d+)$")
    (first, *_, last) = [(up, user + system) for up, user, system in ticks]
    return {
        "seconds": last[0] - first[0],
        **content(output),
        **summary(output),
        "tierd_processor": (last[1] - first[1]) / 100 / (last[0] - first[0]),
        "rss_kib": {"first": rss[0], "half": rss[len(rss) // 2], "last": rss[-1]},
        "exit_status": {
            "program": numbers(output, r"content: exit (\d+)$")[-1][0],
            "tierd": numbers(output, r"tierd: exit (\d+)$")[-1][0],
        },
    }


def kills(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    output = run(
        f"""
echo never > /sys/kernel/mm/transparent_hugepage/enabled
/content 999999 99999 > /out & content=$!
until grep -q second /out; do :; done
/kills tierd {given.kills} 2 {LIMIT} $content /tierd attach --quiet {QUICK} --fast-limit {LIMIT}M
echo "kills: exit $?"
kill -TERM $content; wait $content; echo "content: exit $?"; cat /out
""",
        given.kills * 20,
    )
    count, changed, moved, most = numbers(
        output,
        r"tierd was killed (\d+) times: settings were changed at (\d+), pages had moved at (\d+); "
        r"at most (\d+) KiB fast$",
    )[-1]
    return {
        **content(output),
        "kills": count,
        "with_changed_settings": changed,
        "with_moved_pages": moved,
        "most_fast_kib_after": most,
        "wrong": len(re.findall(r"^wrong: ", output, re.MULTILINE)),
        "exit_status": {
            "kills": numbers(output, r"kills: exit (\d+)$")[-1][0],
            "program": numbers(output, r"content: exit (\d+)$")[-1][0],
        },
    }


def policies(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    return hot_sets(run, given.seconds, dict.fromkeys(POLICIES, ""))


def small(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    return hot_sets(run, given.seconds, SMALL)


def hot_sets(
    run: Callable[[str, float], str], seconds: int, knobs: dict[str, str]
) -> dict[str, Any]:
    """Each policy alone, so that a second is as long for one as for the other."""
    moves = seconds // 2
    out: dict[str, Any] = {}
    for policy, values in knobs.items():
        sets = "".join(f" --set {value}" for value in values.split())
        output = run(
            f"/tierd run --policy {policy}{sets} --fast-limit 80M -- "
            f"/hot 160 64 {seconds} {moves}\n",
            seconds,
        )
        said = numbers(output, r"second (\d+): (\d+) of 64 MiB fast, (\d+) in all$")

        def first(after: float, until: float) -> float | None:
            found = (at - after for at, mib, _ in said if after < at <= until and mib >= 61)  # noqa: B023
            return next(found, None)

        out[policy] = {
            "knobs": values,
            "seconds_to_fast": first(0, moves),
            # The second in which the hot set moves still tells of the old one.
            "seconds_to_follow": first(moves + 1, seconds),
            "share_in_the_end": said[-1][1] / 64,
            "most_fast_mib": max(mib for _, _, mib in said),
            "wrong_bytes": 0 if "every byte is right" in output else 1,
            **summary(output),
        }
    return out


def redis_load(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for policy in ("hybridtier", "hemem"):
        output = run(job(policy, 101, given.seconds), given.seconds)
        said = numbers(
            output,
            r"second (\d+): (\d+) of (\d+) pages of hot values fast, (\d+) MiB in all; "
            r"(\d+) requests; of a processor tierd ([\d.]+) %, DAMON ([\d.]+) %$",
        )
        out[policy] = {
            "hot_share": {f"{at:g}": round(fast / of, 3) for at, fast, of, *_ in said},
            "fast_mib": said[-1][3],
            "requests": said[-1][4],
            "tierd_processor": said[-1][5] / 100,
            "damon_processor": said[-1][6] / 100,
            "wrong_values": 0 if "every value is right" in output else 1,
            **summary(output),
        }
    return out


def start(run: Callable[[str, float], str], given: argparse.Namespace) -> dict[str, Any]:
    del given
    output = run("/start 50 /start; /start 50 /tierd run --quiet -- /start\n", 60)
    told = numbers(output, r"start: median ([\d.]+) ms, most ([\d.]+) ms$")
    return {
        name: {"median_ms": median, "most_ms": most}
        for name, (median, most) in zip(("alone", "under_tierd"), told, strict=True)
    }


PARTS = {
    "soak": soak,
    "kills": kills,
    "redis": redis_load,
    "start": start,
    "policies": policies,
    "small": small,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument("--minutes", type=float, default=60, help="of the soak")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60, help="for each policy")
    parser.add_argument("--out", type=Path, default=ROOT / "results/live.json")
    given = parser.parse_args()
    tools = Tools.find()
    with tempfile.TemporaryDirectory() as work:
        programs = built(Path(work))
    programs.update(redis())
    programs["/tierd"] = Path(os.environ["TIERTUNE_TIERD"]).read_bytes()
    for name in given.part or PARTS:
        spent = {"wall": 0.0, "processor": 0.0}

        def run(job: str, seconds: float) -> str:
            wall, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            ran = boot(tools, job, programs, seconds=3 * seconds + 600)
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent["wall"] += time.monotonic() - wall  # noqa: B023
            spent["processor"] += now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime  # noqa: B023
            print(ran.output)
            return ran.output

        result = PARTS[name](run, given)
        result["processor"] = round(spent["processor"] / spent["wall"], 2)
        # Parts that run at the same time write to one file.
        document = json.loads(given.out.read_text()) if given.out.exists() else {}
        document["kernel"] = tools.kernel.name.removeprefix("vmlinuz-")
        document[name] = result
        given.out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
