"""Faithfulness of the maps, measured for each method on the run's held-out images."""

from vitkit.evaluation import Evaluation
from vitkit.explanation.faithfulness import STEPS, faithfulness
from vitkit.model.summary import summarize
from vitkit.report.examples import read_examples
from vitkit.report.html import Cell, heading, table, text
from vitkit.report.run_assets import RunAssets

METHODS = ("attention", "rollout", "gradient", "attribution", "random")  # occlusion needs many more forwards
MAX_IMAGES = 24
MIN_IMAGES = 4  # fewer give no useful interval
MAX_MACS = 1e12  # about half a minute on two cores


def faithfulness_table(assets: RunAssets, evaluation: Evaluation) -> str:
    title = heading("Faithfulness of the maps")
    if assets.model is None or assets.data is None:
        return ""
    macs = max(row.macs for row in summarize(assets.model.config, depth=0))
    count = min(MAX_IMAGES, evaluation.n, int(MAX_MACS / (macs * len(METHODS) * (2 * STEPS + 10))))
    if count < MIN_IMAGES:
        return title + text(
            "Not measured, because the model is large. To measure it: "
            "vitkit explain RUN IMAGE … --out DIR --faithfulness"
        )
    examples = read_examples(assets, evaluation, [i * evaluation.n // count for i in range(count)])
    if examples is None:
        return ""
    rows = []
    for found in faithfulness(assets.model, examples.batch, METHODS):
        summary = found.summary()
        rows.append([found.method, *(_cell(*summary[k]) for k in ("gain", "insertion", "deletion", "random_weights"))])
    about = (
        f"Measured on {len(examples)} held-out images. Deletion removes patches, the highest map values first. "
        "Insertion restores them in a blurred image. With a faithful map the probability of the predicted class falls "
        "early (a small deletion area) or rises early (a large insertion area). Methods are ranked by the difference; "
        "random is the baseline. The last column is the rank correlation with the map of the same model with shuffled "
        "weights. If it is near 0, the map depends on the model and not only on the image."
    )
    columns = ["method", "insertion − deletion", "insertion area", "deletion area", "correlation, shuffled weights"]
    return title + text(about) + table(columns, rows, "Mean over the images (95 % bootstrap interval)")


def _cell(mean: float, interval: tuple[float, float] | None) -> Cell:
    return Cell(f"{mean:.3f}" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""), mean)
