"""What `vitkit eval --out DIR` leaves behind: pictures, the numbers, and what was said of every image."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitkit.cli.output_paths import write_figure

if TYPE_CHECKING:
    from vitkit.evaluation import Evaluation


def write(folder: Path, evaluation: "Evaluation", answer: dict[str, Any]) -> dict[str, str]:
    """The names of the files, by what is in them."""
    from vitkit.atomic import write_atomic, write_json
    from vitkit.evaluation import plot_classes, plot_confusion, plot_reliability

    folder.mkdir(parents=True, exist_ok=True)
    plots = {"confusion": plot_confusion, "reliability": plot_reliability, "classes": plot_classes}
    files = {name: folder / f"{name}.png" for name in plots}
    for name, plot in plots.items():
        write_figure(files[name], plot(evaluation))
    files |= {"predictions": folder / "predictions.csv", "evaluation": folder / "evaluation.json"}
    write_atomic(files["predictions"], _table(evaluation).encode())
    write_json(files["evaluation"], answer)
    return {name: str(path) for name, path in files.items()}


def _table(evaluation: "Evaluation") -> str:
    p, table = evaluation.predictions, io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["image", "label", "predicted", "score"])
    names = p.names or [str(i) for i in range(len(p))]
    for name, label, guess, score in zip(names, p.labels, p.samples.predicted, p.samples.confidence, strict=True):
        rows.writerow([name, p.class_names[label], p.class_names[guess], f"{score:.6f}"])
    return table.getvalue()
