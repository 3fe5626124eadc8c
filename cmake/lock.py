# SPDX-License-Identifier: MIT
"""Writes constraints.txt: one set of versions for every supported Python, resolved by uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# The versions that the tests run with, for Python 3.11 to 3.13. Made by `make lock`; do not edit.
"""


def main() -> int:
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"]
    # What pip builds a source package with is constrained, too.
    command += ["--group", "dev", "--extra", "server", "--upgrade", "pyproject.toml", "-"]
    done = subprocess.run(
        command, cwd=ROOT, input="setuptools\n", stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        return done.returncode
    (ROOT / "constraints.txt").write_text(HEADER + done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
