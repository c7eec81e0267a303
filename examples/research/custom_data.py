"""A data set of one's own: images that are drawn when they are read, in train, val and test.

python examples/research/custom_data.py OUT
"""

import sys

import numpy as np

import vitkit
from vitkit.data import Dataset, ImageSource, Split

SHAPES = ("disc", "ring", "square")


class DrawnShapes(ImageSource):
    """Draws image i from the number i, so that it is the same each time."""

    def __init__(self, first: int, count: int, size: int = 16) -> None:
        self.first, self.count, self.size = first, count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        rng = np.random.default_rng(self.first + index)
        y, x = np.mgrid[: self.size, : self.size] - rng.uniform(6, 10, (2, 1, 1))
        radius, width = rng.uniform(3, 5), 1.5
        distance = np.maximum(abs(x), abs(y)) if index % 3 == 2 else np.hypot(x, y)
        inside = abs(distance - radius) < width if index % 3 == 1 else distance < radius
        return np.clip(200 * inside + rng.normal(20, 15, inside.shape), 0, 255).astype(np.uint8)

    def name(self, index: int) -> str:
        return f"{SHAPES[index % 3]}-{self.first + index}"


def open_shapes() -> Dataset:
    splits, first = {}, 0
    for name, count in (("train", 300), ("val", 90), ("test", 90)):
        splits[name] = Split(DrawnShapes(first, count), np.arange(count) % 3)
        first += count
    return Dataset("shapes", SHAPES, splits)


def main(out: str) -> vitkit.Result:
    recipe = vitkit.get_recipe("digits").override(["budget.epochs=2", "config.depth=2", "preprocess.channels=1"])
    recipe = recipe.override(["config.image_size=16", "preprocess.mean=(0.3,)", "preprocess.std=(0.3,)"])
    result = vitkit.train(recipe, out, data=open_shapes())
    print(f"{result.test['top1']:.1%} on {result.test['n']} new shapes")
    return result


if __name__ == "__main__":
    main(sys.argv[1])
