import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitkit.errors import DataError, InputError
from vitkit.evaluation import Predictions, compare, evaluate_predictions, mean_interval
from vitkit.evaluation.comparison import bootstrap_difference, mcnemar, student_t

CLASSES = ["a", "b"]


def right_where(right: np.ndarray, names=None, seed: int = 0) -> Predictions:
    """A model of two classes that is right on just these samples."""
    labels = np.random.default_rng(seed).integers(2, size=len(right))
    said = np.where(right, labels, 1 - labels)
    return Predictions(np.eye(2)[said], labels, CLASSES, names)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_equals_the_binomial_test_of_scipy(only_a: int, only_b: int) -> None:
    n = only_a + only_b
    expected = stats.binomtest(only_a, n, 0.5).pvalue if n else 1.0
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 1), (0, 6), (1, 9), (25_000, 25_400), (490_000, 492_000)])
def test_mcnemar_is_exact_for_extreme_and_large_counts(only_a: int, only_b: int) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue, rel=1e-6)


def test_mcnemar_underflows_to_zero_without_an_error() -> None:
    assert mcnemar(0, 50_000) == 0.0


def test_the_contingency_table_and_the_difference_b_minus_a() -> None:
    a = np.array([1, 1, 1, 0, 0, 0, 0, 1], dtype=bool)
    b = np.array([1, 1, 0, 1, 1, 1, 0, 1], dtype=bool)
    c = compare(right_where(a), right_where(b))
    assert (c.both, c.only_a, c.only_b, c.neither, c.n) == (3, 1, 3, 1, 8)
    assert (c.top1_a, c.top1_b, c.difference) == (0.5, 0.75, 0.25)
    assert c.p_value == pytest.approx(stats.binomtest(1, 4).pvalue)
    swapped = compare(right_where(b), right_where(a))
    assert (swapped.difference, swapped.p_value) == (-c.difference, c.p_value)


def test_the_bootstrap_equals_resampling_the_pairs() -> None:
    rng = np.random.default_rng(1)
    difference = rng.choice([-1, 0, 1], p=[0.06, 0.84, 0.1], size=500)
    plain = stats.bootstrap((difference,), np.mean, n_resamples=10_000, method="percentile", rng=rng)
    low, high = bootstrap_difference(int((difference < 0).sum()), int((difference > 0).sum()), 500)
    expected = plain.confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.003)
    assert low < difference.mean() < high


def test_the_bootstrap_has_its_nominal_coverage() -> None:
    counts = np.random.default_rng(2).multinomial(400, [0.1, 0.15, 0.75], size=400)
    intervals = [
        bootstrap_difference(int(a), int(b), 400, resamples=1000, seed=i) for i, (a, b, _) in enumerate(counts)
    ]
    assert np.mean([low <= 0.05 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.035)


def test_the_interval_depends_on_the_seed_but_not_on_the_order() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(300) < 0.7, rng.random(300) < 0.75
    first = compare(right_where(a), right_where(b), seed=5)
    order = rng.permutation(300)
    assert compare(right_where(a[order]), right_where(b[order]), seed=5) == first
    assert compare(right_where(a), right_where(b), seed=6).interval != first.interval


@pytest.mark.parametrize(
    ("only_a", "only_b", "significant", "agree"), [(0, 9, True, True), (3, 4, False, True), (5, 0, False, False)]
)
def test_the_summary_says_which_to_trust_if_interval_and_test_disagree(
    only_a: int, only_b: int, significant: bool, agree: bool
) -> None:
    a, b = np.ones(100, dtype=bool), np.ones(100, dtype=bool)
    a[:only_b], b[50 : 50 + only_a] = False, False
    text = compare(right_where(a), right_where(b)).summary("old", "new")
    assert f"Only new is right on {only_b} images, only old on {only_a}" in text
    assert ("is significant at the 5% level" if significant else "is not significant at the 5% level") in text
    assert text.endswith(
        "This speaks of these two sets of weights, not of the recipes: other seeds give other weights."
    )
    assert ("Interval and test disagree: trust the test" in text) is not agree


def test_a_model_equals_itself() -> None:
    p = right_where(np.arange(50) % 3 > 0)
    c = compare(p, p)
    assert (c.difference, c.interval, c.p_value, c.only_a, c.only_b) == (0.0, (0.0, 0.0), 1.0, 0, 0)


def test_evaluations_compare_as_their_predictions_do(digits) -> None:
    noisy = digits.predictions.logits + np.random.default_rng(0).normal(0, 1.5, digits.probabilities.shape)
    worse = Predictions(noisy, digits.labels, digits.predictions.class_names)
    c = compare(evaluate_predictions(digits.predictions), evaluate_predictions(worse))
    assert c == compare(digits.predictions, worse)
    assert c.difference == pytest.approx(
        (worse.logits.argmax(1) == digits.labels).mean() - (digits.probabilities.argmax(1) == digits.labels).mean()
    )
    assert c.interval[1] < 0
    assert c.p_value < 0.01
    assert c.to_dict()["interval"] == list(c.interval)


def test_different_samples_are_refused_with_the_first_difference() -> None:
    names = ["x.png", "y.png", "z.png"]
    a = right_where(np.array([1, 1, 0]), names)

    def other(**changes) -> Predictions:
        values = dict(logits=a.logits, labels=a.labels, class_names=CLASSES, names=names)
        return Predictions(**{**values, **changes})

    cases = {
        "3 samples in the first, 2 in the second": right_where(np.array([1, 1])),
        "class names differ, first at 1: 'b' and 'c'": other(class_names=["a", "c"]),
        "class names differ: 2 and 3 of them": other(class_names=["a", "b", "c"], logits=np.zeros((3, 3))),
        "samples differ, first at 2: 'z.png' and 'w.png'$": other(names=["x.png", "y.png", "w.png"]),
        "first at 0: 'x.png' and 'y.png'; they are the same in another order": other(names=["y.png", "x.png", "z.png"]),
        "2 labels differ, the first for y.png": other(labels=a.labels ^ np.array([0, 1, 1])),
    }
    for says, b in cases.items():
        with pytest.raises(DataError, match=says):
            compare(a, b)
    assert compare(a, other(names=None)).n == 3  # without names the labels have to do


@given(st.integers(1, 60), st.floats(0.5, 0.999))
def test_students_t_equals_that_of_scipy(degrees: int, level: float) -> None:
    assert student_t(degrees, level) == pytest.approx(stats.t.ppf((1 + level) / 2, degrees), rel=1e-9)


@pytest.mark.parametrize(("degrees", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_students_t_gives_the_values_of_the_printed_tables(degrees: int, t: float) -> None:
    assert student_t(degrees) == pytest.approx(t, abs=5e-4)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8, unique=True))
def test_the_interval_of_a_mean_equals_that_of_scipy(values: list[float]) -> None:
    found = mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (found.n, found.mean) == (len(values), pytest.approx(np.mean(values)))
    assert found.std == pytest.approx(np.std(values, ddof=1))


def test_invalid_counts_and_values_are_refused() -> None:
    for call in (
        lambda: mean_interval([0.9]),
        lambda: mean_interval([0.9, float("nan")]),
        lambda: student_t(0),
        lambda: student_t(3, 1.0),
        lambda: mcnemar(-1, 2),
        lambda: bootstrap_difference(3, 3, 5),
        lambda: bootstrap_difference(1, 1, 5, resamples=0),
    ):
        with pytest.raises(InputError):
            call()
