# SPDX-License-Identifier: MIT
"""Runs the README's study and the placements that it is compared with; writes results/study.json.

    python tests/bench/study.py [--folder DIR] [--out results/study.json]

Then `make docs` writes the README's figures and its picture from that file.
`tests/tuner/test_docs.py` fails when the file is of another engine, search, command or other rivals
than today's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.documents import catalog
from tuner.model import content_hash
from tuner.study import log
from tuner.study.request import StudyRequest

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD, POLICY, BUDGET = "gups", "freqtier", 100
TITLE = "GUPS with a hot set that moves, DRAM and Optane at 1:8, FreqTier"
REFERENCES = ("all-fast", "static-hot", "first-touch", "all-slow")


PROPOSALS = 25
"""Whose configurations are noted: the initial ones of a budget of 100, and some of the model's."""
GOLDEN = ROOT / "tests/tuner/data/golden.json"


def tune(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", *words]
    print("$ tune " + " ".join(words), file=sys.stderr, flush=True)
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)


def words() -> list[str]:
    return ["run", "--workload", WORKLOAD, "--policy", POLICY, "--budget", str(BUDGET)]


def depends_on(request: StudyRequest) -> dict[str, Any]:
    """What the figures depend on, as `tests/tuner/test_docs.py` finds it today: documents, rivals,
    and what the engine makes of the workload's smoke input, by golden values."""
    rivals = sorted(policy.name for policy in request.alternatives)
    golden = json.loads(GOLDEN.read_text())["smoke"][WORKLOAD]
    policies = [POLICY, *rivals, *(policy.name for policy in request.references)]
    return {
        "fingerprints": request.fingerprints.model_dump(),
        "rivals": rivals,
        "streams": golden["streams"],
        "results": {name: golden["results"][name] for name in sorted(policies)},
    }


def proposals(request: StudyRequest, lag: int, costs: Sequence[float | None]) -> list[str]:
    """Hashes of the first configurations that the search proposes, given what they cost."""
    from tuner.optimize.optimizer import Optimizer, initial_trials

    optimizer = Optimizer(
        request.tuned,
        seed=request.scenario.seed,
        initial=initial_trials(request.budget),
        lag=lag,
        fixed=request.policy.others(request.tuned),
        starts=catalog.starts(request.space, request.policy),
    )
    found: list[str] = []
    for number in range(PROPOSALS):
        if number >= lag:
            optimizer.tell(number - lag, costs[number - lag])
        found.append(content_hash(optimizer.ask().knobs))
    return found


def measure(folder: Path) -> dict[str, Any]:
    """In an empty folder, or one that has the study already: then it is only told again."""
    there = list(folder.glob("results/*/study.json"))
    printed = tune(*words(), *(["--resume"] if there else []), cwd=folder).stdout
    (directory,) = (path.parent for path in folder.glob("results/*/study.json"))
    study = log.load(directory)
    request, lag = study.header.request, study.header.lag
    trials = [trial.objective for trial in study.done]
    knobs = [content_hash(study.trials[number].knobs) for number in range(PROPOSALS)]
    costs = [trial.result.cost if trial.result else None for trial in study.done]
    if knobs != proposals(request, lag, costs):
        sys.exit(f"{directory}: this tuner's search proposes other configurations")
    references = {}
    for policy in REFERENCES:
        done = tune("sim", "--workload", WORKLOAD, "--policy", policy, "--json", cwd=ROOT)
        sim = json.loads(done.stdout)
        references[policy] = sim["objective"]
    assert study.default is not None and study.best is not None
    return {
        "title": TITLE,
        "command": "tune " + " ".join(words()),
        "output": re.sub(r"(?<= )/\S*?/results/", "./results/", printed).splitlines(),
        "engine_build": request.engine_build,
        "policy": POLICY,
        "objective": request.scenario.objective,
        "default": study.default.objective,
        "best": study.best.objective,
        "references": references,
        "trials": trials,
        "depends_on": depends_on(request),
        "search": {"lag": lag, "proposals": knobs},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results/study.json")
    parser.add_argument("--folder", type=Path, help="keep the study there, or take it from there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = measure(args.folder or Path(work))
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
