# SPDX-License-Identifier: MIT
"""The tuned knobs as a ConfigSpace, and the way between configurations and plain knobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    InCondition,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from ConfigSpace.exceptions import IllegalValueError

from tuner.declarations import KnobCondition, KnobDecl, KnobValue
from tuner.errors import UserError

DIGITS = 6  # significant digits of a real knob: as many as a person would write


class Space:
    """The tuned knobs as a ConfigSpace, and the way between configurations and plain knobs.

    `fixed` are the policy's other knobs, whose defaults are what they keep. A condition on one of
    them is decided once: it holds, if what that knob itself is conditional on does, or never does.
    A knob that is never active is constant, like one narrowed to one value. Parents come first in
    the ConfigSpace.
    """

    def __init__(self, knobs: Sequence[KnobDecl], fixed: Sequence[KnobDecl] = ()) -> None:
        self.decls = {knob.name: knob for knob in knobs}
        self.fixed = {knob.name: knob for knob in fixed}
        self.constants: dict[str, KnobValue] = {}
        self.configspace = ConfigurationSpace()
        self._parameters: dict[str, Any] = {}
        self._conditions: dict[str, KnobCondition | None] = {}
        for knob in knobs:
            self._add(knob)

    def _add(self, knob: KnobDecl) -> None:
        if knob.name in self._conditions:
            return
        self._conditions[knob.name] = None
        parameter = _parameter(knob)
        if isinstance(parameter, _Constant):
            self.constants[knob.name] = parameter.value
            return
        condition = self._undecided(knob.condition)
        if condition is not None and not condition.values:
            self.constants[knob.name] = knob.default
            return
        self._conditions[knob.name] = condition
        self.configspace.add(parameter)
        self._parameters[knob.name] = parameter
        if condition is not None:
            parent = self._parameters[condition.parent]
            self.configspace.add(InCondition(parameter, parent, condition.values))

    def _undecided(self, condition: KnobCondition | None) -> KnobCondition | None:
        """What is left of it: a condition on a knob that is tuned, with values that it can take;
        None if it holds in any case. Without values it never does."""
        while condition is not None:
            name = condition.parent
            if name in self.decls:
                self._add(self.decls[name])
            if parent := self._parameters.get(name):
                values = [value for value in condition.values if parent.legal_value(value)]
                return KnobCondition(parent=name, values=values)
            decl = self.decls.get(name) or self.fixed.get(name)
            if decl is None or self.constants.get(name, decl.default) not in condition.values:
                return KnobCondition(parent=name, values=[])
            condition = decl.condition
        return None

    def default(self) -> dict[str, KnobValue]:
        """The policy's own defaults, even where a space was narrowed so that it excludes them."""
        return {name: knob.default for name, knob in self.decls.items()}

    def knobs(self, configuration: Configuration) -> dict[str, KnobValue]:
        """Plain values of all tuned knobs, in declaration order; inactive ones at their default."""
        given = dict(configuration)
        return {
            name: self.constants[name]
            if name in self.constants
            else _plain(decl, given[name])
            if name in given
            else decl.default
            for name, decl in self.decls.items()
        }

    def configuration(self, knobs: Mapping[str, KnobValue]) -> Configuration | None:
        """The reverse; None for values outside the space (a default that a space excludes)."""
        active = {name: knobs[name] for name in self._parameters if self.active(name, knobs)}
        try:
            return Configuration(self.configspace, values=active)
        except IllegalValueError:
            return None

    def active(self, name: str, knobs: Mapping[str, KnobValue]) -> bool:
        """Whether the knob acts under these values."""
        if name in self.constants:
            return False
        condition = self._conditions[name]
        if condition is None:
            return True
        parent = condition.parent
        return knobs[parent] in condition.values and self.active(parent, knobs)

    def sample(self, rng: np.random.Generator) -> dict[str, KnobValue]:
        if not self._parameters:
            return dict(self.constants)
        self.configspace.seed(int(rng.integers(2**31)))
        return self.knobs(self.configspace.sample_configuration())

    @property
    def tuned(self) -> list[str]:
        """Names of the knobs that can take more than one value."""
        return [name for name in self.decls if name in self._parameters]


@dataclass(frozen=True)
class _Constant:
    value: KnobValue


def _parameter(knob: KnobDecl) -> Any:
    """The knob as a ConfigSpace hyperparameter, or _Constant if it can take only one value.

    A default outside narrowed limits is moved to the nearest legal value; it serves only to
    complete the hyperparameter, the default configuration itself is tried as declared.
    """
    if knob.type == "boolean":
        return CategoricalHyperparameter(knob.name, [False, True], default_value=bool(knob.default))
    if knob.type == "choice":
        if len(knob.choices) == 1:
            return _Constant(knob.choices[0])
        choice = knob.default if knob.default in knob.choices else knob.choices[0]
        return CategoricalHyperparameter(knob.name, list(knob.choices), default_value=choice)
    if knob.min is None or knob.max is None:
        raise UserError(f"knob '{knob.name}' has no limits, so it cannot be tuned")
    if knob.log and knob.min <= 0:
        raise UserError(f"knob '{knob.name}' is on a logarithmic scale, so min must be above 0")
    if knob.type == "integer":
        low, high = math.ceil(knob.min), math.floor(knob.max)
        if low > high:
            raise UserError(f"knob '{knob.name}': no integer between {knob.min} and {knob.max}")
        if low == high:
            return _Constant(low)
        default = min(max(int(knob.default), low), high)
        return UniformIntegerHyperparameter(
            knob.name, low, high, default_value=default, log=knob.log
        )
    if knob.min == knob.max:
        return _Constant(float(knob.min))
    number = min(max(float(knob.default), knob.min), knob.max)
    return UniformFloatHyperparameter(
        knob.name, knob.min, knob.max, default_value=number, log=knob.log
    )


def _plain(knob: KnobDecl, value: Any) -> KnobValue:
    if knob.type == "boolean":
        return bool(value)
    if knob.type == "choice":
        return str(value)
    if knob.type == "integer":
        return int(value)
    assert knob.min is not None and knob.max is not None
    return min(max(float(f"{value:.{DIGITS}g}"), float(knob.min)), float(knob.max))
