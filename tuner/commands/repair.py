# SPDX-License-Identifier: MIT
"""`tune repair`: adds to the MLflow store what it lacks of a folder's studies, from their logs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import text
from tuner.errors import UserError, as_object
from tuner.experiment.recall import recall
from tuner.report import page
from tuner.report.store import default_store
from tuner.report.tracking import restore
from tuner.study import best, log, verified
from tuner.study.log import StudyLog
from tuner.terminal import print_json, say

FILES = (page.PAGE, page.BARS, best.FILE, best.MINIMAL, *verified.FILES)


def run(args: Namespace) -> int:
    """Exit code 0 when the store has all studies completely."""
    out = Path(args.out)
    found, errors = mend(out, args.mlflow_uri or default_store(out))
    code = 1 if errors else 0
    if args.json:
        print_json({"studies": found} | (as_object("\n".join(errors), code) if errors else {}))
    return code


def mend(out: Path, uri: str) -> tuple[list[dict[str, object]], list[str]]:
    """Adds to the store what it lacks; returns what became of the folder's studies, and an error
    for each that could not be added. UserError if there is none."""
    folders = sorted(path.parent for path in out.glob(f"*/{log.HEADER}"))
    if not folders:
        raise UserError(f"no studies in {out.absolute()}; name their folder with --out")
    found: list[dict[str, object]] = []
    errors: list[str] = []
    for number, folder in enumerate(folders):
        try:
            found.append(add(folder, uri, verify=number == 0))
        except UserError as error:
            errors.append(str(error))
            say(f"tune: error: {error}")
    for path in sorted(out.glob("compare-*/compare.json")):
        say(f"{path.parent.name}: repeat its `tune compare` command to add it")
    return found, errors


def add(folder: Path, uri: str, *, verify: bool = False) -> dict[str, object]:
    """Adds what the store lacks of one study. Nobody writes to the study meanwhile: whoever runs it
    tracks it, too."""
    with StudyLog(folder) as study:
        conclusion = recall(study)
        try:
            added = restore(
                study.data,
                conclusion,
                [folder / name for name in FILES],
                uri=uri,
                notify=say,
                verify=verify,
            )
        except UserError:
            raise
        except Exception as error:  # a store of any kind can fail in any way
            first, *_ = str(error).strip().splitlines() or ["no message"]
            raise UserError(
                f"MLflow at {uri} does not take {folder.name} ({type(error).__name__}: {first})"
            ) from error
        trials = len(study.data.done)
    state = "complete" if conclusion else "was stopped before its end"
    say(f"MLflow: {folder.name}: {text.plural(trials, 'trial')}, {added} of them added; {state}")
    return {"study": folder.name, "trials": trials, "added": added, "complete": bool(conclusion)}
