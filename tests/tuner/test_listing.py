# SPDX-License-Identifier: MIT
"""tune workloads: measured figures, and that they are never silently wrong."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, FakeNative

from tuner import cli
from tuner.documents import catalog
from tuner.report import characteristics
from tuner.run import streams
from tuner.text import si

FOUND = {
    "timed_pages": 4000,
    "peak_pages": 4096,
    "loads": 900,
    "stores": 100,
    "set_up_accesses": 50,
    "hottest": [(0.01, 0.25), (0.1, 0.5), (0.2, 0.75), (0.5, 0.9)],
}


@pytest.fixture
def measured(fake: FakeNative, monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    """A native module that describes any stream, and no workloads but the user's."""
    monkeypatch.setattr(catalog, "packaged_folder", lambda kind: Path("none"))

    def stream_info(path: str) -> dict[str, Any]:
        scale = 4096.0 if "linear" in Path(path).read_text() else 64.0
        return {"scale": scale, "operations": 77, "nominal_seconds": 90.0}

    monkeypatch.setattr(fake, "stream_info", stream_info, raising=False)
    monkeypatch.setattr(
        fake, "characteristics", lambda path, rows, columns: dict(FOUND), raising=False
    )
    return fake


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def rows(out: str) -> dict[str, list[str]]:
    """Cells of walker's rows by input."""
    lines = [line.replace(" (default)", "").replace(" %", "%").split() for line in out.splitlines()]
    return {cells[1]: cells for cells in lines if cells and cells[0] == "walker"}


def test_figures_are_unknown_until_measured(tune: Any, measured: FakeNative) -> None:
    code, out, err = tune("workloads", "walker")
    assert code == 0
    assert rows(out)["big"][2:9] == ["8", "-", "-", "-", "-", "-", "-"]
    assert "tune workloads --measure W" in err
    assert measured.recorded() == 0


def test_measured_figures_are_kept_beside_the_workload(tune: Any, measured: FakeNative) -> None:
    assert tune("workloads", "--measure", "walker")[0] == 0
    assert measured.recorded() == 2
    assert streams.entries() == []  # made for this alone
    kept = json.loads(Path("workloads/characteristics.json").read_text())["walker"]
    assert kept.keys() == {"big", "small"}
    assert kept["big"]["footprint_gib"] == 1.0  # 4096 pages of 4 KiB, times 64
    assert (kept["big"]["accesses"], kept["big"]["store_share"]) == (1000, 0.1)
    assert kept["big"]["making_seconds"] >= 0
    code, out, err = tune("workloads", "walker")
    assert code == 0
    assert rows(out)["big"][2:10] == ["1", "64", "k", "1.5", "10%", "25%", "50%", "75%"]
    assert err == ""
    assert "4.1" in rows(out)["small"]
    (walker,) = (
        w for w in json.loads(tune("workloads", "--json")[1])["workloads"] if w["name"] == "walker"
    )
    assert walker["inputs"]["big"]["characteristics"]["hottest"]["20%"] == 0.75
    assert walker["inputs"]["big"]["characteristics_stale"] is False


def test_only_what_is_missing_or_stale_is_measured(tune: Any, measured: FakeNative) -> None:
    tune("workloads", "--measure", "walker")
    tune("workloads", "--measure", "walker")
    assert measured.recorded() == 2
    path = Path("workloads/walker.yaml")
    path.write_text(path.read_text().replace("keys: 5000", "keys: 6000"))
    code, out, err = tune("workloads", "walker")
    assert code == 0
    assert rows(out)["big"][2] == "1*"
    assert not any("*" in cell for cell in rows(out)["small"])
    assert "* of an older stream" in err
    (walker,) = (
        w for w in json.loads(tune("workloads", "--json")[1])["workloads"] if w["name"] == "walker"
    )
    assert walker["inputs"]["big"]["characteristics_stale"] is True
    tune("workloads", "--measure", "walker")
    assert measured.recorded() == 3
    assert rows(tune("workloads", "walker")[1])["big"][2] == "1"


def test_another_kernel_makes_figures_stale(
    tune: Any, measured: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("workloads", "--measure", "walker")
    monkeypatch.setattr(measured, "stream_id", lambda kernel: "maker-2")
    assert rows(tune("workloads", "walker")[1])["big"][2] == "1*"


def test_only_changed_streams_forbid_to_keep_figures() -> None:
    changed = runpy.run_path(str(ROOT / "docs/rekey.py"))["changed_streams"]
    golden = {"streams": {"4096": "x"}, "results": {"hemem": "y"}}
    before = {"smoke": {"gups": golden}, "default": {"bfs": golden}}
    now = {
        "smoke": {"gups": {"streams": {"4096": "x"}, "results": {}}, "new": golden},
        "default": {"bfs": {"streams": {"4096": "z"}}},
        "machines": {},
    }
    assert changed(before, before) == []
    assert changed(before, now) == ["bfs"]


def test_figures_of_streams_that_a_change_left_as_they_were_get_their_new_keys(
    tune: Any, measured: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune("workloads", "--measure", "walker")
    rekey = runpy.run_path(str(ROOT / "docs/rekey.py"))["rekey"]
    file = Path("workloads/characteristics.json")
    before = json.loads(file.read_text())
    monkeypatch.setattr(measured, "stream_id", lambda kernel: "maker-2")
    assert rekey(file, {"maker-2": "another"}) == (0, 2)
    assert json.loads(file.read_text()) == before
    assert rekey(file, {"maker-2": "maker-1"}) == (2, 0)
    assert rows(tune("workloads", "walker")[1])["big"][2] == "1"
    assert rekey(file, {"maker-2": "maker-1"}) == (0, 0)


def test_a_cached_stream_answers_itself(tune: Any, measured: FakeNative) -> None:
    (request, _) = characteristics.requests(catalog.workload("walker")).values()
    streams.ensure(request)
    out = tune("workloads", "walker")[1]
    assert rows(out)["big"][2] == "1"
    assert rows(out)["small"][2] == "8"
    assert measured.recorded() == 1
    tune("workloads", "--measure", "walker")
    assert measured.recorded() == 2
    assert [entry.request.input for entry in streams.entries()] == ["big"]  # as it was


@pytest.mark.parametrize(
    "content", [b'{"walker": {"big": {"stream": 1}}}', b"[]", b"7", b'"\xff"', b"[" * 9999, None]
)
def test_a_damaged_file_of_figures_is_told_and_written_again(
    tune: Any, measured: FakeNative, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(characteristics, "_told", set())
    if content is None:
        Path("workloads/characteristics.json").mkdir()
    else:
        Path("workloads/characteristics.json").write_bytes(content)
    Path("workloads/other.yaml").write_text(
        Path("workloads/walker.yaml").read_text().replace("name: walker", "name: other")
    )
    code, _, err = tune("workloads")
    assert code == 0
    assert err.count("workloads/characteristics.json is damaged and counts as missing") == 1
    assert tune("workloads", "--measure", "walker")[0] == 0
    assert set(json.loads(Path("workloads/characteristics.json").read_text())) == {"walker"}


def test_a_folder_that_cannot_be_written(
    tune: Any, measured: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(characteristics, "_file_of", lambda entry: Path("nowhere/figures.json"))
    code, _, err = tune("workloads", "--measure", "walker")
    assert code == 2
    assert "cannot write nowhere/figures.json: No such file or directory" in err


def test_without_names_the_default_inputs_are_measured(tune: Any, measured: FakeNative) -> None:
    code, out, _ = tune("workloads", "--measure")
    assert code == 0
    assert rows(out)["big"][2] == "1"
    assert measured.recorded() == 1


def test_one_input_may_be_named(tune: Any, measured: FakeNative) -> None:
    code, out, _ = tune("workloads", "--measure", "walker:small")
    assert code == 0
    assert rows(out).keys() == {"small"}
    assert measured.recorded() == 1


def test_all_workloads_are_listed_on_their_default_inputs(tune: Any, measured: FakeNative) -> None:
    code, out, _ = tune("workloads")
    assert code == 0
    assert rows(out).keys() == {"big"}
    assert "walks" in out
    assert "inputs: big, small" in out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("walkr", "no workload 'walkr'; did you mean 'walker'"),
        ("walker:smal", "no input of workload walker 'smal'; did you mean 'small'"),
    ],
)
def test_an_unknown_name_is_told(tune: Any, measured: FakeNative, name: str, message: str) -> None:
    code, _, err = tune("workloads", name)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("gups", ("gups", None)),
        ("gups:smoke", ("gups", "smoke")),
        ("./a:b/trace.yaml", ("./a:b/trace.yaml", None)),
        ("./trace.yaml:run", ("./trace.yaml", "run")),
    ],
)
def test_a_compared_workload_may_name_its_input(name: str, split: tuple[str, str | None]) -> None:
    assert characteristics.split(name) == split


def test_large_numbers_are_short() -> None:
    assert [si(n) for n in (0, 12, 999.6, 12_345, 341_655_070_208.0, 2.5e16)] == [
        *("0", "12", "1 k", "12.3 k", "342 G", "25 P")
    ]


def test_shipped_figures_can_be_true() -> None:
    """They may be stale, which the listing tells; but not nonsense."""
    folder = catalog.packaged_folder(catalog.Kind.workload)
    kept = characteristics._read(folder / characteristics.FILE)
    for figures in (f for inputs in kept.values() for f in inputs.values()):
        shares = list(figures.hottest.values())
        assert list(figures.hottest) == ["1%", "10%", "20%", "50%"]
        assert shares == sorted(shares)
        assert 0 < shares[0] <= shares[-1] <= 1
        assert figures.pages > 0
        assert figures.footprint_gib == pytest.approx(
            figures.pages * figures.scale * 4096 / 2**30, rel=1e-3
        )
        assert figures.accesses > 0
        assert 0 <= figures.store_share <= 1
