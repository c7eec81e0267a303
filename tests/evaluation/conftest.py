"""Predictions of a real model: logistic regression on the handwritten digits of scikit-learn."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from vitkit.evaluation import Predictions

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Digits:
    pixels: np.ndarray  # (N, 8, 8) uint8, samples that the classifier has not seen
    labels: np.ndarray
    classifier: LogisticRegression  # of pixels / 255
    probabilities: np.ndarray

    @property
    def predictions(self) -> Predictions:
        return Predictions.from_probabilities(self.probabilities, self.labels, DIGITS)


@pytest.fixture(scope="session")
def digits() -> Digits:
    data = load_digits()
    pixels = np.rint(data.images * 15).astype(np.uint8)
    split = train_test_split(pixels, data.target, test_size=0.5, random_state=0, stratify=data.target)
    train, test, train_labels, test_labels = split
    classifier = LogisticRegression(max_iter=500, C=0.05).fit(_flat(train), train_labels)
    return Digits(test, test_labels.astype(np.int64), classifier, classifier.predict_proba(_flat(test)))


def _flat(pixels: np.ndarray) -> np.ndarray:
    return pixels.reshape(len(pixels), -1) / 255
