"""One command in several processes of this machine (`vitkit train … --processes 2`). For several machines: torchrun."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

import torch.distributed as dist

from vitkit.train.interrupt import SIGNALS

_GRACE_S = 30.0  # for processes that are asked to leave, to save and to do so


def launched() -> bool:
    """Is this one of several processes already, started by `launch` or by torchrun?"""
    return "WORLD_SIZE" in os.environ


def launch(command: Sequence[str], processes: int) -> int:
    """Runs the command once per process, each with its share of the cores; returns the exit code of the first to fail.

    The processes find each other through a store of this one. When one of them dies the others cannot go on, and are
    asked to leave.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]  # public, but not in __all__
    threads = max(1, (os.cpu_count() or 1) // processes)
    shared = {"OMP_NUM_THREADS": str(threads), **os.environ, "WORLD_SIZE": str(processes)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    children = [
        subprocess.Popen(command, env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)}, start_new_session=True)
        for i in range(processes)
    ]
    with _signals_to(children):
        code = _first_failure(children)
        deadline = time.monotonic() + _GRACE_S
        for child in children:
            if code and child.poll() is None:
                child.terminate()
        for child in children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()) if code else None)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    return 128 - code if code < 0 else code


def _first_failure(children: Sequence["subprocess.Popen[bytes]"]) -> int:
    """Waits until one fails or all are done; 0: all are."""
    while True:
        codes = [child.poll() for child in children]
        if failed := [code for code in codes if code]:
            return failed[0]
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


@contextlib.contextmanager
def _signals_to(children: Sequence["subprocess.Popen[bytes]"]) -> Iterator[None]:
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
