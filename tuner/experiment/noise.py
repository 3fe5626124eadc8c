# SPDX-License-Identifier: MIT
"""How much live trials of one configuration differ, and what a search can then be worth.

It is measured before the search: whoever sees that chance is larger than any gain can stop there.
"""

from __future__ import annotations

import math
import statistics

from tuner.errors import UserError, one_line
from tuner.experiment.checks import HELD_OUT_REAL, Checks, on_seeds, seeds_beside, seeds_of
from tuner.study.contender import CONFIDENCE
from tuner.text import percent

RUNS = 4
"""Of the default."""
WORTH = 0.05
"""A gain that a study should be able to tell from chance."""


class Useless(UserError):
    """Nothing can be learned from such trials."""

    code = 1


def measured(checks: Checks) -> str:
    """What to tell of it. Useless if the default does not run."""
    request = checks.request
    scenario = request.scenario
    seeds = seeds_beside(scenario, seeds_of(scenario) + RUNS)[-RUNS:]
    wanted = on_seeds(request, {}, seeds, "noise of the default")
    results = checks.run(wanted, each=True, what="noise: the default again and again")
    values = [result.objective for result in results if result.objective is not None]
    if not values:
        raise Useless(f"the default has not run once, so nothing is tuned: {results[0].error}")
    if len(values) == 1:
        return f"noise: not known, because {RUNS - 1} of {RUNS} runs of the default failed"
    deviation = statistics.stdev(values) / statistics.fmean(values)
    return statement(deviation, len(values), request.budget, scenario.repeats)


def statement(deviation: float, runs: int, budget: int, repeats: int) -> str:
    """`deviation` is the relative standard deviation of so many runs."""
    lucky, told = luck(deviation, budget), resolution(deviation)
    lines = [
        f"noise: {runs} runs of the default differ by {percent(deviation)} (standard deviation). "
        f"Of {budget} configurations without any difference the luckiest would look "
        f"{percent(lucky)} better; the verdict's runs tell gains of {percent(told)} from chance."
    ]
    if told > WORTH:
        more = repeats * math.ceil((told / WORTH) ** 2)
        lines.append(
            f"More is needed to see gains of {percent(WORTH)}: a longer --for, a quieter machine, "
            f"or --repeats {more}."
        )
    return " ".join(map(one_line, lines))


def luck(deviation: float, budget: int) -> float:
    """By how much the best of so many equal ones is above their mean (Blom, 1958)."""
    from scipy.special import ndtri

    return deviation * max(0.0, float(ndtri((budget - 0.375) / (budget + 0.25))))


def resolution(deviation: float) -> float:
    """Half the width of a verdict's interval: differences of pairs, each of two runs."""
    from scipy.special import stdtrit

    t = float(stdtrit(HELD_OUT_REAL - 1, (1 + CONFIDENCE) / 2))
    return t * deviation * math.sqrt(2 / HELD_OUT_REAL)
