"""Entry point of `vitkit` and `python -m vitkit`."""

import sys


def run() -> int:
    try:
        from vitkit.cli.main import main  # slow: Ctrl-C may arrive meanwhile

        return main()
    except KeyboardInterrupt:
        print("vitkit: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
