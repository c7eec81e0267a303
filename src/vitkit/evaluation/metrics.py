"""Compute metrics from arrays: accuracy, scores per class, calibration.

All values are fractions, never percentages. Sums are in float64 over a few thousand rows at a time, so 50,000 samples
of 1,000 classes need little more memory than their logits.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Self

import numpy as np

from vitkit.errors import DataError, InputError, NotFiniteError

Interval = tuple[float, float]

BINS = 15  # of the confidence, as in Guo et al. 2017
LEVEL = 0.95  # confidence level of every interval
CHUNK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of a model for labelled samples. They are validated on creation."""

    logits: np.ndarray  # (N, K) float32
    labels: np.ndarray  # (N,) int64
    class_names: Sequence[str]  # K of them
    names: Sequence[str] | None = None  # of the samples: their paths
    skipped: Sequence[str] = ()  # "name: reason" of each image that was left out

    def __post_init__(self) -> None:
        set_, labels = object.__setattr__, np.asarray(self.labels)
        if labels.size and not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"labels are {labels.dtype}: expected integer class indices")
        set_(self, "logits", np.asarray(self.logits, dtype=np.float32))
        set_(self, "labels", labels.astype(np.int64))
        set_(self, "class_names", tuple(self.class_names))
        set_(self, "names", None if self.names is None else tuple(self.names))
        set_(self, "skipped", tuple(self.skipped))
        _check(self)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: np.ndarray,
        labels: np.ndarray,
        class_names: Sequence[str],
        names: Sequence[str] | None = None,
    ) -> Self:
        """Return predictions with log-probabilities as logits. A 0 becomes the smallest normal float32, 1.2e-38."""
        p = np.asarray(probabilities, dtype=np.float64)
        if p.ndim == 2 and not (np.all(p >= 0) and np.allclose(p.sum(axis=1), 1, atol=1e-3)):
            raise InputError("probabilities must be at least 0 and sum to 1 in each row: pass logits as `logits`")
        return cls(np.log(np.maximum(p, np.finfo(np.float32).tiny)), labels, class_names, names)

    def __len__(self) -> int:
        return len(self.labels)

    def scaled(self, temperature: float) -> "Predictions":
        """Return a copy with logits divided by a temperature: the confidence changes, the ranking does not."""
        if not (math.isfinite(temperature) and temperature > 0):
            raise InputError(f"temperature {temperature}: must be a number above 0")
        return replace(self, logits=self.logits / np.float32(temperature))

    @cached_property
    def samples(self) -> "Samples":
        """Per-sample values, computed once."""
        parts = [_sample_columns(z, y) for z, y in _chunks(self)]
        return Samples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Samples:
    """Values of each sample that the metrics are computed from: (N,) arrays."""

    predicted: np.ndarray  # class of the highest logit; the first of equal ones
    rank: np.ndarray  # of the label: number of classes ranked above it, 0 if it is predicted
    confidence: np.ndarray  # probability of the predicted class
    nll: np.ndarray  # −log probability of the label
    brier: np.ndarray  # Σₖ (pₖ − [k is the label])²


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class. A ratio whose denominator is 0 is undefined: None, not 0."""

    label: str
    precision: float | None  # None: never predicted
    recall: float | None  # None: no samples
    f1: float | None  # None: neither
    support: int  # samples of this class


@dataclass(frozen=True)
class Bin:
    """The samples whose confidence is in (low, high]. Means are None if there are none."""

    low: float
    high: float
    count: int
    confidence: float | None  # mean
    accuracy: float | None


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature. ECE and NLL are those of the samples it was fitted on: evaluate it on others."""

    temperature: float
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float


@dataclass(frozen=True)
class Mistake:
    """A misclassified sample."""

    index: int
    path: str | None  # name of the sample, if it has one
    label: str
    predicted: str
    score: float  # probability of the predicted class


def top_k(predictions: Predictions, k: int = 1) -> float:
    """Return how often the label is among the k highest logits: 1.0 if there are at most k classes.

    Equal logits rank by class index. So a model with constant logits scores as one that always predicts the first
    class, not as one that is always right.
    """
    if k < 1:
        raise InputError(f"top-{k} accuracy: k must be at least 1")
    return float(np.mean(predictions.samples.rank < k))


def wilson_interval(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a proportion (1927).

    Unlike p ± z·√(p(1−p)/n) it stays within 0…1, and does not shrink to a point at 0 of n or n of n.
    """
    if not 0 <= successes <= n or n == 0:
        raise InputError(f"{successes} of {n} is not a proportion: expected 0 ≤ successes ≤ n and n ≥ 1")
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, shrink = successes / n, 1 + z * z / n
    middle = (p + z * z / (2 * n)) / shrink
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / shrink
    # At the ends the exact value is 0 or 1, but rounding misses it.
    return (0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half)


def top_k_interval(predictions: Predictions, k: int = 1, level: float = LEVEL) -> Interval:
    return wilson_interval(int(np.sum(predictions.samples.rank < k)), len(predictions), level)


def confusion_matrix(predictions: Predictions) -> np.ndarray:
    """Return (K, K) counts: rows are labels, columns are predictions."""
    k = len(predictions.class_names)
    return np.bincount(predictions.labels * k + predictions.samples.predicted, minlength=k * k).reshape(k, k)


def confusion_cells(predictions: Predictions) -> np.ndarray:
    """Return the cells of the confusion matrix that are not 0: rows (label, predicted, count), (N, 3), in order."""
    k = len(predictions.class_names)
    cells, counts = np.unique(predictions.labels * k + predictions.samples.predicted, return_counts=True)
    return np.stack([cells // k, cells % k, counts], axis=1)


def per_class(predictions: Predictions) -> tuple[ClassScore, ...]:
    labels, guesses, k = predictions.labels, predictions.samples.predicted, len(predictions.class_names)
    hits, support, predicted = (np.bincount(x, minlength=k) for x in (labels[labels == guesses], labels, guesses))
    return tuple(
        ClassScore(label, _ratio(hit, n_predicted), _ratio(hit, n), _ratio(2 * hit, n + n_predicted), int(n))
        for label, hit, n, n_predicted in zip(predictions.class_names, hits, support, predicted, strict=True)
    )


def reliability(predictions: Predictions, bins: int = BINS) -> tuple[Bin, ...]:
    """Return confidence and accuracy in bins of equal width, each with its upper edge."""
    if bins < 1:
        raise InputError(f"bins={bins}: must be at least 1")
    samples = predictions.samples
    place = np.clip(np.ceil(samples.confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    confidence = np.bincount(place, samples.confidence, bins)
    correct = np.bincount(place, samples.rank == 0, bins)
    return tuple(
        Bin(i / bins, (i + 1) / bins, int(n), _ratio(confidence[i], n), _ratio(correct[i], n))
        for i, n in enumerate(count)
    )


def expected_calibration_error(predictions: Predictions, bins: int = BINS) -> float:
    """Return the ECE: Σ over bins of (share of the samples) · |accuracy − mean confidence| (Guo et al. 2017).

    Only the highest probability of a sample counts. The ECE is biased upwards on small sets, where the accuracy of a
    bin varies by chance.
    """
    total = 0.0
    for b in reliability(predictions, bins):
        if b.accuracy is not None and b.confidence is not None:
            total += b.count * abs(b.accuracy - b.confidence)
    return total / len(predictions)


def negative_log_likelihood(predictions: Predictions) -> float:
    """Return the mean cross-entropy in nats, without label smoothing or class weights."""
    return float(np.mean(predictions.samples.nll))


def brier_score(predictions: Predictions) -> float:
    """Return the Brier score (1950) summed over all classes: 0 if certain and right, 2 if certain and wrong."""
    return float(np.mean(predictions.samples.brier))


def fit_temperature(predictions: Predictions, low: float = 0.01, high: float = 100.0) -> Temperature:
    """Return the T for which softmax(logits / T) has the lowest NLL. Fit it on validation samples, never on test.

    NLL is convex in β = 1/T, so its only minimum is where the slope crosses 0. Newton steps find it, and bisection
    replaces a step that leaves the bracket or shrinks too slowly. A set without a mistake has no minimum, nor has one
    that is worse than chance: T then tends to `low` or `high`.
    """
    if not 0 < low < high:
        raise InputError(f"low={low}, high={high}: expected 0 < low < high")
    left, right = 1 / high, 1 / low
    beta, moved = min(max(1.0, left), right), math.inf
    while right - left > 1e-9 * right:
        slope, curve = _slope(predictions, beta)
        if slope == 0:
            break
        left, right = (beta, right) if slope < 0 else (left, beta)
        newton = beta - slope / curve if curve > 0 else math.inf
        if abs(newton - beta) <= 1e-9 * beta:
            break
        step = newton if left < newton < right and abs(newton - beta) <= moved / 2 else math.sqrt(left * right)
        beta, moved = step, abs(step - beta)
    temperature = 1 / beta
    before_after = (predictions, predictions.scaled(temperature))
    ece, nll = map(expected_calibration_error, before_after), map(negative_log_likelihood, before_after)
    return Temperature(temperature, *ece, *nll)


def cross_fitted_temperature(predictions: Predictions) -> tuple[float, Predictions]:
    """Return the temperature fitted on all samples, and the predictions with each half scaled by the other half's fit.

    So no sample is evaluated at a temperature that was fitted on it. The halves are the even and the odd samples,
    which divides sorted classes evenly.
    """
    if len(predictions) < 2:
        raise InputError("cross-fitting a temperature needs at least 2 images")
    logits = predictions.logits.copy()
    for half, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        others = Predictions(predictions.logits[other], predictions.labels[other], predictions.class_names)
        logits[half] /= np.float32(fit_temperature(others).temperature)
    return fit_temperature(predictions).temperature, replace(predictions, logits=logits)


def confident_mistakes(predictions: Predictions, limit: int = 20) -> tuple[Mistake, ...]:
    """Return the mistakes with the highest confidence first. Label errors are often among them."""
    samples, names = predictions.samples, predictions.names
    wrong = np.flatnonzero(samples.rank)
    worst = wrong[np.argsort(-samples.confidence[wrong], kind="stable")][:limit]
    return tuple(
        Mistake(
            index=int(i),
            path=None if names is None else names[i],
            label=predictions.class_names[predictions.labels[i]],
            predicted=predictions.class_names[samples.predicted[i]],
            score=float(samples.confidence[i]),
        )
        for i in worst
    )


def _chunks(predictions: Predictions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of float64 logits, shifted so that the highest is 0, with their labels."""
    for start in range(0, len(predictions), CHUNK_ROWS):
        z = predictions.logits[start : start + CHUNK_ROWS].astype(np.float64)
        yield z - z.max(axis=1, keepdims=True), predictions.labels[start : start + CHUNK_ROWS]


def _sample_columns(z: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the columns of `Samples`, in its order."""
    rows, classes = np.arange(len(z)), np.arange(z.shape[1])
    of_label = z[rows, labels][:, None]
    before = (z > of_label) | ((z == of_label) & (classes < labels[:, None]))
    log_sum = np.log(np.exp(z).sum(axis=1))
    p = np.exp(z - log_sum[:, None])
    predicted = z.argmax(axis=1)
    nll = log_sum - of_label[:, 0]
    p_other = np.where(classes == labels[:, None], 0.0, p)
    brier = np.square(p_other).sum(axis=1) + np.square(np.expm1(-nll))
    return predicted, before.sum(axis=1), p[rows, predicted], nll, brier


def _slope(predictions: Predictions, beta: float) -> tuple[float, float]:
    """Return the first and second derivative in β of the mean of −log softmax(β·z)[label].

    They are E[z] − z_label and Var[z] under the softmax.
    """
    slope = curve = 0.0
    for z, labels in _chunks(predictions):
        p = np.exp(beta * z)
        p /= p.sum(axis=1, keepdims=True)
        mean = (p * z).sum(axis=1)
        slope += float(np.sum(mean - z[np.arange(len(z)), labels]))
        curve += float(np.sum(p * np.square(z - mean[:, None])))
    return slope / len(predictions), curve / len(predictions)


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _check(p: Predictions) -> None:
    if p.logits.ndim != 2:
        raise InputError(f"scores have shape {p.logits.shape}: expected (samples, classes)")
    n, k = p.logits.shape
    if n == 0:
        raise DataError("no samples to evaluate: the split is empty")
    if k != len(p.class_names):
        raise InputError(f"the model returns {k} scores per image, but there are {len(p.class_names)} class names")
    if k == 0:
        raise InputError("the model has no classifier: it returns features, not scores")
    if p.labels.shape != (n,):
        raise DataError(f"{n} rows of scores with labels of shape {p.labels.shape}: expected one label per row")
    if p.names is not None and len(p.names) != n:
        raise DataError(f"{n} rows of scores with {len(p.names)} names: expected one name per row")
    outside = np.flatnonzero((p.labels < 0) | (p.labels >= k))
    if len(outside):
        first = outside[0]
        raise DataError(
            f"label {p.labels[first]} of {_sample(p, first)} is not one of the {k} classes 0…{k - 1}"
            f"{_and_more(len(outside))}: does the data set have the model's classes?"
        )
    bad = np.flatnonzero(~np.isfinite(p.logits).all(axis=1))
    if len(bad):
        raise NotFiniteError(
            f"the scores of {_sample(p, bad[0])} are NaN or infinite{_and_more(len(bad))}: "
            "check the weights and the normalization of the images"
        )


def _sample(p: Predictions, index: int) -> str:
    return f"sample {index}" if p.names is None else p.names[index]


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
