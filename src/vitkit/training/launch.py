"""One command in several processes of this machine (`vitkit train … --processes 2`). For several machines: torchrun.

torchrun would do here too, but answers Ctrl-C with a page of its own stack and exit code 1.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import torch.distributed as dist

from vitkit.training.signals import SIGNALS

Child = subprocess.Popen[bytes]

_ASK: tuple[tuple[Callable[[Child], None] | None, float], ...] = (  # how to make a process leave, and seconds to wait
    (None, 5.0),  # it may do so by itself: a signal reached all of them, or it misses the one that died
    (Child.terminate, 30.0),
    (Child.kill, 5.0),
)
_SAID = (2, *(128 + number for number in SIGNALS))  # exit codes of what all meet alike, and the first says


def launched() -> bool:
    """Is this one of several processes already, started by `launch` or by torchrun?"""
    return "WORLD_SIZE" in os.environ


def launch(command: Sequence[str], processes: int) -> int:
    """Runs the command once per process, each with its share of the cores; returns the exit code of the first to fail.

    The processes find each other through a store of this one. When one of them dies the others cannot go on, and are
    asked to leave. The first one speaks; of the others only what ended the run, if that was not said.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # public, but not in __all__
    threads = max(1, (os.cpu_count() or 1) // processes)
    shared = {"OMP_NUM_THREADS": str(threads), **os.environ, "WORLD_SIZE": str(processes)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    with contextlib.ExitStack() as files:
        words = [None] + [files.enter_context(tempfile.TemporaryFile()) for _ in range(1, processes)]
        children = [
            Child(command, env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)}, start_new_session=True, stderr=stderr)
            for i, stderr in enumerate(words)
        ]
        with _signals_to(children):
            failed = _first_failure(children)
            for ask, patience in _ASK if failed is not None else ():
                for child in children:
                    if ask and child.poll() is None:
                        ask(child)
                if _all_gone(children, patience):
                    break
        if failed is None:
            return 0
        if (stderr := words[failed]) and children[0].returncode not in _SAID:
            stderr.seek(0)
            sys.stderr.write(stderr.read().decode(errors="replace"))
    code = children[failed].returncode
    return 128 - code if code < 0 else code


def _first_failure(children: Sequence[Child]) -> int | None:
    """Waits until one fails, and returns its number; None: all are done."""
    while True:
        codes = [child.poll() for child in children]
        for i, code in enumerate(codes):
            if code:
                return i
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _all_gone(children: Sequence[Child], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(child.poll() is None for child in children):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def _signals_to(children: Sequence[Child]) -> Iterator[None]:
    """Each signal reaches each child once: in sessions of their own, the terminal does not tell them as well."""

    def pass_on(number: int, _: object) -> None:
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
