"""Plots of an evaluation, as matplotlib figures. They are made without pyplot, so none has to be closed.

The colours are safe for colour-blind readers: Okabe and Ito's blue and vermilion, and a colour map whose lightness
alone carries the value.
"""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.container import Container
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import PercentFormatter

from vitkit.evaluation.chart_data import MAX_CLASSES, chart_title, classes_by_f1, confusion_chart, reliability_bars
from vitkit.evaluation.evaluation import Evaluation

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#999999"
PALE_BLUE, PALE_GREY = "#B8D4E8", "#DDDDDD"
PALE_TO_DARK = ListedColormap(colormaps["magma_r"](np.linspace(0.04, 1, 256)))  # no white, which marks empty cells
WHITE_ABOVE = 0.42  # share from which white text is easier to read than black


def plot_confusion(evaluation: Evaluation) -> Figure:
    """Return the confusion matrix, each cell a share of its row. Of very many classes, draw only the most confused."""
    chart = confusion_chart(evaluation)
    share, k = chart.shares, len(chart.names)
    columns = [literal(name) for name in chart.names]
    rows = [f"{name} ({support:,})" for name, support in zip(columns, chart.support, strict=True)]
    side = max(k * (0.46 if chart.has_numbers else 0.2), 2.0)
    wide, tall = (0.07 * max(map(len, names)) for names in (rows, columns))  # inches for the longest name
    figure = Figure(figsize=(side + wide + 1.3, side + tall + 0.7), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_equal(share, 0), cmap=PALE_TO_DARK, vmin=0, vmax=1)
    axes.set_xticks(range(k), columns, rotation=90, fontsize=8)
    axes.set_yticks(range(k), rows, fontsize=8)
    axes.set_xlabel("predicted", fontsize=9)
    axes.set_ylabel("label (samples)", fontsize=9)
    axes.set_title(chart.title, fontsize=10)
    axes.set_xticks(np.arange(k - 1) + 0.5, minor=True)  # thin lines between the cells, to follow a row to its name
    axes.set_yticks(np.arange(k - 1) + 0.5, minor=True)
    axes.grid(which="minor", color=PALE_GREY, linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    if chart.has_numbers:
        _write_cells(axes, share)
    add_colorbar(figure, image, "share of the row", 8, ax=axes, shrink=0.6, aspect=30, format=PercentFormatter(1))
    return figure


def plot_reliability(evaluation: Evaluation) -> Figure:
    """Return a plot of accuracy and mean confidence per confidence bin, above the histogram of the confidence."""
    figure = Figure(figsize=(4.8, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _draw_bins(upper, evaluation)
    _draw_histogram(lower, evaluation)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_classes(evaluation: Evaluation) -> Figure:
    """Return a plot of the F1 of each class as a bar, recall and precision as marks. The worst class is on top."""
    known = [score for score in classes_by_f1(evaluation) if score.f1 is not None]
    scores = known[:MAX_CLASSES]
    rows = np.arange(len(scores))
    figure = Figure(figsize=(6.4, 0.2 * len(scores) + 1.4), layout="constrained")
    axes = figure.add_subplot()
    legend: list[Artist | Container] = [axes.barh(rows, [s.f1 or 0.0 for s in scores], color=PALE_BLUE, label="F1")]
    for kind, marker, colour in (("recall", "o", BLUE), ("precision", "D", VERMILION)):
        values = [np.nan if (value := getattr(s, kind)) is None else value for s in scores]
        legend += axes.plot(values, rows, marker, color=colour, markersize=4, label=kind, clip_on=False)
    axes.set_yticks(rows, [f"{literal(s.label)} ({s.support:,})" for s in scores], fontsize=8)
    axes.set(xlim=(0, 1), ylim=(len(scores) - 0.5, -0.5))
    title = chart_title("F1, recall and precision per class (samples)", len(scores), len(known), "worst")
    axes.set_title(title, fontsize=10)
    axes.legend(handles=legend, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, fontsize=8, frameon=False)
    axes.xaxis.tick_top()
    axes.grid(axis="x", color=PALE_GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    return figure


def add_colorbar(figure: FigureBase, shown: ScalarMappable, label: str = "", size: int = 7, **options: Any) -> None:
    """Draw a colour bar without a frame. `size` is that of the text; `options` are those of `Figure.colorbar`."""
    bar = figure.colorbar(shown, **options)
    bar.set_label(label, fontsize=size)
    bar.ax.tick_params(labelsize=size)
    bar.outline.set_visible(False)


def _draw_bins(axes: Axes, evaluation: Evaluation) -> None:
    bars = reliability_bars(evaluation)
    left, right, confidence, accuracy = (
        np.array([getattr(bar, name) for bar in bars]) for name in ("low", "high", "confidence", "accuracy")
    )
    intervals = np.array([bar.interval for bar in bars])
    legend = [
        axes.bar(left, accuracy, right - left, align="edge", color=PALE_BLUE, edgecolor="white", label="accuracy"),
        axes.vlines((left + right) / 2, *intervals.T, color=BLUE, linewidth=1.5, label="its 95 % interval"),
        axes.hlines(confidence, left, right, color=VERMILION, linewidth=2, label="mean confidence"),
        *axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfectly calibrated"),
    ]
    axes.set(ylabel="accuracy", ylim=(0, 1), xlim=(0, 1))
    axes.set_title(f"ECE {evaluation.ece:.3f}, NLL {evaluation.nll:.3f}, n = {evaluation.n:,}", fontsize=10)
    axes.legend(handles=legend, loc="upper left", fontsize=8, edgecolor="none")


def _draw_histogram(axes: Axes, evaluation: Evaluation) -> None:
    bars = reliability_bars(evaluation)
    confidence, accuracy = float(evaluation.predictions.samples.confidence.mean()), evaluation.top1
    left, share, width = [bar.low for bar in bars], [bar.share for bar in bars], 1 / len(evaluation.bins)
    axes.bar(left, share, width, align="edge", color=GREY, edgecolor="white")
    axes.axvline(confidence, color=VERMILION, linewidth=1.5, label=f"mean confidence {confidence:.1%}")
    axes.axvline(accuracy, color=BLUE, linewidth=1.5, linestyle="--", label=f"accuracy {accuracy:.1%}")
    axes.set(xlabel="confidence", ylabel="share of samples")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="upper left", fontsize=8, edgecolor="none")


def literal(name: str) -> str:
    """Return a name as matplotlib draws it: `$` would start a formula, bytes that are not UTF-8 would be an error."""
    return name.encode("utf-8", "backslashreplace").decode().replace("$", r"\$")


def _write_cells(axes: Axes, share: np.ndarray) -> None:
    """Write the percentage into each cell that is not empty."""
    for row, column in zip(*np.nonzero(share), strict=True):
        value = share[row, column]
        text, color = f"{100 * value:.0f}" if value >= 0.005 else "<1", "white" if value > WHITE_ABOVE else "black"
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
