# SPDX-License-Identifier: MIT
"""`tune export`: a study as one file, or as other viewers read it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.limits import OPTUNA
from tuner.report import archive
from tuner.study import log, public
from tuner.terminal import print_json, say
from tuner.text import plural, shell, size


def run(args: Namespace) -> int:
    directory = log.folder_of(args.study, Path(args.out))
    if args.format is not None:
        return _for_viewers(directory, args)
    file = Path(args.output) if args.output else archive.default_file(directory.absolute().name)
    if file.exists() and not args.force:
        raise UserError(f"{file} exists; replace it with --force, or name another with --output")
    manifest = archive.pack(directory, file)
    for missing in manifest.not_included:
        say(f"tune: note: not included, and needed to resume the study: {missing}")
    for field in public.held(directory):
        say(
            f"tune: note: {directory / log.HEADER} holds a password in {field}; it is left out "
            "of the file, and should be changed"
        )
    length = file.stat().st_size
    if args.json:
        content = manifest.model_dump(exclude={"files"})
        files = list(manifest.files)
        print_json({**content, "file": str(file.absolute()), "bytes": length, "files": files})
    else:
        trials = plural(manifest.trials, "trial")
        print(f"{file}: {manifest.study}, {trials}, {size(length)}")
    return 0


def _for_viewers(directory: Path, args: Namespace) -> int:
    """Also of a study that runs: what has ended."""
    from tuner.optimize import viewers

    if not log.exists(directory):
        raise UserError(log.missing(directory))
    name, form = directory.absolute().name, args.format
    place = Path(args.output) if args.output else viewers.default_place(name, form)
    if (there := viewers.existing(place, form)) is not None and not args.force:
        raise UserError(f"{there} exists; replace it with --force, or name another with --output")
    data = log.load(directory)
    for damage in data.damage:
        say(f"tune: warning: {damage}")
    if not data.done:
        raise UserError(f"{directory}: no trial of this study has ended yet")
    written = viewers.write(data, place, form)
    if running := len(data.trials) - len(data.done):
        say(f"tune: note: left out: {plural(running, 'trial')} that {_has(running)} not ended")
    if outside := len(data.done) - written:
        say(
            f"tune: note: left out: {plural(outside, 'trial')} whose knobs lie outside of the "
            "space, such as its default"
        )
    if args.json:
        content = {"study": data.header.request.study, "format": form, "trials": written}
        print_json({**content, "path": str(place.absolute())})
    else:
        print(f"{place}: {data.header.request.study}, {plural(written, 'trial')}")
        if form == OPTUNA:
            say(f"shown by: {shell(['optuna-dashboard', f'sqlite:///{place}'])}")
    return 0


def _has(count: int) -> str:
    return "has" if count == 1 else "have"
