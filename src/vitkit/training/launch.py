"""Run one command in several processes of this machine (`vitkit train … --processes 2`).

torchrun, which several machines need, would answer Ctrl-C with its own stack trace and exit code 1.
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

_STOP: tuple[tuple[Callable[[Child], None] | None, float], ...] = (  # how to stop a process, seconds to wait
    (None, 5.0),  # it may stop by itself: a signal reached all processes, or it notices that a peer is missing
    (Child.terminate, 30.0),
    (Child.kill, 5.0),
)
# Exit codes of errors that all processes raise and the first process prints
_SHARED_EXIT_CODES = (2, *(128 + number for number in SIGNALS))


def is_launched() -> bool:
    """Return True if `launch` or torchrun started this process as one of several."""
    return "WORLD_SIZE" in os.environ


def launch(command: Sequence[str], processes: int) -> int:
    """Run the command in several processes that share the cores. Return 0, or the exit code of the first failure.

    The processes connect through a store in this process. If one dies, the others are stopped. Only the first process
    writes to stderr. The stderr of another process is printed if it failed first and the first process did not report
    the error.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # public, but not in __all__
    threads = max(1, (os.cpu_count() or 1) // processes)
    shared = {"OMP_NUM_THREADS": str(threads), **os.environ, "WORLD_SIZE": str(processes)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    with contextlib.ExitStack() as files:
        outputs = [None] + [files.enter_context(tempfile.TemporaryFile()) for _ in range(1, processes)]
        children = [
            Child(command, env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)}, start_new_session=True, stderr=stderr)
            for i, stderr in enumerate(outputs)
        ]
        with _forward_signals(children):
            failed = _first_failure(children)
            for stop, timeout in _STOP if failed is not None else ():
                for child in children:
                    if stop and child.poll() is None:
                        stop(child)
                if _all_ended(children, timeout):
                    break
        if failed is None:
            return 0
        if (stderr := outputs[failed]) and children[0].returncode not in _SHARED_EXIT_CODES:
            stderr.seek(0)
            sys.stderr.write(stderr.read().decode(errors="replace"))
    code = children[failed].returncode
    return 128 - code if code < 0 else code


def _first_failure(children: Sequence[Child]) -> int | None:
    """Wait until one process fails and return its rank, or None when all have succeeded."""
    while True:
        codes = [child.poll() for child in children]
        for rank, code in enumerate(codes):
            if code:
                return rank
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _all_ended(children: Sequence[Child], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while any(child.poll() is None for child in children):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def _forward_signals(children: Sequence[Child]) -> Iterator[None]:
    """Forward signals to all children within the context. In their own sessions, they get none from the terminal."""

    def forward(number: int, _: object) -> None:
        for child in children:
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
