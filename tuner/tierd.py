# SPDX-License-Identifier: MIT
"""`tierd`, the policies on real memory (docs/live.md): where it is, and what it finds here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tuner.declarations import PolicyDecl
from tuner.errors import UserError, brief
from tuner.model import Model

NAME = "tierd"
SECONDS = 30.0
"""After which it does not answer. It takes milliseconds."""


class Told(Model):
    """A line of `tierd probe`. `works` is None for a remark."""

    subject: str
    works: bool | None
    found: str
    cure: str | None


_TOLD = TypeAdapter(list[Told])


def find() -> Path | None:
    """The source tree's when the package runs from it, else the one that was installed with this
    package, else another on the PATH, but none that the current folder decides."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    source = Path(__file__).resolve().parent.parent
    if (source / "pyproject.toml").is_file():
        folders.insert(0, str(source / "build/engine"))
    folders += os.environ.get("PATH", os.defpath).split(os.pathsep)
    absolute = [folder for folder in folders if Path(folder).is_absolute()]
    found = shutil.which(NAME, path=os.pathsep.join(absolute))
    return Path(found) if found else None


def program() -> Path:
    """UserError where there is none."""
    if found := find():
        return found
    raise UserError(
        "no tierd beside this Python and on the PATH: `make setup` builds it in a checkout, and "
        "`pip install` of the wheel brings it"
    )


def version(tierd: Path) -> str:
    """What it says of itself. UserError if it does not run."""
    return _said(tierd, "version").strip()


def probe(tierd: Path) -> list[Told]:
    """What this machine can do, and what is missing. UserError if it does not run."""
    said = _said(tierd, "probe", "--json")
    try:
        return _TOLD.validate_json(said)
    except ValidationError as error:
        raise UserError(f"{tierd} probe: found '{brief(said)}'; must be its findings") from error


def not_settable(plan: Mapping[str, Any], policy: PolicyDecl) -> dict[str, str]:
    """Knobs for which a kernel has no setting, and why, by what `tierd apply --json` says."""
    reasons = {each["knob"]: each["reason"] for each in plan["not_settable"]}
    for knob in policy.knobs:  # parents come first
        if knob.condition and knob.condition.parent in reasons:
            reasons.setdefault(knob.name, reasons[knob.condition.parent])
    return reasons


def planned(tierd: Path, *words: str) -> dict[str, Any]:
    """What `tierd apply` would write. UserError, in its words, if it refuses."""
    said = _said(tierd, "apply", *words, "--dry-run", "--json", well=(0,))
    return dict(json.loads(said))


def restore(tierd: Path) -> None:
    """Undoes what engines that were killed have changed. UserError if that fails."""
    _said(tierd, "restore", well=(0,))


def _said(tierd: Path, *words: str, well: Sequence[int] = (0, 1)) -> str:
    try:
        done = subprocess.run(
            [tierd, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise UserError(f"{tierd}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{tierd} {words[0]}: no answer within {SECONDS:g} s") from error
    if done.returncode not in well:  # of a probe, 1: something is missing
        last = done.stderr.strip().rpartition("tierd: error: ")[2]
        why = brief(last, 300) or f"it ended with {done.returncode}"
        raise UserError(f"{tierd} {words[0]}: {why}")
    return done.stdout


def unit() -> Path | None:
    """Its unit for systemd: the source tree's when the package runs from it, else what the wheel
    has installed."""
    name = "tierd@.service"
    folders = [Path(sysconfig.get_path("data")), Path(sysconfig.get_path("data", "posix_user"))]
    places = [folder / "share/tierd" / name for folder in folders]
    source = Path(__file__).resolve().parent.parent
    if (source / "pyproject.toml").is_file():
        places.insert(0, source / "engine/tierd" / name)
    return next((place for place in places if place.is_file()), None)


def not_tierds(policy: PolicyDecl) -> dict[str, str]:
    """Knobs that tierd cannot honour, and why."""
    own = [knob.name for knob in policy.knobs if knob.name.startswith("aol.")]
    found = dict.fromkeys(own, "tierd does not count outstanding reads")
    if when := policy.profiled_when:
        found[when.parent] = "a running process does not have names of objects"
    return found
