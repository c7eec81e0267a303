import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.training.multi_process import train as train_processes
from tests.training.small import SMALL
from vitkit.training import get_recipe
from vitkit.training.train import train


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def single(folder: Path) -> dict:
    return train_processes(folder / "single", 1)


@pytest.fixture(scope="session")
def sharded(folder: Path) -> dict:
    return train_processes(folder / "sharded", 2, "parallel.shard=full")


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on the digits 0 to 4, under the class names a to e."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("five")
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)[labels < 5]
    few = labels[labels < 5]
    np.savez(folder / "five.npz", train_images=images[:700], train_labels=few[:700], test_images=images[700:],
             test_labels=few[700:], class_names=np.array(list("abcde")))  # fmt: skip
    recipe = dataclasses.replace(get_recipe("digits"), data=str(folder / "five.npz"), config=SMALL)
    train(recipe.override(["budget.epochs=4", "budget.validate_every=4"]), folder / "run", quiet=True)
    return folder / "run"
