"""How much memory a contestant takes at most: each runs alone, in a new process that does nothing else."""

import multiprocessing
import resource
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from vitkit.bench.contest import Run

_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss


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
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 2**20
