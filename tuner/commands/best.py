# SPDX-License-Identifier: MIT
"""`tune best`: searches the studies of a folder for the best known configuration."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.apply import targets
from tuner.errors import UserError
from tuner.objective import OBJECTIVES
from tuner.run import settings
from tuner.run.settings import Setting
from tuner.scenario import Scenario, flag
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.terminal import print_json, say


def run(args: Namespace) -> int:
    """Prints best.yaml of the best study; errors in other studies are notes.

    Configurations of comparable scenarios compete. Fields that the command line does not set have
    the defaults of `tune run`.
    """
    policy = engine.policy(args.policy or Scenario.policy)
    setting = settings.resolve(args.workload, policy=policy, **settings.given(args))
    out = Path(args.out)
    known = of_workload(find(out), setting, args.policy)
    best = best_of(known, setting)
    if best is None:
        raise UserError(_nothing(out, setting, args.policy, known))
    path, winner = best
    for difference in best_file.changes_since(winner):
        say(f"tune: note: {difference}")
    if others := _other_options(setting.scenario.comparable(), known):
        say(f"tune: note: not compared with configurations that differ in {', '.join(others)}")
    if args.json:
        print_json({"path": str(path.absolute()), **winner.model_dump()})
        return 0
    say(f"# {path.absolute()}")
    if use := targets.command(path.absolute()):
        say(f"# for a server: {use}")
    sys.stdout.write(best_file.render(winner))
    return 0


def find(out: Path) -> list[tuple[Path, BestConfiguration]]:
    """All readable best configurations of a folder of studies, in the order of their names."""
    if not out.is_dir():
        raise UserError(
            f"no folder of studies at {out.absolute()}; `tune run` makes one, --out names another"
        )
    found = []
    for path in sorted(out.glob(f"*/{best_file.FILE}")):
        try:
            found.append((path, best_file.read(path)))
        except UserError as error:
            say(f"tune: note: skipped: {error}")
    return found


def of_workload(
    found: Sequence[tuple[Path, BestConfiguration]], setting: Setting, policy: str | None
) -> list[tuple[Path, BestConfiguration]]:
    """Those for the setting's workload, of one policy or of any."""
    name = setting.scenario.comparable()["workload"]
    return [
        (path, best)
        for path, best in found
        if best.scenario.comparable()["workload"] == name
        and policy in (None, best.scenario.policy)
        and _same_workload(best, setting)
    ]


def best_of(
    known: Sequence[tuple[Path, BestConfiguration]], setting: Setting
) -> tuple[Path, BestConfiguration] | None:
    """The best of those that were found under comparable conditions."""
    wanted = setting.scenario.comparable()
    matching = [(path, best) for path, best in known if best.scenario.comparable() == wanted]
    objective = OBJECTIVES[setting.scenario.objective]
    return min(matching, key=lambda item: objective.cost(item[1].objective.value), default=None)


def _same_workload(best: BestConfiguration, setting: Setting) -> bool:
    """Files in different folders may have the same name: then the content counts."""
    return (
        best.scenario.workload == setting.scenario.workload
        or best.provenance.fingerprints.workload == setting.workload.fingerprint()
    )


def _other_options(
    wanted: dict[str, Any], known: Sequence[tuple[Path, BestConfiguration]]
) -> list[str]:
    """The options in which some of the configurations differ from what is wanted."""
    return [
        flag(name)
        for name, value in wanted.items()
        if any(found.scenario.comparable()[name] != value for _, found in known)
    ]


def _nothing(
    out: Path,
    setting: Setting,
    policy: str | None,
    known: Sequence[tuple[Path, BestConfiguration]],
) -> str:
    workload = setting.workload.name
    compared = [name for name in setting.scenario.comparable() if name != "workload"]
    wanted = setting.scenario.show(*compared, *(["policy"] if policy else []))
    message = f"no configuration is known for {workload} ({wanted}) in {out}"
    others = {found.scenario.show(*compared, "policy") for _, found in known}
    if not others:
        return f"{message}; `tune run --workload {workload}` finds one"
    listed = "".join(f"\n  {other}" for other in sorted(others))
    return f"{message}; known under other conditions are:{listed}"
