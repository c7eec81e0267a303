"""The command line: one small file per subcommand that parses, calls and prints."""
