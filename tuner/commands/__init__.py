# SPDX-License-Identifier: MIT
"""The commands: module NAME has `run(args)`, which returns the exit code of `tune NAME`."""
