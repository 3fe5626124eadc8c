# SPDX-License-Identifier: MIT
"""engine/machines/NAME.yaml: the hardware that the simulator plays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tuner import engine
from tuner.declarations import EstimateDecl
from tuner.documents.document import PROSE, Spec, merged
from tuner.documents.loader import Key
from tuner.limits import MOST_GIB, MOST_THREADS, fast_share
from tuner.model import Finite, Gib, Model, Name, Share

Count = Annotated[int, Field(ge=1, le=MOST_THREADS)]
CURVES = frozenset({"loaded", "curves"})
LIMIT = "limit"
"""Type of the error of a figure that the engine would refuse."""
Point = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class MeasuredCurve(Model):
    """Latency against bandwidth at one mix: (GB/s, ns), ascending, first the idle latency at 0.
    `reads` is the share of reads in the traffic."""

    reads: Share
    points: Annotated[list[Point], Field(min_length=2)]

    @model_validator(mode="after")
    def _ascending(self) -> MeasuredCurve:
        if self.points[0][0] != 0 or self.points[0][1] <= 0:
            raise ValueError("points must start with [0, idle latency]")
        if any(b[0] <= a[0] or b[1] < a[1] for a, b in itertools.pairwise(self.points)):
            raise ValueError("points must ascend: bandwidth strictly, latency never down")
        return self


class CurvesSpec(Spec):
    """engine/curves/NAME.yaml: the loaded latency of a memory system as somebody measured it."""

    curves: Annotated[list[MeasuredCurve], Field(min_length=1)]

    @model_validator(mode="after")
    def _mixes(self) -> CurvesSpec:
        if len({curve.reads for curve in self.curves}) < len(self.curves):
            raise ValueError("curves must differ in their share of reads")
        return self


class TierSpec(Model):
    """One memory tier. Bandwidths in GB/s (10^9 bytes), latency of an idle load in ns.

    What load does to its latency is either `loaded`, a curve of (utilisation, factor on the idle
    latency), ascending, from (0, 1); or `curves`, the name of measured ones by the mix of reads and
    writes, whose shape it has: the bandwidth that is left at a mix, and the factor at a utilisation
    of that. (The catalog puts the curves in the name's place.) `total_gbps` is the limit of reads
    and writes together, at the mix at which it is largest. `store_stall` is the share of the
    latency that a store costs its thread. The device moves `granule_bytes` at least.
    """

    latency_ns: Finite
    read_gbps: Finite
    write_gbps: Finite
    total_gbps: Finite = 0
    granule_bytes: int = 64
    store_stall: Finite
    loaded: list[Point] | None = None
    curves: str | list[MeasuredCurve] | None = None

    @model_validator(mode="after")
    def _curve(self) -> TierSpec:
        if (self.loaded is None) == (self.curves is None):
            raise ValueError("must have either loaded or curves")
        if self.loaded is None:
            return self
        curve = self.loaded
        if not curve or curve[0] != [0, 1]:
            raise ValueError("loaded must start with [0, 1]")
        if any(b[0] <= a[0] or b[1] < a[1] for a, b in itertools.pairwise(curve)):
            raise ValueError("loaded must ascend: utilisation strictly, factor never down")
        return self

    def document(self) -> dict[str, Any]:
        """What the engine takes: curves as factors on the idle latency and shares of peaks.
        Without the curves where the catalog has not yet put them in their name's place."""
        plain = self.model_dump(exclude={"loaded", "curves"})
        if not isinstance(self.curves, list):
            points = self.loaded or [[0.0, 1.0]]
            return plain | {"loaded": [{"reads": 1.0, "peak": 1.0, "points": points}]}
        most = max(curve.points[-1][0] for curve in self.curves)
        return plain | {
            "loaded": [
                {
                    "reads": curve.reads,
                    "peak": curve.points[-1][0] / most,
                    "points": [
                        [gbps / curve.points[-1][0], ns / curve.points[0][1]]
                        for gbps, ns in curve.points
                    ],
                }
                for curve in sorted(self.curves, key=lambda curve: curve.reads)
            ]
        }


class WorkCosts(Model):
    """Nanoseconds of the tiering thread per item of policy work. The keys are the engine's kinds of
    work (engine/sim/work.hpp); a machine may leave out those that have a default there."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Finite | None]

    @classmethod
    def known_keys(cls) -> list[str]:
        return list(_estimates(WORK))

    @model_validator(mode="after")
    def _declared(self) -> WorkCosts:
        costs = self.__pydantic_extra__
        known = _estimates(WORK)
        _refuse(
            type(self).__name__,
            {key: value for key, value in costs.items() if key not in known},
            [key for key, one in known.items() if one.default is None and costs.get(key) is None],
        )
        for key in known:
            costs.setdefault(key, None)  # what is left out is part of the fingerprint, too
        return self


WORK = "tiering.work_ns."


def _estimates(prefix: str) -> dict[str, EstimateDecl]:
    """The engine's estimates whose place in a document begins so, by the key that follows."""
    return {
        name.removeprefix(prefix): estimate
        for name, estimate in engine.estimates().items()
        if name.startswith(prefix)
    }


def _refuse(title: str, unknown: dict[str, Any], missing: Sequence[str] = ()) -> None:
    """Raises ValidationError for keys that pydantic does not know of, if there are any."""
    wrong: list[InitErrorDetails] = [
        {"type": "extra_forbidden", "loc": (key,), "input": value} for key, value in unknown.items()
    ]
    wrong += [{"type": "missing", "loc": (key,), "input": {}} for key in missing]
    if wrong:
        raise ValidationError.from_exception_data(title, wrong)


class _Estimates(Model):
    """Checks that what is left to the engine's estimates are numbers; they stay as they are
    written, on which fingerprints depend."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Finite]


class TieringSpec(Model):
    """What tiering itself costs. More keys are those of the engine's estimates that have a default
    (engine/sim/estimates.cpp): `model_extra`."""

    model_config = ConfigDict(extra="allow")

    migration_fixed_us: Finite
    migration_copy_gbps: Finite
    migration_shootdown_us: Finite
    sample_assist_ns: Finite
    sample_drain_ns: Finite
    work_ns: WorkCosts
    huge_page_gain: Finite
    daemon_core_share: Finite
    sample_queue: Finite

    @classmethod
    def known_keys(cls) -> list[str]:
        own = super().known_keys()
        more = [key for key in _estimates("tiering.") if "." not in key]
        return own + [key for key in more if key not in own]

    @model_validator(mode="after")
    def _declared(self) -> TieringSpec:
        extra = self.model_extra or {}
        _refuse(
            type(self).__name__,
            {key: value for key, value in extra.items() if key not in self.known_keys()},
        )
        _Estimates.model_validate(extra)
        return self


class Based(Model):
    """Of a machine's file, what the others of its keys depend on."""

    model_config = ConfigDict(extra="ignore")

    base: Name | None = None


def over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A machine that says `own`, with the rest of `base` but for its name and prose. A tier's
    `loaded` and `curves` say the same in two ways: either replaces both."""
    below = {key: value for key, value in base.items() if key not in PROSE | {"name"}}
    both = merged(below, {key: value for key, value in own.items() if key != "base"})
    for role in ("fast", "slow"):
        stated, tier = own.get(role), both.get(role)
        if isinstance(stated, dict) and isinstance(tier, dict) and stated.keys() & CURVES:
            both[role] = {k: v for k, v in tier.items() if k not in CURVES - stated.keys()}
    return both


class MachineSpec(Spec):
    """engine/machines/NAME.yaml: the hardware that the simulator plays.

    `slow_gib` is the slow tier's capacity where the publication fixes it: the fast tier at 1:8 has
    an eighth of it, whatever the workload's footprint. Otherwise a ratio divides the footprint.
    `base` is in files only: the catalog puts the base's values in its place.

    What the other figures may be, the engine says (engine/sim/limits.cpp).
    """

    base: Name | None = Field(default=None, exclude=True)
    ghz: Finite
    cores: Count
    threads: Count
    llc_mib: Annotated[float, Field(ge=2**-10, le=MOST_GIB)]
    slow_gib: Gib | None = None
    fast: TierSpec
    slow: TierSpec
    tiering: TieringSpec

    @model_validator(mode="after")
    def _within_limits(self) -> MachineSpec:
        if found := self.problems():
            raise ValidationError.from_exception_data(
                "MachineSpec",
                [
                    {"type": PydanticCustomError(LIMIT, wanted), "loc": key, "input": value}
                    for key, value, wanted in found
                ],
            )
        return self

    def problems(self) -> list[tuple[Key, Any, str]]:
        """What the engine would refuse: the key of each such figure, its value, and what it must
        be."""
        found: list[tuple[Key, Any, str]] = []
        for name, wanted in engine.machine_problems(self.document()):
            key = name.split(".")
            value: Any = self.model_dump()
            for part in key:
                value = value.get(part)
            found.append((tuple(key), value, wanted))
        return found

    @property
    def llc_bytes(self) -> int:
        return round(self.llc_mib * (1 << 20))

    def fast_bytes(self, ratio: str) -> int:
        """Full-scale fast-tier capacity at FAST:SLOW; 0 where the footprint decides."""
        if self.slow_gib is None:
            return 0
        share = fast_share(ratio)
        return round(self.slow_gib * (1 << 30) * share / (1 - share))

    def document(self) -> dict[str, Any]:
        """What `tuner._engine.simulate(machine=...)` takes."""
        plain = self.model_dump(exclude_none=True)
        return plain | {"fast": self.fast.document(), "slow": self.slow.document()}
