"""`tune ui`: the MLflow UI on the store that the studies were tracked in, with links to runs."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.report.tracking import default_store, experiments
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
    server = f"http://{args.host}:{args.port}"
    say(f"MLflow UI of {uri} on {server} (Ctrl-C ends it)")
    # MLflow opens an experiment on a page of traces, which studies do not have.
    for name, identity in experiments(uri):
        say(f"  {name}: {server}/#/experiments/{identity}/runs?workflowType=machine_learning")
    sys.stderr.flush()
    os.execv(
        sys.executable,
        [
            sys.executable,
            *("-m", "mlflow", "ui", "--backend-store-uri", uri),
            *("--host", args.host, "--port", str(args.port)),
        ],
    )
