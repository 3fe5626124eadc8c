# SPDX-License-Identifier: MIT
"""Whether what is recorded of a small copy says the same as the server that it stands for.

    python tests/bench/stands_for.py [--cases redis-b,cachelib-cdn] [--out results/stands-for.json]

A server is a shipped kernel at its own size. Its copy has a sixteenth of the memory, behind a
sixteenth of the cache, and is made by `tune workload resize --stands-for 16x` what the server is.
It runs for a sixteenth of the server's time, which then are as many accesses to a page, or for less
than half of that, so that a steady phase must be repeated. Both are recorded workloads to the
tuner, and have as many simulated pages. On both run first-touch and six policies at their defaults
with 4 KiB pages, at two ratios; the same rule as in a study's verdict says what to use.

Stated before the first run: of a case (server, ratio and copy) the two agree if the same policy is
the fastest, or the fastest of the copy is on the server within POINTS of the fastest there, and the
gains over first-touch that the verdicts are about differ by POINTS at most. They are to agree in
nine of ten cases.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.documents.workload import Sampling
from tuner.record import workload as recorded
from tuner.run import runner, settings, streams
from tuner.run.doubts import doubts
from tuner.run.trial import StreamRequest
from tuner.study.contender import Contender, Kind
from tuner.study.verdict import chosen, decide

ROOT = Path(__file__).resolve().parents[2]
SMALLER = 16
POINTS = 0.03
SECONDS = 200.0  # of a server: three times what the policies look back, and some
COPY_SECONDS = (SECONDS / SMALLER, 6.0)
"""Of a copy: as long as the server once it stands for it, and less than half of that."""
RATIOS = ("1:8", "1:2")
POLICIES = ("autonuma", "tpp", "hemem", "memtis", "hybridtier", "freqtier")
SEEDS = 3


@dataclass(frozen=True)
class Server:
    """A shipped input, as the server and as its copy. `smaller`: parameters in proportion to the
    memory; `powers`: those whose power of two is; `scale`: R of the server."""

    workload: str
    input: str
    scale: int
    smaller: tuple[str, ...]
    powers: tuple[str, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)


REDIS = ("records_m",)
CACHE = ("cache_mb", "keys_m", "popularity_sigma_m", "index_entries_g")
POWERS = ("bucket_power", "lock_power")
WARM = {"warm_up_s": 400.0}
SERVERS = {
    "redis-a": Server("redis", "ycsb-a", 256, REDIS),
    "redis-b": Server("redis", "ycsb-b", 256, REDIS),
    "redis-c": Server("redis", "ycsb-c", 256, REDIS),
    "cachelib-cdn": Server("cachelib", "cdn", 1024, CACHE, POWERS, WARM),
    "cachelib-cdn-meta": Server("cachelib", "cdn-meta", 1024, CACHE, POWERS, WARM),
    "cachelib-social-graph": Server("cachelib", "social-graph", 1024, CACHE, POWERS, WARM),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join(SERVERS), help="some of them, with commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=ROOT / "results/stands-for.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for name in args.cases.split(","):
            rows += compared(name, SERVERS[name], Path(work), range(args.seeds))
    agree = sum(row["agree"] for row in rows)
    content = {
        "engine_build": engine.results_id(),
        "smaller": SMALLER,
        "points": POINTS,
        "seconds": SECONDS,
        "copy_seconds": list(COPY_SECONDS),
        "policies": list(POLICIES),
        "seeds": args.seeds,
        "cases": rows,
        "agree": agree,
    }
    args.out.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{agree} of {len(rows)} cases agree: {args.out}", file=sys.stderr)
    return 0


def compared(name: str, server: Server, work: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each ratio and copy."""
    whole = workload(f"{name}-server", server, 1, SECONDS, work)
    known = {ratio: verdict(whole, ratio, seeds) for ratio in RATIOS}
    rows = []
    for seconds in COPY_SECONDS:
        small = workload(f"{name}-copy-{seconds:g}", server, SMALLER, seconds, work)
        resized = work / f"{name}-resized-{seconds:g}.tts"
        words = ["workload", "resize", str(small), "--stands-for", f"{SMALLER}x"]
        words += ["--stretch-to", f"{SECONDS:g}", "-o", str(resized), "--json"]
        output = subprocess.run(
            [sys.executable, "-m", "tuner", *words], check=True, text=True, stdout=subprocess.PIPE
        )
        made = json.loads(output.stdout)
        made = {key: made[key] for key in ("nominal_seconds", "stands_for", "too_short")}
        for ratio in RATIOS:
            found = {
                "server": known[ratio],
                "copy": verdict(resized.with_suffix(".yaml"), ratio, seeds),
            }
            row = {"case": name, "ratio": ratio, "seconds": seconds, "resized": made}
            rows.append(row | agreement(found))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    for path in work.glob(f"{name}-*"):
        path.unlink()
    return rows


def workload(name: str, server: Server, smaller: int, seconds: float, work: Path) -> Path:
    """A stream of the kernel as a recorded workload: its document."""
    spec = catalog.workload(server.workload).spec
    kernel = engine.kernels()[str(spec.kernel)]
    own: dict[str, Any] = {p.name: p.default for p in kernel.parameters} | spec.inputs[
        server.input
    ].parameters
    own |= {**server.own, "duration_s": seconds}
    for parameter in server.smaller:
        own[parameter] /= smaller
    for parameter in server.powers:
        own[parameter] -= smaller.bit_length() - 1
    if "warm_up_s" in own:
        own["warm_up_s"] /= smaller
    machine = catalog.machine(spec.machine).spec
    request = StreamRequest(
        workload=server.workload,
        input=server.input,
        kernel=str(spec.kernel),
        parameters=own,
        scale=server.scale / smaller,
        page_bytes=4096,
        threads=spec.threads,
        llc_bytes=machine.llc_bytes // smaller,
        seed=0,
        maker=engine.stream_id(str(spec.kernel)),
    )
    trace = work / f"{name}.tts"
    shutil.copyfile(streams.ensure(request), trace)
    streams.remove(request)
    document, _ = recorded.document(
        trace,
        summary=f"{server.workload} ({server.input}), 1/{smaller}",
        source="tests/bench/stands_for.py",
        threads=spec.threads,
        machine=machine,
        sampling=Sampling(sampler="kernel", samples=0, error_share=0),
        scale=request.scale,
        operation=spec.operation_of(server.input),
        window=spec.window_of(server.input),
    )
    return document


def verdict(path: Path, ratio: str, seeds: Sequence[int]) -> dict[str, Any]:
    """What a study would advise without a search, and the values behind it."""
    contenders = []
    said: list[str] = []
    for name in ("first-touch", *POLICIES):
        policy = engine.policy(name)
        setting = settings.resolve(
            str(path), policy=policy, ratio=ratio, page_bytes=4096, deadline_seconds=600
        )
        said += doubts(setting)
        values = []
        for seed in seeds:
            trial = setting.under(policy, seed=seed).trial(0, {})
            result = runner.run(trial)
            if result.error:
                raise SystemExit(f"{path.stem} {ratio} {name}: {result.error}")
            values.append(result.objective)
        kind = Kind.off if name == "first-touch" else Kind.untuned
        contenders.append(Contender(kind=kind, policy=name, page_bytes=4096, values=values))
    found = decide(contenders, objective="throughput", trials=0, policy=POLICIES[0])
    pick = chosen(found)
    assert pick is not None
    off = contenders[0]
    gains = {c.policy: gain(c, off) for c in contenders[1:]}
    return {
        "chosen": pick.policy,
        "gain": round(gains.get(pick.policy, 0.0), 4),
        "best": max(gains, key=lambda policy: gains[policy]),
        "gains": {policy: round(gain, 4) for policy, gain in gains.items()},
        "doubts": list(dict.fromkeys(said)),
    }


def gain(one: Contender, off: Contender) -> float:
    """Of throughput."""
    assert one.mean is not None and off.mean is not None
    return one.mean / off.mean - 1


def agreement(found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """By the rule that the module states."""
    server, copy = found["server"], found["copy"]
    loss = server["gains"][server["best"]] - server["gains"][copy["best"]]
    apart = abs(server["gain"] - copy["gain"])
    return {
        **found,
        "loss": round(loss, 4),
        "apart": round(apart, 4),
        "same_choice": server["chosen"] == copy["chosen"],
        "agree": loss <= POINTS and apart <= POINTS,
    }


if __name__ == "__main__":
    sys.exit(main())
