# SPDX-License-Identifier: MIT
"""What speaks against a verdict from a recording, and what would help: asked before a study begins,
and kept with its verdict.

A program can be recorded for a second and a policy may look back for a minute: then a study says
what the policy does while it starts. A kernel's streams are as long as they must be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner import engine
from tuner.declarations import KnobDecl, PolicyDecl
from tuner.documents.workload import StandsFor
from tuner.run.settings import Setting
from tuner.text import percent

PERIODS = 3
"""Of each policy that a recording should cover: one fills what the policy knows, one acts on that,
and one shows what it was worth."""

MOST_ERROR = 0.25
"""Relative standard error of a page's count in the recording: 16 samples of a page."""

SECONDS = {"ms": 1e-3, "s": 1.0}
PERIOD, FREQUENCY, SAMPLES = "events/sample", "Hz", "samples"
"""Units of knobs: accesses per sample, samples per second, and a length that is counted in samples.
"""

CACHES = 2.0
"""By which the cache of the recording may differ from what the machine's is in the miniature."""

RESIZE = "`tune workload resize` repeats a phase of it that is steady"


def doubts(setting: Setting, rivals: Sequence[PolicyDecl] = ()) -> list[str]:
    """Sentences about the recording, without a full stop; none if it is enough, or is none."""
    input = setting.workload.inputs[setting.scenario.input]
    if setting.workload.kernel is not None or input.trace is None:
        return []
    info = engine.stream_info(Path(input.trace))
    seconds = float(info["nominal_seconds"])
    accesses = float(info["accesses"]) * float(info["scale"])
    found = []
    if setting.sampling and (error := setting.sampling.error_share) > MOST_ERROR:
        found.append(
            f"the count of a page in the recording is uncertain by {percent(error, 0)} (more than "
            f"{percent(MOST_ERROR, 0)}): a shorter sampling period or a longer recording helps"
        )
    policies = [setting.policy, *rivals]
    stands_for = setting.sampling.stands_for if setting.sampling else None
    if stands_for:
        found.append(f"the recording {stands_for.describe()}")
        found += _other_cache(stands_for, setting.machine.llc_mib, float(info["scale"]))
    remedy = "" if stands_for else f", or {RESIZE}"
    if short := list(_too_short(policies, seconds)):
        wanted = max(length for _, length, _ in short) * PERIODS
        found.append(
            f"the recording has {seconds:.3g} s, less than {PERIODS} times what these policies "
            f"look back: {_listed(short, 's')}; one of {wanted:.3g} s helps{remedy}"
        )
    if few := list(_too_few(policies, seconds, accesses)):
        wanted = max(length * PERIODS / taken for _, length, taken in few)
        found.append(
            f"policies take fewer samples of the recording than {PERIODS} times what they count "
            f"to: {_listed(few, 'samples')}; a recording {wanted:.2g} times as long helps, or a "
            f"shorter sampling period{remedy}"
        )
    return found


def longer(policies: Sequence[PolicyDecl], seconds: float, accesses: float) -> float:
    """How many times as long a recording must be for none of its doubts to be about its length;
    1 if it is long enough. `accesses` are full-scale."""
    short = [length * PERIODS / had for _, length, had in _too_short(policies, seconds)]
    few = [length * PERIODS / had for _, length, had in _too_few(policies, seconds, accesses)]
    return max([1.0, *short, *few])


def _other_cache(stands_for: StandsFor, machine_mib: float, scale: float) -> Iterator[str]:
    """Of what a cache lets through, the share depends on its size relative to the data's."""
    had, wanted = stands_for.llc_mib, machine_mib / scale
    if had is None or wanted / CACHES <= had <= wanted * CACHES:
        return
    yield (
        f"it was recorded behind a cache of {had:.3g} MiB, where the server's "
        f"({machine_mib:.4g} MiB) would have been {wanted:.3g} MiB in proportion: "
        + ("more" if had > wanted else "less")
        + " of the accesses hit than on the server; a recording with "
        f"`--stands-for {stands_for.factor:.4g}x` has the right one"
    )


Lacking = tuple[str, float, float]
"""Policy and knob, the knob's length, and what there is of it."""


def _active(policy: PolicyDecl) -> Iterator[tuple[KnobDecl, float]]:
    """Numeric knobs that have an effect at the policy's defaults, with these."""
    own = {knob.name: knob.default for knob in policy.knobs}
    for knob in policy.knobs:
        value = knob.default
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value > 0 and policy.unmet(knob.condition, own) is None:
            yield knob, float(value)


def _too_short(policies: Sequence[PolicyDecl], seconds: float) -> Iterator[Lacking]:
    for policy in policies:
        times = [(v * SECONDS[k.unit], k.name) for k, v in _active(policy) if k.unit in SECONDS]
        if times and seconds < PERIODS * max(times)[0]:
            length, knob = max(times)
            yield f"{policy.name} ({knob}", length, seconds


def _too_few(policies: Sequence[PolicyDecl], seconds: float, accesses: float) -> Iterator[Lacking]:
    for policy in policies:
        knobs = list(_active(policy))
        counts = [(value, knob.name) for knob, value in knobs if knob.unit == SAMPLES]
        taken = [accesses / value for knob, value in knobs if knob.unit == PERIOD]
        taken += [min(accesses, value * seconds) for knob, value in knobs if knob.unit == FREQUENCY]
        if counts and taken and max(taken) < PERIODS * max(counts)[0]:
            length, knob = max(counts)
            yield f"{policy.name} ({knob}", length, max(1.0, max(taken))


def _listed(lacking: Sequence[Lacking], unit: str) -> str:
    return ", ".join(f"{name} {length:,.10g} {unit})" for name, length, _ in lacking)
