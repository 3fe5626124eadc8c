# SPDX-License-Identifier: MIT
"""`tune exec`: becomes `tierd`, with the best configuration of a study."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tuner import tierd
from tuner.documents.transfer import Differs, costs
from tuner.errors import UserError
from tuner.foreign import users_environment
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.study.verdict import Advice
from tuner.terminal import say

USAGE = "tune exec STUDY -- command args..."
LINUX = "linux-image-"
"""Before the version, in the name of a kernel's package."""
PROCESSES = ("--pid", "--cgroup")
"""Options of `tierd attach` that say what runs."""


def run(args: Namespace) -> NoReturn:
    """Never returns: the exit status is that of `tierd`, and with it the program's."""
    study, options, program = _split(args.words)
    path = best_file.path_of(study, Path(args.out))
    found = best_file.read(path)
    executable = tierd.program()
    if "--quiet" not in options:
        for line in _remarks(found):
            say(f"tune: {line}")
    words = ["run" if program else "attach", "--config", str(path.absolute()), *options]
    _become(executable, [*words, "--", *program] if program else words)


def _remarks(found: BestConfiguration) -> Iterator[str]:
    """What the study advises, if something else, and what it was tuned for. Whether the program and
    its memory are like that does not show before it runs. `tierd` tells of policies of another
    build by itself."""
    if found.verdict and found.verdict.advice is not Advice.use_best:
        yield f"note: the study advises otherwise: {found.verdict.headline}"
    scenario, then = found.scenario, found.provenance
    what = scenario.show("workload", "input", "machine", "ratio")
    where = "measured by a command"
    if then.fingerprints.command is None:
        where = f"on the {scenario.substrate} machine"
    yield (
        f"note: tuned for {what}, {where}; it may gain less, or lose, for another program, machine "
        f"or share of fast memory. {costs(_different(found))}"
    )
    if then.emulated:
        kernel, here = then.emulated.partition(",")[0].removeprefix(LINUX), os.uname().release
        if kernel != here:
            yield f"warning: measured on Linux {kernel}; this is Linux {here}"


def _different(found: BestConfiguration) -> list[Differs]:
    """What may be otherwise here, and a simulation is."""
    kinds = [Differs.workload, Differs.machine, Differs.ratio]
    return [*kinds, Differs.kernel] if found.scenario.simulated else kinds


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
