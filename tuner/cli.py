# SPDX-License-Identifier: MIT
"""The command line. A command is a module of `tuner.commands` with `run(args)`, imported when it
runs, so that `tune --help` answers at once.

Exit codes: 0 done, 1 the command ran and failed, its output could not be written, or it has a
defect, 2 the user can correct it, 130 interrupted, 141 done but nobody read the output, 143
terminated (SIGTERM).
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import importlib
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tuner import foreign, output, screen
from tuner.arguments import COMMANDS, commands

if TYPE_CHECKING:
    from tuner.errors import WrongParameter

MODULES = {"import": "import_"}
"""Of commands whose name a module cannot have."""

# At the end Python looks through all objects for cycles: a second or more, after a study.
atexit.register(gc.freeze)

EPILOG = """\
examples:
  tune run --workload cachelib --budget 100     find good knobs for a workload
  tune best --workload cachelib                 print the best known configuration
  tune sim --workload cachelib --config best.yaml   replay it
  tune record -o mine.tts -- ./program args     record a program of your own
  tune knobs hybridtier                         what can be set, and what it means
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The `tune` command; returns its exit code."""
    with foreign.kept_out():
        code = _main(sys.argv[1:] if argv is None else list(argv))
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Libraries still clean up: who is impatient sees no traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _main(arguments: list[str]) -> int:
    output.prepare()
    screen.guard()
    code = _run(arguments)
    failed = output.failure()
    if failed is None or code != 0:
        return code
    if isinstance(failed, BrokenPipeError):  # the reader (head, less) has left
        return output.READER_LEFT
    _complain(f"error: cannot write the output: {failed.strerror}")
    return 1


def _run(arguments: Sequence[str]) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in own  # what follows -- belongs to a recorded program
    parser = parser_for(arguments)
    from tuner.errors import UserError, WrongParameter
    from tuner.stop import Terminated, terminable

    try:
        if not arguments:
            parser.print_help()
            return 0
        args = parser.parse_args(arguments)
        if args.completion:
            print(_completion(args.completion))
            return 0
        if args.version:
            _version(args.version_json)
            return 0
        if args.version_json:
            parser.error("--json belongs after the command, or with --version")
        if args.command is None:
            parser.error("the following arguments are required: COMMAND")
        as_json = getattr(args, "json", False)
        _refuse_bytes(own)
        if workers := getattr(args, "workers", 0):
            from tuner.run import limits

            limits.check(workers, cluster=getattr(args, "ray_address", None) is not None)
        name = MODULES.get(args.command, args.command)
        from tuner.terminal import be_quiet, tables_kept

        be_quiet(getattr(args, "quiet", False))
        with terminable(), tables_kept(getattr(args, "tables", None)):
            code: int = importlib.import_module(f"tuner.commands.{name}").run(args)
    except SystemExit as end:  # of --help
        return int(end.code or 0)
    except _Usage as error:
        if as_json:
            _print_error(str(error), 2)
        error.parser.usage_error(str(error))
    except WrongParameter as error:
        return _ended(f"error: {_placed(error, args)}", error.code, as_json)
    except UserError as error:
        return _ended(f"error: {error}", error.code, as_json)
    except Terminated:
        return _ended("terminated", 143, as_json)
    except KeyboardInterrupt:
        return _ended("interrupted", 130, as_json)
    except (OSError, MemoryError, RuntimeError) as error:
        return _failed(error, as_json)
    return code


def _placed(error: WrongParameter, args: Namespace) -> str:
    """The message, behind the place in the file of the one workload that the command line names."""
    from tuner.documents import catalog

    given = getattr(args, "workload", None) or getattr(args, "workload_name", None)
    if not isinstance(given, str):
        return str(error)
    if sizes := getattr(args, "sizes", None):
        return f"{error} (with --set {' '.join(sizes)})"
    return f"{catalog.place(catalog.Kind.workload, given, error.key)}: {error}"


DISK = {
    errno.EIO: ": a disk fails, which the kernel's log (`dmesg`) names",
    errno.ENOSPC: "",
    errno.EDQUOT: "",
}
"""What a disk says of an open file, whose name the system leaves out, and what to add."""


def _failed(error: OSError | MemoryError | RuntimeError, as_json: bool) -> int:
    """The exit code for an error of the system that no command has explained: of a file, or of a
    limit. Anything else is a defect and is raised again."""
    from tuner.errors import limited, one_line

    what = limited(error)
    if isinstance(error, OSError) and error.filename is not None:
        what = f"{one_line(error.filename)}: {what or error.strerror}"
    elif isinstance(error, FileNotFoundError):  # without a name
        what = "the current folder was deleted; change to another"
        if _here() is not None:
            what = f"{error.strerror}; set TMPDIR to a folder that can be written"  # of tempfile
    elif isinstance(error, OSError) and error.errno in DISK:  # of an open file
        what = f"{error.strerror}{DISK[error.errno]}"
    if what is None:
        raise error
    return _ended(f"error: {what}", 2, as_json)


def _here() -> str | None:
    """The current folder; None if it was deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def _refuse_bytes(words: Sequence[str]) -> None:
    """Studies and documents hold paths as text: UserError for one that is no text in UTF-8."""
    from tuner.errors import UserError, brief, one_line

    for word in words:
        if not _is_text(word):
            raise UserError(f"found the argument '{brief(word, 300)}'; must be text in UTF-8")
    if not _is_text(here := _here() or ""):
        raise UserError(
            f"the current folder is {one_line(here)}, which is no text in UTF-8; change to another"
        )


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:  # it stands for other bytes
        return False
    return True


def _complain(message: str) -> None:
    from tuner.terminal import say

    say(f"tune: {message}")


class _Usage(Exception):
    """Wrong usage, of which the help of `parser` tells the right one."""

    def __init__(self, parser: _Parser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Leaves it to the command line to report wrong usage."""

    def error(self, message: str) -> NoReturn:
        raise _Usage(self, message)

    def usage_error(self, message: str) -> NoReturn:
        """Shows the message on standard error in one line, and exits with 2."""
        self.exit(2, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")


def _print_error(message: str, exit: int) -> None:
    """On standard output, for scripts."""
    from tuner.errors import as_object
    from tuner.terminal import print_json

    print_json(as_object(message, exit))


def _ended(message: str, code: int, as_json: bool) -> int:
    if as_json:
        _print_error(message.removeprefix("error: "), code)
    _complain(message)
    return code


def _completion(shell: str) -> str:
    """The script has all commands and options, so that completing starts no Python."""
    import shtab

    return str(shtab.complete(parser_for(list(COMMANDS)), shell))


def _version(as_json: bool) -> None:
    """Asks the engine, and only when asked: loading it takes a while."""
    from tuner import engine

    if as_json:
        import json
        import platform

        facts = {
            "version": engine.version(),
            "engine_build": engine.results_id(),
            **engine.ids(),
            "isa": engine.isa(),
            "isas": engine.supported_isas(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        print(json.dumps(facts))
    else:
        ids = ", ".join(f"{name} {id}" for name, id in engine.ids().items())
        print(f"tune {engine.version()} ({ids}, {engine.isa()} loops)")


def arguments_of(words: Sequence[str]) -> Namespace:
    """What the words of a command line mean. UserError for wrong usage."""
    from tuner.errors import UserError

    try:
        return parser_for(words).parse_args(words)
    except _Usage as error:
        raise UserError(str(error)) from None


def parser_for(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of those commands that occur among the words."""
    parser = _Parser(
        prog="tune",
        description="Finds, explains and replays the best configuration of a memory-tiering "
        "engine, per workload.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="store_true",
        help="print version, ids of the engine and instruction set; with --json as an object",
    )
    parser.add_argument("--json", action="store_true", dest="version_json", help=argparse.SUPPRESS)
    parser.add_argument(
        "--completion",
        choices=("bash", "zsh"),
        help="print a script that completes commands and options in that shell",
    )
    parser.set_defaults(command=None)
    commands(parser, arguments)
    return parser
