# SPDX-License-Identifier: MIT
"""Keeps the figures in workloads/characteristics.json after a change of the kernels' sources that
left their streams as they were.

They are kept under the keys of their streams, which a changed source renames. Figures that were
true of the streams of REVISION get the keys of today's; others stay stale. That no stream has
changed is what tests/tuner/test_golden.py says, so its hashes must be those of REVISION. A change
of streams needs `tune workloads --measure`.

Usage: python docs/rekey.py REVISION (after `make setup`)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner import engine
from tuner.documents import catalog
from tuner.report import characteristics
from tuner.run.trial import StreamRequest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = "tests/tuner/data/golden.json"


def changed_streams(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Workloads of before whose golden streams are others now."""
    return sorted(
        {
            name
            for kind in ("smoke", "default")
            for name, golden in before[kind].items()
            if now[kind].get(name, {}).get("streams") != golden["streams"]
        }
    )


def ids_of(root: Path) -> dict[str, str]:
    """The ids of a tree's kernel files."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "build_id.hpp"
        subprocess.run([sys.executable, root / "cmake/build_id.py", root, out], check=True)
        _, _, streams = out.read_text().partition("stream_ids")
        return dict(re.findall(r'\{"(\w+)", "(\w+)"\}', streams))


def ids_at(revision: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", revision, "engine", "workloads/kernels", "cmake"],
            cwd=ROOT, check=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        if not (Path(folder) / "cmake/build_id.py").exists():
            sys.exit(f"{revision} has no cmake/build_id.py: it named streams in another way")
        return ids_of(Path(folder))


def rekey(file: Path, makers: Mapping[str, str]) -> tuple[int, int]:
    """`makers`: what an id was before, by what it is now. How many figures of the file have new
    keys, and how many are of other streams."""
    content = characteristics._read(file)
    kept = stale = 0
    for workload, inputs in content.items():
        entry = catalog.workload(str(file.parent / f"{workload}.yaml"))
        requests = characteristics.requests(entry)
        for input, figures in inputs.items():
            request = requests.get(input)
            if isinstance(request, StreamRequest) and figures.stream != request.key:
                before = request.model_copy(update={"maker": makers.get(request.maker, "")})
                same = figures.stream == before.key
                kept, stale = kept + same, stale + (not same)
                if same:
                    inputs[input] = figures.model_copy(update={"stream": request.key})
    characteristics._write(file, content)
    return kept, stale


def main() -> int:
    (revision,) = sys.argv[1:]
    shown = subprocess.run(
        ["git", "show", f"{revision}:{GOLDEN}"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    if changed := changed_streams(
        json.loads(shown.stdout), json.loads((ROOT / GOLDEN).read_text())
    ):
        sys.exit(
            f"{GOLDEN}: streams of {', '.join(changed)} are not those of {revision}; measure them"
        )
    before, now = ids_at(revision), ids_of(ROOT)
    built = {engine.stream_id(kernel) for kernel in engine.kernels()}
    if not built <= set(now.values()):
        sys.exit("the engine is not built of these sources; run `make setup` first")
    makers = {id: before[name] for name, id in now.items() if name in before}
    kept, stale = rekey(ROOT / "workloads" / characteristics.FILE, makers)
    print(f"{kept} have new keys, {stale} are of other streams")
    return 0


if __name__ == "__main__":
    sys.exit(main())
