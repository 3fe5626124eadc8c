# SPDX-License-Identifier: MIT
"""One ask of SMAC: one of its models and expected improvement, with our own search.

SMAC's facade would come to the same configuration. It keeps books on incumbents and trials on the
way, though, which a study does not need, and whose time grows with the square of the trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    UniformIntegerHyperparameter,
)
from numpy.typing import NDArray
from scipy.optimize import fmin_l_bfgs_b
from scipy.special import ndtr
from sklearn.ensemble import RandomForestRegressor
from smac import BlackBoxFacade, Scenario
from smac.acquisition.function import EI
from smac.model.gaussian_process import GaussianProcess
from smac.model.random_forest import RandomForest
from smac.model.random_forest.random_forest import EPMRandomForest
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float64]

Values = tuple[tuple[str, Any], ...]

MOST_LEARNED = 300
"""Trials that a forest is fitted to: more take longer, and tell it little about the best."""

MOST_PROCESSED = 150
"""Trials that a process is fitted to, whose time grows with their cube."""

TRIES = 16
"""Random configurations that are drawn, beyond as many as are known, to find a new one."""


def suggest(
    space: ConfigurationSpace,
    known: Sequence[tuple[Configuration, float]],
    seed: int,
    *,
    process: bool = False,
) -> Configuration | None:
    """The most promising new configuration, given the costs of others; None if none was found. By a
    forest, or by a Gaussian process.

    The model learns plain log costs: what SMAC's facade for hyperparameters does by default, to
    stretch the scale towards the best cost, makes the search polish differences of a thousandth
    (and, on the objectives of bench_tuner.py, end with 1.1 times the regret alone and 1.4 times
    with a trial pending).
    """
    seen: dict[Values, tuple[Configuration, float]] = {}
    for configuration, cost in known:
        seen[_values(configuration)] = configuration, cost  # of equals the last
    # Several threads would add up a sum in another order, and matrices are small.
    with threadpool_limits(1, "blas"):
        return _suggested(space, seen, seed, process=process)


def _suggested(
    space: ConfigurationSpace,
    seen: dict[Values, tuple[Configuration, float]],
    seed: int,
    *,
    process: bool,
) -> Configuration | None:
    learned = instructive(list(seen.values()), MOST_PROCESSED if process else MOST_LEARNED)
    vectors = np.array([configuration.get_array() for configuration, _ in learned])
    costs = np.array([cost for _, cost in learned])
    fitted: Process | Forest
    try:
        fitted = Process(space, seed) if process else Forest(space, seed)
        fitted.train(vectors, np.log(costs)[:, None])
    except np.linalg.LinAlgError:  # trials so near each other that their covariances are singular
        fitted = Forest(space, seed)
        fitted.train(vectors, np.log(costs)[:, None])
    improvement = _Improvement(xi=0.0, log=True)
    improvement.update(model=fitted, eta=_least(fitted, vectors))
    for vector in _climb(_Cube(space), improvement, vectors, seed):
        configuration = Configuration(space, vector=vector)
        if _values(configuration) not in seen:
            return configuration
    space.seed(seed)
    for _ in range(TRIES + len(seen)):
        configuration = space.sample_configuration()
        if _values(configuration) not in seen:
            return configuration
    return None


def instructive(
    known: list[tuple[Configuration, float]], most: int
) -> list[tuple[Configuration, float]]:
    """At most so many of what is known, in its order: the latest half, which has the pending trials
    and says where the search has been, and the best of the others."""
    if len(known) <= most:
        return known
    latest = len(known) - most // 2
    best = sorted(range(latest), key=lambda index: (known[index][1], index))
    kept = sorted(best[: most - most // 2])
    return [known[index] for index in kept] + known[latest:]


def _values(configuration: Configuration) -> Values:
    return tuple(dict(configuration).items())


def _least(model: Any, vectors: Floats) -> float:
    """The least cost that the model predicts where it knows one. Asked one by one, as SMAC does:
    numpy adds up a row of its own in another order, and the last bit decides between equals."""
    means = model.predict_marginalized(vectors)[0][:, 0]
    near = vectors[means <= means.min() + 1e-9 * (1 + abs(means.min()))]
    return min(float(model.predict_marginalized(row[None, :])[0][0, 0]) for row in near)


class Forest(RandomForest):  # type: ignore[misc]
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

    def _train(self, X: Floats, y: Floats) -> Forest:
        """As SMAC does, whose loop over all leaves takes as long as growing them: most have one
        trial, or a few, and numpy adds up less than eight one after the other."""
        points, costs = self._impute_inactive(X), y.flatten()
        self._rf = forest = EPMRandomForest(**self._rf_opts)
        RandomForestRegressor.fit(forest, points, costs)
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            leaves, drawn_costs = tree.tree_.apply(points[drawn].astype(np.float32)), costs[drawn]
            count = np.bincount(leaves)
            few = np.flatnonzero((count > 0) & (count < 8))
            total = np.bincount(leaves, weights=np.exp(drawn_costs))
            tree.tree_.value[few, 0, 0] = np.log(total[few] / count[few])
            for leaf in np.flatnonzero(count >= 8):
                tree.tree_.value[leaf, 0, 0] = np.log(np.exp(drawn_costs[leaves == leaf]).mean())
        return self

    def _predict(
        self, X: Floats, covariance_type: str | None = "diagonal"
    ) -> tuple[Floats, Floats]:
        points = np.ascontiguousarray(self._impute_inactive(X), dtype=np.float32)
        assert self._rf is not None
        trees = np.array([tree.tree_.predict(points)[:, 0] for tree in self._rf.estimators_])
        return trees.mean(axis=0)[:, None], trees.var(axis=0)[:, None]


class Process(GaussianProcess):  # type: ignore[misc]
    """SMAC's Gaussian process on log costs, with the kernel of its BlackBoxFacade.

    Two descents of its likelihood in place of eleven, which take a second. A processor's own last
    digits decide where they end on flat ground: the better one goes on to the bottom, and lengths
    are kept to a hundredth of their logarithm, so that a study repeats on others.
    """

    def __init__(self, space: ConfigurationSpace, seed: int) -> None:
        kernel = BlackBoxFacade.get_kernel(Scenario(space, seed=seed))
        super().__init__(space, kernel=kernel, n_restarts=1, seed=seed)

    def _optimize(self) -> Floats:
        bounds = list(map(tuple, self._gp.kernel.bounds))
        bottom, *_ = fmin_l_bfgs_b(
            self._nll, super()._optimize(), bounds=bounds, factr=1, pgtol=1e-9, maxiter=200
        )
        return np.asarray(np.round(bottom, 2))


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


SAMPLE = 2000
CLIMBERS = 12
NEIGHBOURS = 24
ROUNDS = 30


def _climb(cube: _Cube, function: _Improvement, known: Floats, seed: int) -> Floats:
    """Points of much improvement, the most first: a random sample, then hill climbing from the best
    points.

    SMAC's own search is the same idea, but orders its starting points by the hash of a string,
    which differs from process to process, and evaluates a few neighbours per model call, which
    makes it the larger part of an ask. This one is reproducible and moves all climbers at once.
    """
    rng = np.random.default_rng(seed)
    pool = cube.sample(rng, SAMPLE)
    starts = np.concatenate(
        [
            _best(pool, function.of(pool), CLIMBERS // 2),
            _best(known, function.of(known), CLIMBERS // 2),
        ]
    )
    values = function.of(starts)
    for step in np.geomspace(0.1, 0.01, ROUNDS):
        moved = cube.neighbours(rng, np.repeat(starts, NEIGHBOURS, axis=0), float(step))
        gained = function.of(moved).reshape(len(starts), NEIGHBOURS)
        best = gained.argmax(axis=1)
        rows = np.arange(len(starts))
        better = gained[rows, best] > values
        chosen = moved.reshape(len(starts), NEIGHBOURS, -1)[rows, best]
        starts = np.where(better[:, None], chosen, starts)
        values = np.where(better, gained[rows, best], values)
    return starts[np.argsort(-values, kind="stable")]


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
