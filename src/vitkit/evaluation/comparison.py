"""Test whether one model is better than another: on the same samples, or over several seeds."""

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
    """Top-1 accuracy of model B compared with model A, sample by sample."""

    n: int
    top1_a: float
    top1_b: float
    difference: float  # top1_b − top1_a
    interval: Interval  # of the difference: paired bootstrap, 95 %
    p_value: float  # McNemar's exact test: probability of a difference this large between equally good models
    both: int  # samples that both models classify correctly
    only_a: int
    only_b: int
    neither: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "interval": list(self.interval)}

    def summary(self, a: str = "A", b: str = "B") -> str:
        """Return one paragraph in words. Differences are in percentage points."""
        difference, low, high = (100 * value for value in (self.difference, *self.interval))
        better = "as good as" if self.difference == 0 else ("better than" if self.difference > 0 else "worse than")
        by = f" by {abs(difference):.2f} points" if self.difference else ""
        significant = self.p_value < 1 - LEVEL
        text = (
            f"{b} ({self.top1_b:.2%}) is {better} {a} ({self.top1_a:.2%}) on these {self.n:,} images{by} "
            f"({LEVEL:.0%} bootstrap interval {low:+.2f} to {high:+.2f}). Only {b} is right on {self.only_b:,} images, "
            f"only {a} on {self.only_a:,}: the difference is {'' if significant else 'not '}significant at the "
            f"{1 - LEVEL:.0%} level (McNemar's exact test, p = {self.p_value:.2g})."
        )
        if significant == (low <= 0 <= high):
            text += " Interval and test disagree: trust the test, which is exact; the bootstrap is approximate."
        return f"{text} This speaks of these two sets of weights, not of the recipes: other seeds give other weights."


@dataclass(frozen=True)
class MeanEstimate:
    """Mean over seeds, with its confidence interval."""

    mean: float
    interval: Interval
    std: float  # of a single value
    n: int


def compare(
    a: Evaluation | Predictions, b: Evaluation | Predictions, *, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """Compare two models on the same samples, which must be in the same order."""
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
    """Return the two-sided p-value of McNemar's exact test.

    For equally good models, each sample that only one of them classifies correctly is a fair coin toss. So p =
    2·P(at most min(only_a, only_b) heads in n tosses). The sum starts at its largest term and multiplies by the ratios
    of neighbouring terms, so nothing overflows.
    """
    if min(only_a, only_b) < 0:
        raise InputError(f"only_a={only_a}, only_b={only_b}: counts must be at least 0")
    n, k = only_a + only_b, min(only_a, only_b)
    largest = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
    ratios = np.arange(k, 0, -1) / np.arange(n - k + 1, n + 1)
    return min(1.0, 2 * math.exp(largest) * (1 + float(np.cumprod(ratios).sum())))


def bootstrap_difference(
    only_a: int, only_b: int, n: int, *, resamples: int = 10_000, seed: int = 0, level: float = LEVEL
) -> Interval:
    """Return the percentile bootstrap interval of (only_b − only_a) / n over resampled pairs.

    A resample matters only through its two counts. These are multinomial and are drawn directly.
    """
    if resamples < 1:
        raise InputError(f"resamples={resamples}: must be at least 1")
    if not 0 <= only_a + only_b <= n or n == 0:
        raise InputError(
            f"only_a={only_a}, only_b={only_b}: must sum to at most the {n} samples, of which one is needed"
        )
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    counts = np.random.default_rng(seed).multinomial(n, shares, size=resamples)
    low, high = np.quantile((counts[:, 1] - counts[:, 0]) / n, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float], level: float = LEVEL) -> MeanEstimate:
    """Return the mean over seeds with Student's interval, mean ± t·s/√n."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        raise InputError(f"the interval of a mean needs at least 2 values, got {len(x)}: run another seed")
    if not np.isfinite(x).all():
        raise InputError(f"cannot average {list(values)}: not all values are finite")
    mean, std = float(x.mean()), float(x.std(ddof=1))
    half = student_t(len(x) - 1, level) * std / math.sqrt(len(x))
    return MeanEstimate(mean, (mean - half, mean + half), std, len(x))


def student_t(degrees: int, level: float = LEVEL) -> float:
    """Return the t for which P(|T| ≤ t) = level, by bisection of the angle θ = atan(t / √degrees)."""
    if degrees < 1 or not 0 < level < 1:
        raise InputError(f"Student's t needs at least 1 degree of freedom and 0 < level < 1, got {degrees} and {level}")
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        low, high = (angle, high) if _student_within(angle, degrees) < level else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _student_within(angle: float, degrees: int) -> float:
    """Return P(|T| ≤ √degrees · tan θ), a finite sum (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def same_samples(a: Predictions, b: Predictions) -> bool:
    """Return whether two predictions are of the same samples, in the same order."""
    try:
        _check_same_samples(a, b)
    except DataError:
        return False
    return True


def _check_same_samples(a: Predictions, b: Predictions) -> None:
    if len(a) != len(b):
        raise DataError(f"cannot compare: {len(a)} samples in the first, {len(b)} in the second")
    if a.class_names != b.class_names:
        raise DataError(f"cannot compare: the class names differ{_first_difference(a.class_names, b.class_names)}")
    if a.names is not None and b.names is not None and a.names != b.names:
        reordered = sorted(a.names) == sorted(b.names)
        order = "; they are the same in another order: sort one by the other" if reordered else ""
        raise DataError(f"cannot compare: the samples differ{_first_difference(a.names, b.names)}{order}")
    differ = np.flatnonzero(a.labels != b.labels)
    if len(differ):
        first = differ[0]
        labels = " and ".join(repr(p.class_names[p.labels[first]]) for p in (a, b))
        where = f"sample {first}" if a.names is None else a.names[first]
        raise DataError(f"cannot compare: {len(differ)} labels differ, the first for {where}: {labels}")


def _first_difference(a: Sequence[str], b: Sequence[str]) -> str:
    """Return the first difference of two sequences, in words that end a message."""
    if len(a) != len(b):
        return f": {len(a)} and {len(b)} of them"
    i = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return f", first at {i}: {a[i]!r} and {b[i]!r}"
