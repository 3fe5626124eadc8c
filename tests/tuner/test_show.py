# SPDX-License-Identifier: MIT
"""tune workload show: what pictures and figures say, of a stream made by hand and a real one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.image import AxesImage, PcolorImage

from tuner import cli, engine
from tuner.report import pictures
from tuner.report.characteristics import Figures
from tuner.report.pictures import Site, Subject
from tuner.run.settings import Setting

PNG = b"\x89PNG\r\n\x1a\n"


def subject(**found: Any) -> Subject:
    """Two sites on four rows of pages; ten seconds of set-up, then three minutes."""
    accesses = [[8, 0, 0, 0], [100, 0, 10, 0], [0, 20, 0, 0]]  # per column and row
    pages = [[8, 8, 0, 0], [8, 8, 4, 0], [8, 8, 4, 0]]
    info = {
        "scale": 1024.0,
        "classes": [{"name": "stream"}, {"name": "chase"}],
    }
    site = {"freed": 0, "first_touch": 0.0, "last_touch": 70.4, "last_free": -1.0}
    found = {
        "pages": 20,
        "extents": [("a", 0, 16), ("b", 16, 16)],
        "loads": 110,
        "stores": 20,
        "timed": [(10.0, 190.0)],
        "curve": [(0.05, 0.5), (0.5, 1.0)],
        "hottest": [(0.01, 0.2), (0.1, 0.6), (0.2, 0.7), (0.5, 1.0)],
        "sites": [
            site
            | {
                "site": "b",
                "objects": 1,
                "freed": 1,
                "pages": 4,
                "peak_pages": 4,
                "accesses": [(0, 0), (10, 0)],
                "set_up_accesses": 0,
                "last_free": 190.0,
            },
            site
            | {
                "site": "a",
                "objects": 2,
                "pages": 16,
                "peak_pages": 16,
                "accesses": [(90, 0), (10, 20)],
                "set_up_accesses": 8,
            },
        ],
        "heat": {
            "rows": 4,
            "pages_per_row": 8,
            "edges": [0.0, 10.0, 100.0, 190.0],
            "accesses": np.array(accesses, np.uint64).tobytes(),
            "pages": np.array(pages, np.uint32).tobytes(),
        },
    } | found
    figures = Figures(
        stream="x",
        scale=1024,
        footprint_gib=0.078125,
        pages=20,
        timed_pages=20,
        accesses=130,
        set_up_accesses=8,
        store_share=0.15,
        operations=0,
        seconds=180,
        hottest={"1%": 0.2, "10%": 0.6, "20%": 0.7, "50%": 1.0},
        file_bytes=1000,
        making_seconds=None,
    )
    scenario = SimpleNamespace(input="i")
    setting = SimpleNamespace(workload=SimpleNamespace(name="w"), scenario=scenario, sampling=None)
    return Subject(cast(Setting, setting), Path("w.tts"), info, found, figures)


def image(axes: Axes) -> AxesImage | PcolorImage:
    (found,) = axes.images
    return found


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_heat_map_tells_none_from_no_page() -> None:
    axes = pictures.heat_map(subject()).axes[0]
    drawn: Any = np.ma.asarray(image(axes).get_array())
    norm = image(axes).norm
    assert drawn.shape == (4, 3)
    # 100 accesses to 8 pages in a minute and a half
    assert drawn[0, 1] == pytest.approx(100 / 8 / 1.5)
    assert norm.vmax == pytest.approx(100 / 8 / 1.5)
    assert norm.vmin is not None
    assert not np.ma.is_masked(drawn[1, 1])
    assert drawn[1, 1] < norm.vmin  # pages without an access
    assert np.ma.is_masked(drawn[2, 0])  # not there yet
    assert np.ma.is_masked(drawn[3, 2])  # never there
    assert drawn[2, 1] == pytest.approx(10 / 4 / 1.5)  # half of the row is there


def test_the_heat_map_is_in_real_units_and_marks_objects() -> None:
    axes = pictures.heat_map(subject()).axes[0]
    assert axes.get_xlim() == pytest.approx((0, 190 / 60))
    assert axes.get_ylim() == (0, 32 * 4096 * 1024 / 2**30)
    assert axes.get_xlabel().startswith("minutes")
    assert {"a", "b"} <= set(texts(axes))
    assert "20 pages in all, each standing for 1024" in " ".join(texts(axes))
    (boundary,) = (
        float(np.asarray(line.get_ydata())[0])
        for line in axes.lines
        if len(set(np.asarray(line.get_ydata()))) == 1
    )
    assert boundary == 16 * 4096 * 1024 / 2**30
    (set_up,) = (
        float(np.asarray(line.get_xdata())[0])
        for line in axes.lines
        if len(set(np.asarray(line.get_xdata()))) == 1
    )
    assert set_up == pytest.approx(10 / 60)


def test_short_streams_are_in_seconds() -> None:
    heat = subject().found["heat"] | {"edges": [0.0, 10.0, 20.0, 30.0]}
    axes = pictures.heat_map(subject(heat=heat, timed=[(10.0, 30.0)])).axes[0]
    assert axes.get_xlabel().startswith("seconds")
    assert axes.get_xlim() == (0, 30)


def test_a_stream_without_accesses_is_drawn() -> None:
    heat = subject().found["heat"] | {"accesses": bytes(4 * 3 * 8)}
    empty = subject(heat=heat, curve=[], sites=[], loads=0, stores=0)
    assert not pictures.heat_map(empty).axes[0].images
    for figure in (pictures.hotness([empty]), pictures.site_table(empty, [])):
        assert pictures.png(figure).startswith(PNG)


def test_sites_are_at_full_scale_and_hottest_first() -> None:
    a, b = pictures.sites(subject())
    assert (a.site, b.site) == ("a", "b")
    assert a.accesses == 120 * 1024
    assert a.set_up_accesses == 8 * 1024
    assert a.share == pytest.approx(120 / 130)
    assert a.heat == pytest.approx(120 / 16 / 3)
    assert a.store_share == pytest.approx(20 / 120)
    assert a.classes == {"stream": pytest.approx(0.75), "chase": pytest.approx(0.25)}
    assert a.peak_gib == 16 * 4096 * 1024 / 2**30
    assert b.classes == {"chase": 1.0}
    assert b.freed == 1
    assert b.last_free == pytest.approx(190 / 60)
    assert pictures.row(a)[:8] == ("a", "2", "-", "0.0625", "16", "0:00", "1:10", "123 k")


def test_a_long_table_is_cut_and_says_so() -> None:
    (one, _) = pictures.sites(subject())
    sites: Sequence[Site] = [one] * (pictures.MOST_SITES + 3)
    assert pictures.more(sites) == "and 3 more sites, 276.9 % of the accesses"
    assert pictures.more(sites) in texts(pictures.site_table(subject(), sites).axes[0])
    assert pictures.more(sites[: pictures.MOST_SITES]) == ""


def test_the_hotness_curves_are_drawn_over_each_other() -> None:
    linear, log = pictures.hotness([subject(), subject(curve=[(1.0, 1.0)])]).axes
    curves = [line for line in linear.lines if "GiB" in str(line.get_label())]
    assert [list(np.asarray(c.get_xdata())) for c in curves] == [[0, 5, 50], [0, 100]]
    assert log.get_xscale() == "log"
    assert linear.get_xscale() == "linear"
    marks = [line for line in linear.lines if line.get_marker() == "o"]
    assert [float(np.asarray(m.get_xdata())[0]) for m in marks] == [1, 10, 20, 1, 10, 20]


# --- The whole command, on the real engine ----------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_show_draws_and_tells(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["workload", "show", "microbench", "--input", "smoke", "--out", "pictures"]
    assert cli.main([*arguments, "--compare", "gups:smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name in ("heat_map", "hotness", "sites"):
        path = Path(found["files"][name])
        assert path.parent == Path("pictures/microbench-smoke")
        assert path.read_bytes().startswith(PNG)
    chase, sequential = sorted(found["sites"], key=lambda site: str(site["site"]))
    assert sum(site["share"] for site in (chase, sequential)) == pytest.approx(1)
    assert sequential["share"] == pytest.approx(26 / 30, rel=0.01)  # Soar/Alto, §2.1: 26 G and 4 G
    assert found["characteristics"]["footprint_gib"] == pytest.approx(4, rel=0.02)
    assert [other["workload"] for other in found["compared"]] == ["gups"]
    assert found["curve"][-1][1] == pytest.approx(1)

    assert cli.main([*arguments, "--compare", "gups:smoke"]) == 0
    out = capsys.readouterr().out
    assert "microbench (smoke): a sequential reader and a pointer chase" in out
    assert out.count("gups (smoke)") == 1
    assert out.splitlines()[-1] == "pictures/microbench-smoke/sites.png"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gusp"], "no workload 'gusp'; did you mean 'gups'?"),
        (["gups", "--input", "smok"], "did you mean 'smoke'?"),
        (["gups", "-i", "smoke", "--compare", "x.yaml"], "no workload file 'x.yaml'"),
        (["gups", "-i", "smoke", "--out", "/dev/null"], "cannot write to /dev/null/gups-smoke"),
    ],
)
def test_what_the_user_can_put_right(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["workload", "show", *arguments]) == 2
    assert message in capsys.readouterr().err


RECORDING = """\
name: trace
summary: a recording
objective: runtime
objectives: [runtime]
footprint_gib: 0.03
scale: 2048
threads: 4
machine: skx
default_input: default
smoke_input: default
inputs:
  default:
    summary: what was recorded
    trace: trace.tts
    sampling: {sampler: pebs, probability: 0.001, samples: 52000, error_share: 0.125}
"""


def test_a_recording_is_listed_and_drawn(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("workloads").mkdir()
    Path("workloads/trace.yaml").write_text(RECORDING)
    engine.native().record(
        "gups",
        workload="gups",
        input="smoke",
        parameters={"updates_g": 1.0, "regions": 1, "block_ms": 50.0},
        scale=2048.0,
        threads=4.0,
        llc_bytes=24 << 20,
        seed=0,
        path="workloads/trace.tts",
    )
    assert cli.main(["workloads", "trace", "--json"]) == 0  # nothing to measure: the file is there
    (listed,) = json.loads(capsys.readouterr().out)["workloads"]
    figures = listed["inputs"]["default"]["characteristics"]
    assert figures["footprint_gib"] == pytest.approx(64, rel=0.01)
    assert cli.main(["workload", "show", "workloads/trace.yaml", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["characteristics"] == figures
    assert shown["recorded"] is True
    assert "sampled by pebs: 52,000 samples, one access in 1,000" in shown["how"]
    Path("workloads/trace.tts").write_bytes(b"ttstream")
    assert cli.main(["workloads"]) == 2
    assert "trace.tts: truncated stream" in capsys.readouterr().err
