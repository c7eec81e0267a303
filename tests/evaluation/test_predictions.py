from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import DataError
from vitkit.evaluation import Predictions
from vitkit.evaluation.label_map import match_labels
from vitkit.evaluation.predictions import load_predictions, save_predictions


def test_predictions_come_back_as_they_were(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    saved = Predictions(
        logits, np.array([0, 1, 2, 0]), ["a", "b", "ç"], names=["1", "2", "3", "4"], skipped=["5: torn"]
    )
    save_predictions(tmp_path / "p.safetensors", saved)
    loaded = load_predictions(tmp_path / "p.safetensors")
    np.testing.assert_array_equal(loaded.logits, saved.logits)
    np.testing.assert_array_equal(loaded.labels, saved.labels)
    assert (loaded.class_names, loaded.names, loaded.skipped) == (saved.class_names, saved.names, saved.skipped)


@pytest.mark.parametrize("how", ["missing", "torn", "foreign"])
def test_a_file_that_holds_none_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "p.safetensors"
    if how == "torn":
        path.write_bytes(b"half")
    if how == "foreign":
        save_file({"w": np.ones(1)}, path, metadata={"class_names": "[]", "other": "[]"})
    with pytest.raises(DataError, match="no readable predictions"):
        load_predictions(path)


def data(names: list[str], named: bool = True) -> Dataset:
    split = Split(ArrayImages(np.zeros((3, 8, 8), np.uint8), "x"), np.array([0, 1, 1]))
    return Dataset("pets", names, {"test": split}, named=named)


def test_labels_are_matched_by_name() -> None:
    found = data(["dog", "cat"])
    assert match_labels(found, found.splits["test"], ["cat", "cow", "dog"]).labels.tolist() == [2, 0, 0]


def test_labels_that_are_numbers_are_the_models_indices() -> None:
    found = data(["2", "5"], named=False)
    assert match_labels(found, found.splits["test"], list("abcdef")).labels.tolist() == [2, 5, 5]
    with pytest.raises(DataError, match="has the label 5, the model only 3 classes"):
        match_labels(found, found.splits["test"], list("abc"))


def test_a_class_that_the_model_does_not_know_is_an_error() -> None:
    found = data(["dog", "yak"])
    with pytest.raises(DataError, match="1 classes that the model does not know, such as 'yak'"):
        match_labels(found, found.splits["test"], ["cat", "dog"])
