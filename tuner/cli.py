"""The command line. A command is a module of `tuner.commands` with `run(args)`, imported when it
runs, so that `tune --help` answers at once.

Exit codes: 0 done, 1 the command ran and failed, its output could not be written, or it has a
defect, 2 the user can correct it, 130 interrupted, 143 terminated (SIGTERM).
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from tuner import foreign, screen
from tuner.arguments import COMMANDS

MODULES = {"import": "import_"}
"""Of commands whose name a module cannot have."""

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
        return _main(sys.argv[1:] if argv is None else list(argv))


def _main(arguments: list[str]) -> int:
    _prepare_streams()
    screen.guard()
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in own  # what follows -- belongs to a recorded program
    parser = parser_for(arguments)
    from tuner.errors import UserError
    from tuner.stop import Terminated, terminable

    try:
        if not arguments:
            parser.print_help()
            return 0
        args = parser.parse_args(arguments)
        if args.version:
            _version(args.version_json)
            sys.stdout.flush()
            return 0
        if args.version_json:
            parser.error("--json belongs after the command, or with --version")
        if args.command is None:
            parser.error("the following arguments are required: COMMAND")
        as_json = getattr(args, "json", False)
        name = MODULES.get(args.command, args.command)
        with terminable():
            code: int = importlib.import_module(f"tuner.commands.{name}").run(args)
        sys.stdout.flush()
    except _Usage as error:
        if as_json:
            _print_error(str(error), 2)
        error.parser.usage_error(str(error))
    except UserError as error:
        return _ended(f"error: {error}", error.code, as_json)
    except Terminated:
        return _ended("terminated", 143, as_json)
    except KeyboardInterrupt:
        return _ended("interrupted", 130, as_json)
    except OSError as error:
        return _failed(error, as_json)
    return code


def _prepare_streams() -> None:
    """Standard input, output and error that are closed become empty ones: else the next file that
    is opened, a log for example, gets the number of one, and what is printed. Characters that the
    output's encoding lacks are shown as escapes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


OUTPUT_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Of printing; what writes files names them itself."""


def _failed(error: OSError, as_json: bool) -> int:
    """The exit code for an error of the system that no command has explained: of the output, or of
    a file. Anything else is a defect and is raised again."""
    if isinstance(error, BrokenPipeError):  # the reader (head, less) has left
        code = 0
    elif error.filename is not None:
        code = _ended(f"error: {error.filename}: {error.strerror}", 2, as_json)
    elif isinstance(error, FileNotFoundError):  # without a name: where is the current folder?
        code = _ended("error: the current folder was deleted; change to another", 2, as_json)
    elif error.errno in OUTPUT_FAILS:
        code = _ended(f"error: cannot write the output: {error.strerror}", 1, as_json)
    else:
        raise error
    _settle(sys.stdout)
    _settle(sys.stderr)
    return code


def _complain(message: str) -> None:
    try:
        print(f"tune: {message}", file=sys.stderr, flush=True)
    except OSError:  # nobody can be told; the exit code still tells
        _settle(sys.stderr)


def _settle(stream: TextIO) -> None:
    """Sends what cannot be written nowhere: Python would complain once more at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Usage(Exception):
    """Wrong usage, of which `parser` shows the right one."""

    def __init__(self, parser: _Parser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Leaves it to the command line to report wrong usage, and help that cannot be written."""

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        raise _Usage(self, message)

    def usage_error(self, message: str) -> NoReturn:
        """Shows the usage and the message on standard error, and exits with 2."""
        super().error(message)


def _print_error(message: str, exit: int) -> None:
    """On standard output, for scripts."""
    from tuner.errors import as_object
    from tuner.terminal import print_json

    try:
        print_json(as_object(message, exit))
        sys.stdout.flush()
    except OSError:  # the exit code still tells
        _settle(sys.stdout)


def _ended(message: str, code: int, as_json: bool) -> int:
    if as_json:
        _print_error(message.removeprefix("error: "), code)
    _complain(message)
    return code


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
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, (help, declare) in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        command.set_defaults(command=name)
        if name in arguments:
            declare(command)
    return parser
