# SPDX-License-Identifier: MIT
"""The hashes that name parts of the engine and what makes a kernel's streams."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = ROOT / "cmake/build_id.py"
BUILD_ID = runpy.run_path(str(SCRIPT))
code = BUILD_ID["code"]

SOURCES = {
    "engine/core/types.hpp": "#include <vector>\n",
    "engine/core/knob.cpp": '#include "core/types.hpp"\n',
    "engine/policy/some.cpp": '#include "core/types.hpp"\n',
    "engine/sim/machine.cpp": '#include "core/types.hpp"\n',
    "engine/trace/recorder.hpp": '#include "core/types.hpp"\n',
    "engine/trace/recorder.cpp": '#include "trace/recorder.hpp"\n',
    "engine/trace/characteristics.cpp": '#include "trace/recorder.hpp"\n',
    "engine/live/daemon.cpp": '#include "core/types.hpp"\n',
    "engine/tierd/main.cpp": "",
    "engine/emulate/plugin/plugin.cpp": '#include "core/types.hpp"\n',
    "engine/record/spool.hpp": '#include "trace/recorder.hpp"\n',
    "engine/record/plugin/plugin.cpp": '#include "record/spool.hpp"\n',
    "engine/bindings/simulation.cpp": '#include "convert.hpp"\n#include "record/spool.hpp"\n',
    "engine/bindings/convert.hpp": '#include "core/types.hpp"\n',
    "engine/bindings/convert.cpp": '#include "convert.hpp"\n',
    "engine/bindings/perf.cpp": '#include "record/spool.hpp"\n',
    "workloads/kernels/registry.cpp": '#include "trace/recorder.hpp"\n',
    "workloads/kernels/shared.hpp": "",
    "workloads/kernels/shared.cpp": '#include "kernels/shared.hpp"\n#include "kernels/deep.hpp"\n',
    "workloads/kernels/deep.hpp": "",
    "workloads/kernels/one.cpp": '#include "kernels/shared.hpp"\n',
    "workloads/kernels/two.cpp": '  #  include "trace/recorder.hpp" // with a "remark"\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


PARTS = ("policies", "simulator", "live", "emulated", "whole", "one", "two")


def ids(tree: Path) -> dict[str, str]:
    found = dict(re.findall(r'\{"(\w+)", "([0-9a-f]{12,16})"\}', BUILD_ID["header"](tree)))
    return {name: found[name] for name in PARTS}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("engine/core/types.hpp", {"policies", "whole", "one", "two"}),
        ("engine/core/knob.cpp", {"policies", "whole"}),
        ("engine/policy/some.cpp", {"policies", "whole"}),
        ("engine/sim/machine.cpp", {"simulator", "whole"}),
        ("engine/trace/recorder.cpp", {"simulator", "whole", "one", "two"}),
        ("engine/trace/characteristics.cpp", {"simulator", "whole"}),
        ("engine/bindings/simulation.cpp", {"simulator", "whole"}),
        ("engine/bindings/convert.cpp", {"simulator", "whole"}),
        ("engine/bindings/perf.cpp", {"whole"}),
        ("engine/live/daemon.cpp", {"live", "whole"}),
        ("engine/tierd/main.cpp", {"live", "whole"}),
        ("engine/emulate/plugin/plugin.cpp", {"emulated", "whole"}),
        ("engine/record/spool.hpp", {"whole"}),
        ("engine/record/plugin/plugin.cpp", {"whole"}),
        ("workloads/kernels/registry.cpp", {"whole", "one", "two"}),
        ("workloads/kernels/shared.cpp", {"whole", "one"}),
        ("workloads/kernels/deep.hpp", {"whole", "one"}),
        ("workloads/kernels/two.cpp", {"whole", "two"}),
    ],
)
def test_code_renames_what_is_made_from_it_and_a_comment_nothing(
    tree: Path, source: str, changed: set[str]
) -> None:
    before = ids(tree)
    text = (tree / source).read_text()
    (tree / source).write_text(f"// Changed.\n\n{text}  /* too */\n")
    assert ids(tree) == before
    (tree / source).write_text(f"{text}int changed;\n")
    after = ids(tree)
    assert {name for name in before if after[name] != before[name]} == changed


def test_a_new_or_renamed_file_counts(tree: Path) -> None:
    before = ids(tree)
    (tree / "engine/policy/some.cpp").rename(tree / "engine/policy/other.cpp")
    renamed = ids(tree)
    (tree / "engine/sim/empty.hpp").write_text("")
    added = ids(tree)
    assert len({before["policies"], renamed["policies"]}) == 2
    assert len({before["simulator"], added["simulator"]}) == 2
    assert before["one"] == added["one"]


def test_the_header_is_written_only_when_it_says_something_else(tree: Path) -> None:
    out = tree / "build/generated/build_id.hpp"
    command = [sys.executable, str(SCRIPT), str(tree), str(out)]
    subprocess.run(command, check=True)
    assert out.read_text() == BUILD_ID["header"](tree)
    os.utime(out, (1, 1))
    (tree / "engine/core/types.hpp").write_text("// A remark.\n#include <vector>\n")
    subprocess.run(command, check=True)
    assert out.stat().st_mtime == 1
    (tree / "engine/core/types.hpp").write_text("#include <array>\n")
    subprocess.run(command, check=True)
    assert out.stat().st_mtime > 1


def test_policies_and_simulator_are_the_libraries_of_that_name() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    libraries = {
        name: tuple(folders.split())
        for name, folders in re.findall(r"^tt_library\((\w+)([^)]+)\)", text, re.MULTILINE)
    }
    for library, rooms in (("tt_policies", "POLICIES"), ("tt_sim", "SIMULATOR")):
        assert libraries[library] == tuple(f"engine/{room}" for room in BUILD_ID[rooms])
    assert (ROOT / BUILD_ID["SIMULATION"]).is_file()


SAME = [
    ("int a;", "int  a ;  // b"),
    ("int a;", "int/**/a;"),
    ("f(a, b);", "f(\n    a,\n    b);  // of both"),
    ("a = b + c;", "a\t= b /* or\nless */\n  + c;"),
    ("x = {1, 2};", "x = {\n  1,  // one\n  2};"),
    ("#define A(x) \\\n  x\n", "#define A(x) x  // of a\n"),
    ("#include <a>\nint b;", "\n  #include <a> // for b\n\nint b;\n"),
    ('s = "a" "b";', 's = "a"\n    "b";'),
    ("long\\\nest b;", "longest b;"),
    ("a; // b \\\n c\nd;", "a; d;"),
    ("int n = 1'000;", "int n = 1'000; // '"),
    ("a / b; 'c';", "a / b; /* don't */ 'c';"),
]
DIFFERENT = [
    ("int a;", "inta;"),
    ("a + +b", "a ++b"),
    ("a - -b", "a--b"),
    ("x = 1'000;", "x = 1'00'1;"),
    ("x = 1'000; // 2", "x = 1'000; y = '2';"),
    ('s = "// a";', 's = "// b";'),
    ('s = "/* a */";', 's = "/* b */";'),
    ('s = "a  b";', 's = "a b";'),
    ('s = "\\"// a";', 's = "\\"// b";'),
    ("c = '\"'; // a\";", "c = '\"'; b // a\";"),
    ("c = '\\''; d // a", "c = '\\''; // d"),
    ('s = R"(// a)";', 's = R"(// b)";'),
    ('s = R"(a  b)";', 's = R"(a b)";'),
    ('s = R"(a\nb)";', 's = R"(a b)";'),
    ('s = R"(a\\\nb)";', 's = R"(ab)";'),
    ('s = u8R"x()" // a)x";', 's = u8R"x()" // b)x";'),
    ('s = someR"(a)" "//)";', 's = someR"(a)" "//]";'),
    ("#define A b\nc", "#define A b c"),
    ("#define A (x)\n", "#define A(x)\n"),
    ("#define A\\\n  b\n", "#define A\n  b\n"),
    ("// a\nb;", "// a b;"),
    ("/* a */ b;", "/* a b; */"),
    ("a = b;\n", "a = 'b';\n"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_comments_and_layout_do_not_count(one: str, other: str) -> None:
    assert code(one).strip() == code(other).strip()


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_a_compiler_sees_counts(one: str, other: str) -> None:
    assert code(one) != code(other)


def test_all_sources_are_the_same_without_their_comments() -> None:
    """What is left of a file has no more to lose, and its literals are all there."""
    literal = re.compile(r'"(?:[^"\\\n]|\\.)*"')
    for folder in ("engine", "workloads"):
        for path in (ROOT / folder).rglob("*.[ch]pp"):
            left = code(path.read_text())
            assert code(left) == left, path
            bare = re.sub(r"(?m)^\s*//.*$", "", path.read_text())
            if "//" not in bare and "/*" not in bare and 'R"' not in bare:
                assert literal.findall(left) == literal.findall(bare), path
