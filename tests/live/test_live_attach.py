# SPDX-License-Identifier: MIT
"""`tune record --pid` on a real kernel: what DAMON says of known accesses, and that
nothing stays behind. What it blurs is the subject of tuner/record/samplers/damon.md."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from guest import Tools, boot, python

from tuner import engine
from tuner.record import damon

SECONDS = 20
WATCH = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from tuner.record import damon
reason = damon.lacking()
if reason: sys.exit(reason)
pid = int(sys.argv[1])
os.kill(pid, signal.SIGUSR1)
regions = Path(sys.argv[2])
regions.unlink(missing_ok=True)
with closing(damon.Lines(regions)) as out:
    print("watched:", damon.watch([pid], float(sys.argv[3]),
                                  damon.Monitoring(5000, 100000, 10, 1000), out))
os.kill(pid, signal.SIGTERM)
"""
LEFT = f"""
left() {{
  echo "$1: kdamonds $(cat /{damon.KDAMONDS}/nr_kdamonds)" \
    "instances $(ls /sys/kernel/tracing/instances | wc -l)"
}}
left before
"""


@pytest.fixture(scope="module")
def files(programs: dict[str, bytes]) -> dict[str, bytes]:
    return {**programs, **python("tuner.record.damon"), "/watch.py": WATCH.encode()}


def hottest_tenth(folder: Path, text: bytes) -> tuple[float, dict[str, Any]]:
    """The share of the hottest tenth of the program's own memory, as its workload has it."""
    trace = folder / "mine.tts"
    regions = folder / "regions"
    regions.write_bytes(text)
    with regions.open("rb") as read:
        _, seen = engine.native().import_trace(
            read.read,
            name="regions",
            path=str(trace),
            format="damon",
            workload="mine",
            input="recorded",
            parameters="{}",
            period=0.0,
            threads=1.0,
            ns_per_instruction=0.0,
            llc_bytes=0.0,
            block_ms=10.0,
            nominal_latency_ns=90.0,
            scale=1,
        )
    hottest = dict(engine.characteristics(trace)["hottest"])
    return hottest[0.1], dict(seen)


def test_regions_of_known_accesses_and_nothing_left_behind(
    tools: Tools, files: dict[str, bytes], tmp_path: Path
) -> None:
    kinds = ("hot", "moves", "scattered")
    # The emulated processor keeps a translation, with which the accessed bit is not set again, for
    # as long as nothing else runs.
    job = f"{LEFT}while :; do :; done & other=$!\n" + "".join(
        f"""
/skew {kind} 64 400000 > /said & skew=$!
until grep -q ready /said; do :; done
/python /watch.py $skew /regions {SECONDS}; wait $skew; sed "s/^/{kind} /" /said
left {kind}
echo "{kind} regions: $(gzip -c /regions | base64 | tr -d '\\n')"
"""
        for kind in kinds
    )
    job += f"""
kill $other
/skew hot 64 400000 > /said & skew=$!
until grep -q ready /said; do :; done
/python /watch.py $skew /regions 600 & watch=$!
until [ "$(cat /{damon.KDAMONDS}/0/state 2>/dev/null)" = on ]; do :; done
left running; kill -9 $watch; wait $watch
until [ "$(cat /{damon.KDAMONDS}/nr_kdamonds)" = 0 ]; do :; done
until [ -z "$(ls /sys/kernel/tracing/instances)" ]; do :; done
left killed
/python /watch.py $skew /regions 600 & watch=$!
until [ "$(cat /{damon.KDAMONDS}/0/state 2>/dev/null)" = on ]; do :; done
kill $skew; wait $watch; left ended
"""
    ran = boot(tools, job, files, seconds=600, append="nopcid")
    print(re.sub(r"(regions: .{40}).*", r"\1...", ran.output))
    assert ran.status == 0
    for when in ("before", *kinds, "killed", "ended"):
        assert f"{when}: kdamonds 0 instances 0" in ran.output
    assert "running: kdamonds 1 instances 1" in ran.output
    exact, found = {}, {}
    for kind in kinds:
        said = re.search(rf"^{kind} skew: .*hottest tenth has ([\d.]+)", ran.output, re.M)
        text = re.search(rf"^{kind} regions: (\S+)", ran.output, re.M)
        assert said and text, kind
        exact[kind] = float(said[1])
        raw = gzip.decompress(base64.b64decode(text[1]))
        (tmp_path / kind).mkdir()
        found[kind], seen = hottest_tenth(tmp_path / kind, raw)
        print(f"{kind}: exact {exact[kind]:.3f}, DAMON {found[kind]:.3f}", seen)
    # What lies together is told within a few points; of what is scattered less than half is.
    assert found["hot"] == pytest.approx(exact["hot"], abs=0.1)
    assert found["moves"] == pytest.approx(exact["moves"], abs=0.15)
    assert found["scattered"] < exact["scattered"] / 2
