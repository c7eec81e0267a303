"""Arrays in .npz files."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.small_data import save_npz
from vitkit.data.dataset import ArrayImages
from vitkit.data.open import open_data
from vitkit.errors import DataError


def test_npz_keeps_order_and_names(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3), dtype=np.uint8), np.arange(40) % 4
    path = save_npz(tmp_path / "x.npz", train_images=images, train_labels=labels, test_images=images[:8],
                test_labels=labels[:8, None], class_names=np.array(["a", "b", "c", "d"]))  # fmt: skip
    dataset = open_data(path, val_fraction=0)
    assert isinstance(dataset.splits["train"].images, ArrayImages)
    assert np.array_equal(dataset.splits["train"].images.pixels, images)
    assert np.array_equal(dataset.splits["test"].labels, labels[:8])
    assert dataset.class_names == ["a", "b", "c", "d"]
    assert dataset.splits["test"].images.name(3) == "x:test[3]"
    shared = open_data(path, val_fraction=0.25)
    assert isinstance(shared.splits["train"].images, ArrayImages)  # still in one piece, for loaders that index it
    assert [len(shared.splits[s]) for s in ("train", "val", "test")] == [32, 8, 8]


@pytest.mark.parametrize(("arrays", "message"), [
    ({"images": np.zeros((2, 4, 4), np.uint8)}, "no train_images, val_images or test_images; it has images"),
    ({"train_images": np.zeros((2, 4, 4), np.float32), "train_labels": [0, 1]}, "float32"),
    ({"train_images": np.zeros((2, 3, 8, 8), np.uint8), "train_labels": [0, 1]}, "channels first"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": [0, 1, 2]}, "for 2 images"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8)}, "without train_labels"),
    ({"train_images": np.zeros((0, 4, 4), np.uint8), "train_labels": []}, "empty"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": [0, 3], "class_names": ["a"]}, "1 class names"),
    ({"train_images": np.array([{}, {}]), "train_labels": [0, 1]}, "allow_pickle"),
])  # fmt: skip
def test_wrong_arrays_are_named(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_data(save_npz(tmp_path / "x.npz", **arrays))
