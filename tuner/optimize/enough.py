# SPDX-License-Identifier: MIT
"""When a search has found what it will find, from the results of its trials alone.

The model's own expectation does not tell: the trees of a random forest disagree about every place
without trials, so that its expected improvement stays well above what its proposals come to for as
long as one asks. What they come to is measured.
"""

from __future__ import annotations

from tuner.limits import AUTO_GAIN, AUTO_TRIALS
from tuner.optimize.costs import Costs
from tuner.study.log import StudyData


def enough(data: StudyData, known: int) -> str | None:
    """Why there is nothing more to be gained, from the trials before number `known`, which have all
    ended; None if there may be."""
    first = known - AUTO_TRIALS
    begun = [t.number for t in data.trials if t.number < known and t.origin in ("model", "random")]
    if not begun or first < begun[0]:
        return None
    costs = Costs(data)(range(known), 0)
    before = [cost for number, cost in costs.items() if number < first and cost is not None]
    every = [cost for cost in costs.values() if cost is not None]
    if not before or (gain := min(before) / min(every) - 1) >= AUTO_GAIN:
        return None
    brought = f"{100 * gain:.2g} % together, less than {100 * AUTO_GAIN:g} %" if gain else "nothing"
    return f"its last {AUTO_TRIALS} trials brought {brought}"
