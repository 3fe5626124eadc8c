# SPDX-License-Identifier: MIT
"""SIGTERM stops a command as Ctrl-C does: what has finished is kept, and it says how to go on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raises Terminated within the block, unless whoever started the process ignores SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(signum: int, frame: object) -> NoReturn:
    raise Terminated
