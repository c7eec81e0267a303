"""What is measured on images that the model did not learn from: confusions, classes, calibration."""

from collections.abc import Sequence
from html import escape

import numpy as np

from vitkit.evaluation import Evaluation
from vitkit.evaluation.metrics import wilson_interval
from vitkit.report.charts import LEFT, LETTER, TOP, Frame
from vitkit.report.html import count, figure, percent, section, table, text

MOST_CLASSES = 60  # in one matrix: of more, those that are confused most
NUMBERS_UP_TO = 20  # classes: above, the numbers in the cells could not be read
WIDEST = 640  # pixels: a wider drawing is moved within its frame rather than shrunk
STRONG = 0.5  # a share: from here on a cell is darker than the text on it


def judged(evaluation: Evaluation, split: str) -> str:
    e = evaluation
    numbers = (
        f"{e.n:,} images of the {split} split: top-1 {e.top1:.2%} (95 % interval {e.top1_interval[0]:.2%} to "
        f"{e.top1_interval[1]:.2%}), top-5 {e.top5:.2%}, mean recall of the classes {e.balanced_accuracy:.2%}, "
        f"macro F1 {e.macro_f1:.3f}, NLL {e.nll:.3f}, Brier score {e.brier:.3f}."
    )
    matrix, beside = confusion(evaluation), reliability(evaluation)
    few = len(e.predictions.class_names) <= NUMBERS_UP_TO  # then both fit side by side
    drawings = f"<div class='charts'>{matrix}{beside}</div>\n" if few else matrix + beside
    return section("Where it errs", text(numbers), drawings, classes(evaluation))


def confusion(evaluation: Evaluation) -> str:
    """Rows are the labels, columns what was predicted; the depth of a cell is its share of the row."""
    counts, names = evaluation.confusion, evaluation.predictions.class_names
    shown = most_confused(counts, MOST_CLASSES)
    side = 34 if len(shown) <= 12 else 26 if len(shown) <= NUMBERS_UP_TO else 15
    labels = [_short(names[i]) for i in shown]
    left = 14 + LETTER * max(map(len, labels))
    size, flat = side * len(shown), LETTER * max(map(len, labels)) < side
    width, height = left + size + 8, TOP + size + (18 if flat else left)
    parts = [_lines(left, side, len(shown))]
    for row, i in enumerate(shown):
        y = TOP + row * side
        parts.append(
            f"<text x='{left - 6:.0f}' y='{y + side / 2 + 4:.0f}' text-anchor='end'>{escape(labels[row])}</text>"
        )
        parts += [
            _cell(left, side, row, k, counts, i, j, names, len(shown)) for k, j in enumerate(shown) if counts[i, j]
        ]
        parts.append(_below(labels[row], left + row * side + side / 2, TOP + size + 6, flat))
    fixed = " class='fixed'" if width > WIDEST else ""
    drawing = (
        f"<div class='scroll' tabindex='0' role='region' aria-label='confusion matrix'><svg{fixed} width='{width:.0f}' "
        f"height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}' role='img' "
        f"aria-label='{escape(_worst(evaluation), quote=True)}'>{''.join(parts)}</svg></div>"
    )
    which = "" if len(shown) == len(names) else f" The {len(shown)} most confused of {len(names):,} classes are shown."
    return figure(
        drawing, f"Confusion matrix, in images: rows are the truth, columns the answer.{which} {_worst(evaluation)}"
    )


def classes(evaluation: Evaluation) -> str:
    most = max(s.support for s in evaluation.per_class)
    rows = [
        [s.label, count(s.support, most), percent(s.precision), percent(s.recall), percent(s.f1, bar=True)]
        for s in sorted(evaluation.per_class, key=lambda s: 2.0 if s.f1 is None else s.f1)
    ]
    found = table(["class", "images", "precision", "recall", "F1"], rows, "Per class, the worst first")
    return found.replace("class='scroll'", "class='scroll tall'", 1) if len(rows) > 20 else found


def reliability(evaluation: Evaluation) -> str:
    """Is a confidence of 80 % right in 80 of 100 cases? Bars: accuracy; below, how many images have that confidence."""
    main = Frame((0, 1), (0, 1), right=12, height=260)
    parts = [main.axes("confidence")]
    for b in evaluation.bins:
        if b.accuracy is None or b.confidence is None:
            continue
        x, w, y = main.across(b.low), main.across(b.high) - main.across(b.low), main.down(b.accuracy)
        low, high = (main.down(v) for v in wilson_interval(round(b.accuracy * b.count), b.count))
        middle, sure = x + w / 2, main.down(b.confidence)
        parts += [
            f"<g><title>confidence {b.low:.2f} to {b.high:.2f}: {b.count:,} images, mean confidence "
            f"{b.confidence:.3f}, accuracy {b.accuracy:.3f}</title>",
            f"<rect class='area' x='{x + 1:.1f}' y='{y:.1f}' width='{w - 2:.1f}' height='{main.down(0) - y:.1f}'/>",
            f"<line class='interval' x1='{middle:.1f}' x2='{middle:.1f}' y1='{low:.1f}' y2='{high:.1f}'/>",
            f"<line class='mark' x1='{x + 1:.1f}' x2='{x + w - 1:.1f}' y1='{sure:.1f}' y2='{sure:.1f}'/></g>",
        ]
    parts.append(f"<path class='diagonal' d='{main.path([(0, 0), (1, 1)])}'/>")
    words = f"Reliability diagram: expected calibration error {evaluation.ece:.3f}"
    drawing = (
        f"<svg width='{main.width}' height='{main.height + 60}' viewBox='0 0 {main.width} {main.height + 60}' "
        f"role='img' aria-label='{words}'>{''.join(parts)}{_histogram(evaluation, main)}</svg>"
    )
    return figure(
        drawing,
        f"{words}. Bars: accuracy in each bin of the confidence, with its 95 % interval; short lines: mean confidence; "
        "dashed: perfect calibration; below: the share of images in the bin.",
    )


def most_confused(counts: np.ndarray, limit: int) -> list[int]:
    """Indices of the classes, in their order, that take part in the most mistakes."""
    off = counts - np.diag(counts.diagonal())
    return sorted(np.argsort(-(off.sum(axis=0) + off.sum(axis=1)), kind="stable")[:limit].tolist())


def _histogram(evaluation: Evaluation, main: Frame) -> str:
    most, base = max(b.count for b in evaluation.bins), main.height + 56
    parts = []
    for b in evaluation.bins:
        x, w, h = main.across(b.low), main.across(b.high) - main.across(b.low), 46 * b.count / most
        parts.append(f"<rect class='area' x='{x + 1:.1f}' y='{base - h:.1f}' width='{w - 2:.1f}' height='{h:.1f}'/>")
    top = f"<text x='{LEFT - 6}' y='{base - 38}' text-anchor='end'>{most / evaluation.n:.0%}</text>"
    line = f"<line x1='{LEFT}' x2='{main.width - main.right}' y1='{base}' y2='{base}'/>"
    return f"<g class='axes'>{top}{line}</g>{''.join(parts)}"


def _lines(left: float, side: int, k: int) -> str:
    """A frame, and lines between the cells to follow a row to its name."""
    at = range(0, (k + 1) * side, side)
    across = "".join(f"<line x1='{left:.0f}' x2='{left + k * side:.0f}' y1='{TOP + v}' y2='{TOP + v}'/>" for v in at)
    down = "".join(f"<line x1='{left + v:.0f}' x2='{left + v:.0f}' y1='{TOP}' y2='{TOP + k * side}'/>" for v in at)
    return f"<g class='grid'>{across}{down}</g>"


def _below(label: str, x: float, y: float, flat: bool) -> str:
    """The name of a column: as it is where names are short, else turned."""
    if flat:
        return f"<text x='{x:.0f}' y='{y + 8}' text-anchor='middle'>{escape(label)}</text>"
    turned = f"text-anchor='end' transform='rotate(-90 {x + 4:.0f} {y})'"
    return f"<text x='{x + 4:.0f}' y='{y}' {turned}>{escape(label)}</text>"


def _cell(
    left: float, side: int, row: int, column: int, counts: np.ndarray, i: int, j: int, names: Sequence[str], k: int
) -> str:
    value, share = int(counts[i, j]), counts[i, j] / counts[i].sum()
    x, y = left + column * side, TOP + row * side
    strong = " class='strong'" if share >= STRONG else ""
    written = (
        f"<text{strong} x='{x + side / 2:.0f}' y='{y + side / 2 + 4:.0f}' text-anchor='middle'>{value}</text>"
        if k <= NUMBERS_UP_TO
        else ""
    )
    title = escape(f"is {names[i]}, said {names[j]}: {value:,} of {int(counts[i].sum()):,} ({share:.1%})")
    return (
        f"<g data-cell='{i},{j}'><title>{title}</title><rect class='cell' x='{x:.0f}' y='{y}' width='{side}' "
        f"height='{side}' fill-opacity='{0.06 + 0.94 * share:.3f}'/>{written}</g>"
    )


def _worst(evaluation: Evaluation) -> str:
    off = evaluation.confusion - np.diag(evaluation.confusion.diagonal())
    if not off.any():
        return "There is no mistake."
    i, j = divmod(int(off.argmax()), len(off))
    names = evaluation.predictions.class_names
    of = evaluation.confusion[i].sum()
    return f"The most frequent mistake: {names[i]} taken for {names[j]}, {off[i, j]:,} of {of:,}."


def _short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
