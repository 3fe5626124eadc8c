# SPDX-License-Identifier: MIT
"""Access streams: each is made once and cached, or was recorded; all workers map its file.

An entry is `KEY.tts` (the stream) and `KEY.json` (what it was made from, the processor time that
took, and the size and time of the file that was verified). A file that has the size and time of
its note is used without being read first: the engine checks each block when a process reads it for
the first time. Any other file is verified as a whole, and made again if it is bad. So is one in
which a trial has found a bad block, or on which a trial's process has died (`invalidate`).
`KEY.lock` is held (flock) while an entry is made, so a maker that dies leaves nothing that blocks
the next.

The cache is kept below a limit ($TIERTUNE_CACHE_GIB): whenever a stream was made, streams that no
installed kernel would make again go first, then those that were not used for longest.

A recording stays where it is, the user's own file; of it the cache only has the note.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import engine, foreign, terminal, text
from tuner.documents.reading import read_json
from tuner.errors import UserError, WrongParameter
from tuner.files import make_room, plain, write_atomically
from tuner.run.trial import RecordedStream, Stream, StreamRequest

Progress = Callable[[float], None]

PARAMETER = re.compile(r"\bparameter (\w+): ")
"""In a kernel's complaint."""
LARGEST_NOTE = 1_000_000
"""Bytes."""


class CorruptStream(UserError):
    """A file is not the stream that it should be. The message names it, the block, and what is
    wrong."""


@dataclass(frozen=True)
class CacheEntry:
    """One cached stream. `bytes` is what its files take on disk, `used` when it was last asked for
    (seconds since the epoch)."""

    key: str
    path: Path
    request: StreamRequest
    bytes: int
    used: float

    @property
    def stale(self) -> bool:
        """Made by another kernel or recorder than this engine's: it will not be used again."""
        try:
            return self.request.maker != engine.stream_id(self.request.kernel)
        except ValueError:  # a kernel that is gone
            return True


def folder() -> Path:
    """$TIERTUNE_CACHE, else tiertune in $XDG_CACHE_HOME, else in ~/.cache."""
    if own := os.environ.get("TIERTUNE_CACHE"):
        return Path(own).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "tiertune"
    if (home := foreign.home()) is None:
        raise UserError(
            f"no folder for the stream cache: HOME is not set, and the user {os.getuid()} has no "
            "home folder; set TIERTUNE_CACHE to a folder that can be written"
        )
    return home / ".cache" / "tiertune"


def path_of(request: Stream) -> Path:
    if isinstance(request, RecordedStream):
        return Path(request.trace)
    return folder() / f"{request.key}.tts"


def ensure(
    request: Stream,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Path:
    """The stream's file, made now if it is not there.

    `progress` is called with the fraction done; `note` with one line when another process is making
    the stream, or when a bad file is replaced. UserError when it cannot be made, or is a
    recording whose content has changed.
    """
    path = path_of(request)
    if _trusted(request):
        _mark_used(request)
        return path
    limit = limit_bytes()
    _make_folder()
    with _lock(request.key, note):
        if _trusted(request):
            return path
        for leftover in folder().glob(f"{request.key}.*partial"):  # of a maker that was killed
            leftover.unlink(missing_ok=True)
        if isinstance(request, RecordedStream):
            _check_recorded(request)
            return path
        if path.exists():
            try:
                verify(path)
            except CorruptStream as error:
                if note:
                    note(f"{error}; making it again")
                invalidate(request)
                path.unlink(missing_ok=True)
        seconds = None
        if not path.exists():
            started = time.process_time()
            _make(request, path, progress)
            seconds = time.process_time() - started
            verify(path)
        _write_note(request, _identity(path), seconds)
    _prune(limit, keep=request.key)
    return path


def prepare(request: Stream) -> Path:
    """As `ensure`, and shows progress on standard error."""
    with terminal.progress(f"making the stream of {request.workload} ({request.input})") as update:
        return ensure(request, progress=update, note=terminal.say)


DEFAULT_LIMIT_GIB = 32.0
"""Holds the default inputs of all shipped workloads, with some room."""


def limit_bytes() -> float:
    """What the cache may take on disk: $TIERTUNE_CACHE_GIB."""
    text = os.environ.get("TIERTUNE_CACHE_GIB")
    try:
        limit = float(text) if text else DEFAULT_LIMIT_GIB
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise UserError(f"TIERTUNE_CACHE_GIB: found '{text}'; must be a number above 0")
    return limit * (1 << 30)


def _prune(limit: float, keep: str) -> None:
    excess = size() - limit
    if excess <= 0:
        return
    by_use = sorted(entries(), key=lambda entry: entry.used)
    for key in dict.fromkeys([*_stale_keys(), *(entry.key for entry in by_use)]):
        if excess > 0 and key != keep:
            excess -= _remove(key)[1]


def _stale_keys() -> list[str]:
    """Streams of another kernel or recorder, or of a cache of another version."""
    fresh = {entry.key for entry in entries() if not entry.stale}
    return sorted({path.stem for path in folder().glob("*.tts")} - fresh)


def _mark_used(request: Stream) -> None:
    with suppress(OSError):  # a cache that cannot be written is not pruned either
        os.utime(_note_of(request))


def is_ready(request: Stream) -> bool:
    """Whether `ensure` would neither make nor verify anything."""
    return _trusted(request)


def making_seconds(request: Stream) -> float | None:
    """Processor time that making the stream took, where it is known."""
    seconds = _noted(_note_of(request)).get("making_seconds")
    return float(seconds) if isinstance(seconds, int | float) else None


def remove(request: StreamRequest) -> None:
    """Removes a stream from the cache, unless a process is making it."""
    _remove(request.key)


def _check_recorded(request: RecordedStream) -> None:
    path = Path(request.trace)
    try:
        before = _identity(path)
    except OSError as error:
        raise CorruptStream(
            f"{path}: {error.strerror}; it is a recording, and cannot be made again"
        ) from error
    try:
        found = engine.stream_info(path)["identity"]
        verify(path)
    except UserError as error:
        raise CorruptStream(f"{error}; it is a recording, and cannot be made again") from error
    if found != request.content:
        raise CorruptStream(
            f"{path}: not the recording that was asked for, or changed since: its content is "
            f"{found}, not {request.content}"
        )
    _write_note(request, before)


def verify(path: Path) -> None:
    """Reads the whole stream. CorruptStream naming the file, the block, and what is wrong."""
    try:
        engine.native().verify_stream(str(path))
    except RuntimeError as error:
        text = str(error)
        raise CorruptStream(text if str(path) in text else f"{path}: {text}") from error


def invalidate(request: Stream) -> None:
    """The next `ensure` verifies the file whatever its note says."""
    with suppress(OSError):  # in a cache that cannot be written nothing can be made again either
        _note_of(request).unlink(missing_ok=True)


def entries() -> list[CacheEntry]:
    """All finished streams, largest first."""
    found = []
    for path in folder().glob("*.tts"):
        try:
            note = path.with_suffix(".json")
            request = StreamRequest.model_validate(_noted(note).get("request"))
            noted = note.stat()
            size = path.stat().st_size + noted.st_size
        except (OSError, ValueError):
            continue  # removed meanwhile, being made, or damaged
        found.append(CacheEntry(path.stem, path, request, size, noted.st_mtime))
    return sorted(found, key=lambda entry: (-entry.bytes, entry.key))


def size() -> int:
    """Bytes of everything in the cache, unfinished files included."""
    return sum(_size(path) for path in _files())


def clear(*, only_stale: bool = False) -> tuple[int, int]:
    """Removes the streams that no process is making; returns how many, and the bytes freed.

    A stream in use stays readable for the processes that have mapped it.
    """
    stale = _stale_keys()
    streams, freed = 0, 0
    for key in sorted({path.name.split(".")[0] for path in _files()}):
        if only_stale and key not in stale:
            continue
        removed, size = _remove(key)
        streams += removed
        freed += size
    return streams, freed


def _remove(key: str) -> tuple[int, int]:
    """Removes an entry that no process is making; returns how many streams, and the bytes freed."""
    streams, freed = 0, 0
    with _try_lock(key) as mine:
        for path in list(folder().glob(f"{key}.*")) if mine else ():
            streams += path.suffix == ".tts"
            freed += _size(path)
            path.unlink(missing_ok=True)
    return streams, freed


def _files() -> list[Path]:
    return [
        path
        for path in folder().glob("*")
        if path.suffix in (".tts", ".json", ".lock", ".partial") and path.is_file()
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _note_of(request: Stream) -> Path:
    return folder() / f"{request.key}.json"


def _trusted(request: Stream) -> bool:
    path = path_of(request)
    try:
        return bool(_noted(_note_of(request)).get("file") == _identity(path))
    except OSError:
        return False


def _noted(note: Path) -> dict[str, Any]:
    """What a note says; nothing if it cannot be read, so that the file is verified and the note
    written again."""
    try:
        found = read_json(note, LARGEST_NOTE)
    except UserError:
        return {}
    return found if isinstance(found, dict) else {}


def _identity(path: Path) -> dict[str, Any]:
    """What distinguishes a file from one that replaces it."""
    found = path.stat()
    return {"path": str(path), "bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def _write_note(request: Stream, file: dict[str, Any], seconds: float | None = None) -> None:
    rounded = None if seconds is None else round(seconds, 1)
    content = {"request": request.model_dump(), "file": file, "making_seconds": rounded}
    note = _note_of(request)
    try:
        make_room(note)
        write_atomically(note, json.dumps(content, indent=1))
    except OSError as error:
        raise unusable(error) from error


def _make_folder() -> None:
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(error) from error


def unusable(error: OSError) -> UserError:
    """The error of a cache folder that cannot be used."""
    return UserError(
        f"cannot use the stream cache {folder()}: {error.strerror}; set TIERTUNE_CACHE to a folder "
        "that can be written"
    )


class _DiskFull(Exception):
    """`free` bytes without the unfinished file, `needed` in all; if not `known`, at least these."""

    def __init__(self, free: float, needed: float, known: bool) -> None:
        self.free, self.needed, self.known = free, needed, known


def _make(request: StreamRequest, path: Path, progress: Progress | None) -> None:
    if request.maker != (own := engine.stream_id(request.kernel)):
        raise UserError(
            f"the stream of {request.workload} ({request.input}) is to be made by kernel "
            f"{request.kernel} with the id {request.maker}, but this engine's has {own}; install "
            "the same version on every host"
        )
    try:
        try:
            _run_kernel(request, path, progress)
        except _DiskFull:
            if not clear(only_stale=True)[0]:
                raise
            _run_kernel(request, path, progress)
    except _DiskFull as full:
        about = f"needs {'about' if full.known else 'more than'} {text.size(full.needed)}"
        raise UserError(
            f"the disk of the stream cache {folder()} is full: {text.size(full.free)} free, the "
            f"stream of {request.workload} ({request.input}) {about}; free some space (`tune cache "
            "clear` removes cached streams), or set TIERTUNE_CACHE to a folder on another disk"
        ) from full.__cause__


def _run_kernel(request: StreamRequest, path: Path, progress: Progress | None) -> None:
    written, fraction = 0, 0.0

    def watch(done: float) -> bool:
        nonlocal written, fraction
        if done >= fraction + 0.01:
            fraction = done
            written = sum(_size(partial) for partial in folder().glob(f"{request.key}.*partial"))
        if progress:
            progress(done)
        return True

    try:
        engine.native().record(
            request.kernel,
            workload=request.workload,
            input=request.input,
            parameters=request.parameters,
            scale=request.scale,
            page_bytes=request.page_bytes,
            threads=request.threads,
            llc_bytes=request.llc_bytes,
            seed=request.seed,
            path=str(path),
            progress=watch,
        )
    except ValueError as error:
        message = f"workload {request.workload}, input {request.input}: {error}"
        if named := PARAMETER.search(str(error)):
            key = ("inputs", request.input, "parameters", named[1])
            raise WrongParameter(message, key) from error
        raise UserError(message) from error
    except (RuntimeError, OSError) as error:
        if os.strerror(errno.EFBIG) in str(error):
            raise UserError(f"{error}: `ulimit -f` of this shell allows no larger file") from error
        if os.strerror(errno.ENOSPC) not in str(error):
            if str(error).startswith(str(path)):  # what the system says of the file
                raise UserError(str(error)) from error
            raise
        free = shutil.disk_usage(folder()).free + written
        known = fraction > 0.01
        raise _DiskFull(free, written / fraction if known else written, known) from error


@contextmanager
def _lock(key: str, note: Callable[[str], None] | None) -> Iterator[None]:
    """Waits for the lock of an entry."""
    path = folder() / f"{key}.lock"
    while True:
        try:
            handle = plain(path, "ab")
        except OSError as error:
            raise unusable(error) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if note:
                    note("another process is making the same stream; waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _same_file(handle.fileno(), path):  # else `clear` removed it while we waited
                yield
                return


@contextmanager
def _try_lock(key: str) -> Iterator[bool]:
    """Whether no process makes the entry, nor will before the end of the block."""
    with plain(folder() / f"{key}.lock", "ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
