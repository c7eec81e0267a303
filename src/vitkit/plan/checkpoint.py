"""How large a checkpoint is, and how often to write one: too often costs writing, too seldom costs work done again.

With failures that come at random, on average every M seconds, a write that takes δ and a restart that takes R, work of
W seconds in intervals of τ takes M e^(R/M) (e^((τ+δ)/M) - 1) W/τ (Daly 2006). Young (1974) found the least of it near
√(2δM), Daly a few terms more.
"""

import math
from dataclasses import dataclass

from vitkit.plan.activations import FLOAT
from vitkit.plan.job import Job
from vitkit.plan.parameters import optimizer_bytes, parameters


def state_bytes(job: Job) -> int:
    """Weights, optimizer state and average, in float32: the same however they are cut."""
    return FLOAT * parameters(job.config).total * (2 if job.ema else 1) + optimizer_bytes(job)


@dataclass(frozen=True)
class Failures:
    """Seconds."""

    mtbf: float  # between two failures, of the whole job
    write: float  # for a checkpoint, while the ranks wait
    restart: float  # until the first step after a failure


def young(f: Failures) -> float:
    return math.sqrt(2 * f.write * f.mtbf)


def daly(f: Failures) -> float:
    """Young's, with the next terms of the series; for writes longer than 2 M the series says nothing."""
    if f.write >= 2 * f.mtbf:
        return f.mtbf
    share = f.write / (2 * f.mtbf)
    return young(f) * (1 + math.sqrt(share) / 3 + share / 9) - f.write


def expected_seconds(work: float, interval: float, f: Failures) -> float:
    try:
        lost = math.exp(f.restart / f.mtbf) * math.expm1((interval + f.write) / f.mtbf)
    except OverflowError:
        return math.inf  # such a run never ends
    return f.mtbf * lost * work / interval


def goodput(interval: float, f: Failures) -> float:
    """The share of the time in which work is done that lasts."""
    return interval / expected_seconds(interval, interval, f)
