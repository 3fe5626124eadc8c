# SPDX-License-Identifier: MIT
"""Rules for tests, commits and formatting, as `conftest.py` and CONTRIBUTING state them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HEAVY, ROOT, Refusal

# In C, C++, Python and shell commands: a test waits for an event, never for time to pass.
SLEEP = re.compile(r"\b(?:u|nano|clock_nano)?sle{2}p(?:_for|_until)?[\"']*\s*(?:\(|,|[\d.])")


def test_no_test_sleeps() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("*"))
        if path.suffix in (".py", ".cpp", ".hpp", ".c", ".h", ".sh")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if SLEEP.search(line)
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        *("time.{}(1)", "{}(.5)", "std::this_thread::{}_for(1s)", "u{} (100)", "nano{}(&span, 0)"),
        *('run(["{}", "1"])', "sh -c '{} 1'", "true & {} .1"),
    ],
)
def test_a_sleep_is_found(line: str) -> None:
    assert SLEEP.search(line.format("sle" + "ep"))


def test_home_and_temporary_files_are_the_tests_own(sandbox: Path) -> None:
    assert Path.home() == Path("~").expanduser() == sandbox / "home"
    assert Path(tempfile.gettempdir()) == sandbox
    assert ROOT not in sandbox.parents


@pytest.mark.parametrize("name", HEAVY)
def test_the_quick_half_does_without(name: str) -> None:
    refusal = Refusal()
    with pytest.raises(ModuleNotFoundError, match=f"not marked slow imports {name}"):
        refusal.find_spec(name)
    assert refusal.refused == [name]
    done = subprocess.run(
        [sys.executable, "-c", f"try: import {name}\nexcept ImportError: pass"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == os.EX_SOFTWARE
    assert f"starts a program that imports {name}" in done.stderr


# --- Other people's folders -----------------------------------------------------------------------

PACKAGE = sorted((ROOT / "tuner").rglob("*.py"))


def called(call: ast.Call) -> str:
    """As it is written: `os.open`, `path.open`, `open`."""
    return ast.unparse(call.func)


WRITE = {"write_text", "write_bytes", "copyfile", "copy2", "copytree", "mknod", "touch"}


def writes(call: ast.Call) -> bool:
    """Whether it opens a file for writing, or makes one, by itself."""
    name, last = called(call), called(call).rpartition(".")[2]
    if name == "os.open":
        return "O_RDONLY" not in ast.unparse(call.args[1])
    if last == "open":
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        modes = [each.value for each in given if isinstance(each, ast.Constant)]
        return any(isinstance(mode, str) and bool(set("wax+") & set(mode)) for mode in modes)
    return last in WRITE or name == "shutil.copy"


def calls(path: Path) -> Iterator[ast.Call]:
    tree = ast.parse(path.read_text())
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_only_files_opens_for_writing() -> None:
    """Elsewhere a link in somebody else's folder would lead it to any file of the user."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in PACKAGE
        if str(path.relative_to(ROOT)) not in ("tuner/files.py", "tuner/documents/reading.py")
        for call in calls(path)
        if writes(call) and "os.devnull" not in ast.unparse(call)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("path.open('w')", True),
        ("path.open('ab', buffering=0)", True),
        ("open(path, mode='x')", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("path.write_text('')", True),
        ("shutil.copy(a, b)", True),
        ("path.open('rb')", False),
        ("path.open()", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("plain(path, 'ab')", False),
    ],
)
def test_what_opens_for_writing_is_found(line: str, found: bool) -> None:
    (call,) = (node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call))
    assert writes(call) == found


def test_every_python_is_started_without_the_current_folder() -> None:
    """With -P or -I; `multiprocessing` takes PYTHONSAFEPATH."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in PACKAGE
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.List | ast.Tuple)
        and any(ast.unparse(each) in ("sys.executable", "'python'") for each in call.elts[:1])
        and ast.unparse(call.elts[1]) not in ("'-P'", "'-I'")
    ]
    assert found == []


def test_no_program_is_started_but_our_own() -> None:
    """Of a folder's own configuration, git and others take programs to run."""
    starts = re.compile(r"subprocess\.(run|Popen|call|check_\w+)|os\.(system|popen|spawn\w+)")
    found = {
        f"{path.relative_to(ROOT)}: {ast.unparse(call.args[0])[:16]}"
        for path in PACKAGE
        for call in calls(path)
        if starts.fullmatch(called(call))
    }
    assert found == {
        "tuner/emulate/debian.py: command",
        "tuner/emulate/guest.py: words",
        "tuner/run/cluster.py: [sys.executable,",
        "tuner/run/container.py: command",
        "tuner/run/host.py: [sys.executable,",
        "tuner/run/host.py: list(words)",
        "tuner/run/local_ray.py: [sys.executable,",
        "tuner/run/metric.py: [sys.executable,",
        "tuner/tierd.py: [tierd, *words]",
    }


def test_only_one_module_imports_matplotlib() -> None:
    """It keeps the current folder's `matplotlibrc` out."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PACKAGE
        if path.name != "drawing.py"
        for node in at_run_time(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "matplotlib" in ast.unparse(node).split()[1]
    ]
    assert found == []


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are not for the type checker alone."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from at_run_time(child)


# --- Commit messages ------------------------------------------------------------------------------


def commit_message(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "message"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, ROOT / ".ci/commit_msg.py", file],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Charge stores for their write-back",
        "Process huge pages whole\n\nThe body may be long, and may end with a full stop.",
        "Embed the pictures\n# what git adds: is ignored\n",
        "Merge branch 'words'",
        "fixup! engine: whatever it was called",
        "A" + "x" * 71,
    ],
)
def test_a_good_commit_message_passes(tmp_path: Path, text: str) -> None:
    done = commit_message(text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("A" + "x" * 72, "73 characters; at most 72"),
        ("engine: charge stores", "label 'engine:'"),
        ("Added a test", "'Added' does not look imperative"),
        ("Adding a test", "'Adding' does not look imperative"),
        ("Adds a test", "'Adds' does not look imperative"),
        ("add a test", "capital letter"),
        ("Add a test.", "full stop"),
        ("(wip)", "must begin with a verb"),
        ("Add a test\nand say why", "empty line between subject and body"),
    ],
)
def test_a_bad_commit_message_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    done = commit_message(text, tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr


# --- Licence --------------------------------------------------------------------------------------

LICENCE = "SPDX-License-Identifier: MIT"
NO_COMMENTS = {".json", ".csv", ".png", ".svg", ".md", ".ini", ".typed", ".perf"}
"""Of files that cannot have one, or whose text is read by people: README.md names their licence."""
GIVEN = ("tests/fuzz/corpus/", "tests/tuner/data/", "results/", "constraints.txt", "LICENSE")
"""What a program wrote, and inputs that must stay as they are."""


def test_every_file_names_its_licence_in_its_first_lines() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    names = [
        name
        for name in listed.stdout.splitlines()
        if Path(name).suffix not in NO_COMMENTS and not name.startswith(GIVEN)
    ]
    assert len(names) > 500
    missing = [
        name
        for name in names
        if (ROOT / name).is_file() and LICENCE not in (ROOT / name).read_text()[:120]
    ]
    assert missing == []


# --- Results --------------------------------------------------------------------------------------


def test_no_figures_are_kept_twice() -> None:
    """As JSON, which is read, and as CSV, which `tune compare` and `tune map` also write."""
    listed = subprocess.run(
        ["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    assert "results/compare-tuned/compare.json" in listed.stdout.splitlines()
    assert [name for name in listed.stdout.splitlines() if name.endswith(".csv")] == []


FUNCTIONS = (
    *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "pow", "cbrt", "hypot"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
    *("erf", "erfc", "lgamma", "tgamma"),
)
ELEMENTARY = re.compile(rf"\bstd::(?:{'|'.join(FUNCTIONS)})f?\(")


def test_elementary_functions_are_our_own() -> None:
    """Those of a C library differ from one to another, and from processor to processor: what a
    kernel or a policy does would, too (engine/core/math.hpp)."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("engine", "workloads")
        for path in sorted((ROOT / folder).rglob("*.[ch]pp"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ELEMENTARY.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("line", ["x = std::pow(a, b);", "return std::logf(x);"])
def test_an_elementary_function_of_the_library_is_found(line: str) -> None:
    assert ELEMENTARY.search(line)
    assert not ELEMENTARY.search(line.replace("std::", "math::"))


# --- The formatter --------------------------------------------------------------------------------


def test_no_line_of_c_plus_plus_has_more_than_100_columns() -> None:
    """The formatter sees to code; comments are left to their authors."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("engine", "workloads", "tests")
        for path in sorted((ROOT / folder).rglob("*.[ch]pp"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > 100
    ]
    assert found == []


CLANG_FORMAT = Path(sys.executable).with_name("clang-format")


@pytest.mark.skipif(not CLANG_FORMAT.exists(), reason="clang-format is not installed (make lint)")
@pytest.mark.parametrize("name", ["text.cpp", "text.md", "some/where/text.md"])
def test_the_formatter_leaves_comments_and_documents_as_they_are(tmp_path: Path, name: str) -> None:
    for config in (".clang-format", ".clang-format-ignore"):
        (tmp_path / config).write_text((ROOT / config).read_text())
    text = f"// A list after a line that is too long {'-' * 80}\n//   first   item\n//   second\n"
    if name.endswith(".md"):
        text = "# Title\n\nSee `tests/engine/test_sim*.cpp`: one-line notes.\n"
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    subprocess.run([CLANG_FORMAT, "-i", tmp_path / name], check=True)
    assert (tmp_path / name).read_text() == text


# --- Readers --------------------------------------------------------------------------------------

READING = {"read_text", "read_bytes", "loads", "load", "validate_json", "model_validate_json"}
OURS = {
    "documents/reading.py": "it is the reader",
    "files.py": "it opens for writing",
    "commands/attach.py": "what it has just written itself",
    "commands/record.py": "a header of its own",
    "record/samplers/emulation.py": "a clock in its own spools",
    "commands/import_.py": "what its user names, a pipe perhaps, bit by bit",
    "record/samplers/__init__.py": "the first bytes of the program to record",
    "report/store.py": "to sync what it has just written",
    "study/events.py": "a line that is as long as it may be, with a checksum",
    "study/log.py": "series that are as large as they may be, with a checksum",
    "run/container.py": "/proc",
    "run/cluster.py": "/proc",
    "run/local_ray.py": "/proc",
    "run/limits.py": "/proc",
    "run/guard.py": "/proc",
    "record/damon.py": "/proc and /sys",
    "record/group.py": "/proc",
    "record/process.py": "spools, of this user",
    "record/samplers/pebs.py": "/sys",
    "report/doctor.py": "/proc and /sys",
    "report/remote.py": "a pipe from our own process",
    "run/asking.py": "a pipe from our own process",
    "run/pool.py": "a pipe from our own process",
    "run/process_pool.py": "a pipe from our own process",
    "run/ray_pool.py": "an answer of our own worker",
    "run/gateway.py": "a pipe from our own process",
    "tierd.py": "an answer of our own program",
    "run/contained.py": "an answer that is as long as it may be",
    "run/metric.py": "an answer of our own process",
    "run/host.py": "/proc and /sys",
    "compare/earlier.py": "what it has just written itself",
    "optimize/viewers.py": "what it has just written itself",
}
"""What a module reads without `tuner/documents/reading.py`, which bounds time and memory."""


def readers(path: Path) -> set[str]:
    """Calls of a module that read a file or parse JSON by themselves."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        modes = [*node.args, *(word.value for word in node.keywords)]
        texts = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
        writes = any(isinstance(text, str) and set(text) & set("wax") for text in texts)
        if name == "load" and owner in ("log", "document"):
            continue  # a study, claims: by the reader
        if (owner and name in READING) or (name == "open" and not writes and owner != "os"):
            found.add(f"{owner}.{name}".lstrip("."))
    return found


def test_nobody_else_reads_what_others_have_made() -> None:
    found = {
        str(path.relative_to(ROOT / "tuner")): calls
        for path in sorted((ROOT / "tuner").rglob("*.py"))
        if (calls := readers(path))
    }
    assert {name: calls for name, calls in found.items() if name not in OURS} == {}
    assert sorted(set(OURS) - set(found)) == []


@pytest.mark.parametrize(
    "line",
    [
        *("json.load(file)", "json.loads(text)", "path.read_text()", "Path('x').read_bytes()"),
        *("open(path)", "path.open('rb')", "gzip.open(path)", "Model.model_validate_json(text)"),
    ],
)
def test_a_reader_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(line)
    assert len(readers(tmp_path / "module.py")) == 1
