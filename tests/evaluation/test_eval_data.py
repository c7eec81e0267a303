from pathlib import Path

import numpy as np
import pytest

from vitkit.data.open import open_data
from vitkit.errors import UnknownNameError
from vitkit.evaluation.eval_data import ALL, choose_split, open_eval_data
from vitkit.model import ModelInfo, ViT, create_model


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """40 images of two classes, without splits."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "made.npz", train_images=pixels, train_labels=np.arange(40) % 2)
    return tmp_path / "made.npz"


def model(trained_on: Path | None = None, fingerprint: str | None = None) -> ViT:
    vit = create_model("vit_digits_patch2_8", num_classes=2, seed=0)
    recipe = {"seed": 3, "val_fraction": 0.2} | ({"data": str(trained_on)} if trained_on else {})
    vit.info = ModelInfo(recipe=recipe, data={"fingerprint": fingerprint} if fingerprint else {})
    return vit


def test_data_without_splits_are_evaluated_completely_if_no_model_was_trained_on_them(arrays: Path) -> None:
    for models in ([], [model()], [model(), model(fingerprint="another")]):
        data = open_eval_data(arrays, models)
        assert {name: len(split) for name, split in data.splits.items()} == {ALL: 40}
        assert "all of its images are evaluated" in data.notes[0]
        assert choose_split(data) == ALL


def test_a_model_that_was_trained_on_them_gets_its_own_validation_split(arrays: Path) -> None:
    expected = open_data(arrays, seed=3, val_fraction=0.2)
    for known in (model(trained_on=arrays), model(fingerprint=expected.fingerprint)):
        data = open_eval_data(str(arrays), [known])
        assert data.fingerprint == expected.fingerprint
        assert (choose_split(data), len(data.splits["val"])) == ("val", 8)


def test_a_named_split_is_taken_as_it_is(arrays: Path) -> None:
    data = open_eval_data(arrays, [model()], "val")
    assert choose_split(data, "val") == "val"
    with pytest.raises(UnknownNameError, match="'tset'"):
        choose_split(data, "tset")


def test_the_test_split_comes_first() -> None:
    assert choose_split(open_eval_data("digits", [model()])) == "test"
