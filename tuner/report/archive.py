# SPDX-License-Identifier: MIT
"""A study as one file, to be kept or sent elsewhere: a gzipped tar whose bytes depend on the study
alone.

    manifest.json     the format, the study, its engine, what is not included, and the size and
                      SHA-256 of each file, in the order in which they follow
    study/...         the study's files

Nobody knows who made a file that is unpacked. Only plain files of these names are accepted, in the
order and with the sizes of the manifest, so that no path leads anywhere else and no size is a
surprise. What a study's log says in another form (the report, best.yaml) is there for other
readers: it is made again from the log, not taken. What `tune verify` found is in no log, and is
taken as the log is: by what its form allows. A study appears in its place when all of it was
checked and is on the disk.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Annotated, BinaryIO

from pydantic import Field, ValidationError

from tuner.documents import catalog
from tuner.documents.catalog import Kind
from tuner.documents.reading import is_file, opened, parse_model
from tuner.errors import UserError, brief
from tuner.files import (
    PARTIAL,
    atomically,
    plain,
    process_of,
    remove_leftovers,
    runs,
    sync_directory,
)
from tuner.limits import MOST_BUDGET
from tuner.model import Model, Name
from tuner.report import page
from tuner.study import best, check, events, lock, log, moved, public, verified
from tuner.study.events import first_problem
from tuner.study.log import StudyData
from tuner.study.request import StudyRequest
from tuner.text import size

FORMAT = 1
SUFFIX = ".tar.gz"
MANIFEST = "manifest.json"
FOLDER = "study"

KEPT = (log.HEADER, log.EVENTS, check.ASIDE, verified.FILE, verified.BEST)
"""Of a study's folder, what a study is and what a real kernel said of it, beside the time
series."""

FILES = (*KEPT, best.FILE, best.MINIMAL, page.PAGE, page.BARS, verified.PICTURE)
"""With what is made from those, and is not taken from somebody else."""

ALLOWED = re.compile(
    f"{'|'.join(map(re.escape, FILES))}|{log.SERIES}/[0-9]{{4,7}}\\.json"
    f"|{best.FRONT}/trial-[0-9]{{4,7}}\\.yaml"
)

LARGEST = events.LARGEST_LOG
"""Bytes of a file."""
SMALLER = {
    log.HEADER: moved.LARGEST,
    log.SERIES: log.LARGEST_SERIES,
    **dict.fromkeys(verified.FILES, verified.LARGEST),
}
"""Of some, the series among them."""
MOST = 4 << 30
"""Bytes of all files."""
LARGEST_MANIFEST = 32 << 20
MOST_VALUES = 10 * MOST_BUDGET
"""Of the manifest, which has five for each file."""

BLOCK = tarfile.BLOCKSIZE
CHUNK = 1 << 20


Source = Path | bytes


class FileEntry(Model):
    bytes: Annotated[int, Field(ge=0, le=LARGEST)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Model):
    """`not_included` has files that `tune run --resume` needs: documents of the user's own, and
    recordings."""

    format: int
    study: Name
    engine_version: str
    engine_build: str
    trials: int
    not_included: list[str]
    files: dict[str, FileEntry]


# --- Export ---------------------------------------------------------------------------------------


def default_file(study: str) -> Path:
    """Where a study is exported to; a name has at most 255 bytes."""
    return Path(f"{study}{SUFFIX}")


def pack(directory: Path, file: Path) -> Manifest:
    """Writes the archive of a study. UserError if the study cannot be read, a process is writing
    it, it is too large, or the file cannot be written."""
    with lock.undisturbed(directory):
        data = log.load(directory)
        contents = dict(_contents(data))
        for name, content in public.without_passwords(directory).items():
            contents[name] = (content, len(content))
        request = data.header.request
        manifest = Manifest(
            format=FORMAT,
            study=request.study,
            engine_version=request.engine_version,
            engine_build=request.engine_build,
            trials=len(data.done),
            not_included=not_included(request),
            files={name: _entry(path, length) for name, (path, length) in contents.items()},
        )
        if (total := _total(manifest)) > MOST:
            raise UserError(f"{directory}: {size(total)}; an archive holds at most {size(MOST)}")
        try:
            _write(file, manifest, contents)
            with suppress(OSError):  # it is written; what is left over waits for the next time
                remove_leftovers(file.parent)
        except OSError as error:
            raise UserError(f"cannot write {file}: {error.strerror}") from error
    return manifest


def _contents(data: StudyData) -> Iterator[tuple[str, tuple[Source, int]]]:
    """Each file's name, where its content is, and how much of that counts."""
    files = (log.series_file(data.directory, trial) for trial in data.with_series)
    series = [f"{log.SERIES}/{file.name}" for file in files]
    made = sorted((data.directory / best.FRONT).glob("trial-*.yaml"))
    front = [name for path in made if ALLOWED.fullmatch(name := f"{best.FRONT}/{path.name}")]
    for name in (*FILES, *front, *series):
        path = data.directory / name
        if not os.path.lexists(path):
            continue
        with opened(path, follow=False) as file:
            length = os.fstat(file.fileno()).st_size
        if name == log.EVENTS:  # without what a process that was killed has left of a line
            length = data.length
        if length > (most := largest(name)):
            raise UserError(f"{path}: {size(length)}; in an archive it has at most {size(most)}")
        yield name, (path, length)


def largest(name: str) -> int:
    """Bytes that a file may have."""
    return SMALLER.get(name.partition("/")[0], LARGEST)


def not_included(request: StudyRequest) -> list[str]:
    """What a study needs that neither its folder nor the package has."""
    scenario, input = request.scenario, request.workload.inputs[request.scenario.input]
    found = []
    for kind, name, load, fingerprint in (
        (Kind.workload, scenario.workload, catalog.workload, request.workload.fingerprint()),
        (Kind.machine, scenario.machine, catalog.machine, request.machine.fingerprint()),
        (
            Kind.space,
            request.space_argument or request.policy.name,
            catalog.space,
            request.space.fingerprint(),
        ),
    ):
        shipped = catalog.packaged_folder(kind) / f"{name}.yaml"  # a path stays itself
        try:
            same = shipped.is_file() and load(str(shipped)).spec.fingerprint() == fingerprint
        except UserError:
            same = False
        if catalog.absolute(name) or not same:
            found.append(f"{kind.name} {name}")
    if scenario.placement:
        found.append(f"placement {scenario.placement}")
    if request.workload.kernel is None and input.trace is not None:
        found.append(f"recording {input.trace}")
    return found


def _source(source: Source) -> AbstractContextManager[BinaryIO]:
    return io.BytesIO(source) if isinstance(source, bytes) else opened(source, follow=False)


def _entry(source: Source, length: int) -> FileEntry:
    digest = hashlib.sha256()
    with _source(source) as file:
        for chunk in _chunks(file, length):
            digest.update(chunk)
    return FileEntry(bytes=length, sha256=digest.hexdigest())


def _write(path: Path, manifest: Manifest, contents: dict[str, tuple[Source, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomically(path) as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
    ):
        text = (manifest.model_dump_json(indent=1) + "\n").encode()
        _add(packed, MANIFEST, io.BytesIO(text), len(text))
        for name, (source, length) in contents.items():
            with _source(source) as file:
                _add(packed, f"{FOLDER}/{name}", file, length)
        packed.write(bytes(2 * BLOCK))


def _add(packed: gzip.GzipFile, name: str, file: IO[bytes], length: int) -> None:
    head = tarfile.TarInfo(name)
    head.size = length
    packed.write(head.tobuf(tarfile.USTAR_FORMAT))
    for chunk in _chunks(file, length):
        packed.write(chunk)
    packed.write(bytes(-length % BLOCK))


def _chunks(file: IO[bytes] | gzip.GzipFile, length: int) -> Iterator[bytes]:
    """So many bytes. EOFError if there are fewer."""
    while length:
        chunk = file.read(min(CHUNK, length))
        if not chunk:
            raise EOFError
        length -= len(chunk)
        yield chunk


def _total(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.files.values())


# --- Unpack ---------------------------------------------------------------------------------------


def unpack(file: Path, out: Path) -> tuple[Path, Manifest]:
    """Puts the study of an archive into a folder of studies, without what is made from its log;
    returns its place. UserError if the archive is damaged or none, or there is a study of that
    name; nothing is left behind then."""
    with _opened(file) as packed:
        manifest = _manifest(file, packed)
        place = out / manifest.study
        if os.path.lexists(place):
            raise UserError(
                f"{place} exists, and {file} has a study of that name; unpack it into another "
                "folder with --out"
            )
        with _workshop(out, manifest) as folder:
            for name, entry in manifest.files.items():
                kept = name in KEPT or name.startswith(f"{log.SERIES}/")
                _extract(file, packed, entry, name, folder / name if kept else None)
            if packed.read(2 * BLOCK + 1) != bytes(2 * BLOCK) or packed.read(1):
                raise _Unfit(f"{file}: there is more in it than {MANIFEST} says")
            _check(file, folder, manifest)
            for each in (folder / log.SERIES, folder):
                sync_directory(each)
            try:
                folder.rename(place)
            except OSError as error:
                raise UserError(f"cannot make {place}: {error.strerror}") from error
        sync_directory(out)
    return place, manifest


class _Unfit(UserError):
    """An archive is damaged, or not one of ours."""


@contextmanager
def _opened(file: Path) -> Iterator[gzip.GzipFile]:
    """What the file holds, decompressed as it is read. All that a damaged one may raise is one
    error."""
    if not is_file(file):
        what = "not a file" if file.exists() else "no such file"
        raise UserError(f"{brief(str(file), 300)}: {what}; `tune export` makes such a file")
    try:
        with opened(file) as raw, gzip.GzipFile(fileobj=raw) as packed:
            yield packed
    except EOFError as error:
        raise _Unfit(f"{file}: its end is missing; copy it again") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise _Unfit(f"{file}: damaged, or no archive of `tune export` ({error})") from error


def _head(file: Path, packed: gzip.GzipFile) -> tarfile.TarInfo:
    """The next member, which must be a plain file."""
    block = b"".join(_chunks(packed, BLOCK))
    try:
        head = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
        raise _Unfit(f"{file}: damaged, or no archive of `tune export` ({error})") from error
    if head.type != tarfile.REGTYPE:
        raise _Unfit(f"{file}: {brief(repr(head.name))} is not a plain file; all must be")
    return head


def _manifest(file: Path, packed: gzip.GzipFile) -> Manifest:
    head = _head(file, packed)
    if head.name != MANIFEST or not 0 <= head.size <= LARGEST_MANIFEST:
        raise _Unfit(
            f"{file}: begins with {brief(repr(head.name))} of {head.size} bytes; must begin with "
            f"{MANIFEST} of at most {size(LARGEST_MANIFEST)}"
        )
    text = b"".join(_chunks(packed, head.size))
    _skip_padding(packed, head.size)
    try:
        manifest = parse_model(text, Manifest, MOST_VALUES)
    except ValidationError as error:
        raise _Unfit(f"{file}: {MANIFEST}: {first_problem(error)}") from error
    except ValueError as error:
        raise _Unfit(f"{file}: {MANIFEST}: {error}") from error
    if manifest.format != FORMAT:
        raise UserError(f"{file}: format {manifest.format}; this version reads {FORMAT}")
    for name, entry in manifest.files.items():
        if not ALLOWED.fullmatch(name):
            raise _Unfit(f"{file}: found {brief(repr(name))}, which is no file of a study")
        if entry.bytes > (most := largest(name)):
            raise _Unfit(f"{file}: {name} has {size(entry.bytes)}; may have at most {size(most)}")
    if log.HEADER not in manifest.files:
        raise _Unfit(f"{file}: has no {log.HEADER}")
    if (total := _total(manifest)) > MOST:
        raise _Unfit(f"{file}: holds {size(total)}; may hold at most {size(MOST)}")
    return manifest


def _extract(
    file: Path, packed: gzip.GzipFile, entry: FileEntry, name: str, path: Path | None
) -> None:
    """The next member, which must be the named one, to a path; only checked if there is none."""
    head = _head(file, packed)
    if (head.name, head.size) != (f"{FOLDER}/{name}", entry.bytes):
        raise _Unfit(
            f"{file}: found {brief(repr(head.name))} of {head.size} bytes; by {MANIFEST} "
            f"{FOLDER}/{name} of {entry.bytes} bytes must come next"
        )
    digest = hashlib.sha256()
    with plain(path, "xb") if path else nullcontext() as made:
        for chunk in _chunks(packed, entry.bytes):
            digest.update(chunk)
            if made:
                made.write(chunk)
        if made:
            made.flush()
            os.fsync(made.fileno())
    _skip_padding(packed, entry.bytes)
    if digest.hexdigest() != entry.sha256:
        raise _Unfit(f"{file}: {head.name}: damaged: its SHA-256 is not that of {MANIFEST}")


def _skip_padding(packed: gzip.GzipFile, length: int) -> None:
    for _ in _chunks(packed, -length % BLOCK):
        pass


def _check(file: Path, folder: Path, manifest: Manifest) -> None:
    """Whether the files are a study, and the one that the manifest says."""
    try:
        data = log.load(folder)
    except UserError as error:
        said = str(error).replace(f"{folder}/", "").replace(str(folder), "it")
        raise _Unfit(f"{file}: {said}") from error
    request = data.header.request
    found = (request.study, request.engine_build, len(data.done))
    if found != (manifest.study, manifest.engine_build, manifest.trials):
        raise _Unfit(f"{file}: {log.HEADER} and {log.EVENTS} are of another study than {MANIFEST}")
    if wrong := verified.contradiction(folder, request.study):
        raise _Unfit(f"{file}: {wrong}")


@contextmanager
def _workshop(out: Path, manifest: Manifest) -> Iterator[Path]:
    """A folder in which a study is put together, where nobody looks for studies. It goes again, and
    so do folders above it that were made and are of no use. What killed processes have left goes
    as well."""
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    # Of a long name only the start: a name has at most 255 bytes.
    above = out / f".{manifest.study[:50]}.{os.getpid()}{PARTIAL}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for left in out.glob(f".*.*{PARTIAL}"):
            if left.is_dir() and (number := process_of(left)) is not None and not runs(number):
                shutil.rmtree(left, ignore_errors=True)
        free = shutil.disk_usage(out).free
        if (total := _total(manifest)) > free:
            raise UserError(
                f"{out}: {size(free)} free; the study {manifest.study} has {size(total)}"
            )
        shutil.rmtree(above, ignore_errors=True)  # of an earlier process with our number
        (above / FOLDER / log.SERIES).mkdir(parents=True)
        yield above / FOLDER
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise
        raise UserError(f"cannot write to {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(above, ignore_errors=True)
        for folder in missing:
            with suppress(OSError):  # it has something in it: the study
                folder.rmdir()
