"""`vitkit` and `python -m vitkit`."""

import sys


def run() -> int:
    try:
        from vitkit.cli.main import main  # takes a moment, in which Ctrl-C is a wish like any other

        return main()
    except KeyboardInterrupt:
        print("vitkit: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
