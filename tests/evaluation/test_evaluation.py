import json

import numpy as np
import pytest
import sklearn.metrics as reference

from vitkit.evaluation import Predictions, evaluate_predictions
from vitkit.evaluation.metrics import wilson_interval

KEYS = {
    "n",
    "top1",
    "top5",
    "top1_interval",
    "top5_interval",
    "balanced_accuracy",
    "macro_f1",
    "loss",
    "nll",
    "ece",
    "brier",
    "class_names",
    "per_class",
    "confusion",
    "reliability",
    "mistakes",
    "skipped",
    "overlap",
    "notes",
}


def test_the_metrics_equal_those_of_sklearn(digits) -> None:
    e = evaluate_predictions(digits.predictions)
    p, y = digits.probabilities, digits.labels
    predicted = p.argmax(axis=1)
    hits = int((predicted == y).sum())
    assert 0.9 < e.top1 < 1
    assert e.n == len(y) == 899
    assert e.top1 == reference.accuracy_score(y, predicted)
    assert e.top1_interval == wilson_interval(hits, len(y))
    assert e.top5 == pytest.approx(reference.top_k_accuracy_score(y, p, k=5))
    assert e.top5_interval == wilson_interval(round(e.top5 * e.n), e.n)
    assert e.balanced_accuracy == pytest.approx(reference.balanced_accuracy_score(y, predicted))
    assert e.macro_f1 == pytest.approx(reference.f1_score(y, predicted, average="macro"))
    assert e.loss == e.nll == pytest.approx(reference.log_loss(y, p), rel=1e-6)
    assert e.brier == pytest.approx(reference.brier_score_loss(y, p, scale_by_half=False), rel=1e-5)
    np.testing.assert_array_equal(e.confusion, reference.confusion_matrix(y, predicted))
    assert len(e.mistakes) == min(20, len(y) - hits)


def test_json_has_the_documented_keys_and_round_trips(digits) -> None:
    e = evaluate_predictions(digits.predictions)
    document = e.to_dict()
    assert set(document) == KEYS
    assert set(document["per_class"][0]) == {"label", "precision", "recall", "f1", "support"}
    assert {"path", "label", "predicted", "score"} <= set(document["mistakes"][0])
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["per_class"][3]["label"] == document["class_names"][3] == "three"


def test_an_undefined_ratio_is_null_and_excluded_from_means() -> None:
    """Class b has no samples and c is never predicted: 'a' is right twice, c's only sample is called b."""
    logits = np.array([[5, 0, 0, 0], [5, 0, 0, 0], [0, 5, 0, 0]])
    e = evaluate_predictions(Predictions(logits, np.array([0, 0, 2]), list("abcd")))
    rows = [(s["precision"], s["recall"], s["f1"], s["support"]) for s in e.to_dict()["per_class"]]
    assert rows == [(1.0, 1.0, 1.0, 2), (0.0, None, 0.0, 0), (None, 0.0, 0.0, 1), (None, None, None, 0)]
    assert e.balanced_accuracy == pytest.approx(1 / 2)
    assert e.macro_f1 == pytest.approx(1 / 3)


def test_top5_of_two_classes_is_one() -> None:
    e = evaluate_predictions(Predictions(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]), ["no", "yes"]))
    assert (e.top1, e.top5) == (0.5, 1.0)
    assert e.top5_interval == wilson_interval(2, 2)


def test_a_model_without_mistakes_has_an_empty_list() -> None:
    e = evaluate_predictions(Predictions(np.eye(3), np.arange(3), list("abc")))
    assert e.mistakes == ()
    assert e.to_dict()["mistakes"] == []


def test_the_confusion_of_thousands_of_classes_is_listed_by_cell() -> None:
    """The matrix of 4,000 classes took 145 MB of JSON, in `eval --json` and twice in a run's result.json."""
    rng, classes = np.random.default_rng(0), 4000
    labels, predicted = rng.integers(0, classes, (2, 6000))
    logits = np.zeros((6000, classes), np.float32)
    logits[np.arange(6000), predicted] = 5
    e = evaluate_predictions(Predictions(logits, labels, [f"class {i}" for i in range(classes)]))
    document = e.to_dict()
    assert document["confusion"] is None
    assert len(json.dumps(document, indent=2)) < 2e6
    dense = np.zeros((classes, classes), int)
    for label, guess, count in document["confusion_cells"]:
        dense[label, guess] = count
    np.testing.assert_array_equal(dense, e.confusion)
    assert dense.sum() == 6000
    few = evaluate_predictions(Predictions(np.eye(1000), np.arange(1000), [str(i) for i in range(1000)])).to_dict()
    assert np.array_equal(few["confusion"], np.eye(1000))  # ImageNet's classes keep the matrix
    assert "confusion_cells" not in few
