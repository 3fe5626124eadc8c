# SPDX-License-Identifier: MIT
"""`tune unpack`: a study from the file that `tune export` has made."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuner import engine
from tuner.commands import repair
from tuner.errors import UserError, as_object
from tuner.experiment.recall import remake
from tuner.files import write_files
from tuner.report import archive
from tuner.report.pictures import png
from tuner.report.store import default_store
from tuner.report.verification import draw
from tuner.study import verified
from tuner.terminal import print_json, say
from tuner.text import plural


def run(args: Namespace) -> int:
    """Exit code 1 if the study is there, but not in the MLflow store."""
    out = Path(args.out)
    place, manifest = archive.unpack(Path(args.file), out)
    for missing in manifest.not_included:
        say(f"tune: note: not included, and needed to resume the study: {missing}")
    if manifest.engine_build != engine.results_id():
        say(
            f"tune: note: its trials are of engine build {manifest.engine_build}, this one is "
            f"{engine.results_id()}: it cannot be resumed here"
        )
    result: dict[str, object] = {
        "study": manifest.study,
        "path": str(place.absolute()),
        "trials": manifest.trials,
        "engine_build": manifest.engine_build,
        "not_included": manifest.not_included,
    }
    code = 0
    try:
        remake(place)
        if found := verified.read(place):
            write_files({place / verified.PICTURE: png(draw(found))})
        repair.add(place, args.mlflow_uri or default_store(out))
    except UserError as error:
        code = 1
        result |= as_object(str(error), code)
        say(f"tune: error: {error}; `tune repair --out {out}` adds it")
    lost = [name for name in manifest.files if name in repair.FILES and not (place / name).exists()]
    if lost:
        say(f"tune: note: not in its log, and left out: {', '.join(lost)}")
    if args.json:
        print_json(result)
    else:
        print(f"{place}: {plural(manifest.trials, 'trial')}")
    return code
