# SPDX-License-Identifier: MIT
"""`tune exec`: becomes `tierd`, with the best configuration of a study."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tuner import tierd
from tuner.errors import UserError
from tuner.foreign import users_environment
from tuner.study import best as best_file
from tuner.study import log
from tuner.study.verdict import Advice
from tuner.terminal import say

USAGE = "tune exec STUDY -- command args..."
PROCESSES = ("--pid", "--cgroup")
"""Options of `tierd attach` that say what runs."""


def run(args: Namespace) -> NoReturn:
    """Never returns: the exit status is that of `tierd`, and with it the program's."""
    study, options, program = _split(args.words)
    path = _best(study, Path(args.out))
    found = best_file.read(path)
    executable = tierd.program()
    if found.verdict and found.verdict.advice is not Advice.use_best and "--quiet" not in options:
        say(f"tune: note: the study advises otherwise: {found.verdict.headline}")
    words = ["run" if program else "attach", "--config", str(path.absolute()), *options]
    _become(executable, [*words, "--", *program] if program else words)


def _split(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The study, what is for `tierd`, and the program with its arguments. UserError if nothing says
    what to run, and nothing what runs."""
    at = words.index("--") if "--" in words else len(words)
    own, program = list(words[:at]), list(words[at + 1 :])
    if not own:
        raise UserError(f"which study? {USAGE}")
    study, *options = own
    names = {word.partition("=")[0] for word in options}
    if "--out" in names:
        raise UserError("--out belongs before STUDY; what follows it is for tierd")
    if not program and not names & set(PROCESSES):
        raise UserError(f"which program? {USAGE}, or --pid PID in place of it")
    return study, options, program


def _best(study: str, out: Path) -> Path:
    """The best.yaml of a study: a path of it, the path of its folder, or its name."""
    given = Path(study)
    if given.is_file():
        return given
    folder = log.folder_of(study, out)
    path = folder / best_file.FILE
    if path.is_file():
        return path
    if log.exists(folder):
        raise UserError(f"{folder}: no trial of this study has succeeded yet")
    raise UserError(log.missing(folder))


def _become(executable: Path, words: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores them, a program must not.
    ours = {name: signal.getsignal(name) for name in (signal.SIGPIPE, signal.SIGXFSZ)}
    for name in ours:
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execve(executable, [tierd.NAME, *words], users_environment())
    except OSError as error:
        raise UserError(f"{executable}: {error.strerror}") from error
    finally:  # this is no other program yet
        for name, handler in ours.items():
            signal.signal(name, handler)
