"""The model's own pictures, as numbers."""

import numpy as np
import pytest
import torch

from tests.model.small import OPTIONS, random_images, small_model
from vitkit.explanation.model_stats import (
    attention_distance,
    feature_pca,
    patch_distances,
    patch_filters,
    position_similarity,
    token_norms,
)


def test_filters_are_the_principal_components_of_the_patch_embedding():
    model = small_model()
    components, share = patch_filters(model, count=5)
    assert components.shape == (5, 4, 8, 3)
    weight = model.patch_embed.proj.weight.detach().flatten(1).numpy()
    values, vectors = np.linalg.eigh(np.cov(weight.T, bias=True))
    np.testing.assert_allclose(share, (values / values.sum())[::-1][:5], rtol=1e-3)
    for i in range(5):
        flat = components[i].transpose(2, 0, 1).ravel()
        assert abs(flat @ vectors[:, -1 - i]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", ["plain", "registers", "no class position", "no prefix", "sincos", "rotary"])
def test_a_position_is_most_like_itself_and_the_class_tokens_row_has_no_part(name):
    model = small_model(**OPTIONS[name])
    found = position_similarity(model)
    assert found.values.shape == (4, 3, 4, 3)
    for row, column in np.ndindex(4, 3):
        assert found.values[row, column, row, column] == pytest.approx(1, abs=1e-5)
        assert np.unravel_index(found.values[row, column].argmax(), (4, 3)) == (row, column)
    if name == "plain":
        table = model.pos_embed[0, 1:].detach()
        expected = torch.cosine_similarity(table[0], table[7], dim=0).item()
        assert found.values[0, 0, 2, 1] == pytest.approx(expected, abs=1e-5)
    assert ("rotary" in found.description) == (name == "rotary")


def test_without_positions_there_is_nothing_to_compare():
    assert position_similarity(small_model(position="none")) is None


def test_distances_are_pixels_between_centres():
    far = patch_distances((4, 3), (4, 8))
    assert far[0, 1] == 8
    assert far[0, 3] == 4
    assert far[0, 11] == pytest.approx((12**2 + 16**2) ** 0.5)


@pytest.mark.parametrize("name", ["plain", "registers", "no prefix", "many"])
@torch.no_grad()
def test_attention_distance_is_the_weighted_mean_over_queries_and_images(name, monkeypatch):
    monkeypatch.setattr("vitkit.explanation.model_stats.ROWS_PER_CHUNK", 5)  # more than one part
    model = small_model(**OPTIONS[name])
    images = random_images(model, batch=3)
    found = attention_distance(model, images)
    far = patch_distances((4, 3), (4, 8))
    weights = model.attention(images)[..., model.config.prefix :, model.config.prefix :]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    np.testing.assert_allclose(found, (weights * far).sum(dim=-1).mean(dim=(1, 3)).numpy(), rtol=1e-4)


def test_colours_are_three_components_of_all_images_together():
    model = small_model(registers=2)
    images = random_images(model, batch=3)
    found = feature_pca(model, images)
    assert found.shape == (3, 4, 3, 3)
    assert found.min() == 0
    assert found.max() == 1
    tokens = model.forward_features(images)[:, 3:].detach().flatten(0, 1).numpy()
    centred = tokens - tokens.mean(axis=0)
    first = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    inside = (found[..., 0].ravel() > 0) & (found[..., 0].ravel() < 1)
    assert abs(np.corrcoef(first[inside], found[..., 0].ravel()[inside])[0, 1]) == pytest.approx(1, abs=1e-3)


def test_token_norms_are_lengths_before_the_last_norm_and_show_an_outlier():
    model = small_model(registers=1)
    images = random_images(model)
    tokens = model.forward_intermediates(images)[-1].detach()
    np.testing.assert_allclose(token_norms(model, images), tokens[:, 2:].norm(dim=-1).view(2, 4, 3), rtol=1e-5)
