# SPDX-License-Identifier: MIT
"""Questions to other machines. Whoever is asked may not answer, or answer in part, and the
libraries that ask wait for minutes and may end their process. A child process therefore asks, tells
what it finds as it finds it, and is killed when its time is over.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from tuner.errors import UserError, brief
from tuner.run.process_pool import die_with_parent

KNOCK_SECONDS = 5.0

Tell = Callable[[str, Any], None]


class Silent(UserError):
    """Nobody answers in time."""


def asked(ask: Callable[..., None], *arguments: str, seconds: float) -> Iterator[tuple[str, Any]]:
    """What `ask(*arguments, tell)` tells in a child process. UserError if it raises an exception;
    Silent if it is not done in time."""
    until = time.monotonic() + seconds
    # spawn: the parent may have threads, which fork does not survive.
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(ask, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while pipe.poll(max(0.0, until - time.monotonic())):
            try:
                kind, content = json.loads(pipe.recv_bytes())
            except EOFError:
                raise UserError("the process that asked has ended without an answer") from None
            if kind == "done":
                return
            if kind == "failed":
                raise UserError(content)
            yield kind, content
        raise Silent(f"not done within {seconds:g} s")
    finally:
        process.kill()
        process.join()
        pipe.close()


def _child(ask: Callable[..., None], arguments: tuple[str, ...], pipe: Connection) -> None:
    os.setsid()  # Ctrl-C at the terminal is for the parent
    die_with_parent()
    # When Ray ends this process, it says at length why.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)

    def tell(kind: str, content: Any) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            pipe.send_bytes(json.dumps([kind, content]).encode())

    try:
        ask(*arguments, tell)
    except Exception as error:  # of libraries that raise anything
        tell("failed", one_line(error))
    else:
        tell("done", None)


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))]
    said = brief(lines[0], 300) if lines else ""
    if isinstance(error, UserError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def knock(host: str, port: int) -> None:
    """UserError if nobody listens there."""
    try:
        socket.create_connection((host.strip("[]"), port), KNOCK_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"nobody listens at {host}:{port} ({why})") from error


def host_and_port(address: str) -> tuple[str, int] | None:
    """Of HOST:PORT; None for addresses of another form, which Ray may know."""
    host, colon, port = address.rpartition(":")
    return (host, int(port)) if colon and host and port.isdecimal() and "/" not in host else None
