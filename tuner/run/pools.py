# SPDX-License-Identifier: MIT
"""The choice of a pool."""

from __future__ import annotations

from tuner.run.gateway import ClusterPool
from tuner.run.pool import Pool, Runner
from tuner.run.process_pool import ProcessPool
from tuner.run.ray_pool import RayPool


def open_pool(runner: Runner, *, workers: int, ray_address: str | None = None) -> Pool:
    """A pool of `workers` workers. UserError if a cluster does not answer."""
    if ray_address is not None:
        return ClusterPool(runner, workers=workers, address=ray_address)
    return ProcessPool(runner) if workers == 1 else RayPool(runner, workers=workers)
