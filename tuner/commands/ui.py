"""`tune ui`: the MLflow UI on the store that the studies were tracked in."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.report.tracking import default_store
from tuner.terminal import say


def run(args: Namespace) -> int:
    """Becomes the MLflow server; does not return."""
    out = Path(args.out)
    if args.mlflow_uri is None and not (out / "mlflow.db").is_file():
        raise UserError(
            f"no studies are tracked in {out.absolute()} (no mlflow.db); "
            "run `tune run` first, or name their folder with --out"
        )
    uri = args.mlflow_uri or default_store(out)
    say(f"MLflow UI of {uri} on http://{args.host}:{args.port} (Ctrl-C ends it)")
    sys.stderr.flush()
    os.execv(
        sys.executable,
        [
            sys.executable,
            *("-m", "mlflow", "ui", "--backend-store-uri", uri),
            *("--host", args.host, "--port", str(args.port)),
        ],
    )
