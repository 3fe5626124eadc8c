# SPDX-License-Identifier: MIT
"""`tune apply`: what a server needs to run a study's best configuration."""

from __future__ import annotations

import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner import engine
from tuner.apply import targets
from tuner.apply.product import How, Product, Row, show
from tuner.apply.worth import valued
from tuner.documents.reading import read_text
from tuner.errors import UserError, one_line
from tuner.files import write_files
from tuner.study import best as best_file
from tuner.study.best import BestConfiguration
from tuner.study.verdict import Advice
from tuner.terminal import print_json, say, table
from tuner.text import shell


def run(args: Namespace) -> int:
    """Prints the plan and writes its files. Nothing is changed on this machine."""
    path = best_file.path_of(args.study, Path(args.out))
    found = best_file.read(path)
    action = "undo" if args.undo else "apply"
    if args.target in targets.WITHOUT_SCRIPT and (args.undo or args.script):
        option = "--undo" if args.undo else "--script"
        raise UserError(
            f"{option}: --for {args.target} has no script; leave it out: files are written, and "
            "how to undo it is printed"
        )
    product = targets.product(args.target, found, path, _nodes(args), action, args.pods)
    policy = engine.policy(product.policy)
    _remark(found)
    if args.script or args.undo:
        if args.json:
            print_json({"target": product.target, "script": product.files[product.script]})
        else:
            sys.stdout.write(product.files[product.script])
        return 0
    rows = valued(product.rows, policy, path)
    folder = Path(args.output or f"apply-{args.target}")
    written = [] if args.dry_run else _write(folder, product.files, args.force)
    if args.json:
        print_json(_object(product, rows, path, written))
        return 0
    units = {knob.name: knob.unit for knob in policy.knobs}
    _print(product, rows, units)
    for name in written:
        say(f"wrote {one_line(name)}")
    if args.dry_run:
        names = " and ".join(one_line(folder / name) for name in product.files)
        say(f"nothing is written; without --dry-run: {names}")
    if simulated := _simulated(found, path):
        say(f"when the workload changes: {shell(['tune', 'check', str(simulated)])}")
    return 0


def _simulated(found: BestConfiguration, path: Path) -> Path | None:
    """What `tune check` can run: the configuration, or of one that was verified its study's."""
    beside = path.with_name(best_file.FILE)
    if not found.scenario.simulated and path.name != best_file.FILE and beside.is_file():
        found, path = best_file.read(beside), beside
    measured = found.provenance.fingerprints.command is not None
    return path if found.scenario.simulated and not measured else None


def _nodes(args: Namespace) -> tuple[Sequence[int], Sequence[int]] | None:
    if args.fast is None and args.slow is None:
        return None
    if args.fast is None or args.slow is None:
        raise UserError("--fast and --slow: found one of them; give both, or neither")
    if both := sorted(set(args.fast) & set(args.slow)):
        raise UserError(f"--fast and --slow: found node {both[0]} in both tiers")
    return args.fast, args.slow


def _remark(found: BestConfiguration) -> None:
    if found.verdict is None:
        say("tune: note: the study has not ended: nothing says yet whether this gains anything")
    elif found.verdict.advice is not Advice.use_best:
        say(f"tune: note: the study advises otherwise: {found.verdict.headline}")


def _write(folder: Path, files: Mapping[str, str], force: bool) -> list[Path]:
    """UserError if one is there with another content, unless `force`; then none is written."""
    paths: dict[Path, str | bytes] = {folder / name: text for name, text in files.items()}
    for path, text in paths.items():
        if not force and path.exists() and read_text(path) != text:
            raise UserError(f"{one_line(path)} exists, with another content; --force replaces it")
    return write_files(paths)


def _object(
    product: Product, rows: Sequence[Row], path: Path, written: Sequence[Path]
) -> dict[str, object]:
    return {
        "target": product.target,
        "policy": product.policy,
        "best": str(path.absolute()),
        "needs": product.needs,
        "knobs": [row.model_dump(mode="json") for row in rows],
        "notes": product.notes,
        "use": product.use,
        "undo": product.undo,
        "proof": product.proof,
        "texts": product.files,
        "files": [str(each.absolute()) for each in written],
    }


def _print(product: Product, rows: Sequence[Row], units: Mapping[str, str]) -> None:
    print(f"{product.policy} by {targets.TARGETS[product.target]}")
    _list("needs", product.needs)
    table(("knob", "value", "is", "written"), [_set(r, units) for r in rows if r.to])
    for how in (How.lost, How.same):
        _list(str(how), [_unset(row, units) for row in rows if row.how is how])
    _list("note", product.notes)
    _list("use", product.use)
    _list("undo", product.undo)
    _list("proof", product.proof)


def _set(row: Row, units: Mapping[str, str]) -> tuple[str, ...]:
    places = ", ".join(f"{place}: {text}" for place, text in zip(row.to, row.written, strict=True))
    written = f"{places} ({row.note})" if row.note else places
    return row.knob, show(row.value, units[row.knob]), str(row.how), written


def _unset(row: Row, units: Mapping[str, str]) -> str:
    told = f"{row.knob} = {show(row.value, units[row.knob])}: {row.note}"
    return f"{told}; {row.worth}" if row.worth else told


def _list(title: str, lines: Sequence[str]) -> None:
    """Lines as wide as the terminal, where there is one."""
    if lines:
        print(f"{title}:")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        wrapped = [line] if width is None else textwrap.wrap(line, max(40, width - 4))
        print("  " + "\n    ".join(wrapped))
