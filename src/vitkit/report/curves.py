"""Learning curves: training and validation of one run, or several runs overlaid."""

from collections.abc import Callable, Sequence

from vitkit.report.charts import SMOOTHING, Line, chart
from vitkit.report.html import text
from vitkit.report.run_record import RunRecord

# title, metric, whether it is smoothed, factor to the unit shown
PANELS = (
    ("training loss", "loss", True, 1),
    ("validation loss", "val_loss", False, 1),
    ("training accuracy, %", "accuracy", True, 100),
    ("validation accuracy, %", "val_top1", False, 100),
    ("learning rate", "lr", False, 1),
    ("images per second", "images_per_s", True, 1),
)

# What a log line has without an objective of one's own
KNOWN = ("step", "time", "epoch", "loss", "accuracy", "gradient_norm", "images_per_s", "lr", "top1", "top5", "n")

SLIDER = (
    "<label class='slider'>smoothing <input type='range' min='0' max='30' step='1' "
    f"value='{round(100 * SMOOTHING)}'> <output>{round(100 * SMOOTHING)} %</output></label>\n"
)


def learning_curves(run: RunRecord) -> str:
    def pair(key: str, val_key: str, factor: float = 1) -> list[Line]:
        return [
            Line("training", _scaled(run, key, factor), 0, smooth=True),
            Line("validation", _scaled(run, val_key, factor), 1, dots=len(run.rows(val_key)) <= 60),
        ]

    charts = [
        chart("loss", pair("loss", "val_loss")),
        chart("accuracy, %", pair("accuracy", "val_top1", 100)),
        chart("learning rate", [Line("", run.rows("lr"))], from_zero=True),
        chart("images per second", [Line("", run.rows("images_per_s"), smooth=True)], from_zero=True),
    ]
    charts += [chart(name, pair(name, f"val_{name}")) for name in objective_metrics(run)]
    smoothing = run.recipe.loss.label_smoothing
    labels = f" and with label smoothing {smoothing:g}" if smoothing else ""
    about = (
        f"Training values are measured on augmented images{labels}, while the weights change. Validation uses plain "
        "images and labels, so that the two curves can differ. To read values, point at a curve, or focus it and press "
        "← and →."
    )
    return SLIDER + f"<div class='charts'>{''.join(charts)}</div>\n" + text(about)


def objective_metrics(run: RunRecord) -> list[str]:
    """Return the names of metrics that an objective added to the log, in training or validation."""
    names = dict.fromkeys(key.removeprefix("val_") for line in run.metrics for key in line)
    return [name for name in names if name not in KNOWN and not name.startswith("probe_")]


def overlaid_curves(runs: Sequence[RunRecord], letter: Callable[[int], str]) -> str:
    """Draw one panel per metric; a run has the same letter, colour and dashes in every panel."""
    charts = [
        chart(title, [Line(letter(i), _scaled(run, key, factor), i, smooth) for i, run in enumerate(runs)],
              from_zero=key in ("lr", "images_per_s"))
        for title, key, smooth, factor in PANELS
    ]  # fmt: skip
    return SLIDER + f"<div class='charts'>{''.join(charts)}</div>\n"


def _scaled(run: RunRecord, key: str, factor: float) -> list[tuple[float, float]]:
    return [(x, factor * y) for x, y in run.rows(key)]
