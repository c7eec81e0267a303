"""Print the result of `vitkit eval`, and write its files."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitkit.cli.output import MAX_CLASS_ROWS, console, csv_cell, print_table
from vitkit.cli.output_paths import write_figure

if TYPE_CHECKING:
    from vitkit.evaluation import Evaluation
    from vitkit.evaluation.metrics import Interval


def print_evaluation(evaluation: "Evaluation", answer: dict[str, Any]) -> None:
    """Print tables: metrics, classes, mistakes, and what was asked for besides."""
    e, show = evaluation, console().print
    places = {"all": "all images", "unseen": "images that it was not trained on"}
    where = places.get(answer["split"], f"{answer['split']} split")
    print_table(
        f"{answer['model']} on {answer['data']}, {where}: {e.n:,} images",
        ["measure", "value", "95 % interval"],
        [
            ["top-1", f"{e.top1:.2%}", _interval(e.top1_interval)],
            ["top-5", f"{e.top5:.2%}", _interval(e.top5_interval)],
            ["balanced accuracy", f"{e.balanced_accuracy:.2%}", ""],
            ["macro F1", f"{e.macro_f1:.2%}", ""],
            ["negative log-likelihood", f"{e.nll:.4f}", ""],
            ["calibration error (ECE)", f"{e.ece:.4f}", ""],
        ],
    )
    _print_classes(e)
    if e.mistakes:
        print_table(
            "Most confident mistakes",
            ["image", "label", "prediction", "score"],
            [[m.path, m.label, m.predicted, f"{m.score:.1%}"] for m in e.mistakes[:10]],
        )
    if "sizes" in answer:
        rows = [
            [r["size"], f"{r['top1']:.2%}", _interval(r["interval"]), f"{r['images_per_s']:,.0f}"]
            for r in answer["sizes"]
        ]
        print_table("By image size", ["size", "top-1", "95 % interval", "images/s"], rows)
    if "temperature" in answer:
        t = answer["temperature"]
        show(
            f"temperature {t['value']:.3f}, fitted on {t['fitted_on']}: calibration error {t['ece']:.4f}, "
            f"negative log-likelihood {t['nll']:.4f}",
            markup=False,
        )
    for key in ("words", "caution"):
        if key in answer.get("against", {}):
            show(answer["against"][key], markup=False)
    for line in e.predictions.skipped:
        console(stderr=True).print(f"left out: {line}", markup=False)


def write_evaluation(folder: Path, evaluation: "Evaluation", answer: dict[str, Any]) -> dict[str, str]:
    """Write plots, metrics and every prediction to a folder. Return the paths by content."""
    from vitkit.atomic import write_atomic, write_json
    from vitkit.evaluation import plot_classes, plot_confusion, plot_reliability

    folder.mkdir(parents=True, exist_ok=True)
    plots = {"confusion": plot_confusion, "reliability": plot_reliability, "classes": plot_classes}
    files = {name: folder / f"{name}.png" for name in plots}
    for name, plot in plots.items():
        write_figure(files[name], plot(evaluation))
    files |= {"predictions": folder / "predictions.csv", "evaluation": folder / "evaluation.json"}
    write_atomic(files["predictions"], _predictions_csv(evaluation))
    write_json(files["evaluation"], answer)
    return {name: str(path) for name, path in files.items()}


def _print_classes(e: "Evaluation") -> None:
    weakest = sorted(e.per_class, key=lambda s: (s.f1 is None, s.f1))
    more = f" ({MAX_CLASS_ROWS} of {len(weakest):,}; --json has all)" if len(weakest) > MAX_CLASS_ROWS else ""
    print_table(
        f"Per class, weakest first{more}",
        ["class", "precision", "recall", "F1", "images"],
        [
            [s.label, *("" if v is None else f"{v:.2%}" for v in (s.precision, s.recall, s.f1)), s.support]
            for s in weakest[:MAX_CLASS_ROWS]
        ],
    )


def _interval(interval: "Interval") -> str:
    return f"{interval[0]:.2%} to {interval[1]:.2%}"


def _predictions_csv(evaluation: "Evaluation") -> str:
    p, text = evaluation.predictions, io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["image", "label", "predicted", "score", "label_index", "predicted_index"])
    names = p.names or [str(i) for i in range(len(p))]
    for name, label, guess, score in zip(names, p.labels, p.samples.predicted, p.samples.confidence, strict=True):
        texts = map(csv_cell, (name, p.class_names[label], p.class_names[guess]))
        rows.writerow([*texts, f"{score:.6f}", label, guess])
    return text.getvalue()
