"""What `vitkit eval` prints and writes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.cli.eval_output import print_evaluation, write_evaluation
from vitkit.evaluation import Evaluation, Predictions, evaluate_predictions


@pytest.fixture
def evaluation() -> Evaluation:
    """Three of four images are right; the second cat is taken for a dog."""
    logits = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 2.0], [0.0, 2.0]])
    names = [f"{i}.png" for i in range(4)]
    return evaluate_predictions(Predictions(logits, np.array([0, 0, 1, 1]), ["cat", "dog"], names, ["5.png: is torn"]))


def answer(evaluation: Evaluation, **more: object) -> dict:
    return {"model": "pets", "data": "photos", "split": "all", **evaluation.to_dict(), **more}


def test_the_tables_name_every_column_and_the_worst_mistake(
    evaluation: Evaluation, capsys: pytest.CaptureFixture[str]
) -> None:
    print_evaluation(evaluation, answer(evaluation))
    printed = capsys.readouterr()
    lines = [" ".join(line.replace("│", " ").replace("┃", " ").split()) for line in printed.out.splitlines()]
    assert "pets on photos, all images: 4 images" in lines
    assert "top-1 75.00% 30.06% to 95.44%" in lines
    assert "image label prediction score" in lines
    assert "1.png cat dog 95.3%" in lines
    assert printed.err.strip() == "left out: 5.png: is torn"


def test_sizes_temperature_and_comparison_are_printed_if_they_were_asked_for(
    evaluation: Evaluation, capsys: pytest.CaptureFixture[str]
) -> None:
    size = {"size": 288, "top1": 0.5, "interval": (0.25, 0.75), "images_per_s": 1234.0}
    temperature = {"value": 1.5, "fitted_on": "the val split", "ece": 0.1, "nll": 0.2}
    against = {"words": "pets is better.", "caution": "But beware."}
    print_evaluation(evaluation, answer(evaluation, sizes=[size], temperature=temperature, against=against))
    printed = capsys.readouterr().out
    assert "25.00% to 75.00%" in printed
    assert "1,234" in printed
    assert "temperature 1.500, fitted on the val split: calibration error 0.1000" in printed
    assert "pets is better.\nBut beware." in printed


def test_plots_metrics_and_every_prediction_are_written(evaluation: Evaluation, tmp_path: Path) -> None:
    out = tmp_path / "new" / "eval"
    files = write_evaluation(out, evaluation, answer(evaluation))
    assert set(map(Path, files.values())) == set(out.iterdir())
    for name in ("confusion", "reliability", "classes"):
        assert Image.open(out / f"{name}.png").width > 300
    with (out / "predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["image"], row["label"], row["predicted"]) for row in rows] == [
        ("0.png", "cat", "cat"), ("1.png", "cat", "dog"), ("2.png", "dog", "dog"), ("3.png", "dog", "dog"),
    ]  # fmt: skip
    assert [(row["label_index"], row["predicted_index"]) for row in rows[:2]] == [("0", "0"), ("0", "1")]
    assert float(rows[1]["score"]) == pytest.approx(1 / (1 + np.exp(-3)), abs=1e-6)
    assert json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["top1"] == 0.75
