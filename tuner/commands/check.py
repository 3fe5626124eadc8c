"""`tune check`: whether a study's folder is as it was written, and its files agree."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.study import best, log
from tuner.study.log import StudyData
from tuner.terminal import print_json


def run(args: Namespace) -> int:
    """Prints what is wrong; exit code 1 if anything is. A study may have stopped anywhere."""
    directory = Path(args.study)
    data = None
    try:
        data = log.load(directory)
        problems = [*data.damage, *_series(data), *_best(data)]
    except UserError as error:
        problems = [str(error)]
    counts = {"asked": 0, "finished": 0, "checks": 0}
    if data is not None:
        counts = {
            "asked": len(data.trials),
            "finished": len(data.done),
            "checks": len(data.checks),
        }
    if args.json:
        print_json({"study": str(directory.absolute()), **counts, "problems": problems})
    elif problems:
        print("\n".join(problems))
    else:
        found = "{finished} of {asked} trials finished, {checks} checks".format(**counts)
        print(f"{directory}: nothing wrong; {found}")
    return 1 if problems else 0


def _series(data: StudyData) -> list[str]:
    """Those that the log knows of and that are not as they were written."""
    return [
        f"{log.series_path(data.directory, trial.number)}: missing or damaged; the report leaves "
        "these time series out"
        for trial in data.done
        if trial.series is not None and not data.series(trial.number)
    ]


def _best(data: StudyData) -> list[str]:
    """What best.yaml says otherwise than the log."""
    path, trial = data.directory / best.FILE, data.best
    if not path.exists():
        return [] if trial is None else [f"{path}: missing; {AGAIN}"]
    try:
        found = best.read(path)
    except UserError as error:
        return [f"{error}; {AGAIN}"]
    if trial is None:
        return [f"{path}: no trial of the log has succeeded"]
    request = data.header.request
    wanted = request.trial(trial.number, trial.knobs)
    pairs = {
        "scenario": (found.scenario, wanted.scenario),
        "knobs": (found.knobs, wanted.knobs),
        "objective.value": (found.objective.value, trial.objective),
        "provenance.study": (found.provenance.study, request.study),
        "provenance.trial": (found.provenance.trial, trial.number),
        "provenance.fingerprints": (found.provenance.fingerprints, data.header.fingerprints),
    }
    differ = [name for name, (said, logged) in pairs.items() if said != logged]
    return [f"{path}: {', '.join(differ)}: not as in {log.EVENTS}; {AGAIN}"] if differ else []


AGAIN = "`tune run ... --resume` writes it again"
