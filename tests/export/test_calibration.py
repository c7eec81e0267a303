from pathlib import Path

import numpy as np
import pytest

from tests.export.small_export import labelled_by_the_model
from tests.inference.conftest import NAMES, PREPROCESS
from vitkit.export.calibration import (
    parity_images_from_data,
    parity_images_from_samples,
    training_data_options,
)


def test_calibration_images_come_from_training_and_parity_images_from_the_test_split(tmp_path: Path) -> None:
    data = labelled_by_the_model(tmp_path / "data.npz")
    images = parity_images_from_data(data, PREPROCESS, NAMES, images=7)
    with np.load(data) as arrays:
        expected = np.stack([PREPROCESS.array(image) for image in arrays["test_images"]])
        training = np.stack([PREPROCESS.array(image) for image in arrays["train_images"]])
        labels = arrays["test_labels"]
    chosen = np.linspace(0, 19, 7).round().astype(int)
    assert np.array_equal(images.pixels, expected[chosen])
    assert np.array_equal(images.labels, labels[chosen])
    assert {x.tobytes() for x in images.calibration} <= {x.tobytes() for x in training}


def test_a_single_split_is_divided_between_parity_and_calibration(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "one.npz", train_images=pixels, train_labels=np.arange(10) % 5)
    images = parity_images_from_data(tmp_path / "one.npz", PREPROCESS, NAMES, val_fraction=0)
    assert (len(images.pixels), len(images.calibration)) == (5, 5)
    assert not {x.tobytes() for x in images.pixels} & {x.tobytes() for x in images.calibration}


def test_images_of_other_classes_have_no_labels(tmp_path: Path) -> None:
    data = labelled_by_the_model(tmp_path / "data.npz")
    assert parity_images_from_data(data, PREPROCESS, ["other", "names"]).labels is None


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_samples_have_the_channels_of_the_model_and_do_not_calibrate(channels: int) -> None:
    half = (0.5,) * channels
    images = parity_images_from_samples(PREPROCESS.replace(channels=channels, mean=half, std=half))
    assert images.pixels.shape == (32, 16, 16, channels)
    assert images.calibration is None
    assert images.labels is None


def test_training_data_are_used_only_if_they_are_on_this_machine(tmp_path: Path) -> None:
    recipe = {"data": str(tmp_path), "label": "breed", "seed": 3, "val_fraction": 0.2, "epochs": 9}
    assert training_data_options(recipe) == {k: v for k, v in recipe.items() if k != "epochs"}
    assert training_data_options({**recipe, "data": str(tmp_path / "gone")}) is None
    assert training_data_options({"data": "digits"}) == {"data": "digits"}
    assert training_data_options({}) is None
