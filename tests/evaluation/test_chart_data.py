"""The numbers that every chart of an evaluation draws."""

import numpy as np
import pytest

from vitkit.evaluation import Evaluation, Predictions, evaluate_predictions
from vitkit.evaluation.chart_data import MAX_CLASSES, classes_by_f1, confusion_chart, reliability_bars
from vitkit.evaluation.metrics import wilson_interval


def evaluate(labels: np.ndarray, predicted: np.ndarray, classes: int) -> Evaluation:
    names = [f"c{i}" for i in range(classes)]
    return evaluate_predictions(Predictions(3 * np.eye(classes)[predicted], labels, names))


def test_all_classes_are_shown_as_far_as_they_fit() -> None:
    evaluation = evaluate(np.array([0, 0, 0, 1, 2]), np.array([0, 2, 2, 1, 0]), 3)
    chart = confusion_chart(evaluation)
    np.testing.assert_array_equal(chart.counts, evaluation.confusion)
    np.testing.assert_allclose(chart.shares[0], [1 / 3, 0, 2 / 3])
    assert chart.title == "Confusion matrix"
    assert chart.top_confusion == "Most frequent error: c0 predicted as c2, 2 of 3 images."


def test_of_many_classes_the_most_confused_are_shown_with_shares_of_all_their_images() -> None:
    labels = np.repeat(np.arange(100), 2)
    predicted = labels.copy()
    predicted[[2 * 97, 2 * 5]] = 5, 97
    chart = confusion_chart(evaluate(labels, predicted, 100))
    assert len(chart.classes) == MAX_CLASSES
    assert {5, 97} <= set(chart.classes)
    assert list(chart.classes) == sorted(chart.classes)
    assert chart.title == "Confusion matrix: the 60 most often confused of 100 classes"
    assert not chart.has_numbers
    assert (chart.support == 2).all()


def test_a_set_without_errors_has_no_top_confusion() -> None:
    assert confusion_chart(evaluate(np.arange(3), np.arange(3), 3)).top_confusion == "No errors."


def test_reliability_bars_are_the_bins_that_hold_images() -> None:
    rng = np.random.default_rng(0)
    evaluation = evaluate_predictions(Predictions(rng.normal(0, 2, (200, 4)), rng.integers(4, size=200), list("abcd")))
    bars = reliability_bars(evaluation)
    filled = [b for b in evaluation.bins if b.count]
    assert [(b.low, b.high, b.count, b.accuracy) for b in bars] == [
        (b.low, b.high, b.count, b.accuracy) for b in filled
    ]
    assert sum(b.share for b in bars) == pytest.approx(1)
    assert bars[0].interval == wilson_interval(round(bars[0].accuracy * bars[0].count), bars[0].count)


def test_classes_are_sorted_by_f1_and_those_without_come_last() -> None:
    evaluation = evaluate(np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 0, 1]), 4)
    assert [score.label for score in classes_by_f1(evaluation)] == ["c2", "c1", "c0", "c3"]
