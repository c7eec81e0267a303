import numpy as np
import pytest
import torch

from tests.model.small import random_images, small_config, small_model
from vitkit.errors import UsageError
from vitkit.explanation.faithfulness import (
    Curves,
    bootstrap_interval,
    deletion_insertion,
    faithfulness,
    gaussian_blur,
    rank_correlation,
    top_patch_masks,
    with_shuffled_weights,
)
from vitkit.model import ViT


def test_masks_add_the_highest_values_first():
    values = torch.tensor([[0.1, 0.9], [0.5, 0.3]])
    masks = top_patch_masks(values, steps=10)
    assert masks.int().flatten(1).tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]]


def test_curves_are_the_probabilities_with_patches_removed_and_restored():
    model = small_model()
    image = random_images(model, batch=1)
    values = torch.arange(12.0).view(1, 4, 3).flip(1)
    found = deletion_insertion(model, image, values, torch.tensor([2]), steps=4)
    soft = gaussian_blur(image[0], 8)
    for step in range(5):
        gone, back = image[0].clone(), soft.clone()
        for patch in values.flatten().argsort(descending=True)[: 3 * step].tolist():
            rows, columns = slice(patch // 3 * 4, patch // 3 * 4 + 4), slice(patch % 3 * 8, patch % 3 * 8 + 8)
            gone[:, rows, columns], back[:, rows, columns] = 0, image[0, :, rows, columns]
        with torch.no_grad():
            expected = model(torch.stack([gone, back])).softmax(dim=1)[:, 2]
        np.testing.assert_allclose([found.deletion[0, step], found.insertion[0, step]], expected, rtol=1e-4)
    assert found.fractions.tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_areas_are_computed_by_the_trapezoidal_rule():
    c = Curves(np.array([0, 0.5, 1]), np.array([[1.0, 0.5, 0.0]]), np.array([[0.0, 1.0, 1.0]]))
    assert c.deletion_area.tolist() == [0.5]
    assert c.insertion_area.tolist() == [0.75]
    assert c.gain.tolist() == [0.25]


class OnePatch(ViT):
    """Predicts class 1 from the brightness of one patch, so that the correct map is known."""

    def forward(self, images):
        light = images[:, :, 4:8, 8:16].mean(dim=(1, 2, 3))
        return torch.stack([torch.zeros_like(light), 4 * light], dim=1)


def test_the_correct_map_scores_highest_and_the_wrong_one_lowest():
    model = OnePatch(small_config())
    image = torch.zeros(1, 3, 16, 24)
    image[:, :, 4:8, 8:16] = 2
    right, wrong = torch.zeros(1, 4, 3), torch.ones(1, 4, 3)
    right[0, 1, 1], wrong[0, 1, 1] = 1, 0
    between = torch.arange(12.0).view(1, 4, 3)  # ranks the patch in the middle
    gains = [deletion_insertion(model, image, m, torch.tensor([1])).gain.item() for m in (right, between, wrong)]
    assert gains[0] > gains[1] > gains[2]
    assert gains[0] > 0.3
    assert gains[2] < -0.1


def test_blurring_keeps_a_constant_image_and_the_mean():
    even = torch.full((3, 16, 24), 0.7)
    torch.testing.assert_close(gaussian_blur(even, 4), even)
    spot = torch.zeros(1, 33, 33)
    spot[0, 16, 16] = 1
    soft = gaussian_blur(spot, 2)
    assert soft.sum() == pytest.approx(1, abs=1e-4)
    assert soft[0, 16, 18] / soft[0, 16, 16] == pytest.approx(np.exp(-0.5), rel=1e-4)  # a Gaussian's, one deviation off


def test_all_weights_are_shuffled_or_only_the_last_blocks():
    model = small_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}

    def changed(other):
        return {k for k, v in other.state_dict().items() if not torch.equal(v, before[k])}

    assert changed(model) == set()
    assert changed(with_shuffled_weights(model)) == set(before)
    part = changed(with_shuffled_weights(model, blocks=1))
    assert {k for k in before if k.startswith(("blocks.2", "norm", "head"))} == part
    every = with_shuffled_weights(model, seed=3).state_dict()
    for key, value in before.items():
        assert torch.equal(every[key].flatten().sort().values, value.flatten().sort().values)


def test_rank_correlation_is_that_of_spearman():
    from scipy.stats import spearmanr

    a, b = np.random.default_rng(0).random((2, 3, 4, 5))
    expected = [spearmanr(x.ravel(), y.ravel()).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(rank_correlation(a, b), expected)
    tied, other = np.round(a * 3), np.round(b * 3)
    expected = [spearmanr(x.ravel(), y.ravel()).statistic for x, y in zip(tied, other, strict=True)]
    np.testing.assert_allclose(rank_correlation(tied, other), expected)
    assert rank_correlation(np.ones((1, 2, 2)), a[:1, :2, :2]).tolist() == [0], "a blank map ranks nothing"


def test_bootstrap_is_close_to_the_normal_interval_of_many_values():
    values = np.random.default_rng(0).normal(3, 2, 400)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)
    assert bootstrap_interval(values[:1]) is None


def test_methods_are_sorted_with_one_value_per_image():
    model = small_model()
    found = faithfulness(model, random_images(model, batch=3), ["random", "attribution", "attention"], steps=4)
    gains = [f.curves.gain.mean() for f in found]
    assert gains == sorted(gains, reverse=True)
    assert {f.method for f in found} == {"random", "attribution", "attention"}
    assert all(f.sanity.shape == (3,) and f.curves.deletion.shape == (3, 5) for f in found)
    assert all(abs(f.sanity).max() < 0.9999 for f in found)
    mean, interval = found[0].summary()["gain"]
    assert mean == pytest.approx(gains[0])
    assert interval[0] <= mean <= interval[1]


def test_a_model_without_a_classifier_is_refused():
    model = small_model(num_classes=0)
    with pytest.raises(UsageError, match="the model has no classifier: faithfulness is measured"):
        faithfulness(model, random_images(model))
