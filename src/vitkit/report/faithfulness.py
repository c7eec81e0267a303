"""How far the maps can be trusted: each method measured on the run's own held-out images."""

import numpy as np

from vitkit.evaluation import Evaluation
from vitkit.explanation.faithfulness import STEPS, bootstrap, faithfulness
from vitkit.model import ViT
from vitkit.model.summary import summarize
from vitkit.report.examples import read_cases
from vitkit.report.html import Cell, heading, table, text
from vitkit.report.run_assets import Subject

METHODS = ("attention", "rollout", "gradient", "attribution", "random")  # occlusion asks for many more forwards
IMAGES = 24  # at most
FEWEST = 4  # below, an interval says nothing
MACS = 1e12  # that may be spent: about half a minute on two cores


def trust(subject: Subject, evaluation: Evaluation) -> str:
    title = heading("How far to trust the maps")
    if subject.model is None or subject.data is None:
        return ""
    affordable = min(IMAGES, evaluation.n, int(MACS / (_macs(subject.model) * len(METHODS) * (2 * STEPS + 10))))
    if affordable < FEWEST:
        return title + text(
            "The model is too large to measure this in passing: `vitkit explain RUN IMAGE … --out DIR --faithfulness`."
        )
    cases = read_cases(subject, evaluation, [i * evaluation.n // affordable for i in range(affordable)])
    if cases is None:
        return ""
    found = faithfulness(subject.model, cases.batch, METHODS)
    rows = [
        [f.method, *(_mean(v) for v in (f.curves.gain, f.curves.insertion_area, f.curves.deletion_area, f.sanity))]
        for f in found
    ]
    about = (
        f"On {len(cases)} held-out images patches are taken away, best-ranked first, or given back to a blurred image. "
        "If a map is right, the answer's probability falls early (small deletion area) or rises early (large insertion "
        "area); their difference ranks the methods, and a random map is the floor. The last column compares each map "
        "with that of the same model with shuffled weights: near 0, the map shows the model and not just the image."
    )
    columns = ["method", "insertion − deletion", "insertion", "deletion", "correlation with shuffled weights"]
    return title + text(about) + table(columns, rows, "Means over the images and their 95 % bootstrap intervals")


def _mean(values: np.ndarray) -> Cell:
    mean, interval = float(np.mean(values)), bootstrap(values)
    around = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return Cell(f"{mean:.3f}{around}", mean)


def _macs(model: ViT) -> int:
    return max(row.macs for row in summarize(model.config, depth=0))
