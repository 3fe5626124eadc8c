"""`tune best`: searches the studies of a folder for the best known configuration."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from tuner import best as best_file
from tuner import catalog, engine, settings
from tuner.errors import UserError
from tuner.models import OBJECTIVES, BestConfiguration, Setting
from tuner.terminal import print_json, say

COMPARABLE = ("workload", "input", "machine", "ratio", "objective", "threads", "scale")
"""Two configurations compete when they agree in all of these."""


def best(args: Namespace) -> int:
    """Prints best.yaml of the best study; what is wrong with other studies is said on the side."""
    # A setting has a policy; which one makes no difference to what is compared here.
    policy = engine.policy(args.policy) if args.policy else next(iter(engine.policies().values()))
    asked = {name: getattr(args, name) for name in COMPARABLE}
    setting = settings.resolve(asked.pop("workload"), policy=policy, **asked)
    wanted = {
        "workload": setting.workload.name,
        "input": setting.input,
        "machine": setting.machine.name,
        "ratio": setting.ratio,
        "objective": setting.objective,
        "threads": setting.threads,
        "scale": setting.scale,
    }
    out = Path(args.out)
    known = find(out)
    matching = [
        (path, found)
        for path, found in known
        if _setting(found) == wanted
        and args.policy in (None, found.policy)
        and _same_workload(found, setting)
    ]
    if not matching:
        raise UserError(_nothing(out, wanted, args.policy, known))
    objective = OBJECTIVES[setting.objective]
    path, winner = min(matching, key=lambda item: objective.cost(item[1].objective.value))
    for difference in differences(winner):
        say(f"tune: note: {difference}")
    if args.json:
        print_json({"path": str(path.absolute()), **winner.model_dump()})
        return 0
    say(f"# {path.absolute()}")
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


def differences(best: BestConfiguration) -> list[str]:
    """What has changed since the configuration was found, so that it may now do otherwise."""
    changed = []
    then, now = best.provenance.engine_build, engine.build_id()
    if then != now:
        changed.append(f"found with engine build {then}, this one is {now}")
    for kind, name, load in (
        ("workload", best.workload_argument, catalog.workload),
        ("machine", best.machine_argument, catalog.machine),
    ):
        then = getattr(best.provenance.fingerprints, kind)
        try:
            now = load(name).spec.fingerprint()
        except UserError as error:
            changed.append(f"its {kind} cannot be loaded: {error}")
            continue
        if then != now:
            changed.append(f"the {kind} {name} has changed since ({then} then, {now} now)")
    return changed


def _same_workload(best: BestConfiguration, setting: Setting) -> bool:
    """Files in different folders may have the same name: then the content counts."""
    return (
        best.workload_file == setting.workload_file
        or best.provenance.fingerprints.workload == setting.workload.fingerprint()
    )


def _setting(best: BestConfiguration) -> dict[str, Any]:
    own = best.model_dump(include=set(COMPARABLE))
    return own | {"objective": best.objective.name}


def _told(setting: dict[str, Any], policy: str | None) -> str:
    """1:8 on testbed, ..."""
    texts = [str(setting[name]) for name in ("input", "machine", "ratio", "objective")]
    texts += [f"{setting['threads']:g} threads", f"scale {setting['scale']:g}"]
    return ", ".join([*texts, *([policy] if policy else [])])


def _nothing(
    out: Path,
    wanted: dict[str, Any],
    policy: str | None,
    known: list[tuple[Path, BestConfiguration]],
) -> str:
    workload = wanted["workload"]
    message = f"no configuration is known for {workload} ({_told(wanted, policy)}) in {out}"
    others = {
        _told(_setting(found), found.policy) for _, found in known if found.workload == workload
    }
    if not others:
        return f"{message}; `tune run --workload {workload}` finds one"
    listed = "".join(f"\n  {other}" for other in sorted(others))
    return f"{message}; known are, to be chosen with the options of these names:{listed}"
