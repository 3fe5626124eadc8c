# SPDX-License-Identifier: MIT
"""`tune check`: whether a best.yaml still pays (`standing`), or whether a study, a stream or an
MLflow store is as it was written.

What can be mended is named, and `--repair` mends it. Nothing else is changed.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import UserError, brief
from tuner.report import store
from tuner.run import settings, streams
from tuner.scenario import flag
from tuner.study import best as best_file
from tuner.study import check as study_check
from tuner.study import lock, log
from tuner.terminal import print_json, say
from tuner.text import plural, shell


@dataclass
class Checked:
    """What was found. `counts` of what was read, `summary` if nothing is wrong, and what `--repair`
    would do, if anything."""

    summary: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kind:
    name: str
    check: Callable[[Path], Checked]
    mend: Callable[[Path], None]


def run(args: Namespace) -> int:
    """Exit code 1 if anything is wrong, and still is after --repair; of a best.yaml 3 if it no
    longer pays."""
    path = _named(args.path, Path(args.out))
    if configuration := _configuration(args, path):
        from tuner.commands import standing

        return standing.check(args, configuration)
    kind = _kind(path)
    found = kind.check(path)
    mended: list[str] = []
    if args.repair and found.remedies:
        if not args.json:
            print("\n".join(found.problems))
        kind.mend(path)
        mended, found = found.remedies, kind.check(path)
    if args.json:
        lists = {"problems": found.problems, "remedies": found.remedies, "mended": mended}
        print_json({kind.name: str(path.absolute()), **found.counts, **lists})
    else:
        _tell(path, found, mended)
    return 1 if found.problems else 0


def _named(given: str, out: Path) -> Path:
    """The path; or of a study in `out` that is called so, its folder."""
    path = Path(given)
    if len(path.parts) == 1 and not path.exists() and (out / path / log.HEADER).exists():
        return out / path
    return path


def _tell(path: Path, found: Checked, mended: list[str]) -> None:
    for remedy in mended:
        print(f"done: {remedy}")
    if found.problems:
        print("\n".join(found.problems))
    else:
        print(f"{path}: nothing wrong; {found.summary}")
    for remedy in found.remedies:
        say(f"tune: note: --repair would {remedy}")
    if (best := path / best_file.FILE).exists() and not found.problems:
        say(f"whether its configuration still pays: {shell(['tune', 'check', str(best)])}")


def _configuration(args: Namespace, path: Path) -> Path | None:
    """The best.yaml that is meant. UserError for an option of one beside something else."""
    if path.suffix in (".yaml", ".yml"):
        return path
    only = {"workload": args.workload, "against": args.against} | settings.given(args)
    given = [flag(name) for name, value in only.items() if value is not None]
    if not given:
        return None
    if (path / log.HEADER).exists():
        return path / best_file.FILE
    raise UserError(
        f"{', '.join(given)}: applies to a best.yaml, which {brief(str(path), 300)} is not"
    )


def _kind(path: Path) -> Kind:
    """UserError if it is nothing that can be checked."""
    if path.is_dir():
        if any((path / name).exists() for name in (log.HEADER, log.EVENTS, log.SERIES)):
            return STUDY
        if store.local(path).exists() or _studies(path):
            return STORE
        raise UserError(f"{path}: neither a study nor a folder of studies")
    if not path.exists():
        raise UserError(f"{brief(str(path), 300)}: no such file or folder")
    if path.is_file() and path.suffix in (".tts", ".db"):
        return STREAM if path.suffix == ".tts" else STORE
    raise UserError(
        f"{path}: neither a best.yaml, the folder of a study or of studies, a stream (.tts), nor "
        "an MLflow store (.db)"
    )


# --- Studies --------------------------------------------------------------------------------------


def _check_study(path: Path) -> Checked:
    try:
        data = log.load(path)
    except UserError as error:
        return Checked(problems=[str(error)])
    counts = {"asked": len(data.trials), "finished": len(data.done), "checks": len(data.checks)}
    found = Checked(
        "{finished} of {asked} trials finished, {checks} checks".format(**counts),
        counts,
        study_check.problems(data),
    )
    if count := len(data.left_out):
        found.remedies = [f"move {plural(count, 'line')} of the log to {study_check.ASIDE}"]
    return found


# --- Streams --------------------------------------------------------------------------------------


def _check_stream(path: Path) -> Checked:
    try:
        streams.verify(path)
    except UserError as error:
        if _cached(path):
            return Checked(problems=[str(error)], remedies=["make the stream again"])
        instead = "`tune cache clear --stale` removes it"
        if path.absolute().parent != streams.folder():
            instead = "it is a recording, and cannot be made again"
        return Checked(problems=[f"{error}; {instead}"])
    return Checked("every block is as it was written")


def _mend_stream(path: Path) -> None:
    entry = _cached(path)
    assert entry is not None  # else there is no remedy
    streams.invalidate(entry.request)
    streams.prepare(entry.request)


def _cached(path: Path) -> streams.CacheEntry | None:
    """The entry of the cache, if the installed kernel makes the same stream."""
    found = (entry for entry in streams.entries() if entry.path.samefile(path))
    return next((entry for entry in found if not entry.stale), None)


# --- Stores ---------------------------------------------------------------------------------------


def _place(path: Path) -> tuple[Path, Path]:
    """The folder of studies, and the database."""
    return (path, store.local(path)) if path.is_dir() else (path.parent, path)


def _studies(out: Path) -> list[Path]:
    return sorted(header.parent for header in out.glob(f"*/{log.HEADER}"))


def _check_store(path: Path) -> Checked:
    out, database = _place(path)
    folders = _studies(out)
    found = Checked(f"it has {plural(len(folders), 'study')}", {"studies": len(folders)})
    if flaw := store.flaw(database, verify=True):
        problem, remedy = flaw
        found.problems = [problem]
        if folders:
            found.remedies = [f"{remedy}, from the logs of {plural(len(folders), 'study')}"]
        return found
    from mlflow import MlflowClient

    from tuner.report.tracked import lacking

    client = MlflowClient(tracking_uri=store.uri_of(database))
    for folder in folders:
        if lock.in_use(folder):
            say(f"tune: note: {folder.name} is running, and left out")
            continue
        try:
            missing = lacking(log.load(folder), client)
        except UserError as error:
            found.problems.append(str(error))
            continue
        if missing:
            found.problems.append(f"{database}: lacks {missing} of the study {folder.name}")
            found.remedies.append(f"add {missing} of the study {folder.name}")
    if folders:
        # No problem: whatever opens the store to write to it does so.
        found.remedies += [
            f"let the store look for artifacts in {out.absolute() / store.ARTIFACTS}, no longer in "
            f"{place}"
            for place in store.strays(database)
        ]
    return found


def _mend_store(path: Path) -> None:
    from tuner.commands import repair

    out, database = _place(path)
    repair.mend(out, store.uri_of(database))


STUDY = Kind("study", _check_study, study_check.set_aside)
STREAM = Kind("stream", _check_stream, _mend_stream)
STORE = Kind("store", _check_store, _mend_store)
