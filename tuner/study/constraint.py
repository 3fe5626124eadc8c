# SPDX-License-Identifier: MIT
"""What a study's best configuration must keep to: bounds of figures that each trial measures.

A trial that breaks one is not called best, whatever its objective.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeVar

from tuner.errors import UserError, brief, unknown
from tuner.figure import FIGURES, UNITS, Figure, counted
from tuner.model import Model, Positive
from tuner.objective import OBJECTIVES
from tuner.run.isolation import simulates
from tuner.run.settings import Setting
from tuner.run.trial import Status, TrialResult
from tuner.scenario import EMULATED, LIVE
from tuner.text import quantity

WORST = 10.0
"""A bound is missed by this factor at most, also by a figure of zero and by one that was not
measured: a search has to see by how much, but need not be drowned by it."""

DEFAULT = "default"
_FORM = re.compile(
    r"\s*(?P<figure>[\w./-]+?)\s*(?P<sense><=|>=)\s*"
    rf"(?:(?P<number>[0-9.eE+-]+?)\s*(?:\*\s*(?P<times>{DEFAULT})|(?P<unit>[A-Za-z%/]+))?"
    rf"|(?P<just>{DEFAULT}))\s*"
)


class Constraint(Model):
    """`figure` is at most `bound` in its own unit, or at least that; with `of_default` so many
    times what the policy's defaults measure under the same conditions."""

    figure: str
    at_most: bool
    bound: Positive
    of_default: bool = False

    def __str__(self) -> str:
        number = f"{self.bound:.12g}"
        if self.of_default:
            number = DEFAULT if self.bound == 1 else f"{number}*{DEFAULT}"
        return f"{self.figure}{'<=' if self.at_most else '>='}{number}"

    @property
    def slug(self) -> str:
        """As a part of a study's name: p99-most-1.05xdefault."""
        number = f"{self.bound:.12g}{f'x{DEFAULT}' if self.of_default else ''}".replace("+", "")
        return f"{self.figure}-{'most' if self.at_most else 'least'}-{number}"

    def limit(self, default: float | None) -> float | None:
        """In the figure's unit; None if the default's value decides and is not known."""
        if not self.of_default:
            return self.bound
        return None if default is None else self.bound * default

    def missed(self, value: float | None, limit: float | None) -> float:
        """The factor by which the value misses the limit; 1 if it keeps to it."""
        if value is None or limit is None:
            return WORST
        over, under = (value, limit) if self.at_most else (limit, value)
        if over <= under:
            return 1.0
        return min(over / under, WORST) if under > 0 else WORST


class Ran(Protocol):
    """A trial of a study."""

    @property
    def number(self) -> int: ...
    @property
    def result(self) -> TrialResult | None: ...


T = TypeVar("T", bound=Ran)


@dataclass(frozen=True)
class Bounds:
    """The constraints of a study, where its defaults measured this."""

    constraints: Sequence[Constraint]
    setting: Setting
    default: TrialResult | None

    def limits(self) -> dict[str, float | None]:
        """By constraint, in the figures' units."""
        return {
            str(each): each.limit(value_of(self.setting, each.figure, self.default))
            for each in self.constraints
        }

    def missed(self, result: TrialResult) -> dict[str, float]:
        """The constraints that a successful trial breaks, and the factors by which it does."""
        limits = self.limits()
        found = {
            str(each): each.missed(value_of(self.setting, each.figure, result), limits[str(each)])
            for each in self.constraints
        }
        return {text: factor for text, factor in found.items() if factor > 1}

    def kept(self, trials: Iterable[T]) -> list[T]:
        """Those that succeeded and meet all of them."""
        return [
            trial
            for trial in trials
            if trial.result is not None
            and trial.result.status is Status.success
            and not (self.constraints and self.missed(trial.result))
        ]

    def nearest(self, trials: Iterable[T]) -> tuple[T, dict[str, float]] | None:
        """The trial that comes nearest to meeting them, and the factors by which it misses some;
        None if one meets all, or none succeeded."""
        found = [
            (math.prod(missed.values()), trial.number, trial, missed)
            for trial in trials
            if trial.result is not None and trial.result.status is Status.success
            for missed in [self.missed(trial.result)]
        ]
        if not found:
            return None
        _, _, trial, missed = min(found, key=lambda each: each[:2])
        return (trial, missed) if missed else None

    @property
    def relative(self) -> bool:
        """Whether what the defaults measure has a say."""
        return any(each.of_default for each in self.constraints)


class Judged(Model):
    """A constraint on a configuration that ran on several seeds: its limit and the figure's value
    are means over the seeds (None where a run of all failed), and `broken` is on how many of
    `seeds` it is broken, each held against the defaults on the same seed."""

    constraint: str
    limit: float | None = None
    value: float | None = None
    missed: float  # by this factor, on the mean
    broken: int
    seeds: int

    def __str__(self) -> str:
        figure = re.split("[<>]", self.constraint)[0]
        limit = "not known" if self.limit is None else shown(figure, self.limit)
        return f"{shown(figure, self.value)} (limit {limit})"


def judged(
    setting: Setting,
    constraints: Sequence[Constraint],
    results: Sequence[TrialResult],
    defaults: Sequence[TrialResult],
) -> list[Judged]:
    """What runs on several seeds say, with those of the defaults on the same seeds."""
    found = []
    for each in constraints:
        values = [value_of(setting, each.figure, result) for result in results]
        limits = [each.limit(value_of(setting, each.figure, result)) for result in defaults]
        value, limit = _mean(values), _mean(limits)
        pairs = zip(values, limits, strict=True)
        found.append(
            Judged(
                constraint=str(each),
                limit=limit,
                value=value,
                missed=each.missed(value, limit),
                broken=sum(each.missed(one, most) > 1 for one, most in pairs),
                seeds=len(values),
            )
        )
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def figures_of(setting: Setting, isolation: Any) -> dict[str, Figure]:
    """What trials of the setting measure, by name."""
    scenario = setting.scenario
    if scenario.substrate == LIVE or not simulates(isolation):
        own = FIGURES[scenario.objective]
        named = re.compile(isolation.metric).groupindex
        return {own.name: own} | {
            name: Figure(name, "", None, "measured by the command", counted(name)) for name in named
        }
    able = [*setting.workload.objectives_of(scenario.input), "runtime"]
    emulated = scenario.substrate == EMULATED
    return {
        name: figure
        for name, figure in FIGURES.items()
        if (figure.emulated or not emulated) and (name in able or name not in OBJECTIVES)
    }


def value_of(setting: Setting, name: str, result: TrialResult | None) -> float | None:
    """A figure of a trial; None if it failed or did not measure it."""
    if result is None or result.objective is None:
        return None
    if name == setting.scenario.objective:
        return result.objective
    figure = FIGURES.get(name) or Figure(name, "", None, "", counted(name))
    measured = {**result.metrics, "latency": result.latency}
    return figure.value(measured, setting.workload.operation_of(setting.scenario.input))


def shown(name: str, value: float | None) -> str:
    """A figure's value for people."""
    if value is None:
        return "not measured"
    unit = FIGURES[name].unit if name in FIGURES else ""
    return f"{100 * value:.4g} %" if unit == "share" else quantity(value, unit).strip()


# --- What a user writes ---------------------------------------------------------------------------


def parsed(texts: Sequence[str], known: Mapping[str, Figure]) -> list[Constraint]:
    """UserError for what is none, names no figure that a trial measures, or cannot be met."""
    found = [_parsed(text, known) for text in texts]
    for one, other in combinations(found, 2):
        if (one.figure, one.of_default) != (other.figure, other.of_default):
            continue
        if one.at_most == other.at_most:
            raise UserError(f"--constraint: {one} and {other} are one bound twice; give one")
        low, high = (other, one) if one.at_most else (one, other)
        if low.bound > high.bound:
            raise UserError(f"--constraint: nothing meets both {low} and {high}")
    return found


def _parsed(text: str, known: Mapping[str, Figure]) -> Constraint:
    given = f"--constraint: found '{brief(text)}'"
    match = _FORM.fullmatch(text)
    if match is None:
        raise UserError(
            f"{given}; must be FIGURE<=BOUND or FIGURE>=BOUND, where the bound is a number, a "
            "number with its unit, or a multiple of the default's such as 1.05*default"
        )
    figure = known.get(match["figure"])
    if figure is None:
        raise unknown("figure", match["figure"], known)
    try:
        bound = 1.0 if match["just"] else float(match["number"])
    except ValueError:
        raise UserError(f"{given}; '{brief(match['number'])}' is not a number") from None
    if unit := match["unit"]:
        units = UNITS[figure.unit]
        if unit not in units:
            raise UserError(
                f"{given}; the unit of {figure.name} must be "
                f"{' or '.join(units) or 'left out: a command measures it'}"
            )
        bound *= units[unit]
    relative = bool(match["times"] or match["just"])
    at_most = match["sense"] == "<="
    if not 0 < bound < float("inf"):
        raise UserError(f"{given}; the bound must be above 0, and finite")
    if not relative and not at_most and bound > figure.most:
        raise UserError(f"{given}; {figure.name} is at most {shown(figure.name, figure.most)}")
    return Constraint(figure=figure.name, at_most=at_most, bound=bound, of_default=relative)


# --- What is told ---------------------------------------------------------------------------------


def by_how_much(missed: Mapping[str, float]) -> str:
    """`p99<=1.05*default by 3.1 %`."""
    return ", ".join(_told(text, factor) for text, factor in missed.items())


def _told(text: str, factor: float) -> str:
    if factor >= WORST:
        return f"{text} by far, or does not measure it"
    return f"{text} by {100 * (factor - 1):.2g} %" if factor < 2 else f"{text} {factor:.1f} times"


def listed(constraints: Sequence[Constraint]) -> str:
    return " and ".join(map(str, constraints))
