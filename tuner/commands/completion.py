# SPDX-License-Identifier: MIT
"""`tune completion`: what a shell needs to complete commands, options and their choices. The script
has all of them, so that completing starts no Python."""

from __future__ import annotations

import argparse

from tuner.arguments import COMMANDS, commands


def run(args: argparse.Namespace) -> int:
    import shtab

    parser = argparse.ArgumentParser(prog="tune")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands(parser, COMMANDS)
    print(shtab.complete(parser, args.shell))
    return 0
