"""Performance on the held-out split."""

import json
import re
from pathlib import Path

import numpy as np

from vitkit.evaluation import Predictions, evaluate_predictions
from vitkit.report.accuracy import performance_section


def test_the_cells_of_the_confusion_matrix_are_the_counts(runs: list[Path], page: str) -> None:
    confusion = np.array(json.loads((runs[0] / "result.json").read_text(encoding="utf-8"))["test"]["confusion"])
    cells = re.findall(r"data-cell='(\d+),(\d+)'><title>label \d, predicted \d: (\d+) of", page)
    shown = np.zeros_like(confusion)
    for i, j, n in cells:
        shown[int(i), int(j)] = int(n)
    np.testing.assert_array_equal(shown, confusion)


def test_many_classes_show_the_most_confused_without_numbers() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(80, size=400)
    names = [f"a class with a long name {i}" for i in range(80)]
    found = performance_section(evaluate_predictions(Predictions(rng.normal(size=(400, 80)), labels, names)), "test")
    assert "Confusion matrix: the 60 most often confused of 80 classes" in found
    assert "class='fixed'" in found
    assert re.search(r"<g data-cell='\d+,\d+'>.*?</g>", found)
    assert "text-anchor='middle'>1</text></g>" not in found


def test_thousands_of_classes_make_a_page_of_a_few_megabytes() -> None:
    rng, classes = np.random.default_rng(0), 4000
    labels, predicted = rng.integers(0, classes, (2, 6000))
    logits = np.zeros((6000, classes), np.float32)
    logits[np.arange(6000), predicted] = 5
    evaluation = evaluate_predictions(Predictions(logits, labels, [f"class {i}" for i in range(classes)]))
    html = performance_section(evaluation, "test")
    assert "the 60 most often confused of 4,000 classes" in html
    assert len(html) < 4e6
    assert "confusion" not in vars(evaluation)  # the matrix is not made
