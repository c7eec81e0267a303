"""Times competitors in interleaved rounds and compares their medians."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from vitkit.bench.baselines import BaselineUnavailable
from vitkit.bench.memory import peak_memory
from vitkit.bench.peak_flops import peak_macs_per_s
from vitkit.errors import MissingExtraError, UnknownNameError, WorkError, first_line
from vitkit.runtime.timing import Run, medians, time_calls

TURN_SECONDS = 0.4  # at least, per competitor and round


@dataclass(frozen=True)
class BenchResult:
    """The speed and memory of one competitor. `ms`, the median, and `p95_ms` are per batch."""

    name: str
    images_per_s: float
    ms: float
    p95_ms: float
    ratio: float  # images/s relative to the first competitor
    peak_share: float  # multiply-adds per second relative to a large matrix product on this machine
    memory_mib: float | None  # peak of a process that runs nothing else

    def to_dict(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def run_benchmark(
    names: Sequence[str],
    prepare: Callable[[str, Any], Run],
    job: Any,
    *,
    images: int,
    macs: float,
    rounds: int,
    memory: bool,
) -> tuple[list[BenchResult], dict[str, str]]:
    """Return a result for each competitor, and the reason for each that cannot run here.

    `prepare(name, job)` returns the function to time, which processes `images` images of `macs` multiply-adds each.
    """
    runs, missing = {}, {}
    for name in names:
        try:
            run = prepare(name, job)
            run()  # compilation at the first call can fail
            runs[name] = run
        except (BaselineUnavailable, MissingExtraError, WorkError, torch._inductor.exc.InductorError) as error:
            missing[name] = first_line(error)
    seconds = time_calls(runs, rounds, turn_seconds=TURN_SECONDS)
    used = peak_memory(prepare, list(runs), job) if memory else {}
    return summarize_times(seconds, images, macs / peak_macs_per_s(), used), missing


def summarize_times(
    seconds: Mapping[str, list[float]],
    images: int,
    seconds_at_peak: float = 0.0,
    memory: Mapping[str, float] | None = None,
) -> list[BenchResult]:
    """Return a result for each competitor. `seconds_at_peak` is the time of one image at the peak of the machine."""
    typical = medians(seconds)
    first = next(iter(typical.values()))
    return [
        BenchResult(
            name,
            images_per_s=images / median,
            ms=1e3 * median,
            p95_ms=1e3 * sorted(seconds[name])[int(0.95 * len(seconds[name]))],
            ratio=first / median,
            peak_share=images * seconds_at_peak / median,
            memory_mib=(memory or {}).get(name),
        )
        for name, median in typical.items()
    ]


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError("library", name, known)
