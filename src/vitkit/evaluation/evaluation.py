"""`Evaluation`: all metrics of a set of predictions, and their JSON document."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from vitkit.evaluation import metrics
from vitkit.evaluation.metrics import Bin, ClassScore, Interval, Mistake, Predictions

MAX_CONFUSION = 1000  # classes: above, the JSON document lists cells instead of the matrix


@dataclass(frozen=True)
class Overlap:
    """How many of the evaluated images, by content, are images of the model's training."""

    train: int  # trained on, so that the accuracy on them shows what was memorised
    val: int  # used to choose the weights
    left_out: int  # trained on, and therefore not evaluated


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All metrics of a model on a split, as fractions. Intervals are Wilson's at 95 %."""

    predictions: Predictions = field(repr=False)  # to compare sample by sample, and to fit a temperature
    n: int
    top1: float
    top1_interval: Interval
    top5: float  # 1 if there are at most 5 classes
    top5_interval: Interval
    balanced_accuracy: float  # mean recall of the classes that have samples
    macro_f1: float  # mean F1 of the classes that have samples or were predicted
    nll: float
    ece: float
    brier: float
    per_class: tuple[ClassScore, ...]
    bins: tuple[Bin, ...] = field(repr=False)
    mistakes: tuple[Mistake, ...] = field(repr=False)
    overlap: Overlap | None = None  # None: the model or the images have no content hashes
    notes: tuple[str, ...] = ()  # what a reader of the numbers should know

    @cached_property
    def confusion(self) -> np.ndarray:
        """(K, K) counts: row label, column predicted. 21,000 classes need 3.5 GB: see `metrics.confusion_cells`."""
        return metrics.confusion_matrix(self.predictions)

    @property
    def loss(self) -> float:
        """The cross-entropy without label smoothing or class weights: the NLL under the name that training uses."""
        return self.nll

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document. An undefined ratio, such as the recall of a class without samples, is null.

        Above `MAX_CONFUSION` classes "confusion" is null, and "confusion_cells" lists [label, predicted, count] of the
        cells that are not 0, by class index.
        """
        dense = len(self.predictions.class_names) <= MAX_CONFUSION
        numbers = ("n", "top1", "top5", "balanced_accuracy", "macro_f1", "loss", "nll", "ece", "brier")
        return {
            **{name: getattr(self, name) for name in numbers},
            "top1_interval": list(self.top1_interval),
            "top5_interval": list(self.top5_interval),
            "class_names": list(self.predictions.class_names),
            "per_class": [asdict(score) for score in self.per_class],
            "confusion": self.confusion.tolist() if dense else None,
            **({} if dense else {"confusion_cells": metrics.confusion_cells(self.predictions).tolist()}),
            "reliability": [asdict(bin_) for bin_ in self.bins],
            "mistakes": [asdict(mistake) for mistake in self.mistakes],
            "skipped": list(self.predictions.skipped),
            "overlap": None if self.overlap is None else asdict(self.overlap),
            "notes": list(self.notes),
        }


def evaluate_predictions(predictions: Predictions, mistakes: int = 20) -> Evaluation:
    """Return all metrics, and the `mistakes` mistakes with the highest confidence."""
    scores = metrics.per_class(predictions)
    return Evaluation(
        predictions=predictions,
        n=len(predictions),
        top1=metrics.top_k(predictions, 1),
        top1_interval=metrics.top_k_interval(predictions, 1),
        top5=metrics.top_k(predictions, 5),
        top5_interval=metrics.top_k_interval(predictions, 5),
        balanced_accuracy=fmean(s.recall for s in scores if s.recall is not None),
        macro_f1=fmean(s.f1 for s in scores if s.f1 is not None),
        nll=metrics.negative_log_likelihood(predictions),
        ece=metrics.expected_calibration_error(predictions),
        brier=metrics.brier_score(predictions),
        per_class=scores,
        bins=metrics.reliability(predictions),
        mistakes=metrics.confident_mistakes(predictions, mistakes),
    )
