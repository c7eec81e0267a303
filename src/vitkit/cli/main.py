"""`vitkit COMMAND …`: parse, run, and turn errors into one line and an exit code.

0 done · 1 the work failed · 2 bad usage or input · 130 / 143 interrupted with the state saved
"""

import contextlib
import difflib
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from vitkit.cli.args import flags, readable
from vitkit.cli.bench import Bench
from vitkit.cli.convert import Convert
from vitkit.cli.demo import Demo
from vitkit.cli.embed import Embed
from vitkit.cli.eval import Eval
from vitkit.cli.explain import Explain
from vitkit.cli.inspect import Inspect
from vitkit.cli.ladder import Ladder
from vitkit.cli.models import Models
from vitkit.cli.pack import Pack
from vitkit.cli.plan import Plan
from vitkit.cli.predict import Predict
from vitkit.cli.report import Report
from vitkit.cli.serve import Serve
from vitkit.cli.summary import Summary
from vitkit.cli.train import Train
from vitkit.errors import UnknownNameError, UsageError, VitkitError, WorkError, is_out_of_memory, suggest
from vitkit.version import __version__

# Where tyro stops to say what is wrong, and repeats what --help says, of other commands too
_REPEATS = ("Got errors", "Argument helptext", "For full helptext", "Perhaps you meant", "Available", "vitkit ")
_HELP = " " * 9  # how far tyro sets in what an argument is for
_PLAINLY = (  # what Python says of a value, as people say it
    (r"invalid literal for int\(\) with base 10: (.*)", r"expected a whole number, not \1"),
    (r"could not convert string to float: (.*)", r"expected a number, not \1"),
    (r"no type matching .*FLOAT could be instantiated from \[(.*)\]", r"expected a number, not \1"),
    (r"no type matching .*INT could be instantiated from \[(.*)\]", r"expected a whole number, not \1"),
    (r"no type matching .* could be instantiated from \[(.*)\]", r"\1 is none of the values it takes"),
)

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": Demo,
    "models": Models,
    "summary": Summary,
    "inspect": Inspect,
    "pack": Pack,
    "plan": Plan,
    "train": Train,
    "ladder": Ladder,
    "eval": Eval,
    "embed": Embed,
    "predict": Predict,
    "explain": Explain,
    "convert": Convert,
    "bench": Bench,
    "report": Report,
    "serve": Serve,
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"vitkit {__version__}")
        return 0
    command = None
    try:
        command = parse(words or ["--help"])
        return command.run()
    except VitkitError as error:
        print(f"vitkit: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        fewer = "fewer images at a time (--batch)" if hasattr(command, "batch") else "a smaller model"
        print(f"vitkit: out of memory: use {fewer}, smaller images or fewer", file=sys.stderr)
        return WorkError.exit_code
    except OSError as error:  # a disk that is full or not ours, met where nobody looked for it
        print(f"vitkit: {error.filename or 'the work failed'}: {error.strerror or error}", file=sys.stderr)
        return WorkError.exit_code


def parse(words: list[str]) -> Any:
    """The command as its dataclass. Commands import torch themselves, so that --help and a slip answer at once."""
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        raise UnknownNameError("command", words[0], COMMANDS, "`vitkit --help` lists them")
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                {name: readable(command) for name, command in COMMANDS.items()},
                prog="vitkit",
                description="Vision Transformers that read like the paper and work like a tool.",
                args=words,
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName),
            )
    except SystemExit as leaving:
        if not leaving.code:
            raise
        said, known = one_line(complaint.getvalue()), words[0] in COMMANDS
        ask = f"vitkit {words[0]} --help" if known else "vitkit --help"
        near = _nearest(said, COMMANDS[words[0]]) if known else ""
        raise UsageError(f"{said}{near}; `{ask}` says what there is") from None


def one_line(box: str) -> str:
    """What tyro says in a box of several lines, as one: what is wrong, without the help that it repeats."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("╭╮╰╯│─+|").rstrip() for line in box.splitlines()[1:]]
    told = [line.strip() if line.strip(" -─") else ";" for line in lines if not line.startswith(_HELP)]
    said = " ".join(itertools.takewhile(lambda line: not line.startswith(_REPEATS), told))
    line = re.sub(r"\.?( ;)+", ";", said).strip(" ;.") or "the command line could not be read"
    for python, plain in _PLAINLY:
        line = re.sub(python, plain, line)
    return line


def _nearest(said: str, command: Any) -> str:
    """The option of this command that a misspelt one may have meant."""
    options = flags(command)
    for word in re.findall(r"--[\w-]+", said) if said.startswith("Unrecognized") else ():
        if near := difflib.get_close_matches(word, options, n=1):
            return suggest(word, near)
    return ""
