# SPDX-License-Identifier: MIT
"""Importers: real outputs of the tools become streams, and a bad line becomes an exact error."""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import subprocess
import zlib
from collections.abc import Callable
from functools import partial
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
def tune(tune: Tune) -> Tune:
    """`tune import` in an empty folder: its summary, or its error."""
    return partial(tune, "import")


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
    assert tune("half.gz", "--format", "csv", code=2).startswith(
        "half.gz: damaged compressed data: "
    )
    assert not Path("trace.tts").exists()


PERF = "a 1/2 1.5: 100 loads: "
EVERY = (
    "'START-END (SIZE) ACCESSES' or a heading, as damo report access --raw_form prints them, damo'"
)


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
        (
            "damon",
            "tiertune 0 [0] 1.5: PERF_RECORD_MMAP2 0/0: [0x1000(0x0) @ 0 00:00 0 0]: rw-p x\n",
            1,
            "expected PERF_RECORD_MMAP2 N/N: [0xADDRESS(0xBYTES) @ ...]: PROT NAME",
        ),
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


SOURCE = "bench 7/8 [001] 10.{:06}: {} {}: {} {} |OP {}|LVL {}|SNP None|\n"


def sources(
    *rows: tuple[str, str, str], event: str = "cpu/mem-loads,ldlat=30/P", n: int = 1
) -> str:
    """Samples of (address, operation, level), each `n` times."""
    return "".join(
        SOURCE.format(i * 100 + k, 1000, event, address, "5080144", operation, level)
        for i, (address, operation, level) in enumerate(rows)
        for k in range(n)
    )


def told(tune: Tune, capsys: pytest.CaptureFixture[str], format: str) -> str:
    """What the command says to people about in.txt."""
    assert cli.main(["import", "in.txt", "--format", format, "-o", "told.tts", "--force"]) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "key"),
    [
        ("Local RAM hit", "samples"),
        ("Remote RAM (2 hops) hit", "samples"),
        ("CXL hit", "samples"),
        ("L3 miss", "samples"),
        ("Any cache miss", "samples"),
        ("L3 hit", "cached"),
        ("L2 MHB hit", "cached"),
        ("Remote Cache (2 hops) hit", "cached"),
        ("Remote core, same node Any cache hit", "cached"),
        ("N/A", "no_level"),
        ("I/O hit", "no_level"),
    ],
)
def test_only_what_memory_served_counts(tune: Tune, level: str, key: str) -> None:
    text = sources(("1000", "LOAD", "RAM hit"), ("2000", "LOAD", level))
    summary = imported(tune, text, "perf-script")
    expected = {"samples": 1, "cached": 0, "no_level": 0}
    expected[key] += 1
    assert {name: summary[name] for name in expected} == expected


def test_a_level_that_is_not_known_is_told(tune: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    text = sources(
        ("1000", "LOAD", "L1 miss"), ("2000", "STORE", "N/A"), ("3000", "N/A", "L1 hit"), n=2
    )
    summary = imported(tune, text, "perf-script")
    assert (summary["samples"], summary["unsure"], summary["no_level"]) == (4, 4, 2)
    said = told(tune, capsys, "perf-script")
    assert "not sure     4 samples used that a cache further out may have served" in said
    assert "left out     2 samples that are no access, or of which perf does not say" in said
    event = "mem_load_retired.l3_miss:Pu"
    known = imported(tune, sources(("1000", "LOAD", "N/A"), event=event), "perf-script", "--force")
    assert (known["samples"], known["unsure"]) == (1, 0)
    error = imported(
        tune, sources(("1000", "LOAD", "L2 hit"), n=3), "perf-script", "--force", code=2
    )
    assert "memory served none of 3 samples: caches served 3, and" in error


def test_a_data_source_is_no_address(tune: Tune) -> None:
    line = sources(("", "LOAD", "Local RAM hit"))
    error = imported(tune, line, "perf-script", code=2)
    assert error.startswith("in.txt:1: found the data source '5080144' without an address")
    assert (
        "perf record -d, then perf script -F comm,pid,tid,time,period,event,addr,data_src" in error
    )


def test_events_of_one_operation_of_arm_spe_count_once(
    tune: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    tail = "120400842 |OP LOAD|LVL"
    operation = [
        f"s 7/8 [001] 9.1: 1 {event}: aaaae7007b80 {tail} {level}|\n"
        for event, level in (
            ("l1d-miss", "L1 miss"),
            ("llc-miss", "L3 miss"),
            ("memory", "L3 miss"),
        )
    ]
    hit = f"s 7/8 [001] 9.2: 1 l1d-access: ffff84009c80 {tail} L1 hit|\n"
    other = "s 7/9 [001] 9.1: 1 llc-miss: aaaae7007b80 120400842 |OP LOAD|LVL L3 miss|\n"
    text = "".join(operation) + hit + other + operation[1]
    summary = imported(tune, text, "perf-script")
    # Twice by thread 8 (two events of one name are two operations), once by thread 9.
    assert (summary["samples"], summary["cached"], summary["repeated"]) == (3, 1, 2)
    assert summary["unsure"] == 0
    assert not summary["period_known"]
    assert summary["error_share"] == pytest.approx(1 / math.sqrt(3))
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert sampling.probability is None
    said = told(tune, capsys, "perf-script")
    assert "every access was seen" not in said
    assert "period       1 of each sample" in said
    known = imported(tune, text, "perf-script", "--period", "1024", "--force")
    assert (known["period_known"], known["accesses"]) == (True, 3 * 1024)


def test_addresses_of_48_bits_are_the_programs(tune: Tune) -> None:
    rows = [
        (f"{base + i * 4096:x}", "LOAD", "RAM hit")
        for i in range(3)
        for base in (0xAAAAE7000000, 0xFFFF84000000, 0xFFFF800008000000)
    ]
    summary = imported(tune, sources(*rows), "perf-script")
    assert (summary["samples"], summary["no_address"]) == (6, 3)


def test_call_chains_and_lost_events_are_counted(
    tune: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "cpus=2\n"
        "a 1/2 1.5: 100 loads: 1000\n"
        "\t    401136 main+0x10 (/bin/a)\n"
        "\t    7f31c8000ec0 [unknown] ([unknown])\n"
        "\n"
        "a 1/2 1.6: PERF_RECORD_LOST lost 3\n"
        "CPU:1 [LOST 5 EVENTS]\n"
        "a 1/2 1.7: 100 loads: 2000\n"
    )
    summary = imported(tune, text, "perf-script")
    assert (summary["samples"], summary["skipped"], summary["lost"]) == (2, 5, 8)
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert (sampling.dropped, sampling.dropped_share) == (8, 0.8)
    assert "lost         8 events" in told(tune, capsys, "perf-script")
    chain = "\t    401136 main+0x10 (/bin/a)\n"
    assert "found '?    401136 main" in imported(tune, chain, "perf-script", "--force", code=2)


def damo(*snapshots: str, base: str = "3 h 12.500 s", target: str = "0") -> str:
    """As `damo report access --raw_form` prints a record of one target."""
    text = f"base_time_absolute: {base}\ndata source: perf script\n\n"
    for i, regions in enumerate(snapshots):
        text += (
            f"monitoring_start: {i * 100:>16}.000 ms\nmonitoring_end: {(i + 1) * 100} ms\n"
            f"monitoring_duration: 100 ms\ntarget_id: {target}\n"
            f"nr_regions: {len(regions.splitlines())}\n"
            "# start_addr     end_addr        length  nr_accesses   age\n" + regions + "\n"
        )
    return text


HOT = "5581a0000000-5581a0004000 (  16.000 KiB)          18     0\n"
WARM = "7fd200000000-7fd200002000 (   8.000 KiB)           2    -1\n"
IDLE = "100000000000-140000000000 (   4.000 TiB)           0     0\n"


def test_damos_raw_form_is_read_and_what_is_idle_costs_nothing(tune: Tune) -> None:
    summary = imported(tune, damo(HOT + IDLE, WARM + IDLE), "damon")
    assert (summary["samples"], summary["footprint_bytes"]) == (2, 6 * 4096)
    assert sorted(heat().values()) == [2, 2, 18, 18, 18, 18]
    large = IDLE.replace(" 0     0", " 1     0")
    error = imported(tune, damo(HOT, large), "damon", "--force", code=2)
    assert "expected an accessed region of at most 128 GiB" in error
    report = "heatmap: 00000011119999\n# min/max temperatures: 0, 12\n"
    error = imported(tune, report, "damon", "--force", code=2)
    assert "as damo report access --raw_form prints them" in error


def test_targets_that_damo_writes_one_after_the_other_run_together(tune: Tune) -> None:
    one = imported(tune, damo(HOT, HOT), "damon")
    text = damo(HOT, HOT) + damo(WARM, WARM, target="1")
    both = imported(tune, text, "damon", "--force")
    assert (both["processes"], both["blocks"]) == (2, one["blocks"])
    assert both["nominal_seconds"] == pytest.approx(one["nominal_seconds"], rel=1e-3)


def damo_json(start: int, **more: Any) -> list[dict[str, Any]]:
    regions = [
        {
            "start": f"{0x5581A0000000:,}",
            "end": f"{0x5581A0004000:,}",
            "nr_accesses": {"samples": 18, "percent": None},
            "age": {"usec": None},
            "probe_hits": [],
        },
        {"start": "0", "end": f"{1 << 42:,}", "nr_accesses": {"samples": 0, "percent": None}},
    ]
    snapshot = {"start_time": str(start), "end_time": "20,420 d 1 h 2 s", "regions": regions}
    return [{"kdamond_idx": 0, "intervals": None, "snapshots": [snapshot], "target_id": 3, **more}]


def test_damos_json_and_damon_data_are_read(tune: Tune) -> None:
    start = 20420 * 86400 * 10**9 + 3600 * 10**9
    for indent in (None, 4):
        text = json.dumps(damo_json(start), indent=indent)
        summary = imported(tune, text, "damon", "--force")
        assert (summary["samples"], sorted(heat().values())) == (1, [18] * 4)
        assert summary["nominal_seconds"] == pytest.approx(2, rel=1e-3)
    packed = zlib.compress(text.encode())
    Path("damon.data").write_bytes(packed)
    assert tune("damon.data", "--format", "damon", "--force")["accesses"] == summary["accesses"]
    Path("damon.data").write_bytes(packed[:-30])
    error = tune("damon.data", "--format", "damon", "--force", code=2)
    assert error == "damon.data: damaged compressed data: the file is cut off"
    error = imported(tune, text[:-9], "damon", "--force", code=2)
    assert error.endswith("the file is cut off")
    error = imported(
        tune, text.replace('"18"', "[]").replace(": 18", ": []"), "damon", "--force", code=2
    )
    assert "found '[', expected a value of JSON" in error


@pytest.mark.parametrize("name", ["damon_aggregated", "damon_region_aggregated"])
def test_other_tracepoints_are_skipped_and_counted(tune: Tune, name: str) -> None:
    head = "kdamond.0  2210 [003] 500.{}: damon:{}: {}\n"
    region = "target_id=0 nr_regions=1 94000000000000-94000000008192: 7 0"
    other = "damon_region_aggregated" if name == "damon_aggregated" else "damon_aggregated"
    text = "cpus=4\n" + "".join(
        head.format(100 + i, event, fields)
        for i in range(3)
        for event, fields in (
            ("damon_monitor_intervals_tune", "sample_us=5000"),
            ("damos_before_apply", f"ctx_idx=0 scheme_idx=0 target_idx=0 {region[12:]}"),
            (name, region + " probe_hits=13 00"),
            (other, region),
        )
    )
    summary = imported(tune, text, "damon")
    assert (summary["samples"], summary["skipped"]) == (3, 10)
    assert sorted(heat().values()) == [21, 21]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(
            ",".join(f'"{value}"' for value in line.split(",")) + "\n" for line in text.splitlines()
        ),
        lambda text: text.replace("kind", "Kind").replace("time", "TIME"),
        lambda text: text.replace("load", "Read").replace("store", "WRITE"),
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace("8192", "8192.0"),
        lambda text: (
            "\n".join(
                ",".join([f"1764000000{int(first):09}", *rest]) if first.isdigit() else line
                for line in text.splitlines()
                for first, *rest in [line.split(",")]
            )
            + "\n"
        ),
    ],
)
def test_csv_as_other_programs_write_it_is_the_same(
    tune: Tune, change: Callable[[str], str]
) -> None:
    text = "time,address,kind\n0,8192,load\n20000000,0x1000,store\n20000100,8192,load\n"
    tune_one = imported(tune, text, "csv")
    before = (tune_one["accesses"], tune_one["blocks"], tune_one["nominal_seconds"], heat())
    after = imported(tune, change(text), "csv", "--force")
    assert change(text) != text
    assert (after["accesses"], after["blocks"], after["nominal_seconds"], heat()) == before


def test_times_that_go_back_are_told(tune: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    text = "time,address,kind\n30,4096,load\n20,4096,load\n10,4096,load\n40,4096,load\n"
    assert imported(tune, text, "csv")["late"] == 2
    assert "out of order 2 rows with a time before an earlier row's" in told(tune, capsys, "csv")


def test_a_file_of_perf_itself_names_what_prints_it(tune: Tune) -> None:
    Path("perf.data").write_bytes(b"PERFILE2" + bytes(100))
    error = tune("perf.data", "--format", "perf-script", code=2)
    assert error == "perf.data: a file of perf record: import what `perf script -i FILE` prints"


def test_addresses_may_be_hexadecimal_without_a_prefix(tune: Tune) -> None:
    """Digits alone are both, until another row has letters, or too many digits for hexadecimal."""
    rows = [(0, "100000"), (1, "7f0000007000"), (2, "102000"), (3, "0x103000")]
    text = "time,address,kind\n" + "".join(f"{time},{at},load\n" for time, at in rows)
    prefixed = text.replace(",1", ",0x1").replace(",7", ",0x7")
    assert imported(tune, text, "csv")["footprint_bytes"] == 4 * 4096
    without = Path("trace.tts").read_bytes()
    assert imported(tune, prefixed, "csv", "--force")["footprint_bytes"] == 4 * 4096
    assert Path("trace.tts").read_bytes() == without
    decimal = "time,address,kind\n0,100000,load\n1,139637976732672,load\n"
    imported(tune, decimal, "csv", "--force")
    without = Path("trace.tts").read_bytes()
    imported(tune, decimal.replace("100000", "0x186a0"), "csv", "--force")
    assert Path("trace.tts").read_bytes() == without
    error = imported(tune, decimal + "2,7f00,load\n", "csv", "--force", code=2)
    assert error.startswith("in.txt:4: found '7f00', expected a decimal address, as those above")
    error = imported(tune, text + "9,139637976732672,load\n", "csv", "--force", code=2)
    assert error.startswith("in.txt:6: found '139637976732672', expected a hexadecimal address")


def test_rows_of_a_table_are_not_said_to_be_all_accesses(
    tune: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "time,address,kind\n0,4096,load\n"
    imported(tune, text, "csv")
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert sampling.describe() == "read from csv: 1 rows, taken for all there were"
    assert "if they are a sample, --period says of how many" in told(tune, capsys, "csv")
    imported(tune, text, "csv", "--probability", "1", "--force")
    sampling = document().inputs["recorded"].sampling
    assert sampling is not None
    assert sampling.describe() == "recorded whole by csv: all 1 accesses were seen"


def test_a_page_of_so_many_stands_for_them(tune: Tune) -> None:
    """Every run of eight pages keeps one, so that a footprint is the full one, to eight pages."""
    rows = [(i, 0x7F0000000000 + page * 4096) for i in range(2) for page in range(4000)]
    text = "time,address,kind\n" + "".join(f"{time},{at},load\n" for time, at in rows)
    seen = imported(tune, text, "csv", "--scale", "8")
    assert seen["footprint_bytes"] == 4000 * 4096
    assert (seen["accesses"], seen["stood_for"]) == (1000, 7000)
    assert set(heat().values()) == {2}
    workload = catalog.workload("./trace.yaml").spec
    assert workload.scale == 8
    assert workload.footprint_gib == 4000 * 4096 / 2**30
    whole = imported(tune, text, "csv", "--force")
    assert whole["nominal_seconds"] == pytest.approx(seen["nominal_seconds"], rel=0.01)


def test_an_accessed_region_above_128_gib_needs_a_scale(tune: Tune) -> None:
    large = "000100000000-003300000000 ( 200.000 GiB)           1     0\n"
    text = damo(large + HOT, large)
    error = imported(tune, text, "damon", code=2)
    assert "an accessed region of at most 128 GiB (--scale R takes R times as much" in error
    seen = imported(tune, text, "damon", "--scale", "4096")
    pages = (200 << 30) // 4096
    assert seen["footprint_bytes"] == pytest.approx(pages * 4096, rel=1e-3)


def test_pages_here_and_there_make_a_small_trace(tune: Tune) -> None:
    rows = [(i, 0x7F0000000000 + i * (4 << 20)) for i in range(4096)]
    text = "time,address,kind\n" + "".join(f"{time},{at},load\n" for time, at in rows)
    seen = imported(tune, text, "csv")
    assert seen["footprint_bytes"] == 4096 * 4096
    # Of each 64 MiB four pieces of 16, of 32, of 64 and of 128 pages.
    assert engine.stream_info(Path("trace.tts"))["pages"] == 256 * 4 * (16 + 32 + 64 + 128)
