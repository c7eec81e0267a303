import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import DataError
from vitkit.evaluation.label_map import match_labels


def data(names: list[str], named: bool = True) -> Dataset:
    split = Split(ArrayImages(np.zeros((3, 8, 8), np.uint8), "x"), np.array([0, 1, 1]))
    return Dataset("pets", names, {"test": split}, has_class_names=named)


def test_labels_are_matched_by_name() -> None:
    found = data(["dog", "cat"])
    assert match_labels(found, found.splits["test"], ["cat", "cow", "dog"]).labels.tolist() == [2, 0, 0]


def test_labels_that_are_numbers_are_the_models_indices() -> None:
    found = data(["2", "5"], named=False)
    assert match_labels(found, found.splits["test"], list("abcdef")).labels.tolist() == [2, 5, 5]
    with pytest.raises(DataError, match="has the label 5, but the model has 3 classes"):
        match_labels(found, found.splits["test"], list("abc"))


def test_a_class_that_the_model_does_not_have_is_an_error() -> None:
    found = data(["dog", "yak"])
    with pytest.raises(DataError, match="1 classes that the model does not have, such as 'yak'"):
        match_labels(found, found.splits["test"], ["cat", "dog"])
