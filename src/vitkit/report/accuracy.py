"""Performance on the held-out split: confusion matrix, reliability diagram, scores per class."""

from html import escape

from vitkit.evaluation import Evaluation
from vitkit.evaluation.chart_data import ConfusionChart, classes_by_f1, confusion_chart, reliability_bars
from vitkit.report.charts import LEFT, LETTER_WIDTH, TOP, Frame
from vitkit.report.html import count, figure, percent, section, table, text

MAX_WIDTH = 640  # pixels: a wider matrix scrolls within its frame instead of shrinking
DARK_CELL = 0.5  # share from which a cell's text takes the light colour
HISTOGRAM = 46  # pixels, the height of the tallest bar


def performance_section(evaluation: Evaluation, split: str) -> str:
    e = evaluation
    numbers = (
        f"{e.n:,} images of the {split} split: top-1 accuracy {e.top1:.2%} (95 % interval {e.top1_interval[0]:.2%} to "
        f"{e.top1_interval[1]:.2%}), top-5 accuracy {e.top5:.2%}, balanced accuracy {e.balanced_accuracy:.2%}, "
        f"macro F1 {e.macro_f1:.3f}, NLL {e.nll:.3f}, Brier score {e.brier:.3f}."
    )
    chart = confusion_chart(evaluation)
    drawings = _confusion_matrix(chart) + _reliability_diagram(evaluation)
    if chart.has_numbers:  # then both fit side by side
        drawings = f"<div class='charts'>{drawings}</div>\n"
    return section("Performance", text(numbers), drawings, _class_table(evaluation))


def _class_table(evaluation: Evaluation) -> str:
    largest = max(s.support for s in evaluation.per_class)
    rows = [
        [s.label, count(s.support, largest), percent(s.precision), percent(s.recall), percent(s.f1, bar=True)]
        for s in classes_by_f1(evaluation)
    ]
    return table(["class", "images", "precision", "recall", "F1"], rows, "Scores per class, lowest F1 first")


def _confusion_matrix(chart: ConfusionChart) -> str:
    """Draw rows as labels and columns as predictions; a cell's opacity is its share of the row."""
    k = len(chart.names)
    cell = 34 if k <= 12 else 26 if chart.has_numbers else 15
    names = [name if len(name) <= 18 else name[:17] + "…" for name in chart.names]
    longest = LETTER_WIDTH * max(map(len, names))
    left, side, horizontal = 14 + longest, cell * k, longest < cell
    width, height = left + side + 8, TOP + side + (18 if horizontal else left)
    lines = "".join(
        f"<line x1='{left:.0f}' x2='{left + side:.0f}' y1='{TOP + at}' y2='{TOP + at}'/>"
        f"<line x1='{left + at:.0f}' x2='{left + at:.0f}' y1='{TOP}' y2='{TOP + side}'/>"
        for at in range(0, side + 1, cell)
    )
    parts = [f"<g class='grid'>{lines}</g>"]
    for row, name in enumerate(names):
        middle = row * cell + cell / 2
        parts.append(
            f"<text x='{left - 6:.0f}' y='{TOP + middle + 4:.0f}' text-anchor='end'>{escape(name)}</text>"
            + _column_name(escape(name), left + middle, TOP + side + 6, horizontal)
            + "".join(_cell(chart, row, column, left, cell) for column in chart.counts[row].nonzero()[0].tolist())
        )
    fixed = " class='fixed'" if width > MAX_WIDTH else ""
    drawing = (
        f"<div class='scroll' tabindex='0' role='region' aria-label='confusion matrix'><svg{fixed} width='{width:.0f}' "
        f"height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}' role='img' "
        f"aria-label='{escape(chart.top_confusion, quote=True)}'>{''.join(parts)}</svg></div>"
    )
    return figure(drawing, f"{chart.title}, in images. Rows: label. Columns: prediction. {chart.top_confusion}")


def _column_name(name: str, x: float, y: float, horizontal: bool) -> str:
    if horizontal:
        return f"<text x='{x:.0f}' y='{y + 8}' text-anchor='middle'>{name}</text>"
    return f"<text x='{x + 4:.0f}' y='{y}' text-anchor='end' transform='rotate(-90 {x + 4:.0f} {y})'>{name}</text>"


def _cell(chart: ConfusionChart, row: int, column: int, left: float, side: int) -> str:
    value, share = int(chart.counts[row, column]), chart.shares[row, column]
    x, y = left + column * side, TOP + row * side
    dark = " class='strong'" if share >= DARK_CELL else ""
    number = f"<text{dark} x='{x + side / 2:.0f}' y='{y + side / 2 + 4:.0f}' text-anchor='middle'>{value}</text>"
    label, predicted = chart.names[row], chart.names[column]
    title = f"label {label}, predicted {predicted}: {value:,} of {chart.support[row]:,} ({share:.1%})"
    return (
        f"<g data-cell='{chart.classes[row]},{chart.classes[column]}'><title>{escape(title)}</title>"
        f"<rect class='cell' x='{x:.0f}' y='{y}' width='{side}' height='{side}' "
        f"fill-opacity='{0.06 + 0.94 * share:.3f}'/>{number * chart.has_numbers}</g>"
    )


def _reliability_diagram(evaluation: Evaluation) -> str:
    """Draw accuracy over confidence, and below it how many images have that confidence."""
    frame, bars = Frame((0, 1), (0, 1), right=12, height=260), reliability_bars(evaluation)
    base, largest = frame.height + 56, max(bar.share for bar in bars)
    parts = [frame.axes("confidence")]
    for bar in bars:
        left, right = frame.x_at(bar.low) + 1, frame.x_at(bar.high) - 1
        top, confidence, low, high = map(frame.y_at, (bar.accuracy, bar.confidence, *bar.interval))
        middle, tall = (left + right) / 2, HISTOGRAM * bar.share / largest
        parts.append(
            f"<g><title>confidence {bar.low:.2f} to {bar.high:.2f}: {bar.count:,} images, mean confidence "
            f"{bar.confidence:.3f}, accuracy {bar.accuracy:.3f}</title>"
            f"<rect class='area' x='{left:.1f}' y='{top:.1f}' width='{right - left:.1f}' "
            f"height='{frame.y_at(0) - top:.1f}'/>"
            f"<line class='interval' x1='{middle:.1f}' x2='{middle:.1f}' y1='{low:.1f}' y2='{high:.1f}'/>"
            f"<line class='mark' x1='{left:.1f}' x2='{right:.1f}' y1='{confidence:.1f}' y2='{confidence:.1f}'/>"
            f"<rect class='area' x='{left:.1f}' y='{base - tall:.1f}' width='{right - left:.1f}' "
            f"height='{tall:.1f}'/></g>"
        )
    words = f"Reliability diagram: expected calibration error {evaluation.ece:.3f}"
    drawing = (
        f"<svg width='{frame.width}' height='{frame.height + 60}' viewBox='0 0 {frame.width} {frame.height + 60}' "
        f"role='img' aria-label='{words}'>{''.join(parts)}<path class='diagonal' d='{frame.path([(0, 0), (1, 1)])}'/>"
        f"<g class='axes'><text x='{LEFT - 6}' y='{base - 38}' text-anchor='end'>{largest:.0%}</text>"
        f"<line x1='{LEFT}' x2='{frame.width - frame.right}' y1='{base}' y2='{base}'/></g></svg>"
    )
    return figure(
        drawing,
        f"{words}. Bars: accuracy per confidence bin, with 95 % interval. Short lines: mean confidence. Dashed: "
        "perfect calibration. Bottom: share of images per bin.",
    )
