# SPDX-License-Identifier: MIT
"""What the shell's limits (`ulimit`) must leave for a study; told before anything starts."""

from __future__ import annotations

import resource

from tuner.errors import UserError
from tuner.text import plural

FILES = 32
"""One worker does with 24."""
FILES_OF_RAY = 64
"""Two workers need between 48 and 64."""


def check(workers: int) -> None:
    """UserError naming the limit, what was found and what is needed."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = FILES if workers == 1 else FILES_OF_RAY
    if soft != resource.RLIM_INFINITY and soft < least:
        raise UserError(
            f"`ulimit -n` of this shell allows {soft} open files; {plural(workers, 'worker')} "
            f"must have {least} at least"
        )
