# SPDX-License-Identifier: MIT
"""How the best configuration gains what it gains: what it moves, what fast memory serves, and where
the run time went, beside the defaults."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.run.trial import TrialResult
from tuner.study.log import StudyData
from tuner.text import percent, quantity, si

PARTS = {
    "compute": "computation",
    "fast_stall": "stalls on fast memory",
    "slow_stall": "stalls on slow memory",
    "bandwidth": "waiting for bandwidth",
    "migration": "stalls by migration",
    "sampling": "sampling",
    "policy": "the policy's own work",
}
"""Where run time goes, by the names of `TrialResult.breakdown`."""

FEW = 0.01  # of the default's moves: next to none
SMALL = 0.05  # of the largest change of a part of the run time: not told


def mechanism(study: StudyData) -> list[str]:
    """Sentences; none if the best configuration is the default, or one of them has no figures."""
    best, default = study.best, study.default
    if best is None or default is None or best.number == default.number:
        return []
    if best.result is None or default.result is None:
        return []
    return sentences(default.result, best.result)


def sentences(default: TrialResult, best: TrialResult) -> list[str]:
    """What is not measured, as the parts of the run time outside the simulator, is left out."""
    lines = [_moves(default.metrics, best.metrics), _hits(default.metrics, best.metrics)]
    lines.append(_time(default.breakdown, best.breakdown))
    return [line for line in lines if line]


def _moves(default: Mapping[str, float], best: Mapping[str, float]) -> str:
    names = ("promotions", "demotions")
    if any(name not in metrics for name in names for metrics in (default, best)):
        return ""
    before, after = (sum(metrics[name] for name in names) for metrics in (default, best))
    if not after:
        rest = "as the default does" if not before else f"the default moves {si(before)} pages"
        return f"it moves no page: tiering is off ({rest})"
    what = "next to no pages: " if after < FEW * before else ""
    return f"it moves {what}{si(after)} pages, the default {si(before)}"


def _hits(default: Mapping[str, float], best: Mapping[str, float]) -> str:
    name = "fast_hit_ratio"
    if name not in default or name not in best:
        return ""
    return (
        f"fast memory serves {percent(best[name])} of the accesses, "
        f"{percent(default[name])} by default"
    )


def _time(default: Mapping[str, float], best: Mapping[str, float]) -> str:
    """What changed most, the largest first."""
    saved = {name: default[name] - best[name] for name in default if name in best}
    most = max((abs(value) for value in saved.values()), default=0.0)
    if not most:
        return ""
    told = sorted(
        (name for name, value in saved.items() if abs(value) >= SMALL * most),
        key=lambda name: (-abs(saved[name]), name),
    )
    parts = [
        f"{PARTS.get(name, name)} {quantity(default[name], 's')} -> {quantity(best[name], 's')}"
        for name in told
    ]
    return f"where the time goes: {', '.join(parts)}"
