"""The hashes that name an engine build and what makes a kernel's streams."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CMAKE = shutil.which("cmake", path=Path(sys.executable).parent) or shutil.which("cmake")

pytestmark = pytest.mark.skipif(CMAKE is None, reason="no cmake")

SOURCES = {
    "engine/trace/recorder.hpp": '#include "core/types.hpp"\n',
    "engine/trace/recorder.cpp": '#include "trace/recorder.hpp"\n',
    "engine/trace/characteristics.cpp": '#include "trace/recorder.hpp"\n',
    "engine/core/types.hpp": "#include <vector>\n",
    "engine/policy/some.cpp": '#include "core/types.hpp"\n',
    "workloads/kernels/registry.cpp": '#include "trace/recorder.hpp"\n',
    "workloads/kernels/shared.hpp": "",
    "workloads/kernels/shared.cpp": '#include "kernels/shared.hpp"\n#include "kernels/deep.hpp"\n',
    "workloads/kernels/deep.hpp": "",
    "workloads/kernels/one.cpp": '#include "kernels/shared.hpp"\n',
    "workloads/kernels/two.cpp": '  #include "trace/recorder.hpp" // with a "remark"\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def hashes(tree: Path) -> dict[str, str]:
    out = tree / "build_id.hpp"
    subprocess.run(
        [str(CMAKE), f"-DOUT={out}", f"-DROOT={tree}", "-P", str(ROOT / "cmake/build_id.cmake")],
        check=True,
    )
    text = out.read_text()
    found = dict(re.findall(r'\{"(\w+)", "([0-9a-f]{16})"\}', text))
    (build,) = re.findall(r'TT_BUILD_ID "([0-9a-f]{16})"', text)
    return {"build": build, "one": found["one"], "two": found["two"]}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("engine/core/types.hpp", {"build", "one", "two"}),
        ("engine/trace/recorder.cpp", {"build", "one", "two"}),
        ("workloads/kernels/registry.cpp", {"build", "one", "two"}),
        ("workloads/kernels/shared.cpp", {"build", "one"}),
        ("workloads/kernels/deep.hpp", {"build", "one"}),
        ("workloads/kernels/two.cpp", {"build", "two"}),
        ("engine/policy/some.cpp", {"build"}),
        ("engine/trace/characteristics.cpp", {"build"}),
    ],
)
def test_a_change_renames_what_is_made_from_it(tree: Path, source: str, changed: set[str]) -> None:
    before = hashes(tree)
    with (tree / source).open("a") as file:
        file.write("// changed\n")
    after = hashes(tree)
    assert {name for name in before if after[name] != before[name]} == changed
