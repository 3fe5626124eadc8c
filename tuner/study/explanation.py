# SPDX-License-Identifier: MIT
"""What made the difference between the default and the best configuration, measured by real runs.

The fewest changes that keep nearly the whole gain are found first. A change's share is its Shapley
value among them: what it adds, on average over the orders in which they can be made. So shares add
up to what these changes gain, whatever they do only together; and that is told as well, by the
Harsanyi dividends of the same game (From Shapley values to interactions: Grabisch and Roubens 1999,
doi:10.1007/s001820050125; as an ablation of configurations: HyperSHAP, arXiv:2502.01276).
"""

from __future__ import annotations

from pydantic import Field

from tuner.declarations import KnobValue
from tuner.model import Model

KEEP = 0.95
"""Of the gain, which `best-minimal.yaml` keeps."""


class Effect(Model):
    """What changing one knob from its default to its best value does, in parts of the whole gain.

    `share` is its Shapley value among the needed changes, and None for one that is not needed;
    `half_width` is that of its interval over the held-out seeds. `alone` is what a needed one gains
    by itself, and `without` what the best trial loses without it, by one run; None if that failed.
    """

    knob: str
    default: KnobValue
    best: KnobValue
    share: float | None = None
    half_width: float | None = None
    alone: float | None = None
    without: float | None = None


class Interaction(Model):
    """A Harsanyi dividend, in parts of the whole gain: what is there only if all of these knobs are
    changed or, if negative, what fewer of them have already."""

    knobs: list[str]
    part: float
    half_width: float | None = None


class Alternative(Model):
    """A change that does instead of a needed one: `kept` is the part of the gain with it."""

    knob: str
    instead_of: str
    kept: float


class Explanation(Model):
    """`effects` are the needed changes by their share, then the others by what the best trial loses
    without each. `minimal` are the needed ones: the fewest changes found that keep `KEEP` of the
    trial's gain, of which they have `kept` on all held-out seeds, give or take `half_width`.
    `lean`: that is as good, so best.yaml has these changes alone. Shares are parts of the gain of
    best.yaml and add up to `told`; `seeds` are theirs. `sets` of changes were measured on one
    seed, None if all of them. `runs` were needed. `breaks` are the constraints that the needed
    changes alone break, None if none: there is no best-minimal.yaml then."""

    effects: list[Effect]
    minimal: dict[str, KnobValue]
    kept: float
    half_width: float | None = None
    lean: bool = False
    breaks: list[str] | None = None
    sets: int | None = None
    interactions: list[Interaction] = Field(default_factory=list)
    alternatives: list[Alternative] = Field(default_factory=list)
    seeds: list[int] = Field(default_factory=list)
    runs: int

    @property
    def needed(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.share is not None]

    @property
    def told(self) -> float:
        """The part of the gain of best.yaml that the needed changes have."""
        return 1.0 if self.lean else self.kept

    def shares(self, knobs: list[str]) -> dict[str, float]:
        """The share of each of these knobs, highest first; 0 for those that are not needed."""
        measured = {effect.knob: effect.share or 0.0 for effect in self.effects}
        shares = [(name, measured.get(name, 0.0)) for name in knobs]
        return dict(sorted(shares, key=lambda item: (-item[1], item[0])))
