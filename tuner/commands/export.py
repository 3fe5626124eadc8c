# SPDX-License-Identifier: MIT
"""`tune export`: a study as one file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner.errors import UserError
from tuner.report import archive
from tuner.study import log, public
from tuner.terminal import print_json, say
from tuner.text import plural, size


def run(args: Namespace) -> int:
    directory = log.folder_of(args.study, Path(args.out))
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
