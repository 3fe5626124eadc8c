"""The one error that is meant for the person at the terminal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can correct: the message says what, where and how.

    The command line prints it as ``tune: error: MESSAGE`` and exits with `code`. Anything else that
    escapes is a defect and shows its traceback.
    """

    code = 2


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for a likely typo, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """``no policy 'hybridteir'; did you mean 'hybridtier'? known: ...``"""
    names = sorted(known)
    listed = ", ".join(names) if names else "none"
    return UserError(f"no {what} '{name}'{nearest(name, names)} (known: {listed})")
