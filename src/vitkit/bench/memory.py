"""How much memory a contestant takes at most: each runs alone, in a new process that does nothing else."""

import multiprocessing
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from vitkit.runtime.timing import Run

STATUS = Path("/proc/self/status")


def peaks(prepare: Callable[[str, Any], Run], names: Sequence[str], job: Any) -> dict[str, float]:
    """Name → MiB. Pages of shared libraries count too: about 250 MiB are torch's own."""
    spawn = multiprocessing.get_context("spawn")
    found = {}
    for name in names:
        with ProcessPoolExecutor(1, mp_context=spawn) as alone:
            found[name] = alone.submit(_peak, prepare, name, job).result()
    return found


def _peak(prepare: Callable[[str, Any], Run], name: str, job: Any) -> float:
    run = prepare(name, job)
    for _ in range(3):
        run()
    return _highest() / 2**20


def _highest() -> int:
    """Bytes. Linux hands ru_maxrss down from the process that started this one; VmHWM begins anew."""
    if STATUS.exists():
        return of_this_process("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes already


def of_this_process(key: str) -> int:
    """Bytes: VmRSS, what it holds now; VmHWM, the most that it has held. Linux only."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])
