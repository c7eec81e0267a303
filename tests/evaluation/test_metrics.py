import numpy as np
import pytest
import sklearn.metrics as reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from scipy.stats import binomtest

from vitkit.errors import DataError, InputError
from vitkit.evaluation import Predictions, cross_fitted_temperature, evaluate_predictions, fit_temperature
from vitkit.evaluation import metrics as m


def make(n: int, k: int, seed: int = 0, spread: float = 2.0) -> Predictions:
    """Return noisy logits that favour the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    logits = rng.normal(0, spread, (n, k)).astype(np.float32)
    logits[np.arange(n), labels] += spread
    return Predictions(logits, labels, [f"c{i}" for i in range(k)], [f"{i}.png" for i in range(n)])


def simulate(n: int, k: int, temperature: float, seed: int = 0) -> Predictions:
    """Draw labels from softmax(z) for a model with logits z · temperature, so the fit must find that temperature."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k))
    labels = (softmax(z, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=k - 1)
    return Predictions(z * temperature, labels, [str(i) for i in range(k)])


sizes = st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(0, 1000))


@given(sizes)
def test_scores_per_class_equal_those_of_sklearn(size: tuple[int, int, int]) -> None:
    p = make(*size)
    predicted = p.logits.argmax(axis=1)
    expected = reference.precision_recall_fscore_support(
        p.labels, predicted, labels=range(len(p.class_names)), zero_division=np.nan
    )
    rows = [(s.precision, s.recall, s.f1, s.support) for s in m.per_class(p)]
    ours = np.array([[np.nan if v is None else v for v in row] for row in rows])
    np.testing.assert_allclose(ours.T, np.array(expected), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(sizes)
def test_confusion_equals_that_of_sklearn(size: tuple[int, int, int]) -> None:
    p = make(*size)
    expected = reference.confusion_matrix(p.labels, p.logits.argmax(axis=1), labels=range(len(p.class_names)))
    np.testing.assert_array_equal(m.confusion_matrix(p), expected)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_nll_and_brier_equal_those_of_sklearn(k: int) -> None:
    p = make(500, k)
    probabilities = softmax(p.logits.astype(np.float64), axis=1)
    assert m.negative_log_likelihood(p) == pytest.approx(reference.log_loss(p.labels, probabilities, labels=range(k)))
    expected = reference.brier_score_loss(p.labels, probabilities, labels=range(k), scale_by_half=False)
    assert m.brier_score(p) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_top_k_equals_that_of_sklearn(k: int) -> None:
    p = make(400, 9)
    expected = reference.top_k_accuracy_score(p.labels, p.logits, k=k, labels=range(9)) if k < 9 else 1.0
    assert m.top_k(p, k) == pytest.approx(expected)


def test_top_5_of_three_classes_is_one() -> None:
    assert m.top_k(make(50, 3), 5) == 1.0


def test_constant_logits_gain_nothing_from_ties() -> None:
    p = Predictions(np.zeros((100, 10)), np.arange(100) % 10, [str(i) for i in range(10)])
    assert p.samples.rank[:10].tolist() == list(range(10))
    assert m.top_k(p, 1) == 0.1
    assert m.top_k(p, 5) == 0.5
    assert m.confusion_matrix(p)[:, 0].sum() == 100


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert m.wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_equals_scipy_and_contains_the_estimate(counts: tuple[int, int], level: float) -> None:
    successes, n = counts
    low, high = m.wilson_interval(successes, n, level)
    expected = binomtest(successes, n).proportion_ci(level, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= successes / n <= high <= 1


def test_wilson_has_its_nominal_coverage() -> None:
    hits = np.random.default_rng(0).binomial(200, 0.93, size=4000)
    covered = [low <= 0.93 <= high for low, high in (m.wilson_interval(int(h), 200) for h in hits)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_ece_by_hand() -> None:
    """Four samples in two bins: (0.8, 0.867] with 1 of 2 right, (0.933, 1] with 2 of 2 right."""
    probabilities = np.array([[0.85, 0.15], [0.85, 0.15], [0.98, 0.02], [0.02, 0.98]])
    p = Predictions.from_probabilities(probabilities, np.array([0, 1, 0, 1]), ["a", "b"])
    assert m.expected_calibration_error(p) == pytest.approx(0.5 * 0.35 + 0.5 * 0.02, abs=1e-6)
    filled = [b for b in m.reliability(p) if b.count]
    assert [(b.count, b.accuracy) for b in filled] == [(2, 0.5), (2, 1.0)]
    assert [b.confidence for b in filled] == pytest.approx([0.85, 0.98])
    assert [(b.low, b.high) for b in filled] == [(12 / 15, 13 / 15), (14 / 15, 1.0)]


def test_a_bin_includes_its_upper_edge_only() -> None:
    p = Predictions(np.zeros((3, 2)), np.array([0, 0, 1]), ["a", "b"])  # confidence 0.5 exactly
    assert [b.count for b in m.reliability(p, bins=2)] == [3, 0]


def test_bins_partition_the_samples() -> None:
    bins = m.reliability(make(300, 4))
    assert len(bins) == 15
    assert sum(b.count for b in bins) == 300
    assert [b.high for b in bins[:-1]] == [b.low for b in bins[1:]]
    assert all(b.low < b.confidence <= b.high for b in bins if b.confidence is not None)


def test_ece_of_a_calibrated_model_is_near_zero_and_of_an_overconfident_one_is_not() -> None:
    assert m.expected_calibration_error(simulate(40_000, 5, temperature=1.0)) < 0.01
    assert m.expected_calibration_error(simulate(40_000, 5, temperature=3.0)) > 0.1


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 12.0])
def test_the_fit_recovers_a_known_temperature(temperature: float) -> None:
    fit = fit_temperature(simulate(40_000, 5, temperature))
    assert fit.temperature == pytest.approx(temperature, rel=0.03)
    assert fit.ece_after < 0.01
    assert fit.nll_after <= fit.nll_before
    if temperature != 1.0:
        assert fit.ece_after < fit.ece_before / 5


@given(sizes)
def test_the_fitted_temperature_is_a_minimum(size: tuple[int, int, int]) -> None:
    p = make(*size)
    fit = fit_temperature(p)
    assert 0.01 * (1 - 1e-6) <= fit.temperature <= 100 * (1 + 1e-6)
    for factor in (0.98, 1.02):
        if 0.01 <= fit.temperature * factor <= 100:
            assert m.negative_log_likelihood(p.scaled(fit.temperature * factor)) >= fit.nll_after - 1e-6


def test_temperatures_without_a_minimum_stay_within_the_limits() -> None:
    right = Predictions(np.eye(4) * 0.01, np.arange(4), list("abcd"))
    assert fit_temperature(right).temperature == pytest.approx(0.01, rel=1e-6)
    assert fit_temperature(right, low=0.5).temperature == pytest.approx(0.5, rel=1e-6)
    wrong = Predictions(np.eye(4) * 5, (np.arange(4) + 1) % 4, list("abcd"))
    assert fit_temperature(wrong).temperature == pytest.approx(100, rel=1e-6)


def test_constant_logits_give_a_temperature_of_one() -> None:
    assert fit_temperature(Predictions(np.zeros((6, 3)), np.arange(6) % 3, list("abc"))).temperature == 1.0


def test_the_fit_is_fast_if_newton_steps_do_not_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mistake, every Newton step is as short as the one before."""
    calls, slope = [], m._slope
    monkeypatch.setattr(m, "_slope", lambda p, beta: calls.append(beta) or slope(p, beta))
    fit_temperature(Predictions(np.eye(4) * 3, np.arange(4), list("abcd")))
    assert len(calls) < 60


def test_a_temperature_changes_the_confidence_but_not_the_ranking() -> None:
    p = make(200, 6)
    cooler = p.scaled(3.0)
    np.testing.assert_array_equal(cooler.samples.rank, p.samples.rank)
    assert cooler.samples.confidence.mean() < p.samples.confidence.mean()
    assert cooler.names == p.names


def test_mistakes_are_sorted_by_confidence() -> None:
    p = make(300, 5)
    probabilities = softmax(p.logits.astype(np.float64), axis=1)
    predicted = p.logits.argmax(axis=1)
    wrong = sorted(np.flatnonzero(predicted != p.labels), key=lambda i: -probabilities[i].max())[:7]
    mistakes = m.confident_mistakes(p, limit=7)
    assert [x.index for x in mistakes] == wrong
    assert [x.path for x in mistakes] == [f"{i}.png" for i in wrong]
    assert [x.label for x in mistakes] == [f"c{p.labels[i]}" for i in wrong]
    assert [x.predicted for x in mistakes] == [f"c{predicted[i]}" for i in wrong]
    assert [x.score for x in mistakes] == pytest.approx([probabilities[i].max() for i in wrong])


def test_metrics_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    p = make(100, 7)
    whole = p.samples
    monkeypatch.setattr(m, "CHUNK_ROWS", 32)
    parts = make(100, 7).samples
    for name in ("predicted", "rank", "confidence", "nll", "brier"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    np.testing.assert_allclose(whole.nll, -log_softmax(p.logits.astype(np.float64), axis=1)[np.arange(100), p.labels])


@given(sizes, st.randoms(use_true_random=False))
def test_metrics_do_not_depend_on_the_order_of_the_samples(size: tuple[int, int, int], random) -> None:
    p = make(*size)
    order = np.array(random.sample(range(len(p)), len(p)))
    shuffled = Predictions(p.logits[order], p.labels[order], p.class_names, [p.names[i] for i in order])
    a, b = evaluate_predictions(p, mistakes=100).to_dict(), evaluate_predictions(shuffled, mistakes=100).to_dict()
    mistakes = [{x["path"]: (x["label"], x["predicted"], x["score"]) for x in e.pop("mistakes")} for e in (a, b)]
    assert mistakes[0] == mistakes[1]
    for name in ("n", "top1", "top5", "top1_interval", "top5_interval", "per_class", "confusion"):
        assert a[name] == b[name]
    for name in ("nll", "ece", "brier"):
        assert a[name] == pytest.approx(b[name], abs=1e-12)


def test_large_logits_do_not_overflow() -> None:
    p = Predictions(np.array([[1e4, 1e4 - 3], [-3e38, 3e38]]), np.array([1, 1]), ["a", "b"])
    assert m.negative_log_likelihood(p) == pytest.approx((3 + np.log1p(np.exp(-3))) / 2)


def test_a_probability_of_zero_for_the_label_is_a_large_finite_loss() -> None:
    p = Predictions.from_probabilities(np.array([[1.0, 0.0]]), np.array([1]), ["a", "b"])
    assert 80 < m.negative_log_likelihood(p) < 90
    assert m.brier_score(p) == pytest.approx(2.0)


NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("logits", "labels", "names", "error", "says"),
    [
        (np.zeros((0, 3)), [], None, DataError, "empty"),
        (np.zeros((2, 3)), [0, 3], None, DataError, r"label 3 of sample 1 is not one of the 3 classes 0…2: "),
        (np.zeros((3, 3)), [0, -1, 7], ["x", "y", "z"], DataError, r"label -1 of y .* \(and 1 more\)"),
        (np.zeros((2, 3)), [0.0, 1.0], None, DataError, "labels are float64"),
        (np.zeros((2, 3)), [0], None, DataError, "one label per row"),
        (np.zeros((2, 3)), [0, 1], ["x"], DataError, "2 rows of scores with 1 names"),
        (np.array([[0, 0, 0], [0, np.nan, 0]]), [0, 1], None, InputError, "scores of sample 1 are NaN"),
        (np.array([[0, 0, np.inf]]), [0], ["cat.jpg"], InputError, "scores of cat.jpg are NaN or infinite"),
        (np.zeros((2, 4)), [0, 1], None, InputError, "4 scores per image, but there are 3 class names"),
        (np.zeros(3), [0, 1, 2], None, InputError, r"expected \(samples, classes\)"),
    ],
)
def test_invalid_predictions_are_refused_in_one_line(logits, labels, names, error, says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        Predictions(logits, np.array(labels), NAMES, names)
    assert "\n" not in str(caught.value)


def test_invalid_probabilities_are_refused() -> None:
    for bad in ([[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]]):
        with pytest.raises(InputError, match="sum to 1"):
            Predictions.from_probabilities(np.array(bad), np.array([0]), ["a", "b"])


def test_invalid_settings_are_refused() -> None:
    p = make(5, 3)
    for call in (
        lambda: m.top_k(p, 0),
        lambda: p.scaled(0.0),
        lambda: p.scaled(float("nan")),
        lambda: m.wilson_interval(1, 0),
        lambda: m.wilson_interval(3, 2),
        lambda: m.reliability(p, bins=0),
        lambda: fit_temperature(p, low=2.0, high=1.0),
    ):
        with pytest.raises(InputError):
            call()


def test_a_temperature_is_evaluated_on_images_that_it_was_not_fitted_on() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 400)
    logits = draw.normal(size=(400, 3)) + 2 * np.eye(3)[labels]
    p = Predictions(8 * logits, labels, list("abc"))  # far too confident
    value, scaled = cross_fitted_temperature(p)
    assert value == fit_temperature(p).temperature
    even = Predictions(p.logits[::2], labels[::2], list("abc"))
    np.testing.assert_allclose(scaled.logits[1::2], p.logits[1::2] / fit_temperature(even).temperature, rtol=1e-6)
    assert evaluate_predictions(scaled).nll < 0.5 * evaluate_predictions(p).nll
