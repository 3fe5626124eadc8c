"""`python -m tuner` is `tune`."""

import sys

from tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
