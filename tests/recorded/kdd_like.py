# SPDX-License-Identifier: MIT
"""Writes sparse rows in the LIBSVM format: few features per row, of power-law popularity.

    python tests/recorded/kdd_like.py > rows.txt

Data for `liblinear-train`: a miniature of KDD Cup 2012 (149.6 M rows, 54.7 M features, 11 of them
per row), which MEMTIS (SOSP'23), §6.1 trains on.
"""

import argparse
import sys

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--features", type=int, default=55_000)
    parser.add_argument("--per-row", type=int, default=11)
    parser.add_argument("--exponent", type=float, default=1.0, help="of Zipf's law")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, args.features + 1) ** args.exponent
    order = rng.permutation(args.features) + 1
    weight = rng.normal(size=args.features + 1)
    drawn = rng.choice(args.features, (args.rows, args.per_row), p=popularity / popularity.sum())
    for row in order[drawn]:
        features = np.unique(row)
        label = 1 if rng.random() < 1 / (1 + np.exp(-weight[features].sum())) else -1
        sys.stdout.write(f"{label} " + " ".join(f"{f}:1" for f in features) + "\n")


if __name__ == "__main__":
    main()
