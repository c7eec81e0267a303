"""Numbers behind the charts of an evaluation: matplotlib (`plots`) and the HTML report draw the same ones."""

from dataclasses import dataclass

import numpy as np

from vitkit.evaluation.evaluation import Evaluation
from vitkit.evaluation.metrics import Bin, ClassScore, Interval, confusion_cells, wilson_interval

MAX_CLASSES = 60  # shown in one chart
MAX_CLASSES_WITH_NUMBERS = 20  # above, numbers in the cells of a confusion matrix are too small to read


@dataclass(frozen=True, eq=False)
class ConfusionChart:
    """The confusion matrix of the displayed classes: all, or the MAX_CLASSES that are confused most."""

    title: str
    classes: tuple[int, ...]  # indices of the k classes that are shown, in their order
    names: tuple[str, ...]  # (k,)
    counts: np.ndarray  # (k, k): row label, column prediction
    support: np.ndarray  # (k,): images of each label, predictions outside the chart included
    top_confusion: str  # the most frequent error in one sentence

    @property
    def shares(self) -> np.ndarray:
        """(k, k): each count divided by the number of images with its label."""
        return self.counts / np.maximum(self.support, 1)[:, None]

    @property
    def has_numbers(self) -> bool:
        return len(self.classes) <= MAX_CLASSES_WITH_NUMBERS


@dataclass(frozen=True)
class ReliabilityBar(Bin):
    """A bin of the confidence that holds at least one image."""

    confidence: float
    accuracy: float
    share: float  # of all images
    interval: Interval  # 95 %, of the accuracy


def confusion_chart(evaluation: Evaluation) -> ConfusionChart:
    names = evaluation.predictions.class_names
    label, predicted, count = confusion_cells(evaluation.predictions).T
    errors = np.where(label == predicted, 0, count)
    involved = sum(np.bincount(side, errors, minlength=len(names)) for side in (label, predicted))
    shown = np.sort(np.argsort(-involved, kind="stable")[:MAX_CLASSES])
    support, worst = np.bincount(label, count, minlength=len(names)).astype(np.int64), int(errors.argmax())
    counts, place = np.zeros((len(shown), len(shown)), np.int64), {k: i for i, k in enumerate(shown.tolist())}
    for row, column, number in zip(label.tolist(), predicted.tolist(), count.tolist(), strict=True):
        if row in place and column in place:
            counts[place[row], place[column]] = number
    return ConfusionChart(
        title=chart_title("Confusion matrix", len(shown), len(names), "most often confused"),
        classes=tuple(shown.tolist()),
        names=tuple(names[i] for i in shown.tolist()),
        counts=counts,
        support=support[shown],
        top_confusion=f"Most frequent error: {names[label[worst]]} predicted as {names[predicted[worst]]}, "
        f"{errors[worst]:,} of {support[label[worst]]:,} images."
        if errors.any()
        else "No errors.",
    )


def reliability_bars(evaluation: Evaluation) -> list[ReliabilityBar]:
    return [
        ReliabilityBar(
            b.low, b.high, b.count, b.confidence, b.accuracy, b.count / evaluation.n,
            wilson_interval(round(b.accuracy * b.count), b.count),
        )
        for b in evaluation.bins
        if b.confidence is not None and b.accuracy is not None
    ]  # fmt: skip


def classes_by_f1(evaluation: Evaluation) -> list[ClassScore]:
    """Return the scores of all classes, the lowest F1 first; classes without an F1 come last."""
    return sorted(evaluation.per_class, key=lambda score: (score.f1 is None, score.f1))


def chart_title(title: str, shown: int, classes: int, which: str) -> str:
    return title if shown == classes else f"{title}: the {shown} {which} of {classes:,} classes"
