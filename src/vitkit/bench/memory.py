"""Measures peak memory. Each competitor runs alone in a new process."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from vitkit.errors import WorkError
from vitkit.runtime.timing import Run

STATUS = Path("/proc/self/status")
MIB = 2**20
T = TypeVar("T")


def peak_memory(prepare: Callable[[str, Any], Run], names: Sequence[str], job: Any) -> dict[str, float]:
    """Return the peak in MiB, by name. It includes pages of shared libraries: about 250 MiB belong to torch."""
    return {name: run_in_new_process(_peak, prepare, name, job) for name in names}


def run_in_new_process(function: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def process_memory(key: str) -> int:
    """Return bytes of this process on Linux: VmRSS, its memory now, or VmHWM, its peak."""
    if not STATUS.exists():
        raise WorkError(f"{key} cannot be read on this system: it needs Linux")
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def _peak(prepare: Callable[[str, Any], Run], name: str, job: Any) -> float:
    run = prepare(name, job)
    for _ in range(3):
        run()
    if STATUS.exists():  # on Linux, ru_maxrss would include the peak of the parent process
        return process_memory("VmHWM") / MIB
    try:
        import resource
    except ModuleNotFoundError as error:
        raise WorkError("peak memory cannot be measured on this system: use --no-memory") from error
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB  # macOS reports bytes
