# SPDX-License-Identifier: MIT
"""Files have their old content or the new, whatever happens, and leave nothing behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tuner import files
from tuner.errors import UserError


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    steps: list[str] = []

    def sync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        steps.append(f"{name}, a.json is {target.read_text()}")

    monkeypatch.setattr(os, "fsync", sync)
    files.write_atomically(target, "new")
    partial = f"a.json.{os.getpid()}.partial"
    assert steps == [f"{partial}, a.json is old", f"{tmp_path.name}, a.json is new"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        files.write_atomically(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127])
def test_the_longest_names_can_be_written(tmp_path: Path, name: str) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    try:
        plain.replace(tmp_path / name).unlink()
    except OSError as error:
        pytest.skip(f"no file of this file system may have such a name: {error.strerror}")
    files.write_atomically(tmp_path / name, "x")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["x"]


def test_a_file_that_cannot_be_written_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"cannot write {tmp_path}/folder: Is a directory"):
        files.write_files({tmp_path / "folder": "x"})
    with pytest.raises(UserError, match="cannot write /dev/null/a/b: Not a directory"):
        files.write_files({Path("/dev/null/a/b"): "x"})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_only_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = [f"a.json.{os.getpid()}.partial", "a.json.partial", f"a.{gone.pid}", "a.x.partial"]
    for name in (*kept, f"a.json.{gone.pid}.partial"):
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    files.remove_leftovers(tmp_path / "not there")
