# SPDX-License-Identifier: MIT
"""`python -m tuner` is `tune`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which may be somebody else's
    from tuner.cli import main

    sys.exit(main())
