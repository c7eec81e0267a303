"""`vitkit COMMAND …`: parse, run, and turn errors into one line and an exit code.

0 done · 1 the work failed · 2 bad usage or input · 130 / 143 interrupted with the state saved
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from vitkit.cli.demo import Demo
from vitkit.cli.inspect import Inspect
from vitkit.cli.models import Models
from vitkit.cli.summary import Summary
from vitkit.cli.train import Train
from vitkit.errors import VitkitError

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": Demo,
    "inspect": Inspect,
    "models": Models,
    "summary": Summary,
    "train": Train,
}


def main(arguments: Sequence[str] | None = None) -> int:
    # Commands import torch themselves, so that --help and a mistyped word answer at once.
    command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="vitkit",
        description="Vision Transformers that read like the paper and work like a tool.",
        args=list(sys.argv[1:] if arguments is None else arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    try:
        return command.run()
    except VitkitError as error:
        print(f"vitkit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("vitkit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
