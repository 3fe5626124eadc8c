"""`tune best`: searches the studies of a folder for the best known configuration."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from tuner import best as best_file
from tuner import catalog, engine, settings
from tuner.errors import UserError
from tuner.models import OBJECTIVES, BestConfiguration
from tuner.terminal import print_json, say


def best(args: Namespace) -> int:
    """Prints best.yaml of the best study; what is wrong with other studies is said on the side."""
    workload = catalog.workload(args.workload).spec
    wanted = {
        "workload": workload.name,
        "input": args.input or workload.default_input,
        "machine": args.machine or workload.machine,
        "ratio": settings.checked_ratio(args.ratio),
        "objective": settings.checked_objective(args.objective, workload),
    }
    out = Path(args.out)
    known = find(out)
    matching = [
        (path, found)
        for path, found in known
        if _setting(found) == wanted and args.policy in (None, found.policy)
    ]
    if not matching:
        raise UserError(_nothing(out, wanted, args.policy, known))
    objective = OBJECTIVES[wanted["objective"]]
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
        ("workload", best.workload, catalog.workload),
        ("machine", best.machine, catalog.machine),
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


def _setting(best: BestConfiguration) -> dict[str, str]:
    return {
        "workload": best.workload,
        "input": best.input,
        "machine": best.machine,
        "ratio": best.ratio,
        "objective": best.objective.name,
    }


def _nothing(
    out: Path,
    wanted: dict[str, str],
    policy: str | None,
    known: list[tuple[Path, BestConfiguration]],
) -> str:
    asked = ", ".join([*wanted.values(), *([policy] if policy else [])])
    message = f"no configuration is known for {asked} in {out.absolute()}"
    others = sorted(
        {
            ", ".join([*list(_setting(found).values())[1:], found.policy])
            for _, found in known
            if found.workload == wanted["workload"]
        }
    )
    if not others:
        return f"{message}; `tune run --workload {wanted['workload']}` finds one"
    listed = "".join(f"\n  {other}" for other in others)
    return (
        f"{message}; known for this workload (input, machine, ratio, objective, policy; choose "
        f"with the options of these names):{listed}"
    )
