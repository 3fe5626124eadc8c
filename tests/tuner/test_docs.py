# SPDX-License-Identifier: MIT
"""Documents say what their sources say: tables are those of results/, links lead somewhere, and the
version is the same everywhere."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from conftest import ROOT

from tuner import engine
from tuner.cli import parser_for
from tuner.commands.run import study_request
from tuner.experiment.recommend import WORTH
from tuner.experiment.robust import LOSS
from tuner.objective import OBJECTIVES
from tuner.study.contender import CONFIDENCE
from tuner.study.explanation import KEEP

README = (ROOT / "README.md").read_text()


def tune(*words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "tuner", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def markdown() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return [ROOT / name for name in listed.splitlines()]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import tables

    return tables


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import links

    return links


# --- Tables and pictures --------------------------------------------------------------------------


def test_every_generated_part_is_what_its_source_makes(tables: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path in tables.changed()]
    assert stale == [], f"out of date: {', '.join(stale)}; `make docs` writes them"


def test_every_part_that_can_be_made_is_in_a_document(tables: ModuleType) -> None:
    used = {
        name for path in tables.documents() for _, name, _ in tables.PART.findall(path.read_text())
    }
    assert used == set(tables.PARTS)


def test_a_changed_result_makes_its_table_out_of_date(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables.measured.results("workloads.json")
    row = before["workloads"]["gups"]
    other = {**row, "hemem": {**row["hemem"], "gain": 7.77}}
    after = {"workloads": {**before["workloads"], "gups": other}}
    monkeypatch.setattr(tables.measured, "results", lambda name: after)
    text = "<!-- made: tuned-workloads -->\nold\n<!-- end -->\n"
    made = tables.rewritten(text)
    assert "+777.0 %" in made
    assert "old" not in made
    assert tables.rewritten(made) == made


def test_scales_are_compared_page_size_by_page_size(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(scale: float, fast_pages: int, **objectives: float) -> dict[str, Any]:
        return {
            "scale": scale,
            "policies": {
                name: {"objective": value, "fast_pages": fast_pages}
                for name, value in objectives.items()
            },
        }

    base = {"1": at(64, 900, a=100.0, b=50.0), "2": at(128, 450, a=103.1, b=50.0)}
    sizes = {"4096": base, "2097152": {"1": at(14, 300, a=10.0), "2": at(28, 150, a=9.9)}}
    found = {"engine": "x", "workloads": {"w": sizes}}
    monkeypatch.setattr(tables.measured, "results", lambda name: found)
    assert tables.part("scales").splitlines()[2:] == [
        "| `w` | `a` | 4 KiB | 64 | **+3.1 %** | – |",
        "| `w` | `a` | 2 MiB | 14 | -1.0 % (coarse) | – |",
        "| `w` | `b` | 4 KiB | 64 | +0.0 % | – |",
    ]
    base["0.5"] = at(32, 1800, a=99.0)
    base["4"] = at(256, 225) | {"policies": {"b": {"error": "no room"}}}
    head, _, first, _, last = tables.part("scales").splitlines()
    assert head == "| workload | policy | pages | R | R/2 | 2R | 4R |"
    assert first == "| `w` | `a` | 4 KiB | 64 | -1.0 % | **+3.1 %** | – |"
    assert last == "| `w` | `b` | 4 KiB | 64 | – | +0.0 % | failed |"


def test_a_part_that_nothing_makes_is_an_error(tables: ModuleType) -> None:
    with pytest.raises(KeyError, match="no-such"):
        tables.rewritten("<!-- made: no-such -->\n<!-- end -->\n")


# A figure that somebody measured. Versions, sizes that one chooses and counts have no such unit.
FIGURE = re.compile(r"(?<![\w.:-])[-+−]?\d[\d.,]* ?(?:%|×|s|ms|k/s|M/s|G/s|ops/s|x)(?![\w/-])")


def hand_written(text: str) -> list[str]:
    """Figures outside of generated parts, code and links."""
    text = re.sub(r"<!-- made: .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return FIGURE.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_no_measured_figure_is_written_by_hand(path: Path, tables: ModuleType) -> None:
    # A bound that a test asserts is no measurement, nor is a declared constant.
    confidence, keep, loss, striking = (
        f"{100 * share:.0f} %" for share in (CONFIDENCE, KEEP, LOSS, tables.measured.STRIKING)
    )
    worth = f"{100 * WORTH:.0f} %"
    allowed = {
        "accuracy.md": [striking],
        "recommend.md": [worth],
        "studies.md": [keep, confidence, confidence, loss, keep],
    }
    assert hand_written(path.read_text()) == allowed.get(path.name, [])


def test_a_figure_written_by_hand_is_found() -> None:
    text = "a 2 GiB buffer, R = 64, version 3.11\nruns 12 s, `4 s`, +3.5 %, 2.4× or 13.8 M/s"
    assert hand_written(text) == ["12 s", "+3.5 %", "2.4×", "13.8 M/s"]


# --- Links ----------------------------------------------------------------------------------------


def test_every_link_leads_somewhere(links: ModuleType) -> None:
    assert [complaint for path in markdown() for complaint in links.broken(path)] == []


def test_broken_links_are_found(links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title\n\n## Twice: `x`\n\n## Twice: `x`\n")
    (tmp_path / "page.md").write_text(
        "[a](other.md) [b](other.md#a-title) [c](other.md#twice-x-1) [d](https://nowhere.test/x)\n"
        "[e](missing.md) [f](other.md#twice-x-2) ![g](missing.png) `[h](missing.md)`\n"
        "```text\n[i](missing.md)\n```\n[j](#nothing)\n"
    )
    found = [re.sub(r".*page", "page", text) for text in links.broken(tmp_path / "page.md")]
    assert found == [
        "page.md:2: missing.md: no such file",
        "page.md:2: other.md#twice-x-2: no such heading",
        "page.md:2: missing.png: no such file",
        "page.md:6: #nothing: no such heading",
    ]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


# --- What documents promise -----------------------------------------------------------------------


def test_commands_that_documents_name_exist() -> None:
    """`tune X` and `make X`, in code."""
    known = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"^ {4}([a-z]+)", tune("--help"), re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = page.read_text()
        code = "\n".join(re.findall(r"`[^`\n]+`|^```.*?^```", text, re.DOTALL | re.MULTILINE))
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", code, re.MULTILINE)) <= known, page
        assert set(re.findall(r"(?:^|`)tune ([a-z]+)", code, re.MULTILINE)) <= commands, page


def test_the_readmes_study_is_what_its_command_finds_today() -> None:
    """Not the whole study again, which takes minutes: all that it depends on, and the first of the
    configurations that it tries."""
    bench = runpy.run_path(str(ROOT / "tests/bench/study.py"))
    study = json.loads((ROOT / "results/study.json").read_text())
    words = bench["words"]()
    assert study["command"] == " ".join(["tune", *words])
    assert f"```sh\n{study['command']}\n```" in README
    request = study_request(parser_for(words).parse_args(words))
    stale = "`python tests/bench/study.py` measures it again, then `make docs`"
    assert bench["depends_on"](request) == study["depends_on"], stale
    search, objective = study["search"], OBJECTIVES[study["objective"]]
    costs = [None if value is None else objective.cost(value) for value in study["trials"]]
    assert bench["proposals"](request, search["lag"], costs) == search["proposals"], stale
    told = "\n".join(study["output"])
    assert all(f"untuned {name} " in told for name in study["depends_on"]["rivals"])


def test_the_first_block_of_the_readme_is_what_a_new_user_runs() -> None:
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert re.findall(r"^make (\w+)", block[1], re.MULTILINE) == ["run", "test"]
    assert "apt install git make g++ python3-dev python3-venv" in README[: block.end() + 600]


def test_every_publication_of_a_policy_has_an_address() -> None:
    """A DOI or a lasting page, which stands in the head of the policy's file, too."""
    heads = {}
    for path in (ROOT / "engine" / "policy").glob("*.cpp"):
        text = path.read_text(encoding="utf-8")
        if name := re.search(r'\.name = "([^"]+)"', text):
            _, _, *rest = text.splitlines()  # below the licence
            lines = itertools.takewhile(lambda line: line.startswith("//"), rest)
            heads[name[1]] = "\n".join(lines)
    for policy in engine.policies().values():
        published = re.search(r"\b(19|20)\d\d|'\d\d|Linux \d", policy.citation)
        assert bool(policy.addresses) == bool(published), policy.name
        for address in policy.addresses:
            assert address.startswith("https://")
            assert address in heads[policy.name], f"{policy.name}: {address}"


def test_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    latest = re.search(r"^## (\d+\.\d+\.\d+) · (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert latest is not None
    assert json.loads(tune("--version", "--json"))["version"] == version
    assert (citation["version"], str(citation["date-released"])) == (version, latest[2])
    assert latest[1] == version


def test_the_workflow_runs_what_ci_runs() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["all"]["steps"]
    assert steps[-1]["run"] == ".ci/run"
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert all(re.search(r"@[0-9a-f]{40}$", action) for action in actions), "pin actions by commit"
