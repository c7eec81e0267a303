import io
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from vitkit.evaluation import (
    Evaluation,
    Predictions,
    evaluate_predictions,
    plot_classes,
    plot_confusion,
    plot_reliability,
)
from vitkit.evaluation import plots as drawn

PLOTS = (plot_confusion, plot_reliability, plot_classes)


def make(k: int, n: int = 400, prefix: str = "class ") -> Evaluation:
    rng = np.random.default_rng(k)
    labels = rng.integers(k, size=n)
    logits = rng.normal(0, 1, (n, k))
    logits[np.arange(n), labels] += 2
    return evaluate_predictions(Predictions(logits, labels, [f"{prefix}{i}" for i in range(k)]))


def picture(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return Image.open(file).convert("RGB")


def texts(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.axes[0].texts]


def tick_labels(figure: Figure, axis: str) -> list[str]:
    return [t.get_text() for t in getattr(figure.axes[0], f"{axis}axis").get_ticklabels()]


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("k", [1, 10, 43])
def test_plots_work_for_any_number_of_classes(plot, k: int) -> None:
    image = picture(plot(make(k)))
    assert image.width > 100
    assert len(np.unique(np.asarray(image).reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_leave_no_global_figure(plot) -> None:
    figure = plot(make(3))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert isinstance(figure, Figure)
    assert pyplot is None or not pyplot.get_fignums()


def test_confusion_shows_shares_of_rows_with_full_names_and_counts(digits) -> None:
    e = evaluate_predictions(digits.predictions)
    figure = plot_confusion(e)
    shares = figure.axes[0].images[0].get_array().filled(0)
    np.testing.assert_allclose(shares, e.confusion / e.confusion.sum(axis=1, keepdims=True))
    assert tick_labels(figure, "x") == list(e.predictions.class_names)
    assert tick_labels(figure, "y") == [f"{s.label} ({s.support})" for s in e.per_class]
    assert len(texts(figure)) == np.count_nonzero(e.confusion)
    assert "<1" not in texts(figure)  # 90 samples a class: one of them is 1 %


def test_a_share_too_small_for_a_number_is_still_marked() -> None:
    labels = np.zeros(1001, dtype=np.int64)
    logits = np.tile([1.0, 0.0], (1001, 1))
    logits[0] = [0.0, 1.0]
    figure = plot_confusion(evaluate_predictions(Predictions(logits, labels, ["a", "b"])))
    assert sorted(texts(figure)) == ["100", "<1"]
    assert tick_labels(figure, "y") == ["a (1,001)", "b (0)"]


def test_numbers_are_written_only_if_they_are_legible() -> None:
    assert texts(plot_confusion(make(20)))
    assert not texts(plot_confusion(make(21)))


def test_numbers_have_enough_contrast() -> None:
    """WCAG's contrast of at least 4.5 at shares of 2.5, 5, 7.5 … 97.5 %."""

    def luminance(rgb) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb[:3]]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    labels = np.repeat(np.arange(20), 40)
    said = np.where(np.tile(np.arange(40), 20) <= 2 * labels, labels, (labels + 1) % 20)
    evaluation = evaluate_predictions(Predictions(np.eye(20)[said], labels, [str(i) for i in range(20)]))
    axes = plot_confusion(evaluation).axes[0]
    cells = axes.images[0].get_array()
    assert len(axes.texts) == 40
    for text in axes.texts:
        column, row = text.get_position()
        pair = luminance(to_rgb(text.get_color())), luminance(axes.images[0].cmap(cells[row, column]))
        assert (max(pair) + 0.05) / (min(pair) + 0.05) >= 4.5, cells[row, column]


def test_very_many_classes_show_those_with_the_most_mistakes() -> None:
    labels = np.repeat(np.arange(100), 2)
    said = labels.copy()
    said[[2 * 97, 2 * 5]] = 5, 97
    e = evaluate_predictions(Predictions(np.eye(100)[said], labels, [f"c{i}" for i in range(100)]))
    figure = plot_confusion(e)
    columns = tick_labels(figure, "x")
    assert len(columns) == 60
    assert {"c5", "c97"} <= set(columns)
    assert "60 most often confused of 100" in figure.axes[0].get_title()


def test_reliability_bars_are_the_accuracies_of_the_bins() -> None:
    e = make(10)
    upper, lower = plot_reliability(e).axes
    bars = {round(bar.get_x(), 6): bar.get_height() for bar in upper.patches}
    assert bars == {round(b.low, 6): b.accuracy for b in e.bins if b.count}
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(1)


def test_the_worst_class_is_on_top_and_one_without_scores_is_left_out() -> None:
    logits = np.eye(4)[[0, 0, 1, 0, 1]]
    e = evaluate_predictions(Predictions(logits, np.array([0, 0, 1, 1, 2]), ["good", "fair", "bad", "absent"]))
    figure = plot_classes(e)
    assert tick_labels(figure, "y") == ["bad (1)", "fair (2)", "good (2)"]
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([0, 0.5, 0.8])
    bottom, top = figure.axes[0].get_ylim()
    assert bottom > top


@pytest.mark.parametrize("plot", PLOTS)
def test_a_class_name_is_not_typeset_as_a_formula(plot) -> None:
    picture(plot(make(3, prefix="$\\bad{$")))


def test_larger_values_are_monotonically_darker() -> None:
    grey = np.array([0.2126, 0.7152, 0.0722])
    lightness = drawn.PALE_TO_DARK(np.linspace(0, 1, 256))[:, :3] @ grey
    assert np.all(np.diff(lightness) <= 0)
    assert lightness[0] - lightness[-1] > 0.8
