"""Run a code block of a page as a reader would, with shorter training budgets.

A block of plain `vitkit` commands runs in this process, by the function that the `vitkit` script calls. A block that
needs a shell (pipes, jobs, other programs) runs in bash.
"""

import contextlib
import glob
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from vitkit.cli.main import main

from .pages import Block

# A tenth of an epoch is enough to show that a command works.
SHORTENED = (
    (r"(vitkit train .*)--minutes \S+", r"\1--epochs 0.1"),
    (r"(vitkit ladder .*)--minutes \S+", r"\1--minutes 0.01"),
    (r"--epochs \S+", "--epochs 0.1"),
    (r"vitkit demo(?! --epochs)", "vitkit demo --epochs 0.1"),
)


def shorten(code: str) -> str:
    for long, short in SHORTENED:
        code = re.sub(long, short, code)
    return code


def run(block: Block, where: str) -> None:
    if block.language == "python":
        exec(compile(block.code, where, "exec"), {"__name__": "__main__"})
        return
    code = shorten(block.code)
    lines = code.replace("\\\n", " ").splitlines()
    if all(_is_plain(line) for line in lines):
        for line in lines:
            _call(line, where)
    else:
        _shell(code.replace("8000", str(_free_port())), where)


def _split(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _is_plain(line: str) -> bool:
    """Return whether the line is empty or one vitkit command, with at most a redirection of its output."""
    try:
        arguments = _split(line)
    except ValueError:  # a quotation that continues on the next line
        return False
    signs = [argument for argument in arguments if argument and set(argument) <= set("();<>|&")]
    return not arguments or (arguments[0] == "vitkit" and signs in ([], [">"]) and "$" not in line)


def _call(line: str, where: str) -> None:
    arguments = _split(line)[1:]
    if not arguments:
        return
    file = None
    if ">" in arguments:
        arguments, file = arguments[: arguments.index(">")], arguments[-1]
    expanded = [path for arg in arguments for path in (sorted(glob.glob(arg)) if "*" in arg else []) or [arg]]
    with contextlib.ExitStack() as stack:
        if file:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(Path(file).open("w", encoding="utf-8"))))
        try:
            code = main(expanded)
        except SystemExit as leaving:  # --help and --version
            code = leaving.code or 0
    assert code == 0, f"{where}: `{line}` ended with {code}"


def _shell(code: str, where: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    script = ["bash", "-em", "-o", "pipefail", "-c", code]  # -m: so that %1 is the first job, as it is for a reader
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, f"{where}: ended with {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
