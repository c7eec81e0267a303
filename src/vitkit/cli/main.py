"""`vitkit COMMAND …`: parse the command line, run the command, and turn errors into one line and an exit code.

0 done · 1 the work failed · 2 bad usage or input · 130 / 143 interrupted with the state saved
"""

import difflib
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tyro

from vitkit.cli.args import flags, registry, repeat_set, with_help
from vitkit.cli.bench import Bench
from vitkit.cli.convert import Convert
from vitkit.cli.demo import Demo
from vitkit.cli.embed import Embed
from vitkit.cli.eval import Eval
from vitkit.cli.explain import Explain
from vitkit.cli.inspect import Inspect
from vitkit.cli.ladder import Ladder
from vitkit.cli.models import Models
from vitkit.cli.output import printable
from vitkit.cli.pack import Pack
from vitkit.cli.plan import Plan
from vitkit.cli.predict import Predict
from vitkit.cli.report import Report
from vitkit.cli.serve import Serve
from vitkit.cli.summary import Summary
from vitkit.cli.train import Train
from vitkit.errors import UnknownNameError, UsageError, VitkitError, WorkError, first_line, is_out_of_memory, suggest
from vitkit.version import __version__

GROUPS: dict[str, dict[str, type]] = {
    "Look at data": {"inspect": Inspect},
    "Train": {"train": Train, "ladder": Ladder, "plan": Plan, "pack": Pack},
    "Measure": {"eval": Eval, "report": Report, "bench": Bench},
    "Use": {"predict": Predict, "explain": Explain, "embed": Embed, "serve": Serve},
    "Ship": {"convert": Convert},
    "Learn": {"demo": Demo, "models": Models, "summary": Summary},
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be UTF-8; in JSON this is an escape
    if words in (["--version"], ["-V"]):
        print(f"vitkit {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        return 0
    command = None
    try:
        command = parse(words)
        return command.run()
    except VitkitError as error:
        print(f"vitkit: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        remedy = "a smaller batch (--batch)" if hasattr(command, "batch") else "a smaller model"
        print(f"vitkit: out of memory: use {remedy}, smaller images or fewer images", file=sys.stderr)
        return WorkError.exit_code
    except OSError as error:  # such as a full disk
        print(f"vitkit: {error.filename or 'the work failed'}: {error.strerror or error}", file=sys.stderr)
        return WorkError.exit_code


def help_text() -> str:
    """Return the text of `vitkit --help`: all commands, grouped by what a person is doing."""
    lines = ["usage: vitkit COMMAND …", "", "Vision Transformers that read like the paper and work like a tool."]
    width = shutil.get_terminal_size().columns
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, command in commands.items():
            purpose = (command.__doc__ or "").strip().splitlines()[0]
            lines.append(textwrap.fill(purpose, width, initial_indent=f"  {name:9} ", subsequent_indent=" " * 12))
    return "\n".join([*lines, "", "`vitkit COMMAND --help` describes a command."])


def parse(words: Sequence[str]) -> Any:
    """Return the command as its dataclass. Commands import torch when they run, so --help and errors are fast."""
    name, *rest = words
    if name.startswith("-"):
        raise UsageError(f"unknown option {name}; see `vitkit --help`")
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS, "see `vitkit --help`")

    def fail(event: Any) -> None:
        raise UsageError(f"{_describe(event, COMMANDS[name])}; see `vitkit {name} --help`")

    with _on_parse_error(fail):
        return tyro.cli(
            with_help(COMMANDS[name]),
            prog=f"vitkit {name}",
            args=repeat_set(rest),
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
            registry=registry,
        )


def _on_parse_error(fail: Callable[[Any], None]) -> AbstractContextManager[None]:
    """Let tyro call `fail` with a description of each error, instead of printing a box of several lines.

    The hook is private, but tyro has no public one. Versions without it print their box and exit with 2 as well.
    """
    try:
        from tyro._errors import on_parse_error
    except ImportError:
        return nullcontext()
    return on_parse_error(fail)


def _describe(event: Any, command: type) -> str:
    """Return one line about an event of `tyro._errors`."""
    match type(event).__name__:
        case "MissingArgs":
            missing = ", ".join(_usage(each.arg) for each in event.missing_arguments)
            unknown = event.unrecognized_tokens
            return f"missing {missing}" + (f"; {_describe_unknown(unknown, command)}" if unknown else "")
        case "UnrecognizedArgs":
            return _describe_unknown(event.tokens, command)
        case "InstantiationFailure" if event.argument is not None and event.message.startswith("expected"):
            return f"{event.argument.display_name()}: {event.message}"
        case "InstantiationFailure" | "BadValue" if event.argument is not None:
            return f"{event.argument.display_name()}: expected {event.argument.lowered.metavar}"
    return first_line(Exception(getattr(event, "message", type(event).__name__)))


def _usage(argument: Any) -> str:
    metavar = argument.lowered.metavar
    return metavar if argument.is_positional() else " ".join([argument.lowered.name_or_flags[0], metavar or ""]).strip()


def _describe_unknown(tokens: Sequence[str], command: type) -> str:
    options = [token.partition("=")[0] for token in tokens if token.startswith("--")]
    if not options:
        return f"unexpected argument {tokens[0]!r}"
    near = difflib.get_close_matches(options[0], flags(command), n=1, cutoff=0.7)
    return f"unknown option {options[0]}{suggest(options[0], near) if near else ''}"
