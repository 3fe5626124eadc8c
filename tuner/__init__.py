# SPDX-License-Identifier: MIT
"""Tuning of memory tiering, per workload. From Python: `tuner.tune` and `tuner.load`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.api import Study, load, tune

__all__ = ["Study", "load", "tune"]


def __getattr__(name: str) -> object:
    """What the API is made of takes a while to load."""
    if name in __all__:
        from tuner import api

        return getattr(api, name)
    raise AttributeError(f"module 'tuner' has no attribute '{name}'")
