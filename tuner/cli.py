"""The command line. A command is a module of `tuner.commands` with `run(args)`, imported when it
runs, so that `tune --help` answers at once.

Exit codes: 0 done, 1 the command ran and failed (or has a defect), 2 the user can correct it,
130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

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
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = parser_for(arguments)
    if not arguments:
        parser.print_help()
        return 0
    from tuner.errors import UserError

    try:
        args = parser.parse_args(arguments)
        if args.version:
            return _version(args.version_json)
        if args.version_json:
            parser.error("--json belongs after the command, or with --version")
        if args.command is None:
            parser.error("the following arguments are required: COMMAND")
        name = MODULES.get(args.command, args.command)
        code: int = importlib.import_module(f"tuner.commands.{name}").run(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"tune: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tune: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _version(as_json: bool) -> int:
    """Asks the engine, and only when asked: loading it takes a while."""
    from tuner import engine

    if as_json:
        import json
        import platform

        facts = {
            "version": engine.version(),
            "engine_build": engine.build_id(),
            "isa": engine.isa(),
            "isas": engine.supported_isas(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        print(json.dumps(facts))
    else:
        print(f"tune {engine.version()} (engine build {engine.build_id()}, {engine.isa()} loops)")
    return 0


def parser_for(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of those commands that occur among the words."""
    parser = argparse.ArgumentParser(
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
        help="print version, engine build and instruction set; with --json as an object",
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
