# SPDX-License-Identifier: MIT
"""Debian's packages, downloaded by name into the cache folder and unpacked there.

Nothing is installed, and nothing needs root: apt reads the lists of Debian's archive into a folder
of its own, so that what the machine may install stays as it is. What is unpacked stays, in a folder
for each set of packages and their versions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.documents.reading import read_text
from tuner.errors import UserError, brief
from tuner.files import write_atomically
from tuner.run import streams

ARCHIVE = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
STABLE = "bookworm"
NEWER = "trixie"
SUITES = {
    STABLE: ((ARCHIVE, STABLE), (SECURITY, f"{STABLE}-security"), (ARCHIVE, f"{STABLE}-backports")),
    NEWER: ((ARCHIVE, NEWER), (ARCHIVE, f"{NEWER}-backports")),
}
SECONDS = 600.0
"""After which a command does not go on."""
FRESH_SECONDS = 86_400.0
"""Lists of packages are read again when they are older."""
INSTALLED = "/var/lib/dpkg/status"
PROGRAMS = ("apt-get", "apt-cache", "dpkg")


class Unusable(UserError):
    """The packages cannot be had here; this says nothing about the project."""


def cache() -> Path:
    return streams.folder() / "guest"


def run(*command: str, cwd: Path | None = None) -> str:
    """Unusable with the program's last words if it does not succeed."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
        )
    except OSError as error:
        raise Unusable(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{command[0]}: no answer within {SECONDS:g} s") from error
    if done.returncode != 0:
        raise Unusable(f"{' '.join(command[:2])}: {brief(done.stderr.strip()[-1000:], 1000)}")
    return done.stdout


@dataclass(frozen=True)
class Suite:
    """One release of Debian, with its backports."""

    name: str
    note: Callable[[str], None] = field(default=lambda _: None)
    """Told what takes long."""

    @property
    def _folder(self) -> Path:
        return cache() / f"apt-{self.name}"

    def _options(self, installed: str = "/dev/null") -> list[str]:
        places = {
            "Etc": self._folder,
            "Etc::sourcelist": "sources.list",
            "Etc::sourceparts": "none",
            "Etc::preferencesparts": "none",
            "State": self._folder,
            "State::status": installed,
            "Cache": self._folder,
        }
        words = [word for key, place in places.items() for word in ("-o", f"Dir::{key}={place}")]
        # Downloads go into the user's own folder, which no other user may read.
        return [*words, "-o", "APT::Sandbox::User="]

    def refresh(self) -> None:
        """Reads the archive's lists unless they are of today. Unusable where that is impossible:
        on another system than Debian, or without a network."""
        lacking = [name for name in PROGRAMS if shutil.which(name) is None]
        if lacking or not KEYRING.is_file():
            what = ", ".join(lacking) or f"{KEYRING} (package debian-archive-keyring)"
            raise Unusable(f"packages of Debian are needed, and {what} is not here")
        stamp = self._folder / "fresh"
        with suppress(OSError):
            if abs(stamp.stat().st_mtime - time.time()) < FRESH_SECONDS:
                return
        for folder in ("lists/partial", "archives/partial"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        lines = [
            f"deb [signed-by={KEYRING}] {address} {suite} main\n"
            for address, suite in SUITES[self.name]
        ]
        write_atomically(self._folder / "sources.list", "".join(lines))
        self.note(f"reading the lists of Debian {self.name}")
        run("apt-get", *self._options(), "update")
        write_atomically(stamp, "")

    def newest(self, pattern: str) -> str:
        """The package with the highest version in its name. Unusable if no name fits."""
        self.refresh()
        found = run("apt-cache", *self._options(), "search", "--names-only", pattern)
        names = [line.split(" ", 1)[0] for line in found.splitlines()]
        if not names:
            raise Unusable(f"Debian {self.name} has no package {pattern} any more")
        return max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def version(self, package: str) -> str:
        """Of what would be downloaded."""
        self.refresh()
        said = run("apt-cache", *self._options(), "policy", package)
        found = re.search(r"^\s*Candidate: (\S+)$", said, re.MULTILINE)
        if found is None or found[1] == "(none)":
            raise Unusable(f"Debian {self.name} has no package {package}")
        return found[1]

    def depends(self, package: str) -> str:
        """As `apt-cache depends` tells."""
        self.refresh()
        return run("apt-cache", *self._options(), "depends", package)

    def missing(
        self, package: str, *, release: str = "", installed: str = "/dev/null"
    ) -> list[str]:
        """The package, and what it needs that is not installed: name=version."""
        self.refresh()
        wanted = ["-t", release] if release else []
        said = run(
            "apt-get",
            *self._options(installed),
            "install",
            "--simulate",
            "--no-install-recommends",
            *wanted,
            package,
        )
        found = re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+) ", said, re.MULTILINE)
        return [f"{name}={version}" for name, version in found]

    def unpacked(self, name: str, packages: Sequence[str]) -> Path:
        """A folder with what is in these packages."""
        wanted = "\n".join(sorted(packages))
        place = cache() / name
        told = place / "packages"
        if told.is_file() and read_text(told) == wanted:
            return place
        cache().mkdir(parents=True, exist_ok=True)
        self.refresh()
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            made = Path(work) / "root"
            made.mkdir()
            for number, package in enumerate(packages, 1):
                self.note(f"downloading {package.split('=')[0]} ({number} of {len(packages)})")
                run("apt-get", *self._options(), "download", package, cwd=Path(work))
            for archive in sorted(Path(work).glob("*.deb")):
                run("dpkg", "-x", str(archive), str(made))
            write_atomically(made / "packages", wanted)
            shutil.rmtree(place, ignore_errors=True)
            made.rename(place)
        return place
