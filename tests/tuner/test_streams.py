# SPDX-License-Identifier: MIT
"""The stream cache: made once, trusted only as verified, and never blocked by a crash."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeNative

from tuner import cli, engine
from tuner.errors import UserError, WrongParameter
from tuner.run import settings, streams
from tuner.run.trial import StreamRequest
from tuner.text import size


def request_of(**options: Any) -> StreamRequest:
    policy = engine.policies()["toy"]
    request = settings.resolve("walker", policy=policy, **options).stream()
    assert isinstance(request, StreamRequest)
    return request


def cached() -> list[str]:
    return sorted(path.suffix for path in streams.folder().iterdir())


@pytest.fixture
def processes(fake: FakeNative) -> multiprocessing.context.ForkContext:
    """Children that share the fake engine."""
    return multiprocessing.get_context("fork")


def test_a_stream_is_made_once(fake: FakeNative) -> None:
    told: list[float] = []
    path = streams.ensure(request_of(), progress=told.append)
    assert path.read_text().startswith("stream walk")
    assert told == [0.5, 1.0]
    assert streams.ensure(request_of(), progress=told.append) == path
    assert fake.recorded() == 1
    assert told == [0.5, 1.0]


def test_another_request_is_another_stream(fake: FakeNative) -> None:
    paths = {
        streams.ensure(r)
        for r in (request_of(), request_of(input="small"), request_of(stream_seed=1))
    }
    assert len(paths) == fake.recorded() == 3


def test_many_processes_make_it_once(
    fake: FakeNative, processes: multiprocessing.context.ForkContext
) -> None:
    together = processes.Barrier(4)
    request = request_of()

    def work() -> None:
        together.wait()
        streams.ensure(request)

    workers = [processes.Process(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert fake.recorded() == 1


def test_waiting_for_another_maker_is_told(
    fake: FakeNative, processes: multiprocessing.context.ForkContext
) -> None:
    started, finish = processes.Event(), processes.Event()
    request = request_of()

    def slow_record(partial: Path) -> None:
        started.set()
        finish.wait()

    def work() -> None:
        fake.on_record = slow_record
        streams.ensure(request)

    worker = processes.Process(target=work)
    worker.start()
    started.wait()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        finish.set()

    streams.ensure(request, note=note)
    worker.join()
    assert notes == ["another process is making the same stream; waiting for it"]
    assert fake.recorded() == 1


def test_a_killed_maker_leaves_nothing_that_blocks(
    fake: FakeNative, processes: multiprocessing.context.ForkContext
) -> None:
    request = request_of()

    def work() -> None:
        fake.on_record = lambda partial: os.kill(os.getpid(), signal.SIGKILL)
        streams.ensure(request)

    worker = processes.Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    assert ".partial" in cached()
    assert streams.entries() == []
    assert streams.size() > 0
    streams.ensure(request)
    assert cached() == [".json", ".lock", ".tts"]


def test_a_changed_file_is_verified_and_made_again(fake: FakeNative) -> None:
    path = streams.ensure(request_of())
    path.write_text("rotten")
    notes: list[str] = []
    streams.ensure(request_of(), note=notes.append)
    assert path.read_text().startswith("stream ")
    assert fake.recorded() == 2
    assert notes == [f"{path}: checksum of block 0 is wrong; making it again"]


def test_check_reads_a_stream_and_makes_it_again(fake: FakeNative, run: Any) -> None:
    path = streams.ensure(request_of())
    found = run("check", str(path), "--json")
    assert (found.code, found.json["stream"], found.json["problems"]) == (0, str(path), [])
    good = path.read_text()
    path.write_text("rotten")
    problem, remedy = f"{path}: checksum of block 0 is wrong", "make the stream again"
    found = run("check", str(path))
    assert (found.code, found.out) == (1, f"{problem}\n")
    assert found.err == f"tune: note: --repair would {remedy}\n"
    assert (path.read_text(), fake.recorded()) == ("rotten", 1)
    found = run("check", str(path), "--repair", "--json")
    assert found.json == {"stream": str(path), "problems": [], "remedies": [], "mended": [remedy]}
    assert (found.code, path.read_text(), fake.recorded()) == (0, good, 2)


def test_check_tells_that_a_recording_cannot_be_mended(
    fake: FakeNative, run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mine.tts"
    path.write_text("rotten")
    found = run("check", str(path), "--repair", "--json")
    assert (found.code, found.json["remedies"], found.json["mended"]) == (1, [], [])
    problem = f"{path}: checksum of block 0 is wrong"
    assert found.json["problems"] == [f"{problem}; it is a recording, and cannot be made again"]
    assert path.read_text() == "rotten"


def test_check_names_what_removes_a_stream_of_another_engine(
    fake: FakeNative, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = streams.ensure(request_of())
    path.write_text("rotten")
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-2")
    found = run("check", str(path), "--repair", "--json")
    assert (found.code, found.json["mended"]) == (1, [])
    assert found.json["problems"][0].endswith("; `tune cache clear --stale` removes it")
    run("cache", "clear", "--stale")
    assert not path.exists()


def test_a_file_to_verify_anew_is_made_again_if_it_is_bad(fake: FakeNative) -> None:
    path = streams.ensure(request_of())
    streams.invalidate(request_of())
    streams.ensure(request_of())
    assert fake.recorded() == 1
    identity = path.stat()
    path.write_text("x" * identity.st_size)
    os.utime(path, ns=(identity.st_atime_ns, identity.st_mtime_ns))
    streams.invalidate(request_of())
    streams.ensure(request_of())
    assert fake.recorded() == 2


def test_verifying_names_file_and_block(tmp_path: Path) -> None:
    """On the real engine."""
    path = tmp_path / "a.tts"
    with pytest.raises(UserError, match=rf"{path}: cannot open"):
        streams.verify(path)
    engine.native().record(
        "gups", workload="w", input="i", path=str(path), scale=4096.0, page_bytes=4096, threads=4.0,
        llc_bytes=1 << 20, seed=0, parameters={"memory_gib": 1, "hot_gib": 0.25, "updates_g": 0.1},
        progress=None,
    )  # fmt: skip
    streams.verify(path)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{path}: corrupt stream: block 0: checksum$"):
        streams.verify(path)


def test_a_touched_but_good_file_is_kept(fake: FakeNative) -> None:
    path = streams.ensure(request_of())
    os.utime(path, (1, 1))
    streams.ensure(request_of())
    assert fake.recorded() == 1
    os.utime(path, (1, 1))
    path.with_suffix(".json").write_text("{half")
    path.with_suffix(".json.7.partial").write_text("{half")
    assert streams.ensure(request_of()) == path
    assert fake.recorded() == 1
    assert cached() == [".json", ".lock", ".tts"]


def test_a_full_disk_is_one_clear_error(fake: FakeNative) -> None:
    def fail(partial: Path) -> None:
        partial.write_bytes(b"x" * 1000)
        partial.unlink()
        raise RuntimeError(f"{partial}: cannot write: No space left on device")

    fake.on_record = fail
    with pytest.raises(UserError) as caught:
        streams.ensure(request_of())
    message = str(caught.value)
    assert f"the disk of the stream cache {streams.folder()} is full" in message
    assert "free, the stream of walker (big) needs about 8 B" in message  # 4 B were half of it
    assert "TIERTUNE_CACHE" in message


def test_a_failing_disk_is_one_clear_error(fake: FakeNative) -> None:
    def fail(partial: Path) -> None:
        partial.unlink(missing_ok=True)
        final = partial.with_name(partial.name.split(".")[0] + ".tts")
        raise RuntimeError(f"{final}: cannot write: Input/output error")

    fake.on_record = fail
    with pytest.raises(UserError, match=r"^/.*\.tts: cannot write: Input/output error$"):
        streams.ensure(request_of())


def test_an_unusable_folder_is_one_clear_error(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIERTUNE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"cannot use the stream cache .*/file/cache: Not a dir"):
        streams.ensure(request_of())


def test_a_bad_parameter_is_the_users_error(fake: FakeNative) -> None:
    def fail(partial: Path) -> None:
        raise ValueError("keys: found 5, expected at least 10")

    fake.on_record = fail
    with pytest.raises(UserError, match="workload walker, input big: keys: found 5"):
        streams.ensure(request_of())


def test_a_parameter_that_the_kernel_refuses_is_named_with_its_place(
    fake: FakeNative, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(partial: Path) -> None:
        raise ValueError("walker: parameter keys: found 5, allowed 10 to 20")

    fake.on_record = fail
    written = (user_folder / "workloads/walker.yaml").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(written) if "keys:" in text)
    for given in ("walker", "workloads/walker.yaml"):
        assert cli.main(["sim", "--workload", given, "--input", "big", "--policy", "toy"]) == 2
        assert re.search(
            rf"error: \S*workloads/walker.yaml:{line}: workload walker, input big: "
            "walker: parameter keys: found 5, allowed 10 to 20$",
            capsys.readouterr().err.strip(),
        )
    error = pickle.loads(pickle.dumps(WrongParameter("what", ("inputs", 0))))
    assert str(error) == "what" and error.key == ("inputs", 0)


def test_entries_and_clear(fake: FakeNative, monkeypatch: pytest.MonkeyPatch) -> None:
    streams.ensure(request_of())
    streams.ensure(request_of(input="small"))
    found = {entry.request.input: entry for entry in streams.entries()}
    assert found.keys() == {"big", "small"}
    assert not found["big"].stale
    assert sum(entry.bytes for entry in found.values()) == streams.size()

    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-2")
    streams.ensure(request_of())
    assert sorted(entry.stale for entry in streams.entries()) == [False, True, True]
    count, freed = streams.clear(only_stale=True)
    assert count == 2
    assert freed > 0
    assert [entry.request.maker for entry in streams.entries()] == ["maker-2"]
    assert streams.clear()[0] == 1
    assert list(streams.folder().iterdir()) == []
    assert streams.clear() == (0, 0)


def test_clear_spares_what_is_being_made(fake: FakeNative) -> None:
    cleared: list[tuple[int, int]] = []
    fake.on_record = lambda partial: cleared.append(streams.clear())
    path = streams.ensure(request_of())
    assert cleared == [(0, 0)]
    assert path.exists()


def aged(request: StreamRequest, seconds: int) -> StreamRequest:
    """As if it had been used so long ago."""
    note = streams.path_of(request).with_suffix(".json")
    os.utime(note, (note.stat().st_mtime - seconds,) * 2)
    return request


def keys() -> set[str]:
    return {path.stem for path in streams.folder().glob("*.tts")}


def test_the_cache_is_pruned_to_its_limit(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [request_of(stream_seed=seed) for seed in range(4)]
    for request in seeds[:3]:
        streams.ensure(request)
        aged(request, 1000 - 100 * request.seed)
    streams.ensure(seeds[0])  # used just now
    each = max(entry.bytes for entry in streams.entries())
    monkeypatch.setenv("TIERTUNE_CACHE_GIB", str(3.5 * each / (1 << 30)))
    streams.ensure(seeds[3])
    assert keys() == {seeds[i].key for i in (0, 2, 3)}


def test_what_is_stale_or_unknown_is_pruned_first(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-0")
    stale = request_of()
    streams.ensure(stale)
    (streams.folder() / "0123456789abcdef.tts").write_text("of another version" * 50)
    (streams.folder() / "0123456789abcdef.json").write_text("{}")
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-1")
    fresh = request_of(stream_seed=1)
    streams.ensure(fresh)
    aged(fresh, 1000)
    assert len(keys()) == 3
    each = max(entry.bytes for entry in streams.entries())
    monkeypatch.setenv("TIERTUNE_CACHE_GIB", str(2.5 * each / (1 << 30)))
    last = request_of(stream_seed=2)
    streams.ensure(last)
    assert keys() == {fresh.key, last.key}


def test_a_stream_larger_than_the_limit_is_kept(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE_GIB", "1e-9")
    path = streams.ensure(request_of())
    assert path.exists()
    assert streams.ensure(request_of()) == path
    assert fake.recorded() == 1


@pytest.mark.parametrize("limit", ["lots", "0", "-1", "nan"])
def test_a_bad_limit_is_named(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE_GIB", limit)
    with pytest.raises(UserError, match=f"TIERTUNE_CACHE_GIB: found '{limit}'; must be a number"):
        streams.ensure(request_of())


def test_a_full_disk_makes_stale_streams_go(
    fake: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-0")
    stale = streams.ensure(request_of())
    monkeypatch.setattr(fake, "stream_id", lambda kernel: "maker-1")
    fresh = streams.ensure(request_of(input="small"))

    def fail(partial: Path) -> None:
        if stale.exists():
            raise RuntimeError(f"{partial}: cannot write: No space left on device")

    fake.on_record = fail
    path = streams.ensure(request_of())
    assert path.exists()
    assert fresh.exists()
    assert not stale.exists()


def test_the_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIERTUNE_CACHE", "own")
    assert streams.folder() == Path.cwd() / "own"
    monkeypatch.delenv("TIERTUNE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert streams.folder() == tmp_path / "tiertune"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert streams.folder() == tmp_path / ".cache" / "tiertune"


def test_human_sizes() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1.5 * 2**20, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "3.0 TiB",
    ]
