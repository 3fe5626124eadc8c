# SPDX-License-Identifier: MIT
"""The current folder may be somebody else's: no process of ours takes code from it.

Python looks for modules in the current folder where it is started with `-c` or `-m`, as worker
processes are, and where an entry of PYTHONPATH is empty or relative. Ray's workers, MLflow's server
and matplotlib look there in any case: `tuner.run.local_ray`, `tuner.commands.ui` and
`tuner.report.drawing` see to them.

And there may be no home folder, as for `docker run --user 12345`. MLflow cannot be imported without
one: /dev/null stands for it, below which nothing is and nothing can be made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SAFE = "PYTHONSAFEPATH"
PATH = "PYTHONPATH"
HOME = "HOME"

_before: dict[str, str | None] = {}


@contextmanager
def kept_out() -> Iterator[None]:
    """Within the block, this process and those that it starts do not look for modules in the
    current folder, and know of a home folder."""
    _before.update({name: os.environ.get(name) for name in (SAFE, PATH, HOME)})
    path = sys.path.copy()
    os.environ[SAFE] = "1"
    if home() is None:
        os.environ[HOME] = os.devnull
    if relative := relative_entries():
        absolute = [each for each in _entries() if each not in relative]
        os.environ[PATH] = os.pathsep.join(absolute)  # empty is as not set
        with suppress(FileNotFoundError):  # the current folder is gone, and all that was in it
            here = {os.path.abspath(each) for each in relative} - set(absolute)  # noqa: PTH100
            sys.path[:] = [each for each in path if each not in here]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, value in _before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _before.clear()


def home() -> Path | None:
    """The user's home folder; None if there is neither HOME nor an entry in the password file."""
    try:
        found = Path.home()
    except RuntimeError:
        return None
    return None if found == Path(os.devnull) else found


def relative_entries() -> list[str]:
    """Those of PYTHONPATH that stand for the current folder, or for one below it."""
    return [each for each in _entries() if not os.path.isabs(each)]  # noqa: PTH117


def _entries() -> list[str]:
    value = _before[PATH] if _before else os.environ.get(PATH)
    return value.split(os.pathsep) if value else []


def changed() -> dict[str, str | None]:
    """What of the environment tune has changed, as it was given it."""
    return dict(_before)


def users_environment() -> dict[str, str]:
    """For a program of the user's own: as tune was given it."""
    own = {name: value for name, value in _before.items() if value is not None}
    return {name: value for name, value in os.environ.items() if name not in _before} | own
