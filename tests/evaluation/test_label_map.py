import dataclasses

import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import DataError
from vitkit.evaluation.label_map import find_class_names, label_notes, match_labels
from vitkit.model import ModelInfo, create_model


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


def test_numbers_are_class_names_only_if_all_of_them_are() -> None:
    found = data(["1", "2"], named=False)
    assert match_labels(found, found.splits["test"], ["1", "2", "3"]).labels.tolist() == [0, 1, 1]
    assert "1 is not a class index" in label_notes(found, ["1", "2", "3"])[0]
    assert match_labels(found, found.splits["test"], ["2", "3", "4"]).labels.tolist() == [1, 2, 2]
    assert "1 is not one of them" in label_notes(found, ["2", "3", "4"])[0]
    assert match_labels(found, found.splits["test"], ["01", "02", "03"]).labels.tolist() == [0, 1, 1]
    for same in (["0", "1", "2"], list("abc")):
        assert match_labels(found, found.splits["test"], same).labels.tolist() == [1, 2, 2]
        assert not label_notes(found, same)


def test_a_name_that_the_model_has_twice_is_refused_with_its_indices() -> None:
    found = data(["crane", "dog"])
    with pytest.raises(DataError, match=r"the model has several classes named 'crane' \(0 and 2\): use class indices"):
        match_labels(found, found.splits["test"], ["crane", "dog", "crane"])
    same = data(["crane", "crane"])
    assert match_labels(same, same.splits["test"], ["crane", "crane"]).labels.tolist() == [0, 1, 1]


def test_spaces_around_a_class_name_of_an_older_model_do_not_matter() -> None:
    found = data(["cat", "dog"])
    assert match_labels(found, found.splits["test"], [" cat", "dog"]).labels.tolist() == [0, 1, 1]


def test_a_model_without_class_names_is_evaluated_by_index() -> None:
    model = create_model("vit_digits_patch2_8", num_classes=3)
    assert find_class_names(model, data(["1", "2"], named=False)) == ["0", "1", "2"]
    assert find_class_names(model, data(["0", "2"])) == ["0", "1", "2"]  # folders
    assert find_class_names(model, data(["cat", "dog"])) == ()
    indexed = dataclasses.replace(data(["cat", "dog", "owl"]), labels_are_indices=True)
    assert find_class_names(model, indexed) == ["cat", "dog", "owl"]
    assert find_class_names(model, dataclasses.replace(indexed, class_names=["cat", "dog"])) == ()
    model.info = ModelInfo(class_names=("a", "b", "c"))
    assert find_class_names(model, indexed) == ("a", "b", "c")
