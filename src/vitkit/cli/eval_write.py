"""What `vitkit eval --out DIR` leaves behind: pictures, the numbers, and what was said of every image."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.evaluate import Evaluation


def write(folder: Path, evaluation: "Evaluation", answer: dict[str, Any]) -> dict[str, str]:
    """The names of the files, by what is in them."""
    from vitkit.evaluate import plot_classes, plot_confusion, plot_reliability
    from vitkit.files import write_atomic, write_json

    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in (("confusion", plot_confusion), ("reliability", plot_reliability), ("classes", plot_classes)):
        picture = io.BytesIO()
        plot(evaluation).savefig(picture, format="png", dpi=130, facecolor="white")
        write_atomic(folder / f"{name}.png", picture.getvalue())
    write_atomic(folder / "predictions.csv", _table(evaluation).encode())
    write_json(folder / "evaluation.json", answer)
    names = ("confusion.png", "reliability.png", "classes.png", "predictions.csv", "evaluation.json")
    return {Path(name).stem: str(folder / name) for name in names}


def _table(evaluation: "Evaluation") -> str:
    p, table = evaluation.predictions, io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["image", "label", "predicted", "score"])
    names = p.names or [str(i) for i in range(len(p))]
    for name, label, guess, score in zip(names, p.labels, p.samples.predicted, p.samples.confidence, strict=True):
        rows.writerow([name, p.class_names[label], p.class_names[guess], f"{score:.6f}"])
    return table.getvalue()
