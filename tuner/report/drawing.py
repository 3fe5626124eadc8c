# SPDX-License-Identifier: MIT
"""matplotlib. Everything that draws gets it here (tests/tuner/test_rules.py).

When it is imported, matplotlib takes its settings from a `matplotlibrc` of the current folder, if
there is one, whatever its environment says. That may be somebody else's, and a pipe without end.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from tuner import foreign

_exists = os.path.exists


def _elsewhere(path: Any) -> bool:
    return path != "matplotlibrc" and _exists(path)


if foreign.home() is None:  # it says at length that its cache of fonts lasts as long as we do
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
os.path.exists = _elsewhere  # of other threads it hides nothing that they ask for
try:
    from matplotlib import colormaps, rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator
finally:
    os.path.exists = _exists

__all__ = [
    "Figure",
    "FigureCanvasAgg",
    "FixedLocator",
    "Line2D",
    "LogNorm",
    "MaxNLocator",
    "NullFormatter",
    "NullLocator",
    "Patch",
    "Rectangle",
    "colormaps",
    "rc_context",
]
