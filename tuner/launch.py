"""`tune run`: resolves the arguments and hands over to the study."""

from __future__ import annotations

from argparse import Namespace

from tuner import settings
from tuner.study import run_study
from tuner.terminal import print_json


def run(args: Namespace) -> int:
    """Exit code 0 when the study is complete and at least one trial succeeded."""
    request = settings.study_request(args)
    summary = run_study(request)
    if request.json_output:
        print_json(summary.model_dump())
    return 0 if summary.best_objective is not None else 1
