# SPDX-License-Identifier: MIT
"""Inside a container: trials come in on standard input, a line of JSON each, and their results go
out on standard output.

The first line that goes out says which engine this is. Ends when standard input does.
"""

from __future__ import annotations

import json
import os
import sys

from tuner import engine
from tuner.run import runner
from tuner.run.pool import execute


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed must not end up between the results

    def send(line: str) -> None:
        out.write(line.encode() + b"\n")
        out.flush()

    send(json.dumps({"engine_build": engine.results_id()}))
    for trial in sys.stdin:
        send(execute(runner.run, trial, repeated=False))


if __name__ == "__main__":
    main()
