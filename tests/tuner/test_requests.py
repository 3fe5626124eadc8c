# SPDX-License-Identifier: MIT
"""Traces of caches: the store that answers them makes a workload whose operations are known."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner import cli, engine
from tuner.documents import catalog
from tuner.run import settings

Tune = Callable[..., Any]

# 10 keys, each asked for three times in turn.
LOOP = [f"{turn * 10 + i},k:{i},3,1000,7,get,0" for turn in range(3) for i in range(10)]


@pytest.fixture
def tune(tune: Tune) -> Tune:
    """`tune import --format requests` of a text, in an empty folder: its summary, or its error."""

    def call(content: str | bytes, *words: str, code: int = 0, cache: str = "0.01") -> Any:
        Path("in.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        command = ["import", "in.txt", "--format", "requests", "--force", *words]
        sized = ["--set", f"cache_gib={cache}"] if cache else []
        return tune(*command, *sized, code=code)

    return call


def told(tune: Tune, capsys: pytest.CaptureFixture[str], content: str, *words: str) -> str:
    Path("in.txt").write_text(content)
    command = ["import", "in.txt", "--format", "requests", "--force", *words]
    assert cli.main([*command, "--set", "cache_gib=0.01"]) == 0
    return capsys.readouterr().err


def lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


def records(*rows: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<IQIq", *row) for row in rows)


def test_hits_are_the_stores_and_operations_can_be_tuned(tune: Tune) -> None:
    seen = tune(lines(*LOOP))
    assert seen["layout"] == "Twitter's columns"
    assert (seen["requests"], seen["keys"], seen["gets"], seen["hits"]) == (30, 10, 30, 20)
    assert (seen["inserted"], seen["evicted"], seen["look_aside"]) == (10, 0, True)
    assert (seen["seconds"], seen["threads"], seen["unused"]) == (29, 16, ["client id"])
    workload = catalog.workload("./trace.yaml").spec
    assert workload.operation == "get"
    assert workload.objectives == ["throughput", "p50", "p90", "p99", "p999"]
    assert (workload.window, workload.threads) == ("steady", 16)
    info = engine.stream_info(Path("trace.tts"))
    assert info["op_kinds"] == ["get", "set", "delete"]
    sites = {o["site"]: o["pages"] for o in info["objects"]}
    assert sites["cachelib.arena"] == int(0.01 * 2**30) // 4096 + 1
    from tuner.run import runner

    for objective in ("throughput", "p99"):
        setting = settings.resolve(
            "./trace.yaml",
            policy=engine.policy("first-touch"),
            deadline_seconds=60,
            objective=objective,
            window="all",
        )
        trial = setting.trial(0, {}).model_copy(update={"coarse": True})
        result = runner.run(trial)
        assert result.error == ""
        assert result.objective is not None and result.objective > 0


def test_the_scored_part_is_all_but_the_first_quarter(tune: Tune) -> None:
    tune(lines(*LOOP))
    setting = settings.resolve("./trace.yaml", policy=engine.policy("first-touch"))
    assert setting.scenario.window == "steady"


def test_every_layout_says_the_same(tune: Tune) -> None:
    wanted = ("requests", "keys", "gets", "hits", "inserted", "evicted", "seconds")
    first = tune(lines(*LOOP))
    keyed = [row.split(",") for row in LOOP]
    table = lines(
        "op_time,key,key_size,op,op_count,size",
        *(f"{time},{key},{length},GET,1,{size}" for time, key, length, size, *_ in keyed),
    )
    named = lines(*(f"x\t{size}\t{key}\t{time}" for time, key, _, size, *_ in keyed))
    binary = records(*((int(r[0]) + 9, int(r[1][2:]), 1000, -1) for r in keyed))
    for content, words, layout in (
        (table, [], "a table with a heading"),
        (named, ["--columns=-,size,key,time"], "a table, its columns given"),
        (binary, [], "oracleGeneral"),
        (gzip.compress(binary), [], "oracleGeneral"),
    ):
        seen = tune(content, *words)
        assert seen["layout"] == layout
        assert {name: seen[name] for name in wanted} == {name: first[name] for name in wanted}


def test_nothing_is_left_out_without_a_word(tune: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        "5,a,1,100,7,set,60",
        "6,a,1,0,7,get,0",
        "65,a,1,100,7,get,0",
        "64,b,1,3000000,7,set,0",
        "70,a,1,100,7,frob,0",
        "71,a,1,100,7,delete,0",
        *("72,c,1,100,7,set,0" for _ in range(20)),
    ]
    seen = tune(lines(*rows))
    assert (seen["with_ttl"], seen["expired"], seen["hits"], seen["late"]) == (1, 1, 1, 1)
    assert (seen["too_large"], seen["unknown"], seen["deletes"], seen["deleted"]) == (1, 1, 1, 0)
    assert not seen["look_aside"]
    said = told(tune, capsys, lines(*rows))
    for text in (
        "2 look-ups (50.0 % hit), 22 sets, 1 deletes (0 of a key there)",
        "what a look-up misses is not inserted (--set look_aside)",
        "1 request with a time to live; 1 objects were found expired",
        "1 rows with an operation that the store has not, such as 'frob'",
        "1 objects above 1 MiB",
        "1 rows with a time before an earlier row's",
        "columns client id",
        "67 s of the trace in",
    ):
        assert text in said
    said = told(tune, capsys, lines("key,size", "a,0", "a,10", "b,0"))
    for text in (
        "1 look-ups without one, which other requests for their keys have",
        "1 objects whose size no request says",
        "every request is a look-up",
        "keys are as long as their text",
        "a trace without times in",
    ):
        assert text in said


def test_operations_that_no_store_has_are_dropped_and_too_many_are_refused(tune: Tune) -> None:
    tune(lines("key,size,op", *("a,10,get",) * 6, *("a,10,scan",) * 4))
    sampling = catalog.workload("./trace.yaml").spec.inputs["recorded"].sampling
    assert sampling is not None
    assert (sampling.dropped, sampling.dropped_share) == (4, 0.4)
    from tuner.errors import UserError

    with pytest.raises(UserError, match=r"dropped_share: found 0\.4"):
        settings.resolve("./trace.yaml", policy=engine.policy("first-touch"))
    error = tune(lines("version,time,op,size,key", "1,33898,2a,512,4"), code=2)
    assert "no request in 2 lines, of which 1 have an operation that no store has" in error
    assert "'2a'" in error


def test_a_miniature_has_the_full_footprint(tune: Tune) -> None:
    text = lines("key,size", *(f"{key},3000" for _ in range(2) for key in range(8000)))
    whole = tune(text, cache="0.5")
    part = tune(text, "--scale", "8", cache="0.5")
    assert part["keys"] == pytest.approx(1000, abs=100)
    assert part["hits"] * 2 == part["replayed"]
    assert part["footprint_bytes"] == pytest.approx(whole["footprint_bytes"], rel=0.15)
    workload = catalog.workload("./trace.yaml").spec
    assert workload.scale == 8
    assert engine.stream_info(Path("trace.tts"))["scale"] == 8


@pytest.mark.parametrize(
    ("words", "effect"),
    [
        (["touch_value=0"], "accesses"),
        (["populate=0"], "accesses"),
        (["look_aside=0"], "inserted"),
        (["op_ns=5000"], "nominal_seconds"),
        (["client_ns=50000"], "nominal_seconds"),
    ],
)
def test_every_option_of_the_store_has_an_effect(tune: Tune, words: list[str], effect: str) -> None:
    text = lines("key,size", *(f"{key},30000" for _ in range(2) for key in range(1000)))

    def figures(*words: str) -> dict[str, Any]:
        seen: dict[str, Any] = tune(text, *words, cache="0.1")
        return seen | engine.stream_info(Path("trace.tts"))

    usual = figures()
    assert figures(*(w for word in words for w in ("--set", word)))[effect] != usual[effect]


def test_items_that_are_not_refreshed_are_evicted_first(tune: Tune) -> None:
    """Key 0 is asked for again and again; it stays only if that moves it in its list."""
    rows = ["time,key,size"]
    for i in range(1, 4000):
        rows += [f"{i},0,1000", f"{i},{i},1000"]
    text = lines(*rows)
    often = tune(text, cache="0.001", code=0)
    never = tune(text, "--set", "lru_refresh_s=1e9", cache="0.001")
    assert never["hits"] < often["hits"] == 3998


@pytest.mark.parametrize(
    ("content", "words", "cache", "expected"),
    [
        ("a,b\n", [], "1", "in.txt:1: found 'a,b', expected a heading that names key and size"),
        ("key,size\na,x\n", [], "1", "in.txt:2: found 'x', expected an object's size"),
        ("key,size\na\n", [], "1", "in.txt:2: found 'a', expected 2 values"),
        ("key,size\na,1", [], "1", "in.txt:2: found the end of the file after 'a,1'"),
        ("key,size\na,1\n", [], "", "needs --set cache_gib=N"),
        ("key,size\na,1\n", ["--set", "cache=1"], "1", "no option 'cache'"),
        ("key,size\na,1\n", ["--set", "touch_value=0.5"], "1", "must be a whole number"),
        ("key,size\na,1\n", ["--scale", "64"], "0.01", "no key is left in a miniature"),
        (
            "key,size\n" + "".join(f"{key},1\n" for key in range(1000)),
            ["--scale", "64"],
            "0.01",
            "smaller than its largest item",
        ),
        ("key,size\na,1\n", ["--period", "3"], "1", "--period: a trace of requests has all"),
        ("key,size\na,1\n", ["--columns", "key"], "1", "no column for 'size' in 'key'"),
        ("key,size\na,1\n", ["--columns", "key,bytes"], "1", "--columns: found 'bytes'"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0", [], "1", "in.txt: compressed by zstd: `zstd -dc"),
        (records((1, 2, 3, -1))[:20], [], "1", "20 bytes after record 0, expected 24"),
        (records((1, 2, 3, -5)), [], "1", "record 1: found -5 as the number of the object's next"),
    ],
)
def test_what_is_not_understood_is_told_and_leaves_nothing(
    tune: Tune, content: str | bytes, words: list[str], cache: str, expected: str
) -> None:
    assert expected in tune(content, *words, code=2, cache=cache)
    assert [path.name for path in Path().iterdir() if path.name != "cache"] == ["in.txt"]


def test_options_of_requests_belong_to_requests(
    tune: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text("time,address,kind\n0,4096,load\n")
    for words in (["--columns", "key,size"], ["--set", "cache_gib=1"]):
        assert cli.main(["import", "in.csv", "--format", "csv", *words]) == 2
        assert f"{words[0]}: belongs to --format requests" in capsys.readouterr().err


def test_redis_answers_requests_without_evicting_anything(tune: Tune) -> None:
    """Ten keys, of 1,000 bytes and of 100,000, which get memory of their own."""
    rows = [f"{i},k:{i},3,{100_000 if i == 9 else 1000},7,set,0" for i in range(10)]
    seen = tune(lines(*rows, *LOOP, "40,k:3,3,1000,7,delete,0"), "--store", "redis", cache="")
    assert (seen["gets"], seen["hits"], seen["inserted"], seen["evicted"]) == (30, 30, 10, 0)
    assert (seen["deleted"], seen["keys"], seen["threads"]) == (1, 10, 8)
    workload = catalog.workload("./trace.yaml").spec
    assert workload.operation == "get" and "--store redis" in workload.sources[0]
    assert "answered by Redis, without a limit of memory" in workload.summary
    info = engine.stream_info(Path("trace.tts"))
    assert info["op_kinds"] == ["get", "set", "delete"]
    assert [each["name"] for each in info["classes"]] == ["value", "chain", "update"]
    sites = {each["site"] for each in info["objects"]}
    assert {"redis.heap", "redis.dict.table", "redis.value"} & sites >= {"redis.heap"}
    # A miss is inserted here, as nothing else inserts.
    seen = tune(lines(*LOOP), "--store", "redis", "--threads", "2", cache="")
    assert (seen["hits"], seen["inserted"], seen["look_aside"], seen["threads"]) == (
        20,
        10,
        True,
        2,
    )
    slow = tune(lines(*LOOP), "--store", "redis", "--set", "op_ns=100000", cache="")
    assert slow["nominal_seconds"] > 5 * seen["nominal_seconds"]


def test_options_belong_to_their_store(tune: Tune) -> None:
    assert "the store redis: no option 'cache_gib'" in tune("", "--store", "redis", code=2)
    message = tune("", "--set", "cache=1", code=2)
    assert "the store cachelib: no option 'cache'" in message
    Path("in.txt").write_text("t")
    assert cli.main(["import", "in.txt", "--format", "csv", "--store", "redis"]) == 2
