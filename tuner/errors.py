# SPDX-License-Identifier: MIT
"""The one error that is meant for the person at the terminal."""

from __future__ import annotations

import difflib
import errno
import resource
from collections.abc import Iterable

from tuner.text import size

LONGEST_NAME = 200
"""Of what is looked up by name, and of what becomes the name of a file."""


class UserError(Exception):
    """Something that the user can correct: the message says what, where and how.

    The command line prints it as ``tune: error: MESSAGE`` and exits with `code`. Anything else that
    escapes is a defect and shows its traceback.
    """

    code = 2


class WrongParameter(UserError):
    """A parameter of a workload's kernel that only the kernel can judge, by a scale or by other
    parameters. The command line, which knows the workload's file, adds its place."""

    def __init__(self, message: str, key: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.key = key
        """In the document."""


def as_object(message: str, exit: int) -> dict[str, dict[str, str | int]]:
    """What a command with --json prints of an error, and the exit code that it ends with."""
    return {"error": {"message": message, "exit": exit}}


def brief(text: str, most: int = 60) -> str:
    """What was found, fit for a message: one line of at most so many characters, all printable."""
    return one_line(text if len(text) <= most else f"{text[: most - 3]}...")


def one_line(text: object) -> str:
    """As text in one line, with escapes for what terminals do not show, or obey. Bytes of a path
    that are no UTF-8 are shown as bytes."""
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python stands for such a byte
        return f"\\x{ord(character) - 0xDC00:02x}"
    return ascii(character)[1:-1]


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for a likely typo, else nothing."""
    if len(name) > LONGEST_NAME:
        return ""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """``no policy 'hybridteir'; did you mean 'hybridtier'? known: ...``"""
    names = sorted(known)
    listed = ", ".join(map(one_line, names)) if names else "none"
    return UserError(f"no {what} '{brief(name)}'{nearest(name, names)} (known: {listed})")


LIMITS = {
    errno.EMFILE: ("-n", "no more"),
    errno.EAGAIN: ("-u", "no more"),
    errno.ENOMEM: ("-v", "no more"),
    errno.EFBIG: ("-f", "no larger file"),
}
"""Options of the shell's `ulimit`, and what they allow, by what the system says beyond them."""
NO_THREAD = "can't start new thread"
"""All that Python says of it."""


def limited(error: BaseException) -> str | None:
    """What the error says, without a file's name, and the limit that is the reason; None if it is
    of something else."""
    if isinstance(error, MemoryError):
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            return "out of memory"
        return f"out of memory: `ulimit -v` of this shell allows {size(soft)}"
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return f"{error}: `ulimit -u` of this shell allows no more"
    if isinstance(error, OSError) and (found := LIMITS.get(error.errno or 0)):
        option, allows = found
        return f"{error.strerror}: `ulimit {option}` of this shell allows {allows}"
    return None
