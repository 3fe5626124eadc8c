# SPDX-License-Identifier: MIT
"""How a workload differs from the one that a configuration was tuned for: size, accesses, and how
they are spread over pages and allocation sites.

Hotness is compared as shares of the accesses, as `tune workload show` has them. Which pages of one
site are hot is not: an address means nothing from one run of a program to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tuner import engine
from tuner.errors import UserError
from tuner.model import Model
from tuner.report import characteristics
from tuner.report.characteristics import Figures
from tuner.run import streams
from tuner.run.settings import Setting
from tuner.run.trial import RecordedStream


class Change(Model):
    """A figure then and now. `change` is relative, or the difference of two shares; None if there
    is nothing to relate it to."""

    what: str
    unit: str  # "GiB", "" of a count, "share"
    then: float
    now: float
    change: float | None


class Drift(Model):
    """`unknown`: why nothing is known of then; else `same` stream, or the figures that have changed
    by more than the tolerance, of all that were compared."""

    unknown: str = ""
    same: bool = False
    compared: list[Change] = Field(default_factory=list)
    changed: list[Change] = Field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    figures: Figures
    fast_share: float
    sites: Mapping[str, float]


def drift(then: Setting, now: Setting, tolerance: float) -> Drift:
    """Of the stream of `now`, which is there, from that of `then`, which is made if it is not."""
    before, after = then.stream(), now.stream()
    if not isinstance(before, RecordedStream) and (before.maker != engine.stream_id(before.kernel)):
        return Drift(unknown="another build of the workload's kernel made its stream")
    same = before.key == after.key
    try:
        if not same:
            streams.prepare(before)
        old, new = _seen(then), _seen(now)
    except UserError as error:
        return Drift(unknown=f"its stream is not available: {error}")
    compared = list(_changes(old, new))
    changed = [
        each for each in compared if each.change is not None and abs(each.change) > tolerance
    ]
    return Drift(same=same, compared=compared, changed=changed)


def _seen(setting: Setting) -> _Seen:
    request = setting.stream()
    figures = characteristics.of_stream(request)
    arguments = setting.scenario.engine_arguments(setting.machine)
    fast = arguments.get("fast_bytes") or 0
    footprint = figures.footprint_gib * (1 << 30)
    share = min(1.0, fast / footprint) if fast else arguments["fast_share"]
    found = engine.characteristics(streams.path_of(request), rows=1, columns=1)
    return _Seen(figures, share, _by_site(found))


def _by_site(found: Mapping[str, Any]) -> dict[str, float]:
    """Shares of the timed accesses."""
    own: dict[str, int] = {}
    for site in found["sites"]:
        accesses = sum(loads + stores for loads, stores in site["accesses"])
        own[site["site"]] = own.get(site["site"], 0) + accesses
    total = sum(own.values())
    return {name: accesses / total for name, accesses in own.items()} if total else {}


def _changes(old: _Seen, new: _Seen) -> Iterator[Change]:
    was, now = old.figures, new.figures
    yield _relative("memory in use", "GiB", was.footprint_gib, now.footprint_gib)
    yield _of_share("fast tier, of that", old.fast_share, new.fast_share)
    yield _relative("accesses", "", was.full_accesses, now.full_accesses)
    yield _of_share("stores, of the accesses", was.store_share, now.store_share)
    for part in was.hottest:
        if part in now.hottest:
            what = f"accesses to the hottest {part} of pages"
            yield _of_share(what, was.hottest[part], now.hottest[part])
    names = old.sites.keys() | new.sites.keys()
    for name in sorted(names, key=lambda n: (-max(old.sites.get(n, 0), new.sites.get(n, 0)), n)):
        yield _of_share(f"accesses to {name}", old.sites.get(name, 0.0), new.sites.get(name, 0.0))


def _relative(what: str, unit: str, then: float, now: float) -> Change:
    return Change(what=what, unit=unit, then=then, now=now, change=now / then - 1 if then else None)


def _of_share(what: str, then: float, now: float) -> Change:
    return Change(what=what, unit="share", then=then, now=now, change=now - then)
