import numpy as np
import pytest
import torch

from tests.features.conftest import SEEN, small_model
from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import DataError
from vitkit.features import cached_features, choose_k, evaluate_knn, extract_features, knn_predict
from vitkit.features.extract import probe_backbone
from vitkit.model import ViT


@pytest.fixture
def data() -> Dataset:
    """Two classes that differ in brightness, so that even random weights separate them."""
    rng, labels = np.random.default_rng(0), np.arange(90) % 2
    pixels = (rng.integers(0, 100, (90, 8, 8)) + 120 * labels[:, None, None]).astype(np.uint8)
    parts = {"train": slice(0, 60), "val": slice(60, 90)}
    splits = {name: Split(ArrayImages(pixels[rows], name), labels[rows]) for name, rows in parts.items()}
    return Dataset("made", ["dark", "light"], splits)


def test_a_split_is_classified_by_its_neighbours_in_the_training_split(model: ViT, data: Dataset) -> None:
    result = evaluate_knn(model, data, "val", SEEN)
    known, asked = (extract_features(probe_backbone(model), data.splits[s], SEEN).values for s in ("train", "val"))
    k, accuracy = choose_k(known, data.splits["train"].labels, 2)
    assert (result.k, result.leave_one_out_accuracy) == (k, accuracy[k])
    expected = knn_predict(known, data.splits["train"].labels, asked, 2, k)
    np.testing.assert_allclose(result.predictions.logits, expected, rtol=1e-4, atol=1e-4)
    assert result.predictions.names[3] == "val[3]"
    assert np.mean(result.predictions.logits.argmax(axis=1) == result.predictions.labels) > 0.9


def test_a_given_k_is_used_and_nothing_is_chosen(model: ViT, data: Dataset) -> None:
    result = evaluate_knn(model, data, "val", SEEN, k=3)
    assert (result.k, result.leave_one_out_accuracy) == (3, None)


def test_a_train_split_and_another_one_are_needed(model: ViT, data: Dataset) -> None:
    with pytest.raises(DataError, match="k-NN needs a train split, and another split to evaluate"):
        evaluate_knn(model, data, "train", SEEN)
    with pytest.raises(DataError, match="k-NN needs a train split"):
        evaluate_knn(model, Dataset("made", data.class_names, {"val": data.splits["val"]}), "val", SEEN)


def test_the_model_keeps_its_classifier(model: ViT, data: Dataset) -> None:
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    evaluate_knn(model, data, "val", SEEN)
    assert model.info.class_names == ("a", "b", "c")
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_features_are_pooled_as_a_linear_probe_does(data: Dataset) -> None:
    """Weights trained for the class token alone get the mean of the patch tokens too, others stay as they are."""
    for changes, width in (({}, 32), ({"distillation": True}, 32), ({"pooling": "mean"}, 16), ({"head_hidden": 8}, 32)):
        features = cached_features(probe_backbone(small_model(**changes)), data.splits["val"], SEEN)
        assert features.values.shape == (30, width), changes
