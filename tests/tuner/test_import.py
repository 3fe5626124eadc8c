# SPDX-License-Identifier: MIT
"""Importers: real outputs of the tools become streams, and a bad line becomes an exact error."""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, engine
from tuner.documents import catalog
from tuner.documents.document import Document
from tuner.documents.workload import WorkloadSpec
from tuner.run import settings

DATA = Path(__file__).parent / "data"
SAMPLES = {
    "perf-script": "perf-script.txt",
    "damon": "damon-raw.txt",
    "lackey": "lackey.txt",
    "csv": "accesses.csv",
}

Tune = Callable[..., Any]


@pytest.fixture
def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """`tune import` in an empty folder: its summary, or its error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "cache"))

    def run(*words: str, code: int = 0) -> Any:
        assert cli.main(["import", *words, "--json"]) == code
        captured = capsys.readouterr()
        if code == 0:
            return json.loads(captured.out)
        message: str = json.loads(captured.out)["error"]["message"]
        assert captured.err == f"tune: error: {message}\n"
        return message

    return run


def imported(tune: Tune, text: str, format: str, *more: str, code: int = 0) -> Any:
    Path("in.txt").write_text(text)
    return tune("in.txt", "--format", format, *more, code=code)


def document() -> WorkloadSpec:
    return Document.read(Path("trace.yaml")).parse(WorkloadSpec)


def heat(path: str = "trace.tts") -> dict[int, int]:
    """Accesses per page, of all pages with any: the stream's table of page totals."""
    content = Path(path).read_bytes()
    (at,), (pages,) = (struct.unpack_from("<Q", content, place) for place in (40, 88))
    totals = struct.unpack_from(f"<{pages}Q", content, at)
    return {page: count for page, count in enumerate(totals) if count}


@pytest.mark.parametrize("format", SAMPLES)
def test_a_sample_of_each_format_can_be_tuned(tune: Tune, format: str) -> None:
    summary = tune(str(DATA / SAMPLES[format]), "--format", format)
    assert summary["accesses"] > 0
    workload = catalog.workload("./trace.yaml").spec
    assert workload.machine == "skx"
    assert workload.footprint_gib == summary["footprint_bytes"] / 2**30
    policy = engine.policy("hybridtier")
    setting = settings.resolve("./trace.yaml", policy=policy, deadline_seconds=60)
    from tuner.run import runner

    # The samples touch a few pages.
    trial = setting.trial(0, {})
    assert "at least 256" in runner.run(trial).error
    result = runner.run(trial.model_copy(update={"coarse": True}))
    assert result.error == ""
    assert result.objective is not None


def test_lackey_goes_through_the_cache(tune: Tune) -> None:
    """The program reads and writes one byte of each of a page's 64 lines, then reads all again."""
    summary = tune(str(DATA / "lackey.txt"), "--format", "lackey")
    assert summary["samples"] == 192
    assert summary["accesses"] == 192
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert (sampling.probability, sampling.samples, sampling.error_share) == (1, 192, 0)
    assert sampling.describe() == "recorded whole by lackey: all 192 accesses were seen"
    info = engine.stream_info(Path("trace.tts"))
    assert info["accesses"] == 128  # 64 lines fetched, 64 written back; the rest hits
    assert list(heat().values()) == [128]
    tiny = Path("tiny.yaml").absolute()
    packaged = catalog.find(catalog.Kind.machine, "skx").read_text()
    text = packaged.replace("name: skx", "name: tiny").replace("llc_mib: 13.75", "llc_mib: 0.001")
    assert text.count("0.001") == 1
    tiny.write_text(text)
    tune(str(DATA / "lackey.txt"), "--format", "lackey", "--machine", str(tiny), "--force")
    lines = [*range(64), *(i * 37 % 64 for i in range(64))]
    fetched, recent = 0, list[int]()
    for line in lines:  # 16 lines of cache: the latest 16
        fetched += line not in recent[-16:]
        recent = [other for other in recent if other != line] + [line]
    assert 64 + fetched == 190
    assert engine.stream_info(Path("trace.tts"))["accesses"] == 190
    compute = 1034 * 0.5 / 2.2e9  # instructions at half a cycle each
    assert info["nominal_seconds"] > compute
    assert info["nominal_seconds"] < compute + 128 * 90e-9


def test_perf_samples_are_expanded_by_their_period(tune: Tune) -> None:
    summary = tune(str(DATA / "perf-script.txt"), "--format", "perf-script")
    assert (summary["samples"], summary["no_address"]) == (396, 4)
    assert summary["accesses"] == 396 * 10007
    assert (summary["processes"], summary["threads"]) == (2, 3)
    assert engine.stream_info(Path("trace.tts"))["accesses"] == 396 * 10007
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert (sampling.sampler, sampling.samples) == ("perf-script", 396)
    assert sampling.probability == pytest.approx(1 / 10007)
    counts = [count / 10007 for count in heat().values()]  # samples per page
    assert sum(counts) == 396
    expected = sum(math.sqrt(n * (1 - 1 / 10007)) for n in counts) / 396
    assert sampling.error_share == pytest.approx(expected)
    assert 0 < summary["hot_error_share"] < sampling.error_share
    again = tune(
        str(DATA / "perf-script.txt"), "--format", "perf-script", "--period", "10", "--force"
    )
    assert again["accesses"] == 3960
    assert tune(
        str(DATA / "perf-script.txt"), "--format", "perf-script", "--probability", "0.1", "--force"
    )["accesses"] == pytest.approx(3960)


def test_perf_samples_are_put_in_order_of_time(tune: Tune) -> None:
    lines = (DATA / "perf-script.txt").read_text().splitlines(keepends=True)
    tune(str(DATA / "perf-script.txt"), "--format", "perf-script", "-o", "a.tts")
    Path("in.txt").write_text("".join(lines[:2] + lines[:1:-1]))
    tune("in.txt", "--format", "perf-script", "-o", "b.tts")
    a, b = (engine.stream_info(Path(name)) for name in ("a.tts", "b.tts"))
    assert (a["blocks"], a["accesses"], a["nominal_seconds"]) == pytest.approx(
        (b["blocks"], b["accesses"], b["nominal_seconds"]), rel=1e-3
    )
    assert a["blocks"] > 20


def test_perf_data_sources_tell_kind_and_level(tune: Tune) -> None:
    head = "a b  7/8 [003] 1.5: 100 ibs_op//: "
    text = (
        f"{head}1000 68100142 |OP LOAD|LVL L1 hit|SNP None|\n"
        f"{head}1000 68100142 |OP LOAD|LVL Local RAM hit|SNP None|\n"
        f"{head}2000 68100142 |OP STORE|LVL N/A|SNP N/A|\n"
        f"{head}ffffffff81000000 68100142 |OP LOAD|LVL Local RAM hit|\n"
    )
    summary = imported(tune, text, "perf-script")
    assert (summary["samples"], summary["cached"], summary["no_address"]) == (2, 1, 1)


def test_damon_regions_heat_all_their_pages(tune: Tune) -> None:
    summary = tune(str(DATA / "damon-raw.txt"), "--format", "damon")
    assert summary["samples"] == 4  # regions with accesses
    assert sorted(heat().values()) == [3] * 16 + [5] * 2 + [21] * 16
    info = engine.stream_info(Path("trace.tts"))
    assert info["blocks"] == 2
    assert info["nominal_seconds"] == pytest.approx(0.20859, rel=1e-3)
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    total = 16 * 3 + 2 * 5 + 16 * 21
    expected = (16 * math.sqrt(3) + 2 * math.sqrt(5) + 16 * math.sqrt(21)) / total
    assert sampling.error_share == pytest.approx(expected)
    assert sampling.probability is None
    assert (
        tune(str(DATA / "damon-raw.txt"), "--format", "damon", "--period", "50", "--force")[
            "accesses"
        ]
        == 50 * total
    )


def test_the_tracepoint_is_read_as_perf_and_as_tracefs_print_it(tune: Tune) -> None:
    summary = tune(str(DATA / "damon-tracepoint.txt"), "--format", "damon")
    assert (summary["samples"], summary["processes"]) == (4, 2)
    # Two targets: the same addresses are different pages.
    assert sorted(heat().values()) == [2] * 16 + [7] * 2 + [38] * 16


def test_csv_counts_lines_and_expands(tune: Tune) -> None:
    text = (
        "kind, address, time, size, count\n"
        "load,0x1000,10,64,3\n"
        "w,8190,20.5,4,1\n"  # the last two bytes of a page and the first two of the next
        "\n"
        "store,0x3000,30,256,2\n"
    )
    summary = imported(tune, text, "csv")
    assert sorted(heat().values()) == [1, 4, 8]
    assert summary["error_share"] == 0
    sampled = imported(tune, text, "csv", "--probability", "0.01", "--force")
    assert sampled["accesses"] == pytest.approx(1300)
    assert sampled["error_share"] == pytest.approx(
        sum(math.sqrt(n * 0.99) for n in (1, 4, 8)) / 13, rel=1e-6
    )
    processes = "time,address,kind,process\n0,4096,load,9\n1,4096,load,5\n2,4096,load,9\n"
    assert imported(tune, processes, "csv", "--force")["processes"] == 2
    assert sorted(heat().values()) == [1, 2]


def test_standard_input_and_gzip(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DATA / "accesses.csv").read_bytes()
    plain = tune(str(DATA / "accesses.csv"), "--format", "csv", "-o", "a.tts")
    for name, content in (("b.tts", text), ("c.tts", gzip.compress(text))):
        stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr("sys.stdin", stdin)
        assert tune("-", "--format", "csv", "-o", name)["accesses"] == plain["accesses"]
    Path("half.gz").write_bytes(gzip.compress(text)[:-100])
    assert tune("half.gz", "--format", "csv", code=2).startswith("half.gz: damaged gzip data: ")
    assert not Path("trace.tts").exists()


PERF = "a 1/2 1.5: 100 loads: "
EVERY = "'START-END(SIZE): ACCESSES' or a heading, as damo report raw prints them, or the tracepoi"


@pytest.mark.parametrize(
    ("format", "text", "line", "expected"),
    [
        ("perf-script", "nonsense\n", 1, "found 'nonsense', expected 'COMM PID/TID SECONDS: [PER"),
        ("perf-script", "a b 1.5: 1 loads: 10\n", 1, "found 'b', expected PID/TID before the time"),
        ("perf-script", "a 1/2 1.5: x loads: 10\n", 1, "found 'x', expected a period, or the eve"),
        ("perf-script", "a 1/2 1.5: 0 loads: 10\n", 1, "found '0', expected a period, or the eve"),
        ("perf-script", "a 1/2 1.5: 100\n", 1, "found the end of the line, expected the event's"),
        ("perf-script", f"{PERF}10\n{PERF}\n", 2, "found the end of the line, expected an address"),
        ("perf-script", f"{PERF}xyz\n", 1, "found 'xyz', expected an address in hexadecimal"),
        ("perf-script", "a 1/2 1.5: loads: 10\n", 1, "found no period, expected one before the"),
        (
            "perf-script",
            f"{PERF}10 55d4c0de1139 main+0x10 (/bin/a)\n{PERF}55d4c0de1139 main+0x10 (/bin/a)\n",
            2,
            "found the address of an instruction, '55d4c0de1139' in 'main+0x10', expected that of "
            "the data (perf record -d, then perf script -F comm,pid,tid,time,period,event,addr)",
        ),
        (
            "perf-script",
            f"{PERF}7f31c8000ec0 [unknown] ([unknown])\n",
            1,
            "found the address of an instruction, '7f31c8000ec0' in '[unknown]', expected that of",
        ),
        (
            "perf-script",
            "a 1/2 1.5: 9 page-faults: 10\n",
            1,
            "found the event 'page-faults', expected one whose name says 'load' or 'store'",
        ),
        (
            "perf-script",
            f"{PERF}1000\n{PERF}7ffd",
            2,
            f"found the end of the file after '{PERF}7ffd', expected the end of the line: the file",
        ),
        ("perf-script", "a 1/2 1.5: 9999999999999 loads: 10\n", 1, "an access stands for"),
        ("damon", "563e-563f( 1 B): 1\n", 1, f"found '563e-563f( 1 B): 1', expected {EVERY}"),
        ("damon", "monitoring_start: 3 parsecs\n", 1, "found '3 parsecs', expected a time such as"),
        ("damon", "nr_regions: two\n", 1, "found ' two', expected the number of regions"),
        ("damon", "nr_regions: 2\n1000-2000(1 B): 1\n", 2, "found 1 regions, expected 2 of them"),
        ("damon", "nr_regions: 1\n2000-1000(1 B): 1\n", 2, "found '2000-1000(1 B): 1', expected a"),
        ("damon", "nr_regions: 1\n1000-2000(1 B): x\n", 2, "expected the number of accesses after"),
        ("damon", "k 1 [0] 1.5: damon_aggregated: target_id=0\n", 1, "expected 'SECONDS: damon_ag"),
        ("lackey", "I  1000,4\n L 2000\n", 2, "found ' L 2000', expected 'I  ADDRESS,SIZE', ' L"),
        ("lackey", " X 2000,8\n", 1, "found ' X 2000,8', expected 'I  ADDRESS,SIZE', ' L ADDRES"),
        ("lackey", " L 2000,0\n", 1, "found ' L 2000,0', expected"),
        ("lackey", "hello from the program\n", 1, "found 'hello from the program', expected"),
        ("csv", "a,b\n", 1, "found 'a,b', expected a heading with time,address,kind"),
        ("csv", "time,address\n", 1, "found 'time,address', expected a heading with"),
        ("csv", "time,time,address,kind\n", 1, "expected a heading with"),
        ("csv", "time,address,kind\n1,2\n", 2, "found '1,2', expected 3 values, as the heading"),
        ("csv", "time,address,kind\n1,2,load,3\n", 2, "expected 3 values, as the heading"),
        ("csv", "time,address,kind\n-1,2,load\n", 2, "found '-1', expected a time in ns, 0 to"),
        ("csv", "time,address,kind\n1,0x,load\n", 2, "found '0x', expected an address below 2^48"),
        ("csv", "time,address,kind\n1,2,exec\n", 2, "found 'exec', expected load or store"),
        ("csv", "time,address,kind,count\n1,2,load,nan\n", 2, "found 'nan', expected a number of"),
        ("csv", "time,address,kind,size\n1,2,load,0\n", 2, "found '0', expected a size in bytes"),
        ("csv", f"time,address,kind\n{'1' * 70000}", 2, "expected a line of at most 65,536 bytes"),
    ],
)
def test_a_bad_line_is_told_exactly_and_leaves_nothing(
    tune: Tune, format: str, text: str, line: int, expected: str
) -> None:
    error = imported(tune, text, format, code=2)
    assert error.startswith(f"in.txt:{line}: ")
    assert expected in error
    assert sorted(path.name for path in Path().iterdir()) == ["in.txt"]


@pytest.mark.parametrize("format", SAMPLES)
def test_an_input_without_accesses_is_an_error(tune: Tune, format: str) -> None:
    empty = "time,address,kind\n" if format == "csv" else "\n"
    error = imported(tune, empty, format, code=2)
    assert error == "in.txt: no access in 1 lines; there is nothing to play"
    assert not Path("trace.tts").exists()


def test_samples_that_all_lack_an_address_name_the_option_of_perf(tune: Tune) -> None:
    error = imported(tune, f"{PERF}0\n{PERF}ffffffff81000000\n", "perf-script", code=2)
    assert error.startswith("in.txt: none of 2 samples has an address in the program's memory")
    assert "perf record -d, then perf script -F" in error
    assert not Path("trace.tts").exists()


@pytest.mark.parametrize("format", SAMPLES)
def test_an_input_cut_off_anywhere_is_never_read_wrongly(tune: Tune, format: str) -> None:
    """Cut at a line's end it may be a shorter recording; anywhere else it is an error."""
    text = (DATA / SAMPLES[format]).read_text()
    for size in range(len(text) - 120, len(text) - 1, 7):
        if text[size - 1] != "\n":
            assert "the file is cut off" in imported(tune, text[:size], format, code=2)


def test_endless_input_is_an_error(tune: Tune) -> None:
    for format in SAMPLES:
        error = tune("/dev/zero", "--format", format, code=2)
        assert error.startswith("/dev/zero:1: found '????")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("none.txt", "--format", "csv"), "none.txt: No such file or directory"),
        (("in.txt", "--format", "lackey", "--period", "3"), "--period: lackey sees every access"),
        (("in.txt", "--format", "damon", "--probability", "0.1"), "--probability: DAMON counts"),
        (("in.txt", "--format", "csv", "--probability", "2"), "--probability: found 2; must be"),
        (("in.txt", "--format", "csv", "--period", "0.5"), "--period: found 0.5; must be at least"),
        (("in.txt", "--format", "csv", "-o", "a.txt"), "-o a.txt: must be NAME.tts"),
        (("in.txt", "--format", "csv", "-o", "no/a.tts"), "-o no/a.tts: there is no folder"),
        (("in.txt", "--format", "csv", "-o", "old.tts"), "old.tts exists; --force replaces it"),
    ],
)
def test_wrong_options_are_told(tune: Tune, words: tuple[str, ...], expected: str) -> None:
    Path("in.txt").write_text("time,address,kind\n0,0x1000,load\n")
    Path("old.tts").write_text("mine")
    assert expected in tune(*words, code=2)
    assert Path("old.tts").read_text() == "mine"


def test_a_failed_import_keeps_what_was_there(tune: Tune) -> None:
    imported(tune, "time,address,kind\n0,0x1000,load\n", "csv")
    before = Path("trace.tts").read_bytes()
    imported(tune, "time,address,kind\n0,0x1000,load\n1,x,load\n", "csv", "--force", code=2)
    assert Path("trace.tts").read_bytes() == before


def test_the_same_input_gives_the_same_stream(tune: Tune) -> None:
    for format, name in SAMPLES.items():
        tune(str(DATA / name), "--format", format, "-o", "a.tts", "--force")
        before = Path("a.tts").read_bytes()
        tune(str(DATA / name), "--format", format, "-o", "a.tts", "--force")
        assert Path("a.tts").read_bytes() == before


def test_what_a_killed_import_has_left_goes_with_the_next_one(tune: Tune, tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f"trace.yaml.{dead.pid}.partial").touch()
    tune(str(DATA / "accesses.csv"), "--format", "csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.tts", "trace.yaml"]
