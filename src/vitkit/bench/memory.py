"""How much memory a contestant takes at most: each runs alone, in a new process that does nothing else."""

import multiprocessing
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from vitkit.bench.contest import Run


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
    if (status := Path("/proc/self/status")).exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes already
