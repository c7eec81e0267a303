"""Entry point of `vitkit` and `python -m vitkit`."""

import sys

from vitkit.cli import run

if __name__ == "__main__":
    sys.exit(run())
