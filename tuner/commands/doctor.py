# SPDX-License-Identifier: MIT
"""`tune doctor`: what would stop a study on this machine."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from tuner.report.doctor import examine
from tuner.terminal import print_json, table
from tuner.text import plural


def run(args: Namespace) -> int:
    """Exit code 1 if there is a problem."""
    findings = list(
        examine(
            Path(args.out),
            ray_address=args.ray_address,
            mlflow_uri=args.mlflow_uri,
            workload=args.workload,
        )
    )
    problems = [finding for finding in findings if finding.state == "problem"]
    if args.json:
        print_json({"findings": [asdict(f) for f in findings], "problems": len(problems)})
        return 1 if problems else 0
    table(("state", "what", "found"), [(f.state, f.name, f.found) for f in findings])
    if problems:
        print(f"\n{plural(len(problems), 'problem')}: a study would not run here")
    else:
        print("\nno problem: a study can run here")
    return 1 if problems else 0
