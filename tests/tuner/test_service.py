# SPDX-License-Identifier: MIT
"""tierd@.service: systemd understands all of it, and it keeps few of root's rights."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

UNIT = ROOT / "engine/tierd/tierd@.service"
ANALYZE = shutil.which("systemd-analyze")
EXPOSURE = 25
"""Tenths, of 100: systemd-logind of Debian 12 has 30."""


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """Of a service, with a program that this machine has."""
    (tmp_path / "some.service").write_text("[Service]\nExecStart=/bin/true\n")
    path = tmp_path / "tierd@some.service"
    path.write_text(UNIT.read_text().replace("/usr/local/bin/tierd", sys.executable))
    return path


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *words], capture_output=True, text=True, check=False)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong(instance: Path) -> None:
    done = analyze("verify", "--man=no", str(instance))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    instance.write_text(instance.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "'ProtectHomes'" in analyze("verify", "--man=no", str(instance)).stderr


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_few_rights_are_left(instance: Path) -> None:
    if "--offline" not in analyze("--help").stdout:
        pytest.skip("systemd before 250")
    limit = f"--threshold={EXPOSURE}"
    done = analyze("security", "--offline=true", limit, str(instance))
    assert done.returncode == 0, done.stdout
    instance.write_text(instance.read_text().replace("CapabilityBoundingSet=", "#"))
    assert analyze("security", "--offline=true", limit, str(instance)).returncode != 0


def test_what_it_changes_is_undone_and_nothing_else_can_be_written() -> None:
    found = settings()
    (stop,), (start,) = found["ExecStopPost"], found["ExecStart"]
    assert stop == f"{start.split()[0]} restore"
    writable = {path for line in found["ReadWritePaths"] for path in line.split()}
    assert all(path.startswith(("-/sys/", "-/proc/sys/")) for path in writable)
    (rights,) = found["CapabilityBoundingSet"]
    assert "CAP_SYS_ADMIN" not in rights.split()
