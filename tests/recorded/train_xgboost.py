# SPDX-License-Identifier: MIT
"""Trains XGBoost on Criteo-like data: 13 numeric columns, and 26 categorical ones as integers.

    python tests/recorded/train_xgboost.py [--rows 200000] [--rounds 10]

A program to be recorded (README, "Programs of your own"): nothing in it knows of the recording. The
histogram method as in HybridTier (ASPLOS'25), §5.1; the categorical columns have power-law
popularity as Criteo's have.
"""

import argparse
import time

import numpy as np
import xgboost


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    numeric = rng.lognormal(size=(args.rows, 13)).astype(np.float32)
    categories = np.minimum(rng.zipf(1.2, size=(args.rows, 26)), 100_000).astype(np.float32)
    rows = np.hstack([numeric, categories])
    score = np.log(numeric[:, :4]).sum(axis=1) + (categories[:, :6] % 7).sum(axis=1) / 6 - 3
    label = rng.random(args.rows) < 1 / (1 + np.exp(-score))
    parameters = {"tree_method": "hist", "objective": "binary:logistic", "nthread": 2}
    data = xgboost.QuantileDMatrix(rows, label)
    start = time.monotonic()
    model = xgboost.train(parameters, data, num_boost_round=args.rounds)
    print(f"{args.rounds} rounds in {time.monotonic() - start:.1f} s")
    print(model.eval(data))


if __name__ == "__main__":
    main()
