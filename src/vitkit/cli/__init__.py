"""The command line: one small file per subcommand that parses, calls and prints."""

import sys


def run() -> int:
    """Run the command line. Ctrl-C during the imports is reported in one line as well."""
    try:
        from vitkit.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("vitkit: interrupted", file=sys.stderr)
        return 130
