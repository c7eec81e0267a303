"""Size of a checkpoint, and how often to write one: frequent writes cost time, rare ones lose work at a failure.

Failures occur at random, every M seconds on average; a write takes δ and a restart R. W seconds of work in intervals
of τ then take M e^(R/M) (e^((τ+δ)/M) - 1) W/τ (Daly 2006). Young (1974) placed the minimum near √(2δM); Daly added
higher-order terms.
"""

import math
from dataclasses import dataclass

from vitkit.plan.activations import FLOAT
from vitkit.plan.job import Job
from vitkit.plan.parameter_count import optimizer_bytes, parameters


def state_bytes(job: Job) -> int:
    """Return the bytes of weights, optimizer state and EMA in float32, summed over all ranks."""
    return FLOAT * parameters(job.config).total * (2 if job.ema else 1) + optimizer_bytes(job)


@dataclass(frozen=True)
class Failures:
    """Times in seconds."""

    mtbf: float  # mean time between failures of the complete job
    write: float  # of a checkpoint, while the ranks wait
    restart: float  # until the first step after a failure


def young_interval(f: Failures) -> float:
    return math.sqrt(2 * f.write * f.mtbf)


def daly_interval(f: Failures) -> float:
    """Return Young's interval with higher-order terms. The series is not valid for writes longer than 2 M."""
    if f.write >= 2 * f.mtbf:
        return f.mtbf
    x = f.write / (2 * f.mtbf)
    return young_interval(f) * (1 + math.sqrt(x) / 3 + x / 9) - f.write


def expected_seconds(work: float, interval: float, f: Failures) -> float:
    try:
        overhead = math.exp(f.restart / f.mtbf) * math.expm1((interval + f.write) / f.mtbf)
    except OverflowError:
        return math.inf  # the run never finishes
    return f.mtbf * overhead * work / interval


def goodput(interval: float, f: Failures) -> float:
    """Return the fraction of time spent on work that is not lost."""
    return interval / expected_seconds(interval, interval, f)
