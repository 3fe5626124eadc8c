# SPDX-License-Identifier: MIT
"""`tune ui`: the MLflow UI on the store that the studies were tracked in, with links to runs."""

from __future__ import annotations

import os
import socket
import sys
from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.report.store import ARTIFACTS, absolute, default_store, experiments, repair_command
from tuner.report.tracked import VIEW_TAG, page
from tuner.study import log
from tuner.terminal import say
from tuner.text import shell


def run(args: Namespace) -> int:
    """Becomes the MLflow server; does not return."""
    out = Path(args.out)
    uri = args.mlflow_uri or default_store(out)
    if args.mlflow_uri is None and not (out / "mlflow.db").is_file():
        there_are = any(out.glob(f"*/{log.HEADER}"))
        hint = (
            f"`{repair_command(uri, out)}` makes it from their logs"
            if there_are
            else ("run `tune run` first, or name their folder with --out")
        )
        raise UserError(f"no studies are tracked in {out.absolute()} (no mlflow.db); {hint}")
    _refuse_taken(args.host, args.port)
    found = experiments(uri, out)
    server = f"http://{args.host}:{args.port}"
    say(f"the studies of {uri} in MLflow, once it has started (Ctrl-C ends it):")
    for name, identity, tags in found:
        say(f"  {name}: {page(server, identity, studies=VIEW_TAG in tags)}")
    if not found:
        say(f"  none yet: {server}")
    watch = shell(["tune", "report", "STUDY", "--watch", "--out", str(out.absolute())])
    say(f"a study that is running, as one page: {watch}")
    sys.stderr.flush()
    words = [
        *(sys.executable, "-P", "-m", "mlflow", "ui", "--backend-store-uri", absolute(uri)),
        *("--artifacts-destination", str(out.absolute() / ARTIFACTS)),
        *("--host", args.host, "--port", str(args.port)),
    ]
    os.chdir("/")  # the server takes modules and settings from the current folder, whoever made it
    os.execv(sys.executable, words)


def _refuse_taken(host: str, port: int) -> None:
    """MLflow's server would say so among much else, and exit with 0."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(
            f"cannot listen on --host {host} --port {port}: {error.strerror}; "
            "choose another --port, or another --host"
        ) from error
