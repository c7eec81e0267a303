"""Is one model better than another, or was it luck? Compared on the same samples, or over several seeds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vitkit.errors import DataError, InputError
from vitkit.evaluation.evaluation import Evaluation
from vitkit.evaluation.metrics import LEVEL, Interval, Predictions


@dataclass(frozen=True)
class Comparison:
    """Top-1 of B against A, sample by sample."""

    n: int
    top1_a: float
    top1_b: float
    difference: float  # top1_b − top1_a
    interval: Interval  # of the difference: paired bootstrap, 95 %
    p_value: float  # McNemar's exact test: two models equally good would differ at least this much this often
    both: int  # samples that both have right
    only_a: int
    only_b: int
    neither: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "interval": list(self.interval)}

    def summary(self, a: str = "A", b: str = "B") -> str:
        """One paragraph for a person; differences are in percentage points."""
        difference, low, high = (100 * value for value in (self.difference, *self.interval))
        better = "as good as" if self.difference == 0 else ("better than" if self.difference > 0 else "worse than")
        by = f" by {abs(difference):.2f} points" if self.difference else ""
        apart = self.only_a + self.only_b
        verdict = "hardly chance" if self.p_value < 1 - LEVEL else "may well be chance"
        return (
            f"{b} ({self.top1_b:.2%}) is {better} {a} ({self.top1_a:.2%}) on these {self.n:,} images{by}; the "
            f"difference lies between {low:+.2f} and {high:+.2f} points ({LEVEL:.0%} interval). Of {apart:,} images "
            f"that only one of them has right, {b} has {self.only_b:,} and {a} {self.only_a:,}: {verdict} "
            f"(p = {self.p_value:.2g}, McNemar's exact test)."
        )


@dataclass(frozen=True)
class Mean:
    mean: float
    interval: Interval
    deviation: float  # standard deviation of a single value
    n: int


def compare(
    a: Evaluation | Predictions, b: Evaluation | Predictions, *, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """Of two models on the same samples in the same order. The order itself does not matter."""
    a, b = (e.predictions if isinstance(e, Evaluation) else e for e in (a, b))
    _check_same_samples(a, b)
    right_a, right_b = a.samples.rank == 0, b.samples.rank == 0
    n, only_a, only_b = len(a), int(np.sum(right_a & ~right_b)), int(np.sum(right_b & ~right_a))
    both = int(np.sum(right_a & right_b))
    return Comparison(
        n=n,
        top1_a=(both + only_a) / n,
        top1_b=(both + only_b) / n,
        difference=(only_b - only_a) / n,
        interval=bootstrap_difference(only_a, only_b, n, resamples=resamples, seed=seed),
        p_value=mcnemar(only_a, only_b),
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=n - both - only_a - only_b,
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact and two-sided: were the models equally good, each sample that one alone has right would be a fair coin.

    p = 2·P(at most min of the two heads in n tosses). The sum starts at its largest term and follows the ratios of
    neighbours downwards, so nothing overflows at any n.
    """
    if min(only_a, only_b) < 0:
        raise InputError(f"{only_a} and {only_b} samples that one model alone has right: counts are at least 0")
    n, k = only_a + only_b, min(only_a, only_b)
    largest = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
    ratios = np.arange(k, 0, -1) / np.arange(n - k + 1, n + 1)
    return min(1.0, 2 * math.exp(largest) * (1 + float(np.cumprod(ratios).sum())))


def bootstrap_difference(
    only_a: int, only_b: int, n: int, *, resamples: int = 10_000, seed: int = 0, level: float = LEVEL
) -> Interval:
    """The percentile interval of (only_b − only_a) / n when the n pairs are drawn again with replacement.

    A resample matters only through its two counts, and these are multinomial: they are drawn directly.
    """
    if resamples < 1:
        raise InputError(f"{resamples} resamples: there must be at least one")
    if not 0 <= only_a + only_b <= n or n == 0:
        raise InputError(f"{only_a} + {only_b} of {n} samples: no such split")
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    counts = np.random.default_rng(seed).multinomial(n, shares, size=resamples)
    low, high = np.quantile((counts[:, 1] - counts[:, 0]) / n, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Mean:
    """The mean over seeds and Student's interval of it: mean ± t·s/√n."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        raise InputError(f"an interval of a mean needs at least 2 values, got {len(x)}: run another seed")
    if not np.isfinite(x).all():
        raise InputError(f"the mean of {list(values)}: not all are finite")
    mean, deviation = float(x.mean()), float(x.std(ddof=1))
    half = student_t(len(x) - 1, level) * deviation / math.sqrt(len(x))
    return Mean(mean, (mean - half, mean + half), deviation, len(x))


def student_t(freedom: int, level: float = LEVEL) -> float:
    """The t for which P(|T| ≤ t) = level, by bisection of the angle θ = atan(t / √freedom)."""
    if freedom < 1 or not 0 < level < 1:
        raise InputError(f"Student's t of {freedom} degrees of freedom at level {level}: no such quantile")
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        low, high = (angle, high) if _student_within(angle, freedom) < level else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _student_within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan θ): for whole degrees of freedom a finite sum (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _check_same_samples(a: Predictions, b: Predictions) -> None:
    if len(a) != len(b):
        raise DataError(f"cannot compare: {len(a)} samples in the first, {len(b)} in the second")
    if a.class_names != b.class_names:
        raise DataError(f"cannot compare: the class names differ{_first(a.class_names, b.class_names)}")
    if a.names is not None and b.names is not None and a.names != b.names:
        order = ", in order only: sort one by the other" if sorted(a.names) == sorted(b.names) else ""
        raise DataError(f"cannot compare: the samples differ{_first(a.names, b.names)}{order}")
    differ = np.flatnonzero(a.labels != b.labels)
    if len(differ):
        first = differ[0]
        labels = " and ".join(repr(p.class_names[p.labels[first]]) for p in (a, b))
        where = f"sample {first}" if a.names is None else a.names[first]
        raise DataError(f"cannot compare: {len(differ)} labels differ, first that of {where}: {labels}")


def _first(a: Sequence[str], b: Sequence[str]) -> str:
    """The end of a message: where two sequences part."""
    if len(a) != len(b):
        return f": {len(a)} and {len(b)} of them"
    i = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return f", first at {i}: {a[i]!r} and {b[i]!r}"
