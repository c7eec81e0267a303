"""Contestants take turns, round by round, so that a noisy machine slows all of them alike; medians are compared."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Run = Callable[[], object]


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


def contest(runs: Mapping[str, Run], rounds: int = 7, turn_seconds: float = 0.4) -> dict[str, list[float]]:
    """Seconds per call, a list for each contestant.

    In a turn a contestant is called until the time is over, so that short calls are not lost in the clock's grain.
    Who begins moves on from round to round: nobody always follows the same other.
    """
    for run in runs.values():  # what is prepared on a first call is no part of the contest
        run()
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(rounds):
        for name in _rotated(names, turn):
            seconds[name] += list(_turn(runs[name], turn_seconds))
    return seconds


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def _turn(run: Run, at_least: float) -> Iterator[float]:
    over = time.perf_counter() + at_least
    while True:
        started = time.perf_counter()
        run()
        yield time.perf_counter() - started
        if time.perf_counter() >= over:
            return


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
