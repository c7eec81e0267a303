"""Contestants take turns, round by round, so that a noisy machine slows all of them alike; medians are compared."""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vitkit.runtime.timing import Run, time_calls

WARMUP = 2  # calls of each contestant before the first round: compilation and caches are not part of the measurement
TURN_SECONDS = 0.4  # at least, per contestant and round: short calls are repeated


@dataclass(frozen=True)
class Row:
    """What one contestant reached. `ms`, the median, and `p95_ms` are of one batch."""

    name: str
    images_per_s: float
    ms: float
    p95_ms: float
    ratio: float  # images/s, as a multiple of the first contestant's
    peak_share: float  # of the multiply-adds per second that the machine reaches in plain matrix products
    memory_mib: float | None  # the most that a process with nothing else in it held

    def to_dict(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def measure(runs: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call of each contestant, in interleaved rounds."""
    return time_calls(runs, rounds, warmup=WARMUP, turn_seconds=TURN_SECONDS)


def rows(
    seconds: Mapping[str, list[float]],
    images: int,
    macs: float,
    peak_macs_per_s: float,
    memory: Mapping[str, float] | None = None,
) -> list[Row]:
    first = statistics.median(next(iter(seconds.values())))
    made = []
    for name, times in seconds.items():
        median = statistics.median(times)
        made.append(
            Row(
                name,
                images_per_s=images / median,
                ms=1e3 * median,
                p95_ms=1e3 * _percentile(times, 0.95),
                ratio=first / median,
                peak_share=images * macs / median / peak_macs_per_s,
                memory_mib=(memory or {}).get(name),
            )
        )
    return made


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
