# SPDX-License-Identifier: MIT
"""One ask of SMAC: its random forest and expected improvement, with our own search."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    UniformIntegerHyperparameter,
)
from numpy.typing import NDArray
from scipy.special import ndtr
from smac import HyperparameterOptimizationFacade
from smac import Scenario as SmacScenario
from smac.acquisition.function import EI
from smac.acquisition.maximizer.abstract_acquisition_maximizer import AbstractAcquisitionMaximizer
from smac.intensifier import Intensifier
from smac.main.config_selector import ConfigSelector
from smac.model.random_forest import RandomForest
from smac.runhistory import TrialInfo, TrialValue
from smac.runhistory.encoder import RunHistoryLogEncoder

Floats = NDArray[np.float64]


def suggest(
    space: ConfigurationSpace, known: Sequence[tuple[Configuration, float]], seed: int
) -> Configuration:
    """The most promising configuration, given the costs of others."""
    with TemporaryDirectory(prefix="tiertune-smac-") as directory:
        smac = _facade(space, seed, directory)
        for configuration, cost in known:
            smac.tell(TrialInfo(configuration, seed=0), TrialValue(cost=cost), save=False)
        return smac.ask().config


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
    scenario = SmacScenario(
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
        """Each point with one knob changed, sometimes two: numbers by a step, choices redrawn."""
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
