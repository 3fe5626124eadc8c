# SPDX-License-Identifier: MIT
"""`tierd`, the policies on real memory (docs/live.md): where it is, and what it finds here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

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


def _said(tierd: Path, *words: str) -> str:
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
    if done.returncode not in (0, 1):  # 1: something is missing
        why = brief(done.stderr.strip(), 300) or f"it ended with {done.returncode}"
        raise UserError(f"{tierd} {words[0]}: {why}")
    return done.stdout
