# SPDX-License-Identifier: MIT
"""What made the difference between the default and the best configuration, measured by real runs.

On a path from default to best the change that gains most is made next, until nearly the whole gain
is reached; what a change adds there is its share. So shares add up, and what changes do together is
counted once. Of two changes that do the same the first on the path has it all: that the other
would do it too is seen by what it gains alone.
"""

from __future__ import annotations

from pydantic import Field

from tuner.declarations import KnobValue
from tuner.model import Model

KEEP = 0.95
"""Of the gain, which `best-minimal.yaml` keeps."""


class Effect(Model):
    """What changing one knob from its default to its best value does, in parts of the whole gain.

    `share` is what it adds on the path, and 0 off the path; `half_width` is that of its interval
    over the held-out seeds. `alone` is what it gains by itself and `without` what best loses
    without it, each by one run; None if that failed.
    """

    knob: str
    default: KnobValue
    best: KnobValue
    share: float
    half_width: float | None = None
    kept: float | None = None  # the part of the gain that is reached with it, on the path
    alone: float | None = None
    without: float | None = None


class Explanation(Model):
    """`effects` in the order of the path, then by what they gain alone. `minimal` are the path's
    knobs: the fewest changes found that keep `KEEP` of the gain, of which they keep `kept` on all
    held-out seeds. `runs` were needed."""

    effects: list[Effect]
    minimal: dict[str, KnobValue]
    kept: float
    seeds: list[int] = Field(default_factory=list)
    runs: int

    @property
    def path(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.kept is not None]

    def shares(self, knobs: list[str]) -> dict[str, float]:
        """The share of each of these knobs, highest first; 0 for those off the path."""
        measured = {effect.knob: effect.share for effect in self.effects}
        shares = [(name, measured.get(name, 0.0)) for name in knobs]
        return dict(sorted(shares, key=lambda item: (-item[1], item[0])))
