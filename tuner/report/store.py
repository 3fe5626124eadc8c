# SPDX-License-Identifier: MIT
"""The MLflow store of a folder of studies, and how its database comes to be.

MLflow makes a database in many small steps. Of a process that is killed meanwhile SQLite keeps the
steps that were committed, and what is left can be neither used nor completed; two processes that
start together get into each other's way. A local database is therefore made, or brought up to the
schema of a newer MLflow, under a lock and in a file of its own, which takes its place in one step.

MLflow keeps absolute places of artifacts. Those that the database of a folder has follow the folder
when it is moved or copied.
"""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse
from uuid import uuid4

from tuner.errors import UserError
from tuner.files import plain, sync_directory
from tuner.text import shell, size

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT = "tiertune-"
LOCAL = "sqlite:///"
ENCODED = "sqlite+pysqlite"
"""The same, for paths that have to be percent-encoded: under a name that begins with LOCAL, MLflow
would also make the folder that the encoded path names."""
ARTIFACTS = "mlartifacts"
BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite has beside a database."""
PARENT_TAG = "mlflow.parentRunId"
DELETED = "deleted"
"""Stage of what was deleted in MLflow, which keeps it until `mlflow gc`."""


def default_store(out: Path) -> str:
    """URI of the tracking store of a folder of studies."""
    return uri_of(local(out))


def local(out: Path) -> Path:
    """Its database."""
    return out / "mlflow.db"


def uri_of(database: Path) -> str:
    path = str(database.absolute())
    if not set(path) & set("%?"):
        return f"{LOCAL}{path}"
    from sqlalchemy import URL

    return URL.create(ENCODED, database=path).render_as_string()


def database_of(uri: str) -> Path | None:
    """The file of a local database; None for a server, or a database of another kind."""
    if not uri.startswith((LOCAL, f"{ENCODED}:")):
        return None
    from sqlalchemy import make_url

    url = make_url(uri)
    if url.query or url.database in {None, "", ":memory:"}:
        return None
    return Path(url.database)


def absolute(uri: str) -> str:
    """The same store, whatever the current folder is."""
    if path := database_of(uri):
        return uri_of(path)
    return Path(uri).absolute().as_uri() if Path(uri).is_dir() else uri


def repair_command(uri: str, out: Path) -> str:
    """The command that adds to the store what it lacks of the folder's studies."""
    words = ["tune", "repair", "--out", str(out.absolute())]
    return shell(words + ["--mlflow-uri", uri] * (uri != default_store(out)))


def client_of(
    uri: str, out: Path, notify: Callable[[str], None], *, verify: bool = False
) -> MlflowClient:
    """A client of the store. A local database is made if it is not there, or set aside and made
    anew if it is broken; `notify` is then told where the old one is.

    Args:
        out: folder of the studies that are tracked.
        verify: reads all of a local database to find damage, which takes a while if it is large.

    Raises:
        UserError: the database was written by a newer MLflow.
        Exception: the store does not answer, in any way that it can fail.
    """
    _environment()
    from mlflow import MlflowClient

    if path := database_of(uri):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path):
            try:
                _prepare(path, verify=verify)
                _follow(path)
            except BrokenStore as error:
                aside = _set_aside(path)
                _prepare(path)
                notify(
                    f"warning: {error}; it is kept as {aside.name} and a new one is made, to which "
                    f"`{repair_command(uri, out)}` adds the studies that were in it"
                )
    return MlflowClient(tracking_uri=uri)


def experiments(uri: str, out: Path) -> list[tuple[str, str, dict[str, str]]]:
    """Name, id and tags of the experiments of studies, the latest first. UserError if the store
    does not answer, or is a database that is broken."""
    _environment()
    from mlflow import MlflowClient

    path = database_of(uri)
    try:
        if path and os.access(path.parent, os.W_OK):  # else MLflow may still be able to read it
            with _lock(path):
                _prepare(path)
                _follow(path)
        found = MlflowClient(tracking_uri=uri).search_experiments(
            filter_string=f"name LIKE '{EXPERIMENT}%'", order_by=["last_update_time DESC"]
        )
    except UserError:
        raise
    except BrokenStore as error:
        raise UserError(
            f"{error}; `{repair_command(uri, out)}` keeps it under another name and makes it "
            "again from the logs of the studies"
        ) from error
    except Exception as error:  # a store of any kind can fail in any way
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"no MLflow store answers at {uri}: {first}") from error
    return [(each.name, str(each.experiment_id), dict(each.tags)) for each in found]


def flaw(path: Path, *, verify: bool) -> tuple[str, str] | None:
    """What is wrong with a local database, and what `client_of` would do; None if nothing. All
    of it is read if `verify`. UserError if it is of a newer MLflow."""
    if not path.exists():
        return f"{path}: missing", "make it"
    try:
        revision, wanted = _schema(path, verify=verify)
    except BrokenStore as error:
        return str(error), "keep it under another name and make it anew"
    if revision == wanted:
        return None
    return f"{path}: the database is of an older MLflow", "bring it up to date or make it anew"


def experiment_of(
    client: MlflowClient, name: str, uri: str, out: Path, notify: Callable[[str], None]
) -> str:
    """Identity of the experiment of that name, made if it is not there. One that was deleted keeps
    its name, so that there can be no other: it is restored, and `notify` is told."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == DELETED:
            client.restore_experiment(found.experiment_id)
            notify(f"note: the experiment {name} had been deleted in MLflow; it is restored")
        return str(found.experiment_id)
    # MLflow's own default for a database is ./mlruns of whatever directory we are in.
    place = _place(out) if database_of(uri) else None
    try:
        return str(client.create_experiment(name, artifact_location=place))
    except Exception:
        found = client.get_experiment_by_name(name)  # another process was quicker
        if found is None:
            raise
        return str(found.experiment_id)


def run_with(
    client: MlflowClient, experiment: str, tag: str, value: str, *, deleted: bool = False
) -> Run | None:
    """The run whose tag has the value. `deleted`: one that was deleted, if there is no other."""
    from mlflow.entities import ViewType

    for view in (ViewType.ACTIVE_ONLY, ViewType.DELETED_ONLY)[: 2 if deleted else 1]:
        found = client.search_runs(
            [experiment], f"tags.`{tag}` = '{value}'", run_view_type=view, max_results=1
        )
        if found:
            return found[0]
    return None


def parent_run(
    client: MlflowClient, experiment: str, tag: str, value: str, notify: Callable[[str], None]
) -> str | None:
    """Identity of the run whose tag has the value. One that was deleted is restored, since runs
    that were not belong to it; `notify` is told."""
    found = run_with(client, experiment, tag, value, deleted=True)
    if found is None:
        return None
    if found.info.lifecycle_stage == DELETED:
        client.restore_run(found.info.run_id)
        notify(f"note: the run {found.info.run_name} had been deleted in MLflow; it is restored")
    return str(found.info.run_id)


def children_of(client: MlflowClient, experiment: str, parent: str) -> Iterator[Run]:
    """All runs that belong to a parent run, page by page."""
    token = None
    while True:
        page = client.search_runs(
            [experiment],
            filter_string=f"tags.`{PARENT_TAG}` = '{parent}'",
            max_results=1000,
            page_token=token,
        )
        yield from page
        token = page.token
        if not token:
            return


def no_telemetry() -> None:
    """MLflow sends its maker what is done with it, by two threads, unless told not to before its
    import. What a user has set herself stays."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def _environment() -> None:
    no_telemetry()
    # A server that does not answer must not hold up the end of a study for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    # Of each run, on standard output.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    import mlflow  # noqa: F401 - it sets its loggers' levels

    # Both announce every migration of a new database, and show errors that they raise as well.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


# --- A local database -----------------------------------------------------------------------------


class BrokenStore(Exception):
    """A file is not the database that it should be. The message names it and what is wrong."""

    def __init__(self, path: Path, reason: object) -> None:
        first, *_ = str(reason).strip().splitlines() or ["no reason given"]
        super().__init__(f"{path}: MLflow's database is broken ({first})")


BROKEN = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""What SQLite says of a wrong schema and of damage. All else is of the moment: a lock, a full disk,
missing rights."""


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time makes a database; the others wait until it is done. UserError if what
    MLflow and SQLite would write is elsewhere: they follow links."""
    own = [path.with_name(ARTIFACTS)] if path == local(path.parent) else []
    for each in (path, *(path.with_name(path.name + end) for end in BESIDE), *own):
        if each.is_symlink():
            raise UserError(f"{each}: found a link; must not be one (--mlflow-uri names a store)")
    with plain(path.with_name(f"{path.name}.lock"), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prepare(path: Path, *, verify: bool = False) -> None:
    """Makes the database if it is missing or empty, and its schema that of the installed MLflow.
    BrokenStore if that cannot be done; the file is then as it was."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial*"):  # by one that was killed
        left.unlink()
    revision, wanted = _schema(path, verify=verify)
    if revision == wanted:
        return
    # MLflow keeps connections to a database open by its name, so no name is used twice.
    copy = path.with_name(f"{path.name}.{uuid4().hex[:8]}.partial")
    try:
        if revision is None:
            _migrate(copy)
        else:
            with _database(path):
                _copy(path, copy)
                _migrate(copy, old=True)
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        copy.replace(path)
        sync_directory(path.parent)
    finally:
        copy.unlink(missing_ok=True)


def _schema(path: Path, *, verify: bool) -> tuple[str | None, str | None]:
    """The versions of the database's schema, as `_revision`, and of the installed MLflow's.
    BrokenStore; UserError if the database was written by a newer MLflow."""
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    with _database(path):
        revision = _revision(path, verify=verify)
    known = ScriptDirectory(str(Path(db_migrations.__file__).parent))
    head = known.get_current_head()
    if revision and revision not in {script.revision for script in known.walk_revisions()}:
        raise UserError(
            f"{path}: the database was written by a newer MLflow (its schema is {revision}); "
            "upgrade MLflow, or name another store with --mlflow-uri"
        )
    return revision, head


@contextmanager
def _database(path: Path) -> Iterator[None]:
    """Turns what shows that an existing database is broken into BrokenStore."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of SQLite, SQLAlchemy, alembic or MLflow
        cause = _cause(error)
        if isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode & 0xFF not in BROKEN:
            raise
        raise BrokenStore(path, cause) from error


def _cause(error: BaseException) -> BaseException:
    """What the database said, without what was wrapped around it."""
    within = getattr(error, "orig", None) or error.__cause__
    return error if within is None else _cause(within)


def reason(error: Exception) -> str:
    """What a store of any kind said when it failed, in one line."""
    cause = _cause(error)
    told = cause if isinstance(cause, sqlite3.Error) else error  # MLflow may tell of other things
    first, *_ = str(told).strip().splitlines() or ["no message"]
    said = f"{type(told).__name__}: {first}"
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    code = getattr(told, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_IOERR and largest != resource.RLIM_INFINITY:  # it says no more
        said += f"; `ulimit -f` of this shell allows files of {size(largest)}"
    return said


def _revision(path: Path, *, verify: bool) -> str | None:
    """The schema's version; empty if there are tables without one, None if there is no table."""
    if not path.exists():
        return None
    # Not read-only: SQLite undoes what a process that was killed had not committed.
    with closing(sqlite3.connect(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if verify and (fault := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise ValueError(fault)
        if "alembic_version" not in tables:
            return "" if tables else None
        row = database.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else ""


def _copy(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)


def _migrate(database: Path, *, old: bool = False) -> None:
    """Gives the database MLflow's schema."""
    from mlflow import MlflowClient
    from mlflow.db import upgrade

    uri = uri_of(database)
    if old:
        upgrade.callback(uri)
    MlflowClient(tracking_uri=uri).search_experiments(max_results=1)


def _set_aside(path: Path) -> Path:
    """Renames a broken database, with what SQLite has beside it; returns its new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    for suffix in BESIDE:
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(f"{aside}{suffix}")
    path.rename(aside)
    return aside


# --- A folder that was moved ----------------------------------------------------------------------

OURS = f"SELECT experiment_id FROM experiments WHERE name LIKE '{EXPERIMENT}%'"

PLACES = (
    ("experiments", "artifact_location", f"experiment_id IN ({OURS})"),
    ("runs", "artifact_uri", f"experiment_id IN ({OURS})"),
    ("logged_models", "artifact_location", f"experiment_id IN ({OURS})"),
    (
        "trace_tags",
        "value",
        f"request_id IN (SELECT request_id FROM trace_info WHERE experiment_id IN ({OURS}))",
    ),
    *(
        (
            "model_versions",
            column,
            f"run_id IN (SELECT run_uuid FROM runs WHERE experiment_id IN ({OURS}))",
        )
        for column in ("source", "storage_location")
    ),
)
"""Where MLflow's schema has places of artifacts: table, column, and which rows are of studies."""


def _place(out: Path) -> str:
    """Where the artifacts of a folder's studies are."""
    return (out.absolute() / ARTIFACTS).as_uri()


def strays(path: Path) -> list[Path]:
    """Folders that the database of a folder of studies names for artifacts, and that are of the
    place where it was before. Another folder's studies may be tracked in it, too: what has
    artifacts of these runs, while this folder has none, is no such place."""
    here = path.absolute().parent / ARTIFACTS
    if path != local(path.parent):
        return []
    with closing(sqlite3.connect(path)) as database:
        named = database.execute(
            "SELECT artifact_location FROM experiments WHERE name LIKE ?", (f"{EXPERIMENT}%",)
        )
        places = {Path(unquote(urlparse(place).path)) for (place,) in named if _is_ours(place)}
        found = []
        for place in sorted(places - {here}):
            if place.exists() and here.exists() and place.samefile(here):
                continue
            runs = {
                run
                for (run,) in database.execute(
                    "SELECT run_uuid FROM runs JOIN experiments USING (experiment_id) "
                    "WHERE artifact_location = ?",
                    (place.as_uri(),),
                )
            }
            if not _has(place, runs) or _has(here, runs):
                found.append(place)
        return found


def _is_ours(place: str | None) -> bool:
    """Whether `experiment_of` makes such places."""
    if place is None or not place.startswith("file:///"):
        return False
    return Path(unquote(urlparse(place).path)).name == ARTIFACTS


def _has(folder: Path, runs: set[str]) -> bool:
    """Whether there are artifacts of any of these runs."""
    return folder.is_dir() and any(entry.name in runs for entry in folder.iterdir())


def _follow(path: Path) -> None:
    """Makes the places of artifacts in a folder's database those of the folder where it is now."""
    if not (before := strays(path)):
        return
    now = _place(path.parent)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        for table, column, rows in PLACES:
            known = database.execute("SELECT name FROM pragma_table_info(?)", (table,))
            if (column,) not in known.fetchall():  # of another MLflow's schema
                continue
            for place in before:
                old = place.as_uri()
                database.execute(
                    f"UPDATE {table} SET {column} = :now || substr({column}, :length + 1) "
                    f"WHERE {rows} AND ({column} = :old OR "
                    f"substr({column}, 1, :length + 1) = :old || '/')",
                    {"now": now, "old": old, "length": len(old)},
                )
