# SPDX-License-Identifier: MIT
"""Makes the image that docker/Dockerfile starts from, where no registry can be reached.

    .ci/base_image.py NAME

The image is a minimal Debian of this machine's release, from debootstrap. Package sources,
certificates and proxies are those that this machine has for apt and pip. Needs root, debootstrap
and a Docker Engine. An image of that name that exists is kept.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pristine

TRUSTED = "/etc/ssl/trusted.crt"


def main(name: str) -> int:
    found = subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False)
    if found.returncode == 0:
        return 0
    variables = {
        # Not where the package ca-certificates, which others bring along, would write over them.
        key: TRUSTED if value == str(pristine.CERTIFICATES) else value
        for key, value in pristine.environment().items()
        if key not in ("HOME", "USER", "PATH")
    }
    changes = [f"--change=ENV {key}={value}" for key, value in variables.items()]
    with tempfile.TemporaryDirectory(prefix="tiertune-base-") as work:
        root = Path(work) / "root"
        pristine.bootstrap(root, None)
        if pristine.CERTIFICATES.exists():
            shutil.copyfile(pristine.CERTIFICATES, f"{root}{TRUSTED}")
        pristine.say(f"importing it as {name}")
        load = shlex.join(["docker", "import", *changes, "-", name])
        tar = shlex.join(["tar", "-C", str(root), "-c", "."])
        pristine.run("bash", "-o", "pipefail", "-c", f"{tar} | {load}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except pristine.Unusable as error:
        print(f"base image: error: {error}", file=sys.stderr)
        sys.exit(2)
