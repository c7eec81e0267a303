import numpy as np
import pytest
import torch

from tests.features.conftest import SEEN, small_model
from vitkit.data.dataset import ImageSource, Split
from vitkit.errors import CorruptImageError, DataError
from vitkit.features import extract_features
from vitkit.features.extract import classify_features, set_head
from vitkit.model import ViT

CASES = {
    "class token": {},
    "hidden layer": {"head_hidden": 8},
    "both side by side": {"pooling": "cls_mean"},
    "distillation token": {"distillation": True},
    "norm after pooling": {"pooling": "mean", "final_norm": "pooled"},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_classifying_the_features_gives_the_logits(changes: dict, split: Split) -> None:
    model = small_model(**changes)
    found = extract_features(model, split, SEEN, batch_size=7)
    images = SEEN.normalize(torch.stack([SEEN(split.images[i]) for i in range(len(split))]))
    with torch.no_grad():
        torch.testing.assert_close(classify_features(model, torch.from_numpy(found.values)), model(images))
    assert found.indices.tolist() == list(range(30))


@pytest.mark.parametrize("changes", [{}, {"pooling": "cls_mean"}, {"distillation": True}], ids=str)
def test_set_head_makes_a_linear_classifier_the_models_own(changes: dict, split: Split) -> None:
    model = small_model(**changes)
    values = torch.from_numpy(extract_features(model, split, SEEN).values)
    weight, bias = torch.randn(3, values.shape[1]), torch.randn(3)
    set_head(model, weight, bias)
    images = SEEN.normalize(torch.stack([SEEN(split.images[i]) for i in range(len(split))]))
    with torch.no_grad():
        torch.testing.assert_close(model(images), values @ weight.T + bias, rtol=1e-4, atol=1e-5)


def test_features_are_extracted_in_eval_mode_and_the_mode_is_restored(split: Split) -> None:
    model = small_model(dropout=0.5)
    quiet = extract_features(model, split, SEEN).values
    assert np.array_equal(extract_features(model.train(), split, SEEN).values, quiet)
    assert model.training


class Torn(ImageSource):
    """Images of which every n-th cannot be read."""

    def __init__(self, images: object, every: int) -> None:
        self.images, self.every = images, every

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> object:
        if index % self.every == self.every - 1:
            raise CorruptImageError(self.name(index), "is torn")
        return self.images[index]

    def name(self, index: int) -> str:
        return f"image {index}"


def test_unreadable_images_are_skipped_and_named(model: ViT) -> None:
    from vitkit.data.dataset import ArrayImages

    pixels = np.random.default_rng(1).integers(0, 256, (150, 8, 8), dtype=np.uint8)
    good, torn = ArrayImages(pixels, "made"), Torn(ArrayImages(pixels, "made"), 101)
    whole, parts = (
        extract_features(model, Split(images, np.zeros(150, int)), SEEN, batch_size=16) for images in (good, torn)
    )
    assert parts.skipped == ("image 100: is torn",)
    assert parts.indices.tolist() == [i for i in range(150) if i != 100]
    np.testing.assert_allclose(parts.values, whole.values[parts.indices], rtol=1e-5, atol=1e-6)


def test_too_many_unreadable_images_are_an_error(model: ViT, split: Split) -> None:
    with pytest.raises(DataError, match="more than the limit"):
        extract_features(model, Split(Torn(split.images, 10), split.labels), SEEN)


def test_an_empty_split_is_an_error(model: ViT, split: Split) -> None:
    with pytest.raises(DataError, match="the split is empty"):
        extract_features(model, split.subset(np.array([], dtype=np.int64)), SEEN)
