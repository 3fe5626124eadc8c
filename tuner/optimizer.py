"""Which configuration to try next: an ask that is a pure function of the trial log.

Nothing here has state that outlives a call except the observations themselves. Every ask derives
its randomness from (seed, trial number) and fits a fresh model to what is known, so a study that
was killed and resumed continues exactly as if nothing had happened, on any host.

The schedule is that of From Good to Great (2025, §4.1): the default configuration and random ones
for the first fifth of the budget, then SMAC's random forest with expected improvement on the log of
the cost, interrupted by a random configuration with probability 0.2. An ask builds SMAC's
hyperparameter-optimisation facade afresh, tells it all that is known and asks it once: what SMAC
keeps in files and private attributes is never relied on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Literal

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
from numpy.typing import NDArray
from scipy.special import ndtr
from smac import HyperparameterOptimizationFacade, Scenario
from smac.acquisition.function import EI
from smac.acquisition.maximizer.abstract_acquisition_maximizer import AbstractAcquisitionMaximizer
from smac.intensifier import Intensifier
from smac.main.config_selector import ConfigSelector
from smac.model.random_forest import RandomForest
from smac.runhistory import TrialInfo, TrialValue
from smac.runhistory.encoder import RunHistoryLogEncoder

from tuner.errors import UserError
from tuner.models import KnobDecl, KnobValue

Origin = Literal["default", "initial", "random", "model"]
Floats = NDArray[np.float64]

INITIAL_SHARE = 0.2
RANDOM_PROBABILITY = 0.2
FAILURE_FACTOR = 2.0  # a failed trial costs this much more than the worst success
DIGITS = 6  # significant digits of a real knob: what a person would still write down


class SpaceExhausted(Exception):
    """Every configuration of a finite space has been proposed."""


@dataclass(frozen=True)
class Proposal:
    """A configuration to try: all tuned knobs, the inactive ones at their default."""

    number: int
    knobs: dict[str, KnobValue]
    origin: Origin


def initial_trials(budget: int) -> int:
    """Trials before the model takes over, the default configuration included: 20 of 100."""
    return min(budget, max(2, round(INITIAL_SHARE * budget)))


class Space:
    """The tuned knobs as a ConfigSpace, and the way between configurations and plain knobs.

    `fixed` are the values of knobs that are not tuned. A condition on one of them is decided for
    good: the knob is either free or never active; the latter, like a knob narrowed to one value,
    is constant. Parents come first in the ConfigSpace.
    """

    def __init__(
        self, knobs: Sequence[KnobDecl], fixed: Mapping[str, KnobValue] | None = None
    ) -> None:
        self.decls = {knob.name: knob for knob in knobs}
        self.fixed = dict(fixed or {})
        self.constants: dict[str, KnobValue] = {}
        self.configspace = ConfigurationSpace()
        self._parameters: dict[str, Any] = {}
        self._decided: set[str] = set()
        for knob in knobs:
            self._add(knob)

    def _add(self, knob: KnobDecl) -> None:
        if knob.name in self._decided:
            return
        self._decided.add(knob.name)
        parameter = _parameter(knob)
        condition = knob.condition
        if isinstance(parameter, _Constant):
            self.constants[knob.name] = parameter.value
            return
        if condition is None:
            self._tune(knob.name, parameter)
            return
        if condition.parent in self.decls:
            self._add(self.decls[condition.parent])
        parent = self._parameters.get(condition.parent)
        if parent is None:
            value = (self.fixed | self.constants).get(condition.parent)
            if value in condition.values:
                self._tune(knob.name, parameter)
            else:
                self.constants[knob.name] = knob.default
            return
        values = [value for value in condition.values if parent.legal_value(value)]
        if not values:
            self.constants[knob.name] = knob.default
            return
        self._tune(knob.name, parameter)
        self.configspace.add(InCondition(parameter, parent, values))

    def _tune(self, name: str, parameter: Any) -> None:
        self.configspace.add(parameter)
        self._parameters[name] = parameter

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
        condition = self.decls[name].condition
        if condition is None or condition.parent not in self._parameters:
            return name not in self.constants
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


class Optimizer:
    """Proposes configurations and learns from their costs.

    Trials are numbered from 0. Trial n is proposed from the results of the trials up to n - lag;
    the lag - 1 between them count as pending whether or not they have finished, which makes the
    sequence independent of timing. Use as many workers as `lag`.

    Args:
        knobs: the tuned knobs with their (narrowed) limits.
        seed: of the whole sequence.
        initial: trials before the model takes over, the default included (`initial_trials`).
        lag: 1 for a sequential study, the number of workers otherwise.
        fixed: the policy's other knobs, at the values that they keep.
    """

    def __init__(
        self,
        knobs: Sequence[KnobDecl],
        *,
        seed: int,
        initial: int,
        lag: int = 1,
        fixed: Mapping[str, KnobValue] | None = None,
    ) -> None:
        self.space = Space(knobs, fixed)
        self.lag = lag
        self._seed = seed
        self._initial = initial
        self._proposed: list[dict[str, KnobValue]] = []
        self._costs: dict[int, float | None] = {}

    @property
    def asked(self) -> int:
        return len(self._proposed)

    def ready(self) -> bool:
        """Whether `ask` may be called: every trial it has to learn from has been told."""
        return all(number in self._costs for number in range(max(0, self.asked - self.lag + 1)))

    def ask(self) -> Proposal:
        """The next trial. SpaceExhausted when a finite space has no configuration left."""
        if not self.ready():
            raise ValueError(f"trial {self.asked} needs the results of earlier trials first")
        number = self.asked
        rng = np.random.default_rng([self._seed, number])
        origin, knobs = self._propose(number, rng)
        self._proposed.append(knobs)
        return Proposal(number, knobs, origin)

    def replay(self, number: int, knobs: Mapping[str, KnobValue]) -> None:
        """Takes a trial of an earlier run as proposed, in order, without the cost of asking."""
        if number != self.asked:
            raise ValueError(f"trial {number} replayed where trial {self.asked} is next")
        self._proposed.append({name: knobs[name] for name in self.space.decls})

    def tell(self, number: int, cost: float | None) -> None:
        """The cost of a proposed trial: positive, lower is better; None if the trial failed."""
        if not 0 <= number < self.asked or number in self._costs:
            raise ValueError(f"trial {number} is not waiting for a result")
        if cost is not None and not (math.isfinite(cost) and cost > 0):
            raise ValueError(f"cost of trial {number} is {cost}, not a positive number")
        self._costs[number] = cost

    def _propose(
        self, number: int, rng: np.random.Generator
    ) -> tuple[Origin, dict[str, KnobValue]]:
        if number == 0:
            return "default", self.space.default()
        if number < self._initial:
            return "initial", self._fresh_sample(rng)
        by_chance = rng.random() < RANDOM_PROBABILITY
        if not by_chance and self.space.tuned:
            knobs = self._ask_model(number, int(rng.integers(2**31)))
            if knobs is not None and knobs not in self._proposed:
                return "model", knobs
        return "random", self._fresh_sample(rng)

    def _fresh_sample(self, rng: np.random.Generator) -> dict[str, KnobValue]:
        for _ in range(1000):
            knobs = self.space.sample(rng)
            if knobs not in self._proposed:
                return knobs
        raise SpaceExhausted(f"all {self.asked} configurations of the space have been tried")

    def _ask_model(self, number: int, seed: int) -> dict[str, KnobValue] | None:
        """SMAC's choice given all that is known, or None if it has none."""
        known = [
            (configuration, cost)
            for index, cost in self._known_costs(number).items()
            if (configuration := self.space.configuration(self._proposed[index])) is not None
        ]
        if not known:
            return None
        with TemporaryDirectory(prefix="tiertune-smac-") as directory:
            smac = _facade(self.space.configspace, seed, directory)
            for configuration, cost in known:
                smac.tell(TrialInfo(configuration, seed=0), TrialValue(cost=cost), save=False)
            return self.space.knobs(smac.ask().config)

    def _known_costs(self, number: int) -> dict[int, float]:
        """Costs to learn from, by trial; failed trials and pending ones with an assumed cost.

        A failed trial costs twice the worst success: finite, so that it steers the model away
        without drowning the differences between successes. A pending one is assumed to come out
        at the median of the known ones, which keeps the next proposal away from it.
        """
        told = {
            index: self._costs[index]
            for index in range(number - self.lag + 1)
            if index in self._costs
        }
        good = [cost for cost in told.values() if cost is not None]
        if not good:
            return {}
        failed = FAILURE_FACTOR * max(good)
        known = {index: failed if cost is None else cost for index, cost in told.items()}
        lie = float(np.median(list(known.values())))
        return known | dict.fromkeys(range(max(0, number - self.lag + 1), number), lie)


def _facade(
    space: ConfigurationSpace, seed: int, directory: str
) -> HyperparameterOptimizationFacade:
    """SMAC's hyperparameter-optimisation set-up for one ask.

    The initial design and the random interleaving are ours (see Optimizer), so SMAC gets neither.
    The model learns plain log costs: the facade's default stretches the scale towards the best
    cost, which makes the search polish differences of a thousandth (and, on the objectives of
    bench_tuner.py, end with 1.1 times the regret alone and 1.4 times with a trial pending).
    """
    logging.getLogger("smac").setLevel(logging.ERROR)  # it warns that there is no initial design
    scenario = Scenario(
        space, deterministic=True, n_trials=2**31, seed=seed, output_directory=directory
    )
    facade = HyperparameterOptimizationFacade
    return facade(
        scenario,
        model=_Forest(space, seed),
        acquisition_function=_Improvement(xi=0.0, log=True),
        acquisition_maximizer=_Search(space, seed=seed),
        initial_design=facade.get_initial_design(scenario, n_configs=0),
        random_design=facade.get_random_design(scenario, probability=0.0),
        intensifier=Intensifier(scenario, max_config_calls=1, seed=seed),
        config_selector=ConfigSelector(scenario, retrain_after=1),
        runhistory_encoder=RunHistoryLogEncoder(scenario),
        logging_level=False,
        overwrite=True,
    )


class _Forest(RandomForest):  # type: ignore[misc]
    """SMAC's random forest on log costs, with more trees and a quick way to ask them.

    The builder reserves `max_leaf_nodes` nodes per tree: SMAC's default of 2^20 costs a second per
    fit, 1024 is far above the number of trials. SMAC asks tree by tree through scikit-learn's
    checks and joblib, which takes ten times as long as the trees do.
    """

    TREES = 30

    def __init__(self, space: ConfigurationSpace, seed: int) -> None:
        super().__init__(
            space, log_y=True, n_trees=self.TREES, ratio_features=1.0, min_samples_split=2,
            min_samples_leaf=1, max_leaf_nodes=1024, n_jobs=1, seed=seed,
        )  # fmt: skip

    def _predict(
        self, X: Floats, covariance_type: str | None = "diagonal"
    ) -> tuple[Floats, Floats]:
        points = np.ascontiguousarray(self._impute_inactive(X), dtype=np.float32)
        assert self._rf is not None
        trees = np.array([tree.tree_.predict(points)[:, 0] for tree in self._rf.estimators_])
        return trees.mean(axis=0)[:, None], trees.var(axis=0)[:, None]


class _Improvement(EI):  # type: ignore[misc]
    """Expected improvement of a cost whose log the model predicts.

    The formula is SMAC's, which raises an error when rounding takes a vanishing value below zero.
    """

    def _compute(self, X: Floats) -> Floats:
        mean, variance = self._model.predict_marginalized(X)
        deviation = np.sqrt(variance)
        z = (self._eta - mean) / deviation
        gain = np.exp(self._eta) * ndtr(z) - np.exp(mean + variance / 2) * ndtr(z - deviation)
        return np.asarray(np.maximum(gain, 0.0))

    def of(self, vectors: Floats) -> Floats:
        """Of many vectors at once."""
        return np.asarray(self._compute(vectors), dtype=np.float64).reshape(-1)


class _Search(AbstractAcquisitionMaximizer):  # type: ignore[misc]
    """Maximises the acquisition: a random sample, then hill climbing from the best points.

    SMAC's own search is the same idea, but orders its starting points by the hash of a string,
    which differs from process to process, and evaluates a few neighbours per model call, which
    makes it the larger part of an ask. This one is reproducible and moves all climbers at once.
    """

    SAMPLE = 2000
    CLIMBERS = 12
    NEIGHBOURS = 24
    ROUNDS = 30

    def _maximize(
        self, previous_configs: list[Configuration], n_points: int
    ) -> list[tuple[float, Configuration]]:
        function = self._acquisition_function
        assert isinstance(function, _Improvement)
        rng = np.random.default_rng(self._seed)
        cube = _Cube(self._configspace)
        pool = cube.sample(rng, self.SAMPLE)
        known = np.array([c.get_array() for c in previous_configs])
        starts = np.concatenate(
            [
                _best(pool, function.of(pool), self.CLIMBERS // 2),
                _best(known, function.of(known), self.CLIMBERS // 2),
            ]
        )
        values = function.of(starts)
        for step in np.geomspace(0.1, 0.01, self.ROUNDS):
            moved = cube.neighbours(rng, np.repeat(starts, self.NEIGHBOURS, axis=0), float(step))
            gained = function.of(moved).reshape(len(starts), self.NEIGHBOURS)
            best = gained.argmax(axis=1)
            rows = np.arange(len(starts))
            better = gained[rows, best] > values
            chosen = moved.reshape(len(starts), self.NEIGHBOURS, -1)[rows, best]
            starts = np.where(better[:, None], chosen, starts)
            values = np.where(better, gained[rows, best], values)
        order = np.argsort(-values, kind="stable")
        return [
            (float(values[i]), Configuration(self._configspace, vector=starts[i])) for i in order
        ]


def _best(points: Floats, values: Floats, count: int) -> Floats:
    return points[np.argsort(-values, kind="stable")[:count]]


class _Cube:
    """Batches of ConfigSpace vectors: numbers in [0, 1], choices as indices, inactive as NaN."""

    def __init__(self, space: ConfigurationSpace) -> None:
        self._parameters = list(space.values())
        index = {parameter.name: i for i, parameter in enumerate(self._parameters)}
        self._conditions = [
            (index[c.child.name], index[c.parent.name], [c.parent.to_vector(v) for v in c.values])
            for c in space.conditions
        ]
        # Parents come first, so one pass settles chains of conditions.
        self._conditions.sort()

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        columns = [self._draw(rng, parameter, count) for parameter in self._parameters]
        return self._legal(np.column_stack(columns))

    def neighbours(self, rng: np.random.Generator, points: Floats, step: float) -> Floats:
        """Each point with one knob changed, sometimes two: numbers by a step, choices anew."""
        count, width = points.shape
        changed = rng.integers(width, size=(count, 1)) == np.arange(width)
        second = rng.integers(width, size=(count, 1)) == np.arange(width)
        changed |= second & (rng.random((count, 1)) < 0.3)
        moved = points.copy()
        for i, parameter in enumerate(self._parameters):
            fresh = self._draw(rng, parameter, count)
            if isinstance(parameter, CategoricalHyperparameter):
                value = fresh
            else:
                near = np.clip(points[:, i] + rng.normal(0, step, count), 0, 1)
                value = np.where(np.isnan(points[:, i]), fresh, near)
            # A knob that becomes active needs a value, whether or not it was chosen to change.
            moved[:, i] = np.where(changed[:, i] | np.isnan(points[:, i]), value, points[:, i])
        return self._legal(moved)

    @staticmethod
    def _draw(rng: np.random.Generator, parameter: Any, count: int) -> Floats:
        if isinstance(parameter, CategoricalHyperparameter):
            return rng.integers(len(parameter.choices), size=count).astype(np.float64)
        return rng.random(count)

    def _legal(self, points: Floats) -> Floats:
        for i, parameter in enumerate(self._parameters):
            if isinstance(parameter, UniformIntegerHyperparameter):
                points[:, i] = parameter.to_vector(parameter.to_value(points[:, i]))
        for child, parent, values in self._conditions:
            points[~np.isin(points[:, parent], values), child] = np.nan
        return points
