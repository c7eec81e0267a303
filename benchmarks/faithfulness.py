"""Measure the faithfulness of every explanation method: deletion and insertion areas, DeiT-Tiny, real photographs.

    python benchmarks/faithfulness.py [--images 50] [--data ../shared/data] > benchmarks/results/faithfulness.txt

The photographs are from the grocery validation split: the first of each class, then the second, and so on. The
explained class is the predicted one. Intervals are percentile bootstraps of the mean over images.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from heading import heading

import vitkit
from vitkit.data.open import open_data
from vitkit.explanation.faithfulness import bootstrap_interval, faithfulness, rank_correlation, with_shuffled_weights

COLUMNS = ("method", "deletion ↓", "insertion ↑", "insertion − deletion ↑", "… above random", "alike by random weights")
CASCADED = ("attention", "rollout", "gradient", "attribution")  # in one pass each


def deit_tiny(folder: Path) -> vitkit.ViT:
    names = folder / "imagenet1k_classes.json"
    return vitkit.load_model(folder / "deit_tiny_patch16_224_in1k.safetensors", class_names=names).eval()


def photographs(folder: Path, count: int) -> list:
    split = open_data(str(folder / "grocery.parquet")).splits["val"]
    seen: dict[int, int] = {}
    turn = []
    for label in split.labels.tolist():
        seen[label] = seen.get(label, -1) + 1
        turn.append(seen[label])
    order = np.lexsort((np.arange(len(turn)), turn))[:count]
    return [split.images[int(i)] for i in order]


def row(values: np.ndarray) -> str:
    low, high = bootstrap_interval(values)
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    asked = parser.parse_args()
    model, images = deit_tiny(asked.data), photographs(asked.data, asked.images)
    print(heading())
    measured = faithfulness(model, images)
    noise = next(f for f in measured if f.method == "random")
    print("".join(f"{name:27s}" for name in COLUMNS))
    for f in measured:
        c = f.curves
        numbers = (c.deletion_area, c.insertion_area, c.gain, c.gain - noise.curves.gain, f.sanity)
        print(f"{f.method:27s}" + "".join(f"{row(n):27s}" for n in numbers), flush=True)
    print("\nInsertion − deletion of each method above the next one, image by image")
    for better, worse in itertools.pairwise(measured):
        print(f"{better.method} − {worse.method}".ljust(27) + row(better.curves.gain - worse.curves.gain), flush=True)
    print("\nRank correlation with the map of the same model after its classifier and last blocks were shuffled")
    stages = [1, model.config.depth // 2, model.config.depth]
    print(f"{'blocks':27s}" + "".join(f"{stage:<27d}" for stage in stages))
    for name in CASCADED:
        ours = vitkit.explain(model, images, name).maps
        found = [
            rank_correlation(ours, vitkit.explain(with_shuffled_weights(model, blocks=stage), images, name).maps)
            for stage in stages
        ]
        print(f"{name:27s}" + "".join(f"{row(f):27s}" for f in found), flush=True)


if __name__ == "__main__":
    main()
