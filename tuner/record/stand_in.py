# SPDX-License-Identifier: MIT
"""Recordings that stand for more than was recorded: `--stands-for`.

A recording of a small copy of a server becomes a miniature of the server: each of its pages stands
for more (R grows), and with R the machine's capacities, the policies' knobs and time follow by the
simulator's own rules (engine/sim/README.md, Miniature scale). What is then too short for policies
that look back is made longer by repeating a phase that is steady; all else stays as it was.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import engine
from tuner.documents.machine import MachineSpec
from tuner.documents.reading import parse_json
from tuner.documents.workload import Sampling, StandsFor
from tuner.errors import UserError
from tuner.limits import MOST_SCALE
from tuner.record import workload as recorded
from tuner.run.doubts import PERIODS, longer
from tuner.scenario import flag
from tuner.terminal import progress
from tuner.text import plural, size

if TYPE_CHECKING:
    from tuner.record.samplers import Option

GIB = 1 << 30
LLC = "llc_mib"
"""Option of samplers that record what a cache lets through."""
WINDOWS = 16
"""Of a recording; a phase is told from others by them."""
LEAST_WINDOWS = 3
"""Of a steady phase: with fewer there is no telling that the hot pages do not move."""
ALIKE = 0.95
"""Of any two windows of a steady phase, the cosine of which pages are hot, free of chance: of
equally hot pages one in twenty may be another."""
RATES = 0.2
"""By which part the accesses per second of its windows may differ."""
MOST_BYTES = 8 << 30
"""Of a trace that was made longer."""
MOST_BLOCK_MS = 50.0
"""The longest block for which the simulator's results do not depend on its length (engine/sim)."""


@dataclass(frozen=True)
class Phase:
    """A steady part of a recording: its blocks, its nominal seconds, and the least that two of its
    windows are alike."""

    first: int
    end: int
    begin_s: float
    end_s: float
    alike: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Made:
    """What a command writes: a stream as it was recorded, or what it was made to stand for.
    `words` are those of the command line that made it."""

    info: dict[str, Any]
    sampling: Sampling
    threads: float
    scale: float
    words: str = ""
    lacking: str | None = None

    def summary(self) -> dict[str, Any]:
        """For JSON; nothing of what stands for itself."""
        if self.sampling.stands_for is None:
            return {}
        return {
            "stands_for": self.sampling.stands_for.model_dump(exclude_none=True),
            "too_short": self.lacking,
        }

    def told(self) -> list[tuple[str, str]]:
        """For people: a heading and a text each."""
        if (stands_for := self.sampling.stands_for) is None:
            return []
        gib = stands_for.factor * stands_for.recorded_gib
        lasts, threads = self.info["nominal_seconds"], plural(round(self.threads), "thread")
        said = stands_for.describe().removeprefix("stands for ")
        found = [("stands for", f"{gib:.4g} GiB in {lasts:.3g} s with {threads}: {said}")]
        return found + ([("too short", self.lacking)] if self.lacking else [])


def check(args: Namespace) -> None:
    """UserError for what is given without --stands-for. Before anything runs."""
    for option in ("stretch_to", "server_threads"):
        if args.stands_for is None and getattr(args, option) is not None:
            raise UserError(f"{flag(option)}: belongs to --stands-for, which is not given")


def factor(args: Namespace) -> float:
    """How many times what is recorded the server has, where that is known before; else 1."""
    text = args.stands_for or ""
    return float(text[:-1]) if text.endswith("x") else 1.0


def options(args: Namespace, known: Sequence[Option], machine: MachineSpec) -> dict[str, float]:
    """Of a sampler that goes by a cache, its size: the machine's, by as much smaller as the data
    are, and not below what the sampler can have."""
    smaller = factor(args)
    return {
        option.name: max(option.min, machine.llc_mib / smaller)
        for option in known
        if option.name == LLC and smaller > 1
    }


def enlarge(
    args: Namespace,
    trace: Path,
    sampling: Sampling,
    threads: float,
    info: dict[str, Any],
    scale: float = 1.0,
) -> Made:
    """Makes the recording of `trace` what --stands-for says, in its place."""
    if args.stands_for is None:
        return Made(info, sampling, threads, float(scale))
    return resize(trace, trace, args, sampling, threads)


def steady(trace: Path) -> tuple[Phase | None, float]:
    """The longest steady phase, if there is any, and the most that LEAST_WINDOWS windows in a row
    are alike, whether that is enough or not."""
    found = engine.native().windows(str(trace), WINDOWS)
    windows, alike = found["windows"], found["alike"]
    rates = [w["accesses"] / max(1e-12, w["end_s"] - w["begin_s"]) for w in windows]
    best: Phase | None = None
    most = 0.0
    for first in range(len(windows)):
        least = 1.0
        for last in range(first + 1, len(windows)):
            least = min(least, *alike[last][first:last])
            some = rates[first : last + 1]
            if min(some) < (1 - RATES) * max(some):
                break
            if last + 1 - first < LEAST_WINDOWS:
                continue
            most = max(most, least)
            if least < ALIKE:
                break
            begin, end = windows[first]["begin_s"], windows[last]["end_s"]
            if best is None or end - begin > best.seconds:
                best = Phase(windows[first]["from"], windows[last]["to"], begin, end, least)
    return best, most


def cut(trace: Path) -> dict[str, Any]:
    """Cuts blocks that last too long for the simulator; returns the stream's description."""
    info = engine.stream_info(trace)
    return _restate(trace, trace, info, factor=1.0, threads=1.0, first=0, end=0, passes=1)


def _restate(source: Path, trace: Path, info: Mapping[str, Any], **wanted: Any) -> dict[str, Any]:
    with progress(f"writing {trace.name}") as update:

        def watch(done: float) -> bool:
            update(done)
            return True

        try:
            return dict(
                engine.native().restate(
                    str(source),
                    str(trace),
                    workload=trace.stem,
                    parameters=info["parameters"],
                    most_block_ms=MOST_BLOCK_MS,
                    progress=watch,
                    **wanted,
                )
            )
        except ValueError as error:
            raise UserError(f"--stands-for: {error}") from error
        except (RuntimeError, OSError) as error:
            raise UserError(str(error)) from error


def resize(source: Path, trace: Path, args: Namespace, sampling: Sampling, threads: float) -> Made:
    """Writes `source` as `trace` (which may be the same file), as the options of `args` say.
    `threads` are those of the source. UserError for what is not possible."""
    info = engine.stream_info(source)
    footprint = recorded.footprint_of(source)
    text = args.stands_for
    times = factor(args) if text.endswith("x") else float(text) / footprint
    if times < 1:
        raise UserError(
            f"--stands-for: found {size(float(text))}; must be at least what was recorded, "
            f"{size(footprint)}"
        )
    scale = info["scale"] * times
    if scale > MOST_SCALE:
        raise UserError(
            f"--stands-for: a recorded page would stand for {scale:,.0f}; must be at most "
            f"{MOST_SCALE:,}: record more than {size(footprint)}"
        )
    now = float(args.server_threads or threads)
    phase, passes, lacking = _passes(source, info, times, times * threads / now, args.stretch_to)
    written = _restate(
        source,
        trace,
        info,
        factor=times,
        threads=now / threads,
        first=phase.first if phase else 0,
        end=phase.end if phase else 0,
        passes=passes,
    )
    repeated: dict[str, Any] = {}
    if phase and passes > 1:
        repeated = {
            "passes": passes,
            "steady_from": phase.begin_s,
            "steady_to": phase.end_s,
            "alike": phase.alike,
        }
    stands_for = StandsFor(
        factor=times,
        recorded_gib=footprint / GIB,
        recorded_seconds=info["nominal_seconds"],
        recorded_threads=threads,
        llc_mib=_cache_mib(info),
        **repeated,
    )
    given = text if text.endswith("x") else size(float(text)).replace(" ", "")
    words = f"--stands-for {given} "
    words += "" if args.stretch_to is None else f"--stretch-to {args.stretch_to:g} "
    words += "" if args.server_threads is None else f"--server-threads {args.server_threads} "
    return Made(
        written,
        sampling.model_copy(update={"stands_for": stands_for}),
        now,
        float(written["scale"]),
        words,
        lacking,
    )


def _passes(
    source: Path, info: Mapping[str, Any], times: float, slower: float, seconds: float | None
) -> tuple[Phase | None, int, str | None]:
    """What to repeat, how often it comes, and what keeps it from lasting as long as it must.
    `slower`: by which the recording lasts longer already."""
    before = info["nominal_seconds"] * slower
    if seconds is None:
        longest = longer(
            list(engine.policies().values()), before, info["accesses"] * info["scale"] * times
        )
    else:
        longest = seconds / before
    if longest <= 1:
        return None, 1, None
    lasts = f"it lasts {before:.3g} s, and {before * longest:.3g} s are wanted"
    if seconds is None:
        lasts += f" ({PERIODS} times what policies look back)"
    phase, most = steady(source)
    if phase is None:
        why = (
            f"no phase of it is steady: of {LEAST_WINDOWS} windows in a row, two are alike by "
            f"{most:.2f} at most, and must be by {ALIKE}"
        )
        return None, 1, f"{lasts}; {why}"
    passes = 1 + math.ceil(before * (longest - 1) / (phase.seconds * slower) - 1e-9)
    each = source.stat().st_size * (phase.end - phase.first) / info["blocks"]
    room = max(1, 1 + math.floor((MOST_BYTES - source.stat().st_size) / each))
    if passes <= room:
        return phase, passes, None
    return phase, room, f"{lasts}; the trace would be larger than {size(MOST_BYTES)}"


def _cache_mib(info: Mapping[str, Any]) -> float | None:
    """Of the cache behind which the stream was recorded, where it says so."""
    try:
        found = parse_json(info["parameters"])
        if found.get("format") == "lackey":
            return float(found["llc_bytes"]) / (1 << 20)
        return float(found["options"][LLC])
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return None
