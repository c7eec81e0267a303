"""k-fold cross-validation by hand: every image is validated once, by a model that was not trained on it.

python examples/research/k_fold.py OUT
"""

import sys
from pathlib import Path

import numpy as np

import vitkit
from vitkit.data import Dataset
from vitkit.evaluation import mean_interval

FOLDS = 3


def fold(data: Dataset, number: int, folds: int = FOLDS) -> Dataset:
    """Return train and val of one fold: every class is divided evenly. There is no test split: it stays untouched."""
    train = data.splits["train"]
    rank = np.empty(len(train), dtype=np.int64)
    for label in range(len(data.class_names)):
        members = np.flatnonzero(train.labels == label)
        rank[members] = np.random.default_rng(label).permutation(len(members))
    left_out = rank % folds == number
    splits = {"train": train.subset(np.flatnonzero(~left_out)), "val": train.subset(np.flatnonzero(left_out))}
    return Dataset(f"{data.name}-fold{number}", data.class_names, splits)


def main(out: str) -> list[float]:
    data = vitkit.open_data("digits", val_fraction=0)  # all of train
    recipe = vitkit.get_recipe("digits").override(["budget.epochs=1", "config.depth=2", "budget.choose=last"])
    scores, names = [], []
    for number in range(FOLDS):
        result = vitkit.train(recipe, Path(out) / f"fold{number}", data=fold(data, number))
        scores.append(result.val["top1"])
        names += vitkit.load_predictions(Path(out) / f"fold{number}" / "predictions-val.safetensors").names
    assert len(names) == len(set(names)) == len(data.splits["train"])
    mean = mean_interval(scores)
    print(f"{mean.mean:.1%} over {FOLDS} folds, 95 % interval {mean.interval[0]:.1%} to {mean.interval[1]:.1%}")
    return scores


if __name__ == "__main__":
    main(sys.argv[1])
