"""best.yaml: the one writer and the one reader of a best known configuration."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tuner import documents
from tuner.documents import Document
from tuner.models import BestConfiguration

FILE = "best.yaml"


def render(best: BestConfiguration) -> str:
    """The YAML text; `read` of it gives an equal object."""
    objective = best.objective
    gain = "" if objective.gain is None else f", {objective.gain:+.1%} against the default"
    head = f"# {best.policy} for {best.workload} ({best.input}): {objective.name}{gain}.\n"
    reuse = f"# Replay: tune sim --workload {shlex.quote(best.workload_argument)} --config {FILE}\n"
    content = {key: value for key, value in best.model_dump().items() if value is not None}
    return head + reuse + documents.render(content)


def write(best: BestConfiguration, path: Path) -> None:
    """Replaces the file in one step: a reader sees the old or the new one, never half."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(render(best), encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> BestConfiguration:
    """UserError naming file, line and key when it is not a best configuration."""
    return Document.read(path).parse(BestConfiguration)
